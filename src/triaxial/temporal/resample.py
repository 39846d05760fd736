"""Sums over resampled documents, by bin and cell of words: what every interval here is made from.

A document is drawn with all its words. Words are summed once, by document and cell (a tag, a topic,
new or known, …); each resample is then a matrix product, so that a figure of any kind costs no
further pass over the words, and all figures of a summary share the same resamples.

Letters: N documents, B bins, C cells, V values (the count of words first), D draws.

Choice: documents are drawn within their month, as the test set is built month by month; so no month
is ever empty in a resample. A month with one document has no spread of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triaxial.stats import generator
from triaxial.temporal.corpus import Bin, bin_of, month_name
from triaxial.temporal.words import Scored

__all__ = [
    "DRAWS",
    "EMPTY",
    "LEVEL",
    "Bins",
    "Ledger",
    "Resampler",
    "bins_of",
    "figure",
    "ledger_of",
    "perplexity",
]

Array = npt.NDArray[Any]

DRAWS = 1000
LEVEL = 0.95
EMPTY: Mapping[str, None] = {"value": None, "low": None, "high": None}
CHUNK = 1 << 22  # resampled indices held at a time: 32 MiB
HELD = 1 << 28  # weights of one byte that are kept rather than drawn again


@dataclass(frozen=True, slots=True)
class Bins:
    """Spans of time from the first to the last month of the test, the empty ones among them.

    Args:
        kind: Of `corpus.Bin`.
        labels: Their names, in order.
        of: Bin of every document, shape (N,).
        x: Mean month of a bin's words, counted from the origin, shape (B,); NaN where empty.
        documents: Shape (B,).
        words: Shape (B,).
        origin: Month number of x = 0.
    """

    kind: Bin
    labels: tuple[str, ...]
    of: Array
    x: Array
    documents: Array
    words: Array
    origin: int


def bins_of(scored: Scored, kind: Bin = "month", origin: int | None = None) -> Bins:
    """The bins of a test set.

    Args:
        scored: The test set.
        kind: Width of a bin.
        origin: Month that counts as 0, such as the last month of training; by default the first
            month of the test.
    """
    months = scored.months
    first, last = int(months.min()), int(months.max())
    names = [bin_of(month_name(month), kind) for month in range(first, last + 1)]
    labels = tuple(dict.fromkeys(names))
    place = np.asarray([labels.index(name) for name in names])
    of = place[months - first]
    start = first if origin is None else origin
    count = scored.documents["words"].to_numpy().astype(np.float64)
    words = np.bincount(of, weights=count, minlength=len(labels))
    moved = np.bincount(of, weights=count * (months - start), minlength=len(labels))
    x = np.divide(moved, words, out=np.full(len(labels), math.nan), where=words > 0)
    documents = np.bincount(of, minlength=len(labels))
    return Bins(kind, labels, of, x, documents, words, start)


class Resampler:
    """Draws documents within strata, the same ones at every call.

    Args:
        strata: Stratum of every document, shape (N,); the numbers mean nothing.
        seed: Of the draws.
        draws: D; `DRAWS` by default.
    """

    def __init__(self, strata: Array, seed: int, draws: int | None = None) -> None:
        _, codes = np.unique(strata, return_inverse=True)
        self.count = len(codes)
        self.draws = DRAWS if draws is None else draws
        self._seed = seed
        order = np.argsort(codes, kind="stable")
        self._strata = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
        self._kept: list[Array] | None = None

    def sums(self, units: Array, group: Array, groups: int) -> tuple[Array, Array]:
        """Sums by group of documents, over all and over resamples.

        Args:
            units: Shape (N, ...).
            group: Shape (N,), 0..groups - 1; -1 leaves a document out.
            groups: How many.

        Returns:
            Shapes (groups, ...) and (D, groups, ...).
        """
        flat = units.reshape(self.count, -1).astype(np.float64)
        places = [np.flatnonzero(group == g) for g in range(groups)]
        total = np.stack([flat[place].sum(axis=0) for place in places])
        samples = np.zeros((self.draws, groups, flat.shape[1]))
        at = 0
        for weights in self._weights():
            for g, place in enumerate(places):
                if len(place):
                    samples[at : at + len(weights), g] = (
                        weights[:, place].astype(np.float64) @ flat[place]
                    )
            at += len(weights)
        shape = units.shape[1:]
        return total.reshape(groups, *shape), samples.reshape(self.draws, groups, *shape)

    def _weights(self) -> Iterator[Array]:
        """How often each document is drawn, in chunks of shape (some draws, N), uint8."""
        if self._kept is None and self.draws * self.count <= HELD:
            self._kept = list(self._drawn())
        yield from self._kept if self._kept is not None else self._drawn()

    def _drawn(self) -> Iterator[Array]:
        rng = generator(self._seed, "temporal.documents")
        step = max(1, CHUNK // self.count)
        for start in range(0, self.draws, step):
            size = min(step, self.draws - start)
            weights = np.empty((size, self.count), np.uint8)
            for stratum in self._strata:
                n = len(stratum)
                drawn = rng.integers(0, n, (size, n)) + np.arange(size)[:, None] * n
                times = np.bincount(drawn.ravel(), minlength=size * n)
                assert times.max() < 256, "a document is hardly ever drawn so often"
                weights[:, stratum] = times.reshape(size, n)
            yield weights


@dataclass(frozen=True, slots=True)
class Ledger:
    """Sums over words by bin and cell, and the same over resamples.

    Args:
        bins: The bins.
        cells: Names of the cells.
        values: Names of the values; "words" is the first.
        total: Shape (B, C, V).
        samples: Shape (D, B, C, V).
    """

    bins: Bins
    cells: tuple[str, ...]
    values: tuple[str, ...]
    total: Array
    samples: Array

    def whole(self) -> Ledger:
        """The same with all bins in one."""
        return Ledger(
            self.bins,
            self.cells,
            self.values,
            self.total.sum(axis=0, keepdims=True),
            self.samples.sum(axis=1, keepdims=True),
        )

    def pooled(self, *cells: str) -> tuple[Array, Array]:
        """Sums over some cells (all where none is named): shapes (B, V) and (D, B, V)."""
        at = [self.cells.index(cell) for cell in cells] or list(range(len(self.cells)))
        return self.total[:, at].sum(axis=1), self.samples[:, :, at].sum(axis=2)

    def mean(self, value: str, *cells: str, less: str = "") -> tuple[Array, Array]:
        """Mean per word of a value (less another): shapes (B,) and (D, B); NaN without words."""
        at = self.values.index(value)

        def of(sums: Array) -> Array:
            found = sums[..., at] - (sums[..., self.values.index(less)] if less else 0.0)
            return _ratio(found, sums[..., 0])

        total, samples = self.pooled(*cells)
        return of(total), of(samples)

    def log_ratio(self, name: str, control: str, *cells: str) -> tuple[Array, Array]:
        """log(perplexity of name / perplexity of control): shapes (B,) and (D, B)."""
        return self.mean(control, *cells, less=name)


def ledger_of(
    scored: Scored,
    bins: Bins,
    resampler: Resampler,
    values: Mapping[str, Array],
    codes: Array | None = None,
    cells: Sequence[str] = ("all",),
) -> Ledger:
    """Sums of per-word values by document's bin and word's cell.

    Args:
        scored: The test set.
        bins: Of its documents.
        resampler: Of its documents.
        values: By name, shape (words,) each; log-probabilities stand under their model's name.
        codes: Cell of every word, shape (words,); -1 leaves a word out. One cell by default.
        cells: Names of the cells.
    """
    doc = scored.doc.astype(np.int64)
    count, wide = len(scored.documents), len(cells)
    key = doc if codes is None else doc * wide + codes
    keep = None if codes is None or (codes >= 0).all() else codes >= 0
    key = key if keep is None else key[keep]
    # bincount adds in the order of rows, which is fixed: the same digits at every run.
    found: list[Array] = [np.bincount(key, minlength=count * wide).astype(np.float64)]
    for value in values.values():
        chosen = value if keep is None else value[keep]
        found.append(np.bincount(key, weights=chosen, minlength=count * wide))
    units = np.stack(found, axis=-1).reshape(count, wide, len(found))
    total, samples = resampler.sums(units, bins.of, len(bins.labels))
    return Ledger(bins, tuple(cells), ("words", *values), total, samples)


def figure(value: float, samples: Array) -> dict[str, float | None]:
    """A value with its percentile interval; null where undefined, no interval where some draw is.

    Args:
        value: On all documents.
        samples: On the resamples, shape (D,).
    """
    if not math.isfinite(value):
        return dict(EMPTY)
    if not np.isfinite(samples).all():
        return {"value": float(value), "low": None, "high": None}
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": float(value), "low": float(low), "high": float(high)}


def perplexity(log_p: Array, words: Array) -> Array:
    """exp(-sum of log p / words), NaN without words."""
    with np.errstate(over="ignore"):
        found: Array = np.exp(-_ratio(log_p, words))
    return found


def _ratio(above: Array, below: Array) -> Array:
    out = np.full(np.broadcast_shapes(np.shape(above), np.shape(below)), math.nan)
    found: Array = np.divide(above, below, out=out, where=np.asarray(below) > 0)
    return found
