"""Words that premise and hypothesis share: the places where a replacement may happen.

A slot is one word *o* with one word class, at every place where it stands in the premise and in
the hypothesis.  The pair's words come from one tokenization, the classes from one tagger.

Source: MERGE, seeds (shared open-class words; adverbs were tried and dropped).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from triaxial.merge.lexicon import PRIVATIVE_OR_LOGICAL
from triaxial.models.tagger import Tag, Tagger
from triaxial.nli import Pair
from triaxial.text import Word, case_pattern, fold, words

__all__ = ["CLASSES", "Seed", "Slot", "TargetOptions", "shared_slots", "tagged_seeds"]

CLASSES = ("NOUN", "VERB", "ADJ")
_LETTERS = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Which shared words are replaced.

    Args:
        classes: Word classes. Source: nouns, verbs, adjectives; ADV is an option.
        logical: Whether privative and logical adjectives ("fake", "other", "same") are targets.
            Choice: the paper does not set them apart; *safe* leaves them alone.
    """

    classes: tuple[str, ...] = CLASSES
    logical: bool = True


@dataclass(frozen=True, slots=True)
class Seed:
    """A pair with its words and their tags."""

    pair: Pair
    premise: tuple[Word, ...]
    hypothesis: tuple[Word, ...]
    premise_tags: tuple[Tag, ...]
    hypothesis_tags: tuple[Tag, ...]

    def sides(self) -> tuple[tuple[str, tuple[Word, ...], tuple[Tag, ...]], ...]:
        """Text, words and tags of the premise, then of the hypothesis."""
        return (
            (self.pair.premise, self.premise, self.premise_tags),
            (self.pair.hypothesis, self.hypothesis, self.hypothesis_tags),
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """One shared word of one seed.

    Args:
        seed: Id of the seed.
        word: The word *o*, case-folded.
        pos: Its coarse class.
        premise: Indices of its occurrences among the premise's words.
        hypothesis: The same for the hypothesis.
    """

    seed: str
    word: str
    pos: str
    premise: tuple[int, ...]
    hypothesis: tuple[int, ...]

    def places(self) -> tuple[tuple[int, int], ...]:
        """(side, word index) of every occurrence, the premise's (side 0) first."""
        return (*((0, i) for i in self.premise), *((1, i) for i in self.hypothesis))


def tagged_seeds(pairs: Sequence[Pair], tagger: Tagger) -> list[Seed]:
    """Tokenize and tag pairs; each distinct sentence once."""
    sentences = list(dict.fromkeys(s for pair in pairs for s in (pair.premise, pair.hypothesis)))
    tokens = {sentence: words(sentence) for sentence in sentences}
    tags = dict(
        zip(sentences, tagger.tag([[w.text for w in tokens[s]] for s in sentences]), strict=True)
    )
    return [
        Seed(p, tokens[p.premise], tokens[p.hypothesis], tags[p.premise], tags[p.hypothesis])
        for p in pairs
    ]


def shared_slots(seed: Seed, options: TargetOptions) -> tuple[list[Slot], Counter[str]]:
    """The slots of a seed in order of the premise, and why other shared words are none.

    Choice: a word is shared when both sides hold the same surface form, case-folded, with the same
    coarse class. One that carries two classes within the pair is skipped as `two_classes`: to
    replace some of its occurrences would break the pair. `not_letters`: digits or marks inside.
    `mixed_case`: "iPhone" has no case pattern to keep. `logical`: see `TargetOptions`.
    """
    places: dict[str, tuple[list[int], list[int]]] = {}
    classes: dict[str, set[str]] = {}
    for side, (_, tokens, tags) in enumerate(seed.sides()):
        for index, (word, tag) in enumerate(zip(tokens, tags, strict=True)):
            key = fold(word.text)
            places.setdefault(key, ([], []))[side].append(index)
            classes.setdefault(key, set()).add(tag.pos)
    slots: list[Slot] = []
    skipped: Counter[str] = Counter()
    for key, (premise, hypothesis) in places.items():
        wanted = classes[key].intersection(options.classes)
        if not premise or not hypothesis or not wanted:
            continue
        surfaces = [seed.premise[i].text for i in premise]
        surfaces += [seed.hypothesis[i].text for i in hypothesis]
        if len(classes[key]) > 1:
            skipped["two_classes"] += 1
        elif not _LETTERS.fullmatch(key):
            skipped["not_letters"] += 1
        elif any(case_pattern(surface) == "mixed" for surface in surfaces):
            skipped["mixed_case"] += 1
        elif not options.logical and wanted == {"ADJ"} and key in PRIVATIVE_OR_LOGICAL:
            skipped["logical"] += 1
        else:
            (pos,) = wanted
            slots.append(Slot(seed.pair.id, key, pos, tuple(premise), tuple(hypothesis)))
    return slots, skipped
