"""Dynamic evaluation: a language model that goes on learning from what it has just been scored on.

Documents come in the order of time. Each is read step by step (a segment of a Transformer-XL, a
window of any other model): the step is scored, and only then the weights are updated on it, from
the same forward pass. So no token is scored by weights that saw it, and a step costs what a step of
training does, not a forward pass more. A learning rate of 0 is the static model on the same way
through the code: without gradients, to the same bits.

Documents of one date are in the order of their ids. Nothing is known of their order, and each still
learns from those before it; `reset="month"` puts the trained weights back whenever a month begins.

With `streams=N`, N documents in a row are read side by side and share their updates, each of the
mean over what is left of the N. That is faster, and another method: about N times fewer updates,
and none of the N profits from the others' later parts. The shards that come out change nothing.

What was adapted can be taken up from a `State`, to the same bits on one machine. The state holds
the weights that moved and not their differences to the trained ones, which would round.

Source: Krause et al. 2018 and 2019; Lazaridou et al. 2021, section on dynamic evaluation.
Choice: a document remembers nothing of the ones before, as in static evaluation; what it knows of
them is in the weights (`borders="carry"` for both).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from triaxial.errors import InputError
from triaxial.models.causal import CausalLM, DocumentScore
from triaxial.models.peak import peak_bytes
from triaxial.models.tensors import write_tensors
from triaxial.models.training import digest
from triaxial.models.transformer_xl import Memory
from triaxial.temporal.chronology import Chronology, State
from triaxial.temporal.corpus import Document, month_of
from triaxial.temporal.parameters import (
    Flops,
    Weights,
    check_parameters,
    chosen_weights,
    flops_of,
)
from triaxial.temporal.perplexity import Tables, document_tables
from triaxial.temporal.segments import Borders
from triaxial.temporal.steps import (
    Round,
    Row,
    Steps,
    gradients_of,
    rounds_of,
    rows_of,
    steps_of,
)
from triaxial.temporal.updates import (
    RULES,
    Rule,
    Statistics,
    Updater,
    header_of,
    read_tensors,
)

__all__ = [
    "AdaptOptions",
    "Adapted",
    "Cost",
    "DivergedError",
    "adapt",
    "read_state",
    "total_cost",
    "write_state",
]

_SHARD = 512  # documents


@dataclass(frozen=True, slots=True)
class AdaptOptions:
    """How a model adapts.

    Args:
        learning_rate: 0 or more; 0 is static.
        parameters: What moves: a set of `parameters`.
        rule: `sgd`, or `rms` with statistics; see `updates`.
        decay: Of the rms rule, back to the trained weights, 0 or more.
        epsilon: Of the rms rule; None for a tenth of the mean √ss.
        reset: Whether the trained weights come back at the beginning of each month.
        borders: Whether a document remembers the ones before it (`carry`) or nothing (`reset`).
        streams: Documents that are read side by side and share their updates.
    """

    learning_rate: float
    parameters: str = "all"
    rule: Rule = "sgd"
    decay: float = 0.0
    epsilon: float | None = None
    reset: Literal["never", "month"] = "never"
    borders: Borders = "reset"
    streams: int = 1

    def __post_init__(self) -> None:
        rms = self.rule == "rms"
        wanted = {
            "rule": (self.rule in RULES, f"one of {', '.join(RULES)}"),
            "learning_rate": (0 <= self.learning_rate < math.inf, "0 or more"),
            "decay": (self.decay == 0 or (rms and 0 < self.decay < math.inf), "0, or more for rms"),
            "epsilon": (
                self.epsilon is None or (rms and 0 < self.epsilon < math.inf),
                "above 0, and for rms alone",
            ),
            "reset": (self.reset in ("never", "month"), "one of never, month"),
            "borders": (self.borders in ("carry", "reset"), "one of carry, reset"),
            "streams": (self.streams >= 1, "at least 1"),
        }
        for name, (good, rule) in wanted.items():
            if not good:
                raise InputError(f"is {getattr(self, name)!r}; it must be {rule}", where=name)
        check_parameters(self.parameters)
        if rms and self.parameters.startswith("lora"):
            raise InputError(
                "is 'rms', but half of an adapter has no gradient before its first update, and so "
                "no statistics; choose sgd with lora",
                where="rule",
            )
        if self.streams > 1 and self.borders == "carry":
            raise InputError(
                "is 'carry', but documents side by side have no common past; choose reset, or "
                "1 stream",
                where="borders",
            )


@dataclass(frozen=True, slots=True)
class Cost:
    """What adapting to some documents took.

    Args:
        documents: How many.
        tokens: Targets that were scored: pieces and ends.
        updates: Of the weights.
        seconds: Of scoring and updating; without tokenization and tables.
        flops: The least that this set of parameters needs; see `parameters.Flops`.
        peak_bytes: The most memory held: of the GPU, or of this process since it began; 0 where
            neither is to be had.
        weights: Numbers that move.
        clipped: Of them those that decay puts all the way back at every update.
    """

    documents: int
    tokens: int
    updates: int
    seconds: float
    flops: float
    peak_bytes: int
    weights: int
    clipped: int

    @property
    def tokens_per_second(self) -> float:
        """0 for nothing."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Adapted:
    """A shard: its scores, its cost, and how to go on after it."""

    tables: Tables
    cost: Cost
    state: State


