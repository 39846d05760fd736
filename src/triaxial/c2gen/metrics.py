"""Accuracies, forgetting, quadrants and trivial baselines of the composition axis, in percent.

Everything is read off the saved prediction table: one row per unit (fold and seed), stage and
evaluated item, with the log-probabilities of the three heads. Counts are whole numbers; a figure is
the mean over units of one ratio of counts, so that every fold weighs alike. Without items there is
no figure: `None`, never NaN.

Letters: N rows, U units, M columns of `COLUMNS`, S stages, L stages in which a type was learned,
K figures.

Source: Fu and Frank, TACL 12, 2024, pp. 912-932 (V, N, V+N, CI; forgetting as the relative loss);
Chaudhry et al., ECCV 2018 (`max_minus_last`); Lopez-Paz and Ranzato, NeurIPS 2017 (`bwt`).
Choice: macro over units; macro-F1 on the confusion counts of all units, since one fold holds one
type, hence one gold label; forgetting is computed on the means over units, as the paper's figures
are, and on what was learned in the first stage (on the held-out type: on all of it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from triaxial.c2gen.verbs import FUNCTIONS, TYPES, composed_label
from triaxial.errors import InputError
from triaxial.nli import LABELS

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "COLUMNS",
    "CONFUSION",
    "CONSTANTS",
    "FORGETTING",
    "METRICS",
    "PARTS",
    "Rows",
    "Target",
    "accuracies",
    "accuracy_matrix",
    "baselines",
    "forgetting",
    "forgetting_of",
    "learned_matrix",
    "macro",
    "macro_each",
    "macro_f1",
    "quadrants",
    "rows_of",
    "slices_of",
]

Array = npt.NDArray[Any]
Target = Literal["paper", "sound"]
Matrix = Mapping[int, Mapping[int, float | None]]

PARTS = ("test", "probe", "unseen")
METRICS = ("V", "N", "V+N", "CI")
FORGETTING = ("forget", "max_minus_last", "bwt")
COLUMNS = (
    *("n", *METRICS, "oracle", "V+N and CI", "V-only", "N-only"),
    *(f"{gold}→{said}" for gold in range(3) for said in range(3)),
)
"""What is counted of a row: itself, what is right in it, and its cell of the confusion matrix."""

CONFUSION = COLUMNS[-9:]
CONSTANTS = {label.value: CONFUSION[3 * n : 3 * n + 3] for n, label in enumerate(LABELS)}
"""Columns whose sum is what a constant answer has right."""

_RULE = np.asarray([[LABELS.index(composed_label(v, n)) for n in LABELS] for v in LABELS])
_HEADS = tuple(tuple(f"{head}{n}" for n in range(3)) for head in "vnc")
_WORDS = ("stream", "strategy", "stage_name", "item", "part", "group")
_NUMBERS = ("test_type", "solution", "seed", "stage", "stages", "type", "learned")
_GOLD = ("gold_v", "gold_n", "gold", "sound")
_KEY = ("stream", "strategy", "test_type", "solution", "seed", "stage", "part", "item")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a prediction table as arrays.

    Args:
        units: (test type, solution, seed) of the whole table, shape (U, 3).
        unit: Index into `units`, shape (N,).
        group: Code of the premise group, in the order of the names, shape (N,).
        words: `stream`, `strategy`, `stage_name`, `item` and `part`, shape (N,) each.
        stage: Shape (N,), 1-based.
        stages: How many stages the row's stream has, shape (N,).
        type: Shape (N,), 1..9.
        learned: Stage in which the type was trained first, 0 = never, shape (N,).
        values: Whole numbers in the order of `COLUMNS`, shape (N, M).
    """

    units: Array
    unit: Array
    group: Array
    words: Mapping[str, Array]
    stage: Array
    stages: Array
    type: Array
    learned: Array
    values: Array

    def pick(self, mask: Array) -> Rows:
        """The rows of a mask or of indices."""
        return Rows(
            self.units,
            self.unit[mask],
            self.group[mask],
            {name: column[mask] for name, column in self.words.items()},
            self.stage[mask],
            self.stages[mask],
            self.type[mask],
            self.learned[mask],
            self.values[mask],
        )

    def only(self, **wanted: object) -> Rows:
        """The rows with these values, such as `only(stream="cgen", part="test", stage=1)`."""
        mask = np.ones(len(self.unit), dtype=bool)
        for name, value in wanted.items():
            mask &= (self.words[name] if name in self.words else getattr(self, name)) == value
        return self.pick(mask)

    def totals(self) -> Array:
        """Sums by unit, shape (U, M)."""
        out = np.zeros((len(self.units), self.values.shape[1]), np.int64)
        np.add.at(out, self.unit, self.values)
        return out


