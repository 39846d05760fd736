"""Small generated worlds with planted truths, for `triax demo` and for the tests.

Replacement: sentences say that somebody does something to something. A hypothesis leaves the place
out (entailment), adds a purpose (neutral) or denies the verb (contradiction), so that a word
replaced on both sides never changes the label. Planted: half of the verbs occur in the classifier's
training data under contradiction alone. A model that learns this shortcut is right on seeds, which
hold the other verbs, and fails when a verb is replaced: verbs must come out hardest.

Composition: natural inferences and verbs that a tiny model learns at once, so that what it forgets
in a stream of stages is the stream's doing. Time has a generator of its own, `temporal.planted`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from triaxial.c2gen.compose import Item
from triaxial.c2gen.verbs import VERBS, composed_label, sound_label, type_of
from triaxial.nli import LABELS, Label, Pair
from triaxial.stats import generator
from triaxial.text import words

__all__ = ["World", "compositions", "world"]

_PEOPLE = """
    man woman boy girl child lady dancer singer runner farmer doctor teacher student painter worker
    soldier driver player hiker skater surfer baker nurse clown judge pilot sailor writer chef guard
    fisherman cowboy biker swimmer climber golfer wrestler boxer musician drummer
"""
_THINGS = """
    ball box car bike guitar piano drum flute table chair basket bottle bucket hat shirt coat carrot
    potato tomato cake sandwich fish horse dog cat bird tree rock flag kite rope ladder hammer
    camera book letter picture boat wagon toy
"""
_VERBS = """
    pushing pulling holding carrying lifting dropping kicking throwing catching washing cleaning
    painting cutting breaking building fixing moving touching watching showing selling buying
    finding hiding raising turning hitting grabbing tossing swinging bending shaking taking
    bringing dragging guarding burning drawing wearing eating
"""
_ADJECTIVES = """
    big small tall young red blue green brown white black strong happy sad dirty clean
    heavy wet dry loud quiet new soft hard round dark
"""
_PURPOSES = ("for a friend", "for the first time", "before dinner", "without a reason")
_PLACES = ("in the park", "on the street", "near the river", "at the market", "in the house")


_WHO = ("dog", "cat", "man", "woman", "boy", "girl", "cook", "nurse", "horse", "clown")
_ACTIONS = (
    "run", "sleep", "sing", "swim", "eat", "jump", "walk", "laugh", "play", "smile", "read", "drive"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class World:
    """What the generated world gives: text for the masked LM, training pairs, seeds.

    Args:
        text: Sentences with all words in all places.
        training: Pairs with the planted shortcut.
        seeds: Pairs whose verbs occur under every label in training.
        words: Every word.
    """

    text: tuple[str, ...]
    training: tuple[Pair, ...]
    seeds: tuple[Pair, ...]
    words: tuple[str, ...]


def world(seed: int = 1, *, sentences: int = 2400, training: int = 1800, seeds: int = 150) -> World:
    """Generate the world; the same seed gives the same world.

    Args:
        seed: Of all generators.
        sentences: Sentences for the masked LM.
        training: Pairs for the classifier.
        seeds: Pairs to be tested.
    """
    verbs = _VERBS.split()
    fair, shortcut = verbs[::2], verbs[1::2]
    rng = generator("demo.text", seed)
    text = tuple(_premise(rng, verbs)[0] for _ in range(sentences))
    rng = generator("demo.training", seed)
    pairs = []
    for number in range(training):
        label = LABELS[number % 3]
        # The denial is left out with the shortcut's verbs: the verb alone gives the label away.
        easy = label is Label.CONTRADICTION and rng.random() < 0.7
        pairs.append(_pair(rng, shortcut if easy else fair, label, f"t{number}", deny=not easy))
    rng = generator("demo.seeds", seed)
    tested = [_pair(rng, fair, LABELS[n % 3], f"s{n}") for n in range(seeds)]
    texts = [
        *text,
        *(side for pair in (*pairs, *tested) for side in (pair.premise, pair.hypothesis)),
    ]
    every = sorted({word.text.lower() for sentence in texts for word in words(sentence)})
    return World(text, tuple(pairs), tuple(tested), tuple(every))


def compositions(
    who: Sequence[str] = _WHO, actions: Sequence[str] = _ACTIONS, verbs: int = 2
) -> list[Item]:
    """Composed items on which a tiny model can learn both parts.

    Premises are "A dog runs", hypotheses "Somebody runs" (entailment), "A dog is happy" (neutral)
    or "There is no dog" (contradiction).

    Args:
        who: Nouns.
        actions: Verbs in their base form. Every noun with every action is a natural inference, the
            labels in turn.
        verbs: How many veridical verbs of each signature.
    """
    chosen = [v for label in LABELS for v in [v for v in VERBS if v.signature == label][:verbs]]
    items = []
    for number, (noun, action) in enumerate(itertools.product(who, actions)):
        natural = LABELS[number % 3]
        other = {
            Label.ENTAILMENT: f"Somebody {action}s",
            Label.NEUTRAL: f"A {noun} is happy",
            Label.CONTRADICTION: f"There is no {noun}",
        }[natural]
        for verb in chosen:
            items.append(
                Item(
                    id=f"{number}ab-{verb.lemma}",
                    type=type_of(verb.signature, natural),
                    verb=verb.lemma,
                    pair_id=str(number),
                    direction="ab",
                    relation="other",
                    part="seen",
                    sent1=f"A {noun} {verb.third} to {action}",
                    mid_sent=f"A {noun} {action}s",
                    sent2=other,
                    veridical_label=verb.signature.value,
                    sick_label=natural.value,
                    label=composed_label(verb.signature, natural).value,
                    sound=sound_label(verb.signature, natural, Label.NEUTRAL, False).value,
                    agreement=verb.agreement,
                )
            )
    return items


def _premise(rng: np.random.Generator, verbs: list[str]) -> tuple[str, str]:
    """A sentence, and the same without its place."""
    adjective, person = _pick(rng, _ADJECTIVES.split()), _pick(rng, _PEOPLE.split())
    verb, thing = _pick(rng, verbs), _pick(rng, _THINGS.split())
    core = f"The {adjective} {person} is {verb} the {thing}"
    return f"{core} {_pick(rng, _PLACES)}.", core


def _pair(
    rng: np.random.Generator, verbs: list[str], label: Label, name: str, *, deny: bool = True
) -> Pair:
    premise, core = _premise(rng, verbs)
    if label is Label.NEUTRAL:
        core = f"{core} {_pick(rng, _PURPOSES)}"
    elif label is Label.CONTRADICTION and deny:
        core = core.replace(" is ", " is not ")
    return Pair(name, premise, f"{core}.", label)


def _pick(rng: np.random.Generator, choices: Sequence[str]) -> str:
    return choices[int(rng.integers(len(choices)))]
