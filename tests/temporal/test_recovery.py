"""Planted drift through the whole analysis, read by counting models: what was planted comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from triaxial.temporal.analyses import SummaryOptions, summarize
from triaxial.temporal.corpus import Document, month_of, moses_words
from triaxial.temporal.planted import PlantOptions, Truth, plant
from triaxial.temporal.words import training_counts

PLANT = {"documents": 1440, "months": 48, "sentences": 4, "drift": 0.4, "new_words": 12}
TEST = 16  # months


def counting_model(training: Sequence[Document], truth: Truth, types: int) -> Any:
    """p(word | topic of the document): counts of a training set, smoothed by .1."""
    counts: dict[str, Counter[str]] = {}
    for document in training:
        counter = counts.setdefault(truth.topics[document.id], Counter())
        counter.update(word.text for word in moses_words(document.text))
    sizes = {topic: counter.total() for topic, counter in counts.items()}

    def log_p(text: str, topic: str) -> float:
        return float(np.log((counts[topic][text] + 0.1) / (sizes[topic] + 0.1 * types)))

    return log_p


def tag(text: str, truth: Truth) -> str:
    low = text.lower()
    if low in truth.function:
        return "DET"
    return "PROPN" if text[0].isupper() else "NOUN" if text[0].isalpha() else "PUNCT"


def summary_of(evaluation: Any, *, stationary: bool, seed: int) -> dict[str, Any]:
    documents, truth = plant(PlantOptions(**PLANT, stationary=stationary, seed=seed))
    first = month_of(documents[-1].date) - TEST + 1
    late = [d for d in documents if month_of(d.date) >= first]
    test = late[::2]
    past = [d for d in documents if month_of(d.date) < first - 3]
    # As many, from the end backwards, without the test documents.
    barred = {d.id for d in test}
    fresh = [d for d in reversed(documents) if d.id not in barred][: len(past)]
    types = len({w.text for d in documents for w in moses_words(d.text)})
    tables = {}
    for name, training in (("past", past), ("control", fresh)):
        model = counting_model(training, truth, types)
        said = [
            (
                d.id,
                d.date,
                [(w.text, model(w.text, truth.topics[d.id])) for w in moses_words(d.text)],
            )
            for d in test
        ]
        setup = "time-stratified" if name == "past" else "control"
        made = evaluation(said, setup=setup, context=100)
        tags = pl.Series("tag", [tag(text, truth) for text in made.words["text"]])
        tables[name] = type(made)(
            made.words.with_columns(tags), made.documents, name, setup=setup, context=100
        )
    options = SummaryOptions(cutoff=past[-1].date[:7], least=10, seed=seed)
    told = summarize(tables, options, training=training_counts(past))
    told["planted"] = {word for word, month in truth.new.items() if month_of(month) >= first - 3}
    return told


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triaxial.temporal.resample.DRAWS", 200)


def test_the_planted_order_is_recovered(evaluation) -> None:
    told = summary_of(evaluation, stationary=False, seed=1)
    assert told["drift"]["past"]["drifts"] == "yes"
    answers = {row["claim"]: row["answer"] for row in told["claims"]}
    assert (answers["increase"], answers["distance"], answers["emerging"]) == ("yes",) * 3
    found = {word["text"] for word in told["emerging"]["top"]}
    assert told["planted"] & found  # those with enough mentions
    rows = {row["cell"]: row["runs"]["past"]["increase"]["value"] for row in told["tags"]["rows"]}
    assert abs(rows["DET"]) < 2 < rows["NOUN"] < rows["PROPN"]
    worst = told["emerging"]["cells"][1]["runs"]["past"]["increase"]["value"]
    assert worst > 3 * rows["PROPN"]
    parts = told["change"]["past"]["parts"]
    assert parts["new words"]["level"]["value"] > 0
    # A repeated new word is no surprise to a model that counts a document's words; this one does
    # not: its second occurrence costs it what the first does, as far as they are the same words.
    first, second, _ = told["occurrences"]["emerging"]["past"]
    ratio = first["perplexity"]["value"] / second["perplexity"]["value"]
    assert ratio == pytest.approx(1, abs=0.25)


def test_nothing_is_found_where_nothing_was_planted(evaluation) -> None:
    verdicts = []
    for seed in range(3):
        told = summary_of(evaluation, stationary=True, seed=seed)
        verdicts.append((told["drift"]["past"]["drifts"], told["drift"]["past"]["alarm"]["alarm"]))
        assert abs(told["curves"]["past"]["overall"]["percent"]["value"]) < 0.5
        assert told["emerging"]["words"] == 0
    assert sum(found == ("no", None) for found in verdicts) >= 2
