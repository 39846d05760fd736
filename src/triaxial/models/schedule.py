"""How long and how fast to train; without torch, so that options are checked at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from triaxial.errors import InputError

__all__ = ["FitOptions", "learning_rate"]


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How to train.

    Args:
        epochs: Passes over the data.
        max_steps: Number of updates; overrides `epochs`.
        learning_rate: The highest.
        weight_decay: Of matrices alone; biases and norms do not decay.
        warmup: Share of the steps in which the rate rises, 0..1.
        schedule: How the rate falls after that.
        clip_norm: Longest gradient; None leaves it as it is.
        seed: Of batches, dropout and all else.
        checkpoint_every: Updates between two checkpoints, where a directory for them is given.
    """

    epochs: int = 3
    max_steps: int | None = None
    learning_rate: float = 5e-5
    weight_decay: float = 0.01
    warmup: float = 0.1
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    clip_norm: float | None = 1.0
    seed: int = 1
    checkpoint_every: int = 200

    def __post_init__(self) -> None:
        wanted = {
            "epochs": (self.epochs >= 1, "at least 1"),
            "max_steps": (self.max_steps is None or self.max_steps >= 1, "at least 1"),
            "learning_rate": (0 < self.learning_rate < math.inf, "above 0"),
            "weight_decay": (0 <= self.weight_decay < math.inf, "0 or more"),
            "warmup": (0 <= self.warmup <= 1, "a share, 0..1"),
            "schedule": (self.schedule in _SCHEDULES, f"one of {', '.join(_SCHEDULES)}"),
            "clip_norm": (self.clip_norm is None or self.clip_norm > 0, "above 0"),
            "checkpoint_every": (self.checkpoint_every >= 1, "at least 1"),
        }
        for name, (good, rule) in wanted.items():
            if not good:
                raise InputError(f"is {getattr(self, name)!r}; it must be {rule}", where=name)


def learning_rate(options: FitOptions, step: int, total: int) -> float:
    """The rate of a step, 0-based: a linear rise to the highest, then the schedule's fall.

    Choice: the first step of the rise is above 0, so that no step is lost.
    """
    rising = round(options.warmup * total)
    if step < rising:
        return options.learning_rate * (step + 1) / rising
    return options.learning_rate * _SCHEDULES[options.schedule](
        (step - rising) / max(total - rising, 1)
    )


_SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": lambda part: 1 - part,
    "cosine": lambda part: 0.5 * (1 + math.cos(math.pi * part)),
    "constant": lambda part: 1.0,
}
