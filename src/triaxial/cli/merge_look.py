"""`triax merge words | show | compare | export | rate`: looking at sets and runs that are there."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from triaxial.cli import merge_llm, merge_options, options
from triaxial.cli.console import note, out, print_json, warn

__all__ = ["compare", "export", "rate_app", "show", "words"]

rate_app = typer.Typer(no_args_is_help=True, help="The manual check: are the variants good?")


def words(
    run_dir: merge_options.RunDir,
    model: Annotated[
        str | None, typer.Option(help="One of the run's models; by default all.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Words shown of each kind.")] = 12,
    least: Annotated[int, typer.Option(min=1, help="Premises that a word must have.")] = 3,
    as_json: options.Json = False,
) -> None:
    """Say which words a model fails on: put in for another word, or taken out.

    Counted are variants of seeds that the model labels rightly. Words come in the order of how
    sure it is that they fail; every word has a variant to look at.

    Example: `triax merge words runs/mine --top 20`
    """
    from triaxial.api.merge_show import words_of_run
    from triaxial.cli.merge_tables import print_words
    from triaxial.errors import InputError

    found = words_of_run(run_dir, least=least)
    if model is not None:
        if model not in found:
            raise InputError(f"{model!r} is not one of {', '.join(found)}", where="--model")
        found = {model: found[model]}
    if as_json:
        print_json(found)
        return
    print_words(out(), found, top, least)
    shown = [one["example"] for each in found.values() for one in each["in"] if one["example"]]
    if shown:
        seed = shlex.quote(shown[0].rpartition("#")[0])
        note(f"next: `triax merge show {run_dir} {seed}` for a seed in full")


def show(
    run_dir: merge_options.RunDir,
    seed: Annotated[str, typer.Argument(help="Id of the seed.", show_default=False)],
    store: options.StoreDir = Path(".triaxial"),
    most: Annotated[int, typer.Option(min=1, help="Rejected candidates shown for a reason.")] = 12,
    rejected: Annotated[
        bool, typer.Option("--rejected/--no-rejected", help="Show the rejected candidates too.")
    ] = True,
    as_json: options.Json = False,
) -> None:
    """Print a seed with its variants, and what became of every rejected candidate.

    Example: `triax merge show run 1234`
    """
    from triaxial.api.merge_files import read_predictions, read_set
    from triaxial.api.merge_show import rejected as refused
    from triaxial.api.merge_show import seed_view
    from triaxial.cli.merge_tables import print_seed
    from triaxial.errors import StoreError

    made = read_set(run_dir)
    view = seed_view(made, read_predictions(run_dir), seed)
    rows: list[dict[str, Any]] = []
    lacking = ""
    if rejected:
        try:
            rows = refused(made, seed, merge_options.settings(store, "cpu", None, 1, None))
        except StoreError:
            lacking = (
                f"rejected candidates are not shown: the masked LMs' answers are not in {store}; "
                "name the store of the run with --store"
            )
    if as_json:
        print_json({**asdict(view), "rejected": None if lacking else rows})
    else:
        print_seed(out(), view, rows, most)
    if lacking:
        warn(lacking)
    note(f"next: `triax merge words {run_dir}`, `triax report {run_dir} --out report.html`")


def compare(
    old: Annotated[str, typer.Argument(help="RUN or RUN:MODEL.", show_default=False)],
    new: Annotated[str, typer.Argument(help="RUN or RUN:MODEL.", show_default=False)],
    metric: Annotated[str, typer.Option(help="The figure that decides: S, SV5 … SV100.")] = "SV95",
    group: Annotated[
        str, typer.Option(help="`all`, or `class:VERB`, `label:neutral`, `source:MLM`.")
    ] = "all",
    seed: merge_options.Seed = 1,
    fail_on: Annotated[
        Literal["worse", "not-better", "never"],
        typer.Option(help="Verdict that makes the exit code 1."),
    ] = "worse",
    as_json: options.Json = False,
) -> None:
    """The release gate: is NEW better or worse than OLD on the same variants, or undecided?

    Example: `triax merge compare runs/v1 runs/v2 --metric SV95`
    """
    from triaxial.api.merge_compare import compare_runs
    from triaxial.errors import GateError, InputError

    kind, _, name = group.partition(":")
    rows, before, after = compare_runs(old, new, kind=kind, name=name or "all", seed=seed)
    chosen = next((row for row in rows if row.metric == metric), None)
    if chosen is None:
        raise InputError(f"{metric!r} is not one of S, SV5, SV10 … SV100", where="--metric")
    if as_json:
        rows_plain = [row.plain() for row in rows]
        print_json({"old": before, "new": after, "metric": metric, "figures": rows_plain})
    else:
        from triaxial.cli.merge_tables import print_comparison

        print_comparison(out(), rows, f"{before} (old)", f"{after} (new)", metric)
    failed = {"worse": ("worse",), "not-better": ("worse", "undecided"), "never": ()}[fail_on]
    if chosen.verdict in failed:
        raise GateError(f"{metric} of {after} is {chosen.verdict} ({chosen.difference.value:+.1f})")
    runs = dict.fromkeys(
        one if Path(one).is_dir() else one.rpartition(":")[0] for one in (old, new)
    )
    note(f"next: `triax report {' '.join(runs)} --out report.html` puts them side by side")


def export(
    context: typer.Context,
    run_dir: merge_options.RunDir,
    to: Annotated[
        Path, typer.Option("--out", help="File to write, or directory for hf and lm-eval.")
    ],
    form: Annotated[
        Literal["jsonl", "items", "hf", "lm-eval"],
        typer.Option(
            "--format",
            help="`jsonl`: variants; `items`: what a model is to label; `hf`: a data set folder; "
            "`lm-eval`: tasks of lm-evaluation-harness.",
        ),
    ] = "jsonl",
    min_variants: merge_options.MinVariants = 20,
    draws: merge_options.Draws = 10,
    seed: merge_options.Seed = 1,
    sample: merge_options.Sample = None,
    sample_like: merge_options.SampleLike = None,
    shots: merge_llm.Shots = None,
    shots_from: merge_llm.ShotsFrom = None,
    shots_split: merge_llm.ShotsSplit = None,
    answers: merge_llm.Answers = None,
    instruction: merge_llm.Instruction = None,
    as_json: options.Json = False,
) -> None:
    """Write a set for other programs.

    Example: `triax merge export set --format items --out items.jsonl`, label the rows with any
    program, and score them with `triax merge evaluate set --model file:labels.jsonl --out run`
    """
    from triaxial.api.merge_files import read_set
    from triaxial.api.merge_lm_eval import lm_eval_tasks
    from triaxial.api.merge_predict import item_rows
    from triaxial.api.merge_sample import sampled
    from triaxial.api.merge_show import export as exported
    from triaxial.merge.score import DrawOptions

    merge_options.check_sample(sample, sample_like)
    made = read_set(run_dir)
    draw = DrawOptions(min_variants, draws, seed)
    asked = merge_llm.prompt_for(form == "lm-eval", context.params, made.pairs, seed)
    if sample is not None:
        made = sampled(made, sample, draw, sample_like)
    items = item_rows(made, draw)
    files = (
        exported(made, items, form, to) if asked is None else lm_eval_tasks(made, items, asked, to)
    )
    written = [str(path) for path in files]
    if as_json:
        print_json({"format": form, "files": written})
        return
    for path in written:
        print(path)


@rate_app.command("export")
def rate_export(
    run_dir: merge_options.RunDir,
    to: Annotated[Path, typer.Option("--out", help="CSV sheet to write.")],
    sample: Annotated[int, typer.Option(min=1, help="Variants to rate.")] = 100,
    seed: merge_options.Seed = 1,
    as_json: options.Json = False,
) -> None:
    """Write a sheet: rate fluency F and kept relation R from 1 to 5, a copy for each rater.

    Example: `triax merge rate export run --sample 100 --out sheet.csv`
    """
    from triaxial.api.merge_files import read_set
    from triaxial.api.merge_show import rating_sheet

    count = rating_sheet(read_set(run_dir), sample, seed, to)
    if as_json:
        print_json({"file": str(to), "variants": count})
    else:
        print(f"{to}: {count} variants")
    note(
        "F: is the variant fluent, 1 (broken) to 5 (natural)? R: does the gold label still hold, "
        f"1 (no) to 5 (surely)? next: `triax merge rate import {run_dir} {to}`"
    )


@rate_app.command("import")
def rate_import(
    run_dir: merge_options.RunDir,
    sheets: Annotated[list[Path], typer.Argument(help="Filled sheets, one a rater.")],
    min_variants: merge_options.MinVariants = 20,
    as_json: options.Json = False,
) -> None:
    """Read filled sheets: good share, agreement, and the ceiling of SV that they imply.

    Example: `triax merge rate import run anna.csv ben.csv`
    """
    from triaxial.api.merge_show import import_ratings
    from triaxial.cli.merge_tables import print_ratings
    from triaxial.merge.ratings import PAPER_GOOD_SHARE
    from triaxial.merge.score import GRID

    found = import_ratings(run_dir, sheets, min_variants)
    if as_json:
        print_json(found.plain())
        return
    print_ratings(out(), found, GRID, PAPER_GOOD_SHARE)
    note(f"next: `triax merge score {run_dir}` shows the ceiling beside the curve")
