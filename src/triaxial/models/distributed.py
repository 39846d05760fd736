"""One training in several processes, as `torchrun` starts them: each computes its rows of a batch.

What a batch holds does not depend on how many share it. Every process has the whole model and makes
the same batches; of each part of a batch it computes some rows, whose loss is weighted by their
share of the batch. So the gradients, summed over the processes, are those of one process, and so is
every update; no weights are sent. The first process alone writes and speaks.

Why not `DistributedDataParallel`: it reduces while one backward pass of `forward` runs. Here a
batch has several passes, as many as it has parts, perhaps none in a process that got no rows, and a
model is trained through other methods than `forward`. One sum a step, of gradients laid out in a
row, is all there is to do; what is given up is that it does not overlap with the backward pass.

On a CPU dropout is drawn for the rows of all processes, of which each takes its own, so that it is
the same in any division too (but for dropout within causal attention of transformers' models); on a
GPU each process draws its own, and with dropout results depend on how many there are.

Processes on several machines need the output directory and the store in common.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from triaxial.errors import InputError, TriaxialError

if TYPE_CHECKING:
    import torch

__all__ = ["ALONE", "Division", "OwnRows", "Team", "joined", "launched", "portions"]

Batch = TypeVar("Batch")
_BUCKET = 1 << 25  # numbers summed at a time: 128 MiB in fp32
_PATIENCE = timedelta(days=1)  # the first may learn a vocabulary while the others wait
_GRACE = 40.0  # seconds in which torchrun ends a process whose fellow has died


@dataclass(frozen=True, slots=True)
class Team:
    """The processes that share a training: which of them this is, and how many they are."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0

    def rows(self, count: int) -> OwnRows:
        """Which of `count` rows are this process's: a run of them, the runs as even as can be."""
        first, end = (count * rank // self.size for rank in (self.rank, self.rank + 1))
        return OwnRows(first, end - first, count)

    def add(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace tensors by their sums over all processes, the same bits in each."""
        import torch
        import torch.distributed as dist

        for some in _buckets(tensors):
            with _fellows():
                flat = torch.cat([tensor.flatten() for tensor in some])
                dist.all_reduce(flat)
                parts = torch.split(flat, [tensor.numel() for tensor in some])
                views = [part.view_as(one) for part, one in zip(parts, some, strict=True)]
                torch._foreach_copy_(list(some), views)

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Each flag, whether it is set in any process."""
        import torch

        counts = torch.tensor(flags, dtype=torch.float32)
        self.add([counts])
        return [count > 0 for count in counts.tolist()]

    def gather(self, tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """The tensors of all processes side by side; they must be of one shape."""
        import torch
        import torch.distributed as dist

        found = [torch.empty_like(tensor) for _ in range(self.size)]
        with _fellows():
            dist.all_gather(found, tensor.contiguous())
        return torch.cat(found, dim)

    def wait(self) -> None:
        """Go on when all processes are here."""
        self.any([True])

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first process does something alone; the others do it after, and find it done."""
        if self.size > 1 and not self.first:
            self.wait()
        yield
        if self.size > 1 and self.first:
            self.wait()


ALONE = Team()


@dataclass(frozen=True, slots=True)
class OwnRows:
    """A process's rows of a part: `count` from `first` on, of `whole`."""

    first: int
    count: int
    whole: int

    @property
    def slice(self) -> slice:
        """Where they stand."""
        return slice(self.first, self.first + self.count)


@dataclass(frozen=True, slots=True)
class Division(Generic[Batch]):
    """How the parts of a training's batches are divided.

    Args:
        count: Rows of a part.
        take: Some rows of a part, and their share of its loss, 0..1.
        buffers: Buffers of the model of which each process holds its own rows: along which
            dimension, by name.
    """

    count: Callable[[Batch], int]
    take: Callable[[Batch, slice], tuple[float, Batch]]
    buffers: Mapping[str, int] = field(default_factory=dict)


def portions(
    parts: Sequence[tuple[float, Batch]], team: Team, division: Division[Batch] | None
) -> Iterator[tuple[float, Batch, OwnRows | None]]:
    """What this process computes of a batch's parts: share of the batch's loss, part, rows."""
    for share, part in parts:
        if team.size == 1 or division is None:
            yield share, part, None
            continue
        own = team.rows(division.count(part))
        if own.count:
            of_part, mine = division.take(part, own.slice)
            yield share * of_part, mine, own


def launched() -> tuple[int, int, int]:
    """Rank, rank on this machine and number of the processes that `torchrun` started; else 0, 0, 1.

    Without torch, so that the command line may ask.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return 0, 0, 1
    rank, local, size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    return rank, local, size


@contextlib.contextmanager
def joined(device: str = "auto") -> Iterator[tuple[Team, str]]:
    """The team of a process that `torchrun` started, and its device; otherwise alone.

    Args:
        device: `auto` and `cuda` become one GPU a process, `cpu` stays.

    Raises:
        InputError: There are fewer GPUs than processes, or the device cannot be shared.
    """
    rank, local, size = launched()
    if size == 1:
        yield ALONE, device
        return
    import torch
    import torch.distributed as dist

    device = _device(device, local)
    options: dict[str, Any] = {}
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
        options = {"device_id": torch.device(device)}
    # What lies on the host is sent by gloo in any case.
    backend = "cpu:gloo,cuda:nccl" if options else "gloo"
    with _fellows():
        dist.init_process_group(backend, timeout=_PATIENCE, **options)
    team = Team(rank, size)
    try:
        yield team, device
        team.wait()
    finally:
        dist.destroy_process_group()


def _device(device: str, local: int) -> str:
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        return device
    if device != "cuda":
        raise InputError(
            f"is {device!r}, which several processes cannot share; use cuda (one GPU each) or cpu",
            where="device",
        )
    there = torch.cuda.device_count()
    if local >= there:
        raise InputError(
            f"{there} GPUs for process {local + 1} on this machine; start at most as many "
            "processes with --nproc-per-node, or use cpu",
            where="device",
        )
    return f"cuda:{local}"


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    some: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        if some and (size + tensor.numel() > _BUCKET or tensor.dtype != some[0].dtype):
            yield some
            some, size = [], 0
        some.append(tensor)
        size += tensor.numel()
    if some:
        yield some


@contextlib.contextmanager
def _fellows() -> Iterator[None]:
    """What is done together; it fails where another process has died."""
    try:
        yield
    except RuntimeError as error:
        # It has said why, and torchrun is about to end this process: no second line.
        time.sleep(_GRACE)
        reason = str(error).splitlines()[0]
        raise TriaxialError(
            f"another process of this training cannot be reached ({reason}); the same command "
            "goes on from the last checkpoint"
        ) from None
