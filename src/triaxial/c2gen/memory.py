"""What is kept of earlier data: the reservoir, the balanced buffer, and what is drawn from them.

A memory is a set of row indices with the stage that each comes from. What it holds at any moment
follows from the order in which rows came and from a seed alone, never from the model, so that a
resumed run needs no state: it is computed again. A row is offered once, the first time that it is
trained on.

Source: reservoir sampling, Vitter 1985 (algorithm R); experience replay with it, Chaudhry et al.
2019; C²Gen NLI, ER-Res and ER-Buff.
Choice: inside a stage the balanced buffer takes types in turn, which a reservoir does not; with one
earlier stage that is all that tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from triaxial.stats import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Memory", "balanced", "drawn", "quotas", "reservoir"]


@dataclass(frozen=True, slots=True)
class Memory:
    """Rows held, shape (M,), and the stage (0-based) of each, shape (M,)."""

    rows: NDArray[np.intp]
    stages: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.rows)


def reservoir(stages: Sequence[NDArray[np.intp]], capacity: int, seed: int) -> Memory:
    """A uniform sample of all rows that came so far, as algorithm R leaves it.

    Every row that came is held with probability capacity / rows. The draws do not depend on how
    many rows follow, so the reservoir of a longer stream goes on from that of its beginning.

    Args:
        stages: Rows by stage, in the order in which they came; the last stage may have only begun.
        capacity: Rows held at most, >= 1.
        seed: Of the draws.
    """
    rows, numbers = _stream(stages)
    count = len(rows)
    # Place drawn for row i: uniform on 0..i; row i < capacity takes its own place.
    drawn_place = (
        generator("c2gen.reservoir", seed).random(count) * np.arange(1, count + 1)
    ).astype(np.intp)
    place = np.where(np.arange(count) < capacity, np.arange(count), drawn_place)
    holder = np.full(min(capacity, count), -1, dtype=np.intp)
    enters = np.flatnonzero(place < capacity)
    holder[place[enters]] = enters  # the last one to be written to a place stays
    return Memory(rows[holder], numbers[holder])


def balanced(
    stages: Sequence[NDArray[np.intp]], kinds: NDArray[np.integer], capacity: int, seed: int
) -> Memory:
    """An equal share for each stage, what a small stage cannot use going to the others.

    Within a stage each kind has its turn. A row that left never comes back when stages are added.

    Args:
        stages: As for `reservoir`.
        kinds: Kind (here: type) of every row of the data, shape (rows,).
        capacity: Rows held at most, >= 1.
        seed: Of the order in which rows are preferred.
    """
    held, numbers = [], []
    shares = quotas([len(rows) for rows in stages], capacity)
    for number, (rows, share) in enumerate(zip(stages, shares, strict=True)):
        preferred = _by_turns(rows, kinds, seed, number)[:share]
        held.append(preferred)
        numbers.append(np.full(len(preferred), number, dtype=np.intp))
    empty = [np.zeros(0, dtype=np.intp)]
    return Memory(np.concatenate(held or empty), np.concatenate(numbers or empty))


def quotas(sizes: Sequence[int], capacity: int) -> list[int]:
    """Shares of a memory: equal, at most what is there, and nothing unused while some have more.

    What does not divide goes to the later ones.
    """
    level = 0  # every stage has so many, or all of its rows
    while level < max(sizes, default=0) and sum(min(z, level + 1) for z in sizes) <= capacity:
        level += 1
    shares = [min(size, level) for size in sizes]
    left = min(capacity, sum(sizes)) - sum(shares)
    hungry = [n for n, size in enumerate(sizes) if size > level]
    for n in hungry[len(hungry) - left :]:
        shares[n] += 1
    return shares


def drawn(memory: Memory, count: int, *key: str | int) -> NDArray[np.intp]:
    """Rows drawn from a memory without replacement; all of them where it holds no more.

    Args:
        memory: What is drawn from.
        count: Rows wanted.
        key: What the draw is for, such as seed, stage and step: the same key draws alike.
    """
    if len(memory) <= count:
        return memory.rows
    return memory.rows[generator("c2gen.replay", *key).choice(len(memory), count, replace=False)]


def _stream(stages: Sequence[NDArray[np.intp]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    empty = np.zeros(0, dtype=np.intp)
    rows = np.concatenate([empty, *stages])
    return rows, np.repeat(np.arange(len(stages), dtype=np.intp), [len(stage) for stage in stages])


def _by_turns(
    rows: NDArray[np.intp], kinds: NDArray[np.integer], seed: int, stage: int
) -> NDArray[np.intp]:
    """Rows in the order in which they are preferred: the kinds take turns, each at random.

    A row's rank does not depend on which rows are there beside it, so that the order of a stage
    that has only begun is a part of the order of the whole stage.
    """
    if not len(rows):
        return rows
    ranks = generator("c2gen.buffer", seed, stage).random(len(kinds))[rows]
    order = np.argsort(ranks, kind="stable")
    mine = kinds[rows][order]
    turn = np.zeros(len(rows), dtype=np.intp)
    for kind in np.unique(mine):
        at = np.flatnonzero(mine == kind)
        turn[at] = np.arange(len(at))
    return rows[order][np.argsort(turn, kind="stable")]
