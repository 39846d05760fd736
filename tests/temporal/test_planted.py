"""What was planted can be counted in the texts."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from triaxial.errors import InputError
from triaxial.temporal.corpus import Document, month_of
from triaxial.temporal.dedup import near_duplicates
from triaxial.temporal.planted import PlantOptions, Truth, plant

Planted = tuple[tuple[Document, ...], Truth]
SOME = PlantOptions(documents=6000, months=48, new_words=8)


@pytest.fixture(scope="module")
def planted() -> Planted:
    return plant(SOME)


@pytest.fixture(scope="module")
def still() -> Planted:
    return plant(replace(SOME, stationary=True))


def tokens(document: Document) -> list[str]:
    return re.findall(r"[A-Za-z]+", document.text)


def by_month(documents: tuple[Document, ...], words: frozenset[str] | set[str]) -> np.ndarray:
    """Share of these words among all, by month."""
    hits: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for document in documents:
        found = tokens(document)
        total[month_of(document.date)] += len(found)
        hits[month_of(document.date)] += sum(
            word in words or word.lower() in words for word in found
        )
    return np.array([hits[month] / total[month] for month in sorted(total)])


def test_documents_are_dated_in_order_and_spread_evenly(planted: Planted) -> None:
    documents, truth = planted
    assert len({document.id for document in documents}) == len(documents) == 6000
    places = [(document.date, document.id) for document in documents]
    assert places == sorted(places)
    months = Counter(document.date[:7] for document in documents)
    assert (min(months), max(months), set(months.values())) == ("2010-01", "2013-12", {125})
    assert truth.topics.keys() == {document.id for document in documents}
    # Six sentences on average.
    sentences = sum(document.text.count(".") for document in documents)
    assert 5.8 < sentences / len(documents) < 6.2


def test_every_word_is_a_planted_one(planted: Planted) -> None:
    documents, truth = planted
    known = truth.function | truth.content.keys() | truth.new.keys()
    seen = {word for document in documents for word in tokens(document)}
    assert {w for w in seen if w not in known and w.lower() not in known} == set()
    assert truth.function & {w.lower() for w in truth.content} == set()
    assert {"the", "and", "of", "because", "they"} <= truth.function
    assert truth.content["minister"] == "politics"


def test_new_words_are_not_there_before_their_month(planted: Planted) -> None:
    documents, truth = planted
    counted: Counter[str] = Counter()
    first: dict[str, str] = {}
    for document in documents:
        for word in tokens(document):
            if word in truth.new:
                counted[word] += 1
                first.setdefault(word, document.date[:7])
    assert counted == truth.mentions
    assert all(count > 20 for count in counted.values())
    # Every fourth and a half month from 2011-01 on, and used at once.
    assert list(truth.new.values())[:3] == ["2011-01", "2011-05", "2011-10"]
    late = [month_of(first[word]) - month_of(month) for word, month in truth.new.items()]
    assert all(0 <= months <= 1 for months in late)


def test_new_words_come_back_in_their_document(planted: Planted) -> None:
    documents, truth = planted
    times = [Counter(w for w in tokens(d) if w in truth.new) for d in documents]
    assert max(len(found) for found in times) == 1
    counts = [found.total() for found in times if found]
    assert 0.5 < np.mean([count > 1 for count in counts]) < 0.99


def test_function_words_are_flat_and_new_words_rise(planted: Planted) -> None:
    documents, truth = planted
    years = np.arange(48) / 12
    flat = by_month(documents, truth.function)
    # Of 6,000 words a month, half are function words: the standard error is .006.
    assert abs(np.polyfit(years, flat, 1)[0]) < 0.005
    assert flat.std() < 0.02
    new = by_month(documents, set(truth.new))
    assert new[:12].max() == 0
    assert 0.002 < new[12:24].mean() < new[24:36].mean() < new[36:].mean()


def test_content_words_and_topics_drift_at_their_rates(planted: Planted) -> None:
    documents, truth = planted
    first = Counter(w for d in documents[:2000] for w in tokens(d))
    last = Counter(w for d in documents[-2000:] for w in tokens(d))
    # The log share within a topic changes by rate x 32/12 years, but for a constant.
    names = [w for w in truth.content if truth.content[w] == "health" and first[w] and last[w] > 30]
    seen = [np.log(last[w] / first[w]) for w in names]
    planned = [truth.rates[w] for w in names]
    assert len(names) > 20
    assert np.corrcoef(seen, planned)[0, 1] > 0.7
    ends = [truth.topic_shares[month] for month in ("2010-01", "2013-12")]
    for topic, share in ends[1].items():
        drawn = sum(truth.topics[d.id] == topic for d in documents[-1000:]) / 1000
        assert abs(drawn - share) < 0.05
    # A log share changes by -.1 to +.1 a year, the largest and the least by +-.39 in 47 months.
    changes = sorted(np.log(ends[1][topic] / ends[0][topic]) for topic in ends[0])
    assert changes[-1] - changes[0] == pytest.approx(0.2 * 47 / 12)


def test_nothing_drifts_in_a_stationary_corpus(still: Planted) -> None:
    documents, truth = still
    assert set(truth.rates.values()) == {0.0}
    assert set(truth.new.values()) == {"2010-01"}
    years = np.arange(48) / 12
    for words in (truth.function, set(truth.new), set(truth.content)):
        share = by_month(documents, words)
        # Each month's share scatters; its trend stays within three standard errors.
        slope, error = np.polyfit(years, share, 1)[0], share.std() / (years.std() * 48**0.5)
        assert abs(slope) < 3 * error
    shares = np.array([list(each.values()) for each in truth.topic_shares.values()])
    assert np.allclose(shares, 1 / 6)


def test_the_same_options_give_the_same_documents() -> None:
    few = replace(SOME, documents=300, months=12)
    assert plant(few) == plant(few)
    assert plant(replace(few, seed=2))[0] != plant(few)[0]


def test_no_two_documents_are_near_duplicates(planted: Planted) -> None:
    assert near_duplicates(planted[0]) == ()


def test_taggers_see_what_was_meant(planted: Planted) -> None:
    from triaxial.models.tagger import load_tagger

    documents, truth = planted
    tagged: Counter[tuple[str, str]] = Counter()
    sentences = [tokens(document) for document in documents[-100:]]
    for words, tags in zip(sentences, load_tagger().tag(sentences), strict=True):
        for word, tag in zip(words, tags, strict=True):
            if word in truth.new:
                tagged[("name" if word.istitle() else "noun"), tag.pos] += 1
            elif word in ("reform", "clinic", "signal", "league"):
                tagged["noun", tag.pos] += 1
            elif word in ("the", "and", "of", "because"):
                tagged["function", tag.pos] += 1
    open_class = {"NOUN", "VERB", "ADJ", "ADV", "PROPN"}
    assert {pos for kind, pos in tagged if kind == "noun"} == {"NOUN"}
    assert {pos for kind, pos in tagged if kind == "name"} == {"PROPN"}
    assert open_class & {pos for kind, pos in tagged if kind == "function"} == set()


def test_twenty_thousand_documents_take_seconds() -> None:
    start = time.process_time()
    documents, _ = plant(replace(SOME, documents=2000))
    # The bar is 10 s for all; .3 s alone for these, and some time for the tables of 48 months.
    assert (len(documents), time.process_time() - start < 1.5) == (2000, True)


def test_no_new_words_and_odd_numbers() -> None:
    documents, truth = plant(PlantOptions(documents=7, months=3, new_words=0, first="2020-11"))
    assert Counter(document.date[:7] for document in documents) == {
        "2020-11": 2,
        "2020-12": 2,
        "2021-01": 3,
    }
    assert truth.new == truth.mentions == {}


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        (PlantOptions(documents=0), "0 documents of 6 sentences in 96 months; wanted at least 1"),
        (PlantOptions(new_share=1.5), "24 new words in a share of 1.5 of the documents; wanted 0"),
        (PlantOptions(first="2010"), "'2010' is not a month; write it as 2010-01"),
    ],
)
def test_options_out_of_range_are_refused(options: PlantOptions, seen: str) -> None:
    with pytest.raises(InputError, match=f"^{seen}"):
        plant(options)
