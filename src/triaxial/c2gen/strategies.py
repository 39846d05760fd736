"""Strategies of continual learning, side by side: what of the past goes into a training step.

Each overrides some of the hooks of `hooks.Finetuning`, which is the strategy "none". A new one is
one class here and its place in `STRATEGIES`; `docs/strategies.md` builds one.

Source: C²Gen NLI (ER-Res, ER-Buff, ER-MIR, A-GEM, KD); Aljundi et al. 2019 (MIR); Chaudhry et al.
2019 (A-GEM). `beyond` has those that are not in the paper.
Choice: memories hold rows of earlier stages (`memory_scope` = previous_stage, the paper's words);
`stream`, for the three forms of replay, also holds what came in the stage itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch

from triaxial.c2gen.beyond import Der, Ewc, WeightAverage
from triaxial.c2gen.hooks import At, Finetuning, Rehearsal, check_setting, kept, matched
from triaxial.c2gen.memory import Memory, balanced, drawn, reservoir
from triaxial.errors import InputError
from triaxial.models.heads import Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "STRATEGIES",
    "AGem",
    "ErBuff",
    "ErMir",
    "ErRes",
    "Kd",
    "strategy_named",
]

Tensors = dict[str, torch.Tensor]
_MODES = ("concat", "two_step")
_SCOPES = ("previous_stage", "stream")


@dataclass(frozen=True, slots=True)
class ErRes(Rehearsal):
    """Experience replay from a reservoir.

    Args:
        memory: Rows kept.
        replay_batch: Rows replayed in a step; 0 for as many as the batch has.
        replay_mode: Whether they join the batch in one step, or take a step of their own after it.
        memory_scope: Whether the memory is filled after a stage, or as rows come.
    """

    name: ClassVar[str] = "er-res"
    replay_mode: Literal["concat", "two_step"] = "concat"
    memory_scope: Literal["previous_stage", "stream"] = "previous_stage"

    def __post_init__(self) -> None:
        Rehearsal.__post_init__(self)
        modes, scopes = ("concat", "two_step"), ("previous_stage", "stream")
        check_setting(self, "replay_mode", self.replay_mode in modes, f"one of {', '.join(modes)}")
        check_setting(
            self, "memory_scope", self.memory_scope in scopes, f"one of {', '.join(scopes)}"
        )

    def held(self, at: At, step: int) -> Memory:
        """What the memory holds at a step."""
        return reservoir(_seen(at, step, self), self.memory, at.seed)

    def terms(self, at: At, step: int, items: NDArray[np.intp]) -> Terms:
        """Batch and replayed rows as one batch, or one of the two by turns."""
        if self.replay_mode == "two_step":
            rows = items if len(items) else self.replayed(at, step)
        else:
            rows = np.concatenate([items, self.replayed(at, step)])
        return at.learn(rows, 1 / len(rows))

    def alters_first_stage(self) -> bool:
        """A memory that fills on the stream is replayed from in the first stage already."""
        return self.memory_scope == "stream"


@dataclass(frozen=True, slots=True)
class ErBuff(ErRes):
    """Experience replay from a buffer with an equal share for each stage; settings of `ErRes`."""

    name: ClassVar[str] = "er-buff"

    def held(self, at: At, step: int) -> Memory:
        """What the buffer holds at a step."""
        return balanced(_seen(at, step, self), at.kinds, self.memory, at.seed)


@dataclass(frozen=True, slots=True)
class ErMir(ErRes):
    """Replay of what the coming update would harm most: maximally interfered retrieval.

    The gradient of the batch is used twice, for the virtual step and for the true one.

    Args:
        memory: Rows kept, in a reservoir.
        replay_batch: As in `ErRes`.
        replay_mode: `concat` alone.
        memory_scope: As in `ErRes`.
        mir_pool: Candidates drawn from the memory, more than are replayed. Choice: half of it.
    """

    name: ClassVar[str] = "er-mir"
    mir_pool: int = 50

    def __post_init__(self) -> None:
        ErRes.__post_init__(self)
        check_setting(
            self, "replay_mode", self.replay_mode == "concat", "concat, for its virtual step"
        )
        few = max(self.replay_batch, 1)
        rule = f"above the replay batch ({few}): otherwise nothing is chosen"
        check_setting(self, "mir_pool", self.mir_pool > few, rule)

    def candidates(self, at: At, step: int) -> NDArray[np.intp]:
        """Items among which a step chooses."""
        return drawn(self.held(at, step), self.mir_pool, at.seed, at.number, step)

    def terms(self, at: At, step: int, items: NDArray[np.intp]) -> Terms:
        """The batch's part of the joint batch; `adjust` adds the rest."""
        return at.learn(items, 1 / (len(items) + self._count(at, step)))

    def adjust(
        self,
        at: At,
        step: int,
        items: NDArray[np.intp],
        weights: Sequence[torch.nn.Parameter],
    ) -> None:
        """Add the gradient of the candidates whose loss a step on the batch alone raises most."""
        pool, count = self.candidates(at, step), self._count(at, step)
        if not count:
            return
        terms = at.learn(pool, 1.0)
        owner = np.repeat(np.arange(len(pool)), at.trained[pool].sum(axis=1))
        moved: list[torch.Tensor] = [weight for weight in weights if weight.grad is not None]
        saved = [weight.detach().clone() for weight in moved]
        gradients = [weight.grad for weight in moved if weight.grad is not None]
        # The gradient of the batch's mean, which holds a part of the joint mean's weight.
        rate = at.learning_rate * (len(items) + count) / len(items)
        before = at.learner.losses(terms)
        with torch.no_grad():
            torch._foreach_add_(moved, gradients, alpha=-rate)
        after = at.learner.losses(terms)
        with torch.no_grad():
            torch._foreach_copy_(moved, saved)
        rise = np.bincount(owner, after - before, minlength=len(pool))
        chosen = pool[np.argsort(-rise, kind="stable")[:count]]
        at.learner.backward(at.learn(chosen, 1 / (len(items) + count)))

    def cost(self, batch_size: int) -> float:
        """Batch and replayed rows, and two looks at the candidates."""
        return ErRes.cost(self, batch_size) + self.mir_pool * 2 / 3

    def _count(self, at: At, step: int) -> int:
        held = len(self.held(at, step))
        return min(self.replay_batch or at.batch_size, held)


