"""Documents read step by step, each step with a gradient: what dynamic evaluation updates on.

A step is one segment of a Transformer-XL, or one window of any other model, of each document that
is being read. Its mean loss, of the targets that count here for the first time, comes with the loss
of each of them from the same forward pass. As whoever asks for steps updates the weights between
them, every step is read by the weights of its time; an open memory holds hidden states of earlier
weights, and their keys and values are projected by today's.

The host never waits for the device here, but where a model of Hugging Face does so by itself.

B documents, from the longest to the shortest, T tokens of a step, L targets of the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F

from triaxial.errors import InputError
from triaxial.models.base import Hardware, autocast
from triaxial.models.batching import pad
from triaxial.models.causal import CausalLM
from triaxial.models.causal_readers import linear_head, window_spans
from triaxial.models.cross_entropy import IGNORED, mean_loss
from triaxial.models.tensors import on_device
from triaxial.models.transformer_xl import Memory, TransformerXL
from triaxial.temporal.parameters import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Round",
    "Row",
    "Step",
    "Steps",
    "gradients_of",
    "rounds_of",
    "rows_of",
    "steps_of",
]


@dataclass(frozen=True, slots=True)
class Row:
    """A document: its marks and pieces, the pieces alone, and their characters."""

    ids: list[int]
    pieces: NDArray[np.int32]
    offsets: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Round:
    """Documents that are read side by side.

    Args:
        ids: Shape (B, L), padded with anything.
        targets: The id after each one, shape (B, L), padded with `IGNORED`.
        lengths: Targets of each document, falling.
        sizes: The same on the device, shape (B,).
        order: Which of the documents given each row is.
    """

    ids: torch.Tensor
    targets: torch.Tensor
    lengths: list[int]
    sizes: torch.Tensor
    order: list[int]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a round.

    Args:
        mean: Mean loss of the targets that count, shape (), with a gradient in gradient mode.
        losses: Of each, shape (rows, end - first), without a gradient.
        rows: Documents that are not done: the first rows of the round.
        first: The first target that counts.
        end: The one after the last.
        tokens: Read, without padding.
        pairs: Of a token and one that it looks at.
    """

    mean: torch.Tensor
    losses: torch.Tensor
    rows: int
    first: int
    end: int
    tokens: int
    pairs: int


class Steps(Protocol):
    """A model that reads rounds step by step."""

    memory: Memory | None

    def of(self, found: Round) -> Iterator[Step]:
        """The steps of a round; each is read when it is asked for."""
        ...


def rows_of(model: CausalLM, texts: Sequence[str]) -> list[Row]:
    """Documents as rows of ids."""
    ends = [] if model.end is None else [model.end]
    return [
        Row([model.start, *ids.tolist(), *ends], ids, offsets)
        for ids, offsets in model.encode(texts)
    ]


def gradients_of(mean: torch.Tensor, weights: Weights) -> tuple[torch.Tensor | None, ...]:
    """Of a mean loss by the weights that move; None for one that had no part in it."""
    return torch.autograd.grad(mean, weights.values, allow_unused=True)


def rounds_of(rows: Sequence[Sequence[Sequence[int]]], device: str) -> list[Round]:
    """Rounds of documents, each a row of ids with its marks, moved to the device in one go."""
    found = []
    for some in rows:
        order = sorted(range(len(some)), key=lambda n: -len(some[n]))
        lengths = [len(some[n]) - 1 for n in order]
        arrays = (
            pad([some[n][:-1] for n in order], 0),
            pad([some[n][1:] for n in order], IGNORED),
            np.asarray(lengths),
        )
        ids, targets, sizes = (on_device(array, device) for array in arrays)
        found.append(Round(ids, targets, lengths, sizes, order))
    return found


def steps_of(model: CausalLM, *, carry: bool = False) -> Steps:
    """How a model is read.

    Args:
        model: Transformer-XL or not.
        carry: Whether a document remembers the ones before it.

    Raises:
        InputError: It should carry a memory and has none.
    """
    network = model.network
    if isinstance(network, TransformerXL):
        return _Segments(network, model.where, carry)
    if carry:
        raise InputError("is 'carry', and this model has no memory; choose reset", where="borders")
    return _Windows(network, model.where, model.facts["window"], model.facts["stride"])


class _Segments:
    def __init__(self, network: TransformerXL, where: Hardware, carry: bool) -> None:
        self.network, self.where, self.carry = network, where, carry
        self.memory: Memory | None = None

    def of(self, found: Round) -> Iterator[Step]:
        segment, limit = self.network.config.segment, self.network.config.memory_test
        memory = self.memory if self.carry else None
        if memory is None:
            memory = self.network.start(len(found.lengths), frozen=False)
        carried = memory.states[0].shape[1]  # all real, as a carried memory is of one row
        width = found.lengths[0]
        for at in range(0, width, segment):
            end = min(at + segment, width)
            rows = sum(length > at for length in found.lengths)
            # Rows that are done leave; those that stay have filled every segment so far.
            states = tuple(state[:rows] for state in memory.states)
            memory = replace(memory, states=states, valid=memory.valid[:rows])
            real = [min(length, end) - at for length in found.lengths[:rows]]
            uneven = real[-1] < end - at
            lengths = (found.sizes[:rows] - at).clamp(max=end - at) if uneven else None
            part = slice(at, end)
            with autocast(self.where):
                mean, losses, memory = self.network.loss(
                    found.ids[:rows, part], found.targets[:rows, part], memory, None, lengths
                )
            before = min(carried + at, limit)
            pairs = sum(n * before + n * (n + 1) // 2 for n in real)
            yield Step(mean, losses, rows, at, end, sum(real), pairs)
        self.memory = memory if self.carry else None


class _Windows:
    def __init__(self, network: Any, where: Hardware, window: int, stride: int) -> None:
        self.network, self.where, self.window, self.stride = network, where, window, stride
        self.memory: Memory | None = None
        self.head = linear_head(network)

    def of(self, found: Round) -> Iterator[Step]:
        for begin, end, first in window_spans(found.lengths[0], self.window, self.stride):
            rows = sum(length > first for length in found.lengths)
            # No mask: attention is causal and padding comes last.
            ids = found.ids[:rows, begin:end]
            targets = found.targets[:rows, first:end]
            mean, losses = self._losses(ids, targets, first - begin)
            real = [min(length, end) - begin for length in found.lengths[:rows]]
            pairs = sum(n * (n + 1) // 2 for n in real)
            yield Step(mean, losses, rows, first, end, sum(real), pairs)

    def _losses(
        self, ids: torch.Tensor, targets: torch.Tensor, first: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        flat = targets.flatten()
        if (
            self.head is None
        ):  # an output layer of its own kind: all logits, as the model makes them
            with autocast(self.where):
                logits = self.network(input_ids=ids, use_cache=False).logits[:, first:]
            logits = logits.float().flatten(0, 1)
            losses = F.cross_entropy(logits, flat, ignore_index=IGNORED, reduction="none")
            mean = losses.sum() / (flat != IGNORED).sum()
            return mean, losses.detach().view_as(targets)
        with autocast(self.where):
            hidden = self.network.base_model(input_ids=ids, use_cache=False)[0]
        hidden = hidden[:, first:].flatten(0, 1).float()
        mean, losses = mean_loss(hidden, self.head.weight, self.head.bias, flat)
        return mean, losses.view_as(targets)
