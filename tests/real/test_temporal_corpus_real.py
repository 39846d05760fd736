"""The two real corpora, read, cleaned and split completely; figures from the README beside them."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from triaxial.temporal.corpus import (
    CorpusOptions,
    Document,
    cut_source,
    data_card,
    moses_words,
    read_documents,
    shard_documents,
)
from triaxial.temporal.dedup import language_of, near_duplicates
from triaxial.temporal.splits import Entry, SplitOptions, make_splits, validate_splits
from triaxial.text import words

YEARS = dict(
    zip(
        [str(year) for year in range(2016, 2026)],
        [1614, 2433, 3379, 4236, 6340, 5774, 7853, 5519, 8388, 4980],
        strict=True,
    )
)


def read(shared: Path, name: str) -> list[Document]:
    options = CorpusOptions(crawled="2025-12")
    reading = read_documents(str(shared / "data" / "time" / f"{name}.jsonl.gz"), options)
    documents = list(reading.documents)
    assert (reading.dropped, reading.flagged) == ({}, {})
    return documents


@pytest.fixture(scope="module")
def acl(shared: Path) -> list[Document]:
    return read(shared, "acl_abstracts")


@pytest.fixture(scope="module")
def beige(shared: Path) -> list[Document]:
    return read(shared, "beige_book")


@pytest.mark.parametrize(
    ("name", "documents", "count", "megabytes", "months", "first", "last"),
    [
        ("acl_abstracts", 50_516, 7_634_984, 53.9, 89, "2016-01", "2025-11"),
        ("beige_book", 5_691, 5_547_475, 36.6, 438, "1970-05", "2020-05"),
    ],
)
def test_the_counts_of_the_readme(
    shared: Path,
    name: str,
    documents: int,
    count: int,
    megabytes: float,
    months: int,
    first: str,
    last: str,
) -> None:
    start = time.process_time()
    found = read(shared, name)
    card = data_card((d.date, len(d.text.split())) for d in found)
    assert (card.documents, card.words) == (documents, count)
    assert round(sum(len(d.text.encode()) for d in found) / 1e6, 1) == megabytes
    assert (card.months[0].month, card.months[-1].month) == (first, last)
    assert sum(month.documents > 0 for month in card.months) == months
    if name == "acl_abstracts":
        assert Counter(d.date[:4] for d in found) == YEARS
        assert sum(month.documents == 0 for month in card.months) == 30
        assert {d.date[-2:] for d in found} == {"01"}
    assert time.process_time() - start < 30  # 3 s alone


def test_shards_of_a_real_file(shared: Path, beige: list[Document]) -> None:
    path = str(shared / "data" / "time" / "beige_book.jsonl.gz")
    shards = cut_source(path, rows=3000)
    parts = [list(shard_documents(path, shard).documents) for shard in shards]
    assert [len(part) for part in parts] == [3000, 2691]
    assert [document for part in parts for document in part] == beige


def test_real_documents_have_the_words_of_the_tokenizer(
    acl: list[Document], beige: list[Document]
) -> None:
    for document in [*acl[::1000], *beige[::400]]:
        assert moses_words(document.text) == words(document.text)


def test_real_documents_are_english(acl: list[Document], beige: list[Document]) -> None:
    # 2,000 abstracts and 1,897 reports were all told to be English; here a quarter of them.
    found = Counter(language_of(document.text)[0] for document in [*acl[::100], *beige[::12]])
    assert found.keys() == {"en"}
    assert found.total() == 506 + 475


def test_no_report_and_a_dozen_abstracts_repeat_an_earlier_one(
    acl: list[Document], beige: list[Document]
) -> None:
    start = time.process_time()
    assert near_duplicates(beige) == ()
    found = near_duplicates(acl)
    assert len(found) == 12  # a workshop's and the conference's version of a paper
    dates = {document.id: (document.date, document.id) for document in acl}
    assert all(dates[one.of] < dates[one.id] for one in found)
    assert all(one.similarity >= 0.8 for one in found)
    assert time.process_time() - start < 60  # 15 s alone


def test_real_corpora_are_split_without_a_leak(acl: list[Document], beige: list[Document]) -> None:
    # Months of proceedings are uneven, so by year; editions of reports stay whole.
    cases = [
        (acl, SplitOptions("2022-01", "2024-12", 500, 6, 6, bin="year"), 19_808),
        (beige, SplitOptions("2014-01", "2019-12", 52, bin="year", unit="group"), 4_990),
    ]
    for documents, options, size in cases:
        entries = [Entry(d.id, d.date, len(d.text.split()), d.date) for d in documents]
        splits = make_splits(entries, options)
        assert [len(split.train) for split in splits] == [size, size]
        given = beige if documents is beige else None
        assert validate_splits(entries, splits, options, documents=given) == ()
