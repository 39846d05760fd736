"""Figures with intervals: resampled sums of premise groups and units, and paired differences.

A unit is one fold (test type, solution) and seed. An interval comes from 2,000 resamples of premise
groups, which all units share; with two units or more the units are resampled as well. What is
resampled depends on the number of groups and units alone, so that all runs on the same items see
the same resamples: differences and forgetting are paired by construction.

Letters: N rows, U units, G premise groups, M columns, D draws, K figures.

Source: Holm, Scandinavian Journal of Statistics 6, 1979.
Choice: both levels are resampled, since folds and seeds are few and items recur in them; a family
of Holm's correction is one kind of comparison and one metric; a resample in which a figure has no
items is left out, and an interval needs two groups and half of the resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triaxial.c2gen.metrics import METRICS, Rows, macro_each
from triaxial.stats import at_least_wilson, generator, mcnemar

__all__ = [
    "DRAWS",
    "EMPTY",
    "LEVEL",
    "Cell",
    "Resampler",
    "Statistic",
    "compared",
    "comparison",
    "comparisons",
    "figure",
    "figures",
    "holm",
    "last_stage",
]

Array = npt.NDArray[Any]
Statistic = Callable[[Array, Array], Array]
"""From sums (..., U, M) and weights of the units (..., U) to values (...)."""

DRAWS, LEVEL = 2000, 0.95
_SIDES = ("n", *(f"{side} {metric}" for side in ("new", "base") for metric in METRICS))

EMPTY: dict[str, Any] = dict.fromkeys(("value", "low", "high")) | {
    "n": 0, "folds": 0, "seeds": 0, "std_folds": None, "std_seeds": None,
}  # fmt: skip
"""The figure of nothing."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Counts of some rows, as they are and in every resample.

    Args:
        fold: Code of each unit's (test type, solution), from 0, shape (U,).
        seed: Code of each unit's seed, from 0, shape (U,).
        total: Shape (U, M).
        sums: Shape (D, U, M).
        weights: How often a unit is drawn, shape (D, U).
        n: Rows.
        groups: Premise groups.
    """

    fold: Array
    seed: Array
    total: Array
    sums: Array
    weights: Array
    n: int
    groups: int


class Resampler:
    """Which groups and units each resample holds: the same whatever else is in the table."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.known: dict[tuple[str, int], Array] = {}

    def times(self, what: str, count: int) -> Array:
        """How often each of `count` groups or units is drawn, shape (D, count), float32."""
        key = (what, count)
        if key not in self.known:
            if len(self.known) > 12:  # a table of 2,000 groups takes 16 MiB
                self.known.clear()
            rng = generator("c2gen.bootstrap", self.seed, what, count)
            drawn = rng.integers(0, count, (DRAWS, count)) + np.arange(DRAWS)[:, None] * count
            times = np.bincount(drawn.ravel(), minlength=DRAWS * count)
            self.known[key] = times.reshape(DRAWS, count).astype(np.float32)
        return self.known[key]

    def cell(self, rows: Rows, values: Array, groups: Array) -> Cell:
        """Resampled sums.

        Args:
            rows: Their units and groups.
            values: Whole numbers, shape (N, M).
            groups: Codes of all groups that are drawn from, sorted; a superset of the rows'.
        """
        used, unit = np.unique(rows.unit, return_inverse=True)
        present, group = np.unique(np.searchsorted(groups, rows.group), return_inverse=True)
        wide = values.shape[1]
        totals = np.zeros((len(present), len(used), wide), np.int64)
        np.add.at(totals, (group, unit), values)
        times = self.times("groups", len(groups))
        times = times if len(present) == len(groups) else times[:, present]
        # float32 is exact here: a sum stays far below 2**24.
        sums = times @ totals.reshape(len(present), -1).astype(np.float32)
        units = rows.units[used]
        return Cell(
            np.unique(units[:, :2], axis=0, return_inverse=True)[1].reshape(-1),
            np.unique(units[:, 2], return_inverse=True)[1],
            totals.sum(axis=0),
            sums.reshape(DRAWS, len(used), wide),
            self.times("units", len(used)),
            len(rows.unit),
            len(present),
        )


