"""`triax merge`: minimal variants of NLI pairs, and what models make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from triaxial.cli import merge_llm, merge_options, options
from triaxial.cli.console import note, out, print_json, progress, warn
from triaxial.cli.merge_look import compare, export, rate_app, show, words

if TYPE_CHECKING:
    from triaxial.api.merge_files import VariantSet

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Replacement: does a right answer survive minimal word replacements? "
    "(MERGE, arXiv 2510.24295)",
)
for command in (words, show, compare, export):
    app.command()(command)
app.add_typer(rate_app, name="rate")


@app.command()
def plan(
    context: typer.Context,
    seeds: options.Source,
    mlm: merge_options.Mlm,
    split: options.Split = None,
    columns: options.Columns = None,
    label_map: options.LabelMap = None,
    on_bad: options.OnBad = "refuse",
    limit: options.Limit = None,
    preset: merge_options.PresetName = "faithful",
    classes: merge_options.Classes = None,
    k: merge_options.K = None,
    mlm_context: merge_options.Context = None,
    logical: merge_options.Logical = None,
    tagger: merge_options.TaggerName = "hanta",
    mlm_precision: merge_options.MlmPrecision = "fp32",
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    workers: merge_options.Workers = 1,
    as_json: options.Json = False,
) -> None:
    """Count queries, tokens and time before any model is loaded.

    Example: `triax merge plan snli:hub --split test --mlm bert-base-cased --mlm roberta-base`
    """
    from triaxial.api.merge_plan import plan as planned

    reading = options.read(seeds, split, columns, label_map, on_bad, limit)
    changes = merge_options.changes(context)
    with progress() as told:
        found = planned(
            reading,
            merge_options.generating(mlm, preset, tagger, None, mlm_precision, on_bad, changes),
            merge_options.settings(store, device, None, workers, told),
        )
    if as_json:
        print_json(found)
        return
    from triaxial.cli.merge_tables import print_plan

    print_plan(out(), found)
    note("next: the same options with `triax merge run … --model MODEL --out DIR`")


@app.command()
def generate(
    context: typer.Context,
    seeds: options.Source,
    mlm: merge_options.Mlm,
    out_dir: Annotated[Path, typer.Option("--out", help="Directory for the set.")],
    split: options.Split = None,
    columns: options.Columns = None,
    label_map: options.LabelMap = None,
    on_bad: options.OnBad = "refuse",
    limit: options.Limit = None,
    preset: merge_options.PresetName = "faithful",
    classes: merge_options.Classes = None,
    k: merge_options.K = None,
    mlm_context: merge_options.Context = None,
    strict: merge_options.Strict = None,
    across: merge_options.Across = None,
    logical: merge_options.Logical = None,
    articles: merge_options.Articles = None,
    fine: merge_options.Fine = None,
    same_lemma: merge_options.SameLemma = None,
    label_risk: merge_options.LabelRisk = None,
    tagger: merge_options.TaggerName = "hanta",
    wordnet: merge_options.WordNetDir = None,
    mlm_precision: merge_options.MlmPrecision = "fp32",
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    token_budget: options.TokenBudget = None,
    workers: merge_options.Workers = 1,
    ray: options.Ray = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Make the variants of all seeds.

    Example: `triax merge generate sick:SICK.txt --split TEST --mlm bert-base-uncased --out set`
    """
    from triaxial.api.merge import generate as generated
    from triaxial.api.merge_files import check_directory, write_set
    from triaxial.cli.merge_tables import print_seconds

    check_directory(out_dir)
    reading = options.read(seeds, split, columns, label_map, on_bad, limit)
    changes = merge_options.changes(context)
    generating = merge_options.generating(
        mlm, preset, tagger, wordnet, mlm_precision, on_bad, changes
    )
    with progress() as told:
        settings = merge_options.settings(store, device, token_budget, workers, told, ray)
        made = generated(reading, generating, settings)
    write_set(out_dir, made, overwrite=overwrite)
    if as_json:
        counts = made.funnel.group_by("unit", "mlm", "fate", "pos", maintain_order=True).sum()
        about = {"set": made.key, "pairs": len(made.pairs), "variants": len(made.replacements)}
        print_json({**about, **made.facts, "funnel": counts.to_dicts(), "work": made.work})
        return
    _print_set(made)
    print_seconds(out(), made.work)
    note(f"next: `triax merge evaluate {out_dir} --model MODEL --out RUN`")


