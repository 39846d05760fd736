"""How causal models turn rows of ids into log-probabilities; used through `causal`.

- `Segments`: a Transformer-XL reads a row segment by segment and remembers. Rows of a batch that
  are done leave it, so nothing is padded but the last segment.
- `Windows`: any other model reads a row in windows; every target counts in the first that has it.

Rows of similar length go together, padded on the right, and attention is causal, so neither padding
nor the other rows change a score.  The output layer runs over the targets that count alone, a few
hundred at a time, so the logits of a batch are never held; only where a model's output layer can
be reached through the whole model alone are there logits of a few rows.

B rows, T tokens of a row, N targets, d width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import nn

from triaxial.errors import InputError
from triaxial.models.base import Hardware, Work, autocast, evaluation
from triaxial.models.batching import length_batches, pad, with_backoff
from triaxial.models.cross_entropy import CHUNK, IGNORED, token_losses
from triaxial.models.tensors import fetched, on_device, one_behind
from triaxial.models.transformer_xl import Memory, TransformerXL

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Output",
    "Reader",
    "Segments",
    "Windows",
    "close",
    "linear_head",
    "refuse_look_ahead",
    "trial",
    "window_spans",
]

# Logits held at a time where the output layer is no plain product: 128 MB in fp32.
_MOST_LOGITS = 32_000_000


class Reader(Protocol):
    """A model that turns rows of ids into log-probabilities."""

    model: Any
    vocabulary: int
    facts: dict[str, Any]

    def log_p(
        self, rows: Sequence[Sequence[int]], progress: Callable[[int], None]
    ) -> list[NDArray[np.float32]]:
        """Log-probability of every id of each row but the first."""
        ...


def window_spans(targets: int, window: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Windows over a row of `targets` inputs: begin, end, and the first target that counts.

    The targets from there to the end of each window are all targets, each once.
    """
    scored = begin = 0
    while scored < targets:
        end = min(begin + window, targets)
        yield begin, end, scored
        scored = end
        begin += stride


