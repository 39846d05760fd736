"""Invented words in place of those that decide a label: a control for what a model knew before.

Source: Fu and Frank, TACL 12, 2024 (21 verbs; 438 pairs of words over 813 natural instances, as
"dog" -> "ozf", "pet" -> "yqj").
Choice: an invented verb takes the regular third person ("blickes"), as a new verb of English would.
Choice: word pairs come from substitutions that differ in one content word, articles apart; a word
has one invented word in all the data, replaced wherever it stands in these items; a verb's forms
share theirs ("slices" -> "kwefts", "to slice" -> "to kweft"), noun and "-ing" forms have their own.
Choice: an invented word begins with a vowel where the word does, so that "a" and "an" stay right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from triaxial.c2gen.compose import Item
from triaxial.c2gen.items import forms_of, verb_places
from triaxial.c2gen.verbs import VERBS, third_of, verb_of
from triaxial.errors import InputError
from triaxial.stats import generator
from triaxial.text import Word, case_pattern, fold, match_case, splice, words

__all__ = ["Pseudo", "pseudo_items"]

_ARTICLES = frozenset(["a", "an", "the"])
_CLOSED = """
some one two three four five six several many few no not all both each every this that these those
in on at of to from by with without for into onto over under near behind beside between through
across along around against off out up down inside outside above below and or but while his her
their its he she it they him them there is are be been do does has have
"""
_NOT_CONTENT = frozenset(_CLOSED.split()) | _ARTICLES
_WORD = re.compile(r"\w+")
_VOWELS = tuple("aeiou")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Pseudo:
    """Items with invented words.

    Args:
        items: As many as there were, in their order, with their ids and labels.
        verbs: Invented word by lemma, of the embedding verbs that were replaced.
        words: Invented word by word, of the pairs that decide a natural label.
        pairs: Distinct pairs of such words, whatever their order.
        instances: Natural primitives that hold one of them.
    """

    items: tuple[Item, ...]
    verbs: dict[str, str]
    words: dict[str, str]
    pairs: int
    instances: int


@dataclass(frozen=True, slots=True)
class _Deciding:
    """The words that decide one primitive.

    Args:
        keys: What the two are called: base forms of verbs, else the words themselves.
        forms: What to write for a folded word: key, and whether in the third person.
    """

    keys: tuple[str, str]
    forms: Mapping[str, tuple[str, bool]]


def pseudo_items(
    items: Sequence[Item], *, verbs: bool = True, nouns: bool = True, seed: int = 1
) -> Pseudo:
    """Items with invented words, on token boundaries and in the case of the words they replace.

    Args:
        items: Valid items (see `build.check_items`).
        verbs: Replace the embedding verbs.
        nouns: Replace the pairs of words (nouns, verbs, adjectives) that decide a natural label.
        seed: Of the invented words of these pairs; those of the verbs are the paper's.

    Raises:
        InputError: Neither is asked for.
    """
    if not verbs and not nouns:
        raise InputError("neither verbs nor nouns are replaced; ask for one", where="--pseudo")
    once: dict[tuple[str, str], _Deciding | None] = {}
    for item in items if nouns else ():
        if (item.mid_sent, item.sent2) not in once:
            once[item.mid_sent, item.sent2] = _deciding(item)
    keys = sorted({key for found in once.values() if found for key in found.keys})
    texts = {text for item in items for text in (item.mid_sent, item.sent1, item.sent2)}
    taken = {fold(word) for text in texts for word in _WORD.findall(text)} if keys else set()
    taken |= {form for verb in VERBS for form in forms_of(verb)}
    invented = _invented(keys, taken, generator("c2gen.pseudo", seed))
    changed = []
    for item in items:
        found = once.get((item.mid_sent, item.sent2))
        new = {n: getattr(item, n) for n in ("sent1", "mid_sent", "sent2")}
        if found:
            forms = {
                word: third_of(invented[key]) if third else invented[key]
                for word, (key, third) in found.forms.items()
            }
            at = _verb_at(item)[0]  # it has an invented word of its own
            new = {
                name: _replaced(text, forms, at if name == "sent1" else -1)
                for name, text in new.items()
            }
        if verbs:
            new["sent1"] = _with_pseudo_verb(new["sent1"], item.verb)
        changed.append(replace(item, **new))
    there = {item.verb for item in items} if verbs else set()
    return Pseudo(
        tuple(changed),
        {verb.lemma: verb.pseudo for verb in VERBS if verb.lemma in there},
        invented,
        len({frozenset(found.keys) for found in once.values() if found}),
        sum(found is not None for found in once.values()),
    )


def _deciding(item: Item) -> _Deciding | None:
    """The two words in which S and S' differ, or `None` where they are not one pair."""
    if item.relation != "substitution":
        return None
    first, second, whole = (
        [fold(word.text) for word in _words(text)]
        for text in (item.mid_sent, item.sent2, item.sent1)
    )
    if len(first) != len(second):
        return None
    places = [
        i
        for i, (one, two) in enumerate(zip(first, second, strict=True))
        if one != two and not (one in _ARTICLES and two in _ARTICLES)
    ]
    if len(places) != 1:
        return None
    one, two = first[places[0]], second[places[0]]
    if not (one.isalpha() and two.isalpha()) or {one, two} & _NOT_CONTENT:
        return None
    # "x verbs to S" is S with two words more after the subject.
    added = _verb_at(item)[1]
    at = places[0] if places[0] < added else places[0] + 2
    inside = whole[at] if len(whole) == len(first) + 2 else one
    if inside == one:
        return _Deciding((one, two), {one: (one, False), two: (two, False)})
    other = _base_of_third(two)
    if third_of(inside) != one or other is None:
        return None
    forms = {one: (inside, True), two: (other, True), inside: (inside, False)}
    return _Deciding((inside, other), {other: (other, False), **forms})


