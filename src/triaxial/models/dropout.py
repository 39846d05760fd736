"""Dropout for training on a CPU, from 16 random bits a number.

torch draws a dropout mask on a CPU number by number, on one thread: a tenth of the time of a small
encoder's training step.  Here four numbers come from one 64-bit draw.  The share that is dropped is
right to 1/65536, kept values are scaled as ever, and the draws come from torch's own generator, so
that its state is all that a resumed run needs. Where several processes share a batch, a mask is
drawn for all rows of its part, and each process takes those of its own.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from triaxial.models.distributed import OwnRows

__all__ = ["quick_dropout"]


def quick_dropout(
    device: torch.device, own: OwnRows | None = None
) -> contextlib.AbstractContextManager[Any]:
    """Within it, dropout in fp32 on a CPU is drawn quickly; elsewhere it does nothing.

    It covers `F.dropout`, `nn.Dropout` and attention through `F.scaled_dot_product_attention`, in
    any model.

    Args:
        device: Of the model.
        own: Which rows of a part are computed here, where processes share it. A tensor with as many
            entries in its first dimension is taken for a tensor of these rows; any other is one
            that all processes have.
    """
    return _QuickDropout(own) if device.type == "cpu" else contextlib.nullcontext()


class _QuickDropout(TorchFunctionMode):
    def __init__(self, own: OwnRows | None) -> None:
        super().__init__()
        self.own = own

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.dropout:
            return _dropout(*args, **kwargs, own=self.own)
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **kwargs, own=self.own)
        return func(*args, **kwargs)


def _dropout(
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    own: OwnRows | None = None,
) -> torch.Tensor:
    if not training or not 0 < p < 1 or inplace or input.dtype != torch.float32:
        return F.dropout(input, p, training, inplace)
    size, first = input.numel(), 0
    if own is not None and len(input) == own.count:
        first = size // own.count * own.first
        size = size // own.count * own.whole
    drawn = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    bits = drawn.view(torch.int16)[first : first + input.numel()].view(input.shape)
    lowest = round(p * (1 << 16)) - (1 << 15)
    return input * bits.to(torch.float32).ge_(lowest).mul_(1 / (1 - p))


def _attention(
    query: torch.Tensor,  # (B, heads, T, width)
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    own: OwnRows | None = None,
    **rest: Any,
) -> torch.Tensor:
    if dropout_p == 0 or is_causal or rest.get("enable_gqa") or query.dtype != torch.float32:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **rest
        )
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * scale) @ key.transpose(-1, -2)  # (B, heads, T, T)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return _dropout(scores.softmax(-1), dropout_p, own=own) @ value
