"""Intervals, tests and generators against values by hand, naive loops and scipy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial import stats
from triaxial.errors import InputError
from triaxial.stats import (
    bootstrap,
    generator,
    interval,
    mcnemar,
    resampled_sums,
    slope,
    smallest_difference,
)

SRC = Path(stats.__file__).parents[1]
GOLDEN = [8, 61, 165, 298]  # a change breaks every published seed


def naive_sums(units, clusters, draws, rng):
    """The same resampling, unit by unit in Python."""
    groups = sorted(set(clusters))
    members = [[u for u, c in zip(units, clusters, strict=True) if c == g] for g in groups]
    out = []
    for _ in range(draws):
        total = [0] * len(units[0])
        for pick in rng.integers(0, len(groups), len(groups)):
            for unit in members[pick]:
                total = [a + b for a, b in zip(total, unit, strict=True)]
        out.append(total)
    return out


@given(data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_clustered_sums_equal_the_naive_loop(data: st.DataObject, seed: int) -> None:
    rows = data.draw(st.integers(1, 12))
    number = st.integers(-(10**6), 10**6)
    units = data.draw(st.lists(st.tuples(number, number), min_size=rows, max_size=rows))
    clusters = data.draw(st.lists(st.integers(-2, 3), min_size=rows, max_size=rows))
    got = resampled_sums(
        np.array(units), clusters=np.array(clusters), draws=5, rng=generator("t", seed)
    )
    assert got.dtype == np.int64
    assert got.tolist() == naive_sums(units, clusters, 5, generator("t", seed))


def test_plain_is_one_cluster_a_unit() -> None:
    units = np.arange(14).reshape(7, 2)
    plain = resampled_sums(units, clusters=None, draws=50, rng=generator(1))
    single = resampled_sums(units, clusters=np.arange(7), draws=50, rng=generator(1))
    assert (plain == single).all()


def test_order_of_rows_does_not_matter_when_clustered() -> None:
    units, clusters = np.arange(20).reshape(10, 2), np.arange(10) % 4
    back = np.arange(10)[::-1]
    one = resampled_sums(units, clusters=clusters, draws=30, rng=generator(1))
    two = resampled_sums(units[back], clusters=clusters[back], draws=30, rng=generator(1))
    assert (one == two).all()


def test_chunks_do_not_change_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    units = generator("u").integers(0, 9, (11, 3))
    whole = resampled_sums(units, clusters=None, draws=100, rng=generator(2))
    monkeypatch.setattr(stats, "CHUNK", 33)  # three draws at a time, an odd number of indices
    assert (resampled_sums(units, clusters=None, draws=100, rng=generator(2)) == whole).all()


def test_integers_beyond_floats_are_exact() -> None:
    # 2**55 + 1 has no float64; three of them are 3 * 2**55 + 3 whichever are drawn.
    units = np.full((3, 1), 2**55 + 1)
    got = resampled_sums(units, clusters=None, draws=4, rng=generator(1))
    assert got.ravel().tolist() == [3 * 2**55 + 3] * 4
    with pytest.raises(ValueError, match="64 bits"):
        resampled_sums(units * 2**7, clusters=None, draws=1, rng=generator(1))


def test_bools_count_and_floats_stay_floats() -> None:
    assert resampled_sums(np.ones((4, 1), bool), clusters=None, draws=1, rng=generator(1)) == 4
    got = resampled_sums(np.full((4, 1), 0.5), clusters=None, draws=1, rng=generator(1))
    assert (got.dtype, got.tolist()) == (np.float64, [[2.0]])


def test_bootstrap_of_a_mean_is_near_the_textbook_interval() -> None:
    hits = np.zeros((400, 1), int)
    hits[:100] = 1
    got = bootstrap(hits, lambda sums: sums[..., 0] / 400, draws=4000, rng=generator("b"))
    # p = 100/400 = .25; SE = sqrt(.25 * .75 / 400) = .02165; .25 -+ 1.96 * SE = [.2076, .2924]
    assert got.value == 0.25
    assert got.low == pytest.approx(0.2076, abs=0.004)
    assert got.high == pytest.approx(0.2924, abs=0.004)


def test_clustered_intervals_cover_and_plain_ones_do_not() -> None:
    """40 clusters of 10 units that share most of their value; the truth is 0."""
    rng, trials = generator("coverage"), 200
    clusters = np.repeat(np.arange(40), 10)
    covered = {"clustered": 0, "plain": 0}
    for _ in range(trials):
        units = rng.normal(size=40)[clusters] + 0.3 * rng.normal(size=400)
        pair = np.stack([units, np.ones(400)], axis=1)
        for kind, groups in (("clustered", clusters), ("plain", None)):
            got = bootstrap(
                pair, lambda s: s[..., 0] / s[..., 1], clusters=groups, draws=200, rng=rng
            )
            covered[kind] += got.low <= 0 <= got.high
    # 95 % nominal; the percentile interval of 40 clusters is a little short; 3 SE of 200 are 4.6 %.
    assert covered["clustered"] / trials > 0.88
    assert covered["plain"] / trials < 0.60


def test_paired_difference_is_narrower_than_two_intervals() -> None:
    rng = generator("paired")
    old = rng.random(500) < 0.7
    new = old ^ (rng.random(500) < 0.05)
    both = np.stack([old, new], axis=1)
    paired = bootstrap(both, lambda s: (s[..., 1] - s[..., 0]) / 500, rng=generator(1))
    alone = bootstrap(both, lambda s: s[..., 1] / 500, rng=generator(1))
    assert paired.high - paired.low < 0.6 * (alone.high - alone.low)


def test_interval_by_hand() -> None:
    # 0..100: linear percentiles 2.5 and 97.5
    got = interval(np.arange(101.0), 50)
    assert (got.value, got.level) == (50, 0.95)
    assert (got.low, got.high) == pytest.approx((2.5, 97.5))


def test_what_intervals_refuse() -> None:
    with pytest.raises(InputError, match="undefined on 1 of 3 samples; wanted a number on each"):
        interval(np.array([1.0, np.nan]), 1.0)
    with pytest.raises(InputError, match=r"a level of 95; wanted a share in \(0, 1\)"):
        interval(np.ones(3), 1.0, 95)
    with pytest.raises(InputError, match="no units to resample; wanted at least one"):
        resampled_sums(np.zeros((0, 2)), clusters=None, draws=1, rng=generator(1))
    with pytest.raises(ValueError, match=r"units of shape \(3,\), wanted \(N, M\)"):
        resampled_sums(np.zeros(3), clusters=None, draws=1, rng=generator(1))
    with pytest.raises(ValueError, match=r"clusters of shape \(2,\) for 3 units"):
        resampled_sums(np.zeros((3, 1)), clusters=np.zeros(2), draws=1, rng=generator(1))


def test_mcnemar_by_hand() -> None:
    # n = 6, min = 1: 2 * (C(6,0) + C(6,1)) / 2**6 = 2 * 7 / 64
    assert mcnemar(1, 5) == pytest.approx(14 / 64)
    assert mcnemar(5, 1) == mcnemar(1, 5)
    assert mcnemar(0, 10) == pytest.approx(2 / 1024)
    assert mcnemar(0, 0) == mcnemar(7, 7) == 1.0
    with pytest.raises(ValueError, match="counts are >= 0"):
        mcnemar(-1, 2)


@given(st.integers(0, 300), st.integers(0, 300))
@settings(max_examples=30, deadline=None)
def test_mcnemar_is_the_exact_binomial_test(old: int, new: int) -> None:
    from scipy.stats import binomtest

    wanted = binomtest(old, old + new, 0.5).pvalue if old + new else 1.0
    assert mcnemar(old, new) == pytest.approx(wanted)


def test_slope_equals_scipy() -> None:
    from scipy.stats import linregress

    rng = generator("slope")
    x, y = np.arange(12.0), np.arange(12.0) * 0.3 + rng.normal(size=12)
    got, wanted = slope(x, y), linregress(x, y)
    assert got.slope == pytest.approx(wanted.slope)
    assert got.intercept == pytest.approx(wanted.intercept)
    assert got.standard_error == pytest.approx(wanted.stderr)
    assert got.p == pytest.approx(wanted.pvalue)


def test_weighted_slope() -> None:
    x, y = np.array([0.0, 1, 2, 9]), np.array([0.0, 1, 3, 99])
    # weights 1 1 1 0: the fourth point is out. mean x = 1, mean y = 4/3; slope = 3/2
    got = slope(x, y, np.array([1, 1, 1, 0]))
    assert got.slope == pytest.approx(1.5)
    # rests 1/6, -1/3, 1/6: sum of squares 1/6, one degree of freedom, spread 2: SE = sqrt(1/12)
    assert got.standard_error == pytest.approx((1 / 12) ** 0.5)
    twice = slope(x, y, np.full(4, 7.0))
    assert twice.standard_error == pytest.approx(slope(x, y).standard_error)


def test_slope_of_exact_and_too_few_points() -> None:
    assert slope(np.arange(3), 2 * np.arange(3)).p == 0.0
    assert slope(np.arange(3), np.ones(3)).p == 1.0
    with pytest.raises(InputError, match="a slope through 2 points at 2 places; wanted at least 3"):
        slope(np.arange(2), np.arange(2))
    with pytest.raises(InputError, match="through 3 points at 1 places"):
        slope(np.ones(3), np.arange(3))
    with pytest.raises(ValueError, match="points are finite"):
        slope(np.array([0, 1, np.nan]), np.arange(3))


def test_smallest_difference_by_hand() -> None:
    # z(.975) = 1.95996, z(.8) = .84162; 2.80158 * .1
    assert smallest_difference(0.1) == pytest.approx(0.280158, abs=1e-6)


def test_generators_are_golden_distinct_and_stable() -> None:
    assert generator(1, "merge.draws", "é").integers(0, 1000, 4).tolist() == GOLDEN
    assert generator(1).random() != generator("1").random()
    assert generator("a", "b").random() != generator("ab").random()
    code = "from triaxial.stats import *; print(generator(1,'merge.draws','é').integers(0,1000,4))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(SRC)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert seen == {str(np.array(GOLDEN)) + "\n"}
