"""Evaluations as directories: what a language model says about dated documents, word by word.

An evaluation is a directory with the tables `words` and `documents`, `evaluation.json` (what the
model is, its windows or memory, what it cost) and a manifest. All that is analysed is read from
these files.

Choice: the size of a model is named by its width and depth ("128x4") unless a name is given: runs
are compared with the CONTROL of their own size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from triaxial import __version__
from triaxial.api.budget import decided, fitting, stratified
from triaxial.api.temporal_corpus import SplitSet, read_split
from triaxial.errors import InputError
from triaxial.execute import Computing
from triaxial.models.peak import peak_bytes
from triaxial.store import (
    claim_directory,
    digest,
    finish_directory,
    finished_directory,
    read_json,
    read_table,
    write_json,
    write_table,
)
from triaxial.temporal.splits import CONTROL, TIME_STRATIFIED
from triaxial.temporal.stages import Corpus, open_corpus, score_documents
from triaxial.temporal.vocabulary import FACTS, read_vocabulary, trained_ids
from triaxial.temporal.words import Evaluation

if TYPE_CHECKING:
    import polars as pl

    from triaxial.models.causal import CausalLM

__all__ = [
    "EVALUATION",
    "EvaluateOptions",
    "EvaluationSet",
    "Subject",
    "evaluate",
    "finished",
    "read_evaluation",
    "subject_of",
    "write_evaluation",
]

EVALUATION = "temporal.evaluation"
VERSION = 1
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])", re.ASCII)

Setup = Literal["time-stratified", "control"]


_PILOT = 40  # documents whose cost is measured


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """What is scored, and what the model is.

    Args:
        valid: Score the validation documents, not the test.
        cutoff: Last month "YYYY-MM" that the model was trained on; needed where it was not trained
            by us. Without a split the documents after it are scored.
        setup: What it was trained on; by default what its `training.json` says, or the past.
        size: A name for its size.
        precision: `auto`, `fp32`, `bf16`.
        window: Tokens that a model without memory sees.
        stride: Tokens between the beginnings of two windows.
        memory: Tokens that a Transformer-XL remembers.
        separator: Token between documents, where the tokenizer has no start mark.
    """

    valid: bool = False
    cutoff: str | None = None
    setup: Setup | None = None
    size: str | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    window: int | None = None
    stride: int | None = None
    memory: int | None = None
    separator: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and the documents that it is put to.

    Args:
        model: The model.
        corpus: The documents.
        split: Of the corpus, if one was named.
        about: What `evaluation.json` says of both.
    """

    model: CausalLM
    corpus: Corpus
    split: SplitSet | None
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """An evaluation directory: its tables, and what `evaluation.json` says."""

    place: str
    key: str
    evaluation: Evaluation
    facts: dict[str, Any]


def evaluate(
    model: str,
    corpus: str | Path,
    out: str | Path,
    split: str | Path | None = None,
    options: EvaluateOptions | None = None,
    computing: Computing | None = None,
    *,
    overwrite: bool = False,
    budget: float | None = None,
) -> EvaluationSet:
    """Score the test documents of a split, or all documents after a model's cut-off.

    Called again after an interruption it goes on where it stopped; of a corpus that grew only what
    is new is scored.

    Args:
        model: Directory or hub id (`id@revision`).
        corpus: Directory of a corpus.
        out: Directory for the evaluation.
        split: Directory of a split.
        options: What is scored.
        computing: How the work is done.
        overwrite: Replace the evaluation of another call.
        budget: Seconds that it may take: as many documents are drawn, in the shares of their
            months, as a few of them show to fit. The first model decides for all on the same
            documents, so that they compare. `None` for all.

    Raises:
        InputError: The model, split or an option cannot be used, the model was trained on what it
            would be tested on, or there is nothing to score.
        StoreError: A directory cannot be used.
    """
    computing, out = computing or Computing(), Path(out)
    subject = subject_of(model, corpus, split, options or EvaluateOptions(), computing)
    if budget is not None:
        subject = _sampled(subject, budget, computing)
    key = digest({"kind": EVALUATION, "version": VERSION, "about": subject.about})
    claim_directory(out, EVALUATION, key, replace=overwrite)
    if finished(out):
        return read_evaluation(out)
    words, documents, cost = score_documents(subject.model, subject.corpus, computing)
    peak = None if computing.ray else peak_bytes()  # of this process
    cost |= {"flops": _flops(subject.model, cost["pieces"]), "peak_mib": peak and peak / 2**20}
    return write_evaluation(out, words, documents, {**subject.about, "cost": cost})


