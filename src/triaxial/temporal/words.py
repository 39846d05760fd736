"""The scored words of several evaluations on one test set, side by side; counts of words.

An evaluation leaves a row a word and a row a document. Here several of them are checked and put
into one table, in one order (by month, date, id, position) whatever order they came in, so that no
later figure depends on the order of rows; evaluations of other documents or other words are
refused, never cut down to what they share. Everything is columns: no loop over words.

Source: Lazaridou et al. 2021 (log-probabilities summed per Moses word).
Choice: where no CONTROL model exists, the trend is read against a unigram model refit in every
month, `unigram_control`; it is named so and is never the paper's CONTROL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from triaxial.errors import InputError
from triaxial.temporal.corpus import Document, month_of, moses_words
from triaxial.temporal.splits import CONTROL, TIME_STRATIFIED

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "UNIGRAM",
    "Evaluation",
    "Scored",
    "counts_by_month",
    "score_together",
    "training_counts",
    "unigram_control",
]

Array = npt.NDArray[Any]

UNIGRAM = "unigram control"
PRIOR = 1000.0  # Choice: the words of all months weigh like so many of the month's own
TOLERANCE = 1e-4  # relative, between a document's sum and its words'

_WORDS = ("document", "word", "start", "end", "text", "pieces", "log_p")
_DOCUMENTS = ("document", "date", "month", "source", "words", "pieces", "bytes", "log_p", "unknown")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one evaluation left.

    Args:
        words: One row a word: `document`, `word`, `start`, `end`, `text`, `pieces`, `log_p`
            (natural); `tag` where the words were tagged.
        documents: One row a document: `document`, `date`, `month`, `source`, `words`, `pieces`,
            `bytes`, `log_p`, `end_log_p`, `unknown`; `topic` where the documents have topics.
        model: Its name.
        fingerprint: Of its weights.
        setup: What it was trained on.
        size: A name for the size; runs are compared with the CONTROL of their own size.
        adaptation: Parameter set of dynamic evaluation, such as "all" or "biases"; "" is static.
        tokenizer: Its own, or CONTROL's under the same weights.
        context: Pieces before a word that the model is sure to see: the memory, or window less
            stride.
        precision: Of the weights, such as "bfloat16".
    """

    words: pl.DataFrame
    documents: pl.DataFrame
    model: str
    fingerprint: str = ""
    setup: Literal["time-stratified", "control"] = "time-stratified"
    size: str = ""
    adaptation: str = ""
    tokenizer: Literal["own", "control"] = "own"
    context: int = 0
    precision: str = ""


@dataclass(frozen=True, slots=True)
class Scored:
    """The words of one test set under several models.

    Args:
        documents: One row a document in the order of (month, date, id): `document`, `date`,
            `month`, `source`, `words`, `bytes`, and `topic` where there is one.
        words: One row a word in the order of (document, position): `doc` (row of the document),
            `word`, `text`, `tag` where there is one, and by model `log_p.NAME`, `pieces.NAME`.
        names: The models.
    """

    documents: pl.DataFrame
    words: pl.DataFrame
    names: tuple[str, ...]

    def log_p(self, name: str) -> Array:
        """Natural log-probabilities of the words, shape (words,), float64."""
        return self.words[f"log_p.{name}"].to_numpy().astype(np.float64)

    def pieces(self, name: str) -> Array:
        """Pieces of the words, shape (words,)."""
        return self.words[f"pieces.{name}"].to_numpy()

    @property
    def doc(self) -> Array:
        """Document of every word, shape (words,)."""
        return self.words["doc"].to_numpy()

    @property
    def months(self) -> Array:
        """Month of every document, shape (documents,)."""
        return self.documents["month"].to_numpy().astype(np.int64)


