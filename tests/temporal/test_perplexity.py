"""Perplexity by the word: pieces find their words, and figures are ratios of sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.temporal.corpus import Document, moses_words
from triaxial.temporal.perplexity import (
    DOCUMENTS,
    WORDS,
    document_tables,
    evaluate,
    perplexity,
    perplexity_by_bin,
    word_log_p,
)
from triaxial.temporal.splits import Split
from triaxial.temporal.vocabulary import VocabularyOptions, train_vocabulary
from triaxial.text import Word

TEXTS = [
    "The president's party won 1,000 seats.\nBoth houses agreed (at last).",
    "x",
    "\t A cafe\u0301 in São  Paulo, e.g. ☃☃ 男人!  ",
    "A line-\nbreak and a \u2028 separator; don't join\nwords.",
    " \n ",
    "",
]


@dataclass(frozen=True)
class Said:
    """What some model says of one text."""

    offsets: np.ndarray
    log_p: np.ndarray
    end_log_p: float | None = None
    unknown: int = 0


def said(spans: list[tuple[int, int]], log_p: list[float], **rest: Any) -> Said:
    return Said(np.asarray(spans).reshape(-1, 2), np.asarray(log_p, dtype=np.float32), **rest)


def document(text: str, name: str = "a", date: str = "2020-01-31") -> Document:
    return Document(name, date, text, "news")


def encoder(kind: str, directory: Path) -> Callable[[str], list[tuple[int, int]]]:
    """The offsets of a tokenizer of each family."""
    if kind == "wordpiece":
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        letters = "abcdefghijklmnopqrstuvwxyz0123456789"
        pieces = ["[UNK]", *letters, *(f"##{c}" for c in letters), "president", "##ty", ".", ","]
        tokenizer = Tokenizer(models.WordPiece({p: n for n, p in enumerate(pieces)}))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    else:
        from tokenizers import Tokenizer

        texts = [*TEXTS[:4], "and a of the in is was for (at last) won seats both houses " * 9]
        corpus = [document(f"{text} {n * 7919}", str(n)) for n, text in enumerate(texts * 9)]
        split = Split("s", tuple(d.id for d in corpus), (), ())
        options = VocabularyOptions(kind="bpe", size=300)
        if kind == "unigram":
            from triaxial.temporal.planted import PlantOptions, plant

            corpus = list(plant(PlantOptions(documents=96))[0])
            split = replace(split, train=tuple(d.id for d in corpus))
            options = VocabularyOptions(size=512)
        train_vocabulary(corpus, split, directory, options)
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))

    def encode(text: str) -> list[tuple[int, int]]:
        return tokenizer.encode(text, add_special_tokens=False).offsets  # type: ignore[no-any-return]

    return encode


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    kinds = ("wordpiece", "unigram", "bpe")
    return {kind: encoder(kind, tmp_path_factory.mktemp(kind)) for kind in kinds}


# Pieces to words.


def naive(text: str, spans: Sequence[tuple[int, int]], log_p: Sequence[float]) -> list[float]:
    """By the rule, piece by piece; the last entry is what stands after all words."""
    words = moses_words(text)
    sums = [0.0] * (len(words) + 1)
    for (start, end), value in zip(spans, log_p, strict=True):
        touched = [n for n, word in enumerate(words) if max(start, word.start) < min(end, word.end)]
        follows = [n for n, word in enumerate(words) if word.end > start]
        sums[(touched or follows or [len(words)])[0]] += value
    return sums


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe"])
@pytest.mark.parametrize("text", TEXTS)
def test_words_sum_up_to_their_pieces(encoders: dict[str, Any], kind: str, text: str) -> None:
    spans = encoders[kind](text)
    log_p = -np.random.default_rng(1).exponential(size=len(spans))
    score = said(spans, log_p.tolist(), end_log_p=-0.5)
    tables = document_tables([document(text)], [score])
    wanted = naive(text, spans, score.log_p.tolist())
    np.testing.assert_allclose(tables.words["log_p"].to_numpy(), wanted[:-1], atol=1e-5)
    (row,) = tables.documents.iter_rows(named=True)
    assert row["log_p"] + row["end_log_p"] == pytest.approx(log_p.sum() - 0.5, abs=1e-4)
    assert row["end_log_p"] == pytest.approx(wanted[-1] - 0.5, abs=1e-5)
    assert tables.words["pieces"].sum() <= row["pieces"] == len(spans)
    if "\n" in text.strip():  # no word over a line break, and each its text
        assert not any("\n" in text[a:b] for a, b in tables.words.select("start", "end").rows())
        for start, end, word in tables.words.select("start", "end", "text").rows():
            assert text[start:end] == word


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab .,'\n\u0301é☃-", max_size=30), st.data())
def test_any_cut_into_pieces_sums_up(text: str, data: st.DataObject) -> None:
    ends = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    spans = list(pairwise(ends))
    log_p = [-float(n + 1) for n in range(len(spans))]
    wanted = naive(text, spans, log_p)
    offsets = np.asarray(spans).reshape(-1, 2)
    sums, pieces, rest = word_log_p(moses_words(text), offsets, np.asarray(log_p))
    assert [*sums, rest] == wanted
    assert pieces.sum() <= len(spans)


def test_the_rule_by_hand() -> None:
    #        0123456789
    words = [Word("ab", 1, 3), Word("'s", 3, 5), Word("c", 7, 8)]
    spans = [(0, 1), (1, 2), (2, 4), (4, 5), (5, 6), (6, 8), (8, 9)]
    # " " before ab | a | b' over two words | s | " " before c | " c" | " " after all
    sums, pieces, rest = word_log_p(
        words, np.asarray(spans), -np.asarray([1.0, 2, 4, 8, 16, 32, 64])
    )
    assert sums.tolist() == [-7, -8, -48]
    assert pieces.tolist() == [3, 1, 2]
    assert rest == -64


def test_a_word_that_no_piece_touches_is_free_and_has_no_piece() -> None:
    sums, pieces, rest = word_log_p(
        [Word("a", 0, 1), Word("b", 2, 3)], np.asarray([[2, 3]]), np.asarray([-1.0])
    )
    assert (sums.tolist(), pieces.tolist(), rest) == ([0, -1], [0, 1], 0)


# Tables.


def test_tables_have_the_columns_that_analyses_read() -> None:
    score = said([(0, 3), (3, 8)], [-1, -2], end_log_p=None, unknown=1)
    for some, scores in (([document("Old café")], [score]), ([], [])):
        tables = document_tables(some, scores)
        assert tuple(tables.words.columns) == WORDS
        assert tuple(tables.documents.columns) == DOCUMENTS
        assert tables.words.dtypes == [
            pl.String, pl.Int32, pl.Int32, pl.Int32, pl.String, pl.Int16, pl.Float32,
        ]  # fmt: skip
        assert tables.documents.dtypes == [
            pl.String, pl.String, pl.Int32, pl.String, pl.Int32, pl.Int32, pl.Int32, pl.Float64,
            pl.Float32, pl.Int32,
        ]  # fmt: skip
    tables = document_tables([document("Old café")], [score])
    assert tables.words.rows() == [("a", 0, 0, 3, "Old", 1, -1), ("a", 1, 4, 8, "café", 1, -2)]
    month = 12 * 2020
    assert tables.documents.rows() == [("a", "2020-01-31", month, "news", 2, 2, 9, -3.0, None, 1)]


def test_evaluation_streams_and_shards_change_nothing() -> None:
    class Model:
        def score(self, texts: Sequence[str], progress: Any = None) -> list[Said]:
            progress(len(texts))
            return [said([(0, len(t))] if t else [], [-len(t)] if t else []) for t in texts]

    told: list[int] = []
    documents = [document(text, str(n)) for n, text in enumerate(TEXTS)]
    whole = list(evaluate(Model(), iter(documents), progress=told.append))
    parts = list(evaluate(Model(), iter(documents), shard=2, progress=told.append))
    assert (len(whole), len(parts), told) == (1, 3, [6, 2, 2, 2])
    for name in ("words", "documents"):
        assert pl.concat([getattr(part, name) for part in parts]).equals(getattr(whole[0], name))
    assert list(evaluate(Model(), iter([]))) == []
    with pytest.raises(InputError, match=r"^shard: is 0; it must be at least 1"):
        next(evaluate(Model(), documents, shard=0))


def test_an_empty_document_has_no_words_and_costs_its_end() -> None:
    # datasets PR #4108.
    tables = document_tables([document("")], [said([], [], end_log_p=-3.0)])
    row = tables.documents.row(0, named=True)
    assert (row["words"], row["pieces"], row["bytes"], row["log_p"]) == (0, 0, 0, 0)
    assert row["end_log_p"] == -3


# Figures.


def table(rows: list[tuple[str, int, float, int]]) -> pl.DataFrame:
    """Documents by date, words, log-probability and bytes."""
    dates, words, log_p, size = zip(*rows, strict=True)
    return pl.DataFrame(
        {"date": dates, "words": words, "log_p": log_p, "bytes": size, "unknown": [0] * len(rows)}
    )


def test_perplexity_is_the_exponential_of_a_ratio_of_sums() -> None:
    # lm-evaluation-harness #1581 (a log-likelihood), transformers #34138 (a mean of means): here
    # exp(30 / 12), not 30, nor exp((20/2 + 10/10) / 2).
    found = perplexity(table([("2020-01", 2, -20.0, 10), ("2020-02", 10, -10.0, 40)]), draws=500)
    assert found.per_word.value == pytest.approx(math.exp(30 / 12))
    assert found.bits_per_byte.value == pytest.approx(30 / math.log(2) / 50)
    assert (found.documents, found.words, found.bytes, found.valid) == (2, 12, 50, True)
    # The three resamples of two documents are all there are.
    assert found.per_word.low == pytest.approx(math.exp(1))
    assert found.per_word.high == pytest.approx(math.exp(10))


def test_intervals_shrink_with_documents_and_come_from_the_seed() -> None:
    rng = np.random.default_rng(1)
    rows = [("2020-01", 9, -float(n), 50) for n in rng.gamma(9, 3, 400)]
    few, many, again = (perplexity(table(rows[:n]), draws=300) for n in (25, 400, 400))
    assert many == again
    width = [one.per_word.high - one.per_word.low for one in (few, many)]
    assert width[1] < width[0] / 2
    assert many.per_word.low < many.per_word.value < many.per_word.high
    assert perplexity(table(rows), draws=300, seed=2).per_word != many.per_word


def test_bins_are_in_the_order_of_time() -> None:
    rows = [("2020-12-31", 1, -1.0, 9), ("2021-01-01", 1, -2.0, 9), ("2020-02", 3, -9.0, 9)]
    months = perplexity_by_bin(table(rows), draws=50)
    assert [one.bin for one in months] == ["2020-02", "2020-12", "2021-01"]
    assert [one.per_word.value for one in months] == pytest.approx(np.exp([3, 1, 2]).tolist())
    halves = perplexity_by_bin(table(rows), "half", draws=50)
    assert [(one.bin, one.words) for one in halves] == [
        ("2020-H1", 3), ("2020-H2", 1), ("2021-H1", 1),
    ]  # fmt: skip
    blank = table([*rows, ("2022-01", 0, 0.0, 1)])
    assert len(perplexity_by_bin(blank, "year", draws=50)) == 2


def test_unknown_pieces_make_it_invalid() -> None:
    # llama.cpp #28862: a run of unknown characters, however long, costs one piece.
    rows = table([("2020-01", 2, -4.0, 10)] * 3)
    assert perplexity(rows, draws=50).valid
    marked = rows.with_columns(unknown=pl.Series([0, 2, 0]))
    found = perplexity(marked, draws=50)
    assert (found.valid, found.unknown) == (False, 2)


def test_no_words_is_an_error() -> None:
    with pytest.raises(InputError, match=r"^all: no word was scored; give documents with words"):
        perplexity(table([("2020-01", 0, 0.0, 3)]))
    with pytest.raises(InputError, match="no word was scored"):
        perplexity(table([("2020-01", 0, 0.0, 3)]).head(0))