def subject_of(
    name: str,
    corpus: str | Path,
    split: str | Path | None,
    options: EvaluateOptions,
    computing: Computing,
) -> Subject:
    """A model, and the documents that it may be put to.

    Raises:
        InputError: As for `evaluate`.
    """
    from triaxial.models.base import split_revision
    from triaxial.models.causal import load_causal

    if options.cutoff is not None and not _MONTH.fullmatch(options.cutoff):
        raise InputError(f"{options.cutoff!r} is not a month; write YYYY-MM", where="--cutoff")
    whole = open_corpus(corpus)
    chosen = None if split is None else read_split(split)
    if chosen is not None:
        chosen.check(whole)
    elif options.valid:
        raise InputError("needs a split; name one with --split", where="--valid")
    place, revision = split_revision(name)
    trained = _training(Path(place).expanduser())
    setup: Setup = options.setup or trained.get("split", TIME_STRATIFIED)
    cutoff = _cutoff(name, setup, trained.get("cutoff"), options.cutoff)
    foreign = bool(trained.get("foreign_vocabulary"))
    if chosen is not None and trained and not foreign:
        trained_ids(Path(place).expanduser(), chosen.named(setup))
    ids = _documents(whole, chosen, setup, cutoff, options)
    model = load_causal(
        place,
        revision=revision,
        device=computing.device,
        precision=options.precision,
        window=options.window,
        stride=options.stride,
        memory=options.memory,
        separator=options.separator,
        token_budget=computing.token_budget,
    )
    facts = model.facts
    local = Path(place).expanduser().is_dir()
    about = {
        "schema": 1,
        "model": Path(place).name if local else place,
        "fingerprint": model.fingerprint,
        "setup": setup,
        "size": options.size or _size(model.checkpoint.path),
        "adaptation": "",
        "tokenizer": _tokenizer(model.checkpoint.path, setup, foreign),
        "context": facts["memory"] if "memory" in facts else facts["window"] - facts["stride"],
        "precision": facts["precision"],
        "cutoff": cutoff,
        "part": "valid" if options.valid else "test",
        "facts": {key: value for key, value in facts.items() if key != "model"},
        "corpus": whole.key,
        "split": None if chosen is None else chosen.key,
        "documents": digest(sorted(ids)),
    }
    return Subject(model, whole.only(ids), chosen, about)


def _sampled(subject: Subject, budget: float, computing: Computing) -> Subject:
    """With as many documents as fit, in the shares of their months."""
    every = subject.corpus.columns().select("id", "date").sort("date", "id").rows()
    order = stratified([date[:7] for _, date in every], 1)

    def first(count: int) -> list[str]:
        return [every[n][0] for n in sorted(order[:count])]

    def decide() -> dict[str, Any]:
        few = min(_PILOT, len(order))
        _, _, cost = score_documents(subject.model, subject.corpus.only(first(few)), computing)
        spent = cost["seconds"]
        return {"documents": fitting(budget, spent, spent / few, len(order), few)}

    inputs = [subject.about["documents"]]
    count = decided("temporal", {"budget": budget}, inputs, computing, decide)["documents"]
    ids = first(count)
    sample = {"documents": count, "of": len(order), "budget": budget}
    about = {**subject.about, "documents": digest(sorted(ids)), "sample": sample}
    return replace(subject, corpus=subject.corpus.only(ids), about=about)


def write_evaluation(
    out: Path, words: pl.DataFrame, documents: pl.DataFrame, facts: Mapping[str, Any]
) -> EvaluationSet:
    """Write an evaluation into a directory that was claimed."""
    write_table(out / "words.parquet", words)
    write_table(out / "documents.parquet", documents)
    write_json(out / "evaluation.json", facts)
    finish_directory(out, {"version": __version__, "rows": [len(words), len(documents)]})
    return read_evaluation(out)