def score_together(evaluations: Mapping[str, Evaluation]) -> Scored:
    """Puts evaluations of the same test documents into one table.

    Args:
        evaluations: By name; tags and topics are taken from the first that has them.

    Raises:
        InputError: There are none, a table lacks columns or contradicts itself, or two evaluations
            differ in documents or words.
    """
    import polars as pl

    if not evaluations:
        raise InputError("no evaluation; wanted at least one: score the test documents first")
    base: pl.DataFrame | None = None
    documents = pl.DataFrame()
    first = ""
    for name, evaluation in evaluations.items():
        ours, words = _checked(evaluation, name)
        if base is None:
            documents, base, first = ours, words, name
            continue
        if not ours["document"].equals(documents["document"]):
            others = set(ours["document"]) ^ set(documents["document"])
            raise InputError(
                f"{len(others)} documents are in only one of {first!r} and {name!r}, such as "
                f"{min(others)!r}; wanted the same test documents: score both on one split",
                where=name,
            )
        same = (words["text"] == base["text"]) if len(words) == len(base) else None
        if same is None or not same.all() or not words["start"].equals(base["start"]):
            raise InputError(
                f"its words are not those of {first!r}; wanted the same Moses words with the same "
                "offsets: score both on the same texts with the same version",
                where=name,
            )
        base = base.hstack(words.select(pl.col(f"^(log_p|pieces)\\.{_escaped(name)}$")))
        if "tag" in words.columns and "tag" not in base.columns:
            base = base.hstack(words.select("tag"))
        if "topic" in ours.columns and "topic" not in documents.columns:
            documents = documents.hstack(ours.select("topic"))
    assert base is not None
    return Scored(documents, base.drop("start"), tuple(evaluations))


def counts_by_month(scored: Scored) -> pl.DataFrame:
    """Counts of the test words: `month`, `text`, `count`, ordered by month and text."""
    import polars as pl

    return (
        scored.words.select("text", month=pl.Series(scored.months[scored.doc]))
        .group_by("month", "text")
        .agg(count=pl.len().cast(pl.Int64))
        .select("month", "text", "count")
        .sort("month", "text")
    )


