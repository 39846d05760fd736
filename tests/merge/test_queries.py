"""Masked queries: asked once, kept in the cache, the weights read only when needed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triaxial.errors import StoreError
from triaxial.merge.propose import ProposeOptions
from triaxial.merge.queries import MaskedSource, ask, judge_slots
from triaxial.merge.targets import TargetOptions, shared_slots

Tiny = Callable[..., Path]
TEXT = "A man is playing a guitar in the park dog cat piano sleeps The Dogs big red . ,"
TABLE = "NOUN sing: man guitar park dog\nVERB 3sg: sleeps\nVERB ing: playing\nADJ pos: big zebra"
PAIRS = [
    ("A man is playing a guitar.", "The man sleeps, a man is playing."),
    ("A dog is playing a guitar.", "The dog is playing a guitar."),
    ("A man is playing a guitar.", "The man sleeps, a man is playing."),
]


def source(tiny: Tiny, toy: SimpleNamespace, cache: Any = None, **options: Any) -> MaskedSource:
    kept = toy.cache() if cache is None else cache

    def open_cache(fingerprint: Any, k: int, schema: Any) -> Any:
        kept.schema, kept.opened = schema, (dict(fingerprint), k)
        return kept

    name = str(tiny("masked", "bert", TEXT))
    return MaskedSource(name, "tiny", "fp32", options.pop("k", 10), open_cache, device="cpu")


def asked(toy: SimpleNamespace, lm: Any, *pairs: tuple[str, str], **options: Any) -> Any:
    seeds = toy.seeds(toy.tagger(TABLE), *(pairs or PAIRS))
    slots = [shared_slots(seed, TargetOptions())[0] for seed in seeds]
    rows = ask(seeds, slots, lm, ProposeOptions(**options))
    return seeds, slots, rows, [q for row in rows for one in row for q in one.queries]


def test_each_distinct_query_is_computed_once(tiny: Tiny, toy: SimpleNamespace) -> None:
    lm = source(tiny, toy)
    *_, queries = asked(toy, lm)
    distinct = {query.key for query in queries}
    assert len(distinct) < len(queries)
    assert lm.compute(queries) == len(distinct)
    assert lm.cache.added == [len(distinct)]
    # Those that differ in the hidden word alone share a forward: "A [MASK] is playing a guitar."
    assert lm.work["rows"] == len({(q.ids, q.types) for q in queries}) < len(distinct)
    before = lm.work
    assert lm.compute(queries) == 0
    assert lm.work == before


def test_a_filled_cache_needs_no_weights(
    tiny: Tiny, toy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = source(tiny, toy)
    *_, queries = asked(toy, first)
    first.compute(queries)
    monkeypatch.setattr("triaxial.models.masked.load_masked", lambda *_, **__: pytest.fail("read"))
    again = source(tiny, toy, first.cache)
    assert again.compute(queries) == 0
    assert again.work == {"forwards": 0, "rows": 0, "tokens": 0, "padded": 0}
    one, other = first.look_up(queries), again.look_up(queries)
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.log_p, other.log_p)


def test_answers_come_in_the_order_asked(tiny: Tiny, toy: SimpleNamespace) -> None:
    from triaxial.models.masked import load_masked

    lm = source(tiny, toy)
    *_, queries = asked(toy, lm)
    lm.compute(queries[3:])
    lm.compute(queries)
    fill = lm.look_up(queries[::-1])
    direct = load_masked(str(tiny("masked", "bert", TEXT)), device="cpu").fill(queries[::-1], 10)
    assert fill.ids.shape == (len(queries), 10)
    np.testing.assert_allclose(fill.log_p, direct.log_p, atol=1e-5)
    np.testing.assert_allclose(fill.log_p_target, direct.log_p_target, atol=1e-5)


def test_a_query_that_is_not_in_the_store(tiny: Tiny, toy: SimpleNamespace) -> None:
    lm = source(tiny, toy)
    *_, queries = asked(toy, lm)
    lm.compute(queries[:1])
    missing = len(queries) - sum(q.key == queries[0].key for q in queries)
    expected = f"^tiny: {missing} masked queries are not in this store; "
    with pytest.raises(StoreError, match=expected):
        lm.look_up(queries)


def test_the_cache_is_named_by_weights_precision_and_k(tiny: Tiny, toy: SimpleNamespace) -> None:
    lm = source(tiny, toy, k=7)
    fingerprint, k = lm.cache.opened
    assert set(fingerprint) == {"digest", "revision", "precision"}
    assert (fingerprint["precision"], k) == ("fp32", 7)
    huge = source(tiny, toy, k=10**6)
    assert huge.k == huge.tokenizer.config.vocab_size


def test_release_lets_the_weights_go_and_they_come_back(tiny: Tiny, toy: SimpleNamespace) -> None:
    lm = source(tiny, toy)
    *_, queries = asked(toy, lm)
    lm.compute(queries[:2])
    weights = weakref.ref(next(lm._model.model.parameters()))
    work = lm.work
    lm.release()
    gc.collect()
    assert weights() is None
    assert lm.work == work
    lm.compute(queries)
    assert lm.work["rows"] > work["rows"]


def test_the_fate_of_a_slot(tiny: Tiny, toy: SimpleNamespace) -> None:
    lm = source(tiny, toy)
    long = "A big man " + "park, " * 130
    _, slots, rows, queries = asked(
        toy, lm, ("A zebra, a man", "the zebra"), ("A dog", "Dog"), (long, "The man is big")
    )
    assert [[(one.slot.word, one.fate) for one in row] for row in rows] == [
        [("zebra", "split")],
        [("dog", "asked")],
        [("big", "too_long"), ("man", "too_long")],
    ]
    assert len(queries) == 2
    assert [one.slot for row in rows for one in row] == [s for mine in slots for s in mine]


def test_one_query_for_each_occurrence_and_one_mask_in_each(
    tiny: Tiny, toy: SimpleNamespace
) -> None:
    lm = source(tiny, toy)
    _, _, rows, queries = asked(toy, lm, ("the dog, a dog", "dog dog dog dog"))
    assert [len(one.queries) for one in rows[0]] == [6]  # 2 + 4 and not 2 x 4
    mask = lm.tokenizer.tokenizer.mask_token_id
    assert {query.ids.count(mask) for query in queries} == {1}
    _, _, _, paired = asked(toy, lm, ("the dog, a dog", "dog dog dog dog"), context="pair")
    assert {query.ids.count(mask) for query in paired} == {1}
    assert len(paired) == 6
    assert {len(query.ids) for query in paired} == {5 + 4 + 3}


def test_judged_slots_keep_their_answers(toy: SimpleNamespace) -> None:
    """The iterator over all answers does not slip when a slot is asked of one masked LM alone."""

    def own(place: Any) -> Any:
        word = place.text[place.start : place.end]
        return -float(len(word)) - len(place.text) / 100, [("cat", -1.0)]

    lms = [toy.lm("A", own, split=["man"]), toy.lm("B", own, split=["sleeps"])]
    seeds = toy.seeds(
        toy.tagger(TABLE), ("the man sleeps", "a man sleeps, dog"), ("big dog", "dog is big")
    )
    slots = [shared_slots(seed, TargetOptions())[0] for seed in seeds]
    for one in judge_slots(seeds, slots, lms, ProposeOptions()):
        for label, values in one.own.items():
            assert one.fates[label] == "asked"
            texts = [one.seed.sides()[side][0] for side, _ in one.slot.places()]
            expected = [-len(one.slot.word) - len(text) / 100 for text in texts]
            assert values == pytest.approx(expected)
    fates = {
        one.slot.word: dict(one.fates) for one in judge_slots(seeds, slots, lms, ProposeOptions())
    }
    assert fates["man"] == {"A": "split", "B": "asked"}
    assert fates["sleeps"] == {"A": "asked", "B": "split"}
