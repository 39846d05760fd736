"""What is trained and how: the options of a stage, and a grid of folds, streams and strategies.

Source: C²Gen NLI, "experiments": nine folds, offline and in two orders, five strategies, three
seeds; Adam, learning rate 1e-5, batch 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from triaxial.c2gen.streams import Draw
from triaxial.errors import InputError
from triaxial.models.schedule import FitOptions

if TYPE_CHECKING:
    from triaxial.models.heads import LoraOptions

__all__ = ["Grid", "TrainOptions"]


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """How every stage is trained.

    Args:
        epochs: Passes over a stage. Choice: the paper does not say how many.
        learning_rate: Source: the paper's.
        batch_size: Items of a step, three pairs each. Source: the paper's.
        weight_decay: Source: Adam, so none.
        warmup: Share of a stage's steps in which the rate rises.
        schedule: How the rate falls within a stage.
        clip_norm: Longest gradient; None leaves it as it is.
        primitive_supervision: Whether an item teaches both primitives, or that of its stage alone.
        optimizer_on_stage: Whether the optimizer's moments are kept from stage to stage.
        checkpoint_every: Updates between two checkpoints.
    """

    epochs: int = 3
    learning_rate: float = 1e-5
    batch_size: int = 8
    weight_decay: float = 0.0
    warmup: float = 0.0
    schedule: Literal["linear", "cosine", "constant"] = "constant"
    clip_norm: float | None = 1.0
    primitive_supervision: Literal["both", "stage"] = "both"
    optimizer_on_stage: Literal["reset", "keep"] = "reset"
    checkpoint_every: int = 200

    def __post_init__(self) -> None:
        self.fit(1)  # checks what is its own
        for name, known in (
            ("primitive_supervision", ("both", "stage")),
            ("optimizer_on_stage", ("reset", "keep")),
        ):
            if getattr(self, name) not in known:
                seen = getattr(self, name)
                raise InputError(f"is {seen!r}; it must be one of {', '.join(known)}", where=name)
        if self.batch_size < 1:
            raise InputError(f"is {self.batch_size}; it must be at least 1", where="batch_size")

    def fit(self, seed: int) -> FitOptions:
        """For the training loop."""
        return FitOptions(
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            warmup=self.warmup,
            schedule=self.schedule,
            clip_norm=self.clip_norm,
            seed=seed,
            checkpoint_every=self.checkpoint_every,
        )


@dataclass(frozen=True, slots=True)
class Grid:
    """What is trained: every fold with every stream, strategy and seed.

    Args:
        encoder: Directory or hub id of an encoder, or of a decoder.
        folds: Test types, 1..9.
        streams: Names of `streams.STREAMS`, or TOML files.
        strategies: Names of `strategies.STRATEGIES`; a stream of one stage has "none" alone.
        seeds: Of training; the paper has three.
        solution: Which of the two ways to divide a fold.
        draw: How many items.
        train: How a stage is trained.
        settings: Of the strategies, by name.
        pooling: Which vector the heads read.
        lora: Adapters in place of the encoder's weights.
        precision: Of training and prediction.
        vectors: Test items of which the composed pair's vector is kept after each stage.
    """

    encoder: str
    folds: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9)
    streams: tuple[str, ...] = ("cgen", "ver-nat", "nat-ver")
    strategies: tuple[str, ...] = ("none", "er-res", "er-buff", "er-mir", "agem", "kd")
    seeds: tuple[int, ...] = (1, 2, 3)
    solution: int = 1
    draw: Draw = field(default_factory=Draw)
    train: TrainOptions = field(default_factory=TrainOptions)
    settings: Mapping[str, Any] = field(default_factory=dict)
    pooling: Literal["auto", "first", "mean", "last"] = "auto"
    lora: LoraOptions | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    vectors: int = 0
