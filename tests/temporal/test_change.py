"""The parts of the increase: they add up, and each catches what was planted for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from triaxial.temporal.change import PARTS, change, split
from triaxial.temporal.resample import Resampler, bins_of
from triaxial.temporal.words import score_together


@given(
    hnp.arrays(np.int64, (3, 6), elements=st.integers(0, 4)),
    hnp.arrays(np.float64, (3, 6, 2), elements=st.floats(-5, 5)),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_parts_add_up_whatever_is_empty(words, sums, third) -> None:
    sums = np.where(words[..., None] > 0, sums, 0.0)  # no words, no excess
    table = np.concatenate([words[..., None], sums[..., : 2 if third else 1]], axis=-1)
    mix = np.asarray([0.1, 0.2, 0.3, 0.4])
    parts = split(table, mix)
    assert parts.shape == (3, len(PARTS) + 1)
    count = words.sum(axis=1)
    whole = sums[..., : 2 if third else 1].sum(axis=(1, 2))
    for b in range(3):
        if not count[b]:
            assert np.isnan(parts[b]).all()
            continue
        assert parts[b, :-1].sum() == pytest.approx(parts[b, -1], abs=1e-9)
        assert parts[b, -1] == pytest.approx(whole[b] / count[b], abs=1e-9)


def test_parts_by_hand() -> None:
    # Words and excess: new 1, 2.0; cut 1, 1.0; topics 2, .4 and 1, .5.
    sums = np.asarray([[1, 2.0], [1, 1.0], [2, 0.4], [1, 0.5]])
    new, tokenizer, mix, contexts, whole = split(sums, np.asarray([0.5, 0.5]))
    # All 3.9 / 5 = .78; known 1.9 / 4 = .475; uncut .9 / 3 = .3; at equal topics (.2 + .5) / 2.
    assert whole == pytest.approx(0.78)
    assert new == pytest.approx(0.78 - 0.475)
    assert tokenizer == pytest.approx(0.475 - 0.3)
    assert contexts == pytest.approx(0.35)
    assert mix == pytest.approx(0.3 - 0.35)
    # .25 more a word from the tokenizer goes to it and to the whole.
    third = np.concatenate([sums, [[0.25], [0.25], [0.5], [0.25]]], axis=1)
    more = split(third, np.asarray([0.5, 0.5]))
    assert more - [new, tokenizer, mix, contexts, whole] == pytest.approx([0, 0.25, 0, 0, 0.25])


def test_slopes_and_changes_add_up_too(drifting) -> None:
    told = drifting({"n": 0.01, "e": 0.02}, months=6, documents=8)
    topics = pl.Series("topic", [n % 3 for n in range(48)], dtype=pl.Int32)
    past = replace(told["past"], documents=told["past"].documents.with_columns(topics))
    pieces = pl.when(pl.col("text") == "n0").then(2).otherwise(1).cast(pl.Int16)
    past = replace(past, words=past.words.with_columns(pieces=pieces))
    scored = score_together({"past": past, "control": told["control"]})
    new = scored.words["text"].str.starts_with("e").to_numpy()
    found = change(
        scored, bins_of(scored), Resampler(scored.months, 1, 100), "past", "control", new=new
    )["parts"]
    whole = found.pop("all")
    assert None not in found.values()
    for key in ("bins", "change"):
        for b in range(6):
            parts = sum(part[key][b]["value"] for part in found.values())
            assert parts == pytest.approx(whole[key][b]["value"], abs=1e-9)
    for key in ("slope", "level"):
        parts = sum(part[key]["value"] for part in found.values())
        assert parts == pytest.approx(whole[key]["value"], abs=1e-9)
    # Half of the words are new and fall behind by 1 % a month more than the others.
    assert found["new words"]["slope"]["value"] == pytest.approx(0.5, abs=0.25)
    assert found["known words in new contexts"]["slope"]["value"] == pytest.approx(1, abs=0.25)


def test_a_shift_of_topics_is_the_topics(evaluation) -> None:
    """Topic 1 is a nat staler from the start and grows from 1 of 4 documents to 3."""
    documents, topics, lost = [], [], []
    for month in range(3):
        for n in range(4):
            documents.append((f"{month}{n}", f"2018-{month + 1:02d}", [("x", -2.0)] * 5))
            topics.append(int(n <= month))
            lost.append(float(n <= month))
    past = [
        (i, d, [(w, p - loss) for w, p in said])
        for (i, d, said), loss in zip(documents, lost, strict=True)
    ]
    scored = score_together(
        {
            "past": evaluation(past, topics=topics),
            "control": evaluation(documents, setup="control"),
        }
    )
    resampler = Resampler(scored.months, 1, 20)
    found = change(scored, bins_of(scored), resampler, "past", "control")["parts"]
    assert found["new words"] is None  # nothing was counted
    assert [row["value"] for row in found["all"]["bins"]] == pytest.approx([25, 50, 75])
    # Half of all words are of topic 1, so that the common mix holds .5 of it.
    contexts = [row["value"] for row in found["known words in new contexts"]["bins"]]
    assert contexts == pytest.approx([50, 50, 50])
    mix = found["topic mix"]
    assert [row["value"] for row in mix["bins"]] == pytest.approx([-25, 0, 25])
    assert [row["value"] for row in mix["change"]] == pytest.approx([0, 25, 50])


def test_the_third_run_is_the_tokenizers_part(evaluation) -> None:
    def told(log_p: float, **fields):
        said = [(f"d{m}", f"2018-{m:02d}", [("x", log_p)] * 4) for m in (1, 2, 3)]
        return evaluation(said, **fields)

    scored = score_together(
        {
            "past": told(-3.0),
            "again": told(-2.5, tokenizer="control"),
            "control": told(-2.0, setup="control"),
        }
    )
    resampler = Resampler(scored.months, 1, 20)
    found = change(scored, bins_of(scored), resampler, "past", "control", retokenized="again")[
        "parts"
    ]
    assert found["tokenizer"]["level"]["value"] == pytest.approx(50)
    assert found["known words in new contexts"]["level"]["value"] == pytest.approx(50)
    assert found["all"]["level"]["value"] == pytest.approx(100)