def training_counts(documents: Iterable[Document]) -> pl.DataFrame:
    """Counts of the Moses words of documents: `month`, `text`, `count`, by month and text.

    The words are those in which the test is scored, so that a word is never "new" for being cut
    otherwise. Documents stream; the counts are held.
    """
    import polars as pl

    counts: dict[int, Counter[str]] = {}
    for document in documents:
        counter = counts.setdefault(month_of(document.date), Counter())
        counter.update(word.text for word in moses_words(document.text))
    rows = [(m, text, n) for m, counter in counts.items() for text, n in counter.items()]
    schema = {"month": pl.Int64, "text": pl.String, "count": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("month", "text")


def unigram_control(scored: Scored) -> Scored:
    """The same with one model more, `UNIGRAM`: a unigram model refit in every month.

    A word is scored by the counts of its month without its own document, smoothed towards all
    months without that document:
    p(w) = (c_month(w) + PRIOR · q(w)) / (n_month + PRIOR), q(w) = (c_all(w) + 1) / (n_all + V).
    A month with more words has a slightly better control; compare months of like size.
    """
    import polars as pl

    doc, all_words = scored.doc, float(len(scored.words))
    text = scored.words.select("text")
    types = text.unique().sort("text").with_row_index("type")  # numbers are faster than strings
    frame = text.join(types, on="text", how="left", maintain_order="left").select(
        "type", doc=pl.Series(doc), month=pl.Series(scored.months[doc])
    )
    n = pl.len().cast(pl.Float64)
    months = frame.group_by("month", "type").agg(c_month=n)
    size = np.bincount(doc, minlength=len(scored.documents)).astype(np.float64)
    _, month = np.unique(scored.months, return_inverse=True)
    rest = np.bincount(month, weights=size)[month] - size  # the month's words without the document
    sizes = {"n_month": rest, "n_all": all_words - size}
    q = (pl.col("c_all") - pl.col("own") + 1) / (pl.col("n_all") + len(types))
    p = (pl.col("c_month") - pl.col("own") + PRIOR * q) / (pl.col("n_month") + PRIOR)
    known = (
        frame.group_by("doc", "month", "type")
        .agg(own=n)
        .join(months, on=["month", "type"])
        .join(months.group_by("type").agg(c_all=pl.col("c_month").sum()), on="type")
        .join(pl.DataFrame(sizes).with_row_index("doc").cast({"doc": pl.Int32}), on="doc")
        .select("doc", "type", log_p=p.log())
    )
    found = frame.join(known, on=["doc", "type"], how="left", maintain_order="left")
    column = found["log_p"].alias(f"log_p.{UNIGRAM}")
    return Scored(scored.documents, scored.words.with_columns(column), (*scored.names, UNIGRAM))


def _checked(evaluation: Evaluation, name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Documents and words of an evaluation in their order, the words' columns under its name."""
    import polars as pl

    if evaluation.setup not in (TIME_STRATIFIED, CONTROL):
        wanted = f"{TIME_STRATIFIED!r} or {CONTROL!r}"
        raise InputError(f"setup {evaluation.setup!r}; wanted {wanted}", where=name)
    for table, columns in ((evaluation.words, _WORDS), (evaluation.documents, _DOCUMENTS)):
        missing = [column for column in columns if column not in table.columns]
        if missing:
            raise InputError(
                f"a table without the columns {', '.join(missing)}; wanted "
                f"{', '.join(columns)}: take the tables that the evaluation wrote",
                where=name,
            )
    optional = ["topic"] if "topic" in evaluation.documents.columns else []
    documents = evaluation.documents.sort("month", "date", "document").select(
        "document", "date", "month", "source", "words", "bytes", "log_p", *optional
    )
    twice = documents["document"].is_duplicated()
    if twice.any() or not len(documents):
        seen = repr(documents["document"].filter(twice)[0]) if twice.any() else "no document"
        raise InputError(
            f"{seen} stands in the documents table "
            f"{'twice' if twice.any() else 'at all'}; wanted one row a document",
            where=name,
        )
    rows = documents.select("document").with_row_index("doc").cast({"doc": pl.Int32})
    words = evaluation.words.join(rows, on="document", how="left", maintain_order="left")
    if words["doc"].null_count():
        stray = words["document"].filter(words["doc"].is_null())[0]
        raise InputError(
            f"words of the document {stray!r}, which has no row; wanted both tables of one run",
            where=name,
        )
    words = words.sort("doc", "word")
    _check_numbers(documents, words, name)
    optional = ["tag"] if "tag" in words.columns else []
    return documents.drop("log_p"), words.select(
        "doc",
        "word",
        "start",
        "text",
        *optional,
        pl.col("log_p").alias(f"log_p.{name}"),
        pl.col("pieces").alias(f"pieces.{name}"),
    )


def _check_numbers(documents: pl.DataFrame, words: pl.DataFrame, name: str) -> None:
    log_p = words["log_p"].to_numpy().astype(np.float64)
    bad = ~np.isfinite(log_p) | (log_p > TOLERANCE)
    if bad.any():
        row = words.row(int(np.flatnonzero(bad)[0]), named=True)
        raise InputError(
            f"log p {row['log_p']} of word {row['word']} of {row['document']!r}; wanted natural "
            "log-probabilities, finite and at most 0: neither losses nor bits",
            where=name,
        )
    doc = words["doc"].to_numpy()
    count = np.bincount(doc, minlength=len(documents))
    starts = np.cumsum(count) - count
    stray = doc[words["word"].to_numpy() != np.arange(len(words)) - starts[doc]]
    sums = np.bincount(doc, weights=log_p, minlength=len(documents))
    told = documents["log_p"].to_numpy().astype(np.float64)
    off = (count != documents["words"].to_numpy()) | (
        np.abs(sums - told) > TOLERANCE * np.maximum(1.0, np.abs(told))
    )
    off[stray] = True
    if off.any():
        which = documents["document"][int(np.flatnonzero(off)[0])]
        raise InputError(
            f"the words of the document {which!r} do not add up to its row; wanted positions "
            "0, 1, … and the same number and sum: take both tables from one finished run",
            where=name,
        )


def _escaped(name: str) -> str:
    import re

    return re.escape(name)
