"""Which parameters dynamic evaluation moves, and what that costs.

Sets of parameters, of a Transformer-XL of ours or any causal LM of Hugging Face:

- `all`;
- `embeddings`: the matrices of pieces, at the input and, where it has its own, at the output;
- `output`: the output layer alone. A tied embedding then learns from its use at the output only,
  so that no gradient passes through the layers;
- `biases`: whatever is called so, the u and v of a Transformer-XL among them, no gains of norms;
- `lora` or `lora-R`: adapters of rank R (8) beside every matrix of the layers, at first without
  effect;
- `last-N`: the last N layers.

All else is frozen: autograd computes no gradients for it, nor keeps what they would need.

Source: Lazaridou et al. 2021 for all, embeddings and biases; Hu et al. 2021 for LoRA.
Choice: adapters of our own and not peft's, one way for all models; without a scale, as the learning
rate is one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from triaxial.errors import InputError
from triaxial.models.transformer_xl import TransformerXL
from triaxial.stats import generator

__all__ = ["Flops", "Weights", "check_parameters", "chosen_weights", "flops_of"]

_SETS = "all, embeddings, output, biases, lora, lora-R, last-N"
_SET = re.compile(r"all|embeddings|output|biases|lora|(?:lora|last)-[1-9]\d*", re.ASCII)
_RANK = 8


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters that move, and the values that they were trained to, by name."""

    named: dict[str, torch.Tensor]
    trained: dict[str, torch.Tensor]

    @property
    def values(self) -> list[torch.Tensor]:
        """The parameters, in the order of their names' entries."""
        return list(self.named.values())

    @property
    def size(self) -> int:
        """How many numbers they are."""
        return sum(weight.numel() for weight in self.named.values())

    @torch.no_grad()
    def restore(self) -> None:
        """Put them back to what they were trained to."""
        self.load(self.trained)

    @torch.no_grad()
    def load(self, values: Mapping[str, torch.Tensor]) -> None:
        """Set them."""
        for name, weight in self.named.items():
            weight.copy_(values[name])


@dataclass(frozen=True, slots=True)
class Flops:
    """Least FLOPs of reading, with or without updates, as in `xl_config.flops_per_token`.

    Not counted: norms, softmax and the update itself; and of a Transformer-XL the keys and values
    of its memory, which are projected again for every segment because the weights have changed.

    Args:
        token: Of a token in the matrices of the layers.
        pair: Of a token and one that it looks at, in all layers.
        target: Of a target in the output layer.
    """

    token: float
    pair: float
    target: float

    def of(self, tokens: float, pairs: float, targets: float) -> float:
        """The sum."""
        return self.token * tokens + self.pair * pairs + self.target * targets


def check_parameters(parameters: str) -> None:
    """Check the name of a set.

    Raises:
        InputError: There is none of this name.
    """
    if _SET.fullmatch(parameters) is None:
        raise InputError(f"is {parameters!r}; it must be one of {_SETS}", where="parameters")


@contextmanager
def chosen_weights(network: nn.Module, parameters: str) -> Iterator[Weights]:
    """The parameters of a set, with gradients for them alone, in evaluation mode.

    Afterwards weights, adapters and flags are as they were.

    Raises:
        InputError: The model has no such parameters.
    """
    anatomy, detached = _anatomy(network), parameters == "output"
    flags = [(weight, weight.requires_grad) for weight in network.parameters()]
    modes = [(module, module.training) for module in network.modules()]
    hooks: list[Any] = []
    if parameters.startswith("lora"):
        _, _, rank = parameters.partition("-")
        named, hooks = _adapters(anatomy, int(rank or _RANK))
    else:
        members = {id(weight) for weight in _members(network, anatomy, parameters)}
        named = {n: w for n, w in network.named_parameters() if id(w) in members}
    if not named:
        raise InputError(
            f"is {parameters!r}, of which this model has none; choose another of {_SETS}",
            where="parameters",
        )
    if detached:
        hooks.append(anatomy.embedding.register_forward_hook(_detach))
    trained = {name: weight.detach().clone() for name, weight in named.items()}
    weights = Weights(named, trained)
    try:
        network.eval()
        network.requires_grad_(False)
        for weight in named.values():
            weight.requires_grad_(True)
        yield weights
    finally:
        weights.restore()
        for hook in hooks:
            hook.remove()
        for weight, flag in flags:
            weight.requires_grad_(flag)
        for module, mode in modes:
            module.training = mode


