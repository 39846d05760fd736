"""Accuracies, forgetting, quadrants and baselines, on tables small enough to count by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.c2gen.metrics import (
    COLUMNS,
    Rows,
    accuracies,
    accuracy_matrix,
    baselines,
    forgetting,
    learned_matrix,
    macro,
    macro_f1,
    quadrants,
    rows_of,
    slices_of,
)
from triaxial.c2gen.verbs import TYPES, composed_label
from triaxial.errors import InputError
from triaxial.nli import LABELS

E, N, C = range(3)
HEADS = ["v0", "v1", "v2", "n0", "n1", "n2", "c0", "c1", "c2"]


def row(item: str, kind: int, said: tuple[int, int, int], **other: Any) -> dict[str, Any]:
    """One row: a type's gold labels and the labels that the three heads say."""
    v, n = TYPES[kind]
    gold = LABELS.index(composed_label(v, n))
    scores = [-0.1 if label == k else -3.0 for label in said for k in range(3)]
    return {
        **{"stream": "ver-nat", "test_type": kind, "solution": 1, "strategy": "none", "seed": 1},
        **{"stage": 1, "stages": 1, "stage_name": "one", "item": item, "part": "test"},
        **{"type": kind, "verb": "manage", "relation": "other", "group": item, "learned": 0},
        **{"gold_v": LABELS.index(v), "gold_n": LABELS.index(n), "gold": gold, "sound": gold},
        **dict(zip(HEADS, scores, strict=True)),
        **other,
    }


def nine(per_type: int = 1, right: bool = True) -> list[dict[str, Any]]:
    """Nine folds, `per_type` items each; everything right, or V, N and CI one label further."""
    rows = [row(f"{kind}-{i}", kind, (0, 0, 0)) for kind in TYPES for i in range(per_type)]
    for one in rows:
        for head, gold in zip("vnc", ("gold_v", "gold_n", "gold"), strict=True):
            said = one[gold] if right else (one[gold] + 1) % 3
            one |= {f"{head}{k}": -0.1 if k == said else -3.0 for k in range(3)}
    return rows


def read(rows: list[dict[str, Any]], **options: Any) -> Rows:
    return rows_of(pl.DataFrame(rows), **options)


# Type 1 is (e, e) -> e; type 9 is (c, c) -> e.
HAND = [
    row("a", 1, (E, E, E)),  # all right
    row("b", 1, (E, N, E)),  # N wrong, CI right; the oracle says neutral: wrong
    row("c", 1, (C, E, N)),  # V wrong, CI wrong; the oracle says contradiction: wrong
    row("d", 1, (E, E, C)),  # both right, CI wrong; the oracle is right
    row("e", 9, (C, C, E)),  # all right
    row("f", 9, (E, E, N)),  # nothing right, yet the oracle composes e: right
]


def test_accuracies_by_hand() -> None:
    # Fold 1: V 3/4, N 3/4, both 2/4, CI 2/4, oracle 2/4. Fold 9: V, N, both, CI 1/2, oracle 2/2.
    # Mean over the two folds: (75 + 50) / 2 = 62.5; (50 + 50) / 2 = 50; oracle (50 + 100) / 2 = 75.
    found = accuracies(read(HAND))
    wanted = {"V": 62.5, "N": 62.5, "V+N": 50.0, "CI": 50.0, "oracle": 75.0}
    assert {name: found[name] for name in wanted} == wanted
    # Pooled confusion, gold e: said e 3, n 2, c 1. F1(e) = 2*3 / (6 + 3) = 2/3; n and c occur as
    # predictions alone: 0. Mean of three labels: 200 / 9.
    assert found["macro_f1"] == pytest.approx(200 / 9)
    # The micro mean of CI would be 3/6 as well, but that of V is 4/6.
    one_fold = [{**r, "test_type": 0} for r in HAND]
    assert accuracies(read(one_fold))["V"] == pytest.approx(100 * 4 / 6)


def test_macro_f1_counts_only_labels_that_occur() -> None:
    assert macro_f1(np.asarray([[2, 0, 0], [0, 0, 0], [0, 0, 0]])) == 100.0
    # e: 2*1 / (2 + 1) = 2/3; n: 2*3 / (3 + 4) = 6/7; c never: mean of two.
    two = macro_f1(np.asarray([[1, 1, 0], [0, 3, 0], [0, 0, 0]]))
    assert float(two) == pytest.approx(100 * (2 / 3 + 6 / 7) / 2)
    assert np.isnan(macro_f1(np.zeros((3, 3))))


