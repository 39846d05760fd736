"""A small generated world with planted truths, for `triax demo` and for the tests.

Sentences say that somebody does something to something. A hypothesis leaves the place out
(entailment), adds a purpose (neutral) or denies the verb (contradiction), so that a word replaced
on both sides never changes the label. Planted: half of the verbs occur in the classifier's
training data under contradiction alone. A model that learns this shortcut is right on seeds, which
hold the other verbs, and fails when a verb is replaced: verbs must come out hardest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from triaxial.api.merge import GenerateOptions, run
from triaxial.api.merge_files import VariantSet
from triaxial.api.merge_predict import EvaluateOptions
from triaxial.execute import Computing
from triaxial.nli import LABELS, Label, Pair, Reading
from triaxial.stats import generator
from triaxial.store import digest
from triaxial.text import words

__all__ = ["PLANTED", "World", "run_demo", "world"]

PLANTED = "half of the verbs were trained under contradiction alone: verbs are the hardest class"

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


def run_demo(
    directory: Path, told: Callable[[str, int, int], None] | None = None, *, seed: int = 1
) -> tuple[VariantSet, dict[str, Any], dict[str, Any]]:
    """Train the tiny models, run MERGE on the world, and return set, metrics and facts.

    Args:
        directory: Receives the models, the store and the run.
        told: Progress: what, done, in all.
        seed: Of the world and the models.
    """
    from triaxial.models.finetune import train_classifier, train_masked
    from triaxial.models.fit import FitOptions
    from triaxial.models.tiny import tiny_masked

    made = world(seed)

    def progress(what: str) -> Callable[[int, int, float], None]:
        return lambda done, total, _loss: told(what, done, total) if told else None

    start = tiny_masked(directory / "start", made.words, seed=seed, hidden=64, layers=2)
    masked, model = directory / "masked-lm", directory / "nli-model"
    train_masked(
        str(start),
        made.text,
        masked,
        FitOptions(epochs=10, learning_rate=3e-3, seed=seed),
        batch_size=64,
        progress=progress("training the masked LM"),
    )
    train_classifier(
        str(start),
        made.training,
        model,
        FitOptions(epochs=5, learning_rate=2e-3, seed=seed),
        batch_size=32,
        progress=progress("training the NLI model"),
    )
    reading = Reading(made.seeds, {}, "generated world", digest([seed, "demo"]))
    return run(
        reading,
        GenerateOptions(mlm=(str(masked),)),
        EvaluateOptions(models=(str(model),)),
        Computing(store=directory / "store", progress=told),
        directory / "run",
    )


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