def _verb_at(item: Item) -> tuple[int, int]:
    """Where the embedding verb stands in `sent1`: character and word."""
    verb = verb_of(item.verb)
    assert verb is not None, "items are checked before"
    starts = [start for start, _, word in verb_places(item.sent1) if word in forms_of(verb)]
    subject = next(at for at in starts if item.mid_sent.startswith(item.sent1[:at]))
    return subject, sum(word.start < subject for word in _words(item.sent1[:subject]))


def _base_of_third(third: str) -> str | None:
    """The base of a third person: the longest that gives it, but "catch" for "catches"."""
    if third in ("has", "is"):
        return {"has": "have", "is": "be"}[third]
    cuts = [third.removesuffix("s"), third.removesuffix("es"), third.removesuffix("ies") + "y"]
    found = [base for base in cuts if base and base != third and third_of(base) == third]
    hissing = [base for base in found if base.endswith(("ch", "sh", "ss", "x", "zz"))]
    return next(iter(hissing or found), None)


def _invented(keys: Sequence[str], taken: set[str], rng: np.random.Generator) -> dict[str, str]:
    """A string of letters for each key: no word of the data, no part of one, holding none."""
    held = {word for word in taken if len(word) > 2}
    everything = " ".join(sorted(taken))
    made: dict[str, str] = {}
    for key in keys:
        while True:
            size = int(rng.integers(4, 8))
            text = "".join(_LETTERS[i] for i in rng.integers(0, len(_LETTERS), size))
            parts = {text[i:j] for i in range(size) for j in range(i + 3, size + 1)}
            clumsy = third_of(text) != text + "s" or text.endswith("o")
            clash = clumsy or text in everything or bool(parts & held) or text + "s" in taken
            if text.startswith(_VOWELS) == key.startswith(_VOWELS) and not clash:
                break
        made[key] = text
        held.add(text)
        everything += " " + text
    return made


def _replaced(text: str, forms: Mapping[str, str], but: int) -> str:
    """The text with every word that has a form replaced, save the one that starts at `but`."""
    edits = []
    for word in _words(text):
        if word.start != but and (new := forms.get(fold(word.text))) is not None:
            edits.append((word.start, word.end, _cased(word.text, new)))
    return splice(text, edits)


def _with_pseudo_verb(sent1: str, lemma: str) -> str:
    verb = verb_of(lemma)
    assert verb is not None, "items are checked before"
    base, third, _, pseudo_third = forms_of(verb)
    forms = {base: verb.pseudo, third: pseudo_third}
    for start, end, word in verb_places(sent1):
        if word in forms:
            return splice(sent1, [(start, end, _cased(sent1[start:end], forms[word]))])
    return sent1


def _cased(like: str, word: str) -> str:
    return match_case(case_pattern(like), word) or word


@lru_cache(1 << 16)
def _words(text: str) -> tuple[Word, ...]:
    return words(text)
