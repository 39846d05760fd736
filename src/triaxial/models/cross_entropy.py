"""Cross-entropy over a large vocabulary that never holds the logits of all tokens.

The logits of N tokens are N x V numbers: 206 MB for 1,024 tokens and 50,259 pieces, and a plain
loss keeps them two or three times.  Here tokens go through in chunks, all in one buffer of
chunk x V numbers; the exponentials take the place of the logits, and sums and logarithms are exact
in fp32 whatever the products are computed in.

- `token_losses`: the loss of every token. Its gradient computes each chunk a second time.
- `mean_loss`: the mean, with the losses beside it. Its gradient is made along with the loss while
  the chunk is at hand, so that nothing is computed twice: 6 operations a weight and token, not 8.

Choice: chunks of 512 tokens. Measured on a CPU (d 128, V 8,192), the reused buffer makes chunks of
64 to 1,024 equally fast, 1.5 times as fast as all tokens at once; a GPU wants no less than 512.

N tokens, d width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["CHUNK", "IGNORED", "mean_loss", "token_losses"]

CHUNK = 512  # tokens
IGNORED = -100  # a target without a loss, as everywhere in torch


def token_losses(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    *,
    chunk: int = CHUNK,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Negative log-likelihood of every target in nats, shape (N,), at least fp32.

    Args:
        hidden: What the output layer sees, shape (N, d).
        weight: Of the output layer, shape (V, d).
        bias: Of the output layer, shape (V,), or None.
        targets: Ids, shape (N,); where one is `IGNORED` the loss is 0 and has no gradient.
        chunk: Tokens at a time.
        dtype: In which the matrix products are computed; None for that of `hidden`.
    """
    with torch.autocast(hidden.device.type, enabled=False):  # `dtype` alone decides
        losses: torch.Tensor = _TokenLosses.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, targets, chunk, dtype or hidden.dtype
        )
    return losses