def rows_of(table: pl.DataFrame, *, target: Target = "paper", where: str = "predictions") -> Rows:
    """Reads and checks a prediction table.

    Args:
        table: See the module docstring.
        target: Gold label of the composed pair: the `paper`'s, or the `sound` one.
        where: The table's name in errors.

    Raises:
        InputError: Columns are missing, rows repeat, or values are out of range.
    """
    if target not in ("paper", "sound"):
        raise InputError(f"target {target!r}; wanted 'paper' or 'sound'", where=where)
    heads = [name for head in _HEADS for name in head]
    wanted = [*_WORDS, *_NUMBERS, *_GOLD, *heads]
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise InputError(
            f"columns {', '.join(missing)} are missing; wanted {', '.join(wanted)}: predict again",
            where=where,
        )
    holes = [name for name in wanted if table[name].null_count()]
    if holes:
        raise InputError(f"empty cells in {', '.join(holes)}; predict again", where=where)
    twice = len(table) - table.select(_KEY).n_unique()
    if twice:
        raise InputError(
            f"{twice} rows repeat an item of the same unit, stage and part; wanted one each: "
            "concatenate each shard once",
            where=where,
        )
    numbers = {name: table[name].to_numpy().astype(np.int64) for name in (*_NUMBERS, *_GOLD)}
    limits = {**dict.fromkeys(_GOLD, (0, 2)), "type": (1, 9), "stage": (1, None)}
    for name, (least, most) in limits.items():
        bad = (numbers[name] < least) | (numbers[name] > (most or numbers[name]))
        if bad.any():
            row = int(np.argmax(bad))
            wish = f"{least}..{most}" if most else f">= {least}"
            raise InputError(
                f"{name} {numbers[name][row]}; wanted {wish}: predict again",
                where=f"{where}:{row + 1}",
            )
    said = []
    for head in _HEADS:
        scores = np.stack([table[name].to_numpy() for name in head], axis=1)  # (N, 3)
        if np.isnan(scores).any():
            row = int(np.argmax(np.isnan(scores).any(axis=1)))
            raise InputError(
                f"{head[0][0]} holds NaN; wanted log-probabilities: train with a smaller "
                "learning rate",
                where=f"{where}:{row + 1}",
            )
        said.append(scores.argmax(axis=1))
    values = _values(said, numbers, numbers["gold" if target == "paper" else "sound"])
    triples = np.stack([numbers[n] for n in ("test_type", "solution", "seed")], axis=1)
    units, unit = np.unique(triples, axis=0, return_inverse=True)
    group = np.unique(table["group"].to_numpy().astype(str), return_inverse=True)[1]
    return Rows(
        units=units,
        unit=unit.reshape(-1),
        group=group.reshape(-1),
        words={name: table[name].to_numpy().astype(object) for name in _WORDS if name != "group"},
        values=values,
        **{name: numbers[name] for name in ("stage", "stages", "type", "learned")},
    )


def slices_of(rows: Rows) -> dict[tuple[str, str], Array]:
    """Masks by type, by function and by the stage in which the type was learned; none is empty.

    Returns:
        By (`types` | `functions` | `learned`, name): shape (N,), bool.
    """
    out = {("types", str(t)): rows.type == t for t in TYPES}
    out |= {("functions", f): np.isin(rows.type, types) for f, types in FUNCTIONS.items()}
    out |= {("learned", str(s)): rows.learned == s for s in np.unique(rows.learned)}
    return {key: mask for key, mask in out.items() if mask.any()}


def accuracies(rows: Rows) -> dict[str, float | None]:
    """V, N, V+N, CI, the oracle and the macro-F1 of CI of the rows of one strategy and stage."""
    totals = rows.totals()
    out = {name: _plain(macro(totals, np.ones(len(totals)), name)) for name in (*METRICS, "oracle")}
    out["macro_f1"] = _plain(macro_f1(totals.sum(axis=0)[-9:].reshape(3, 3)))
    return out