def linear_head(model: Any) -> nn.Linear | None:
    """The output layer, where logits are its product with the body's last hidden state.

    None where anything comes before or after it (a cap, a scale, a transform): found by trial, on
    hidden states a hundred times too large, so that a cap shows.
    """
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        return None
    seen: list[torch.Tensor] = []

    def enlarge(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        seen.append(inputs[0] * 100)
        return (seen[-1], *inputs[1:])

    ids = trial(model)
    handle = head.register_forward_pre_hook(enlarge)
    try:
        with evaluation(model):
            logits = model(input_ids=ids, use_cache=False).logits
    finally:
        handle.remove()
    if len(seen) != 1:
        return None
    with evaluation(model):
        hidden = model.base_model(input_ids=ids, use_cache=False)[0]
        wanted = head(seen[0])
    plain = close(hidden * 100, seen[0]) and close(wanted, logits)
    return head if plain else None


class Segments:
    """A Transformer-XL, which reads a row segment by segment."""

    def __init__(self, model: TransformerXL, where: Hardware, budget: int, work: Work) -> None:
        self.model: Any = model
        self.where, self.budget, self.work = where, budget, work
        config = model.config
        self.vocabulary = config.vocab_size
        self.facts = {"memory": config.memory_test, "segment": config.segment}

    def log_p(
        self, rows: Sequence[Sequence[int]], progress: Callable[[int], None]
    ) -> list[NDArray[np.float32]]:
        """Log-probability of every id of each row but the first."""
        lengths = np.asarray([len(row) - 1 for row in rows], dtype=np.intp)
        out: list[NDArray[np.float32]] = [np.zeros(n, dtype=np.float32) for n in lengths]
        segment = self.model.config.segment
        with evaluation(self.model), autocast(self.where):
            order = np.argsort(-lengths, kind="stable")
            # As many rows as segments of the longest fit; equal ones stay in this order.
            batches = length_batches(np.minimum(lengths[order], segment), self.budget)

            def read(part: NDArray[np.intp], width: int) -> Callable[[], list[NDArray[Any]]]:
                return fetched(self._read([rows[n] for n in part], lengths[part], width))

            made = (
                found
                for batch in (order[places] for places in batches)
                for found in with_backoff(partial(read, width=int(lengths[batch[0]])), batch)
            )
            for part, losses in one_behind(made):
                for row, line in zip(part, losses()[0], strict=True):
                    out[row] = -line[: lengths[row]]
                progress(len(part))
        return out

    def _read(
        self, rows: Sequence[Sequence[int]], lengths: NDArray[np.intp], width: int
    ) -> torch.Tensor:
        """Losses, shape (B, width), of rows from the longest to the shortest."""
        segment, device = self.model.config.segment, self.where.device
        ids = on_device(pad(rows, 0, width + 1), device)
        losses = torch.zeros((len(rows), width), device=device)
        memory: Memory | None = None
        for at in range(0, width, segment):
            end = min(at + segment, width)
            left = int((lengths > at).sum())
            if not left:
                break
            if memory is not None:
                # Rows that are done leave; those that stay have filled every segment so far.
                states = tuple(state[:left] for state in memory.states)
                memory = replace(memory, states=states, valid=memory.valid[:left])
            some, memory = self.model(ids[:left, at:end], memory, ids[:left, at + 1 : end + 1])
            losses[:left, at:end] = some
            real = int(np.clip(lengths[:left] - at, 0, end - at).sum())
            self.work.count(left, real, left * (end - at))
        return losses


class Windows:
    """Any causal LM, which reads a row in windows."""

    def __init__(
        self, model: Any, where: Hardware, budget: int, work: Work, window: int, stride: int
    ) -> None:
        self.model, self.where, self.budget, self.work = model, where, budget, work
        self.window, self.stride = window, stride
        self.facts = {"window": window, "stride": stride}
        self._output = Output(model)
        self.vocabulary = self._output.vocabulary

    def log_p(
        self, rows: Sequence[Sequence[int]], progress: Callable[[int], None]
    ) -> list[NDArray[np.float32]]:
        """Log-probability of every id of each row but the first."""
        out: list[NDArray[np.float32]] = [np.zeros(len(row) - 1, dtype=np.float32) for row in rows]
        spans = [
            (row, *span)
            for row, ids in enumerate(rows)
            for span in window_spans(len(ids) - 1, self.window, self.stride)
        ]
        last = {row: n for n, (row, *_) in enumerate(spans)}
        done = [n == last[row] for n, (row, *_) in enumerate(spans)]
        progress(sum(len(row) == 1 for row in rows))
        most = self._output.most_rows(self.window)
        lengths = [end - begin for _, begin, end, _ in spans]
        with evaluation(self.model):

            def read(part: NDArray[np.intp], width: int) -> Callable[[], list[NDArray[Any]]]:
                return fetched(self._read([spans[n] for n in part], rows, width))

            made = (
                found
                for batch in length_batches(lengths, self.budget, most_rows=most)
                for found in with_backoff(partial(read, width=lengths[batch[0]]), batch)
            )
            for part, get in one_behind(made):
                losses, at = get()[0], 0
                for row, _, end, first in (spans[n] for n in part):
                    out[row][first:end] = -losses[at : at + end - first]
                    at += end - first
                progress(sum(done[n] for n in part))
        return out

    def _read(
        self,
        spans: Sequence[tuple[int, int, int, int]],
        rows: Sequence[Sequence[int]],
        width: int,
    ) -> torch.Tensor:
        """Losses of the targets that count, window by window, shape (N,)."""
        device = self.where.device
        ids = pad([rows[row][begin:end] for row, begin, end, _ in spans], 0, width)  # (B, T)
        targets = np.full(ids.shape, IGNORED, dtype=np.int64)
        for line, (row, begin, end, first) in zip(targets, spans, strict=True):
            line[first - begin : end - begin] = rows[row][first + 1 : end + 1]
        # By number: a mask has to be counted before it is used, and the device waited for.
        counts = on_device(np.flatnonzero(targets != IGNORED), device)
        wanted = on_device(targets[targets != IGNORED], device)  # (N,)
        inputs = on_device(ids, device)
        self.work.count(len(spans), sum(end - begin for _, begin, end, _ in spans), ids.size)
        # No mask: attention is causal and padding comes last.
        with autocast(self.where):
            states = self._output.states(inputs, use_cache=False)
        return self._output.losses(states.flatten(0, 1)[counts], wanted)


class Output:
    """A model in two halves, so that its output layer runs at chosen positions alone.

    *States* are what stands before the output layer; where a model cannot be cut there (`by_part`
    is false, found by trial), they are the logits themselves.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self._prefix = model.base_model_prefix
        self._body = model.base_model
        self.head = linear_head(model)
        self.by_part = self.head is not None or self._works_by_part()

    def most_rows(self, width: int) -> int:
        """Rows of a batch so that its states can be held, where they are logits."""
        return 1 << 30 if self.by_part else max(_MOST_LOGITS // self.vocabulary // width, 1)

    def states(self, ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """States at all positions, shape (B, T, d or V).

        Args:
            ids: Tokens, shape (B, T).
            kwargs: For the model.
        """
        if self.by_part:
            return self._body(input_ids=ids, **kwargs)[0]  # type: ignore[no-any-return]
        return self.model(input_ids=ids, **kwargs).logits  # type: ignore[no-any-return]

    def losses(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Losses of one target at each state: states (N, d or V), targets (N,), losses (N,)."""
        if self.head is not None:
            return token_losses(states.float(), self.head.weight, self.head.bias, targets)
        return -self.log_p(states, targets[:, None])[:, 0]

    def log_p(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of K targets at each state: targets and result (N, K)."""
        chunk = min(CHUNK, max(_MOST_LOGITS // self.vocabulary, 1))
        found = []
        for at in range(0, len(targets), chunk):
            some = states[at : at + chunk].float()
            logits = (self._logits(some) if self.by_part else some).float()
            chosen = logits.gather(1, targets[at : at + chunk])
            found.append(chosen - logits.logsumexp(-1, keepdim=True))
        return torch.cat(found) if found else states.new_zeros(targets.shape, dtype=torch.float32)

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        """The model's own way from hidden states, shape (N, d), to logits, shape (N, V)."""
        if self.head is not None:
            return self.head(states)  # type: ignore[no-any-return]
        setattr(self.model, self._prefix, _Given(states[None]))
        try:
            ids = torch.zeros((1, len(states)), dtype=torch.long, device=states.device)
            return self.model(input_ids=ids, use_cache=False).logits[0]  # type: ignore[no-any-return]
        finally:
            setattr(self.model, self._prefix, self._body)

    def _works_by_part(self) -> bool:
        """Whether logits can be had from hidden states alone, found by trial."""
        if self._body is self.model:
            return False
        ids = trial(self.model)
        with evaluation(self.model):
            logits = self.model(input_ids=ids, use_cache=False).logits
            hidden = self._body(input_ids=ids, use_cache=False)[0]
            try:
                parts = torch.cat([self._logits(part) for part in hidden[0].split(3)])
            except (AttributeError, TypeError, RuntimeError, ValueError):
                return False
        return close(parts[None], logits)


class _Given(nn.Module):
    """In the place of a body: hidden states that are there already."""

    def __init__(self, hidden: torch.Tensor) -> None:
        super().__init__()
        self.hidden = hidden

    def forward(self, *_: Any, **__: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=self.hidden)


def refuse_look_ahead(model: Any, name: str) -> None:
    """Check that predictions depend on earlier tokens alone.

    Raises:
        InputError: They do not.
    """
    ids = trial(model)
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % model.get_input_embeddings().weight.shape[0]
    with evaluation(model):
        one, two = (model(input_ids=some, use_cache=False).logits[:, :-1] for some in (ids, other))
    if not close(one, two):
        raise InputError(
            "its predictions change with later tokens: it is no causal language model as it is "
            "configured; choose another model",
            where=name,
        )


def trial(model: Any) -> torch.Tensor:
    """A few ids, shape (1, 6)."""
    embeddings: torch.Tensor = model.get_input_embeddings().weight
    return torch.arange(1, 7, device=embeddings.device)[None] % embeddings.shape[0]


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same but for rounding."""
    if one.shape != other.shape:
        return False
    return bool((one - other).abs().max() <= 1e-4 * other.abs().max().clamp(min=1e-6))
