"""A small world of composed items, and a tiny encoder that knows its words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from triaxial.c2gen.compose import Item
from triaxial.worlds import compositions

SUBJECTS = ("dog", "cat", "man", "woman", "boy", "girl")
ACTIONS = ("run", "sleep", "sing", "swim", "eat", "jump")


def world() -> list[Item]:
    """36 natural primitives, 12 a label, by six verbs: 24 items of each type."""
    return compositions(SUBJECTS, ACTIONS)


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