def figure(
    cell: Cell, statistic: Statistic, *, by_fold: bool = True, share: bool = False
) -> dict[str, Any]:
    """The only one of `figures`, of a statistic without the last axis."""
    wide = figures(cell, lambda sums, weights: statistic(sums, weights)[..., None], by_fold, share)
    return wide[0]


def figures(
    cell: Cell, statistic: Statistic, by_fold: bool = True, share: bool = False
) -> list[dict[str, Any]]:
    """K figures of one statistic (..., K), with null where there is none.

    Args:
        cell: What is counted.
        statistic: Of it.
        by_fold: Whether a spread over folds makes sense.
        share: Whether it is a percentage of rows: its interval is then no narrower than Wilson's
            over premise groups.

    Returns:
        `value`, `low` and `high` in the statistic's unit, `n` rows, `folds`, `seeds`, `std_folds`
        and `std_seeds`: standard deviation over folds (each over its seeds) and over seeds (each
        over its folds), null with a single one; `std_folds` also where `by_fold` is off.
    """
    values = statistic(cell.total, np.ones(len(cell.total)))  # (K,)
    ends = _ends(statistic(cell.sums, cell.weights), cell.groups)
    nothing: list[float | None] = [None] * len(values)
    folds = _spread(cell, statistic, cell.fold) if by_fold else nothing
    seeds = _spread(cell, statistic, cell.seed)
    out = []
    for k, value in enumerate(values.tolist()):
        if math.isnan(value):
            out.append(dict(EMPTY))
            continue
        low, high = ends[k]
        if share and low is not None and high is not None:
            low, high = at_least_wilson(value, low, high, cell.groups)
        counts = {"folds": int(cell.fold.max()) + 1, "seeds": int(cell.seed.max()) + 1}
        out.append(
            {"value": value, "low": low, "high": high, "n": cell.n}
            | counts
            | {"std_folds": folds[k], "std_seeds": seeds[k]}
        )
    return out


def comparisons(runs: Mapping[tuple[str, str], Rows], resampler: Resampler) -> list[dict[str, Any]]:
    """Paired differences on the held-out types after the last stage; see `_pairs`."""
    tested = {key: last_stage(rows.only(part="test")) for key, rows in runs.items()}
    out = []
    for kind, base, new in _pairs(list(runs)):
        found = compared(tested[base], tested[new], resampler)
        out += comparison(kind, base, new, found)
    holm(out)
    return out


def compared(base: Rows, new: Rows, resampler: Resampler) -> dict[str, dict[str, Any]]:
    """Differences new - base by metric on the items that both have; empty where there are none.

    Units match by test type, solution and seed; the solution does not matter where a side has one
    stage, as its training set is the same under both.

    Returns:
        By metric `base_value`, `new_value`, `difference` (a figure), `p` (paired bootstrap,
        two-sided), `p_holm` (null until `holm` fills it) and `mcnemar`: rows that only one side has
        right, with the exact p, which knows nothing of groups and units.
    """
    offline = any((rows.stages == 1).any() for rows in (base, new))
    place = {key: row for row, key in enumerate(_keys(base, offline))}
    found = [(place[key], row) for row, key in enumerate(_keys(new, offline)) if key in place]
    if not found:
        return {}
    old_rows, new_rows = np.asarray(found).T
    wide = 1 + len(METRICS)
    old, now = base.values[old_rows, :wide], new.values[new_rows, :wide]
    rows = new.pick(new_rows)
    cell = resampler.cell(rows, np.column_stack([now, old[:, 1:]]), np.unique(rows.group))
    ones = np.ones(len(cell.total))
    before, after = _side("base"), _side("new")

    def change(sums: Array, weights: Array) -> Array:
        return after(sums, weights) - before(sums, weights)

    samples = change(cell.sums, cell.weights)  # (D, K)
    olds, news = before(cell.total, ones).tolist(), after(cell.total, ones).tolist()
    out = {}
    for k, (metric, found_change) in enumerate(zip(METRICS, figures(cell, change), strict=True)):
        mine = samples[~np.isnan(samples[:, k]), k]
        tails = min(int((mine <= 0).sum()), int((mine >= 0).sum()))
        p = min(1.0, 2 * (tails + 1) / (len(mine) + 1))
        only_base = int((old[:, k + 1] > now[:, k + 1]).sum())
        only_new = int((now[:, k + 1] > old[:, k + 1]).sum())
        out[metric] = {
            "base_value": olds[k],
            "new_value": news[k],
            "difference": found_change,
            "p": None if found_change["low"] is None else p,
            "p_holm": None,
            "mcnemar": {
                "only_base": only_base,
                "only_new": only_new,
                "p": mcnemar(only_base, only_new),
            },
        }
    return out


