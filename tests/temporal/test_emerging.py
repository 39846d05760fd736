"""Emerging words, occurrences, slices by tag and topic, tokenizers, terms and their neighbours."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.temporal.emerging import (
    emerging_codes,
    emerging_figures,
    emerging_words,
    occurrence_codes,
    occurrences,
)
from triaxial.temporal.resample import Resampler, bins_of
from triaxial.temporal.slices import (
    cell_contrast,
    fragmentation,
    slices,
    tag_codes,
    topic_codes,
)
from triaxial.temporal.terms import neighbours, term_frequency
from triaxial.temporal.words import score_together

JANUARY = 12 * 2018


def counts(**words: int) -> pl.DataFrame:
    return pl.DataFrame({"text": list(words), "count": list(words.values())})


def test_the_papers_rule_at_its_borders() -> None:
    # 1,000 test words, 10,000 in training: 50 mentions are .05; a fifth of it is 100 there.
    test = counts(unseen=50, few=49, fifth=50, more=50, often=801)
    training = counts(fifth=100, more=101, often=9799)
    found = emerging_words(test, training)
    assert found["text"].to_list() == ["fifth", "unseen"]
    assert found["lower"].to_list() == [pytest.approx(5), None]
    assert found["unseen"].to_list() == [False, True]
    assert found["training"].to_list() == [100, 0]
    assert "few" in emerging_words(test, training, least=49)["text"].to_list()
    assert "more" in emerging_words(test, training, ratio=4.9)["text"].to_list()
    assert emerging_words(test, training, ratio=math.inf)["text"].to_list() == ["unseen"]
    by_month = pl.concat([test, test]).with_columns(count=pl.col("count") // 2)
    assert emerging_words(by_month, training, least=50)["text"].to_list() == ["fifth", "unseen"]


def test_a_rule_that_cannot_be_applied() -> None:
    with pytest.raises(InputError, match="at least 0 mentions and a ratio of 5"):
        emerging_words(counts(a=1), counts(a=1), least=0)
    with pytest.raises(InputError, match="training: counts with the columns text; wanted"):
        emerging_words(counts(a=1), counts(a=1).select("text"))
    with pytest.raises(InputError, match="training: no training words are counted"):
        emerging_words(counts(a=1), counts().cast({"text": pl.String, "count": pl.Int64}))


@given(
    st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=60),
    st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=60),
    st.integers(1, 4),
    st.integers(1, 6),
)
@settings(max_examples=60, deadline=None)
def test_the_rule_against_ten_naive_lines(test, training, least, ratio) -> None:
    ours, theirs = Counter(test), Counter(training)
    naive = {
        word
        for word, n in ours.items()
        if n >= least and theirs[word] * ratio * len(test) <= n * len(training)
    }
    found = emerging_words(counts(**ours), counts(**theirs), least=least, ratio=float(ratio))
    assert set(found["text"]) == naive
    assert found["mentions"].to_list() == sorted((ours[w] for w in naive), reverse=True)


def test_first_and_second_by_pieces(evaluation) -> None:
    said = [
        ("d", "2018-01", [(w, -1.0) for w in ("x", "long", "x", "x", "y", "long", "y")]),
        ("e", "2018-01", [("x", -1.0)]),
    ]
    scored = score_together({"m": evaluation(said, pieces={"long": 3})})
    # Pieces start at x 0, long 1, x 4, x 5, y 6, long 7, y 10; x again after 4, long 6, y 4.
    assert occurrence_codes(scored, "m", 4).tolist() == [0, 0, 1, -1, 0, 2, 1, 0]
    assert occurrence_codes(scored, "m", 3).tolist() == [0, 0, 2, -1, 0, 2, 2, 0]
    long = scored.words["text"].to_numpy() == "long"
    assert occurrence_codes(scored, "m", 6, long).tolist() == [-1, 0, -1, -1, -1, 1, -1, -1]
    with pytest.raises(InputError, match="m: a context of -1 pieces"):
        occurrence_codes(scored, "m", -1)


def test_perplexity_of_occurrences(evaluation) -> None:
    said = [("d", "2018-01", [("x", -6.0), ("y", -5.0), ("x", -2.0)])]
    scored = score_together({"m": evaluation(said)})
    told = occurrences(scored, bins_of(scored), Resampler(scored.months, 1, 9), {"m": 2})["m"]
    assert [row["n"] for row in told] == [2, 1, 0]
    assert told[0]["perplexity"]["value"] == pytest.approx(math.exp(5.5))
    assert told[1]["perplexity"]["value"] == pytest.approx(math.exp(2))
    assert told[2]["perplexity"] == {"value": None, "low": None, "high": None}


def test_emerging_words_cost_more(drifting) -> None:
    scored = score_together(drifting({"n": 0.0, "e": 0.0}, level={"e": 1.0}, documents=8))
    test = counts(**Counter(scored.words["text"].to_list()))
    words = emerging_words(test, counts(**{f"n{k}": 100 for k in range(5)}), least=5)
    assert sorted(words["text"]) == [f"e{k}" for k in range(5)]
    codes = emerging_codes(scored, words)
    resampler = Resampler(scored.months, 1, 200)
    told = emerging_figures(scored, bins_of(scored), resampler, {"past": "control"}, words, codes)
    assert told["mentions"] == codes.sum() == told["cells"][1]["n"]
    level = told["staler"]["past"]["level"]
    # A whole nat staler: 100 in units of 100 · nats.
    assert level["low"] < level["value"] < level["high"]
    assert level["value"] == pytest.approx(100, abs=3)
    assert abs(told["worse"]["control"]["value"]) < 10  # by chance alone
    assert told["worse"]["past"]["low"] > 80
    top = told["top"][0]
    own = scored.words.filter(pl.col("text") == top["text"])
    assert top["mentions"] == len(own)
    assert top["month"] == "2018-01"
    mean = float(own["log_p.past"].cast(pl.Float64).mean())
    assert top["perplexity"]["past"] == pytest.approx(math.exp(-mean))


def test_planted_order_of_tags_is_recovered(drifting) -> None:
    scored = score_together(drifting({"n": 0.01, "p": 0.03, "f": 0.0}, documents=15))
    codes, cells = tag_codes(scored)
    assert set(cells) == {"NOUN", "PROPN", "DET"}
    rows, ledger = slices(
        scored, bins_of(scored), Resampler(scored.months, 1, 200), {"past": "control"}, codes, cells
    )
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    steep = {row["cell"]: row["runs"]["past"]["slope"]["value"] for row in rows}
    assert [steep[tag] for tag in ("DET", "NOUN", "PROPN")] == pytest.approx([0, 1, 3], abs=0.35)
    told = cell_contrast(ledger, ("past", "control"), ["PROPN"], ["NOUN"])
    assert told["slope"]["value"] == pytest.approx(2, abs=0.4)
    assert told["slope"]["low"] > 0
    half = cell_contrast(ledger, ("past", "control"), cells, ["DET"], factor=0.5)
    assert half["slope"]["value"] == pytest.approx((0 + 1 + 3) / 3 / 2, abs=0.35)
    assert cell_contrast(ledger, ("past", "control"), ["PROPN"], []) is None


def test_topics_as_cells(evaluation) -> None:
    said = [(f"d{n}", "2018-01", [("x", -float(n + 1))] * 2) for n in range(3)]
    scored = score_together({"m": evaluation(said, topics=[7, None, 2])})
    codes, cells = topic_codes(scored)
    assert cells == ("2", "7")
    assert codes.tolist() == [1, 1, -1, -1, 0, 0]
    rows, _ = slices(
        scored, bins_of(scored), Resampler(scored.months, 1, 9), {"m": "m"}, codes, cells
    )
    assert [row["perplexity"]["m"]["value"] for row in rows] == pytest.approx(
        [math.exp(3), math.exp(1)]
    )


def test_what_has_no_tags_or_topics_is_told(evaluation) -> None:
    scored = score_together({"m": evaluation([("d", "2018-01", [("x", -1.0)])])})
    with pytest.raises(InputError, match="the words have no tags; tag them first"):
        tag_codes(scored)
    with pytest.raises(InputError, match="the documents have no topics; assign them first"):
        topic_codes(scored)


def test_fragmentation_by_hand(evaluation) -> None:
    said = [("d", "2018-01", [("aa", -4.0), ("bb", -2.0), ("cc", -1.0), ("aa", -2.0)])]
    scored = score_together(
        {
            "old": evaluation(said, pieces={"aa": 3, "bb": 1, "cc": 1}),
            "new": evaluation(said, pieces={"aa": 2, "bb": 2, "cc": 1}),
        }
    )
    told = fragmentation(scored, bins_of(scored), Resampler(scored.months, 1, 9), "old", "new")
    # (3 + 1 + 1 + 3) / 4 and (2 + 2 + 1 + 2) / 4 pieces a word.
    assert told["pieces_per_word"]["old"]["value"] == 2.0
    assert told["pieces_per_word"]["new"]["value"] == 1.75
    assert told["pieces_per_word"]["new"]["bins"] == [1.75]
    assert [(row["cell"], row["n"]) for row in told["cells"]] == [
        ("alike", 1),
        ("more pieces", 2),
        ("fewer pieces", 1),
    ]
    assert told["cells"][1]["perplexity"]["old"]["value"] == pytest.approx(math.exp(3))


def test_term_frequency_by_hand() -> None:
    table = pl.DataFrame(
        {
            "month": [JANUARY, JANUARY, JANUARY + 2, JANUARY + 4],
            "text": ["war", "peace", "war", "peace"],
            "count": [1, 3, 5, 2],
        }
    )
    (war, none) = term_frequency(table, ["war", "tea", "war"])
    # 1 of 4 words; no words in February and April; 5 of 5; 0 of 2.
    assert [row["per_million"] for row in war["bins"]] == [250_000, None, 1_000_000, None, 0]
    assert [row["count"] for row in war["bins"]] == [1, None, 5, None, 0]
    assert (war["mentions"], none["mentions"]) == (6, 0)
    quarters = term_frequency(table, ["war"], "quarter")[0]["bins"]
    assert [(row["bin"], row["count"]) for row in quarters] == [("2018-Q1", 6), ("2018-Q2", 0)]
    with pytest.raises(InputError, match="4 counts and 0 terms"):
        term_frequency(table, [])


def test_neighbours_change_with_the_months(evaluation) -> None:
    def text(other: str) -> list[tuple[str, float]]:
        return [(w, -1.0) for w in ("corona", other, ",", "the", "end", "far", "far", "far")]

    said = [(f"j{n}", "2018-01", text("beer")) for n in range(6)]
    said += [(f"m{n}", "2018-03", text("virus")) for n in range(6)]
    scored = score_together({"m": evaluation(said)})
    january, february, march = neighbours(scored, bins_of(scored), "corona", window=2, top=1)
    assert (january["mentions"], february["mentions"], march["mentions"]) == (6, None, 6)
    assert january["near"][0]["text"] == january["changed"][0]["text"] == "beer"
    assert march["changed"][0] == {
        "text": "virus", "count": 6, "log_odds": march["changed"][0]["log_odds"],
        "z": march["changed"][0]["z"],
    }  # fmt: skip
    # Beer is the only neighbour of the window (the comma is no word): share 1 of the neighbours.
    # Of January's words with a letter, in counts to the .75: the term itself does not count.
    share = 6**0.75 / (3 * 6**0.75 + 18**0.75)  # beer, the, end; far three times each
    assert january["near"][0]["ppmi"] == pytest.approx(math.log2(1 / share))
    # 12 neighbours, beer 6 of them, 6 in January: weight 6 / 12 · 6 = 3.
    odds = math.log((6 + 3) / (13 - 6 - 3)) - math.log((0 + 3) / (13 - 0 - 3))
    assert january["changed"][0]["log_odds"] == pytest.approx(odds)
    assert january["changed"][0]["z"] == pytest.approx(odds / math.sqrt(1 / 9 + 1 / 3))
    assert february["near"] == february["changed"] == []


def test_neighbours_stay_in_their_document(evaluation) -> None:
    said = [("a", "2018-01", [("x", -1.0), ("t", -1.0)]), ("b", "2018-01", [("y", -1.0)])]
    scored = score_together({"m": evaluation(said)})
    (row,) = neighbours(scored, bins_of(scored), "t", least=1)
    assert [near["text"] for near in row["near"]] == ["x"]
    with pytest.raises(InputError, match="the test words hold no 'z'"):
        neighbours(scored, bins_of(scored), "z")
    with pytest.raises(InputError, match="a window of 0 words"):
        neighbours(scored, bins_of(scored), "t", window=0)


@given(st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_occurrences_against_a_naive_loop(evaluation, texts) -> None:
    said = [(f"d{n}", "2018-01", [(w, -1.0) for w in text]) for n, text in enumerate(texts)]
    pieces = {"a": 2, "b": 1, "c": 3, "d": 1}
    scored = score_together({"m": evaluation(said, pieces=pieces)})
    naive = []
    for text in texts:
        seen: dict[str, list[int]] = {}
        at = 0
        for word in text:
            before = seen.setdefault(word, [])
            near = 1 if before and at - before[0] <= 4 else 2
            naive.append(0 if not before else near if len(before) == 1 else -1)
            before.append(at)
            at += pieces[word]
    assert np.array_equal(occurrence_codes(scored, "m", 4), naive)
