"""How sure a figure is: bootstrap intervals, McNemar's test, slopes, and seeded generators.

All functions see arrays of per-unit statistics, never models or texts. A figure is a function of
*sums* over units (a mean is sum / count, the count being a column of its own), which makes the
three kinds of bootstrap one: plain; clustered, where the units of a cluster are drawn together;
and paired, where both systems' columns stand in one row and the statistic is their difference.

Letters: N units, M columns, C clusters, D draws. scipy is imported when a distribution is needed.

Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993 (percentile interval);
McNemar, Psychometrika 12, 1947 (exact form); Wilson, JASA 22, 1927 (interval of a share).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError

__all__ = [
    "Interval",
    "Slope",
    "at_least_wilson",
    "bootstrap",
    "generator",
    "interval",
    "intervals",
    "mcnemar",
    "resampled_sums",
    "slope",
    "smallest_difference",
    "wilson",
]

CHUNK = 1 << 22  # resampled indices held at a time: 32 MiB
EXACT = 2**53  # integers below it are exact as float64

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its interval, in the figure's own unit; `level` is the coverage, 0..1."""

    value: float
    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True, slots=True)
class Slope:
    """A least-squares line: y per x, y at x = 0, standard error and two-sided p of the slope."""

    slope: float
    intercept: float
    standard_error: float
    p: float
    points: int


