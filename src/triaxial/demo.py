"""`triax demo`: all three axes on generated worlds, with what was planted beside what was measured.

Everything is trained on the spot, so that nothing is fetched and nothing is canned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triaxial.api.c2gen import run as run_c2gen
from triaxial.api.merge import GenerateOptions
from triaxial.api.merge import run as run_merge
from triaxial.api.merge_predict import EvaluateOptions
from triaxial.api.report import report, write_report
from triaxial.api.report_shown import interval
from triaxial.api.temporal import AnalyseOptions, analyse, fit
from triaxial.api.temporal_adapt import AdaptRequest, adapt
from triaxial.api.temporal_corpus import split_corpus
from triaxial.api.temporal_evaluate import evaluate
from triaxial.api.temporal_ingest import ingest
from triaxial.c2gen.compose import Item
from triaxial.c2gen.grid import Grid, TrainOptions
from triaxial.c2gen.streams import Draw
from triaxial.execute import Computing, Progress
from triaxial.models.schedule import FitOptions
from triaxial.models.xl_config import XLConfig
from triaxial.nli import Reading
from triaxial.report.page import Report
from triaxial.store import digest, table_of, write_jsonl
from triaxial.temporal.analyses import SummaryOptions
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.splits import SplitOptions
from triaxial.temporal.topics import TopicOptions
from triaxial.temporal.vocabulary import VocabularyOptions
from triaxial.worlds import compositions, world

__all__ = ["DemoOptions", "run_demo"]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How large the demo is; the whole takes minutes on two cores.

    Args:
        sentences: Sentences for the masked LM.
        pairs: Pairs for the classifier.
        seeds: Pairs that are tested.
        masked_epochs: Of the masked LM.
        classifier_epochs: Of the classifier.
        per_type: Composed items of a type in training.
        composed_epochs: Of a stage.
        plant: The dated documents.
        test_months: Months of the test, at the end.
        language_epochs: Of the language models.
        xl: Their shape.
        seed: Of all worlds and models.
    """

    sentences: int = 1200
    pairs: int = 1200
    seeds: int = 90
    masked_epochs: int = 8
    classifier_epochs: int = 12
    per_type: int = 30
    composed_epochs: int = 8
    plant: PlantOptions = field(
        default_factory=lambda: PlantOptions(
            documents=1920, months=48, sentences=4, drift=0.6, topic_drift=0.3, new_words=12
        )
    )
    test_months: int = 24
    language_epochs: int = 6
    xl: XLConfig = field(
        default_factory=lambda: XLConfig(
            512, d_model=64, heads=2, layers=2, d_inner=256, segment=64, memory_train=64,
            memory_test=128,
        )
    )  # fmt: skip
    seed: int = 1


def run_demo(
    directory: Path, told: Progress | None = None, options: DemoOptions | None = None
) -> tuple[Report, dict[str, Any]]:
    """Run the three axes and put them into `report.html`, `report.md` and `report.json`.

    Args:
        directory: Receives models, store, runs and report.
        told: Progress: what, done, in all.
        options: How large it is.

    Returns:
        The report, and the metrics by axis.
    """
    options = options or DemoOptions()
    computing = Computing(store=directory / "store", progress=told)
    axes: dict[str, Callable[[], tuple[Path, dict[str, Any], dict[str, str]]]] = {
        "replacement": lambda: _replacement(directory, computing, options),
        "composition": lambda: _composition(directory, computing, options),
        "time": lambda: _time(directory, computing, options),
    }
    runs: dict[str, Path] = {}
    metrics: dict[str, Any] = {}
    planted: dict[str, str] = {}
    for number, (axis, measured) in enumerate(axes.items()):
        if told:
            told("axes", number, len(axes))
        runs[axis], metrics[axis], truths = measured()
        planted |= truths
    if told:
        told("axes", len(axes), len(axes))
    made = report(runs, title="A demonstration on generated worlds", planted=planted)
    for form in ("html", "md", "json"):
        write_report(made, directory / f"report.{form}", form)
    return made, metrics


def _replacement(
    directory: Path, computing: Computing, options: DemoOptions
) -> tuple[Path, dict[str, Any], dict[str, str]]:
    from triaxial.models.finetune import train_classifier, train_masked
    from triaxial.models.tiny import tiny_masked

    made = world(
        options.seed,
        sentences=options.sentences,
        training=options.pairs,
        seeds=options.seeds,
    )
    start = tiny_masked(directory / "start", made.words, seed=options.seed, hidden=64, layers=2)
    masked, model, out = (directory / name for name in ("masked-lm", "nli-model", "replacement"))
    train_masked(
        str(start),
        made.text,
        masked,
        FitOptions(epochs=options.masked_epochs, learning_rate=3e-3, seed=options.seed),
        batch_size=64,
        progress=_loss(computing, "training a masked LM"),
    )
    train_classifier(
        str(start),
        made.training,
        model,
        FitOptions(epochs=options.classifier_epochs, learning_rate=2e-3, seed=options.seed),
        batch_size=32,
        progress=_loss(computing, "training an NLI model"),
    )
    key = digest([options.seed, options.seeds, "demo"])
    reading = Reading(made.seeds, {}, "a generated world", key)
    generating = GenerateOptions(mlm=(str(masked),))
    _, metrics, _ = run_merge(
        reading, generating, EvaluateOptions(models=(str(model),)), computing, out
    )
    (scored,) = metrics["models"].values()
    by_class = {name: one["sv"][18] for name, one in scored.get("class", {}).items()}
    told = ", ".join(f"{name} {interval(sv)}" for name, sv in by_class.items())
    truth = "Half of the verbs were trained under contradiction alone, so verbs are the hardest."
    return out, metrics, {f"Replacement. {truth}": f"SV95 by word class, %: {told or 'no seeds'}"}