def test_quadrants_by_hand() -> None:
    found = quadrants(read(HAND))
    assert found == {
        "all": {"P+ CI+": 2, "P+ CI-": 1, "P- CI+": 1, "P- CI-": 2},
        "1": {"P+ CI+": 1, "P+ CI-": 1, "P- CI+": 1, "P- CI-": 1},
        "9": {"P+ CI+": 1, "P+ CI-": 0, "P- CI+": 0, "P- CI-": 1},
    }


def test_baselines_of_the_nine_folds() -> None:
    # Neutral: types 2 4 5 6 8. V-only: 1 4 5 6 7. N-only: 1 2 3 5 8. Each 5 of 9.
    uneven = [*nine(), *[row(f"x{i}", 1, (E, E, E)) for i in range(20)]]
    for rows in (nine(), nine(3), uneven):  # folds weigh alike
        found = baselines(read(rows))
        assert found.pop("majority_label") == "neutral"
        assert found == pytest.approx(dict.fromkeys(found, 500 / 9))
    assert set(found) == {"always neutral", "majority", "V-only", "N-only"}
    # Of types 1, 7 and 9 (e, c, e) neutral gets nothing, entailment two folds of three.
    few = [r for r in nine() if r["type"] in (1, 7, 9)]
    found = baselines(read(few))
    assert found["always neutral"] == 0
    assert found["majority"] == pytest.approx(200 / 3)
    assert found["majority_label"] == "entailment"


def test_sound_labels_are_another_target() -> None:
    rows = [row("a", 7, (C, E, C), sound=N), row("b", 7, (C, E, N), sound=N)]
    paper, sound = (accuracies(read(rows, target=target)) for target in ("paper", "sound"))
    assert (paper["CI"], paper["oracle"]) == (50.0, 100.0)
    assert (sound["CI"], sound["oracle"]) == (50.0, 0.0)  # the rule knows one-way entailment not
    assert accuracies(read(rows[:1], target="sound"))["CI"] == 0.0
    assert paper["V"] == sound["V"] == 100.0


def test_nothing_gives_null() -> None:
    none = read(HAND).only(part="unseen")
    assert set(accuracies(none).values()) == {None}
    assert accuracy_matrix(none) == {}
    assert quadrants(none) == {"all": {"P+ CI+": 0, "P+ CI-": 0, "P- CI+": 0, "P- CI-": 0}}
    assert set(baselines(none).values()) == {None}
    assert slices_of(none) == {}


def test_the_paper_s_forgetting() -> None:
    found = forgetting({1: {0: 93.94}, 2: {0: 71.15}})
    assert found["forget"] == pytest.approx(24.26, abs=0.005)
    assert found["max_minus_last"] == pytest.approx(22.79)
    assert found["bwt"] is None  # the held-out type was never learned


def test_forgetting_has_its_axes_right() -> None:
    # Rows = after a stage, columns = learned in a stage. R[1,1] = 90, R[2,1] = 60.
    matrix = {1: {1: 90.0, 2: 40.0}, 2: {1: 60.0, 2: 80.0}}
    assert forgetting(matrix) == {
        "forget": pytest.approx(100 / 3),  # (90 - 60) / 90
        "max_minus_last": 30.0,
        "bwt": -30.0,
    }
    # Transposed, R[2,1] would be 40: another figure, so a mix-up of the axes cannot pass.
    transposed = {i: {j: matrix[j][i] for j in matrix} for i in matrix}
    assert forgetting(transposed)["bwt"] == -50.0


def test_forgetting_at_three_stages() -> None:
    matrix = {
        1: {1: 80.0, 2: 55.0, 3: 50.0},
        2: {1: 84.0, 2: 70.0, 3: 20.0},
        3: {1: 60.0, 2: 76.0, 3: 90.0},
    }
    found = forgetting(matrix)
    assert found["forget"] == 25.0  # (80 - 60) / 80
    assert found["bwt"] == -7.0  # ((60 - 80) + (76 - 70)) / 2
    assert found["max_minus_last"] == 9.0  # ((84 - 60) + (70 - 76)) / 2
    # Keyed by the id of a stage, not by its place in the dictionary.
    shuffled = {s: dict(reversed(matrix[s].items())) for s in (3, 1, 2)}
    assert forgetting(shuffled) == found


