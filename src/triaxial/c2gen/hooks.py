"""The hooks of a strategy, and what it sees of a stage. `strategies` has those of the paper.

A strategy is a small frozen dataclass of its own settings with up to four hooks. `start` looks at
the model before a stage, and returns what it must remember; `terms` says what a step minimizes;
`adjust` may change the gradients before the update; `finish` may change the weights after a stage.
A hook sees the stage (`At`) and keeps nothing itself: what it draws follows from the step, so that
a resumed run equals an undisturbed one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from triaxial.c2gen.memory import Memory, drawn, reservoir
from triaxial.errors import InputError
from triaxial.models.heads import Learner, Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HEADS", "At", "Finetuning", "Rehearsal", "check_setting", "kept", "matched", "merged"]

HEADS = 3  # veridical, natural, composed: the order of an item's pairs


@dataclass(frozen=True, slots=True)
class At:
    """A stage, as its strategy sees it.

    Args:
        learner: Model and data.
        pairs: The three pairs of every item of the data, shape (items, 3).
        labels: Their gold labels, shape (items, 3).
        trained: Which heads learn from an item, shape (items, 3), bool.
        kinds: Type of every item, 1..9.
        number: Of the stage, 0-based.
        earlier: Items of the stages before, each in the order of its first epoch.
        current: Items of this stage in that order.
        batch_size: Items of a step.
        learning_rate: The highest of the stage.
        seed: Of whatever is drawn.
        carried: What `start` returned in the stage before.
        state: What `start` returned in this stage.
    """

    learner: Learner
    pairs: NDArray[np.intp]
    labels: NDArray[np.intp]
    trained: NDArray[np.bool_]
    kinds: NDArray[np.intp]
    number: int
    earlier: tuple[NDArray[np.intp], ...]
    current: NDArray[np.intp]
    batch_size: int
    learning_rate: float
    seed: int
    carried: Mapping[str, torch.Tensor]
    state: Mapping[str, torch.Tensor]

    def learn(self, items: NDArray[np.intp], share: float) -> Terms:
        """Cross-entropy of items over the heads that learn from them, each with a weight."""
        row, head = np.nonzero(self.trained[items])
        count = len(row)
        return Terms(
            self.pairs[items[row], head],
            self.labels[items[row], head],
            np.full(count, share, dtype=np.float32),
            np.zeros(count, dtype=np.float32),
            np.zeros((count, 3), dtype=np.float32),
        )

    def match(self, items: NDArray[np.intp], target: NDArray[np.float32], pull: float) -> Terms:
        """Squared distance of items' logits to `target`, shape (items, 3 heads, 3), all heads.

        The mean over items, heads and classes counts `pull`.
        """
        count = len(items) * HEADS
        return Terms(
            self.pairs[items].ravel(),
            self.labels[items].ravel(),
            np.zeros(count, dtype=np.float32),
            np.full(count, pull / max(count, 1), dtype=np.float32),
            target.reshape(count, 3).astype(np.float32),
        )

    def logits(self, items: NDArray[np.intp]) -> NDArray[np.float32]:
        """Logits of items under the model as it is, shape (items, 3 heads, 3)."""
        return self.learner.logits(self.pairs[items].ravel()).reshape(len(items), HEADS, 3)


@dataclass(frozen=True, slots=True)
class Finetuning:
    """No remedy: each stage is learned as if there had been none before. The base of all others."""

    name: ClassVar[str] = "none"

    def start(self, at: At) -> dict[str, torch.Tensor]:
        """Called before a stage, with the weights that the one before left."""
        return {}

    def terms(self, at: At, step: int, items: NDArray[np.intp]) -> Terms:
        """What a step on some items of the stage minimizes."""
        return at.learn(items, 1 / len(items))

    def adjust(
        self,
        at: At,
        step: int,
        items: NDArray[np.intp],
        weights: Sequence[torch.nn.Parameter],
    ) -> None:
        """Called with the gradients of `terms`, before the update."""

    def finish(self, at: At) -> None:
        """Called after a stage; may change the model."""

    def cost(self, batch_size: int) -> float:
        """Items a step computes forward and backward; a forward alone counts a third."""
        return batch_size

    def memory_size(self) -> int:
        """Rows that are kept of earlier stages, at most."""
        return 0

    def alters_first_stage(self) -> bool:
        """Whether the first stage differs from plain training, so that it cannot be shared."""
        return False


@dataclass(frozen=True, slots=True)
class Rehearsal(Finetuning):
    """What all strategies with a memory share; no strategy of its own.

    Args:
        memory: Rows kept.
        replay_batch: Rows taken from it in a step; 0 for as many as the batch has.
    """

    memory: int = 100
    replay_batch: int = 0

    def __post_init__(self) -> None:
        check_setting(self, "memory", self.memory >= 1, "at least 1")
        check_setting(self, "replay_batch", self.replay_batch >= 0, "0 or more")

    def held(self, at: At, step: int) -> Memory:
        """What the memory holds at a step: by default, a reservoir of the earlier stages."""
        return reservoir(at.earlier, self.memory, at.seed)

    def replayed(self, at: At, step: int) -> NDArray[np.intp]:
        """Items taken from it in a step."""
        count = self.replay_batch or at.batch_size
        return drawn(self.held(at, step), count, at.seed, at.number, step)

    def cost(self, batch_size: int) -> float:
        """Batch and memory rows."""
        return batch_size + (self.replay_batch or batch_size)

    def memory_size(self) -> int:
        """Rows kept."""
        return self.memory


def kept(rows: NDArray[np.intp], logits: NDArray[np.float32]) -> dict[str, torch.Tensor]:
    """Memory rows and the logits that they are to keep, as a strategy's state."""
    return {"items": torch.from_numpy(rows.copy()), "logits": torch.from_numpy(logits.copy())}


def matched(at: At, count: int, step: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Rows of such a state drawn for a step, with their logits; `count` 0 is the batch's size."""
    places = np.arange(len(at.state["items"]))
    which = drawn(Memory(places, places), count or at.batch_size, at.seed, at.number, step)
    return at.state["items"].numpy()[which], at.state["logits"].numpy()[which]


def merged(terms: Terms) -> Terms:
    """Terms of one pair as one term, so that it is computed once."""
    pair, place = np.unique(terms.pair, return_inverse=True)
    first = np.full(len(pair), -1, dtype=np.intp)
    # The one with a target, where there is one.
    order = np.argsort(terms.pull, kind="stable")
    first[place[order]] = order
    weight = np.bincount(place, terms.weight).astype(np.float32)
    pull = np.bincount(place, terms.pull).astype(np.float32)
    return Terms(pair, terms.label[first], weight, pull, terms.target[first])


def check_setting(strategy: Finetuning, name: str, good: bool, rule: str) -> None:
    """Refuse a setting that breaks its rule."""
    if not good:
        seen = getattr(strategy, name)
        raise InputError(f"is {seen!r}; it must be {rule}", where=f"{strategy.name}: {name}")
