"""How a causal model scores the answers to many questions; used through `choice`.

What all questions have in common at their beginning, to the token, is read once, and its keys and
values stand before every batch: they are expanded, never copied by hand and never written to. The
rest of a question is read next, and its last position gives the first token of all answers. Longer
answers go on from the question's own keys and values; questions are then read in batches of equal
length, so that nothing stands between a question and its answer.

Padding comes last and attention is causal, so no mask is needed and every architecture counts its
positions itself. A model whose keys and values cannot be taken up again (recurrent states, a cache
of its own kind), found by trial, reads every question whole.

B rows, T tokens of a row, K answers, N targets, d width, V vocabulary.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from triaxial.models.base import Hardware, Work, autocast, evaluation
from triaxial.models.batching import length_batches, pad, with_backoff
from triaxial.models.causal_readers import Output, close, trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AnswerScorer", "Question", "common_start"]

# Bytes of the keys and values of a batch: expanded, they are held for every row.
_MOST_KEYS = {"cpu": 1 << 30, "mps": 2 << 30, "cuda": 8 << 30}


@dataclass(frozen=True, slots=True)
class Question:
    """Tokens of what is asked, and of each possible answer (one at least)."""

    context: list[int]
    answers: tuple[list[int], ...]

    @property
    def longest(self) -> int:
        """Tokens that a model reads for it at a time: the last of an answer is not read."""
        return len(self.context) + max(map(len, self.answers)) - 1


def common_start(rows: Sequence[list[int]]) -> int:
    """Tokens that all rows begin with; at least one of each row is left over.

    >>> common_start([[1, 2, 3, 4], [1, 2, 5], [1, 2, 3]])
    2
    """
    if not rows:
        return 0
    least, greatest = min(rows), max(rows)
    most = min(map(len, rows)) - 1
    same = (n for n in range(most) if least[n] != greatest[n])
    return next(same, max(most, 0))


class AnswerScorer:
    """Log-probabilities of answers under a causal model.

    Args:
        model: A causal LM of transformers.
        where: Its device and precision.
        budget: Padded tokens of a batch.
        work: Counts what is computed.
        reuse: Whether the common beginning is read once; the sums are the same either way.
    """

    def __init__(
        self, model: Any, where: Hardware, budget: int, work: Work, *, reuse: bool = True
    ) -> None:
        self.model, self.where, self.budget, self.work = model, where, budget, work
        self._output = Output(model)
        self._key_bytes = self._bytes_a_token() if reuse else None

    @property
    def reuses(self) -> bool:
        """Whether a common beginning is read once."""
        return self._key_bytes is not None

    def scores(
        self, questions: Sequence[Question], progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        """Sums of the log-probabilities of each answer's tokens, shape (questions, K).

        Args:
            questions: All with the same number of answers.
            progress: Told the number of questions done since it was last called.

        Raises:
            InputError: A single row does not fit into memory.
        """
        answers = len(questions[0].answers) if questions else 0
        out = np.zeros((len(questions), answers), dtype=np.float32)
        with evaluation(self.model):
            parts = self._continued(questions) if self.reuses else self._whole(questions)
            for part, values in parts:
                out[part] = values.cpu().numpy()
                if progress is not None:
                    progress(len(part))
        return out

    def _continued(
        self, questions: Sequence[Question]
    ) -> Iterator[tuple[NDArray[np.intp], torch.Tensor]]:
        """Questions and their scores, batch by batch, with the common beginning read once."""
        shared = common_start([one.context for one in questions])
        start = self._new_cache()
        if shared:
            self._read([questions[0].context[:shared]], shared, start)
        rests = [one.context[shared:] for one in questions]
        lengths = np.asarray([len(rest) for rest in rests])
        longer = any(len(answer) > 1 for one in questions for answer in one.answers)
        # Equal lengths where answers go on behind the question.
        groups = [np.arange(len(questions))]
        if longer:
            groups = [np.flatnonzero(lengths == n) for n in np.unique(lengths)[::-1]]
        longest = max((one.longest for one in questions), default=1)
        for group in groups:
            most = min(
                self._most_rows(longest), self._output.most_rows(int(lengths[group].max(initial=1)))
            )
            for places in length_batches(lengths[group], self.budget, most_rows=most):
                batch = group[places]
                width = int(lengths[batch[0]])

                def forward(part: NDArray[np.intp], width: int = width) -> torch.Tensor:
                    some = [questions[n] for n in part]
                    return self._batch(some, [rests[n] for n in part], width, start, longer)

                yield from with_backoff(forward, batch)

    def _batch(
        self,
        questions: Sequence[Question],
        rests: Sequence[Sequence[int]],
        width: int,
        start: Any,
        longer: bool,
    ) -> torch.Tensor:
        """Scores of questions whose beginning lies in a cache, shape (B, K)."""
        device = self.where.device
        cache = _branch(start, len(questions))
        states = self._read(rests, width, cache)  # (B, T, d or V)
        lasts = torch.as_tensor([len(rest) - 1 for rest in rests], device=device)
        firsts = torch.as_tensor([[a[0] for a in one.answers] for one in questions], device=device)
        rows = torch.arange(len(questions), device=device)
        scores = self._output.log_p(states[rows, lasts], firsts)  # (B, K)
        if not longer:
            return scores
        for number in range(scores.shape[1]):
            tails = [one.answers[number] for one in questions]
            most = max(map(len, tails)) - 1
            if most < 1:
                continue
            states = self._read([tail[:-1] for tail in tails], most, _branch(cache, len(tails)))
            places = [(row, at) for row, tail in enumerate(tails) for at in range(len(tail) - 1)]
            wanted = [tails[row][at + 1] for row, at in places]
            self._add(scores, [(row, number) for row, _ in places], states, places, wanted)
        return scores

    def _whole(
        self, questions: Sequence[Question]
    ) -> Iterator[tuple[NDArray[np.intp], torch.Tensor]]:
        """The same with every question read whole, and again for every longer answer."""
        rows, asked = [], []
        for number, one in enumerate(questions):
            for tail, answers in _tails(one.answers):
                rows.append(one.context + list(tail))
                asked.append((number, answers))
        lengths = [len(row) for row in rows]
        # The rows of a question lie in several batches, as they differ in length.
        found = torch.zeros((len(questions), len(questions[0].answers) if questions else 0))
        left = np.bincount([number for number, _ in asked], minlength=len(questions))
        most = self._output.most_rows(max(lengths, default=1))
        for batch in length_batches(lengths, self.budget, most_rows=most):
            width = lengths[batch[0]]

            def forward(part: NDArray[np.intp], width: int = width) -> torch.Tensor:
                states = self._read([rows[n] for n in part], width, None)
                scores = torch.zeros((len(part), found.shape[1]), device=states.device)
                places, wanted, to = [], [], []
                for row, n in enumerate(part):
                    number, answers = asked[n]
                    begin = len(questions[number].context) - 1
                    for answer in answers:
                        ids = questions[number].answers[answer]
                        places += [(row, begin + at) for at in range(len(ids))]
                        wanted += ids
                        to += [(row, answer)] * len(ids)
                self._add(scores, to, states, places, wanted)
                return scores

            for part, scores in with_backoff(forward, batch):
                numbers = np.asarray([asked[n][0] for n in part])
                found.index_add_(0, torch.from_numpy(numbers), scores.cpu())
                np.subtract.at(left, numbers, 1)
                done = np.unique(numbers[left[numbers] == 0])
                yield done, found[torch.from_numpy(done)]

    def _add(
        self,
        scores: torch.Tensor,
        to: Sequence[tuple[int, int]],
        states: torch.Tensor,
        places: Sequence[tuple[int, int]],
        wanted: Sequence[int],
    ) -> None:
        """Add the log-probabilities of tokens, from the states at some places, to scores."""
        rows, columns = torch.as_tensor(places, device=scores.device).unbind(1)
        targets = torch.as_tensor(wanted, device=scores.device)[:, None]  # (N, 1)
        log_p = self._output.log_p(states[rows, columns], targets)[:, 0]
        at = torch.as_tensor(to, device=scores.device).unbind(1)
        scores.index_put_(at, log_p, accumulate=True)

    def _read(self, rows: Sequence[Sequence[int]], width: int, cache: Any) -> torch.Tensor:
        """States of rows behind what a cache holds, shape (B, T, d or V); the cache grows."""
        ids = torch.from_numpy(pad(rows, 0, width)).to(self.where.device)
        self.work.count(len(rows), sum(map(len, rows)), ids.numel())
        given = (
            {"use_cache": False} if cache is None else {self._cache_name: cache, "use_cache": True}
        )
        with autocast(self.where):
            return self._output.states(ids, **given)

    @property
    def _cache_name(self) -> str:
        """What the model calls its cache: transformers has renamed it."""
        known = inspect.signature(self.model.base_model.forward).parameters
        return "cache" if "cache" in known else "past_key_values"

    def _new_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config)

    def _most_rows(self, longest: int) -> int:
        """Rows whose keys and values may be held at a time."""
        most = _MOST_KEYS[torch.device(self.where.device).type]
        return max(most // max((self._key_bytes or 0) * longest, 1), 1)

    def _bytes_a_token(self) -> int | None:
        """Bytes of a token's keys and values; None where these cannot be taken up again.

        Found by trial: what two batches give behind one beginning must be what they give whole.
        """
        ids = trial(self.model)
        other = ids.flip(1)
        both = torch.cat([ids, other])
        name = self._cache_name
        with evaluation(self.model):
            try:
                start = self._new_cache()
                self._output.states(ids[:, :3], **{name: start}, use_cache=True)
                for rest in (ids[:, 3:], both[:, :4], ids[:, 3:]):
                    cache = _branch(start, len(rest))
                    self._output.states(rest[:, :2], **{name: cache}, use_cache=True)
                    further = _branch(cache, len(rest))
                    found = self._output.states(rest[:, 2:], **{name: further}, use_cache=True)
                    whole = torch.cat([ids[:, :3].expand(len(rest), -1), rest], 1)
                    wanted = self._output.states(whole, use_cache=False)[:, 5:]
                    if not close(found.float(), wanted.float()):
                        return None
            except (AttributeError, TypeError, RuntimeError, ValueError, IndexError, _NotKept):
                return None
        tensors = [t for layer in start.layers for t in (layer.keys, layer.values) if t is not None]
        return int(sum(t.numel() * t.element_size() for t in tensors)) // 3


class _NotKept(Exception):
    """A cache holds more than keys and values."""


def _tails(answers: Sequence[Sequence[int]]) -> list[tuple[list[int], list[int]]]:
    """What must be read behind a question, and the answers that each reading covers."""
    found: list[tuple[list[int], list[int]]] = []
    for number in sorted(range(len(answers)), key=lambda n: -len(answers[n])):
        tail = list(answers[number][:-1])
        same = next((row for row in found if row[0][: len(tail)] == tail), None)
        if same is None:
            found.append((tail, [number]))
        else:
            same[1].append(number)
    return found


def _branch(cache: Any, rows: int) -> Any:
    """A cache that begins with what another holds, for so many rows; the other stays as it is."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    branch = copy.copy(cache)
    branch.layers = []
    for layer in cache.layers:
        # Both make a new tensor when they grow, and keep no other state than numbers.
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise _NotKept
        new = copy.copy(layer)
        if layer.is_initialized:
            shape = (rows, *layer.keys.shape[1:])
            new.keys, new.values = (
                layer.keys.expand(shape),
                layer.values.expand(rows, *layer.values.shape[1:]),
            )
        branch.layers.append(new)
    return branch