def read_evaluation(directory: str | Path) -> EvaluationSet:
    """An evaluation that was written.

    Raises:
        StoreError: It is none, or was not finished.
    """
    path = Path(directory).expanduser()
    manifest = finished_directory(
        path, EVALUATION, "evaluation; make it with `triax temporal evaluate`"
    )
    facts = read_json(path / "evaluation.json")
    fields = ("model", "setup", "size", "adaptation", "tokenizer", "context", "precision")
    evaluation = Evaluation(
        read_table(path / "words.parquet"),
        read_table(path / "documents.parquet"),
        fingerprint=facts["fingerprint"]["digest"][:16],
        **{name: facts[name] for name in fields},
    )
    return EvaluationSet(str(path), manifest["key"], evaluation, facts)


def finished(out: Path) -> bool:
    """Whether a claimed directory holds everything already."""
    manifest = read_json(out / "manifest.json")
    return manifest["complete"] and all((out / name).is_file() for name in manifest["files"])


def _training(place: Path) -> dict[str, Any]:
    """What `training.json` says, where a model of ours has one."""
    path = place / "training.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError("is damaged; train the model again", where=path)
    return found if found.get("kind") == "causal" else {}


def _cutoff(name: str, setup: Setup, trained: str | None, stated: str | None) -> str | None:
    """Last month of training."""
    if trained and stated and stated < trained:
        message = f"states {stated}, but it was trained on documents up to {trained}; leave it out"
        raise InputError(message, where="--cutoff")
    if setup == TIME_STRATIFIED and not (stated or trained):
        message = "when its training ended is not known; state the month with --cutoff YYYY-MM"
        raise InputError(message, where=name)
    return stated or trained


def _documents(
    corpus: Corpus,
    split: SplitSet | None,
    setup: Setup,
    cutoff: str | None,
    options: EvaluateOptions,
) -> Sequence[str]:
    """Ids to score, all of them after the cut-off where the model is of the past."""
    columns = corpus.columns()
    dates: dict[str, str] = dict(columns.select("id", "date").iter_rows())
    if split is None:
        if cutoff is None:
            message = "is not given, nor a split; give one, to say which documents are scored"
            raise InputError(message, where="--cutoff")
        ids: Sequence[str] = [name for name, date in dates.items() if date[:7] > cutoff]
        if not ids:
            last = max(dates.values())
            message = f"no document after {cutoff}, the last is of {last}; give a longer corpus"
            raise InputError(message, where=corpus.place)
        return ids
    chosen = split.named(setup if options.valid else next(iter(split.splits)))
    ids = chosen.valid if options.valid else chosen.test
    if not ids:
        message = "has no validation documents; split with --valid-months 1 or more"
        raise InputError(message, where=split.place)
    if setup == TIME_STRATIFIED and cutoff is not None:
        early = min(ids, key=lambda name: dates[name])
        if dates[early][:7] <= cutoff:
            message = f"would be scored on {early!r} of {dates[early]}, but its training ended with"
            raise InputError(f"{message} {cutoff}; choose a split that begins later", where="model")
    return ids


def _size(directory: Path) -> str:
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    wide = next((config[n] for n in ("d_model", "hidden_size", "n_embd") if n in config), None)
    names = ("layers", "num_hidden_layers", "n_layer")
    deep = next((config[n] for n in names if n in config), None)
    return f"{wide}x{deep}" if wide and deep else ""


def _tokenizer(directory: Path, setup: Setup, foreign: bool) -> Literal["own", "control"]:
    """Whether a model of the past has CONTROL's pieces."""
    if not foreign or setup == CONTROL or not (directory / FACTS).is_file():
        return "own"
    return "control" if read_vocabulary(directory).split == CONTROL else "own"


def _flops(model: CausalLM, pieces: int) -> float | None:
    """Least FLOPs of scoring; of a Transformer-XL alone."""
    from triaxial.models.xl_config import XLConfig, flops_per_token

    config = getattr(model.network, "config", None)
    if not isinstance(config, XLConfig):
        return None
    return pieces * flops_per_token(config, model.facts["memory"])[0]