def mean_loss(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    *,
    chunk: int = CHUNK,
    dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean loss over the targets that count, and every loss, shape (N,), without a gradient.

    The arguments are those of `token_losses`, and so are the losses. Without any target that
    counts the mean is 0.
    """
    if not torch.is_grad_enabled():
        losses = token_losses(hidden, weight, bias, targets, chunk=chunk, dtype=dtype)
        return losses.sum() * _share(targets, losses.dtype), losses
    mean: torch.Tensor
    with torch.autocast(hidden.device.type, enabled=False):
        mean, losses = _MeanLoss.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, targets, chunk, dtype or hidden.dtype
        )
    return mean, losses


class _TokenLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        chunk: int,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        losses = torch.empty(len(hidden), dtype=_exact(hidden), device=hidden.device)
        for part, logits in _logits(hidden.to(dtype), weight.to(dtype), bias, chunk, losses.dtype):
            losses[part] = _exponentials(logits, targets[part])[1]
        ctx.save_for_backward(hidden, weight, bias, targets)
        ctx.chunk, ctx.dtype = chunk, dtype
        return losses

    @staticmethod
    def backward(ctx: Any, *above: torch.Tensor) -> Any:
        hidden, weight, bias, targets = ctx.saved_tensors
        gradients = _Gradients(hidden, weight, bias, ctx.dtype, ctx.needs_input_grad)
        exact = above[0].dtype
        with torch.autocast(hidden.device.type, enabled=False):
            for part, logits in _logits(gradients.hidden, gradients.weight, bias, ctx.chunk, exact):
                sums, _ = _exponentials(logits, targets[part])
                gradients.add(part, logits, sums, targets[part], above[0][part])
        return *gradients.of(hidden, weight, bias), None, None, None


class _MeanLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        chunk: int,
        dtype: torch.dtype,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        losses = torch.empty(len(hidden), dtype=_exact(hidden), device=hidden.device)
        share = _share(targets, losses.dtype)
        gradients = _Gradients(hidden, weight, bias, dtype, ctx.needs_input_grad)
        for part, logits in _logits(gradients.hidden, gradients.weight, bias, chunk, losses.dtype):
            sums, losses[part] = _exponentials(logits, targets[part])
            gradients.add(part, logits, sums, targets[part], share)
        ctx.save_for_backward(*gradients.of(hidden, weight, bias))
        ctx.mark_non_differentiable(losses)
        return losses.sum() * share, losses

    @staticmethod
    def backward(ctx: Any, *above: torch.Tensor) -> Any:
        made = (None if part is None else part * above[0] for part in ctx.saved_tensors)
        return *made, None, None, None


class _Gradients:
    """The sums of the gradients of hidden states, weight and bias, as far as they are asked for."""

    def __init__(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        dtype: torch.dtype,
        asked: tuple[bool, ...],
    ) -> None:
        self.hidden, self.weight = hidden.to(dtype), weight.to(dtype)
        exact = _exact(hidden)
        self.of_hidden = torch.empty_like(hidden) if asked[0] else None
        self.of_weight = torch.zeros_like(weight, dtype=exact) if asked[1] else None
        self.of_bias = (
            torch.zeros_like(bias, dtype=exact) if bias is not None and asked[2] else None
        )

    def add(
        self,
        part: slice,
        exponentials: torch.Tensor,  # (chunk, V); overwritten
        sums: torch.Tensor,
        targets: torch.Tensor,
        above: torch.Tensor,
    ) -> None:
        """Add a chunk, whose losses have the gradients `above`, shape (chunk,) or ()."""
        above = above * (targets != IGNORED)
        # The gradient by the logits: the probabilities, less 1 at the target.
        by_logits = exponentials.mul_((above / sums)[:, None])
        by_logits.scatter_add_(1, targets.clamp(min=0)[:, None], -above[:, None])
        if self.of_bias is not None:
            self.of_bias += by_logits.sum(0)
        by_logits = by_logits.to(self.weight.dtype)
        if self.of_hidden is not None:
            self.of_hidden[part] = by_logits @ self.weight
        if self.of_weight is not None and self.of_weight.dtype == by_logits.dtype:
            self.of_weight.addmm_(by_logits.T, self.hidden[part])
        elif self.of_weight is not None:
            self.of_weight += by_logits.T @ self.hidden[part]

    def of(
        self, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        """The three sums, each in the precision of its own tensor."""
        made = (self.of_hidden, hidden), (self.of_weight, weight), (self.of_bias, bias)
        return tuple(None if g is None or t is None else g.to(t.dtype) for g, t in made)


def _logits(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    chunk: int,
    exact: torch.dtype,
) -> Iterator[tuple[slice, torch.Tensor]]:
    """The logits of one chunk after the other, each in the place of the one before."""
    tokens = len(hidden)
    buffer = torch.empty(min(chunk, tokens), len(weight), dtype=exact, device=hidden.device)
    for start in range(0, tokens, chunk):
        part = slice(start, min(start + chunk, tokens))
        logits = buffer[: part.stop - start]  # (chunk, V)
        if hidden.dtype == exact:
            torch.mm(hidden[part], weight.T, out=logits)
        else:
            logits.copy_(hidden[part] @ weight.T)
        if bias is not None:
            logits += bias
        yield part, logits


def _exponentials(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn logits into exponentials in place; their sums and the losses, each of shape (chunk,)."""
    of_target = logits.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    highest = logits.amax(1, keepdim=True)
    sums = logits.sub_(highest).exp_().sum(1)
    losses = sums.log() + highest[:, 0] - of_target
    return sums, losses.masked_fill(targets == IGNORED, 0.0)


def _share(targets: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return 1 / (targets != IGNORED).sum().clamp(min=1).to(dtype)


def _exact(hidden: torch.Tensor) -> torch.dtype:
    return torch.promote_types(hidden.dtype, torch.float32)
