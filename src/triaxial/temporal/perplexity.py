"""Perplexity by the word: what a language model's pieces say about the Moses words of documents.

A piece belongs to a word by its characters, so that the same words are scored whatever a tokenizer
does: a piece that reaches over two words belongs to the first of them that it touches, and a piece
of white space alone to the word that follows, or to the end of the document where none does. So
the log-probabilities of the words and the end are those of the pieces, which is checked for every
document.

Tables come shard by shard; every later analysis reads them alone. A perplexity is the exponential
of a ratio of sums over documents, never a mean of the perplexities of documents or windows, and
its interval resamples documents. Bits per byte stand beside it: they need no notion of a word.

Source: Lazaridou et al. 2021 (log-probabilities of pieces summed per Moses word, averaged over
words); reports on peers: lm-evaluation-harness #1581 (a log-likelihood called perplexity),
transformers #34138 (mean of window means), llama.cpp #28862 (a run of unknown characters scored as
one piece: the perplexity is marked as not valid).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from triaxial.errors import InputError
from triaxial.stats import Interval, generator, interval, resampled_sums
from triaxial.temporal.corpus import Bin, Document, bin_of, month_of, moses_words
from triaxial.text import Word

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = [
    "DOCUMENTS",
    "WORDS",
    "Perplexity",
    "Scorer",
    "Tables",
    "document_tables",
    "evaluate",
    "perplexity",
    "perplexity_by_bin",
    "word_log_p",
]

DOCUMENTS = (
    "document",
    "date",
    "month",
    "source",
    "words",
    "pieces",
    "bytes",
    "log_p",
    "end_log_p",
    "unknown",
)
WORDS = ("document", "word", "start", "end", "text", "pieces", "log_p")
_MOST_PIECES = 2**15 - 1  # of a word, as told
_CLOSE = 1e-4  # nats a document, plus rounding of the words to float32


class Score(Protocol):
    """What a document of n pieces costs; see `models.causal.DocumentScore`."""

    @property
    def offsets(self) -> NDArray[np.int32]:
        """Characters of the pieces, shape (n, 2)."""
        ...

    @property
    def log_p(self) -> NDArray[np.float32]:
        """Natural log-probabilities, shape (n,)."""
        ...

    @property
    def end_log_p(self) -> float | None:
        """That of the end of the document."""
        ...

    @property
    def unknown(self) -> int:
        """Pieces that stand for characters outside the vocabulary."""
        ...


class Scorer(Protocol):
    """Anything that scores documents; `models.causal.CausalLM` does."""

    def score(
        self, texts: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> Sequence[Score]:
        """One score a text."""
        ...


@dataclass(frozen=True, slots=True)
class Tables:
    """Scores of some documents.

    Args:
        words: One row a word, in the order of documents and positions; columns `WORDS`: document,
            word (position, i32), start, end (characters, i32), text, pieces (i16), log_p (f32).
        documents: One row a document; columns `DOCUMENTS`: document, date, month (as of `month_of`,
            i32), source, words, pieces, bytes (i32), log_p (over its words, f64), end_log_p (f32,
            null where the model has no end), unknown (pieces, i32).
    """

    words: pl.DataFrame
    documents: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Perplexity of some documents, with intervals over documents.

    Args:
        bin: Span of time, or "all".
        documents: How many.
        words: In all.
        bytes: In all, as UTF-8.
        unknown: Unknown pieces.
        per_word: Perplexity per word.
        bits_per_byte: Bits per byte.
        valid: Whether the probability of every character is known: no unknown piece.
    """

    bin: str
    documents: int
    words: int
    bytes: int
    unknown: int
    per_word: Interval
    bits_per_byte: Interval
    valid: bool


def evaluate(
    model: Scorer,
    documents: Iterable[Document],
    *,
    shard: int = 512,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Tables]:
    """Score documents, shard by shard.

    Args:
        model: Scores each document by itself, so that shards change nothing.
        documents: A stream; one shard is held at a time.
        shard: Documents of a shard.
        progress: Told the number of documents done since it was last called.

    Raises:
        InputError: A word has no place in its text (see `corpus.moses_words`).
    """
    if shard < 1:
        raise InputError(f"is {shard}; it must be at least 1", where="shard")
    stream = iter(documents)
    while some := list(islice(stream, shard)):
        scores = model.score([document.text for document in some], progress)
        yield document_tables(some, scores)