def comparison(
    kind: str, base: tuple[str, str], new: tuple[str, str], found: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Rows of one comparison, one a metric."""
    sides = {
        name: dict(zip(("stream", "strategy"), key, strict=True))
        for name, key in (("base", base), ("new", new))
    }
    return [{"kind": kind, **sides, "metric": name, **row} for name, row in found.items()]


def holm(rows: Sequence[dict[str, Any]]) -> None:
    """Fills `p_holm` within each family: one kind of comparison, one metric."""
    families: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["p"] is not None:
            families.setdefault((row.get("kind", ""), row.get("metric", "")), []).append(row)
    for family in families.values():
        highest = 0.0
        for rank, row in enumerate(sorted(family, key=lambda row: row["p"])):
            highest = max(highest, min(1.0, (len(family) - rank) * row["p"]))
            row["p_holm"] = highest


def last_stage(rows: Rows) -> Rows:
    """Rows after the last stage of their stream."""
    return rows.pick(rows.stage == rows.stages)


def _pairs(keys: Sequence[tuple[str, str]]) -> list[tuple[str, tuple[str, str], tuple[str, str]]]:
    """(kind, base, new) of every comparison between runs that are there.

    `remedy`: against none; `rival`: er-res against what is no replay; `order`: ver-nat against
    nat-ver; `difficulty`: easy-hard against hard-easy; `offline`: against CGen.
    """
    wanted = []
    for stream, strategy in keys:
        key = (stream, strategy)
        if strategy != "none":
            wanted.append(("remedy", (stream, "none"), key))
        if strategy == "er-res":
            wanted += [
                ("rival", other, key)
                for other in keys
                if other[0] == stream and other[1] != "none" and not other[1].startswith("er-")
            ]
        if stream.split("/")[0] == "ver-nat":
            wanted.append(("order", (stream.replace("ver-nat", "nat-ver", 1), strategy), key))
        if stream.endswith("easy-hard"):
            reverse = stream.removesuffix("easy-hard") + "hard-easy"
            wanted.append(("difficulty", (reverse, strategy), key))
        if stream != "cgen":
            wanted.append(("offline", ("cgen", "none"), key))
    return [row for row in wanted if row[1] in keys]


def _ends(samples: Array, groups: int) -> list[tuple[float | None, float | None]]:
    """Lower and upper end of each column of samples (D, K); see the module's Choice."""
    if groups < 2:
        return [(None, None)] * samples.shape[1]
    marks = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    undefined = np.isnan(samples)
    if not undefined.any():
        low, high = np.quantile(samples, marks, axis=0).tolist()
        return list(zip(low, high, strict=True))
    out: list[tuple[float | None, float | None]] = []
    for column, gone in zip(samples.T, undefined.T, strict=True):
        if 2 * int(gone.sum()) > len(column):
            out.append((None, None))
        else:
            low, high = np.quantile(column[~gone], marks).tolist()
            out.append((low, high))
    return out


def _spread(cell: Cell, statistic: Statistic, part: Array) -> list[float | None]:
    """Standard deviations (K) of the statistic over the parts (folds or seeds) of the units."""
    parts = int(part.max()) + 1
    masks = (part == np.arange(parts)[:, None]).astype(np.float64)  # (parts, U)
    values = statistic(np.broadcast_to(cell.total, (parts, *cell.total.shape)), masks)
    if parts < 2:
        return [None] * values.shape[1]
    return [None if math.isnan(x) else x for x in values.std(axis=0, ddof=1).tolist()]


def _side(side: str) -> Statistic:
    names = tuple(f"{side} {metric}" for metric in METRICS)
    return lambda sums, weights: macro_each(sums, weights, names, _SIDES)


def _keys(rows: Rows, offline: bool) -> list[tuple[Any, ...]]:
    units = rows.units[:, [0, 2]] if offline else rows.units
    names = [tuple(unit) for unit in units.tolist()]
    return [(names[unit], item) for unit, item in zip(rows.unit, rows.words["item"], strict=True)]