def _composition(
    directory: Path, computing: Computing, options: DemoOptions
) -> tuple[Path, dict[str, Any], dict[str, str]]:
    from triaxial.models.tiny import tiny_masked

    items, data, out = compositions(), directory / "composed", directory / "composition"
    data.mkdir(parents=True, exist_ok=True)
    write_jsonl(data / "items.jsonl", table_of(items, Item))
    texts = (text for item in items for text in (item.sent1, item.mid_sent, item.sent2))
    words = sorted({word for text in texts for word in text.split()})
    encoder = tiny_masked(directory / "encoder", words, seed=options.seed, hidden=32)
    grid = Grid(
        str(encoder),
        folds=(1, 5),
        streams=("ver-nat",),
        strategies=("none", "er-res", "kd"),
        seeds=(options.seed,),
        draw=Draw(options.per_type, 20, 8, 0),
        train=TrainOptions(epochs=options.composed_epochs, learning_rate=2e-3),
        settings={"memory": 2 * options.per_type},
        precision="fp32",
    )
    metrics = run_c2gen(data, grid, computing, out)
    lost = {
        strategy: run["forgetting"]["probe"]["forget"]["V"]
        for strategy, run in metrics["streams"]["ver-nat"].items()
    }
    told = ", ".join(f"{strategy} {interval(figure)}" for strategy, figure in lost.items())
    truth = (
        "Only the first stage teaches what veridical verbs mean (V): it is forgotten without a "
        "remedy, and kept by replay (er-res)."
    )
    return out, metrics, {f"Composition. {truth}": f"V forgotten after the second stage, %: {told}"}


def _time(
    directory: Path, computing: Computing, options: DemoOptions
) -> tuple[Path, dict[str, Any], dict[str, str]]:
    from triaxial.temporal.train import TrainOptions as TrainingOptions

    documents, truth = plant(replace(options.plant, seed=options.seed))
    source = directory / "documents.jsonl"
    write_jsonl(source, table_of(documents, type(documents[0])))
    corpus, split, out = (directory / name for name in ("corpus", "split", "time"))
    months = sorted({document.date[:7] for document in documents})
    first, last = months[-options.test_months], months[-1]
    each = len(documents) // len(months) // 2
    ingest([str(source)], corpus, computing=computing, duplicates=True)
    split_corpus(
        corpus, split, SplitOptions(first, last, per_month=each, seed=options.seed),
        computing=computing,
    )  # fmt: skip
    runs: dict[str, Path] = {}
    for name, setup in (("past", "time-stratified"), ("control", "control")):
        model = directory / f"{name}-model"
        fit(
            corpus,
            split,
            model,
            setup,  # type: ignore[arg-type]
            TrainingOptions(
                options.xl,
                fit=FitOptions(
                    epochs=options.language_epochs, learning_rate=5e-3, seed=options.seed
                ),
            ),
            VocabularyOptions(size=options.xl.vocab_size),
            computing,
        )
        runs[name] = directory / f"{name}-test"
        evaluate(str(model), corpus, runs[name], split, computing=computing)
    request = AdaptRequest(parameters=("all",), valid_documents=60)
    adapt(
        str(directory / "past-model"), corpus, directory / "adapted", split, request,
        computing=computing,
    )  # fmt: skip
    runs["adapted"] = directory / "adapted" / "all"
    metrics = analyse(
        runs,
        corpus,
        split,
        AnalyseOptions(SummaryOptions(least=10, seed=options.seed), topics=TopicOptions(topics=4)),
        computing,
        out=out,
    )
    drift = metrics["drift"]["past"]["drifts"]
    whole = metrics["curves"]["past"]["overall"]["percent"]
    classes = {row["cell"]: row["runs"]["past"]["increase"] for row in metrics["tags"]["rows"]}
    flat = ", ".join(
        f"{tag} {interval(classes[tag], '+.1f')}" for tag in ("DET", "NOUN") if tag in classes
    )
    new = {row["cell"]: row["runs"]["past"]["increase"] for row in metrics["emerging"]["cells"]}
    told = ", ".join(f"{cell} words {interval(one, '+.1f')}" for cell, one in new.items())
    planted = {
        f"Time. {len(truth.new)} words appear and content words drift; function words do not.": (
            f"drift: {drift}; perplexity over CONTROL {interval(whole, '+.1f')} %; {told}; {flat}"
        )
    }
    return out, metrics, planted


def _loss(computing: Computing, what: str) -> Callable[[int, int, float], None]:
    told = computing.told(what)
    return lambda done, total, _loss: told(done, total)