def document_tables(documents: Sequence[Document], scores: Sequence[Score]) -> Tables:
    """The tables of some documents and what a model said of their texts."""
    import polars as pl

    columns: dict[str, list[NDArray[Any]]] = {}
    texts: list[str] = []
    totals = []
    for document, score in zip(documents, scores, strict=True):
        words = moses_words(document.text)
        log_p, pieces, rest = word_log_p(words, score.offsets, score.log_p)
        stored = log_p.astype(np.float32)
        total = float(stored.sum(dtype=np.float64))
        spoken = float(score.log_p.sum(dtype=np.float64))
        close = _CLOSE + 1e-6 * abs(spoken)
        assert abs(total + rest - spoken) <= close, "words and pieces have one sum"
        trailing = rest != 0 or score.end_log_p is not None
        end = (score.end_log_p or 0.0) + rest if trailing else None
        for name, value in {
            "word": np.arange(len(words)),
            "start": np.asarray([word.start for word in words], dtype=np.int64),
            "end": np.asarray([word.end for word in words], dtype=np.int64),
            "pieces": np.minimum(pieces, _MOST_PIECES),
            "log_p": log_p,
        }.items():
            columns.setdefault(name, []).append(value)
        texts += [word.text for word in words]
        size = len(document.text.encode("utf-8", "surrogatepass"))
        totals.append((len(words), len(score.log_p), size, total, end, score.unknown))
    known = pl.Series("document", [document.id for document in documents], dtype=pl.String)
    lengths = [row[0] for row in totals]
    kinds = {"word": pl.Int32, "start": pl.Int32, "end": pl.Int32, "pieces": pl.Int16}
    joined = {
        name: pl.Series(name, np.concatenate(columns.get(name, [np.zeros(0)]))).cast(kind)
        for name, kind in {**kinds, "log_p": pl.Float32}.items()
    }
    words_table = pl.DataFrame(
        {
            "document": known.gather(np.repeat(np.arange(len(documents)), lengths)),
            "text": pl.Series("text", texts, dtype=pl.String),
            **joined,
        }
    ).select(WORDS)
    names = ("words", "pieces", "bytes", "log_p", "end_log_p", "unknown")
    types = (pl.Int32, pl.Int32, pl.Int32, pl.Float64, pl.Float32, pl.Int32)
    documents_table = pl.DataFrame(
        {
            "document": known,
            "date": pl.Series([document.date for document in documents], dtype=pl.String),
            "month": pl.Series([month_of(document.date) for document in documents], dtype=pl.Int32),
            "source": pl.Series([document.source for document in documents], dtype=pl.String),
            **{
                name: pl.Series(name, [row[n] for row in totals], dtype=kind)
                for n, (name, kind) in enumerate(zip(names, types, strict=True))
            },
        }
    ).select(DOCUMENTS)
    return Tables(words_table, documents_table)


def word_log_p(
    words: Sequence[Word], offsets: NDArray[np.integer], log_p: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """Log-probabilities of words from those of pieces.

    Args:
        words: W words of a text, in order.
        offsets: Characters of the pieces, start and end, shape (n, 2).
        log_p: Of the pieces, shape (n,).

    Returns:
        Log-probability of each word, shape (W,); its pieces, shape (W,); and the log-probability
        of the pieces after the last word.
    """
    ends = np.asarray([word.end for word in words], dtype=np.int64)
    # The first word that a piece touches, and for white space the next word: the first to end
    # after the piece begins.
    owner = np.searchsorted(ends, offsets[:, 0], side="right")
    count = len(words)
    sums: NDArray[Any] = np.bincount(owner, weights=log_p.astype(np.float64), minlength=count + 1)
    pieces: NDArray[Any] = np.bincount(owner, minlength=count + 1)
    return sums[:count], pieces[:count], float(sums[count:].sum())


def perplexity(
    documents: pl.DataFrame, *, draws: int = 2000, seed: int = 1, name: str = "all"
) -> Perplexity:
    """Perplexity per word and bits per byte of a documents table, with bootstrap intervals.

    Args:
        documents: Columns as in `Tables.documents`.
        draws: Resamples, of whole documents.
        seed: Of the resamples.
        name: For the `bin` of the result.

    Raises:
        InputError: There is no document, or none with words.
    """
    units = documents.select("log_p", "words", "bytes").to_numpy().astype(np.float64)  # (N, 3)
    sums = units.sum(0)
    if not sums[1]:
        raise InputError("no word was scored; give documents with words", where=name)
    rng = generator("temporal.perplexity", seed, name)
    drawn = resampled_sums(units, draws=draws, rng=rng)  # (draws, 3)
    per_word = interval(_per_word(drawn), float(_per_word(sums)))
    bits = interval(_bits(drawn), float(_bits(sums)))
    unknown = int(documents["unknown"].sum())
    return Perplexity(
        name, len(units), int(sums[1]), int(sums[2]), unknown, per_word, bits, unknown == 0
    )


def perplexity_by_bin(
    documents: pl.DataFrame, kind: Bin = "month", *, draws: int = 2000, seed: int = 1
) -> list[Perplexity]:
    """`perplexity` for each bin that has documents with words, in the order of time."""
    import polars as pl

    names = pl.Series("bin", [bin_of(date, kind) for date in documents["date"]], dtype=pl.String)
    found = []
    for (name,), part in sorted(documents.with_columns(names).group_by("bin")):
        if part["words"].sum():
            found.append(perplexity(part, draws=draws, seed=seed, name=str(name)))
    return found


def _per_word(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found: NDArray[np.float64] = np.exp(-sums[..., 0] / sums[..., 1])
    return found


def _bits(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: NDArray[np.float64] = -sums[..., 0] / (math.log(2) * sums[..., 2])
    return found
