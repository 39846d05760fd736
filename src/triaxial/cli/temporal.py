"""`triax temporal`: how fast does a language model go stale, and what helps?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import typer

from triaxial.cli import options
from triaxial.cli import temporal_options as own
from triaxial.cli.console import note, out, print_json, progress, warn
from triaxial.cli.temporal_corpus import ingest, plant, split
from triaxial.errors import InputError

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Time: how fast does a language model go stale, and what helps? (Mind the Gap, 2021)",
)
app.command()(plant)
app.command()(ingest)
app.command()(split)


@app.command()
def fit(
    corpus: own.CorpusDir,
    split: own.SplitDir,
    out_dir: own.Out,
    setup: own.Setup = "time-stratified",
    model: own.Preset = "tiny",
    borders: own.Borders = "carry",
    window: own.FitWindow = None,
    kind: own.Kind = "unigram",
    pieces: own.Pieces = 8192,
    piece_documents: own.PieceDocuments = None,
    foreign_vocabulary: own.Foreign = None,
    epochs: own.Epochs = 1,
    max_steps: own.MaxSteps = None,
    learning_rate: own.Rate = 1e-3,
    rows: own.Rows = 16,
    validation: own.Held = 500,
    checkpoint_every: own.Every = 200,
    seed: own.Seed = 1,
    precision: options.Precision = "auto",
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Learn a vocabulary and train a language model on what one split may see.

    Example: `triax temporal fit --corpus corpus --split two --setup control --out control`

    On several GPUs, one process each: `torchrun --nproc-per-node 2 -m triaxial temporal fit …`
    """
    from triaxial.api.temporal import fit as trained
    from triaxial.execute import Computing
    from triaxial.models.distributed import joined
    from triaxial.models.fit import FitOptions
    from triaxial.temporal.train import TrainOptions
    from triaxial.temporal.vocabulary import VocabularyOptions

    vocabulary = VocabularyOptions(kind, pieces, piece_documents, seed=seed)
    if foreign_vocabulary is not None and vocabulary != VocabularyOptions(seed=seed):
        message = "is given, so that none is learned; leave out --kind, --pieces, --piece-documents"
        raise InputError(message, where="--foreign-vocabulary")
    training = TrainOptions(
        model,
        rows,
        borders,
        window,
        validation,
        FitOptions(
            epochs=epochs,
            max_steps=max_steps,
            learning_rate=learning_rate,
            seed=seed,
            checkpoint_every=checkpoint_every,
        ),
    )
    with joined(device) as (team, mine), progress() as told:
        facts = trained(
            corpus,
            split,
            out_dir,
            setup,
            training,
            vocabulary,
            Computing(store, mine, progress=told),
            foreign_vocabulary=foreign_vocabulary,
            precision=precision,
            team=team,
        )
    if as_json:
        print_json(facts)
        return
    history, held = facts["history"], facts["held_out"]
    losses = " ".join(f"{loss:.3f}" for loss in history["epoch_losses"])
    console = out()
    console.print(
        f"{out_dir}: trained on {facts['documents']:,} documents to {facts['latest']}, "
        f"{facts['targets']:,} pieces an epoch, {history['steps']:,} steps; loss of the epochs "
        f"{losses}",
        markup=False,
        soft_wrap=True,
    )
    if held and held["loss"]:
        loss = held["loss"]
        console.print(
            f"{loss['value']:.3f} [{loss['low']:.3f}, {loss['high']:.3f}] nats a piece on "
            f"{held['n']:,} validation documents; frequencies alone {held['unigram_loss']:.3f}",
            markup=False,
            soft_wrap=True,
        )
    note(
        f"next: `triax temporal evaluate {out_dir} --corpus {corpus} --split {split} "
        f"--out {out_dir.name}-test`"
    )


