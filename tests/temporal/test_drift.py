"""Drift: rise times, kinks, alarms with their rate, and costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from triaxial.errors import InputError
from triaxial.stats import generator
from triaxial.temporal.curves import curve
from triaxial.temporal.drift import (
    Costs,
    alarm_rule,
    cost_curve,
    drift,
    kink,
    rise_time,
    watch,
)
from triaxial.temporal.resample import Resampler, bins_of, ledger_of
from triaxial.temporal.words import score_together


def report(evaluations, **options):
    scored = score_together(evaluations)
    values = {name: scored.log_p(name) for name in scored.names}
    ledger = ledger_of(scored, bins_of(scored), Resampler(scored.months, 1, 100), values)
    return drift(curve(ledger, "past", "control"), **options)


def test_rise_time_by_hand() -> None:
    slope = {"value": 0.5, "low": 0.25, "high": 1.0}
    told = rise_time(slope)
    # log(1.05) = 4.879 %; at .5 % a month 9.758 months, at 1 % 4.879, at .25 % 19.516.
    assert told["value"] == pytest.approx(9.758, abs=1e-3)
    assert told["low"] == pytest.approx(4.879, abs=1e-3)
    assert told["high"] == pytest.approx(19.516, abs=1e-3)
    assert rise_time({"value": 0.5, "low": -0.1, "high": 1.0})["high"] is None
    assert rise_time(None) == {"percent": 5.0, "value": None, "low": None, "high": None}
    assert rise_time(slope, 100)["value"] == pytest.approx(100 * math.log(2) / 0.5)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_planted_kink_is_found(seed) -> None:
    x = np.arange(36.0)
    noise = generator(seed, "kink").standard_normal(36) * 0.5
    y = 0.05 * x + np.maximum(0, x - 18) + noise
    told = kink(x, y, np.full(36, 100.0), seed=seed)
    assert told["supported"]
    assert told["low"] <= 18 <= told["high"]
    assert told["value"] == pytest.approx(18, abs=2)
    assert (told["before"], told["after"]) == pytest.approx((0.05, 1.05), abs=0.15)


def test_a_straight_line_has_no_kink() -> None:
    x = np.arange(24.0)
    found = sum(
        kink(x, 0.5 * x + generator(seed, "line").standard_normal(24), np.ones(24), draws=199)[
            "supported"
        ]
        for seed in range(20)
    )
    assert found <= 3
    assert not kink(x, 2 * x, np.ones(24))["supported"]  # exactly straight
    with pytest.raises(InputError, match="a kink in 5 bins; wanted at least 6"):
        kink(x[:5], x[:5], np.ones(5))


def test_kink_against_a_grid_of_least_squares() -> None:
    rng = generator(1, "grid")
    x, w = np.arange(10.0), rng.uniform(1, 3, 10)
    y = rng.standard_normal(10)
    rest = {}
    for place in np.arange(1, 8.01, 0.25):
        design = np.column_stack([np.ones(10), x, np.maximum(0, x - place)])
        root = np.sqrt(w)
        fit = np.linalg.lstsq(design * root[:, None], y * root)[0]
        rest[place] = (w * (y - design @ fit) ** 2).sum()
    assert kink(x, y, w, draws=9)["value"] == min(rest, key=lambda place: rest[place])


def test_cusum_by_hand() -> None:
    rule = alarm_rule(3, 4)
    # Reference 1, 2, 3: mean 2, standard deviation 1. Then 3.5 → 1; 2 → .5; 0 → 0; 5 → 2.5.
    told = watch(rule, np.asarray([1, 2, 3, 3.5, 2, 0, 5.0]), list("abcdefg"))
    assert told["path"] == pytest.approx([1, 0.5, 0, 2.5])
    assert told["alarm"] is None
    steep = watch(rule, np.asarray([1, 2, 3, 90.0]), list("abcd"))
    assert steep["alarm"] == "d"
    with pytest.raises(InputError, match="3 months with 3 names for a rule of 3 reference"):
        watch(rule, np.ones(3), list("abc"))
    with pytest.raises(InputError, match="an alarm with 2 reference months"):
        alarm_rule(2, 4)


def test_the_rate_of_false_alarms_is_the_stated_one() -> None:
    rule = alarm_rule(6, 18, false_alarms=0.1)
    streams = 40 + 7 * generator(9, "streams").standard_normal((2000, 24))
    names = [str(n) for n in range(24)]
    rate = np.mean([watch(rule, stream, names)["alarm"] is not None for stream in streams])
    assert rate == pytest.approx(0.1, abs=0.02)  # three standard errors: 3 · sqrt(.09 / 2000)


def test_stationary_streams_do_not_drift(drifting) -> None:
    """With months that differ by chance, as months do: at most 3 of 20 seeds."""
    quiet = [
        report(
            drifting({"n": 0.0, "f": 0.0}, seed=seed, documents=6, length=8, event=0.05), seed=seed
        )
        for seed in range(20)
    ]
    assert sum(told["alarm"]["alarm"] is None for told in quiet) >= 17
    assert sum(told["drifts"] == "no" for told in quiet) >= 17
    assert sum(not told["kink"]["supported"] for told in quiet) >= 17


def test_drifting_streams_are_found(drifting) -> None:
    loud = [
        report(drifting({"n": 0.05}, seed=seed, months=16, documents=6, length=8, event=0.05))
        for seed in range(10)
    ]
    assert all(told["drifts"] == "yes" for told in loud)
    assert sum(told["alarm"]["alarm"] is not None for told in loud) >= 8
    for told in loud:
        # 5 % after log(1.05) / .05 = .98 months.
        assert told["rise"]["low"] < told["rise"]["value"] < told["rise"]["high"]
        assert told["rise"]["value"] == pytest.approx(0.98, abs=0.3)


def test_too_short_to_tell(drifting) -> None:
    told = report(drifting({"n": 0.01}, months=2, documents=3))
    assert told["drifts"] == "not measured"
    assert told["slope"] is told["kink"] is told["alarm"] is None
    assert told["rise"]["value"] is None


def test_costs_by_hand() -> None:
    told = cost_curve(Costs(retrain=12, percent=1, horizon=3), 100 * math.log(1.1))
    # Increases of the first months: 0, 10 and 21 %.
    wanted = [12 + 0, 6 + 5, 4 + 31 / 3]
    assert [row["retrain"] for row in told["rows"]] == pytest.approx(wanted)
    assert told["best"] == {
        "retrain": {"months": 2, "cost": pytest.approx(11)},
        "remedy": "retrain",
    }
    assert told["rows"][0]["adapt"] is None
    both = cost_curve(Costs(12, 1, adapt=0.5, horizon=3), 100 * math.log(1.1), 0.0, 0.0)
    # Adapted, nothing grows stale: .5 a month and the retraining.
    assert [row["adapt"] for row in both["rows"]] == pytest.approx([12.5, 6.5, 4.5])
    assert both["best"]["remedy"] == "adapt"
    assert cost_curve(Costs(12, 1), -1.0)["best"]["retrain"]["months"] == 36
    with pytest.raises(InputError, match="wanted numbers of 0 or more"):
        cost_curve(Costs(-1, 1), 1.0)
