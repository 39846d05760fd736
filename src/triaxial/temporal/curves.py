"""Perplexity by bin, its increase over a control, and how steep that is.

The figure of merit is the relative increase of a model's perplexity over its control's on the same
words; its slope is that of 100 · log(ratio), in percent a month, as the log of a ratio of
perplexities is a mean over words, which adds up. The headline interval and p of a slope come from
the scatter of the bins around the line (the paper's t-test): it holds the events of single months
as well as the sampling of documents. The bootstrap over documents stands beside it; it says what
other documents of the *same* months would have given, and is narrower where months differ.

Letters: B bins, D draws, S sources.

Source: Lazaridou et al. 2021 (relative perplexity increase by month; t-test on slopes).
Choice: least squares weighted by words; the headline as above; bins without words take no part.
Choice: venues are matched by keeping the sources with enough documents in every bin and giving each
bin the same mix of them, their mix over all bins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triaxial.errors import InputError
from triaxial.stats import slope
from triaxial.temporal.resample import (
    EMPTY,
    LEVEL,
    Bins,
    Ledger,
    Resampler,
    figure,
    ledger_of,
    perplexity,
)
from triaxial.temporal.words import Scored

__all__ = [
    "bits_per_byte",
    "curve",
    "increase",
    "matched_trend",
    "overall",
    "slope_difference",
    "trend",
]

Array = npt.NDArray[Any]

LEAST = 5  # Choice: documents of a source in every bin, for its bins to be compared


def overall(ledger: Ledger, name: str, control: str) -> dict[str, Any]:
    """Perplexities of a model and its control over the whole test, and their difference.

    Returns:
        `perplexity`, `control`, `delta` (their difference), `percent` (relative increase) and
        `log_ratio` (nats a word), each with `value`, `low`, `high`; `n`, words.
    """
    whole = ledger.whole()
    ours, theirs = (_perplexities(whole, one) for one in (name, control))
    ratio, ratios = whole.log_ratio(name, control)
    return {
        "perplexity": figure(ours[0][0], ours[1][:, 0]),
        "control": figure(theirs[0][0], theirs[1][:, 0]),
        "delta": figure(ours[0][0] - theirs[0][0], (ours[1] - theirs[1])[:, 0]),
        "percent": increase(ratio[0], ratios[:, 0]),
        "log_ratio": figure(ratio[0], ratios[:, 0]),
        "n": int(whole.total[0, :, 0].sum()),
    }


def bits_per_byte(
    scored: Scored, ledger: Ledger, name: str, resampler: Resampler
) -> tuple[dict[str, float | None], list[float | None]]:
    """Bits per byte of text of the whole test with interval, and by bin (null where empty).

    The resampler is the ledger's, so that bytes and probabilities are of the same draws.
    """
    size = scored.documents["bytes"].to_numpy().astype(np.float64)[:, None]
    bins = ledger.bins
    total, samples = resampler.sums(size, bins.of, len(bins.labels))
    at = ledger.values.index(name)
    sums, drawn = ledger.pooled()

    def bits(log_p: Array, length: Array) -> Array:
        out = np.full(np.shape(log_p), np.nan)
        found: Array = np.divide(-log_p, np.log(2) * length, out=out, where=length > 0)
        return found

    by_bin = bits(sums[:, at], total[:, 0])
    value = bits(sums[:, at].sum(), total.sum())
    spread = bits(drawn[..., at].sum(axis=1), samples[..., 0].sum(axis=1))
    return figure(float(value), spread), [float(v) if np.isfinite(v) else None for v in by_bin]


def curve(ledger: Ledger, name: str, control: str, *cells: str) -> dict[str, Any]:
    """A model's perplexity and its increase over the control, bin by bin.

    Args:
        ledger: With both models.
        name: The model.
        control: The control.
        cells: Restricts the words to some cells.

    Returns:
        `bins`: a row a bin, in order: `bin`, `x` (months from the origin), `documents`, `words`,
        `perplexity`, `control`, `increase` (percent; `value`, `low`, `high`); an empty bin has
        nulls. `slope`: of `trend`, or null.
    """
    bins = ledger.bins
    ratio, ratios = ledger.log_ratio(name, control, *cells)
    words = ledger.pooled(*cells)[0][:, 0]
    ours, theirs = (_perplexities(ledger, one, *cells)[0] for one in (name, control))
    rows = []
    for b, label in enumerate(bins.labels):
        row: dict[str, Any] = {"bin": label, "documents": int(bins.documents[b])}
        row |= {"words": int(words[b]), "x": _number(bins.x[b])}
        row |= {"perplexity": _number(ours[b]), "control": _number(theirs[b])}
        rows.append(row | {"increase": increase(ratio[b], ratios[:, b])})
    return {"bins": rows, "slope": trend(bins.x, ratio, words, ratios)}


def slope_difference(
    ledger: Ledger, first: tuple[str, str], second: tuple[str, str]
) -> dict[str, Any] | None:
    """Slope of the first model's increase less the second's, on the same bins.

    Args:
        ledger: With all of them.
        first: A model and its control.
        second: Another; the control may be the same.

    Returns:
        As of `trend`; the test is paired by bin. Null with fewer than three bins.
    """
    (one, ones), (two, twos) = (ledger.log_ratio(*pair) for pair in (first, second))
    words = ledger.pooled()[0][:, 0]
    return trend(ledger.bins.x, one - two, words, ones - twos)


def trend(x: Array, y: Array, weights: Array, samples: Array) -> dict[str, Any] | None:
    """The slope of 100 · y over months, with both intervals.

    Args:
        x: Months, shape (B,).
        y: Nats a word, shape (B,); NaN where there is none.
        weights: Words, shape (B,); 0 leaves a bin out.
        samples: y on resampled documents, shape (D, B).

    Returns:
        `value`, `low`, `high` (headline: t-interval of the weighted line, percent a month),
        `standard_error`, `p`, `at_zero` (percent at x = 0), `bins` used, and `documents`: the
        interval of the bootstrap over documents. Null with fewer than three bins.
    """
    from scipy.special import stdtrit

    used = (weights > 0) & np.isfinite(y)
    if used.sum() < 3:
        return None
    w, months = weights[used].astype(np.float64), x[used]
    line = slope(months, y[used], w)
    half = float(stdtrit(line.points - 2, (1 + LEVEL) / 2)) * line.standard_error
    away = w * (months - np.average(months, weights=w))
    drawn = samples[:, used] @ (away / float((away * months).sum()))
    return {
        "value": 100 * line.slope,
        "low": 100 * (line.slope - half),
        "high": 100 * (line.slope + half),
        "standard_error": 100 * line.standard_error,
        "p": line.p,
        "at_zero": 100 * line.intercept,
        "bins": line.points,
        "documents": figure(100 * line.slope, 100 * drawn),
    }


def matched_trend(
    scored: Scored, bins: Bins, name: str, control: str, *, least: int = LEAST, seed: int = 1
) -> dict[str, Any]:
    """The slope where every bin has the same sources in the same shares.

    Args:
        scored: The test set.
        bins: Its bins.
        name: The model.
        control: Its control.
        least: Documents that a source needs in every bin that is not empty.
        seed: Of the resamples, which are drawn within bin and source.

    Returns:
        `sources` that took part, `share` of the words that they hold, `slope` of `trend` and
        `bins` (rows of `bin` and `increase` in percent; null where empty).

    Raises:
        InputError: `least` is below 1.
    """
    if least < 1:
        raise InputError(f"{least} documents of a source in every bin; wanted at least 1")
    names, source = np.unique(scored.documents["source"].to_numpy(), return_inverse=True)
    wide, high = len(names), len(bins.labels)
    cell = bins.of * wide + source
    count = np.bincount(cell, minlength=high * wide).reshape(high, wide)
    full = np.flatnonzero((count[bins.documents > 0] >= least).all(axis=0))
    if not len(full):
        return {"sources": [], "share": 0.0, "slope": None, "bins": []}
    # One group of documents for each bin and source; a document's words are one cell.
    of = np.where(np.isin(source, full), bins.of * len(full) + np.searchsorted(full, source), -1)
    groups = Bins(
        bins.kind,
        tuple(f"{label} {names[s]}" for label in bins.labels for s in full),
        of,
        np.repeat(bins.x, len(full)),
        np.bincount(of[of >= 0], minlength=high * len(full)),
        bins.words,
        bins.origin,
    )
    values = {one: scored.log_p(one) for one in (name, control)}
    ledger = ledger_of(scored, groups, Resampler(cell, seed), values)
    ratio, ratios = ledger.log_ratio(name, control)
    words = ledger.pooled()[0][:, 0].reshape(high, len(full))
    mix = words.sum(axis=0) / words.sum()
    y = ratio.reshape(high, len(full)) @ mix
    drawn = ratios.reshape(-1, high, len(full)) @ mix
    return {
        "sources": [str(names[s]) for s in full],
        "share": float(words.sum() / bins.words.sum()),
        "slope": trend(bins.x, y, words.sum(axis=1), drawn),
        "bins": [
            {"bin": label, "increase": increase(y[b], drawn[:, b])}
            for b, label in enumerate(bins.labels)
        ],
    }


def increase(ratio: float, ratios: Array) -> dict[str, float | None]:
    """A log ratio of perplexities as a relative increase, in percent."""
    found = figure(ratio, ratios)
    if found["value"] is None:
        return dict(EMPTY)
    # The bootstrap's percentiles pass through any increasing function.
    return {k: None if v is None else 100 * float(np.expm1(v)) for k, v in found.items()}


def _perplexities(ledger: Ledger, name: str, *cells: str) -> tuple[Array, Array]:
    at = ledger.values.index(name)
    total, samples = ledger.pooled(*cells)
    return (
        perplexity(total[..., at], total[..., 0]),
        perplexity(samples[..., at], samples[..., 0]),
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
