"""Shared words: same form, same class, every occurrence, and why others are none."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triaxial.merge.targets import CLASSES, Seed, Slot, TargetOptions, shared_slots, tagged_seeds
from triaxial.models.tagger import Tag
from triaxial.nli import Label, Pair
from triaxial.text import fold

TABLE = """
    NOUN sing: man dog guitar café straße t-shirt iphone b2b
    NOUN plur: dogs/dog
    VERB ing: playing/play
    VERB 3sg: sleeps/sleep
    ADJ pos: big other fake red
    ADV: slowly
    PROPN: bob
    AUX 3sg: is/be
    NUM: two
    DET: a the
"""


def slots(
    toy: SimpleNamespace, premise: str, hypothesis: str, **options: object
) -> tuple[list[Slot], Counter[str]]:
    (seed,) = toy.seeds(toy.tagger(TABLE), (premise, hypothesis))
    return shared_slots(seed, TargetOptions(**options))


def words(found: tuple[list[Slot], Counter[str]]) -> list[str]:
    return [slot.word for slot in found[0]]


def test_every_occurrence_on_both_sides(toy: SimpleNamespace) -> None:
    found, skipped = slots(toy, "The Dog sleeps, a dog is playing.", "A DOG sleeps; big dog dog.")
    assert found == [
        Slot("0", "dog", "NOUN", (1, 5), (1, 5, 6)),
        Slot("0", "sleeps", "VERB", (2,), (2,)),
    ]
    assert found[0].places() == ((0, 1), (0, 5), (1, 1), (1, 5), (1, 6))
    assert not skipped


def test_first_word_last_word_and_the_word_before_the_full_stop(toy: SimpleNamespace) -> None:
    assert words(slots(toy, "Dogs sleeps man.", "Dogs sleeps man.")) == ["dogs", "sleeps", "man"]
    assert words(slots(toy, "dog is playing", "playing dog")) == ["dog", "playing"]


def test_the_same_surface_form(toy: SimpleNamespace) -> None:
    # Not the lemma: "dog" and "dogs" are two words. Case-folded, NFC.
    assert words(slots(toy, "the dogs", "the dog")) == []
    assert words(slots(toy, "a CAFÉ", "the cafe\u0301")) == ["café"]
    assert words(slots(toy, "a dog", "a dog ")) == ["dog"]


def test_never_names_auxiliaries_numbers_or_closed_classes(toy: SimpleNamespace) -> None:
    same = "Bob is the two"
    assert slots(toy, same, same) == ([], Counter())


def test_adverbs_are_an_option(toy: SimpleNamespace) -> None:
    same = "the dog slowly"
    assert words(slots(toy, same, same)) == ["dog"]
    assert words(slots(toy, same, same, classes=(*CLASSES, "ADV"))) == ["dog", "slowly"]
    assert words(slots(toy, same, same, classes=("VERB",))) == []


def test_logical_adjectives(toy: SimpleNamespace) -> None:
    same = "the other fake Red man"
    assert words(slots(toy, same, same)) == ["other", "fake", "red", "man"]
    found = slots(toy, same, same, logical=False)
    assert words(found) == ["red", "man"]
    assert found[1] == {"logical": 2}


class Alternating:
    """Another class for every other occurrence of a word."""

    name = "alternating"

    def tag(self, sentences: list[list[str]]) -> list[tuple[Tag, ...]]:
        return [
            tuple(Tag("NOUN" if n % 2 else "VERB", "", w) for n, w in enumerate(sentence))
            for sentence in sentences
        ]


def test_two_classes_in_one_pair(toy: SimpleNamespace) -> None:
    def found(p: str, h: str) -> tuple[list[Slot], Counter[str]]:
        (seed,) = tagged_seeds([Pair("1", p, h, Label.NEUTRAL)], Alternating())
        return shared_slots(seed, TargetOptions())

    assert found("run", "the run") == ([], Counter(two_classes=1))
    assert found("run x run", "y run") == ([], Counter(two_classes=1))
    assert words(found("run x run", "run y run")) == ["run"]
    # Not shared, so no reason is counted.
    assert found("run x", "y z") == ([], Counter())


def test_words_that_cannot_keep_their_case(toy: SimpleNamespace) -> None:
    assert slots(toy, "an iPhone", "the iPhone") == ([], Counter(mixed_case=1))
    assert slots(toy, "a dOg", "the dog") == ([], Counter(mixed_case=1))
    assert words(slots(toy, "T-shirt DOG", "t-shirt Dog")) == ["t-shirt", "dog"]


def test_words_with_digits_or_marks(toy: SimpleNamespace) -> None:
    assert slots(toy, "a b2b", "the B2B") == ([], Counter(not_letters=1))


def test_each_distinct_sentence_is_tagged_once(toy: SimpleNamespace) -> None:
    tagger = toy.tagger(TABLE)
    seeds = toy.seeds(tagger, ("a dog", "a man"), ("a man", "a dog"), ("a dog", "a dog"))
    assert tagger.sentences == [("a", "dog"), ("a", "man")]
    assert [t.pos for t in seeds[1].premise_tags] == ["DET", "NOUN"]
    assert seeds[1].premise[1].text == "man"


def test_a_tagger_that_loses_a_word_is_found_out(toy: SimpleNamespace) -> None:
    class Losing(Alternating):
        def tag(self, sentences: list[list[str]]) -> list[tuple[Tag, ...]]:
            return [tags[1:] for tags in super().tag(sentences)]

    (seed,) = tagged_seeds([Pair("1", "a dog", "a dog", Label.NEUTRAL)], Losing())
    with pytest.raises(ValueError, match="zip"):
        shared_slots(seed, TargetOptions())


some_words = st.lists(
    st.sampled_from(
        [
            "a",
            "the",
            "dog",
            "Dog",
            "DOG",
            "dogs",
            "man",
            "big",
            "is",
            ",",
            ".",
            "(",
            "iPhone",
            "café",
            "Bob",
        ]
    ),
    min_size=1,
    max_size=9,
).map(" ".join)


@given(some_words, some_words)
def test_slots_against_a_naive_loop(premise: str, hypothesis: str) -> None:
    from triaxial.merge import targets  # the module, for its tokenizer

    table = {"dog": "NOUN", "dogs": "NOUN", "man": "NOUN", "café": "NOUN", "big": "ADJ"}

    class Table(Alternating):
        def tag(self, sentences: list[list[str]]) -> list[tuple[Tag, ...]]:
            return [tuple(Tag(table.get(fold(w), "X"), "", w) for w in s) for s in sentences]

    (seed,) = tagged_seeds([Pair("1", premise, hypothesis, Label.NEUTRAL)], Table())
    p, h = ([fold(w.text) for w in targets.words(s)] for s in (premise, hypothesis))
    expected = [
        (
            w,
            tuple(n for n, x in enumerate(p) if x == w),
            tuple(n for n, x in enumerate(h) if x == w),
        )
        for w in dict.fromkeys(p)
        if w in h and w in table
    ]
    found, skipped = shared_slots(seed, TargetOptions())
    assert [(s.word, s.premise, s.hypothesis) for s in found] == expected
    assert not skipped


def test_sides_and_tags_go_together(toy: SimpleNamespace) -> None:
    seed: Seed = toy.seeds(toy.tagger(TABLE), ("a dog", "the big man"))[0]
    (p, p_words, p_tags), (h, h_words, h_tags) = seed.sides()
    assert (p, h) == ("a dog", "the big man")
    assert [w.text for w in h_words] == ["the", "big", "man"]
    assert [len(p_words), len(h_words)] == [len(p_tags), len(h_tags)]
