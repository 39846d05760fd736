"""SV at every threshold against fractions, MC with ties, intervals, draws."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triaxial.merge.score import GRID, DrawOptions, Scores, drawn, passes, scores
from triaxial.stats import generator, wilson

GOLDEN = """
import numpy as np
from triaxial.merge.score import DrawOptions, drawn
for seed, group in (("1", "all"), ("1", "NOUN"), ("é 2", "all")):
    print(drawn(seed, group, 30, DrawOptions(n=4, draws=2)).tolist())
"""
GOLDEN_DRAWS = """\
[[16, 26, 24, 21], [15, 12, 18, 17]]
[[2, 5, 6, 27], [15, 19, 7, 18]]
[[27, 25, 6, 16], [26, 25, 20, 4]]
"""


def scored(
    correct: np.ndarray,
    seed_correct: np.ndarray | None = None,
    agrees: np.ndarray | None = None,
    premises: list[str] | None = None,
) -> Scores:
    count = len(correct)
    return scores(
        np.ones(count, bool) if seed_correct is None else seed_correct,
        correct,
        correct if agrees is None else agrees,
        [str(n) for n in range(count)] if premises is None else premises,
        rng=generator("test"),
    )


def with_hits(hits: list[int], n: int = 20, draws: int = 1) -> np.ndarray:
    """Correctness of S seeds with so many hits in every draw, shape (S, D, n)."""
    row = np.arange(n) < np.asarray(hits)[:, None]
    return np.repeat(row[:, None], draws, axis=1)


def sv(found: Scores) -> list[float]:
    return [interval.value for interval in found.sv]


def test_the_grid_is_whole_numbers() -> None:
    assert GRID == (5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 100)


@pytest.mark.parametrize("n", [20, 7, 60, 100])
def test_every_threshold_as_a_fraction(n: int) -> None:
    for hits in range(n + 1):
        reached = passes(np.asarray([[hits]]), n)[0]
        assert reached.tolist() == [Fraction(hits, n) >= Fraction(ct, 100) for ct in GRID]


def test_a_share_of_all_or_none_still_has_a_width() -> None:
    found = scored(with_hits([20] * 40), premises=[str(n // 2) for n in range(40)])
    one = found.seed_accuracy
    assert (one.value, one.high) == (100, 100)
    # Wilson's lower end of 20 premises of 20: 1 / (1 + z² / 20), z = 1.96.
    assert one.low == pytest.approx(100 / (1 + 1.959964**2 / 20), abs=1e-4)
    none = scored(with_hits([0] * 40)).at(100)
    assert (none.value, none.low) == (0, 0)
    assert none.high > 5


def test_nineteen_of_twenty_reach_95_percent() -> None:
    # 19/20 = .95; np.arange(.05, 1.01, .05)[18] = .9500000000000001 says no, and 9 like it.
    found = scored(with_hits([19]))
    assert (found.at(95).value, found.at(100).value) == (100.0, 0.0)
    floats = np.arange(0.05, 1.01, 0.05)
    wrong = [n for n in range(1, 21) if not n / 20 >= floats[n - 1]]
    assert len(wrong) == 9
    for hits in range(1, 21):
        curve = sv(scored(with_hits([hits])))
        assert curve == [100.0] * hits + [0.0] * (20 - hits)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 4), st.sampled_from([5, 20]))
def test_sv_against_its_definition(seed: int, count: int, draws: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    correct = rng.random((count, draws, n)) < rng.random((count, 1, 1))
    found = scored(correct, rng.random(count) < 0.5)
    for interval, ct in zip(found.sv, GRID, strict=True):
        shares = [
            Fraction(sum(Fraction(int(d.sum()), n) >= Fraction(ct, 100) for d in draw), count)
            for draw in correct.swapaxes(0, 1)
        ]
        assert interval.value == pytest.approx(100 * float(sum(shares) / draws))
        assert interval.low <= interval.value + 1e-9
        assert interval.value <= interval.high + 1e-9
    assert found.variant_accuracy.value == pytest.approx(100 * correct.mean())
    assert sv(found) == sorted(sv(found), reverse=True)


def test_numbers_of_everything() -> None:
    # Two seeds, two draws of 20: hits 20 and 10, then 19 and 10.
    correct = np.stack([with_hits([20, 10])[:, 0], with_hits([19, 10])[:, 0]], axis=1)
    found = scored(correct, np.asarray([True, False]), premises=["same", "same"])
    assert (found.n, found.draws, found.seeds, found.premises, found.right) == (20, 2, 2, 1, 1)
    assert found.seed_accuracy.value == 50
    assert found.variant_accuracy.value == pytest.approx(100 * 59 / 80)
    assert (found.at(50).value, found.at(55).value) == (100, 50)
    assert (found.at(95).value, found.at(100).value) == (50, 25)
    # Over draws SV100 is 50, then 0: standard deviation 50 / sqrt 2.
    assert found.spread[GRID.index(100)] == pytest.approx(50 / np.sqrt(2))
    assert found.spread[GRID.index(95)] == 0
    assert found.sv_right == tuple([100.0] * 19 + [50.0])
    assert found.sv_wrong == tuple([100.0] * 10 + [0.0] * 10)
    # One cluster: every resample is the same, and Wilson's interval of one unit stands.
    one = wilson(0.25, 1)
    assert (found.at(100).low, found.at(100).high) == (100 * one.low, 100 * one.high)


# MC.


def mc(hits: list[int], right: list[bool]) -> Any:
    return scored(with_hits(hits), np.asarray(right)).matching


def test_mc_is_the_whole_arg_min_set_and_its_highest() -> None:
    # S = 50 %: SV is 100 up to 25 %, 50 from 30 to 75 %, 0 above.
    found = mc([15, 5], [True, False])
    assert found.all == (30, 35, 40, 45, 50, 55, 60, 65, 70, 75)
    assert found.point == 75
    assert found.reason == ""
    assert found.low <= found.point <= found.high
    # S = 100 %, SV falls to 50 % at 80: MC is what is before.
    assert mc([20, 15], [True, True]).all == tuple(range(5, 80, 5))


def test_mc_ties_on_both_sides_of_s() -> None:
    # S = 50 % of 4; SV is 75 up to 50 %, 25 above: |SV - S| = 25 everywhere.
    found = mc([10, 10, 20, 0], [True, True, False, False])
    assert found.all == GRID
    assert found.point == 100


def test_mc_without_a_right_seed() -> None:
    found = mc([20, 3], [False, False])
    assert (found.point, found.all, found.low, found.high) == (None, (), None, None)
    assert found.reason == "no seed is labelled rightly (S = 0)"


def test_mc_of_a_model_that_generalizes_is_100() -> None:
    found = scored(with_hits([20, 0, 20, 0]), np.asarray([True, False, True, False])).matching
    assert (found.point, found.all, found.low, found.high) == (100, GRID, 100, 100)


def test_mc_on_few_seeds_is_wide() -> None:
    rng = np.random.default_rng(0)
    p = rng.beta(4, 1, 60)
    correct = rng.random((60, 10, 20)) < p[:, None, None]
    found = scored(correct, rng.random(60) < p).matching
    assert found.high - found.low >= 10


# Baselines, clusters, agreement, n.


def test_always_neutral_has_sv_equal_to_s_at_every_threshold() -> None:
    right = np.asarray([True, False, True, True])
    correct = np.repeat(right[:, None, None], 3, axis=1).repeat(20, axis=2)
    found = scored(correct, right, agrees=np.ones_like(correct))
    assert sv(found) == [75.0] * 20 == [found.seed_accuracy.value] * 20
    assert all(interval == found.seed_accuracy for interval in found.sv[1:]) or all(
        (i.value, i.low, i.high)
        == (found.seed_accuracy.value, found.seed_accuracy.low, found.seed_accuracy.high)
        for i in found.sv
    )
    assert [interval.value for interval in found.agreement] == [100.0] * 20
    assert found.spread == (0.0,) * 20


def test_the_bootstrap_is_wider_where_premises_repeat() -> None:
    hits = ([20] * 8 + [0] * 8) * 10  # eight seeds of a premise stand and fall together
    apart = scored(with_hits(hits)).at(95)
    premises = [f"p{n // 8}" for n in range(160)]
    together = scored(with_hits(hits), premises=premises).at(95)
    assert apart.value == together.value == 50
    wider = (together.high - together.low) / (apart.high - apart.low)
    assert wider == pytest.approx(np.sqrt(8), rel=0.15)


def test_agreement_is_with_the_models_own_label_of_the_seed() -> None:
    # One seed labelled wrongly, and its variants likewise: never correct, always in agreement.
    correct = with_hits([0])
    found = scored(correct, np.asarray([False]), agrees=~correct)
    assert sv(found) == [0.0] * 20
    assert [interval.value for interval in found.agreement] == [100.0] * 20
    assert (found.sv_right, found.sv_wrong) == ((), (0.0,) * 20)


def test_sv_at_a_high_threshold_depends_on_n() -> None:
    # The same model, p ~ Beta(20, 1): SV100 = E[p^n] = 20 / (20 + n): .50 at 20, .17 at 100.
    rng = np.random.default_rng(1)
    p = rng.beta(20, 1, 4000)
    by_n = {n: scored(rng.random((4000, 1, n)) < p[:, None, None]) for n in (20, 100)}
    assert by_n[20].at(100).value == pytest.approx(50, abs=3)
    assert by_n[100].at(100).value == pytest.approx(100 * 20 / 120, abs=3)
    assert [found.n for found in by_n.values()] == [20, 100]
    assert by_n[20].plain()["n"] == 20


# Draws.


@given(st.text(max_size=5), st.integers(20, 60), st.integers(0, 9))
def test_never_with_replacement(seed: str, variants: int, number: int) -> None:
    found = drawn(seed, "all", variants, DrawOptions(seed=number))
    assert found.shape == (10, 20)
    assert found.min() >= 0
    assert found.max() < variants
    assert all(len(set(row)) == 20 for row in found.tolist())


def test_exactly_n_variants_are_all_drawn() -> None:
    found = drawn("1", "all", 20, DrawOptions())
    assert [sorted(row) for row in found.tolist()] == [list(range(20))] * 10


def test_too_few_variants_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="not eligible"):
        drawn("1", "all", 19, DrawOptions())


def test_draws_depend_on_seed_id_group_and_draw_alone() -> None:
    options = DrawOptions()
    first = drawn("1", "all", 30, options)
    drawn("2", "all", 30, options)
    np.random.default_rng().random()
    assert (drawn("1", "all", 30, options) == first).all()
    others = [
        drawn("2", "all", 30, options),
        drawn("1", "NOUN", 30, options),
        drawn("1", "all", 30, DrawOptions(seed=2)),
    ]
    assert all((other != first).any() for other in others)
    assert (drawn("1", "all", 30, DrawOptions(draws=3)) == first[:3]).all()
    assert len({tuple(row) for row in first.tolist()}) == 10


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_draws_are_golden_in_every_process(hash_seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GOLDEN],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == GOLDEN_DRAWS
