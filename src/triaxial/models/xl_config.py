"""The shapes of Transformer-XL models: what they are called, weigh and cost.

Without torch, so that a plan and its cost can be shown before anything heavy is loaded.

Source: Lazaridou et al. 2021, "Mind the Gap", for the sizes of "paper" and "paper-large"; Dai et
al. 2019 for what a layer consists of, and for post-norm.

Choice: "paper" has an inner width of 3,840, as the usual 4,096 would make 297 M parameters and not
287 M (this makes 287.6 M, of which 235.9 M in the layers' matrices).
Choice: "paper-large" keeps the 18 layers; width 1,280 with 4 times that inside makes 448.0 M. The
paper gives the sum alone.
Choice: dropout .1 in all; the paper does not say.
Choice: pre-norm in "tiny" and "small", which train shortly. Width 64, 4 layers, 200 steps of 1,024
tokens of abstracts, each at its better rate: 5.6 nats (at .003) against 6.4 of post-norm (at .001).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Literal

from triaxial.errors import InputError

__all__ = ["NARROWING", "PRESETS", "XLConfig", "count_parameters", "flops_per_token"]

NARROWING = 4  # of each further cluster of the adaptive softmax


@dataclass(frozen=True, slots=True)
class XLConfig:
    """The shape of a model.

    Args:
        vocab_size: Pieces.
        d_model: Width; even, a multiple of `heads`.
        heads: Attention heads.
        layers: Depth.
        d_inner: Width of the feed-forward layers.
        dropout: Of embeddings, distances, the outputs of sublayers and within feed-forward layers.
        attn_dropout: Of attention probabilities.
        segment: Tokens that callers cut texts into; the model takes any number.
        memory_train: Tokens remembered in training mode.
        memory_test: Tokens remembered in evaluation mode.
        clamp: Distances beyond it count as it: none longer than those of training need be met
            where `memory_test` is the longer. None keeps them all.
        norm: Whether layers are normalized after the residual sum (post, the paper's) or on the way
            in, with a last norm after all layers (pre).
        tied: Whether the output layer is the embedding.
        cutoffs: Where the clusters of an adaptive softmax begin, ids sorted by falling frequency;
            empty for a plain one. An adaptive one is not tied, and the host waits for its GPU.
    """

    vocab_size: int
    d_model: int = 128
    heads: int = 4
    layers: int = 4
    d_inner: int = 512
    dropout: float = 0.1
    attn_dropout: float = 0.0
    segment: int = 128
    memory_train: int = 128
    memory_test: int = 256
    clamp: int | None = None
    norm: Literal["post", "pre"] = "pre"
    tied: bool = True
    cutoffs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        least = {"vocab_size": 2, "memory_train": 0, "memory_test": 0} | dict.fromkeys(
            ("d_model", "heads", "layers", "d_inner", "segment"), 1
        )
        for name, low in least.items():
            value = getattr(self, name)
            if type(value) is not int or value < low:
                raise InputError(f"is {value!r}; it must be a whole number from {low}", where=name)
        inner = (0, *self.cutoffs, self.vocab_size)
        rising = all(type(b) is int and a < b for a, b in itertools.pairwise(inner))
        wanted = {
            "d_model": (
                self.d_model % 2 == 0 and self.d_model % self.heads == 0,
                f"even and a multiple of {self.heads} heads",
            ),
            "dropout": (0 <= self.dropout < 1, "a share from 0 and below 1"),
            "attn_dropout": (0 <= self.attn_dropout < 1, "a share from 0 and below 1"),
            "clamp": (
                self.clamp is None or (type(self.clamp) is int and self.clamp >= 1),
                "a whole number from 1, or None",
            ),
            "norm": (self.norm in ("post", "pre"), "one of post, pre"),
            "cutoffs": (
                rising and self.d_model >= NARROWING ** len(self.cutoffs),
                "rising, between 0 and vocab_size, fewer for a narrow model",
            ),
            "tied": (
                not (self.tied and self.cutoffs),
                "False beside cutoffs; set tied=False or cutoffs=()",
            ),
        }
        for name, (good, rule) in wanted.items():
            if not good:
                raise InputError(f"is {getattr(self, name)!r}; it must be {rule}", where=name)


_PAPER = XLConfig(
    50_259,
    d_model=1024,
    heads=16,
    layers=18,
    d_inner=3840,
    segment=1024,
    memory_train=384,
    memory_test=1600,
    norm="post",
)
PRESETS: dict[str, XLConfig] = {
    "tiny": XLConfig(8_192),  # 1.9 M; 1.4 M with 4,096 pieces
    "small": XLConfig(
        16_384,
        d_model=256,
        heads=8,
        layers=6,
        d_inner=1024,
        segment=256,
        memory_train=256,
        memory_test=512,
    ),
    "paper": _PAPER,
    "paper-large": replace(_PAPER, d_model=1280, heads=20, d_inner=5120),
}


def count_parameters(config: XLConfig) -> int:
    """Parameters of a model, without building it."""
    width, inner, vocabulary = config.d_model, config.d_inner, config.vocab_size
    layer = _matrices(config) // config.layers + 2 * width + inner + width + 4 * width
    total = vocabulary * width + config.layers * layer
    if config.norm == "pre":
        total += 2 * width
    if not config.cutoffs:
        return total + vocabulary + (0 if config.tied else vocabulary * width)
    total += width * (config.cutoffs[0] + len(config.cutoffs))
    ends = (*config.cutoffs[1:], vocabulary)
    for at, (start, end) in enumerate(zip(config.cutoffs, ends, strict=True), start=1):
        narrow = width // NARROWING**at
        total += width * narrow + narrow * (end - start)
    return total


def flops_per_token(config: XLConfig, memory: int) -> tuple[float, float]:
    """Least FLOPs of a token: to score it, and to train on it (all parameters).

    2 and 6 for every weight of the layers and of the output layer, and 3 products of the width with
    the context, which is `memory` and half a segment. Not in it, because it is shared by the rows
    of a batch or avoidable: the projection of distances again for every forward, and in training
    that of the memory. Of an adaptive softmax only the first cluster counts.

    Args:
        config: The shape; its `segment` counts.
        memory: Tokens remembered.
    """
    outputs = (*config.cutoffs, config.vocab_size)[0] + len(config.cutoffs)
    context = memory + (config.segment + 1) / 2
    score = (
        2.0 * _matrices(config)
        + 2.0 * config.d_model * outputs
        + 6.0 * config.layers * config.d_model * context
    )
    return score, 3 * score


def _matrices(config: XLConfig) -> int:
    """Weights of the layers' matrices: query, key, value, distance, output; feed-forward."""
    return config.layers * config.d_model * (5 * config.d_model + 2 * config.d_inner)