class DivergedError(InputError):
    """A loss is no finite number."""


def adapt(
    model: CausalLM,
    documents: Iterable[Document],
    options: AdaptOptions,
    *,
    statistics: Statistics | None = None,
    state: State | None = None,
    shard: int = _SHARD,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Adapted]:
    """Score documents in the order of time, learning from each, shard by shard.

    The model is changed while the iterator lives, and as it was when it ends or is closed.

    Args:
        model: Any that `load_causal` loads.
        documents: In the order of date and id; a stream, of which one shard is held.
        options: How.
        statistics: For the rms rule: of training documents.
        state: Of an earlier shard, to go on after it; `documents` then begins where that did.
        shard: Documents of a shard, or a few more.
        progress: Told the number of documents done since it was last called.

    Raises:
        InputError: Documents are out of order, options do not fit the model, it diverges, or the
            state is of something else.
    """
    if shard < 1:
        raise InputError(f"is {shard}; it must be at least 1", where="shard")
    key = _key(model, options, statistics)
    if state is not None and state.run != key:
        raise InputError(
            "is of another model, or of other options or statistics; adapt anew", where="state"
        )
    chronology = Chronology(documents, state)
    return _adapted(model, chronology, options, statistics, state, shard, progress, key)


def total_cost(costs: Iterable[Cost]) -> Cost:
    """The cost of all shards of a run."""
    found = list(costs)
    if not found:
        return Cost(0, 0, 0, 0.0, 0.0, 0, 0, 0)
    sums = {n: sum(getattr(c, n) for c in found) for n in ("documents", "tokens", "updates")}
    seconds, flops = sum(c.seconds for c in found), sum(c.flops for c in found)
    peak = max(c.peak_bytes for c in found)
    return replace(found[-1], **sums, seconds=seconds, flops=flops, peak_bytes=peak)


def write_state(path: Path, state: State) -> None:
    """Save a state as safetensors, whole or not at all.

    Raises:
        StoreError: It cannot be written.
    """
    facts = {name: getattr(state, name) for name in ("run", "documents", "seen", "date", "id")}
    write_tensors(path, state.tensors, header_of("state", facts))


def read_state(path: Path) -> State:
    """A state that `write_state` saved.

    Raises:
        InputError: There is no such file, or it holds something else.
    """
    tensors, facts = read_tensors(path, "state")
    return State(**facts, tensors=tensors)


@dataclass(slots=True)
class _Run:
    """A model that adapts."""

    model: CausalLM
    options: AdaptOptions
    weights: Weights
    updater: Updater | None
    steps: Steps
    flops: Flops
    month: int | None = None

    def read(
        self, shard: Sequence[Sequence[Document]], rows: Sequence[Row]
    ) -> tuple[list[NDArray[np.float32]], Cost]:
        """Log-probabilities of all targets of each document, and what they took."""
        started, updates, tokens, flops = time.perf_counter(), 0, 0, 0.0
        by_month, updater = self.options.reset == "month", self.updater
        ids = iter(rows)
        rounds = rounds_of(
            [[next(ids).ids for _ in some] for some in shard], self.model.where.device
        )
        losses = []
        with torch.set_grad_enabled(updater is not None):
            for some, found in zip(shard, rounds, strict=True):
                month = month_of(some[0].date)
                if by_month and self.month not in (None, month):
                    self.weights.restore()
                self.month = month
                losses.append(torch.zeros(found.targets.shape, device=found.targets.device))
                for step in self.steps.of(found):
                    losses[-1][: step.rows, step.first : step.end] = step.losses
                    if updater is not None:
                        updater.step(gradients_of(step.mean, self.weights))
                        updates += 1
                    flops += self.flops.of(step.tokens, step.pairs, 0)
                tokens += sum(found.lengths)
        # The only place at which the host waits for the device.
        flat = torch.cat([some.flatten() for some in losses]).cpu().numpy()
        seconds = time.perf_counter() - started
        cost = Cost(
            len(rows),
            tokens,
            updates,
            seconds,
            flops + self.flops.of(0, 0, tokens),
            peak_bytes(self.model.where.device) or 0,
            self.weights.size,
            updater.clipped if updater is not None else 0,
        )
        return self._by_document(flat, rounds), cost

    def _by_document(
        self, losses: NDArray[np.float32], rounds: Sequence[Round]
    ) -> list[NDArray[np.float32]]:
        if not np.isfinite(losses).all():
            raise DivergedError(
                f"the loss is not finite with a learning rate of {self.options.learning_rate:g}; "
                "choose a lower one",
                where="learning_rate",
            )
        out: list[NDArray[np.float32]] = []
        at = 0
        for found in rounds:
            size = found.targets.numel()
            lines = losses[at : at + size].reshape(found.targets.shape)
            at += size
            by_row = dict(zip(found.order, zip(lines, found.lengths, strict=True), strict=True))
            out += [-line[:length] for _, (line, length) in sorted(by_row.items())]
        return out


