"""The drift report: how fast a model goes stale, since when, when to worry, what to do about it.

All of it reads a curve: months x, 100 · log of the perplexity ratio y, words as weights.

Source: Page, Biometrika 41, 1954 (CUSUM); Davies, Biometrika 74, 1987 (a kink has no ordinary
test, as its place is unknown without it); Lazaridou et al. 2021 for the question.
Choice: the alarm's threshold is simulated for normal months whose mean and spread are estimated
from the reference months alone; so the rate of false alarms counts that estimation, and the events
of single months, and depends on no data. It is the chance of any alarm within the horizon of a
stream that does not drift.
Choice: half-life style: months until the fitted line has risen by 5 %.
Choice: the kink is the best of a grid of quarter months, tested by permuting the straight line's
residuals, with an interval from resampled residuals of the broken line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triaxial.errors import InputError
from triaxial.stats import generator
from triaxial.temporal.resample import LEVEL

__all__ = ["AlarmRule", "Costs", "alarm_rule", "cost_curve", "drift", "kink", "rise_time", "watch"]

Array = npt.NDArray[Any]

RISE = 5.0  # percent
STEP = 0.25  # months between the places tried for a kink
SIMULATIONS = 20_000
ALLOWANCE = 0.5  # Source: the CUSUM that is best against a shift by one standard deviation
REFERENCE = 6  # Choice: months that set the alarm's level
FALSE_ALARMS = 0.05


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """When a stream of months is called drifting.

    Args:
        reference: Months that set mean and spread.
        horizon: Months watched after them.
        threshold: Of the CUSUM, in standard deviations of a month.
        allowance: Subtracted from every month's deviation.
        false_alarms: Chance of an alarm within the horizon where nothing drifts.
    """

    reference: int
    horizon: int
    threshold: float
    allowance: float = ALLOWANCE
    false_alarms: float = FALSE_ALARMS


@dataclass(frozen=True, slots=True)
class Costs:
    """What staleness and its remedies cost, all in one unit of the caller's.

    Args:
        retrain: One retraining.
        percent: A month in which perplexity is 1 % too high.
        adapt: A month of dynamic evaluation.
        horizon: Longest time between retrainings that is looked at, months.
    """

    retrain: float
    percent: float
    adapt: float = 0.0
    horizon: int = 36


def drift(
    curve: Mapping[str, Any],
    *,
    reference: int = REFERENCE,
    false_alarms: float = FALSE_ALARMS,
    seed: int = 1,
) -> dict[str, Any]:
    """The report on one curve.

    Args:
        curve: From `curves.curve`.
        reference: Months (bins) that set the alarm's level.
        false_alarms: Of the alarm.
        seed: Of permutations and simulations.

    Returns:
        `drifts`: `yes` (the slope's headline interval lies above 0), `no` (it does not; a test
        cannot prove more) or `not measured`; `slope`; `rise`: of `rise_time`; `kink`: of `kink`, or
        null with fewer than 6 bins; `alarm`: of `watch` with its rule, or null where fewer than
        `reference` + 1 bins have words.
    """
    rows = [row for row in curve["bins"] if row["words"]]
    found = curve["slope"]
    x, w = (np.asarray([row[k] for row in rows], np.float64) for k in ("x", "words"))
    y = 100 * np.log1p(np.asarray([row["increase"]["value"] for row in rows]) / 100)
    alarm = None
    if len(rows) > reference:
        rule = alarm_rule(reference, len(rows) - reference, false_alarms=false_alarms, seed=seed)
        alarm = watch(rule, y, [row["bin"] for row in rows])
    verdict = "not measured" if found is None else "yes" if found["low"] > 0 else "no"
    return {
        "drifts": verdict,
        "slope": found,
        "rise": rise_time(found),
        "kink": kink(x, y, w, seed=seed) if len(rows) >= 6 else None,
        "alarm": alarm,
    }


def rise_time(slope: Mapping[str, Any] | None, percent: float = RISE) -> dict[str, Any]:
    """Months in which perplexity rises by some percent over the control's, at the fitted slope.

    Returns:
        `percent`, and `value`, `low`, `high` in months; null means that it never does (by that end
        of the slope's interval), or that there is no slope.
    """

    def months(steep: float | None) -> float | None:
        return 100 * math.log1p(percent / 100) / steep if steep and steep > 0 else None

    ends = (
        (None, None, None) if slope is None else tuple(slope[k] for k in ("value", "high", "low"))
    )
    value, low, high = (months(end) for end in ends)
    return {"percent": percent, "value": value, "low": low, "high": high}


def kink(x: Array, y: Array, weights: Array, *, seed: int = 1, draws: int = 999) -> dict[str, Any]:
    """Where a curve bends: the effective cut-off of what a model knows.

    Args:
        x: Months, shape (B,), at least 6, increasing.
        y: Of the curve, shape (B,).
        weights: Words, shape (B,), > 0.
        seed: Of permutations and resamples.
        draws: How many of each.

    Returns:
        `value`, `low`, `high` (months), `before` and `after` (slopes on either side), `p` of a
        straight line, and `supported`: p below 5 %, without which the place means nothing.

    Raises:
        InputError: Fewer than 6 points.
    """
    if len(x) < 6:
        raise InputError(f"a kink in {len(x)} bins; wanted at least 6: use narrower bins")
    root = np.sqrt(weights / weights.mean())[:, None]
    places = np.arange(x[1], x[-2] + STEP / 2, STEP)
    line = np.stack([np.ones_like(x), x], axis=1)
    flat = np.linalg.qr(root * line)[0]
    bases = [np.linalg.qr(root * np.column_stack([line, np.maximum(0, x - k)]))[0] for k in places]

    def rest(target: Array) -> tuple[Array, Array]:
        """Residual sums of the line, (D,), and of each broken line, (places, D)."""
        whole = (target**2).sum(axis=0)
        broken = np.stack([whole - ((q.T @ target) ** 2).sum(axis=0) for q in bases])
        return whole - ((flat.T @ target) ** 2).sum(axis=0), np.maximum(broken, 0)

    target = root * y[:, None]
    straight, broken = rest(target)
    best = int(broken[:, 0].argmin())
    rng = generator(seed, "temporal.kink")
    # Under a straight line, residuals may change places.
    left = target[:, 0] - flat @ (flat.T @ target[:, 0])
    order = rng.permuted(np.tile(np.arange(len(x)), (draws, 1)), axis=1)
    lines, brokens = rest(left[order].T)
    tiny = 1e-12 * max(float((target**2).sum()), 1e-300)
    gains = (lines - brokens.min(axis=0)) / (brokens.min(axis=0) + tiny)
    gain = float((straight[0] - broken[best, 0]) / (broken[best, 0] + tiny))
    p = (1 + int((gains >= gain).sum())) / (draws + 1)
    fitted = bases[best] @ (bases[best].T @ target)
    noise = (target - fitted)[:, 0] * math.sqrt(len(x) / max(1, len(x) - 4))
    again = fitted + noise[rng.integers(0, len(x), (draws, len(x)))].T
    found = places[rest(again)[1].argmin(axis=0)]
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    design = root * np.column_stack([line, np.maximum(0, x - places[best])])
    _, before, bend = np.linalg.lstsq(design, target[:, 0])[0]
    return {
        "value": float(places[best]),
        "low": float(low),
        "high": float(high),
        "before": float(before),
        "after": float(before + bend),
        "p": p,
        "supported": p < 1 - LEVEL,
    }


def alarm_rule(
    reference: int,
    horizon: int,
    *,
    allowance: float = ALLOWANCE,
    false_alarms: float = FALSE_ALARMS,
    seed: int = 1,
) -> AlarmRule:
    """The rule with the wanted rate of false alarms.

    Args:
        reference: Months that set mean and spread, at least 3.
        horizon: Months watched, at least 1.
        allowance: See `AlarmRule`.
        false_alarms: In (0, 1).
        seed: Of the simulation.

    Raises:
        InputError: An argument is out of range.
    """
    if reference < 3 or horizon < 1 or allowance < 0 or not 0 < false_alarms < 1:
        raise InputError(
            f"an alarm with {reference} reference months, {horizon} watched, an allowance of "
            f"{allowance} and {false_alarms} false alarms; wanted at least 3 and 1, 0 or more, and "
            "a share in (0, 1)"
        )
    rng = generator(seed, "temporal.alarm")
    months = rng.standard_normal((SIMULATIONS, reference + horizon))
    peaks = _cusum(months, reference, allowance).max(axis=1)
    return AlarmRule(
        reference, horizon, float(np.quantile(peaks, 1 - false_alarms)), allowance, false_alarms
    )


def watch(rule: AlarmRule, y: Array, labels: Sequence[str]) -> dict[str, Any]:
    """Runs a rule over a stream; only rises are looked for.

    Args:
        rule: The rule.
        y: One value a month, the reference months first, shape (B,); not more than the rule's.
        labels: Their names.

    Returns:
        `reference`, `horizon`, `threshold`, `false_alarms`, `path` (the CUSUM of each month
        watched) and `alarm` (the first month above the threshold, or null).

    Raises:
        InputError: The stream is not longer than the reference, or longer than the rule allows.
    """
    watched = len(y) - rule.reference
    if not 1 <= watched <= rule.horizon or len(labels) != len(y):
        raise InputError(
            f"{len(y)} months with {len(labels)} names for a rule of {rule.reference} reference "
            f"months and {rule.horizon} watched; wanted 1 to {rule.horizon} beyond the reference"
        )
    path = _cusum(np.asarray(y, np.float64)[None], rule.reference, rule.allowance)[0]
    above = np.flatnonzero(path > rule.threshold)
    return {
        "reference": rule.reference,
        "horizon": rule.horizon,
        "threshold": rule.threshold,
        "false_alarms": rule.false_alarms,
        "path": path.tolist(),
        "alarm": labels[rule.reference + int(above[0])] if len(above) else None,
    }


def cost_curve(
    costs: Costs,
    slope: float,
    adapted_slope: float | None = None,
    adapted_level: float = 0.0,
) -> dict[str, Any]:
    """Cost a month by time between retrainings, without and with dynamic evaluation.

    A fresh model is `level` 0; after n months its perplexity is higher by exp(n · slope / 100) - 1.

    Args:
        costs: The caller's figures.
        slope: Percent a month (100 · log); a falling one counts as 0.
        adapted_slope: The same of the adapted model; without it only retraining is looked at.
        adapted_level: 100 · log of adapted over static perplexity when fresh, usually below 0.

    Returns:
        `rows`: `months` between retrainings and the cost a month of `retrain` and `adapt` (null
        where not given); `best`: by remedy the cheapest `months` and `cost`, and `remedy`: which of
        the two is cheaper at its best.

    Raises:
        InputError: A cost is negative or not finite, or the horizon below 1.
    """
    given = (costs.retrain, costs.percent, costs.adapt)
    if costs.horizon < 1 or not all(math.isfinite(c) and c >= 0 for c in given):
        raise InputError(
            f"costs of {given} over {costs.horizon} months; wanted numbers of 0 or more and at "
            "least one month"
        )
    months = np.arange(1, costs.horizon + 1)

    def total(steep: float, level: float, running: float) -> Array:
        percent = 100 * np.expm1((level + max(steep, 0.0) * (months - 1)) / 100)
        mean = np.cumsum(percent) / months  # over the months of one cycle
        found: Array = costs.retrain / months + running + costs.percent * mean
        return found

    paths = {"retrain": total(slope, 0.0, 0.0)}
    if adapted_slope is not None:
        paths["adapt"] = total(adapted_slope, adapted_level, costs.adapt)
    best: dict[str, Any] = {
        name: {"months": int(months[path.argmin()]), "cost": float(path.min())}
        for name, path in paths.items()
    }
    best["remedy"] = min(paths, key=lambda name: float(paths[name].min()))
    rows = [
        {
            "months": int(n),
            "retrain": float(paths["retrain"][n - 1]),
            "adapt": float(paths["adapt"][n - 1]) if "adapt" in paths else None,
        }
        for n in months
    ]
    return {"rows": rows, "best": best}


def _cusum(months: Array, reference: int, allowance: float) -> Array:
    """CUSUM of streams, shape (S, reference + horizon), after the reference: (S, horizon)."""
    base = months[:, :reference]
    centre = base.mean(axis=1, keepdims=True)
    # A stretch without any spread gives an alarm at the first rise, and none without one.
    spread = np.maximum(base.std(axis=1, ddof=1, keepdims=True), 1e-12)
    steps = (months[:, reference:] - centre) / spread - allowance
    path: Array = np.empty_like(steps)
    level = np.zeros(len(months))
    for month in range(steps.shape[1]):
        level = np.maximum(0.0, level + steps[:, month])
        path[:, month] = level
    return path
