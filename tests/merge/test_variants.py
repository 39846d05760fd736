"""All conditions in turn: replacements, their numbers, and a funnel that sums up."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.merge.filters import VERDICTS, FilterOptions, Replacement, variant_texts
from triaxial.merge.propose import REASONS, ProposeOptions
from triaxial.merge.queries import judge_slots
from triaxial.merge.targets import TargetOptions
from triaxial.merge.variants import PRESETS, Preset, slots_of, variants_of

TABLE = """
    NOUN sing: dog cat man boy apple pear
    NOUN plur: dogs/dog cats/cat boys/boy
    VERB 3sg: runs/run sits/sit eats/eat
    ADJ pos: big old red fake other
    DET: a an the
"""
FAITHFUL = PRESETS["faithful"]


def made(
    toy: SimpleNamespace, pairs: list[tuple[str, str]], lms: list[Any], preset: Preset = FAITHFUL
) -> tuple[list[Replacement], Counter[tuple[str, str, str, str]]]:
    tagger = toy.tagger(TABLE)
    seeds = toy.seeds(tagger, *pairs)
    slots, words = slots_of(seeds, preset.targets)
    kept, funnel = variants_of(seeds, slots, lms, preset, tagger)
    return kept, funnel + words


def test_the_presets() -> None:
    assert Preset() == FAITHFUL
    assert FAITHFUL.propose == ProposeOptions(
        k=200, context="sentence", strict=False, across="same"
    )
    assert FAITHFUL.targets == TargetOptions(classes=("NOUN", "VERB", "ADJ"), logical=True)
    assert FAITHFUL.filters == FilterOptions(True, False, False, "flag")
    safe = PRESETS["safe"]
    assert (safe.targets.logical, safe.filters.fine, safe.filters.same_lemma) == (False, True, True)
    assert (safe.filters.label_risk, safe.propose) == ("drop", FAITHFUL.propose)


def test_numbers_run_within_the_seed_over_words_and_spelling(toy: SimpleNamespace) -> None:
    lm = toy.lm("A", toy.says("cat boy sits eats"))
    kept, _ = made(toy, [("the dog runs", "the dog runs"), ("the man", "the man")], [lm])
    assert [(r.seed, r.variant, r.word, r.replacement) for r in kept] == [
        ("0", 0, "dog", "boy"),
        ("0", 1, "dog", "cat"),
        ("0", 2, "runs", "eats"),
        ("0", 3, "runs", "sits"),
        ("1", 0, "man", "boy"),
        ("1", 1, "man", "cat"),
    ]


def test_scores_of_every_masked_lm_that_suggests_it(toy: SimpleNamespace) -> None:
    def second(place: Any) -> Any:
        if place.text.startswith("the"):
            return -4.0, [("boy", -1.0), ("cat", -6.0)]
        return -4.0, [("boy", -1.0)]

    lms = [toy.lm("A", toy.says("cat boy", own=-5.0)), toy.lm("B", second)]
    kept, _ = made(toy, [("the dog", "a dog")], lms)
    boy, cat = kept
    assert (boy.sources, cat.sources) == (("A", "B"), ("A",))
    assert [score.mlm for score in cat.scores] == ["A", "B"]
    a, b = cat.scores
    assert a.log_p_word == (-5.0, -5.0)
    assert a.log_p_replacement == pytest.approx((-2.0, -2.0))
    assert a.rank == (1, 1)
    assert b.log_p_word == (-4.0, -4.0)
    assert (b.log_p_replacement, b.rank) == ((-6.0, None), (2, None))


def test_the_funnel_by_hand(toy: SimpleNamespace) -> None:
    # cat kept; red another class; dog in the pair; Boy with a capital; pear less likely; a piece.
    lm = toy.lm(
        "A",
        lambda place: (
            -5.0,
            [("cat", -1), ("red", -2), ("dog", -3), ("Boy", -4), ("##s", -4.5), ("pear", -6)],
        ),
        split=["sits"],
    )
    kept, funnel = made(toy, [("the dog sits", "The dog sits")], [lm])
    assert [r.replacement for r in kept] == ["cat"]
    assert funnel == Counter(
        {
            ("word", "", "NOUN", "slot"): 1,
            ("word", "", "VERB", "slot"): 1,
            ("slot", "A", "NOUN", "asked"): 1,
            ("slot", "A", "VERB", "split"): 1,
            ("suggestion", "A", "NOUN", "not_a_word"): 1,
            ("suggestion", "A", "NOUN", "case"): 1,
            ("suggestion", "A", "NOUN", "in_pair"): 1,
            ("suggestion", "A", "NOUN", "less_likely"): 1,
            ("suggestion", "A", "NOUN", "validated"): 2,
            ("variant", "A", "NOUN", "kept"): 1,
            ("variant", "A", "NOUN", "word_class"): 1,
            ("variant", "all", "NOUN", "kept"): 1,
            ("variant", "all", "NOUN", "word_class"): 1,
        }
    )


def test_zero_yield_leaves_a_funnel_that_says_why(toy: SimpleNamespace) -> None:
    kept, funnel = made(toy, [("the dog", "The dog")], [toy.lm("A", toy.says("red old"))])
    assert kept == []
    assert funnel["variant", "all", "NOUN", "word_class"] == 2
    kept, funnel = made(toy, [("the dog", "The man")], [toy.lm("A", toy.says("cat"))])
    assert (kept, funnel) == ([], Counter())
    kept, funnel = made(toy, [], [toy.lm("A", toy.says("cat"))])
    assert (kept, funnel) == ([], Counter())


VOCABULARY = [
    "dog",
    "Dog",
    "cat",
    "man",
    "boy",
    "apple",
    "pear",
    "dogs",
    "runs",
    "sits",
    "eats",
    "big",
    "old",
    "red",
    "Boy",
    "cats",
]
sentences = st.lists(
    st.sampled_from(
        [
            "the",
            "a",
            "an",
            "dog",
            "Dog",
            "runs",
            "big",
            "man",
            "red",
            "fake",
            ",",
            ".",
            "dogs",
        ]
    ),
    min_size=1,
    max_size=7,
).map(" ".join)
suggestions = st.lists(st.sampled_from([*VOCABULARY, "##s", ".", "1"]), max_size=9, unique=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(sentences, sentences), min_size=1, max_size=3),
    st.lists(suggestions, min_size=6, max_size=6),
    st.sampled_from(["same", "any"]),
    st.booleans(),
)
def test_every_suggestion_has_one_fate(
    toy: SimpleNamespace,
    pairs: list[tuple[str, str]],
    answers: list[list[str]],
    across: Any,
    fine: bool,
) -> None:
    def script(label: str) -> Any:
        def say(place: Any) -> Any:
            turn = (len(place.text) + place.start) % 3 + (3 if label == "B" else 0)
            return -2.0, [(word, -1.0 - n / 4) for n, word in enumerate(answers[turn])]

        return say

    preset = Preset(
        propose=ProposeOptions(across=across), filters=FilterOptions(fine=fine, same_lemma=fine)
    )
    lms = [toy.lm(label, script(label), split=["big"]) for label in "AB"]
    kept, funnel = made(toy, pairs, lms, preset)

    def total(unit: str, mlm: str, fates: Any = None) -> int:
        return sum(
            count
            for (u, m, _, fate), count in funnel.items()
            if (u, m) == (unit, mlm) and (fates is None or fate in fates)
        )

    assert all(count >= 0 for count in funnel.values())
    slots = total("word", "", ["slot"])
    for label in "AB":
        assert total("slot", label) == slots
        fates = {fate for (u, m, _, fate) in funnel if (u, m) == ("suggestion", label)}
        assert fates <= {*REASONS, "validated"}
        # What it validates is what the variant filters judge for it.
        assert total("suggestion", label, ["validated"]) == total("variant", label)
    assert total("variant", "all", ["kept"]) == len(kept)
    assert {fate for (u, _, _, fate) in funnel if u == "variant"} <= set(VERDICTS)

    # Distinct suggestions of a slot, words and others, have one fate each.
    tagger = toy.tagger(TABLE)
    seeds = toy.seeds(tagger, *pairs)
    slot_lists, _ = slots_of(seeds, preset.targets)
    judged = judge_slots(seeds, slot_lists, lms, preset.propose)
    for label in "AB":
        found = [one.by_mlm[label] for one in judged if label in one.by_mlm]
        assert total("suggestion", label) == sum(len(f.words) + f.not_words for f in found)

    # A variant is a function of seed and replacement, and no two of a seed are the same.
    by_id = {seed.pair.id: seed.pair for seed in seeds}
    texts = [
        (r.seed, *variant_texts(by_id[r.seed], r.replacement, r.premise_spans, r.hypothesis_spans))
        for r in kept
    ]
    assert len(set(texts)) == len(texts)
    for seed, p, h in texts:
        assert p != by_id[seed].premise
        assert h != by_id[seed].hypothesis


def test_loose_cross_validation(toy: SimpleNamespace) -> None:
    def only(start: str) -> Any:
        return lambda place: (-5.0, [("cat", -1.0)] if place.text.startswith(start) else [])

    lms = [toy.lm("A", only("the")), toy.lm("B", only("big"))]
    pairs = [("the dog", "big dog")]
    assert made(toy, pairs, lms)[0] == []
    kept, funnel = made(toy, pairs, lms, Preset(propose=ProposeOptions(across="any")))
    assert [(r.replacement, r.sources) for r in kept] == [("cat", ("A", "B"))]
    assert funnel["suggestion", "A", "NOUN", "validated"] == 1
    assert funnel["suggestion", "A", "NOUN", "not_everywhere"] == 0


def test_logical_adjectives_and_two_classes_are_in_the_funnel(toy: SimpleNamespace) -> None:
    pairs = [("the fake dog", "the fake man")]
    lm = toy.lm("A", toy.says("red old"))
    assert [r.word for r in made(toy, pairs, [lm])[0]] == ["fake", "fake"]
    kept, funnel = made(toy, pairs, [lm], PRESETS["safe"])
    assert kept == []
    assert funnel == Counter({("word", "", "", "logical"): 1})
