"""Transformer-XL: a language model that reads a text in segments and remembers the ones before.

Each layer attends to its segment and to what that layer saw of the last M tokens before it.
Positions are distances: sinusoids with a projection of their own, and two learned biases, u for
contents and v for distances, in the place of the query's position.

What is carried from segment to segment is a `Memory`, given and returned, of one of two kinds:

- *open*: the inputs of every layer, detached; keys and values are projected from them by today's
  weights. For training and dynamic evaluation; the kind that a forward with gradients starts.
- *frozen*: keys, values and projected distances, each computed once; for scoring with fixed
  weights, the kind that a forward without gradients starts. Of no use once a weight has changed.

A memory knows of each row how much of it is real, so rows of unequal length may go on side by side
(`lengths`), and rows that begin another text lose what they remember (`reset`). Neither padding nor
the other rows of a batch change a score, and the host never waits for the device (but for an
adaptive softmax).

Training on parallel streams keeps its memory in buffers of the module (`open_streams`,
`stream_loss`), because it is a state like the weights: it came from weights that are gone, so a
run that was killed could not make it again. `fit` saves buffers with its checkpoints and puts them
back, so that a resumed run ends bit for bit like an undisturbed one; `save` leaves them out.

Source: Dai et al. 2019, "Transformer-XL: Attentive Language Models beyond a Fixed-Length Context",
section 3 and appendix B; Lazaridou et al. 2021 for the sizes of "paper" and "paper-large".

Choice: no tied adaptive softmax; its clusters have widths of their own.

B rows, T tokens of a segment, M remembered, W = M + T, H heads, d width, V vocabulary.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from triaxial.errors import InputError, StoreError
from triaxial.models.cross_entropy import CHUNK, IGNORED, mean_loss, token_losses
from triaxial.models.xl_config import (
    NARROWING,
    PRESETS,
    XLConfig,
    count_parameters,
    flops_per_token,
)
from triaxial.models.xl_layer import Layer, Linear, attention_mask
from triaxial.stats import generator

__all__ = [
    "PRESETS",
    "Memory",
    "TransformerXL",
    "XLConfig",
    "count_parameters",
    "flops_per_token",
    "load_transformer_xl",
]

_KIND = "triaxial_transformer_xl"
_SPREAD = 0.02  # of initial weights, as in the authors' code


@dataclass(frozen=True, slots=True)
class Memory:
    """What a model remembers of each row; see the module.

    Args:
        states: For each layer its inputs, shape (B, M, d), or keys and values, shape (B, M, 2 d).
        valid: How many of a row's last positions are real, shape (B,), int.
        frozen: Whether `states` are keys and values.
        distances: For each layer the projected distances, longest first and one below 0 last,
            shape (H, rows, d / H); empty in an open memory.
    """

    states: tuple[torch.Tensor, ...]
    valid: torch.Tensor
    frozen: bool
    distances: tuple[torch.Tensor, ...] = ()


class TransformerXL(nn.Module):
    """The model.

    Args:
        config: Its shape.
        seed: Of the initial weights, which depend on nothing else. None leaves them without
            values, on torch's meta device: to count, or to be loaded.
    """

    stream_states: torch.Tensor  # (layers, rows, M, d); there after `open_streams`
    stream_valid: torch.Tensor  # (rows,)
    _frequencies: torch.Tensor

    def __init__(self, config: XLConfig, *, seed: int | None = 1) -> None:
        super().__init__()
        self.config = config
        width = config.d_model
        self.adaptive: nn.AdaptiveLogSoftmaxWithLoss | None = None
        self.output: nn.Linear | None = None
        self.output_bias: nn.Parameter | None = None
        with torch.device("meta" if seed is None else "cpu"):
            empty = torch.empty(config.vocab_size, width)
            self.embedding = nn.Embedding(config.vocab_size, width, _weight=empty)
            self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
            self.last_norm = nn.LayerNorm(width) if config.norm == "pre" else nn.Identity()
            if config.cutoffs:
                with torch.random.fork_rng(devices=[]):  # it draws values, which are not used
                    self.adaptive = nn.AdaptiveLogSoftmaxWithLoss(
                        width, config.vocab_size, [*config.cutoffs], div_value=NARROWING
                    )
            else:
                self.output_bias = nn.Parameter(torch.empty(config.vocab_size))
                if not config.tied:
                    self.output = Linear(width, config.vocab_size, bias=False)
        if seed is not None:
            _initialize(self, seed)
        # Not persistent: made from the configuration, with real values also on a meta model.
        frequencies = 1 / 10_000 ** (torch.arange(0, width, 2) / width)
        self.register_buffer("_frequencies", frequencies, persistent=False)

    def forward(
        self,
        ids: torch.Tensor,
        memory: Memory | None = None,
        targets: torch.Tensor | None = None,
        reset: torch.Tensor | None = None,
        lengths: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Memory]:
        """Read one segment of every row.

        Args:
            ids: Pieces, shape (B, T), padded on the right with anything.
            memory: What the last call returned; None starts one, of the kind that gradient mode
                asks for (see `start`).
            targets: The piece after each one, shape (B, T); `IGNORED` (-100) where there is none.
            reset: Rows that begin another text and forget the one before, shape (B,), bool.
            lengths: Real pieces of each row, shape (B,), int; None for T each.

        Returns:
            With targets the negative log-likelihood of each in nats, shape (B, T), 0 where it is
            ignored; without, the last hidden states, shape (B, T, d). And the new memory.
        """
        hidden, memory = self._read(ids, memory, reset, lengths)
        if targets is None:
            return hidden, memory
        return self._losses(hidden, targets), memory

    def loss(
        self,
        ids: torch.Tensor,
        targets: torch.Tensor,
        memory: Memory | None = None,
        reset: torch.Tensor | None = None,
        lengths: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, Memory]:
        """As `forward`, for a gradient step: the mean loss with a gradient, and every loss without.

        Cheaper than the mean of what `forward` returns: the output layer's gradients are made along
        with its losses.

        Returns:
            The mean over the targets that count, shape (); the losses, shape (B, T); the memory.
        """
        hidden, memory = self._read(ids, memory, reset, lengths)
        if self.adaptive is not None:
            losses = self._losses(hidden, targets)
            mean = losses.sum() / (targets != IGNORED).sum().clamp(min=1)
            return mean, losses.detach(), memory
        mean, flat = mean_loss(
            hidden.flatten(0, 1),
            self._output(),
            self.output_bias,
            targets.flatten(),
            dtype=self._head_type(hidden),
        )
        return mean, flat.view_as(targets), memory

    def start(self, rows: int, *, frozen: bool) -> Memory:
        """An empty memory; see the module for the two kinds."""
        device = self.embedding.weight.device
        width = self.config.d_model * (2 if frozen else 1)
        empty = torch.empty(rows, 0, width, device=device)
        valid = torch.zeros(rows, dtype=torch.long, device=device)
        return Memory((empty,) * self.config.layers, valid, frozen)

    def open_streams(self, rows: int) -> None:
        """Make room to remember parallel streams in training; all begin anew. 0 rows: close them.

        Call it before `fit`: its checkpoints then hold the streams' memory.
        """
        shape = (self.config.layers, rows, self.config.memory_train, self.config.d_model)
        device = self.embedding.weight.device
        valid = torch.zeros(rows, dtype=torch.long, device=device)
        self.register_buffer("stream_states", torch.zeros(shape, device=device), persistent=False)
        self.register_buffer("stream_valid", valid, persistent=False)

    def stream_loss(
        self,
        ids: torch.Tensor,
        targets: torch.Tensor,
        reset: torch.Tensor | None = None,
        *,
        first: int = 0,
    ) -> torch.Tensor:
        """Mean loss of the next segment of some streams; what they remember is moved on.

        Args:
            ids: Pieces, shape (B, T).
            targets: The piece after each one, shape (B, T); `IGNORED` where there is none.
            reset: Streams that begin another text here, shape (B,), bool.
            first: The B streams are those from here on: the parts of a batch are groups of streams.
        """
        assert self.training, "streams are for training; in evaluation pass a memory"
        rows = slice(first, first + len(ids))
        states, valid = self.stream_states[:, rows], self.stream_valid[rows]
        memory = Memory(tuple(states.unbind()), valid, frozen=False)
        mean, _, memory = self.loss(ids, targets, memory, reset)
        with torch.no_grad():
            for place, new in zip(states.unbind(), memory.states, strict=True):
                place.copy_(new)
            valid.copy_(memory.valid)
        return mean

    def save(self, directory: Path) -> None:
        """Write `config.json` and `model.safetensors`; the configuration last.

        Raises:
            StoreError: The directory cannot be written.
        """
        from safetensors.torch import save_file

        weights = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        config = json.dumps({"model_type": _KIND, **asdict(self.config)}, indent=1)
        temporary = directory / f".saving-{os.getpid()}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            save_file(weights, temporary)
            temporary.replace(directory / "model.safetensors")
            temporary.write_text(config, encoding="utf-8")
            temporary.replace(directory / "config.json")
        except Exception as error:
            if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
                raise
            raise StoreError(
                f"the model cannot be written ({error}); make room or choose another directory",
                where=directory,
            ) from None

    def _read(
        self,
        ids: torch.Tensor,
        memory: Memory | None,
        reset: torch.Tensor | None,
        lengths: torch.Tensor | None,
    ) -> tuple[torch.Tensor, Memory]:
        if memory is None:
            memory = self.start(len(ids), frozen=not torch.is_grad_enabled())
        assert not (memory.frozen and torch.is_grad_enabled()), (
            "keys and values in a frozen memory have no gradients: start(rows, frozen=False)"
        )
        tokens, past = ids.shape[1], memory.states[0].shape[1]
        valid = memory.valid
        if reset is not None:
            valid = valid.masked_fill(reset, 0)
        hidden = self.embedding(ids) * math.sqrt(self.config.d_model)  # (B, T, d)
        hidden = F.dropout(hidden, self.config.dropout, self.training)
        mask = attention_mask(tokens, past, valid, _product_type(hidden))
        window = past + tokens
        projected = self._distances(memory, window)
        limit = self.config.memory_train if self.training else self.config.memory_test
        count = min(window, limit)
        kept = []
        for layer, before, distances in zip(self._layers, memory.states, projected, strict=True):
            needed = distances[:, -window - 1 :]
            hidden, states = layer(hidden, before, needed, mask, frozen=memory.frozen)
            kept.append(_kept(states.detach(), count, past, lengths))
        valid = (valid + (tokens if lengths is None else lengths)).clamp(max=count)
        hidden = F.dropout(self.last_norm(hidden), self.config.dropout, self.training)
        # Those of an open memory belong to weights that are about to change.
        known = projected if memory.frozen else ()
        return hidden, Memory(tuple(kept), valid, memory.frozen, known)

    def _distances(self, memory: Memory, window: int) -> tuple[torch.Tensor, ...]:
        """For each layer the projected distances from W - 1 or more down to 0, and one more row."""
        if memory.distances and memory.distances[0].shape[1] > window:
            return memory.distances
        # The row below 0 is that of the next piece, which no query may see: see `_by_distance`.
        distances = torch.arange(window - 1, -2, -1, device=self._frequencies.device)
        if self.config.clamp is not None:
            distances = distances.clamp(max=self.config.clamp)
        angles = distances[:, None] * self._frequencies  # (W + 1, d / 2)
        waves = torch.cat([angles.sin(), angles.cos()], -1)
        waves = F.dropout(waves, self.config.dropout, self.training)
        shape = (len(waves), self.config.heads, -1)
        return tuple(
            layer.distance(waves).view(shape).transpose(0, 1)  # (H, W + 1, d / H)
            for layer in self._layers
        )

    @property
    def _layers(self) -> Iterator[Layer]:
        return cast("Iterator[Layer]", iter(self.layers))

    def _losses(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        rows, flat = hidden.flatten(0, 1), targets.flatten()
        if self.adaptive is None:
            losses = token_losses(
                rows, self._output(), self.output_bias, flat, dtype=self._head_type(hidden)
            )
        else:
            parts = [
                checkpoint(
                    self._adaptive_losses,
                    rows[start : start + CHUNK],
                    flat[start : start + CHUNK],
                    use_reentrant=False,
                    preserve_rng_state=False,  # there is nothing random in it
                )
                for start in range(0, len(flat), CHUNK)
            ]
            losses = torch.cat(parts)
        return losses.view_as(targets)

    def _adaptive_losses(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        assert self.adaptive is not None
        log_p: torch.Tensor = self.adaptive(hidden, targets.clamp(min=0)).output
        return -log_p.float().masked_fill(targets == IGNORED, 0.0)

    def _output(self) -> torch.Tensor:
        return self.embedding.weight if self.output is None else self.output.weight

    def _head_type(self, hidden: torch.Tensor) -> torch.dtype:
        # Logits rounded to bf16 make probabilities tie; training does not mind, scores do.
        return _product_type(hidden) if self.training else hidden.dtype


def load_transformer_xl(directory: Path, *, device: str = "cpu") -> TransformerXL:
    """A saved model, in evaluation mode.

    Raises:
        InputError: A file is missing, damaged or of another kind of model.
    """
    from safetensors.torch import load_file

    file = directory / "config.json"
    if not file.is_file():
        raise InputError("no config.json: not a model directory; name another", where=directory)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        kind = found.pop("model_type", "nothing known")
    except (ValueError, TypeError, AttributeError):
        raise InputError("is damaged; save the model again", where=file) from None
    if kind != _KIND:
        raise InputError(
            f"is of {kind!r}, not of a Transformer-XL of triaxial's; name another directory",
            where=file,
        )
    wanted = {field.name for field in fields(XLConfig)}
    if found.keys() != wanted:
        odd = min(found.keys() ^ wanted)
        raise InputError(
            f"{odd!r} is {'missing' if odd in wanted else 'unknown'}; use the version of triaxial "
            "that saved it",
            where=file,
        )
    try:
        config = XLConfig(**{**found, "cutoffs": tuple(found["cutoffs"])})
    except (InputError, TypeError) as error:
        raise InputError(f"{error}; save the model again", where=file) from None
    file = directory / "model.safetensors"
    if not file.is_file():
        raise InputError("no weights (model.safetensors); save the model again", where=directory)
    try:
        weights = load_file(file, device=device)
    except Exception as error:  # safetensors raises a bare exception type of its own
        if type(error).__name__ != "SafetensorError":
            raise
        raise InputError(f"is damaged ({error}); save the model again", where=file) from None
    model = TransformerXL(config, seed=None)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    for name in sorted(shapes.keys() | weights.keys()):
        there = tuple(weights[name].shape) if name in weights else "missing"
        here = tuple(shapes[name]) if name in shapes else "no such weight"
        if there != here:
            raise InputError(
                f"{name} is {there}, wanted {here} by config.json; save the model again", where=file
            )
    model.load_state_dict(weights, assign=True)
    return model.to(device).eval()


def _product_type(hidden: torch.Tensor) -> torch.dtype:
    """The precision of matrix products: that of autocast, where it is on."""
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype


def _kept(
    states: torch.Tensor, count: int, past: int, lengths: torch.Tensor | None
) -> torch.Tensor:
    """The last `count` real states of each row, shape (B, count, …)."""
    if lengths is None:
        return states[:, states.shape[1] - count :]
    places = torch.arange(count, device=states.device) + (past + lengths - count)[:, None]
    # A place before the first is not real, and `valid` says so.
    return states.gather(1, places.clamp(min=0)[..., None].expand(-1, -1, states.shape[-1]))


def _initialize(model: TransformerXL, seed: int) -> None:
    drawn = generator("transformer_xl", seed).integers(1 << 63)
    torch_generator = torch.Generator().manual_seed(int(drawn))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 or name.endswith(("content_bias", "distance_bias")):
                weight.normal_(0.0, _SPREAD, generator=torch_generator)
            else:
                weight.fill_(1.0 if "norm.weight" in name else 0.0)
