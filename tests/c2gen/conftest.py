"""A small world of composed items, and a tiny encoder that knows its words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from triaxial.c2gen.compose import Item
from triaxial.c2gen.verbs import VERBS, composed_label, sound_label, type_of
from triaxial.nli import LABELS, Label

SUBJECTS = ("dog", "cat", "man", "woman", "boy", "girl")
ACTIONS = ("run", "sleep", "sing", "swim", "eat", "jump")
# Two verbs of each signature are enough.
WORLD_VERBS = [
    [verb for verb in VERBS if verb.signature == label][place]
    for label in LABELS
    for place in (0, 1)
]


def world() -> list[Item]:
    """36 natural primitives, 12 a label, by six verbs: 24 items of each type."""
    items = []
    for number, (subject, action) in enumerate((s, a) for s in SUBJECTS for a in ACTIONS):
        natural = LABELS[number % 3]
        other = {
            Label.ENTAILMENT: f"An animal {action}s",
            Label.NEUTRAL: f"A {subject} is happy",
            Label.CONTRADICTION: f"There is no {subject}",
        }[natural]
        for verb in WORLD_VERBS:
            items.append(
                Item(
                    id=f"{number}ab-{verb.lemma}",
                    type=type_of(verb.signature, natural),
                    verb=verb.lemma,
                    pair_id=str(number),
                    direction="ab",
                    relation="other",
                    part="seen",
                    sent1=f"A {subject} {verb.third} to {action}",
                    mid_sent=f"A {subject} {action}s",
                    sent2=other,
                    veridical_label=verb.signature.value,
                    sick_label=natural.value,
                    label=composed_label(verb.signature, natural).value,
                    sound=sound_label(verb.signature, natural, Label.NEUTRAL, False).value,
                    agreement=verb.agreement,
                )
            )
    return items


@pytest.fixture(scope="session")
def items() -> list[Item]:
    return world()


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory, items: list[Item]) -> str:
    import torch

    from triaxial.models.tiny import tiny_masked

    torch.set_num_threads(1)
    texts = [text for item in items for text in (item.sent1, item.mid_sent, item.sent2)]
    where = tmp_path_factory.mktemp("encoder")
    return str(tiny_masked(where, [word for text in texts for word in text.split()], hidden=16))


@pytest.fixture(scope="session")
def rows_of_types(items: list[Item]) -> Callable[..., np.ndarray]:
    """`rows_of_types(2, 5)`: indices of the items of these types."""

    def rows(*types: int) -> np.ndarray:
        return np.asarray([n for n, item in enumerate(items) if item.type in types], dtype=np.intp)

    return rows
