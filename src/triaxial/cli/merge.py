"""`triax merge`: minimal variants of NLI pairs, and what models make of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from triaxial.cli import options
from triaxial.cli.console import note, out, progress

if TYPE_CHECKING:
    from triaxial.api.merge import EvaluateOptions, GenerateOptions
    from triaxial.api.merge_files import VariantSet
    from triaxial.merge.stages import Settings

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Replacement: does a right answer survive minimal word replacements? "
    "(MERGE, arXiv 2510.24295)",
)
rate_app = typer.Typer(no_args_is_help=True, help="The manual check: are the variants good?")
app.add_typer(rate_app, name="rate")

Mlm = Annotated[
    list[str],
    typer.Option(
        help="Masked LM, directory or hub id (`id@revision`); repeat for several.",
        rich_help_panel="Models",
    ),
]
Model = Annotated[
    list[str],
    typer.Option(
        help="NLI model, directory or hub id, or `file:PREDICTIONS`; repeat for several.",
        rich_help_panel="Models",
    ),
]
ModelLabels = Annotated[
    str | None,
    typer.Option(
        help="The model's columns, where names say nothing: `0=contradiction,…`.",
        rich_help_panel="Models",
    ),
]
PresetName = Annotated[
    Literal["faithful", "safe"],
    typer.Option(
        "--preset",
        help="`faithful` to the paper, or `safe` with stricter filters.",
        rich_help_panel="Variants",
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        help="Word classes: `NOUN,VERB,ADJ`; ADV is possible.", rich_help_panel="Variants"
    ),
]
K = Annotated[
    int | None,
    typer.Option(
        "--k", min=1, help="Suggestions of each masked LM. [200]", rich_help_panel="Variants"
    ),
]
Context = Annotated[
    Literal["sentence", "pair"] | None,
    typer.Option(help="What the masked LM reads. [sentence]", rich_help_panel="Variants"),
]
Strict = Annotated[
    bool | None,
    typer.Option(
        "--strict/--no-strict",
        help="Demand p(r) > p(o), not only p(r) >= p(o).",
        rich_help_panel="Variants",
    ),
]
Across = Annotated[
    Literal["same", "any"] | None,
    typer.Option(
        help="`same` masked LM at every place, or `any` one for each side. [same]",
        rich_help_panel="Variants",
    ),
]
Logical = Annotated[
    bool | None,
    typer.Option(
        "--logical/--no-logical",
        help='Replace "fake", "other", "same" and the like.',
        rich_help_panel="Variants",
    ),
]
Articles = Annotated[
    bool | None,
    typer.Option(
        "--articles/--no-articles", help="Reject what breaks a/an.", rich_help_panel="Variants"
    ),
]
Fine = Annotated[
    bool | None,
    typer.Option(
        "--fine/--no-fine", help="Demand the same number, form, degree.", rich_help_panel="Variants"
    ),
]
SameLemma = Annotated[
    bool | None,
    typer.Option(
        "--reject-same-lemma/--allow-same-lemma",
        help="Reject words of a pair's lemma.",
        rich_help_panel="Variants",
    ),
]
LabelRisk = Annotated[
    Literal["flag", "drop"] | None,
    typer.Option(
        help="What to do where WordNet relates a word of the pair to o or r.",
        rich_help_panel="Variants",
    ),
]
TaggerName = Annotated[
    str, typer.Option(help="`hanta`, or `spacy:NAME_OR_DIRECTORY`.", rich_help_panel="Variants")
]
WordNetDir = Annotated[
    str | None,
    typer.Option(
        help="Directory of WordNet data; by default where the system has it.",
        rich_help_panel="Variants",
    ),
]
MlmPrecision = Annotated[
    Literal["auto", "fp32", "bf16"],
    typer.Option(
        help="Of the masked LMs; fp32, as probabilities are compared.", rich_help_panel="Models"
    ),
]
Workers = Annotated[
    int, typer.Option(min=1, help="Processes for tagging.", rich_help_panel="Computing")
]
MinVariants = Annotated[
    int,
    typer.Option(
        min=1,
        help="Variants a draw, and the fewest that a seed must have.",
        rich_help_panel="Scores",
    ),
]
Draws = Annotated[
    int, typer.Option(min=1, help="Draws of each seed's variants.", rich_help_panel="Scores")
]
Seed = Annotated[
    int, typer.Option(help="Seed of the draws and the bootstrap.", rich_help_panel="Scores")
]
FailIf = Annotated[
    str | None,
    typer.Option(
        help="Exit with 1 when this holds: `SV95 < 70`, `VERB:SV95 < 60`, `MC < 50`.",
        rich_help_panel="Scores",
    ),
]
RunDir = Annotated[Path, typer.Argument(help="Directory of an earlier call.", show_default=False)]


@app.command()
def plan(
    seeds: options.Source,
    mlm: Mlm,
    split: options.Split = None,
    columns: options.Columns = None,
    label_map: options.LabelMap = None,
    on_bad: options.OnBad = "refuse",
    limit: options.Limit = None,
    preset: PresetName = "faithful",
    classes: Classes = None,
    k: K = None,
    context: Context = None,
    logical: Logical = None,
    tagger: TaggerName = "hanta",
    mlm_precision: MlmPrecision = "fp32",
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    workers: Workers = 1,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Count queries, tokens and time before any model is loaded.

    Example: `triax merge plan snli:hub --split test --mlm bert-base-cased --mlm roberta-base`
    """
    from triaxial.api.merge_plan import plan as planned

    reading = options.read(seeds, split, columns, label_map, on_bad, limit)
    changes = {"classes": _classes(classes), "k": k, "context": context, "logical": logical}
    with progress(quiet) as told:
        found = planned(
            reading,
            _generating(mlm, preset, tagger, None, mlm_precision, on_bad, changes),
            _settings(store, device, None, workers, told),
        )
    if as_json:
        _print_json(found)
        return
    from triaxial.cli.merge_tables import print_plan

    print_plan(out(), found)
    note("next: the same options with `triax merge run … --model MODEL --out DIR`")


