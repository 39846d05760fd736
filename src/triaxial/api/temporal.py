"""The time axis as functions: train on a split, and analyse what was scored.

The corpus and its splits are in `temporal_ingest` and `temporal_corpus`, evaluations are in
`temporal_evaluate` and `temporal_adapt`.

Source: Lazaridou et al. 2021; see `docs/choices.md` for what the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from triaxial import __version__
from triaxial.api.temporal_corpus import SplitSet, read_split
from triaxial.api.temporal_evaluate import EvaluationSet, read_evaluation
from triaxial.errors import InputError, StoreError
from triaxial.execute import Computing
from triaxial.models.distributed import ALONE, Team
from triaxial.models.tagger import load_tagger
from triaxial.store import claim_directory, digest, finish_directory, write_json
from triaxial.temporal.analyses import SummaryOptions, signature, summarize
from triaxial.temporal.corpus import month_name
from triaxial.temporal.drift import Costs
from triaxial.temporal.splits import TIME_STRATIFIED, cutoff
from triaxial.temporal.stages import (
    Corpus,
    open_corpus,
    tags_of,
    topics_of,
    training_words,
    vocabulary_of,
)
from triaxial.temporal.topics import TopicOptions
from triaxial.temporal.vocabulary import VocabularyOptions

if TYPE_CHECKING:
    from triaxial.temporal.train import TrainOptions
    from triaxial.temporal.words import Evaluation

__all__ = ["ANALYSIS", "AnalyseOptions", "analyse", "fit"]

ANALYSIS = "temporal.analysis"
VERSION = 1


@dataclass(frozen=True, slots=True)
class AnalyseOptions:
    """What is analysed.

    Args:
        summary: Bins, emerging words, terms, seed; without a cut-off that of the split is taken.
        tagger: As for `models.tagger.load_tagger`; `None` for no tags.
        topics: How topics are fitted; `None` for none.
        remedies: What staleness, retraining and adapting cost.
    """

    summary: SummaryOptions = field(default_factory=SummaryOptions)
    tagger: str | None = "hanta"
    topics: TopicOptions | None = field(default_factory=TopicOptions)
    remedies: Costs | None = None


def fit(
    corpus: str | Path,
    split: str | Path,
    out: str | Path,
    setup: Literal["time-stratified", "control"] = "time-stratified",
    options: TrainOptions | None = None,
    vocabulary: VocabularyOptions | None = None,
    computing: Computing | None = None,
    *,
    foreign_vocabulary: str | Path | None = None,
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    team: Team = ALONE,
) -> dict[str, Any]:
    """Learn a vocabulary and train a language model on the training part of a split.

    The vocabulary lies in the store, where models of all sizes find it. The same call again goes on
    where it stopped.

    Args:
        corpus: Directory of a corpus.
        split: Directory of a split of it.
        out: Directory for the model.
        setup: Which of the split's training parts.
        options: The model and its training.
        vocabulary: What is learned.
        computing: How the work is done.
        foreign_vocabulary: Directory of a model whose pieces are taken instead (the paper's test of
            the tokenizer's age); no vocabulary is learned then.
        precision: `auto`, `fp32`, `bf16`.
        team: The processes that share the training, each with its device in `computing`; the first
            learns the vocabulary and saves.

    Returns:
        The content of `training.json`.

    Raises:
        InputError: The split is of another corpus, or training cannot be done.
        StoreError: A directory cannot be used.
    """
    from triaxial.models.base import hardware
    from triaxial.temporal.train import train_language_model

    computing, found, chosen = computing or Computing(), open_corpus(corpus), read_split(split)
    chosen.check(found)
    mine = chosen.named(setup)
    if foreign_vocabulary is None:
        with team.in_turn():
            pieces = vocabulary_of(found, mine, vocabulary or VocabularyOptions(), computing)
    else:
        pieces = Path(foreign_vocabulary).expanduser()
    told = computing.told(f"training on {setup}")
    last = month_name(cutoff(chosen.options) - 1) if setup == TIME_STRATIFIED else None
    return train_language_model(
        found,
        mine,
        pieces,
        Path(out),
        options,
        cutoff=last,
        foreign_vocabulary=foreign_vocabulary is not None,
        where=hardware(computing.device, precision),
        progress=lambda done, total, loss: told(done, total),
        team=team,
    )


def analyse(
    evaluations: Mapping[str, str | Path] | Sequence[str | Path],
    corpus: str | Path | None = None,
    split: str | Path | None = None,
    options: AnalyseOptions | None = None,
    computing: Computing | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Every figure that evaluations of the same documents allow.

    Tags, topics and counts of training words are made once and shared by all models on the same
    documents.

    Args:
        evaluations: Directories, by run name or named after themselves.
        corpus: Directory of their corpus, which topics and emerging words need.
        split: Directory of the split, whose TIME-STRATIFIED training part both are taken from.
        options: What is analysed.
        computing: How the work is done.
        out: Directory for `metrics.json`.
        overwrite: Replace the analysis of another call.

    Returns:
        What `analyses.summarize` gives, with `signatures` by run.

    Raises:
        InputError: The evaluations do not fit together, or an option cannot be used.
        StoreError: A directory cannot be used.
    """
    options, computing = options or AnalyseOptions(), computing or Computing()
    if (corpus is None) != (split is None):
        where = "--corpus" if corpus is None else "--split"
        raise InputError("is not given; corpus and split go together", where=where)
    read = {name: read_evaluation(path) for name, path in _named(evaluations).items()}
    if not read:
        raise InputError("no evaluation; name at least one directory of `triax temporal evaluate`")
    whole = None if corpus is None else open_corpus(corpus)
    chosen = None if split is None else read_split(split)
    summary = options.summary
    if chosen is not None and whole is not None:
        chosen.check(whole)
        if summary.cutoff is None:
            summary = replace(summary, cutoff=month_name(cutoff(chosen.options) - 1))
    about = {
        "runs": {name: one.key for name, one in read.items()},
        "split": None if chosen is None else chosen.key,
        "summary": asdict(summary),
        "tagger": None if options.tagger is None else load_tagger(options.tagger).fingerprint,
        "topics": None if options.topics is None else asdict(options.topics),
        "remedies": None if options.remedies is None else asdict(options.remedies),
    }
    key = digest({"kind": ANALYSIS, "version": VERSION, "release": __version__, **about})
    if out is not None:
        claim_directory(out, ANALYSIS, key, replace=overwrite)
    runs, top, training = _joined(read, whole, chosen, options, computing)
    metrics = summarize(
        runs,
        summary,
        training=training,
        topics=top,
        costs=_costs(read),
        remedies=options.remedies,
        version=__version__,
    )
    metrics["signatures"] = {name: signature(metrics, name) for name in read}
    if out is not None:
        write_json(Path(out) / "metrics.json", metrics)
        finish_directory(out, {"version": __version__, **about})
    return metrics


def _joined(
    read: Mapping[str, EvaluationSet],
    corpus: Corpus | None,
    split: SplitSet | None,
    options: AnalyseOptions,
    computing: Computing,
) -> tuple[dict[str, Evaluation], list[list[str]], Any]:
    """The evaluations, the first with tags and topics; what describes topics; training counts."""
    runs = {name: one.evaluation for name, one in read.items()}
    first = next(iter(runs))
    words, documents = runs[first].words, runs[first].documents
    top: list[list[str]] = []
    training = None
    if options.tagger is not None:
        words = words.with_columns(tag=tags_of(words, options.tagger, computing))
    if corpus is not None and split is not None:
        past = split.named(TIME_STRATIFIED)
        training = training_words(corpus, past, computing)
        if options.topics is not None:
            ids = documents["document"].to_list()
            topics, top = topics_of(corpus, past, ids, options.topics, computing)
            column = topics.select("document", "topic")
            documents = documents.join(column, on="document", how="left", maintain_order="left")
    runs[first] = replace(runs[first], words=words, documents=documents)
    return runs, top, training


def _named(evaluations: Mapping[str, str | Path] | Sequence[str | Path]) -> dict[str, Path]:
    """Directories by run name: the last part of a path, or more where two agree."""
    if isinstance(evaluations, Mapping):
        return {name: Path(path) for name, path in evaluations.items()}
    paths = [Path(path) for path in evaluations]
    found: dict[str, Path] = {}
    for path in paths:
        name = path.resolve().name
        if sum(other.resolve().name == name for other in paths) > 1:
            name = f"{path.resolve().parent.name}/{name}"
        if name in found:
            message = f"is named as {found[name]}; give names of your own, NAME=DIRECTORY"
            raise StoreError(message, where=path)
        found[name] = path
    return found


def _costs(read: Mapping[str, EvaluationSet]) -> dict[str, dict[str, Any]] | None:
    """By run what it cost, in the form of `analyses.summarize`."""
    found = {}
    for name, one in read.items():
        cost = dict(one.facts.get("cost") or {})
        if cost.get("seconds") is not None:
            found[name] = cost | {"seconds": [cost["seconds"]]}
    return found or None