def flops_of(network: nn.Module, parameters: str | None) -> Flops:
    """What reading costs, with updates of a set, or without any (None)."""
    anatomy = _anatomy(network)
    layers = 2.0 * sum(w.numel() for w in anatomy.layers.parameters() if w.ndim > 1)
    output = 2.0 * sum(weight.numel() for weight in anatomy.output if weight.ndim > 1)
    pair = anatomy.per_pair * len(anatomy.layers)
    kind, _, number = (parameters or "").partition("-")
    # Forward, gradients of what passes through, gradients of weights: 1 each, 2 in attention.
    share = int(number) / len(anatomy.layers) if kind == "last" else 0.0
    passes = {
        "": (1.0, 1.0, 1.0),
        "all": (3.0, 3.0, 3.0),
        "embeddings": (2.0, 3.0, 3.0),
        "output": (1.0, 1.0, 2.0),
        "biases": (2.0, 3.0, 2.0),
        "lora": (2.0, 3.0, 2.0),
        "last": (1 + 2 * share, 1 + 2 * share, 2.0),
    }[kind]
    extra = 0.0
    if kind == "lora":
        rank = int(number or _RANK)
        extra = 6.0 * rank * sum(sum(_widths(m)) for m in _linears(anatomy.layers).values())
    return Flops(layers * passes[0] + extra, pair * passes[1], output * passes[2])


@dataclass(frozen=True, slots=True)
class _Anatomy:
    """Where a model keeps what; `per_pair`: FLOPs of a token, one it looks at, and one layer."""

    embedding: nn.Module
    output: Sequence[torch.Tensor]
    layers: nn.ModuleList
    per_pair: float


def _anatomy(network: Any) -> _Anatomy:
    if isinstance(network, TransformerXL):
        parts = [part for part in (network.output, network.adaptive) if part is not None]
        output: list[torch.Tensor] = [w for part in parts for w in part.parameters()]
        if not parts:
            output = [network.embedding.weight]
        if network.output_bias is not None:
            output.append(network.output_bias)
        # Contents, distances and the mixing of values.
        return _Anatomy(network.embedding, output, network.layers, 6.0 * network.config.d_model)
    config, head = network.config, network.get_output_embeddings()
    lists = [
        module
        for module in network.modules()
        if isinstance(module, nn.ModuleList) and len(module) == config.num_hidden_layers
    ]
    if not lists:
        raise InputError(
            f"the layers of a {type(network).__name__} cannot be found; choose another model",
            where="model",
        )
    weights = [*head.parameters()] if head is not None else []
    pair = 4.0 * config.hidden_size
    return _Anatomy(network.get_input_embeddings(), weights, lists[0], pair)


def _members(network: nn.Module, anatomy: _Anatomy, parameters: str) -> list[torch.Tensor]:
    if parameters == "all":
        return list(network.parameters())
    if parameters == "biases":
        named = network.named_parameters()
        return [weight for name, weight in named if name.endswith("bias") and weight.ndim == 1]
    if parameters == "output":
        return [*anatomy.output]
    if parameters == "embeddings":
        matrices = [*anatomy.embedding.parameters(), *anatomy.output]
        return [weight for weight in matrices if weight.ndim > 1]
    count = int(parameters.partition("-")[2])
    if count > len(anatomy.layers):
        raise InputError(
            f"is {parameters!r}; this model has {len(anatomy.layers)} layers", where="parameters"
        )
    return [weight for layer in anatomy.layers[-count:] for weight in layer.parameters()]


def _adapters(anatomy: _Anatomy, rank: int) -> tuple[dict[str, torch.Tensor], list[Any]]:
    named: dict[str, torch.Tensor] = {}
    hooks = []
    for name, linear in _linears(anatomy.layers).items():
        wide, narrow = _widths(linear)
        spread = 1 / math.sqrt(wide)
        drawn = generator("temporal.lora", name).uniform(-spread, spread, (rank, wide))
        device = next(linear.parameters()).device
        down = torch.from_numpy(drawn).float().to(device)
        up = torch.zeros(narrow, rank, device=device)
        named |= {f"{name}.lora_down": down, f"{name}.lora_up": up}

        def add(
            _: nn.Module,
            inputs: tuple[torch.Tensor, ...],
            output: torch.Tensor,
            down: torch.Tensor = down,
            up: torch.Tensor = up,
        ) -> torch.Tensor:
            return output + F.linear(F.linear(inputs[0], down), up)

        hooks.append(linear.register_forward_hook(add))
    return named, hooks


def _linears(layers: nn.Module) -> dict[str, nn.Module]:
    """Matrices that are modules; GPT-2's are of a class of its own, with the weight transposed."""
    return {
        name: module
        for name, module in layers.named_modules()
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
    }


def _widths(linear: Any) -> tuple[int, int]:
    """What goes in, and what comes out."""
    if isinstance(linear, nn.Linear):
        return linear.in_features, linear.out_features
    return int(linear.weight.shape[0]), int(linear.weight.shape[1])


def _detach(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
    return output.detach()