@app.command()
def generate(
    seeds: options.Source,
    mlm: Mlm,
    out_dir: Annotated[Path, typer.Option("--out", help="Directory for the set.")],
    split: options.Split = None,
    columns: options.Columns = None,
    label_map: options.LabelMap = None,
    on_bad: options.OnBad = "refuse",
    limit: options.Limit = None,
    preset: PresetName = "faithful",
    classes: Classes = None,
    k: K = None,
    context: Context = None,
    strict: Strict = None,
    across: Across = None,
    logical: Logical = None,
    articles: Articles = None,
    fine: Fine = None,
    same_lemma: SameLemma = None,
    label_risk: LabelRisk = None,
    tagger: TaggerName = "hanta",
    wordnet: WordNetDir = None,
    mlm_precision: MlmPrecision = "fp32",
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    token_budget: options.TokenBudget = None,
    workers: Workers = 1,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Make the variants of all seeds.

    Example: `triax merge generate sick:SICK.txt --split TEST --mlm bert-base-uncased --out set`
    """
    from triaxial.api.merge import generate as generated
    from triaxial.api.merge_files import check_directory, write_set

    check_directory(out_dir)
    reading = options.read(seeds, split, columns, label_map, on_bad, limit)
    changes = {
        "classes": _classes(classes),
        "k": k,
        "context": context,
        "strict": strict,
        "across": across,
        "logical": logical,
        "articles": articles,
        "fine": fine,
        "same_lemma": same_lemma,
        "label_risk": label_risk,
    }
    generating = _generating(mlm, preset, tagger, wordnet, mlm_precision, on_bad, changes)
    with progress(quiet) as told:
        made = generated(reading, generating, _settings(store, device, token_budget, workers, told))
    write_set(out_dir, made, overwrite=overwrite)
    _print_set(made)
    note(f"next: `triax merge evaluate {out_dir} --model MODEL --out RUN`")


@app.command()
def evaluate(
    set_dir: RunDir,
    model: Model,
    out_dir: Annotated[Path, typer.Option("--out", help="Directory for the run.")],
    model_labels: ModelLabels = None,
    precision: options.Precision = "auto",
    min_variants: MinVariants = 20,
    draws: Draws = 10,
    seed: Seed = 1,
    fail_if: FailIf = None,
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    token_budget: options.TokenBudget = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score models on a set.

    Example: `triax merge evaluate set --model roberta-large-mnli --out run`
    """
    from triaxial.api.merge import evaluate as evaluated
    from triaxial.api.merge import run_key, score
    from triaxial.api.merge_files import check_directory, read_set, write_run

    _check_gate_text(fail_if)
    check_directory(out_dir)
    made = read_set(set_dir)
    evaluating = _evaluating(model, model_labels, precision, min_variants, draws, seed)
    with progress(quiet) as told:
        settings = _settings(store, device, token_budget, 1, told)
        key = run_key(made.key, evaluating, settings)
        predictions, facts = evaluated(made, evaluating, settings)
    metrics = score(made, predictions, evaluating.draw, facts["models"])
    made.work.clear()
    write_run(out_dir, made, predictions, metrics, facts, key, overwrite=overwrite)
    _print_run(metrics, facts["work"], out_dir, as_json, fail_if)


@app.command()
def score(run_dir: RunDir, as_json: options.Json = False, fail_if: FailIf = None) -> None:
    """Compute and print the figures of a run again, from its tables alone.

    Example: `triax merge score run --fail-if "SV95 < 70"`
    """
    from triaxial.api.merge import score as scored
    from triaxial.api.merge_files import read_run

    _check_gate_text(fail_if)
    made, predictions, draw, models = read_run(run_dir)
    metrics = scored(made, predictions, draw, models)
    _print_run(metrics, {}, run_dir, as_json, fail_if)


@app.command()
def run(
    seeds: options.Source,
    mlm: Mlm,
    model: Model,
    out_dir: Annotated[Path, typer.Option("--out", help="Directory for tables and figures.")],
    split: options.Split = None,
    columns: options.Columns = None,
    label_map: options.LabelMap = None,
    on_bad: options.OnBad = "refuse",
    limit: options.Limit = None,
    preset: PresetName = "faithful",
    classes: Classes = None,
    k: K = None,
    context: Context = None,
    strict: Strict = None,
    across: Across = None,
    logical: Logical = None,
    articles: Articles = None,
    fine: Fine = None,
    same_lemma: SameLemma = None,
    label_risk: LabelRisk = None,
    tagger: TaggerName = "hanta",
    wordnet: WordNetDir = None,
    mlm_precision: MlmPrecision = "fp32",
    model_labels: ModelLabels = None,
    precision: options.Precision = "auto",
    min_variants: MinVariants = 20,
    draws: Draws = 10,
    seed: Seed = 1,
    fail_if: FailIf = None,
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    token_budget: options.TokenBudget = None,
    workers: Workers = 1,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """From seeds to scores in one call; called again, it goes on where it stopped.

    Example: `triax merge run pairs.csv --columns premise=a,hypothesis=b,label=gold
    --mlm bert-base-uncased --model my-model --out run`
    """
    from triaxial.api.merge import run as run_all

    _check_gate_text(fail_if)
    reading = options.read(seeds, split, columns, label_map, on_bad, limit)
    changes = {
        "classes": _classes(classes),
        "k": k,
        "context": context,
        "strict": strict,
        "across": across,
        "logical": logical,
        "articles": articles,
        "fine": fine,
        "same_lemma": same_lemma,
        "label_risk": label_risk,
    }
    generating = _generating(mlm, preset, tagger, wordnet, mlm_precision, on_bad, changes)
    evaluating = _evaluating(model, model_labels, precision, min_variants, draws, seed)
    with progress(quiet) as told:
        settings = _settings(store, device, token_budget, workers, told)
        made, metrics, facts = run_all(
            reading, generating, evaluating, settings, out_dir, overwrite=overwrite
        )
    if not as_json:
        _print_set(made)
    _print_run(metrics, facts["work"], out_dir, as_json, fail_if)


@app.command()
def show(
    run_dir: RunDir,
    seed: Annotated[str, typer.Argument(help="Id of the seed.", show_default=False)],
    store: options.StoreDir = Path(".triaxial"),
    most: Annotated[int, typer.Option(min=1, help="Rejected candidates shown for a reason.")] = 12,
    rejected: Annotated[
        bool, typer.Option("--rejected/--no-rejected", help="Show the rejected candidates too.")
    ] = True,
) -> None:
    """Print a seed with its variants, and what became of every rejected candidate.

    Example: `triax merge show run 1234`
    """
    from triaxial.api.merge_files import read_predictions, read_set
    from triaxial.api.merge_show import rejected as refused
    from triaxial.api.merge_show import seed_view
    from triaxial.cli.merge_tables import print_seed

    made = read_set(run_dir)
    view = seed_view(made, read_predictions(run_dir), seed)
    rows = refused(made, seed, _settings(store, "cpu", None, 1, None)) if rejected else []
    print_seed(out(), view, rows, most)


@app.command()
def compare(
    old: Annotated[str, typer.Argument(help="RUN or RUN:MODEL.", show_default=False)],
    new: Annotated[str, typer.Argument(help="RUN or RUN:MODEL.", show_default=False)],
    metric: Annotated[str, typer.Option(help="The figure that decides: S, SV5 … SV100.")] = "SV95",
    group: Annotated[
        str, typer.Option(help="`all`, or `class:VERB`, `label:neutral`, `source:MLM`.")
    ] = "all",
    seed: Seed = 1,
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
        _print_json({"old": before, "new": after, "metric": metric, "figures": rows_plain})
    else:
        from triaxial.cli.merge_tables import print_comparison

        print_comparison(out(), rows, f"{before} (old)", f"{after} (new)", metric)
    failed = {"worse": ("worse",), "not-better": ("worse", "undecided"), "never": ()}[fail_on]
    if chosen.verdict in failed:
        raise GateError(f"{metric} of {after} is {chosen.verdict} ({chosen.difference.value:+.1f})")


@app.command()
def export(
    run_dir: RunDir,
    to: Annotated[Path, typer.Option("--out", help="File to write, or directory for hf.")],
    form: Annotated[
        Literal["jsonl", "items", "hf"],
        typer.Option(
            "--format",
            help="`jsonl`: variants; `items`: what a model is to label; `hf`: a data set folder.",
        ),
    ] = "jsonl",
    min_variants: MinVariants = 20,
    draws: Draws = 10,
    seed: Seed = 1,
) -> None:
    """Write a set for other programs.

    Example: `triax merge export set --format items --out items.jsonl`, label the rows with any
    program, and score them with `triax merge evaluate set --model file:labels.jsonl --out run`
    """
    from triaxial.api.merge import item_rows
    from triaxial.api.merge_files import read_set
    from triaxial.api.merge_show import export as exported
    from triaxial.merge.score import DrawOptions

    made = read_set(run_dir)
    items = item_rows(made, DrawOptions(min_variants, draws, seed))
    for path in exported(made, items, form, to):
        print(path)


@rate_app.command("export")
def rate_export(
    run_dir: RunDir,
    to: Annotated[Path, typer.Option("--out", help="CSV sheet to write.")],
    sample: Annotated[int, typer.Option(min=1, help="Variants to rate.")] = 100,
    seed: Seed = 1,
) -> None:
    """Write a sheet: rate fluency F and kept relation R from 1 to 5, a copy for each rater.

    Example: `triax merge rate export run --sample 100 --out sheet.csv`
    """
    from triaxial.api.merge_files import read_set
    from triaxial.api.merge_show import rating_sheet

    count = rating_sheet(read_set(run_dir), sample, seed, to)
    print(f"{to}: {count} variants")
    note(
        "F: is the variant fluent, 1 (broken) to 5 (natural)? R: does the gold label still hold, "
        f"1 (no) to 5 (surely)? next: `triax merge rate import {run_dir} {to}`"
    )


@rate_app.command("import")
def rate_import(
    run_dir: RunDir,
    sheets: Annotated[list[Path], typer.Argument(help="Filled sheets, one a rater.")],
    min_variants: MinVariants = 20,
) -> None:
    """Read filled sheets: good share, agreement, and the ceiling of SV that they imply.

    Example: `triax merge rate import run anna.csv ben.csv`
    """
    from triaxial.api.merge_show import import_ratings
    from triaxial.cli.merge_tables import print_ratings
    from triaxial.merge.ratings import PAPER_GOOD_SHARE
    from triaxial.merge.score import GRID

    print_ratings(out(), import_ratings(run_dir, sheets, min_variants), GRID, PAPER_GOOD_SHARE)
    note(f"next: `triax merge score {run_dir}` shows the ceiling beside the curve")


def _classes(text: str | None) -> tuple[str, ...] | None:
    from triaxial.errors import InputError

    if text is None:
        return None
    found = tuple(name.strip().upper() for name in text.split(",") if name.strip())
    known = ("NOUN", "VERB", "ADJ", "ADV")
    wrong = [name for name in found if name not in known]
    if wrong or not found:
        raise InputError(f"{text!r} is not a list of {', '.join(known)}", where="--classes")
    return found


def _generating(
    mlm: list[str],
    preset: Literal["faithful", "safe"],
    tagger: str,
    wordnet: str | None,
    mlm_precision: Literal["auto", "fp32", "bf16"],
    on_bad: Literal["refuse", "drop"],
    changes: dict[str, Any],
) -> GenerateOptions:
    from triaxial.api.merge import GenerateOptions, with_options
    from triaxial.merge.variants import PRESETS

    changed = with_options(PRESETS[preset], **changes)
    # The signature says when a preset is not the named one.
    name = preset if changed == PRESETS[preset] else f"{preset}+"
    return GenerateOptions(tuple(mlm), name, changed, tagger, wordnet, mlm_precision, on_bad)


def _evaluating(
    model: list[str],
    model_labels: str | None,
    precision: Literal["auto", "fp32", "bf16"],
    min_variants: int,
    draws: int,
    seed: int,
) -> EvaluateOptions:
    from triaxial.api.merge import EvaluateOptions
    from triaxial.merge.score import DrawOptions
    from triaxial.nli import parse_map

    labels = parse_map(model_labels) if model_labels else None
    return EvaluateOptions(tuple(model), labels, precision, DrawOptions(min_variants, draws, seed))


def _settings(
    store: Path, device: str, token_budget: int | None, workers: int, told: Any
) -> Settings:
    from triaxial.merge.stages import Settings

    return Settings(store, device, token_budget, workers, told)


def _check_gate_text(fail_if: str | None) -> None:
    """Refuse a condition that cannot be read before any work is done."""
    if fail_if is not None:
        from triaxial.merge.gate import parse_gate

        parse_gate(fail_if)


def _print_set(made: VariantSet) -> None:
    from triaxial.cli.merge_tables import print_funnel, print_seconds

    console = out()
    data = made.facts["data"]
    dropped = f"; dropped: {data['dropped']}" if data["dropped"] else ""
    console.print(
        f"{data['source']}: {len(made.pairs):,} pairs, {len(made.replacements):,} variants of "
        f"{made.replacements['seed'].n_unique():,} pairs; preset {made.facts['preset']}{dropped}",
        markup=False,
    )
    print_funnel(console, made.funnel)
    if not len(made.replacements):
        note("triax: WARNING: no variant at all: the funnel above says where candidates were lost")
    print_seconds(console, made.work)


def _print_run(
    metrics: dict[str, Any],
    work: dict[str, Any],
    directory: Path,
    as_json: bool,
    fail_if: str | None,
) -> None:
    from triaxial.api.merge_files import read_ratings
    from triaxial.merge.gate import check_gate

    if as_json:
        _print_json(metrics)
    else:
        from triaxial.cli.merge_tables import print_metrics, print_seconds

        console = out()
        print_metrics(console, metrics, read_ratings(directory))
        print_seconds(console, work)
        note(f"in {directory}; next: `triax merge show {directory} SEED` for a seed in full")
    if fail_if is not None:
        check_gate(metrics, fail_if)


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))