@pytest.mark.parametrize(
    "matrix",
    [
        {},
        {1: {1: 50.0}},  # one stage
        {1: {1: 0.0}, 2: {1: 10.0}},  # nothing to forget
        {1: {1: None}, 2: {1: 10.0}},
        {1: {2: 50.0}, 2: {2: 10.0}},  # learned in the last stage alone
    ],
)
def test_forgetting_that_is_not_defined_is_null(matrix: dict[int, dict[int, float | None]]) -> None:
    assert forgetting(matrix)["forget"] is None


def stages() -> list[dict[str, Any]]:
    """Type 1 learned in stage 1, type 9 in stage 2; four items each, after either stage."""
    right = {(1, 1): 3, (1, 9): 1, (2, 1): 2, (2, 9): 4}  # (after, type): CI right
    out = []
    for (after, kind), hits in right.items():
        for i in range(4):
            said = (E, E, E if i < hits else N)
            more = {"stage": after, "stages": 2, "part": "probe", "learned": 1 if kind == 1 else 2}
            out.append(row(f"{kind}-{i}", kind, said, test_type=5, **more))
    return out


def test_matrix_from_a_table() -> None:
    rows = read(stages())
    assert learned_matrix(rows) == {1: {1: 75.0, 2: 25.0}, 2: {1: 50.0, 2: 100.0}}
    assert forgetting(learned_matrix(rows))["bwt"] == -25.0
    found = accuracy_matrix(rows)
    assert found[2] == {
        **{"V": 50.0, "N": 50.0, "V+N": 50.0, "CI": 75.0},  # E, E is right for type 1 alone
        **{"CI type 1": 50.0, "CI type 9": 100.0, "CI learned 1": 50.0, "CI learned 2": 100.0},
    }
    assert found[1]["CI"] == 50.0


labels = st.tuples(*[st.integers(0, 2)] * 3)
tables = st.lists(st.tuples(st.integers(1, 9), labels), min_size=1, max_size=30)


@settings(max_examples=25, deadline=None)
@given(tables, st.randoms())
def test_invariants(drawn: list[tuple[int, tuple[int, int, int]]], random: Any) -> None:
    rows = [row(f"i{n}", kind, said) for n, (kind, said) in enumerate(drawn)]
    mixed = random.sample(rows, len(rows))
    found = read(rows)
    assert accuracies(read(mixed)) == accuracies(found)
    assert baselines(read(mixed)) == baselines(found)
    count = quadrants(found)
    assert sum(count["all"].values()) == len(rows)
    for name, cells in count["all"].items():
        assert cells == sum(c[name] for kind, c in count.items() if kind != "all")
    # The oracle is the rule, spelled out row by row.
    wanted = [
        LABELS.index(composed_label(LABELS[said[0]], LABELS[said[1]])) == r["gold"]
        for r, (_, said) in zip(rows, drawn, strict=True)
    ]
    assert found.values[:, COLUMNS.index("oracle")].tolist() == wanted
    assert np.isnan(macro(found.totals(), np.zeros(len(found.units)), "V"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"drop": "c2"}, "predictions: columns c2 are missing; wanted stream, "),
        ({"gold": 3}, "predictions:2: gold 3; wanted 0..2: predict again"),
        ({"type": 0}, "predictions:2: type 0; wanted 1..9"),
        ({"stage": 0}, "predictions:2: stage 0; wanted >= 1"),
        ({"n1": float("nan")}, "predictions:2: n holds NaN; wanted log-probabilities"),
        ({"item": "a"}, "predictions: 1 rows repeat an item of the same unit"),
        ({"group": None}, "predictions: empty cells in group; predict again"),
    ],
)
def test_bad_tables(change: dict[str, Any], said: str) -> None:
    table = [row("a", 1, (E, E, E)), row("b", 1, (E, E, E))]
    table[1].update(change)
    frame = pl.DataFrame(table)
    if "drop" in change:
        frame = frame.drop(change["drop"], "drop")
    with pytest.raises(InputError, match=said.replace("[", r"\[").split(" (")[0]) as caught:
        rows_of(frame)
    assert "\n" not in str(caught.value)


def test_target_is_one_of_two() -> None:
    with pytest.raises(InputError, match="target 'truth'; wanted 'paper' or 'sound'"):
        read(HAND, target="truth")


def test_everything_right_and_everything_wrong() -> None:
    right, wrong = (accuracies(read(nine(right=flag))) for flag in (True, False))
    assert set(right.values()) == {100.0}
    assert [wrong[name] for name in ("V", "N", "V+N", "CI", "macro_f1")] == [0.0] * 5
