"""What the variant itself says: articles, class, form, lemma, relations; and its text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from triaxial.merge.filters import (
    VERDICTS,
    FilterOptions,
    Proposal,
    Score,
    counted,
    judge,
    replacement_of,
    variant_texts,
)
from triaxial.merge.lexicon import WordNet
from triaxial.merge.targets import TargetOptions, shared_slots
from triaxial.nli import Label, Pair
from triaxial.text import case_pattern, match_case

TABLE = """
    NOUN sing: dog cat apple hour university man animal puppy beast
    NOUN plur: dogs/dog cats/cat men/man
    VERB ing: playing/play running/run
    VERB 3sg: runs/run eats/eat
    VERB base: run/run
    ADJ pos: big old red small
    ADJ comp: bigger/big older/old
    DET: a an the
    AUX 3sg: is/be
"""


def proposals(
    toy: SimpleNamespace, premise: str, hypothesis: str, word: str, *replacements: str
) -> tuple[list[Proposal], Any]:
    tagger = toy.tagger(TABLE)
    (seed,) = toy.seeds(tagger, (premise, hypothesis))
    (slot,) = [slot for slot in shared_slots(seed, TargetOptions())[0] if slot.word == word]
    return [Proposal(seed, slot, r, ("A", "B")) for r in replacements], tagger


def verdicts(
    toy: SimpleNamespace,
    premise: str,
    hypothesis: str,
    word: str,
    *replacements: str,
    wordnet: WordNet | None = None,
    **options: Any,
) -> dict[str, str]:
    made, tagger = proposals(toy, premise, hypothesis, word, *replacements)
    found = judge(made, tagger, FilterOptions(**options), wordnet)
    return {p.word: verdict for p, (verdict, _) in zip(made, found, strict=True)}


def test_the_article_before_it_on_either_side(toy: SimpleNamespace) -> None:
    words = ("apple", "cat", "hour", "university")
    clash = {"apple": "article", "cat": "kept", "hour": "article", "university": "kept"}
    assert verdicts(toy, "a dog runs", "the dog runs", "dog", *words) == clash
    assert verdicts(toy, "the dog runs", "A dog runs", "dog", *words) == clash
    assert verdicts(toy, "the dog, a dog", "the dog runs", "dog", *words) == clash
    assert verdicts(toy, "the dog runs", "the dog", "dog", *words) == dict.fromkeys(words, "kept")
    other = {"apple": "kept", "cat": "article", "hour": "kept", "university": "article"}
    assert verdicts(toy, "an animal", "the animal", "animal", *words) == other
    kept = verdicts(toy, "a dog runs", "a dog runs", "dog", *words, articles=False)
    assert kept == dict.fromkeys(words, "kept")


def test_an_article_further_left_does_not_matter(toy: SimpleNamespace) -> None:
    assert verdicts(toy, "a big dog", "the dog", "dog", "apple") == {"apple": "kept"}
    # But that of an adjective does.
    assert verdicts(toy, "a big dog", "the big man", "big", "old") == {"old": "article"}


def test_the_article_is_never_rewritten(toy: SimpleNamespace) -> None:
    pair = Pair("1", "An animal runs", "a big animal", Label.NEUTRAL)
    texts = variant_texts(pair, "dog", [(3, 9)], [(6, 12)])
    assert texts == ("An dog runs", "a big dog")


def test_the_class_in_the_full_variant_on_both_sides(toy: SimpleNamespace) -> None:
    found = verdicts(toy, "the dog runs", "the dog", "dog", "cat", "red", "runs", "unknown")
    refused = dict.fromkeys(("red", "runs", "unknown"), "word_class")
    assert found == {"cat": "kept", **refused}


class Contextual:
    """Tags "run" as a noun after "the" and as a verb elsewhere."""

    name = "contextual"

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def tag(self, sentences: Any) -> Any:
        from triaxial.models.tagger import Tag

        out = []
        for words, tags in zip(sentences, self.inner.tag(sentences), strict=True):
            out.append(
                tuple(
                    Tag("NOUN", "sing", "run") if (b, w) == ("the", "run") else tag
                    for b, w, tag in zip(("", *words), words, tags, strict=False)
                )
            )
        return out


def test_the_tagger_reads_the_variant_and_not_the_word_alone(toy: SimpleNamespace) -> None:
    made, tagger = proposals(toy, "the dog sits", "the dog", "dog", "run")
    assert judge(made, Contextual(tagger), FilterOptions()) == [("kept", None)]
    made, tagger = proposals(toy, "the dog sits", "big dog", "dog", "run")
    assert judge(made, Contextual(tagger), FilterOptions()) == [("word_class", None)]


def test_number_verb_form_and_degree_under_fine(toy: SimpleNamespace) -> None:
    for word, same, other in (
        ("dogs", "cats", "cat"),
        ("runs", "eats", "playing"),
        ("playing", "running", "run"),
        ("bigger", "older", "red"),
    ):
        p, h = f"the {word}", f"The {word}"
        assert verdicts(toy, p, h, word, same, other) == {same: "kept", other: "kept"}
        fine = verdicts(toy, p, h, word, same, other, fine=True)
        assert fine == {same: "kept", other: "word_form"}


def test_the_same_lemma(toy: SimpleNamespace) -> None:
    p, h = "the dog eats", "The dog, a man"
    words = ("dogs", "men", "cats")
    assert verdicts(toy, p, h, "dog", *words) == dict.fromkeys(words, "kept")
    found = verdicts(toy, p, h, "dog", *words, same_lemma=True)
    assert found == {"dogs": "same_lemma", "men": "same_lemma", "cats": "kept"}


def test_each_distinct_variant_sentence_is_tagged_once(toy: SimpleNamespace) -> None:
    made, tagger = proposals(toy, "the dog", "the dog", "dog", "cat", "man", "cat")
    tagger.sentences.clear()
    judge([*made, *made], tagger, FilterOptions())
    assert tagger.sentences == [("the", "cat"), ("the", "man")]


def test_no_proposals(toy: SimpleNamespace) -> None:
    assert judge([], toy.tagger(TABLE), FilterOptions()) == []


# WordNet: 0 animal, 1 dog (a kind of animal), 2 puppy (a kind of dog), 3 cat (a kind of animal).


@pytest.fixture
def wordnet(tmp_path: Path) -> WordNet:
    nouns = [("animal beast", []), ("dog", [0]), ("puppy", [1]), ("cat", [0]), ("apple", [])]
    offsets: list[int] = [0] * len(nouns)
    for _ in range(2):  # offsets have eight digits: one pass measures, one writes
        data = ""
        for n, (words, above) in enumerate(nouns):
            offsets[n] = len(data)
            listed = " ".join(f"{word} 0" for word in words.split())
            up = "".join(f"@ {offsets[a]:08d} n 0000 " for a in above)
            data += f"{offsets[n]:08d} 00 n {len(words.split()):02x} {listed} "
            data += f"{len(above):03d} {up}| gloss\n"
    index = sorted(
        f"{word} n 1 1 @ 1 0 {offset:08d}  \n"
        for (words, _), offset in zip(nouns, offsets, strict=True)
        for word in words.split()
    )
    for name in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"index.{name}").write_text("".join(index) if name == "noun" else "")
        (tmp_path / f"data.{name}").write_text(data if name == "noun" else "")
    return WordNet(tmp_path)


def risks(
    toy: SimpleNamespace, wordnet: WordNet | None, *texts: str, **options: Any
) -> dict[str, tuple[str, str | None]]:
    made, tagger = proposals(toy, *texts)
    found = judge(made, tagger, FilterOptions(**options), wordnet)
    return {p.word: verdict for p, verdict in zip(made, found, strict=True)}


def test_label_risk_is_a_flag(toy: SimpleNamespace, wordnet: WordNet) -> None:
    # "dog" becomes r while "animal" stays: dog entails animal, apple does not.
    texts = ("the dog runs", "The dog, the animal", "dog")
    assert risks(toy, wordnet, *texts, "puppy", "apple") == {
        "puppy": ("kept", "animal: hypernym of the word"),
        "apple": ("kept", "animal: hypernym of the word"),
    }
    texts = ("the apple", "The apple, the cat", "apple")
    assert risks(toy, wordnet, *texts, "beast", "man") == {
        "beast": ("kept", "cat: hyponym of the replacement"),
        "man": ("kept", ""),
    }


def test_label_risk_drops_in_safe(toy: SimpleNamespace, wordnet: WordNet) -> None:
    texts = ("the apple", "The apple, the cat", "apple")
    assert risks(toy, wordnet, *texts, "beast", "man", label_risk="drop") == {
        "beast": ("label_risk", "cat: hyponym of the replacement"),
        "man": ("kept", ""),
    }


def test_only_other_words_of_the_same_class_count(toy: SimpleNamespace, wordnet: WordNet) -> None:
    # The occurrences of o itself are no other words; "big" is no noun.
    assert risks(toy, wordnet, "the dog, a dog", "big dog", "dog", "puppy") == {
        "puppy": ("kept", "")
    }


def test_without_wordnet_the_flag_is_null(toy: SimpleNamespace) -> None:
    texts = ("the dog runs", "The dog, the animal", "dog")
    assert risks(toy, None, *texts, "puppy", label_risk="drop") == {"puppy": ("kept", None)}


def test_cheap_verdicts_come_first(toy: SimpleNamespace, wordnet: WordNet) -> None:
    everything = dict(fine=True, same_lemma=True, label_risk="drop")
    made, tagger = proposals(
        toy, "a man eats", "the man, a beast", "man", "apple", "red", "dogs", "men", "cat"
    )
    found = judge(made, tagger, FilterOptions(**everything), wordnet)
    assert [verdict for verdict, _ in found] == [
        "article", "word_class", "word_form", "word_form", "label_risk",
    ]  # fmt: skip
    assert set(VERDICTS) >= {verdict for verdict, _ in found}


def test_counts_by_masked_lm_and_over_all(toy: SimpleNamespace) -> None:
    made, _ = proposals(toy, "the dog", "the dog", "dog", "cat", "red")
    made[1] = Proposal(made[1].seed, made[1].slot, "red", ("B",))
    assert counted(made, [("kept", None), ("word_class", None)]) == Counter(
        {
            ("A", "NOUN", "kept"): 1,
            ("B", "NOUN", "kept"): 1,
            ("all", "NOUN", "kept"): 1,
            ("B", "NOUN", "word_class"): 1,
            ("all", "NOUN", "word_class"): 1,
        }
    )


def test_the_record(toy: SimpleNamespace) -> None:
    (made,), _ = proposals(toy, "the Dog, a dog", "Dog", "dog", "cat")
    scores = [Score("A", (-1.0,), (None,), (None,))]
    record = replacement_of(made, 7, scores, "")
    assert (record.seed, record.variant, record.word, record.pos) == ("0", 7, "dog", "NOUN")
    assert (record.premise_spans, record.hypothesis_spans) == (((4, 7), (11, 14)), ((0, 3),))
    assert (record.replacement, record.sources, record.scores) == ("cat", ("A", "B"), (*scores,))
    texts = variant_texts(
        made.seed.pair, record.replacement, record.premise_spans, record.hypothesis_spans
    )
    assert texts == ("the Cat, a cat", "Cat")


# Texts.

gaps = st.text(st.sampled_from(" \u00a0\t,.!?'\"()-1\u0301é$"), max_size=4)
surfaces = st.sampled_from(["dog", "Dog", "DOG", "D", "d", "well-known", "straße", "É", "ǆ"])
replacements = st.sampled_from(["cat", "x", "ice-cream", "straße", "éclair", "ﬁsh", "ŉ"])


@given(st.lists(st.tuples(gaps, surfaces), max_size=4), gaps, replacements)
def test_every_character_outside_the_spans_is_untouched(
    parts: list[tuple[str, str]], tail: str, word: str
) -> None:
    text, spans = "", []
    for gap, surface in parts:
        text += gap
        spans.append((len(text), len(text) + len(surface)))
        text += surface
    text += tail
    pair = Pair("1", text, "the same", Label.NEUTRAL)
    premise, hypothesis = variant_texts(pair, word, spans, [])
    assert hypothesis == "the same"
    at = 0
    for gap, surface in parts:
        written = match_case(case_pattern(surface), word)
        assert written is not None
        assert premise[at : at + len(gap)] == gap
        at += len(gap)
        assert premise[at : at + len(written)] == written
        at += len(written)
    assert premise[at:] == tail
    # A function of seed, word and spans, in any order of the spans.
    assert variant_texts(pair, word, spans[::-1], []) == (premise, hypothesis)


@given(surfaces, st.sampled_from(["cat", "ice-cream", "éclair"]))
def test_the_case_pattern_is_kept(surface: str, word: str) -> None:
    assume(case_pattern(surface) != "mixed")
    pair = Pair("1", surface, "x", Label.NEUTRAL)
    premise, _ = variant_texts(pair, word, [(0, len(surface))], [])
    assert case_pattern(premise) == case_pattern(surface)
    assert premise.casefold() == word.casefold()
