"""Bins, perplexities, increases and slopes, with their intervals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from triaxial.errors import InputError
from triaxial.stats import slope
from triaxial.temporal.curves import (
    bits_per_byte,
    curve,
    matched_trend,
    overall,
    slope_difference,
)
from triaxial.temporal.resample import Ledger, Resampler, bins_of, figure, ledger_of
from triaxial.temporal.words import Scored, score_together


def ledger(scored: Scored, kind="month", draws: int = 300, origin=None) -> Ledger:
    values = {name: scored.log_p(name) for name in scored.names}
    bins = bins_of(scored, kind, origin)
    return ledger_of(scored, bins, Resampler(scored.months, 1, draws), values)


def both(evaluation, documents, behind) -> Scored:
    """A control and a model that is `behind(month)` nats a word behind it."""
    past = [
        (name, date, [(w, p - behind(int(date[5:7]))) for w, p in said])
        for name, date, said in documents
    ]
    return score_together(
        {"past": evaluation(past), "control": evaluation(documents, setup="control")}
    )


def test_perplexity_by_hand_and_an_empty_bin(evaluation) -> None:
    documents = [
        ("a", "2018-01-05", [("x", -2.0), ("y", -4.0)]),
        ("b", "2018-03-05", [("x", -1.0)]),
    ]
    found = ledger(both(evaluation, documents, lambda month: 0.1 * month))
    told = curve(found, "past", "control")
    january, february, march = told["bins"]
    # January: exp((2 + 4) / 2) for the control, a tenth of a nat a word more for the past.
    assert january["control"] == pytest.approx(math.exp(3))
    assert january["perplexity"] == pytest.approx(math.exp(3.1))
    assert january["increase"]["value"] == pytest.approx(100 * (math.exp(0.1) - 1), abs=1e-4)
    assert march["increase"]["value"] == pytest.approx(100 * (math.exp(0.3) - 1), abs=1e-4)
    assert february == {
        "bin": "2018-02", "documents": 0, "words": 0, "x": None, "perplexity": None,
        "control": None, "increase": {"value": None, "low": None, "high": None},
    }  # fmt: skip
    assert told["slope"] is None  # two bins are no line
    whole = overall(found, "past", "control")
    # All: (2 + 4 + 1) / 3 nats for the control; (.1 + .1 + .3) / 3 more for the past.
    assert whole["control"]["value"] == pytest.approx(math.exp(7 / 3))
    assert whole["log_ratio"]["value"] == pytest.approx(0.5 / 3, abs=1e-6)
    assert whole["delta"]["value"] == pytest.approx(math.exp(7.5 / 3) - math.exp(7 / 3), abs=1e-4)
    assert whole["n"] == 3


def test_bits_per_byte_by_hand(evaluation) -> None:
    said = [("a", "2018-01", [("xy", -2.0), ("z", -4.0)]), ("b", "2018-03", [("xyz", -1.0)])]
    scored = score_together({"m": evaluation(said)})
    value, by_bin = bits_per_byte(scored, ledger(scored), "m", Resampler(scored.months, 1, 300))
    # "xy z" has 4 bytes, "xyz" has 3.
    assert by_bin == [pytest.approx(6 / math.log(2) / 4), None, pytest.approx(1 / math.log(2) / 3)]
    assert value["value"] == pytest.approx(7 / math.log(2) / 7)


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("month", 14),
        ("quarter", ["2018-Q4", "2019-Q1", "2019-Q2", "2019-Q3", "2019-Q4"]),
        ("half", ["2018-H2", "2019-H1", "2019-H2"]),
        ("year", ["2018", "2019"]),
    ],
)
def test_bins_over_the_end_of_a_year(evaluation, kind, labels) -> None:
    said = [("a", "2018-12-31", [("x", -1.0)] * 3), ("b", "2019-01-01", [("x", -1.0)])]
    said.append(("c", "2020-01-01" if kind == "month" else "2019-12-01", [("x", -1.0)]))
    bins = bins_of(score_together({"m": evaluation(said)}), kind, 12 * 2018 + 10)
    assert len(bins.labels) == labels if kind == "month" else list(bins.labels) == labels
    assert bins.documents.sum() == 3
    assert bins.words.sum() == 5
    # x counts from November 2018, and a bin lies where its words do: 3 words at 1, then 2, …
    wanted = {"month": 1, "quarter": 1, "half": 1, "year": 1}
    assert bins.x[0] == wanted[kind]
    if kind == "year":
        assert bins.x[1] == (2 + 13) / 2


def test_slope_is_the_weighted_line_and_exact_on_a_line(drifting) -> None:
    scored = score_together(drifting({"n": 0.01, "f": 0.0}, documents=5))
    found = ledger(scored)
    told = curve(found, "past", "control")["slope"]
    y, _ = found.log_ratio("past", "control")
    line = slope(found.bins.x, y, found.bins.words)
    assert told["value"] == pytest.approx(100 * line.slope)
    assert told["p"] == pytest.approx(line.p)
    # The 97.5 % point of t with 10 degrees of freedom is 2.2281.
    half = 2.2281 * 100 * line.standard_error
    assert told["high"] - told["value"] == pytest.approx(half, rel=1e-4)
    assert told["documents"]["low"] < told["value"] < told["documents"]["high"]


def test_bootstrap_agrees_with_a_naive_one(drifting) -> None:
    scored = score_together(drifting({"n": 0.01}, months=3, documents=6, length=4))
    resampler = Resampler(scored.months, 1, 50)
    values = {name: scored.log_p(name) for name in scored.names}
    found = ledger_of(scored, bins_of(scored), resampler, values)
    # The weights themselves: a document that is drawn k times counts k times.
    weights = np.concatenate(list(resampler._weights()))
    assert weights.shape == (50, 18)
    assert (weights.reshape(50, 3, 6).sum(axis=2) == 6).all()  # as many as a month has
    excess = np.bincount(scored.doc, values["control"] - values["past"])
    for draw in range(50):
        for month in range(3):
            chosen = np.repeat(np.arange(18), weights[draw])
            here = chosen[chosen // 6 == month]
            naive = excess[here].sum() / (4 * len(here))
            assert found.log_ratio("past", "control")[1][draw, month] == pytest.approx(naive)


def test_draws_in_chunks_and_drawn_again_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    units, strata = np.arange(40.0)[:, None], np.arange(40) // 10
    kept = Resampler(strata, 5, 64)
    one = kept.sums(units, strata, 4)[1]
    monkeypatch.setattr("triaxial.temporal.resample.HELD", 0)
    other = Resampler(strata, 5, 64)
    assert np.array_equal(other.sums(units, strata, 4)[1], one)
    assert np.array_equal(kept.sums(units, strata, 4)[1], one)
    assert other._kept is None


def test_figures_that_are_not_defined() -> None:
    assert figure(math.nan, np.zeros(3)) == {"value": None, "low": None, "high": None}
    assert figure(1.0, np.asarray([1.0, math.nan])) == {"value": 1.0, "low": None, "high": None}


def test_coverage_of_the_document_bootstrap(drifting) -> None:
    """Of 40 intervals of the overall log ratio about 38 hold the truth; 33 at the very least."""
    held = 0
    for seed in range(40):
        scored = score_together(drifting({"n": 0.01}, seed=seed, months=4, documents=30, length=5))
        told = overall(ledger(scored, draws=200), "past", "control")["log_ratio"]
        held += told["low"] <= 0.015 <= told["high"]  # the mean of 0, .01, .02, .03
    assert held >= 33


def test_difference_of_slopes(drifting) -> None:
    stale = drifting({"n": 0.02}, documents=10)
    scored = score_together(
        {**stale, "kept": drifting({"n": 0.005}, documents=10)["past"]}
    )  # the same seed: the same texts and noise
    found = ledger(scored)
    told = slope_difference(found, ("past", "control"), ("kept", "control"))
    assert told["value"] == pytest.approx(1.5, abs=1e-4)  # percent a month: 2 less .5
    alike = slope_difference(found, ("past", "control"), ("past", "control"))
    assert (alike["value"], alike["p"]) == (0.0, 1.0)


def test_no_word_of_other_rows_counts(drifting) -> None:
    told = drifting({"n": 0.01, "f": 0.0}, months=4, documents=4)
    mixed = {
        name: replace(
            e,
            words=e.words.sample(fraction=1, shuffle=True, seed=1),
            documents=e.documents.sample(fraction=1, shuffle=True, seed=2),
        )
        for name, e in told.items()
    }
    one, other = (curve(ledger(score_together(t)), "past", "control") for t in (told, mixed))
    assert one == other


def test_matched_sources_take_a_shift_of_venues_away(evaluation) -> None:
    """Venue b is .5 nats staler and takes over; neither grows staler itself."""
    documents, sources, lost = [], [], []
    for month in range(6):
        for n in range(24):
            late = n < 5 + 2 * month
            documents.append((f"d{month}{n:02d}", f"2018-{month + 1:02d}", [("x", -2.0)] * 4))
            sources.append("b" if late else "a")
            lost.append(0.5 if late else 0.0)
    sources[0] = "rare"
    past = [
        (i, d, [(w, p - loss - 0.01 * (int(i[-1]) % 3)) for w, p in said])
        for (i, d, said), loss in zip(documents, lost, strict=True)
    ]
    scored = score_together(
        {
            "past": evaluation(past, sources=sources),
            "control": evaluation(documents, sources=sources, setup="control"),
        }
    )
    raw = curve(ledger(scored), "past", "control")["slope"]
    # Two of 24 documents a month change venue: .5 · 2 / 24 nats.
    assert raw["value"] == pytest.approx(100 * 0.5 * 2 / 24, abs=0.2)
    told = matched_trend(scored, bins_of(scored), "past", "control", least=4)
    assert told["sources"] == ["a", "b"]
    assert told["share"] == pytest.approx(143 / 144)  # without the one document of "rare"
    assert told["slope"]["value"] == pytest.approx(0, abs=0.1)
    assert len(told["bins"]) == 6
    none = matched_trend(scored, bins_of(scored), "past", "control", least=40)
    assert none == {"sources": [], "share": 0.0, "slope": None, "bins": []}
    with pytest.raises(InputError, match="0 documents of a source in every bin"):
        matched_trend(scored, bins_of(scored), "past", "control", least=0)
