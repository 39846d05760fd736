"""One layer of a Transformer-XL: relative attention to memory and segment, and feed-forward.

A query at distance n from a key scores (q + u) k + (q + v) r(n), where r(n) projects a sinusoid of
the distance, and u and v are learned.

Source: Dai et al. 2019, section 3.3 and appendix B (the shift).
Choice: every layer has its own u and v, as in the settings of the authors' large models.
Choice: attention projections have no biases, feed-forward layers have.

B rows, T tokens of a segment, M remembered, W = M + T, H heads, d width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from triaxial.models.xl_config import XLConfig

__all__ = ["Layer", "Linear", "attention_mask"]


class Linear(nn.Linear):
    """A linear layer without first values: the model draws them, from its own generator."""

    def reset_parameters(self) -> None:
        """Leave the weights as memory had them."""


class Layer(nn.Module):
    """Attention to memory and segment, then the feed-forward layer."""

    def __init__(self, config: XLConfig) -> None:
        super().__init__()
        width = config.d_model
        self.heads, self.pre = config.heads, config.norm == "pre"
        self.dropout, self.attn_dropout = config.dropout, config.attn_dropout
        self.query = Linear(width, width, bias=False)
        self.key_value = Linear(width, 2 * width, bias=False)
        self.distance = Linear(width, width, bias=False)
        self.mixed = Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.empty(width))  # the paper's u
        self.distance_bias = nn.Parameter(torch.empty(width))  # the paper's v
        self.attention_norm = nn.LayerNorm(width)
        self.inner = Linear(width, config.d_inner)
        self.outer = Linear(config.d_inner, width)
        self.inner_norm = nn.LayerNorm(width)

    def forward(
        self,
        hidden: torch.Tensor,  # (B, T, d)
        before: torch.Tensor,  # (B, M, d), or (B, M, 2 d) where frozen
        distances: torch.Tensor,  # (H, W + 1, d / H)
        mask: torch.Tensor,  # (B, 1, T, W)
        *,
        frozen: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The layer's output, and its states over memory and segment, shape (B, W, …)."""
        if frozen:
            seen = self.attention_norm(hidden) if self.pre else hidden
            new = self.key_value(seen)
            states = both = torch.cat([before.to(new.dtype), new], 1)  # (B, W, 2 d)
        else:
            states = torch.cat([before, hidden], 1)  # (B, W, d)
            seen = self.attention_norm(states) if self.pre else states
            both = self.key_value(seen)
            seen = seen[:, before.shape[1] :]
        attended = self._attend(self.query(seen), both, distances, mask, frozen=frozen)
        hidden = hidden + self._drop(self.mixed(attended))
        if not self.pre:
            hidden = self.attention_norm(hidden)
        seen = self.inner_norm(hidden) if self.pre else hidden
        hidden = hidden + self._drop(self.outer(self._drop(self.inner(seen).relu())))
        return hidden if self.pre else self.inner_norm(hidden), states

    def _attend(
        self,
        query: torch.Tensor,  # (B, T, d)
        both: torch.Tensor,  # (B, W, 2 d)
        distances: torch.Tensor,
        mask: torch.Tensor,
        *,
        frozen: bool,
    ) -> torch.Tensor:
        split = both.view(*both.shape[:2], 2, self.heads, -1)
        key, value = split.permute(2, 0, 3, 1, 4).unbind()  # each (B, H, W, d / H)
        scale = key.shape[-1] ** -0.5
        # Scaled here, d numbers a token, and not as scores, H x W numbers a token.
        content = self._heads((query + self.content_bias) * scale)
        position = self._heads((query + self.distance_bias) * scale)
        by_distance = _by_distance(position, distances) + mask  # (B, H, T, W)
        share = self.attn_dropout if self.training else 0.0
        # Fused attention makes no second H x T x W numbers. On a CPU (B 8, T 128, M 256, d 128) it
        # takes .8 of the time without gradients, but 1.1 with them, where it is not fused: so the
        # plain way there for an open memory, with or without gradients, whose bits then agree.
        if frozen or query.device.type != "cpu":
            attended = F.scaled_dot_product_attention(
                content, key, value, by_distance, share, scale=1.0
            )
        else:
            scores = (content @ key.transpose(-1, -2)).add_(by_distance)
            shares = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
            attended = F.dropout(shares, share, share > 0) @ value
        return attended.transpose(1, 2).flatten(-2)  # (B, T, d)

    def _heads(self, query: torch.Tensor) -> torch.Tensor:
        return query.view(*query.shape[:2], self.heads, -1).transpose(1, 2)  # (B, H, T, d / H)

    def _drop(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.dropout(hidden, self.dropout, self.training)


def _by_distance(query: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
    """Scores of queries (B, H, T, .) by distance, moved to the keys' places, shape (B, H, T, W).

    Query i sees key j at distance M + i - j, which is column T - 1 - i + j of its scores. A row of
    scores has W + 1 numbers, so that one step down and one to the left is W numbers on: the wanted
    scores are one run of T x W numbers, and nothing is moved. Places after i hold other scores;
    the mask covers them.
    """
    rows, heads, tokens, _ = query.shape
    window = distances.shape[1] - 1
    # The rows of a head in one product: distances are not copied B times.
    flat = query.transpose(0, 1).flatten(1, 2)  # (H, B T, .)
    scores = flat @ distances.transpose(-1, -2)  # (H, B T, W + 1)
    run = scores.view(heads, rows, -1)[..., tokens - 1 : tokens - 1 + tokens * window]
    return run.view(heads, rows, tokens, window).transpose(0, 1)


def attention_mask(tokens: int, past: int, valid: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where a query may look, else minus infinity, shape (B, 1, T, W)."""
    column = torch.arange(past + tokens, device=valid.device)
    future = column > past + torch.arange(tokens, device=valid.device)[:, None]  # (T, W)
    unreal = column < (past - valid)[:, None]  # (B, W)
    shut = (future | unreal[:, None])[:, None]
    return torch.zeros(shut.shape, dtype=dtype, device=valid.device).masked_fill(shut, -math.inf)