def accuracy_matrix(rows: Rows) -> dict[int, dict[str, float | None]]:
    """Accuracies by stage: V, N, V+N, CI, CI by type, CI by the stage in which it was learned.

    Args:
        rows: Of one strategy and part.
    """
    out = {}
    for stage in np.unique(rows.stage).tolist():
        there = rows.only(stage=stage)
        scored = accuracies(there)
        out[stage] = {name: scored[name] for name in METRICS}
        for (kind, name), mask in slices_of(there).items():
            if kind != "functions":
                label = f"CI {kind.removesuffix('s')} {name}"
                out[stage][label] = accuracies(there.pick(mask))["CI"]
    return out


def learned_matrix(rows: Rows, metric: str = "CI") -> dict[int, dict[int, float | None]]:
    """Accuracy after a stage (row) on what was learned in a stage (column; 0 = never).

    Args:
        rows: Of one strategy and part.
        metric: One of `METRICS`.
    """
    return {
        after: {
            learned: accuracies(rows.only(stage=after, learned=learned))[metric]
            for learned in np.unique(rows.learned).tolist()
        }
        for after in np.unique(rows.stage).tolist()
    }


def forgetting(matrix: Matrix) -> dict[str, float | None]:
    """The three definitions of `FORGETTING`.

    `forget` is (first - last) / first in percent of what was there after the first stage;
    `max_minus_last` the best before the last stage minus the last, in points, mean over what was
    learned before the last stage; `bwt` = R[last, i] - R[i, i], mean over earlier stages i: below 0
    where something is forgotten.

    Args:
        matrix: Percent by stage id (after), then by stage id (learned in, 0 = never trained, which
            counts where nothing else is there, and never in `bwt`).
    """
    stages = sorted(matrix)
    learned = sorted({column for row in matrix.values() for column in row})
    dense = np.full((len(stages), len(learned)), np.nan)
    for s, stage in enumerate(stages):
        for c, column in enumerate(learned):
            value = matrix[stage].get(column)
            dense[s, c] = np.nan if value is None else value
    return {
        name: _plain(value)
        for name, value in forgetting_of(dense, tuple(stages), tuple(learned)).items()
    }


def forgetting_of(
    matrix: Array, stages: tuple[int, ...], learned: tuple[int, ...]
) -> dict[str, Array]:
    """`forgetting` for many matrices at once.

    Args:
        matrix: Percent, NaN where not measured, shape (..., S, L).
        stages: Stage id of each row, ascending.
        learned: Stage id of each column, ascending; 0 = never trained.

    Returns:
        By name of `FORGETTING`, shape (...); NaN where it is not defined.
    """
    nothing = np.full(matrix.shape[:-2], np.nan)
    if len(stages) < 2:
        return dict.fromkeys(FORGETTING, nothing)
    place = {stage: row for row, stage in enumerate(stages)}
    columns = [c for c, i in enumerate(learned) if 0 < i < stages[-1] and i in place]
    bwt = [matrix[..., -1, c] - matrix[..., place[learned[c]], c] for c in columns]
    if not columns:
        columns = [c for c, i in enumerate(learned) if i == 0]
    if not columns:
        return dict.fromkeys(FORGETTING, nothing)
    first, last = matrix[..., 0, columns[0]], matrix[..., -1, columns[0]]
    best = np.fmax.reduce(matrix[..., :-1, :][..., columns], axis=-2)  # (..., columns)
    return {
        "forget": np.divide(100 * (first - last), first, out=nothing.copy(), where=first > 0),
        "max_minus_last": (best - matrix[..., -1, columns]).mean(axis=-1),
        "bwt": np.mean(bwt, axis=0) if bwt else nothing,
    }


def quadrants(rows: Rows) -> dict[str, dict[str, int]]:
    """Rows by whether both primitives (P) and the composition (CI) are right; all and by type."""
    chosen = {"all": np.ones(len(rows.unit), dtype=bool)}
    chosen |= {name: m for (kind, name), m in slices_of(rows).items() if kind == "types"}
    out = {}
    for name, mask in chosen.items():
        count, *right = (
            int(rows.values[mask, COLUMNS.index(c)].sum()) for c in ("n", "V+N", "CI", "V+N and CI")
        )
        primitive, composed, both = right
        out[name] = {
            "P+ CI+": both,
            "P+ CI-": primitive - both,
            "P- CI+": composed - both,
            "P- CI-": count - primitive - composed + both,
        }
    return out


