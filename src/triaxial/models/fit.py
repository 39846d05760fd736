"""The training loop: batches and a loss function in, a trained model and checkpoints out.

Every axis trains through `fit`; what differs is an argument: what an epoch's batches are, what the
loss is, what happens to the gradients before an update.  A killed run goes on from its last
checkpoint and ends bit for bit as if nothing had happened (on one machine with one thread count;
on a GPU as far as its kernels are deterministic).

What makes it fast, without changing what is computed:

- A batch comes in *parts* of similar length (`split`), each weighted by its share of the batch:
  the gradient is that of the whole batch, the padding is gone, and batches stay random samples.
- The optimizer is torch's fused AdamW.
- On a CPU, dropout is drawn quickly (`dropout`).
- The host never waits for the device between two reports.

In several processes (`distributed`) each computes its rows of every part, and the gradients are
summed before they are adjusted and clipped: the updates are those of one process.

It does not evaluate, stop early or pick a best checkpoint: a caller trains, then measures.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from triaxial.errors import InputError
from triaxial.models.base import Hardware, autocast
from triaxial.models.distributed import ALONE, Division, Team, portions
from triaxial.models.dropout import quick_dropout
from triaxial.models.resume import (
    moments_of,
    own_randomness,
    resume_state,
    save_state,
    set_moments,
)
from triaxial.models.schedule import FitOptions, learning_rate
from triaxial.stats import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "PART_COST",
    "FitOptions",
    "History",
    "Parts",
    "fit",
    "learning_rate",
    "shuffled",
    "split",
]

Batch = TypeVar("Batch")
# The parts of one batch, each with its share of the loss; the shares of a batch sum to 1.
Parts = Sequence[tuple[float, Batch]]

# What one more part costs, in tokens. On a CPU it is the adding of its gradients (12 bytes moved a
# parameter, against 6 operations a parameter and token), on a GPU the launch of its kernels.
PART_COST = {"cpu": 40, "mps": 2_000, "cuda": 16_000}

# Steps between two looks at the loss; a CPU has nothing to wait for.
_CADENCE = {"cpu": 1}
_CADENCE_ELSEWHERE = 16


@dataclass(frozen=True, slots=True)
class History:
    """What happened: the loss of every step, and the step at which a killed run was taken up."""

    losses: tuple[float, ...]
    resumed_at: int = 0


def fit(
    model: torch.nn.Module,
    epoch_batches: Callable[[int], Sequence[Parts[Batch]]],
    loss: Callable[[torch.nn.Module, Batch], torch.Tensor],
    options: FitOptions,
    where: Hardware,
    *,
    checkpoint: Path | None = None,
    run: str = "",
    adjust: Callable[[int, Sequence[torch.nn.Parameter]], None] | None = None,
    moments: dict[str, torch.Tensor] | None = None,
    after_step: Callable[[int], None] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    team: Team = ALONE,
    division: Division[Batch] | None = None,
) -> History:
    """Train a model in place.

    The caller's random state and the model's training flags are as before afterwards.

    Args:
        model: Trained where it requires gradients; moved to the device.
        epoch_batches: The batches of an epoch, 0-based: the same at every call, and as many in
            every epoch. A batch is whatever `loss` takes, in one or more parts.
        loss: Mean loss of one part; it moves the part to the device itself.
        options: How to train.
        where: Device and precision.
        checkpoint: Directory for checkpoints; a run found there is taken up.
        run: What is trained on what, such as a digest; a checkpoint of another run is refused.
        adjust: Called with the step and the parameters after each backward pass, before clipping:
            it may change the gradients. It must keep no state that a resumed run would lack.
        moments: State of the optimizer from an earlier training, by parameter and part, to start
            from; afterwards it holds the state at the end. `{}` starts anew and takes it along.
        after_step: Called with the number of steps done, after each update.
        progress: Called with steps done, steps in all and the latest loss.
        team: The processes that share the training; each calls with the same batches.
        division: How they divide a part.

    Raises:
        InputError: The loss or its gradient is no finite number; the checkpoint is of another run.
        StoreError: A checkpoint cannot be written or read.
    """
    assert team.size == 1 or division is not None, "several processes need to know who does what"
    device = torch.device(where.device)
    model.to(device)
    batches = epoch_batches(0)
    if not batches:
        raise InputError("there is nothing to train on; give at least one batch")
    per_epoch, epoch = len(batches), 0
    total = options.max_steps or options.epochs * per_epoch
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    weights = list(named.values())
    optimizer = _adamw(weights, options)
    cadence = _CADENCE.get(device.type, _CADENCE_ELSEWHERE)
    trace = torch.zeros(2, cadence, device=device)  # loss, length of the gradient
    losses: list[float] = []
    about = {"run": run, "total": total, **asdict(options)}
    del about["checkpoint_every"]
    divided = division.buffers if division is not None and team.size > 1 else {}
    reached: list[bool] | None = None
    with own_randomness(device, options.seed, team), _training(model):
        if moments:
            set_moments(optimizer, named, moments, device)
        if checkpoint is not None:
            losses = resume_state(checkpoint, model, optimizer, named, device, about, team, divided)
        start = len(losses)
        for step in range(start, total):
            if step // per_epoch != epoch:
                epoch = step // per_epoch
                batches = epoch_batches(epoch)
                assert len(batches) == per_epoch, "every epoch must have as many batches"
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(options, step, total)
            slot = step % cadence
            for share, part, own in portions(batches[step % per_epoch], team, division):
                with quick_dropout(device, own):
                    with autocast(where):
                        value = loss(model, part) * share
                    torch.autograd.backward(value)  # inside, for layers that compute twice
                trace[0, slot] += value.detach()
            if team.size > 1:
                reached = _sum_gradients(weights, reached, team)
            if adjust is not None:
                adjust(step, weights)
            if options.clip_norm is not None:
                trace[1, slot] = torch.nn.utils.clip_grad_norm_(
                    weights, options.clip_norm, foreach=True
                )
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done = step + 1
            if after_step is not None:
                after_step(done)
            save = checkpoint is not None and done % options.checkpoint_every == 0
            if slot == cadence - 1 or done == total or save:
                losses += _read(trace, len(losses), done, options, team)
                if progress is not None:
                    progress(done, total, losses[-1])
            if checkpoint is not None and (save or done == total):
                save_state(
                    checkpoint, model, optimizer, named, device, about, losses, team, divided
                )
    if moments is not None:
        moments |= moments_of(optimizer, named)
    return History(tuple(losses), start)


def shuffled(
    lengths: Sequence[int] | NDArray[np.integer],
    rows: int,
    *,
    seed: int,
    epoch: int,
    megabatch: int = 1,
) -> list[NDArray[np.intp]]:
    """An epoch's batches of `rows` row indices (the last of an epoch may be smaller).

    With `megabatch` = 1 a batch is a random sample. A higher value sorts that many batches' worth
    of rows by length before cutting: less padding without parts, but a batch then holds rows of one
    length, which changes what is learned. Prefer `split`.

    Args:
        lengths: Tokens of each row.
        rows: Rows of a batch.
        seed: Of the order.
        epoch: Another order for each.
        megabatch: Batches that are sorted by length together.
    """
    lengths = np.asarray(lengths)
    rng = generator("fit.batches", seed, epoch)
    order = rng.permutation(len(lengths))
    if megabatch > 1:
        size = megabatch * rows
        pieces = [order[at : at + size] for at in range(0, len(order), size)]
        order = np.concatenate(
            [piece[np.argsort(-lengths[piece], kind="stable")] for piece in pieces]
        )
    batches = [order[at : at + rows] for at in range(0, len(order), rows)]
    return [batches[at] for at in rng.permutation(len(batches))]


def split(
    lengths: Sequence[int] | NDArray[np.integer], batch: NDArray[np.intp], part_cost: int
) -> list[NDArray[np.intp]]:
    """A batch in parts of similar length, longest first, such that the work is least.

    The work of a part is its rows times its longest row, plus `part_cost`, in tokens; the best cut
    of the rows sorted by length is found exactly.

    Args:
        lengths: Tokens of each row of the data.
        batch: Indices of the batch's rows.
        part_cost: What a part costs beside its tokens; see `PART_COST`.
    """
    lengths = np.asarray(lengths)
    order = batch[np.argsort(lengths[batch], kind="stable")]
    widths = lengths[order]
    work = np.zeros(len(order) + 1)
    cut = np.zeros(len(order) + 1, dtype=np.intp)
    for end in range(1, len(order) + 1):
        start = np.arange(end)
        costs = work[:end] + widths[end - 1] * (end - start) + part_cost
        cut[end] = np.argmin(costs)
        work[end] = costs[cut[end]]
    parts = []
    end = len(order)
    while end:
        parts.append(order[cut[end] : end])
        end = int(cut[end])
    return parts


def _adamw(weights: Sequence[torch.nn.Parameter], options: FitOptions) -> torch.optim.AdamW:
    groups: list[dict[str, Any]] = [
        {"params": [weight for weight in weights if weight.ndim >= 2]},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=options.learning_rate,
        weight_decay=options.weight_decay,
        fused=True,
    )


def _sum_gradients(
    weights: Sequence[torch.nn.Parameter], reached: list[bool] | None, team: Team
) -> list[bool]:
    """Sum the gradients of all processes; returns which weights have any, asked at the first step.

    A process without rows has none, and one process would have none for a weight that no loss
    reaches: the first must be zeros, the second must stay away.
    """
    if reached is None:
        reached = team.any([weight.grad is not None for weight in weights])
    for weight, there in zip(weights, reached, strict=True):
        assert there or weight.grad is None, "a weight that no loss reached at the first step"
        if there and weight.grad is None:
            weight.grad = torch.zeros_like(weight)
    team.add([weight.grad for weight in weights if weight.grad is not None])
    return reached


def _read(
    trace: torch.Tensor, read: int, done: int, options: FitOptions, team: Team
) -> list[float]:
    # The only place at which the host waits for the device.
    first = read % trace.shape[1]
    if team.size > 1:
        team.add([trace[0]])
    values, lengths = trace[:, first : first + done - read].tolist()
    trace.zero_()
    for step, (value, length) in enumerate(zip(values, lengths, strict=True), start=read):
        if not math.isfinite(value + length):
            what = "loss" if not math.isfinite(value) else "gradient"
            raise InputError(
                f"the {what} is not finite ({value if what == 'loss' else length}) at step "
                f"{step + 1}; lower the learning rate (now {options.learning_rate:g}), lengthen "
                "the warm-up or compute in fp32",
                where="training",
            )
    return list(values)


@contextlib.contextmanager
def _training(model: torch.nn.Module) -> Iterator[None]:
    flags = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag
