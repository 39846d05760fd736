"""Whole summaries: plain values, comparisons by what runs are, claims, signature and tables."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from triaxial.cli.temporal_tables import print_claims, print_summary
from triaxial.errors import InputError
from triaxial.temporal.analyses import SCHEMA, SummaryOptions, claims, signature, summarize
from triaxial.temporal.drift import Costs
from triaxial.temporal.paper import CLAIMS, PAPER
from triaxial.temporal.words import UNIGRAM, Evaluation

RATES = {"n": 0.01, "p": 0.04, "f": 0.0, "e": 0.05}
TRAINING = pl.DataFrame({"text": [f"{k}{n}" for k in "npf" for n in range(5)], "count": [50] * 15})


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triaxial.temporal.resample.DRAWS", 200)


def closer(evaluation: Evaluation, control: Evaluation, share: float, **fields: Any) -> Evaluation:
    """A run that has made up for a share of what the first is behind the control."""
    ours, theirs = (e.words["log_p"].cast(pl.Float64) for e in (evaluation, control))
    words = evaluation.words.with_columns(log_p=(ours + share * (theirs - ours)).cast(pl.Float32))
    sums = words.group_by("document").agg(pl.col("log_p").cast(pl.Float64).sum())
    documents = evaluation.documents.drop("log_p").join(sums, on="document", maintain_order="left")
    return replace(evaluation, words=words, documents=documents, **fields)


@pytest.fixture(scope="module")
def evaluations(drifting) -> dict[str, Evaluation]:
    told = drifting(RATES, documents=12)
    past, control = told["past"], told["control"]
    topics = pl.Series("topic", [n % 2 for n in range(len(past.documents))], dtype=pl.Int32)
    past = replace(past, documents=past.documents.with_columns(topics))
    large = drifting(RATES, documents=12)
    return {
        "past": replace(past, precision="float32"),
        "control": control,
        "all": closer(past, control, 0.5, adaptation="all"),
        "biases": closer(past, control, 0.3, adaptation="biases"),
        "past, new pieces": closer(past, control, 0.2, tokenizer="control"),
        "large": replace(large["past"], size="large"),
        "large control": replace(large["control"], size="large"),
    }


@pytest.fixture(scope="module")
def summary(evaluations) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triaxial.temporal.resample.DRAWS", 200)
        return summarize(
            evaluations,
            SummaryOptions(cutoff="2017-09", terms=("n1", "e1")),
            training=TRAINING,
            topics=[["goal", "match"], ["vote"]],
            costs={"all": {"seconds": [10, 11, 12]}, "biases": {"seconds": [6.0, 6.5, 7.0]}},
            remedies=Costs(retrain=100, percent=1, adapt=2),
            version="0.1.0",
        )


def test_plain_values_alone(summary) -> None:
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["schema"] == SCHEMA
    assert summary["words"] == 12 * 12 * 30
    assert summary["months"] == ["2018-01", "2018-12"]
    # x counts from the last month of training: January 2018 is four months after September 2017.
    assert summary["curves"]["past"]["bins"][0]["x"] == 4


def test_runs_are_compared_by_what_they_are(summary) -> None:
    controls = {name: found["control"] for name, found in summary["curves"].items()}
    assert controls == {
        "past": "control",
        "all": "control",
        "biases": "control",
        "past, new pieces": "control",
        "large": "large control",
    }
    pairs = {(row["kind"], row["new"], row["base"]) for row in summary["differences"]}
    assert pairs == {
        ("adaptation", "all", "past"),
        ("adaptation", "biases", "past"),
        ("tokenizer", "past, new pieces", "past"),
        ("size", "large", "past"),
    }
    half = next(row for row in summary["differences"] if row["new"] == "all")
    slope = summary["curves"]["past"]["slope"]["value"]
    assert half["slope"]["value"] == pytest.approx(-slope / 2, abs=1e-4)
    assert list(summary["change"]) == ["past", "all", "biases", "large"]
    assert [(t["old"], t["new"]) for t in summary["tokenizer"]] == [
        ("past", "past, new pieces"),
        ("large", "large control"),
    ]


def test_every_claim_is_answered(summary) -> None:
    answers = {row["claim"]: row["answer"] for row in summary["claims"]}
    assert list(answers) == list(CLAIMS)
    assert answers == {
        "increase": "yes",
        "distance": "yes",
        "words": "yes",
        "emerging": "yes",
        "dynamic": "yes",
        "cheaper": "yes",
        "size": "yes",  # the same tables twice: a difference of exactly 0
        "tokenizer": "yes",
    }
    told = {row["claim"]: row for row in summary["claims"]}
    # 6.5 of 11 seconds; 6 of 12 and 7 of 10 at the ends.
    cheap = [told["cheaper"][k] for k in ("difference", "low", "high", "n")]
    assert cheap == pytest.approx([100 * (6.5 / 11 - 1), -50, -30, 6])
    assert told["increase"]["n"] == summary["words"]
    # Nouns hold the emerging words of the tables, the only other open class here.
    assert any("PROPN - NOUN" in test["test"] for test in told["words"]["tests"])
    assert not any("open classes" in test["test"] for test in told["words"]["tests"])


def test_claims_that_fail_or_cannot_be_told(summary) -> None:
    def answer(claim: str, **changes: Any) -> dict[str, Any]:
        return next(row for row in claims({**summary, **changes}) if row["claim"] == claim)

    few = {"all": {"seconds": [10.0]}, "biases": {"seconds": [6.0]}}
    assert answer("cheaper", costs=few)["answer"] == "undecided"  # one run each is no measurement
    slow = {"all": {"seconds": [5, 5, 5]}, "biases": {"seconds": [6, 7, 8]}}
    assert answer("cheaper", costs=slow)["answer"] == "no"
    assert answer("cheaper", costs=None)["answer"] == "not measured"
    assert answer("emerging", emerging=None)["answer"] == "not measured"
    assert answer("words", tags=None)["answer"] == "not measured"
    assert answer("dynamic", differences=[])["answer"] == "not measured"
    size = next(row for row in summary["differences"] if row["kind"] == "size")
    for low, high, wanted in ((0.1, 0.2, "no"), (-0.1, 0.2, "yes"), (-9.0, 9.0, "undecided")):
        slope = size["slope"] | {"value": (low + high) / 2, "low": low, "high": high}
        assert answer("size", differences=[size | {"slope": slope}])["answer"] == wanted
    curves = json.loads(json.dumps(summary["curves"]))
    curves["past"]["slope"] |= {"value": 0.1, "low": -0.1, "high": 0.3}
    wrong = answer("distance", curves=curves)
    assert (wrong["answer"], wrong["decided_by"]) == ("undecided", "slope of past")
    curves["past"]["slope"] |= {"value": -0.2, "low": -0.3, "high": -0.1}
    assert answer("distance", curves=curves)["answer"] == "no"


def test_a_stationary_test_claims_nothing(drifting) -> None:
    told = summarize(drifting({"n": 0.0, "p": 0.0, "f": 0.0}, seed=4), training=TRAINING)
    answers = {row["claim"]: row["answer"] for row in told["claims"]}
    assert answers["distance"] == "undecided"
    assert "yes" not in answers.values()
    assert told["emerging"]["words"] == 0
    assert told["occurrences"]["emerging"] is None


def test_without_a_control_the_trend_is_the_unigrams(drifting) -> None:
    past = drifting({"n": 0.05}, documents=10)["past"]
    told = summarize({"past": past})
    assert told["curves"]["past"]["control"] == UNIGRAM
    assert told["curves"]["past"]["control_kind"] == "unigram"
    assert told["drift"]["past"]["drifts"] == "yes"
    assert told["curves"]["past"]["slope"]["value"] == pytest.approx(5, abs=1)
    # Never the paper's CONTROL: no claim rests on it.
    assert {row["answer"] for row in told["claims"]} == {"not measured"}
    assert f"control:{UNIGRAM}" in signature(told, "past")
    assert signature(told, "past").startswith("PPL = ")
    assert told["change"]["past"]["parts"]["tokenizer"] is None
    assert told["tokenizer"] == []


def test_what_does_not_fit_is_refused(evaluations) -> None:
    with pytest.raises(InputError, match="all runs are controls"):
        summarize({"control": evaluations["control"]})
    with pytest.raises(InputError, match="'control' and 'other' are both the control of size ''"):
        summarize({name: evaluations["control"] for name in ("control", "other")})
    with pytest.raises(InputError, match="--cutoff: '2017-13' is not a month; wanted YYYY-MM"):
        summarize(evaluations, SummaryOptions(cutoff="2017-13"))


def test_signature(summary) -> None:
    line = signature(summary, "past")
    found = summary["curves"]["past"]["overall"]["percent"]
    assert line.startswith(
        f"Δ% = {found['value']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}]"
    )
    assert line.endswith(
        "| run:past | model:made up | control:control | context:64 | precision:float32 | "
        "months:2018-01..2018-12 | bin:month | n:4320 | v:0.1.0"
    )
    assert " | adapt:biases | " in signature(summary, "biases")
    assert signature(summary, "control").startswith("PPL = ")


def test_unknown_pieces_make_a_run_invalid(drifting) -> None:
    told = drifting({"n": 0.0}, months=3, documents=2)
    told["past"] = replace(
        told["past"], documents=told["past"].documents.with_columns(unknown=pl.lit(2))
    )
    found = summarize(told)
    assert (found["runs"]["past"]["unknown"], found["runs"]["past"]["valid"]) == (12, False)
    assert "INVALID:unknown" in signature(found, "past")
    assert "WARNING: past: 12 unknown pieces; its perplexity is not valid" in shown(found)


def test_order_of_rows_and_seed(evaluations) -> None:
    some = {name: evaluations[name] for name in ("past", "control")}
    mixed = {
        name: replace(
            e,
            words=e.words.sample(fraction=1, shuffle=True, seed=1),
            documents=e.documents.sample(fraction=1, shuffle=True, seed=2),
        )
        for name, e in some.items()
    }
    one, other = (summarize(e, training=TRAINING) for e in (some, mixed))
    assert json.dumps(one) == json.dumps(other)
    again = summarize(some, SummaryOptions(seed=2), training=TRAINING)
    low = [s["curves"]["past"]["overall"]["percent"]["low"] for s in (one, again)]
    assert low[0] != low[1]
    assert np.isclose(*low, rtol=0.1)


def test_tables_fit_and_say_what_they_should(summary) -> None:
    text = shown(summary)
    assert max(len(line) for line in text.splitlines()) <= 120
    for word in ("22.45", "PROPN - NOUN", "goal match", "2018-12", "known words in new contexts"):
        assert word in text
    for title in ("Drift", "Retrain or adapt", "Mentions per million words", "The paper's claims"):
        assert title in text
    console = Console(file=io.StringIO(), width=120)
    print_claims(console, [])
    # Markup in names is text.
    odd = json.loads(json.dumps(summary).replace("past, new pieces", "[bold]odd[/bold]"))
    assert "[bold]odd[/bold]" in shown(odd)


def test_the_papers_figures_agree_with_one_another() -> None:
    told = {(f.corpus, f.figure, f.note): f.value for f in PAPER}
    stale, fresh = (told["WMT", "perplexity", n] for n in ("time-stratified", "control"))
    assert stale - fresh == pytest.approx(told["WMT", "delta", ""])
    assert 100 * (stale / fresh - 1) == pytest.approx(told["WMT", "percent", ""], abs=0.02)
    other = told["WMT", "perplexity", "time-stratified, control's tokenizer"]
    assert stale - other == pytest.approx(told["WMT", "tokenizer delta", "of the 1.34"])
    german = [told["German WMT", "perplexity", n] for n in ("time-stratified", "control")]
    assert 100 * (german[0] / german[1] - 1) == pytest.approx(15.23, abs=0.01)


def shown(summary: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    print_summary(console, summary)
    return console.file.getvalue()