def baselines(rows: Rows) -> dict[str, Any]:
    """CI of answers that need no model: always neutral, majority, V-only and N-only.

    `majority` is the constant answer that scores best on these very rows, `majority_label` that
    answer: a bound on every constant. V-only and N-only copy the gold label of a primitive.
    """
    totals = rows.totals()
    ones = np.ones(len(totals))
    constant = {name: _plain(macro(totals, ones, *CONSTANTS[name])) for name in CONSTANTS}
    known = {name: value for name, value in constant.items() if value is not None}
    best = max(known, key=known.__getitem__) if known else None
    return {
        "always neutral": constant["neutral"],
        "majority": None if best is None else constant[best],
        "majority_label": best,
        "V-only": _plain(macro(totals, ones, "V-only")),
        "N-only": _plain(macro(totals, ones, "N-only")),
    }


def macro(sums: Array, weights: Array, *hits: str, columns: tuple[str, ...] = COLUMNS) -> Array:
    """Mean over units of 100 * hits / n.

    Args:
        sums: Shape (..., U, M).
        weights: How often each unit counts, shape (..., U).
        hits: Columns whose sum is what is right.
        columns: Names of the M columns.

    Returns:
        Shape (...), percent; NaN where no unit has a row.
    """
    right = sums[..., [columns.index(name) for name in hits]].sum(axis=-1, dtype=np.float64)
    return _mean(sums[..., columns.index("n")], right[..., None], weights)[..., 0]


def macro_each(
    sums: Array, weights: Array, names: tuple[str, ...], columns: tuple[str, ...] = COLUMNS
) -> Array:
    """`macro` of K single columns at once, shape (..., K)."""
    right = sums[..., [columns.index(name) for name in names]]
    return _mean(sums[..., columns.index("n")], right, weights)


def macro_f1(confusion: Array) -> Array:
    """Mean F1 over the labels that occur in the gold labels or the predictions.

    Args:
        confusion: Counts by gold label, then by predicted label, shape (..., 3, 3).

    Returns:
        Shape (...), percent; NaN where nothing was counted.
    """
    counts = np.asarray(confusion, dtype=np.float64)
    hits = np.diagonal(counts, axis1=-2, axis2=-1)
    both = counts.sum(axis=-1) + counts.sum(axis=-2)  # 2 TP + FP + FN
    there = both > 0
    scores = np.divide(200.0 * hits, both, out=np.zeros(both.shape), where=there)
    labels = there.sum(axis=-1)
    out = np.full(labels.shape, np.nan)
    return np.asarray(np.divide(scores.sum(axis=-1), labels, out=out, where=labels > 0))


def _values(said: list[Array], numbers: Mapping[str, Array], gold: Array) -> Array:
    """What `COLUMNS` names, of every row; `said` is V, N and CI as predicted."""
    v, n, c = said
    right_v, right_n = v == numbers["gold_v"], n == numbers["gold_n"]
    right = c == gold
    confusion = np.eye(9, dtype=np.int64)[3 * gold + c]  # (N, 9)
    return np.column_stack(
        [
            np.ones(len(gold), np.int64),
            right_v,
            right_n,
            right_v & right_n,
            right,
            _RULE[v, n] == gold,
            right_v & right_n & right,
            numbers["gold_v"] == gold,
            numbers["gold_n"] == gold,
            confusion,
        ]
    ).astype(np.int64)


def _mean(count: Array, right: Array, weights: Array) -> Array:
    """Weighted mean over units of 100 * right / count, shape (..., K); NaN without rows.

    Args:
        count: Rows, shape (..., U).
        right: Rows that are right, shape (..., U, K).
        weights: Shape (..., U).
    """
    there = count > 0
    shares = 100.0 * right.astype(np.float64) / np.where(there, count, 1)[..., None]
    counted = np.where(there, weights, 0.0)
    total = counted.sum(axis=-1)[..., None]
    mean = (counted[..., None, :] @ shares)[..., 0, :]
    return np.asarray(np.where(total > 0, mean / np.where(total > 0, total, 1), np.nan))


def _plain(value: Array) -> float | None:
    number = float(value)
    return None if np.isnan(number) else number
