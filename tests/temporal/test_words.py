"""Evaluations side by side: what is refused, order, counts, and the unigram control."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from triaxial.errors import InputError
from triaxial.temporal.corpus import Document
from triaxial.temporal.words import (
    PRIOR,
    UNIGRAM,
    counts_by_month,
    score_together,
    training_counts,
    unigram_control,
)

DOCS = [
    ("b", "2018-02-03", [("a", -1.0), ("b", -2.0)]),
    ("a", "2018-01-05", [("a", -3.0), ("c", -0.5), ("a", -1.5)]),
]


def test_one_order_whatever_the_order_of_the_rows(evaluation) -> None:
    one = evaluation(DOCS)
    mixed = replace(
        one,
        words=one.words.sample(fraction=1, shuffle=True, seed=3),
        documents=one.documents.reverse(),
    )
    scored = score_together({"x": one, "y": mixed})
    assert scored.documents["document"].to_list() == ["a", "b"]  # January first
    assert scored.words["text"].to_list() == ["a", "c", "a", "a", "b"]
    assert scored.log_p("x").tolist() == scored.log_p("y").tolist() == [-3, -0.5, -1.5, -1, -2]
    assert scored.doc.tolist() == [0, 0, 0, 1, 1]


def test_tags_and_topics_come_from_whoever_has_them(evaluation) -> None:
    said = [("d", "2018-01", [("n1", -1.0), ("f1", -1.0)])]
    with_both = evaluation(said, tags=True, topics=[4])
    scored = score_together({"x": evaluation(said), "y": with_both})
    assert scored.words["tag"].to_list() == ["NOUN", "DET"]
    assert scored.documents["topic"].to_list() == [4]


def test_a_name_with_signs_of_patterns(evaluation) -> None:
    scored = score_together({"x": evaluation(DOCS), "a+b (1.0)": evaluation(DOCS)})
    assert scored.log_p("a+b (1.0)").tolist() == scored.log_p("x").tolist()


def test_what_is_refused(evaluation) -> None:
    good = evaluation(DOCS)
    with pytest.raises(InputError, match="no evaluation; wanted at least one"):
        score_together({})
    with pytest.raises(InputError, match="x: setup 'new'; wanted 'time-stratified' or 'control'"):
        score_together({"x": replace(good, setup="new")})
    with pytest.raises(InputError, match="without the columns pieces"):
        score_together({"x": replace(good, words=good.words.drop("pieces"))})
    with pytest.raises(InputError, match="no document stands in the documents table at all"):
        score_together({"x": replace(good, documents=good.documents.clear())})
    twice = pl.concat([good.documents, good.documents.head(1)])
    with pytest.raises(InputError, match="'b' stands in the documents table twice"):
        score_together({"x": replace(good, documents=twice)})
    with pytest.raises(InputError, match="words of the document 'a', which has no row"):
        score_together({"x": replace(good, documents=good.documents.head(1))})
    losses = good.words.with_columns(-pl.col("log_p"))  # a loss is not a log-probability
    with pytest.raises(InputError, match=r"log p 3\.0 of word 0 of 'a'; wanted natural log-prob"):
        score_together({"x": replace(good, words=losses)})
    with pytest.raises(InputError, match="the words of the document 'a' do not add up"):
        score_together({"x": replace(good, words=good.words.head(4))})
    shifted = good.words.with_columns(pl.col("word") + (pl.col("document") == "b").cast(pl.Int32))
    with pytest.raises(InputError, match="the words of the document 'b' do not add up"):
        score_together({"x": replace(good, words=shifted)})
    with pytest.raises(InputError, match="y: 1 documents are in only one of 'x' and 'y', such as"):
        score_together({"x": good, "y": evaluation(DOCS[:1])})
    other = evaluation([DOCS[0], ("a", "2018-01-05", [("a", -3.0), ("b", -0.5), ("a", -1.5)])])
    with pytest.raises(InputError, match="y: its words are not those of 'x'"):
        score_together({"x": good, "y": other})


def test_counts(evaluation) -> None:
    january, february = 12 * 2018, 12 * 2018 + 1
    found = counts_by_month(score_together({"x": evaluation(DOCS)}))
    assert found.rows() == [
        (january, "a", 2),
        (january, "c", 1),
        (february, "a", 1),
        (february, "b", 1),
    ]
    texts = [
        Document("1", "2018-02-01", "A man doesn't, a man.", "s"),
        Document("2", "2018-02", "man", "s"),
    ]
    counts = dict(training_counts(texts).select("text", "count").iter_rows())
    # Moses words: A man doesn 't , a man .
    assert counts == {"A": 1, "man": 3, "doesn": 1, "'t": 1, ",": 1, "a": 1, ".": 1}


def test_unigram_control_by_hand_and_naively(evaluation) -> None:
    docs = [*DOCS, ("c", "2018-01-09", [("a", -1.0), ("d", -1.0)])]
    scored = unigram_control(score_together({"x": evaluation(docs)}))
    # Document a, word "a": its month without it holds "a d" (n 2, c 1); all months without it hold
    # "a d a b" (n 4, c 2); four types: q = (2 + 1) / (4 + 4).
    by_hand = math.log((1 + PRIOR * 3 / 8) / (2 + PRIOR))
    assert scored.log_p(UNIGRAM)[0] == pytest.approx(by_hand, abs=1e-12)
    naive = []
    for name, date, said in sorted(docs, key=lambda d: (d[1][:7], d[1], d[0])):
        rest = [(w, d) for other, d, s in docs if other != name for w, _ in s]
        month = [w for w, d in rest if d[:7] == date[:7]]
        for word, _ in said:
            q = (sum(w == word for w, _ in rest) + 1) / (len(rest) + 4)
            naive.append(math.log((month.count(word) + PRIOR * q) / (len(month) + PRIOR)))
    np.testing.assert_allclose(scored.log_p(UNIGRAM), naive, atol=1e-12)
    assert scored.names == ("x", UNIGRAM)