def bootstrap(
    units: Array,
    statistic: Callable[[Array], Any],
    *,
    clusters: Array | None = None,
    draws: int = 2000,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Interval:
    """The percentile bootstrap interval of a statistic of sums.

    Args:
        units: Per-unit statistics, shape (N, M); bool and integers are summed exactly.
        statistic: From sums of shape (..., M) to values of shape (...).
        clusters: Cluster of every unit, shape (N,), ints; whole clusters are drawn.
        draws: How many resamples.
        rng: From `generator`.
        level: Coverage, in (0, 1).

    Raises:
        InputError: No units, or the statistic is undefined in a resample.
    """
    samples = statistic(resampled_sums(units, clusters=clusters, draws=draws, rng=rng))
    return interval(np.asarray(samples), float(statistic(_summable(units).sum(axis=0))), level)


def resampled_sums(
    units: Array, *, clusters: Array | None = None, draws: int, rng: np.random.Generator
) -> Array:
    """Sums over resamples of as many clusters (by default: units) as there are, with replacement.

    Args:
        units: Shape (N, M).
        clusters: Shape (N,), ints; the numbers mean nothing, the order of the rows neither.
        draws: D.
        rng: Consumed alike whatever the size of the chunks.

    Returns:
        Shape (D, M): int64 and exact for bool and integer units, float64 otherwise.

    Raises:
        InputError: No units.
    """
    values = _summable(units)
    if clusters is not None:
        if np.shape(clusters) != (len(values),):
            raise ValueError(f"clusters of shape {np.shape(clusters)} for {len(values)} units")
        labels, where = np.unique(clusters, return_inverse=True)
        totals = np.zeros((len(labels), values.shape[1]), values.dtype)
        np.add.at(totals, where, values)
        values = totals  # (C, M)
    count = len(values)
    whole = values.dtype == np.int64
    if whole:
        bound = count * int(np.abs(values).max(initial=0))
        if bound >= 2**63:
            raise ValueError("sums of the units would not fit into 64 bits")
        # As floats where every partial sum is exact: BLAS instead of numpy's integer loop.
        values = values.astype(np.float64) if bound < EXACT else values
    sums = np.empty((draws, values.shape[1]), values.dtype)
    step = max(1, CHUNK // count)
    for start in range(0, draws, step):
        size = min(step, draws - start)
        drawn = rng.integers(0, count, (size, count))  # (size, C)
        drawn += np.arange(size)[:, None] * count  # one histogram for the whole chunk
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        sums[start : start + size] = times.astype(values.dtype) @ values
    return sums.astype(np.int64) if whole else sums


def interval(samples: Array, value: float, level: float = 0.95) -> Interval:
    """The percentile interval of bootstrap samples, shape (D,), around the value on all units.

    Raises:
        InputError: A sample is NaN or infinite: the statistic is undefined in that resample.
    """
    (found,) = intervals(np.asarray(samples)[:, None], [value], level)
    return found


def intervals(
    samples: Array, values: Sequence[float] | Array, level: float = 0.95
) -> list[Interval]:
    """Percentile intervals of several statistics at once.

    Args:
        samples: Shape (D, M).
        values: On all units, shape (M,).
        level: Coverage, in (0, 1).

    Raises:
        InputError: A sample is NaN or infinite: the statistic is undefined in that resample.
    """
    if not 0 < level < 1:
        raise InputError(f"a level of {level}; wanted a share in (0, 1), such as 0.95")
    bad = int((~np.isfinite(samples)).sum()) + int((~np.isfinite(values)).sum())
    if bad:
        raise InputError(
            f"the statistic is undefined on {bad} of {samples.size + len(values)} samples; wanted "
            "a number on each: use more units, or leave out groups too small to be drawn every time"
        )
    lows, highs = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return [
        Interval(float(value), float(low), float(high), level)
        for value, low, high in zip(values, lows, highs, strict=True)
    ]


def wilson(share: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's score interval of a share, which holds where few units are all right or all wrong.

    >>> round(wilson(1.0, 4).low, 3)
    0.51

    Args:
        share: In [0, 1].
        n: Independent units behind it, > 0.
        level: Coverage, in (0, 1).
    """
    if not 0 <= share <= 1 or n <= 0:
        raise InputError(f"a share of {share} of {n} units; wanted 0 to 1 of more than none")
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    low, high = (0.0 if share == 0 else middle - half), (1.0 if share == 1 else middle + half)
    return Interval(share, low, high, level)


def at_least_wilson(percent: float, low: float, high: float, units: float) -> tuple[float, float]:
    """The ends of a bootstrap interval of a percentage, no narrower than Wilson's.

    Near 0 and 100 %, and with few units, resamples agree more than the data warrant; at the bounds
    all of them do. What both say is kept in one interval, so that it has one rule everywhere.

    >>> [round(end, 1) for end in at_least_wilson(100.0, 100.0, 100.0, 20)]
    [83.9, 100.0]

    Args:
        percent: The figure, 0 to 100.
        low: Lower end of the bootstrap.
        high: Upper end.
        units: Independent units behind it: premises, not variants.
    """
    wide = wilson(min(max(percent / 100, 0.0), 1.0), units)
    return min(low, 100 * wide.low), max(high, 100 * wide.high)


def mcnemar(only_old: int, only_new: int) -> float:
    """Exact two-sided p of McNemar's test: do two systems err equally often on the same units?

    Args:
        only_old: Units that only the old system has right, >= 0.
        only_new: Units that only the new system has right, >= 0.
    """
    from scipy.special import betainc

    if only_old < 0 or only_new < 0:
        raise ValueError(f"counts are >= 0, got {only_old} and {only_new}")
    if only_old == only_new:
        return 1.0
    few, all_ = min(only_old, only_new), only_old + only_new
    # P(X <= few) of a fair binomial is a regularized incomplete beta function.
    return min(1.0, 2 * float(betainc(all_ - few, few + 1, 0.5)))


def slope(x: Array, y: Array, weights: Array | None = None) -> Slope:
    """Least-squares line through points, with the slope's standard error and two-sided p.

    Args:
        x: Shape (N,).
        y: Shape (N,).
        weights: Inverse variances up to a common factor, shape (N,), >= 0; 0 leaves a
            point out.

    Raises:
        InputError: Fewer than three points, or all at one x.
    """
    from scipy.special import stdtr

    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    w = np.ones_like(xs) if weights is None else np.asarray(weights, np.float64)
    if not (np.isfinite(xs).all() and np.isfinite(ys).all() and (w >= 0).all()):
        raise ValueError("points are finite and weights >= 0")
    points = int((w > 0).sum())
    if points < 3 or np.ptp(xs[w > 0]) == 0:
        raise InputError(
            f"a slope through {points} points at {len(set(xs[w > 0]))} places; wanted at least 3 "
            "points at 2 places: measure at more of them"
        )
    dx = xs - np.average(xs, weights=w)
    dy = ys - np.average(ys, weights=w)
    spread = float((w * dx**2).sum())
    steep = float((w * dx * dy).sum()) / spread
    rest = float((w * (dy - steep * dx) ** 2).sum()) / (points - 2)
    error = math.sqrt(rest / spread)
    intercept = float(np.average(ys, weights=w) - steep * np.average(xs, weights=w))
    if error == 0:  # all points on the line
        return Slope(steep, intercept, 0.0, 1.0 if steep == 0 else 0.0, points)
    return Slope(steep, intercept, error, 2 * float(stdtr(points - 2, -abs(steep / error))), points)


def smallest_difference(standard_error: float, level: float = 0.95, power: float = 0.8) -> float:
    """The smallest true difference that a two-sided test of this level finds with this power.

    Args:
        standard_error: Of the estimated difference, in its unit.
        level: 1 - the share of false alarms.
        power: Share of true differences of that size that are found.
    """
    from scipy.special import ndtri

    return float(ndtri(1 - (1 - level) / 2) + ndtri(power)) * standard_error


def generator(*parts: str | int) -> np.random.Generator:
    """A generator for one purpose, such as `generator(seed, "merge.draws", seed_id, draw)`.

    The same parts give the same stream in every process and on every platform; 1 and "1" differ.
    """
    text = json.dumps(parts, separators=(",", ":"))
    seed = hashlib.blake2b(text.encode("ascii"), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(seed, "big")))


def _summable(units: Array) -> Array:
    """Units as int64 or float64, shape (N, M), N >= 1."""
    values = np.asarray(units)
    if values.ndim != 2:
        raise ValueError(f"units of shape {values.shape}, wanted (N, M)")
    if not len(values):
        raise InputError("no units to resample; wanted at least one")
    return values.astype(np.int64 if values.dtype.kind in "biu" else np.float64)