@dataclass(frozen=True, slots=True)
class AGem(Rehearsal):
    """Averaged gradient episodic memory: no step that raises the loss on a memory batch.

    Args:
        memory: Rows kept, in a reservoir.
        replay_batch: Rows of the reference gradient; 0 for as many as the batch has.
    """

    name: ClassVar[str] = "agem"

    def adjust(
        self,
        at: At,
        step: int,
        items: NDArray[np.intp],
        weights: Sequence[torch.nn.Parameter],
    ) -> None:
        """Project the gradient on the half-space in which the reference loss does not rise."""
        rows = self.replayed(at, step)
        if not len(rows):
            return
        current = [weight.grad for weight in weights]
        for weight in weights:
            weight.grad = None
        at.learner.backward(at.learn(rows, 1 / len(rows)))
        reference = [weight.grad for weight in weights]
        for weight, gradient in zip(weights, projected(current, reference), strict=True):
            weight.grad = gradient


@dataclass(frozen=True, slots=True)
class Kd(Rehearsal):
    """Distillation: on memory rows the logits of all heads stay what they were before the stage.

    Args:
        memory: Rows kept, in a reservoir.
        replay_batch: Rows matched in a step; 0 for as many as the batch has.
        kd_weight: Of the mean squared distance, beside the batch's loss.
    """

    name: ClassVar[str] = "kd"
    kd_weight: float = 1.0

    def __post_init__(self) -> None:
        Rehearsal.__post_init__(self)
        check_setting(self, "kd_weight", self.kd_weight > 0, "above 0")

    def start(self, at: At) -> Tensors:
        """The teacher's logits on all of the memory, computed once."""
        held = self.held(at, 0)
        return kept(held.rows, at.logits(held.rows)) if len(held) else {}

    def terms(self, at: At, step: int, items: NDArray[np.intp]) -> Terms:
        """The batch's loss and the distance to the teacher."""
        terms = at.learn(items, 1 / len(items))
        if not at.state:
            return terms
        rows, logits = matched(at, self.replay_batch, step)
        return Terms.join([terms, at.match(rows, logits, self.kd_weight)])


STRATEGIES: Mapping[str, type[Finetuning]] = {
    cls.name: cls for cls in (Finetuning, ErRes, ErBuff, ErMir, AGem, Kd, Der, Ewc, WeightAverage)
}


def strategy_named(name: str, settings: Mapping[str, Any]) -> Finetuning:
    """A strategy with those of the settings that are its own.

    Raises:
        InputError: There is no such strategy, or a setting is out of range.
    """
    if name not in STRATEGIES:
        wanted = ", ".join(STRATEGIES)
        raise InputError(f"{name!r} is no strategy; choose from {wanted}", where="--strategies")
    kind = STRATEGIES[name]
    own = {field.name for field in fields(kind)}
    return kind(**{key: value for key, value in settings.items() if key in own})


def projected(
    current: Sequence[torch.Tensor | None], reference: Sequence[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """Gradients without the part that points against a reference; unchanged where none does.

    A missing gradient is zero. Nothing waits for the device.
    """
    both = [
        (mine, other)
        for mine, other in zip(current, reference, strict=True)
        if mine is not None and other is not None
    ]
    others = [other for other in reference if other is not None]
    if not both:
        return list(current)
    dot = torch.stack([(mine * other).sum() for mine, other in both]).sum()
    norm = torch.stack(torch._foreach_norm(others)).square().sum()
    # 0 where the dot product is not negative; and no division by a reference of zero.
    away = torch.where(dot < 0, dot / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0.0)
    found: list[torch.Tensor | None] = []
    for mine, other in zip(current, reference, strict=True):
        if other is None:
            found.append(mine)
        else:
            found.append(-away * other if mine is None else mine.sub_(away * other))
    return found


def _seen(at: At, step: int, strategy: ErRes) -> tuple[NDArray[np.intp], ...]:
    """Items offered to the memory before a step: earlier stages, and this one where it streams."""
    if strategy.memory_scope == "previous_stage":
        return at.earlier
    turns = 2 if strategy.replay_mode == "two_step" else 1
    came = (step // turns) * at.batch_size + (at.batch_size if step % turns else 0)
    return (*at.earlier, at.current[:came])