@app.command()
def evaluate(
    context: typer.Context,
    set_dir: merge_options.RunDir,
    model: merge_options.Model,
    out_dir: Annotated[Path, typer.Option("--out", help="Directory for the run.")],
    model_labels: merge_options.ModelLabels = None,
    precision: options.Precision = "auto",
    shots: merge_llm.Shots = None,
    shots_from: merge_llm.ShotsFrom = None,
    shots_split: merge_llm.ShotsSplit = None,
    answers: merge_llm.Answers = None,
    instruction: merge_llm.Instruction = None,
    chat: merge_llm.Chat = None,
    normalize: merge_llm.Normalize = None,
    calibrate: merge_llm.Calibrate = None,
    endpoint_url: merge_llm.EndpointUrl = None,
    concurrency: merge_llm.Concurrency = None,
    top_logprobs: merge_llm.TopLogprobs = None,
    retries: merge_llm.Retries = None,
    timeout: merge_llm.Timeout = None,
    plain_http: merge_llm.PlainHttp = None,
    price_in: merge_llm.PriceIn = None,
    price_out: merge_llm.PriceOut = None,
    estimate: merge_llm.Estimate = False,
    sample: merge_options.Sample = None,
    sample_like: merge_options.SampleLike = None,
    min_variants: merge_options.MinVariants = 20,
    draws: merge_options.Draws = 10,
    seed: merge_options.Seed = 1,
    fail_if: options.FailIf = None,
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    token_budget: options.TokenBudget = None,
    workers: options.RayWorkers = 1,
    ray: options.Ray = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Score models on a set.

    Example: `triax merge evaluate set --model roberta-large-mnli --out run`, or a language model
    with six examples: `triax merge evaluate set --model llm:Qwen/Qwen2.5-0.5B --shots-from
    snli:hub --shots-split validation --sample 500 --out run`
    """
    from triaxial.api.merge import score
    from triaxial.api.merge_files import check_directory, read_set, write_run
    from triaxial.api.merge_predict import estimated, run_key
    from triaxial.api.merge_predict import evaluate as evaluated
    from triaxial.api.merge_sample import sampled

    options.check_condition(fail_if)
    merge_options.check_sample(sample, sample_like)
    options.check_workers(workers, ray)
    check_directory(out_dir)
    # What this call computes is its own: the work of making the set is the set's.
    made = replace(read_set(set_dir), work={})
    asked = merge_llm.asking(context.params, model, made.pairs, seed)
    evaluating = merge_options.evaluating(
        model, model_labels, precision, min_variants, draws, seed, asked
    )
    if sample is not None:
        made = sampled(made, sample, evaluating.draw, sample_like)
    if estimate:
        _print_estimates(estimated(made, evaluating), as_json)
        return
    with progress() as told:
        settings = merge_options.settings(store, device, token_budget, workers, told, ray)
        key = run_key(made.key, evaluating, settings)
        predictions, facts = evaluated(made, evaluating, settings)
    metrics = score(made, predictions, evaluating.draw, facts["models"])
    write_run(out_dir, made, predictions, metrics, facts, key, overwrite=overwrite)
    _print_run(metrics, facts["work"], out_dir, as_json, fail_if)


@app.command()
def score(
    run_dir: merge_options.RunDir,
    as_json: options.Json = False,
    fail_if: options.FailIf = None,
) -> None:
    """Compute and print the figures of a run again, from its tables alone.

    Example: `triax merge score run --fail-if "SV95 < 70"`
    """
    from triaxial.api.merge import score as scored
    from triaxial.api.merge_files import read_run

    options.check_condition(fail_if)
    made, predictions, draw, models = read_run(run_dir)
    metrics = scored(made, predictions, draw, models)
    _print_run(metrics, {}, run_dir, as_json, fail_if)


@app.command()
def run(
    context: typer.Context,
    seeds: options.Source,
    mlm: merge_options.Mlm,
    model: merge_options.Model,
    out_dir: Annotated[Path, typer.Option("--out", help="Directory for tables and figures.")],
    split: options.Split = None,
    columns: options.Columns = None,
    label_map: options.LabelMap = None,
    on_bad: options.OnBad = "refuse",
    limit: options.Limit = None,
    preset: merge_options.PresetName = "faithful",
    classes: merge_options.Classes = None,
    k: merge_options.K = None,
    mlm_context: merge_options.Context = None,
    strict: merge_options.Strict = None,
    across: merge_options.Across = None,
    logical: merge_options.Logical = None,
    articles: merge_options.Articles = None,
    fine: merge_options.Fine = None,
    same_lemma: merge_options.SameLemma = None,
    label_risk: merge_options.LabelRisk = None,
    tagger: merge_options.TaggerName = "hanta",
    wordnet: merge_options.WordNetDir = None,
    mlm_precision: merge_options.MlmPrecision = "fp32",
    model_labels: merge_options.ModelLabels = None,
    precision: options.Precision = "auto",
    shots: merge_llm.Shots = None,
    shots_from: merge_llm.ShotsFrom = None,
    shots_split: merge_llm.ShotsSplit = None,
    answers: merge_llm.Answers = None,
    instruction: merge_llm.Instruction = None,
    chat: merge_llm.Chat = None,
    normalize: merge_llm.Normalize = None,
    calibrate: merge_llm.Calibrate = None,
    endpoint_url: merge_llm.EndpointUrl = None,
    concurrency: merge_llm.Concurrency = None,
    top_logprobs: merge_llm.TopLogprobs = None,
    retries: merge_llm.Retries = None,
    timeout: merge_llm.Timeout = None,
    plain_http: merge_llm.PlainHttp = None,
    price_in: merge_llm.PriceIn = None,
    price_out: merge_llm.PriceOut = None,
    sample: merge_options.Sample = None,
    sample_like: merge_options.SampleLike = None,
    min_variants: merge_options.MinVariants = 20,
    draws: merge_options.Draws = 10,
    seed: merge_options.Seed = 1,
    fail_if: options.FailIf = None,
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    token_budget: options.TokenBudget = None,
    workers: merge_options.Workers = 1,
    ray: options.Ray = None,
    budget: options.Budget = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """From seeds to scores in one call; called again, it goes on where it stopped.

    Example: `triax merge run pairs.csv --columns premise=a,hypothesis=b,label=gold
    --mlm bert-base-uncased --model my-model --out run`
    """
    from triaxial.api.merge import run as run_all
    from triaxial.api.merge_files import both_works

    options.check_condition(fail_if)
    merge_options.check_sample(sample, sample_like)
    reading = options.read(seeds, split, columns, label_map, on_bad, limit)
    changes = merge_options.changes(context)
    generating = merge_options.generating(
        mlm, preset, tagger, wordnet, mlm_precision, on_bad, changes
    )
    asked = merge_llm.asking(context.params, model, reading.pairs, seed)
    evaluating = merge_options.evaluating(
        model, model_labels, precision, min_variants, draws, seed, asked
    )
    with progress() as told:
        settings = merge_options.settings(store, device, token_budget, workers, told, ray)
        made, metrics, facts = run_all(
            reading,
            generating,
            evaluating,
            settings,
            out_dir,
            overwrite=overwrite,
            budget=options.seconds(budget),
            sample=sample,
            like=sample_like,
        )
    if not as_json:
        _print_set(made)
    _print_run(metrics, both_works(made.work, facts["work"]), out_dir, as_json, fail_if)


def _print_set(made: VariantSet) -> None:
    from triaxial.cli.merge_tables import print_funnel

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
        warn("no variant at all: the funnel above says where candidates were lost")


def _print_estimates(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    for row in rows:
        cost = "" if row["cost"] is None else f", cost {row['cost']:.4f}"
        print(
            f"{row['model']}: {row['items']:,} prompts, about {row['prompt_tokens']:,} + "
            f"{row['completion_tokens']:,} tokens{cost}"
        )


def _print_run(
    metrics: dict[str, Any],
    work: dict[str, Any],
    directory: Path,
    as_json: bool,
    fail_if: str | None,
) -> None:
    from triaxial.api.gates import check_gate, merge_figures
    from triaxial.api.merge_files import read_ratings

    if as_json:
        print_json(metrics)
    else:
        from triaxial.cli.merge_tables import print_metrics, print_seconds

        console = out()
        print_metrics(console, metrics, read_ratings(directory))
        print_seconds(console, work)
        note(f"in {directory}; next: `triax merge words {directory}`, `triax report {directory}`")
    if fail_if is not None:
        check_gate(merge_figures(metrics), fail_if)