def _adapted(
    model: CausalLM,
    chronology: Chronology,
    options: AdaptOptions,
    statistics: Statistics | None,
    state: State | None,
    shard: int,
    progress: Callable[[int], None] | None,
    key: str,
) -> Iterator[Adapted]:
    network = model.network
    steps = steps_of(model, carry=options.borders == "carry")
    flops = flops_of(network, options.parameters if options.learning_rate else None)
    with chosen_weights(network, options.parameters) as weights:
        learns = options.learning_rate > 0
        updater = _updater(model, weights, options, statistics) if learns else None
        run = _Run(model, options, weights, updater, steps, flops)
        if state is not None:
            _take_up(state, run)
        by_month = options.reset == "month"
        for some in chronology.shards(shard, options.streams, by_month=by_month):
            documents = [document for each in some for document in each]
            rows = rows_of(model, [document.text for document in documents])
            log_p, cost = run.read(some, rows)
            scores = [_score(model, *both) for both in zip(rows, log_p, strict=True)]
            tables = document_tables(documents, scores)
            if progress is not None:
                progress(len(documents))
            yield Adapted(tables, cost, chronology.state(key, _left_off(run)))


def _score(model: CausalLM, row: Row, log_p: NDArray[np.float32]) -> DocumentScore:
    unknown = model.tokenizer.unk_token_id
    return DocumentScore(
        row.pieces,
        row.offsets,
        log_p[: len(row.pieces)],
        None if model.end is None else float(log_p[-1]),
        0 if unknown is None else int((row.pieces == unknown).sum()),
    )


def _updater(
    model: CausalLM, weights: Weights, options: AdaptOptions, statistics: Statistics | None
) -> Updater:
    if options.rule == "rms" and statistics is not None:
        if statistics.model != model.checkpoint.digest:
            raise InputError(
                "are of another model; make them with gradient_statistics and this one",
                where="statistics",
            )
        wanted = options.parameters
        if statistics.parameters not in ({wanted} if wanted == "output" else {wanted, "all"}):
            raise InputError(
                f"are of the parameters {statistics.parameters!r}, wanted {wanted!r}; make them "
                "for these",
                where="statistics",
            )
    return Updater(
        weights, options.rule, options.learning_rate, options.decay, options.epsilon, statistics
    )


def _key(model: CausalLM, options: AdaptOptions, statistics: Statistics | None) -> str:
    """Digest of what decides the numbers."""
    found = {
        "model": model.fingerprint,
        "segment": model.facts.get("segment"),
        "options": asdict(options),
        "statistics": None,
    }
    if options.rule == "rms" and statistics is not None:
        sums = {name: float(s.sum(dtype=torch.float64)) for name, s in statistics.squares.items()}
        about = (statistics.segments, statistics.documents, statistics.latest)
        found["statistics"] = [*about, sums]
    return digest(found)


def _left_off(run: _Run) -> dict[str, torch.Tensor]:
    """The weights that move and a carried memory, as copies on the host."""
    found = {f"weights.{name}": weight for name, weight in run.weights.named.items()}
    if (memory := run.steps.memory) is not None:
        found |= {f"memory.{n}": states for n, states in enumerate(memory.states)}
        found["valid"] = memory.valid
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in found.items()}


def _take_up(state: State, run: _Run) -> None:
    found, device = state.tensors, run.model.where.device
    run.weights.load({name: found[f"weights.{name}"] for name in run.weights.named})
    run.month = month_of(state.date)
    if "valid" in found:
        count = sum(name.startswith("memory.") for name in found)
        states = tuple(found[f"memory.{n}"].to(device) for n in range(count))
        run.steps.memory = Memory(states, found["valid"].to(device), frozen=False)