@app.command()
def evaluate(
    model: own.Model,
    corpus: own.CorpusDir,
    out_dir: own.Out,
    split: own.SplitMaybe = None,
    valid: own.OnValid = False,
    cutoff: own.Cutoff = None,
    setup: own.ModelSetup = None,
    size: own.SizeName = None,
    window: own.Window = None,
    stride: own.Stride = None,
    memory: own.MemoryOption = None,
    separator: own.Separator = None,
    bin_: own.BinOption = "month",
    precision: options.Precision = "auto",
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    token_budget: options.TokenBudget = None,
    workers: options.RayWorkers = 1,
    ray: options.Ray = None,
    budget: options.Budget = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Score the test documents, or all after a model's cut-off, and print perplexity by month.

    Example: `triax temporal evaluate model --corpus corpus --split two --out model-test`
    """
    from triaxial.api.temporal_evaluate import EvaluateOptions
    from triaxial.api.temporal_evaluate import evaluate as scored
    from triaxial.execute import Computing

    options.check_workers(workers, ray)
    asked = EvaluateOptions(
        valid, cutoff, setup, size, precision, window, stride, memory, separator
    )
    with progress() as told:
        computing = Computing(store, device, token_budget, workers, told, ray)
        found = scored(
            model,
            corpus,
            out_dir,
            split,
            asked,
            computing,
            overwrite=overwrite,
            budget=options.seconds(budget),
        )
    _print_evaluations({"": found}, bin_, as_json)
    if (sample := found.facts.get("sample")) and sample["documents"] < sample["of"]:
        warn(f"a sample of {sample['documents']:,} of {sample['of']:,} documents, to fit {budget}")
    more = f" --corpus {corpus} --split {split}" if split else ""
    note(f"in {out_dir}; next: `triax temporal analyse {out_dir} …{more}`")


@app.command()
def adapt(
    model: own.Model,
    corpus: own.CorpusDir,
    out_dir: own.Out,
    split: own.SplitMaybe = None,
    parameters: own.Parameters = "all",
    rule: own.Rule = "sgd",
    learning_rate: own.AdaptRate = None,
    decay: own.Decay = 0.0,
    rates: own.Rates = None,
    decays: own.Decays = None,
    epsilon: own.Epsilon = None,
    reset: own.Reset = "never",
    borders: own.Borders = "reset",
    streams: own.Streams = 1,
    valid_documents: own.ValidDocuments = 500,
    statistics_documents: own.StatisticsDocuments = 2_000,
    seed: own.Seed = 1,
    cutoff: own.Cutoff = None,
    setup: own.ModelSetup = None,
    size: own.SizeName = None,
    window: own.Window = None,
    stride: own.Stride = None,
    memory: own.MemoryOption = None,
    separator: own.Separator = None,
    bin_: own.BinOption = "month",
    precision: options.Precision = "auto",
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    workers: options.RayWorkers = 1,
    ray: options.Ray = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Dynamic evaluation: the model learns from what it has just been scored on.

    Settings are chosen on validation months, never on the test; --out receives a directory for each
    parameter set.

    Example: `triax temporal adapt model --corpus corpus --split two --parameters all,biases
    --out adapted`
    """
    from triaxial.api.temporal_adapt import AdaptRequest
    from triaxial.api.temporal_adapt import adapt as adapted
    from triaxial.api.temporal_evaluate import EvaluateOptions
    from triaxial.execute import Computing

    options.check_workers(workers, ray)
    request = AdaptRequest(
        tuple(name.strip() for name in parameters.split(",")),
        learning_rate,
        decay,
        own.numbers(rates, "--rates"),
        own.numbers(decays, "--decays") or (0.0,),
        rule,
        epsilon,
        reset,
        borders,
        streams,
        valid_documents,
        statistics_documents,
        seed,
    )
    asked = EvaluateOptions(
        False, cutoff, setup, size, precision, window, stride, memory, separator
    )
    with progress() as told:
        found = adapted(
            model,
            corpus,
            out_dir,
            split,
            request,
            asked,
            Computing(store, device, workers=workers, progress=told, ray=ray),
            overwrite=overwrite,
        )
    _print_evaluations(dict(found), bin_, as_json)
    note(f"in {out_dir}; next: `triax temporal analyse EVALUATION {out_dir}/* …`")


@app.command()
def analyse(
    evaluations: own.Evaluations,
    corpus: own.CorpusMaybe = None,
    split: own.SplitMaybe = None,
    out_dir: own.OutMaybe = None,
    bin_: own.BinOption = "month",
    cutoff: own.Origin = None,
    least: own.Least = 50,
    ratio: own.Ratio = 5.0,
    reference: own.Reference = 6,
    no_match: own.NoMatch = False,
    terms: own.Terms = None,
    topics: own.Topics = 20,
    tagger: own.TaggerOption = "hanta",
    retrain_cost: own.RetrainCost = None,
    stale_cost: own.StaleCost = None,
    adapt_cost: own.AdaptCost = 0.0,
    seed: own.Seed = 1,
    store: options.StoreDir = Path(".triaxial"),
    workers: own.Workers = 1,
    ray: options.Ray = None,
    fail_if: options.FailIf = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """All figures of evaluations of the same documents: curves, slices, emerging words, drift.

    Example: `triax temporal analyse past-test control-test --corpus corpus --split two --out drift`
    """
    from triaxial.api.temporal import AnalyseOptions
    from triaxial.api.temporal import analyse as analysed
    from triaxial.execute import Computing
    from triaxial.temporal.analyses import SummaryOptions
    from triaxial.temporal.drift import Costs
    from triaxial.temporal.topics import TopicOptions

    options.check_condition(fail_if)
    followed = tuple(term.strip() for term in terms.split(",")) if terms else ()
    if not all(followed) and terms:
        raise InputError(f"cannot read {terms!r}; write words with commas", where="--terms")
    remedies = None
    if retrain_cost is not None and stale_cost is not None:
        remedies = Costs(retrain_cost, stale_cost, adapt_cost)
    elif retrain_cost is not None or stale_cost is not None or adapt_cost:
        message = "give both, in one unit: a retraining, and a month with perplexity 1 % too high"
        raise InputError(message, where="--retrain-cost, --stale-cost")
    asked = AnalyseOptions(
        SummaryOptions(bin_, cutoff, least, ratio, not no_match, reference, followed, seed),
        None if tagger == "none" else tagger,
        TopicOptions(topics, seed=seed) if topics else None,
        remedies,
    )
    with progress() as told:
        metrics = analysed(
            _runs(evaluations),
            corpus,
            split,
            asked,
            Computing(store, workers=workers, progress=told, ray=ray),
            out=out_dir,
            overwrite=overwrite,
        )
    if as_json:
        print_json(metrics)
    else:
        from triaxial.cli.temporal_tables import print_summary

        console = out()
        print_summary(console, metrics)
        for line in metrics["signatures"].values():
            console.print(line, style="dim", markup=False, soft_wrap=True)
    if out_dir is not None:
        note(f"in {out_dir / 'metrics.json'}; next: `triax report {out_dir}`")
    if fail_if is not None:
        from triaxial.api.gates import check_gate, temporal_figures

        check_gate(temporal_figures(metrics), fail_if)


def _print_evaluations(
    found: dict[str, Any], kind: Literal["month", "quarter", "half", "year"], as_json: bool
) -> None:
    """Perplexities of evaluations by bin, and of all; of adapted ones also what was tried."""
    from dataclasses import asdict

    from triaxial.temporal.perplexity import perplexity, perplexity_by_bin

    rows = {}
    for name, one in found.items():
        documents = one.evaluation.documents
        rows[name] = [*perplexity_by_bin(documents, kind), perplexity(documents)]
    if as_json:
        told = {
            name: {**found[name].facts, "bins": [asdict(row) for row in of]}
            for name, of in rows.items()
        }
        print_json(told.get("", told))
        return
    from triaxial.cli.temporal_show import print_choice, print_perplexity

    console = out()
    for name, of in rows.items():
        if name:
            console.print(name, style="bold", markup=False)
            print_choice(console, name, found[name].facts)
        print_perplexity(console, of)


def _runs(given: list[str]) -> Any:
    """Directories, or directories by name where any has one."""
    named = [one.partition("=") for one in given]
    if not any(
        sign and not Path(one).exists() for one, (_, sign, _) in zip(given, named, strict=True)
    ):
        return [Path(one) for one in given]
    found: dict[str, Path] = {}
    for one, (name, sign, place) in zip(given, named, strict=True):
        key, path = (name, place) if sign else (Path(one).name, one)
        if not key or key in found:
            message = f"the name {key!r} is empty or taken; give each run its own, NAME=DIRECTORY"
            raise InputError(message, where=one)
        found[key] = Path(path)
    return found
