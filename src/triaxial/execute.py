"""Run independent shards: in this process, in a pool of them, or on Ray.

A shard is an argument, the work a plain function of it. What a shard gives does not depend on where
it runs. Workers are started fresh (spawn), since a fork of a process that holds threads may hang;
they end with their parent, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypeVar

from .errors import InputError, TriaxialError
from .execute_ray import Shards, results, streamed

__all__ = ["Computing", "Progress", "Shards", "run"]

Progress = Callable[[str, int, int], None]  # what, done, in all
T = TypeVar("T")
R = TypeVar("R")
AHEAD = 2  # shards handed out per worker, so that results do not pile up before a slow first one


@dataclass(frozen=True, slots=True)
class Computing:
    """How the work is done, never what comes out.

    Args:
        store: Directory of stages and caches.
        device: `auto`, `cpu`, `cuda`, `cuda:N`, `mps`.
        token_budget: Padded tokens of a batch; `None` for what suits the device.
        workers: Processes; each has its share of the cores.
        progress: Told what is being done, how much of it is done, and how much there is.
        ray: `local` for a Ray cluster of so many workers on this machine, or the address of one.
    """

    store: Path = Path(".triaxial")
    device: str = "auto"
    token_budget: int | None = None
    workers: int = 1
    progress: Progress | None = None
    ray: str | None = None

    @property
    def spread(self) -> bool:
        """Whether shards run elsewhere than in this process."""
        return self.workers > 1 or self.ray is not None

    @property
    def gpus(self) -> int:
        """GPUs that a shard with a model asks for, where there are any."""
        return int(self.device == "auto" or self.device.startswith("cuda"))

    def told(self, what: str) -> Callable[[int, int], None]:
        """Tells the progress of one kind of work."""

        def tell(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(what, done, total)

        return tell


def run(
    function: Callable[[T], R],
    shards: Shards[T],
    *,
    workers: int = 1,
    ray: str | None = None,
    gpus: float = 0,
    large: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[int, R]]:
    """Index and result of every shard, in the order of the shards, as they come.

    Args:
        function: Of one shard; importable by name (no lambda) unless it runs here.
        shards: Its arguments; picklable unless it runs here.
        workers: Processes; 1 runs here. Of Ray: those of a local cluster.
        ray: As in `Computing`.
        gpus: Of Ray: GPUs of a shard, where there are any.
        large: Of Ray: results are of megabytes, and come through Ray Data.
        progress: Called with shards done and shards in all after each.

    Raises:
        InputError: `workers` < 1; there is no Ray, or no such cluster.
        TriaxialError: A worker died; an error raised by the function comes as itself.
    """
    if workers < 1:
        raise InputError(f"{workers} workers; wanted at least 1")
    found: Iterator[R]
    if ray is not None and large:
        found = streamed(function, shards, ray, workers=workers)
    elif ray is not None:
        found = results(function, shards, ray, workers=workers, gpus=gpus)
    elif workers > 1:
        found = _pooled(function, shards, workers)
    else:
        found = map(function, shards)
    return _counted(found, len(shards), progress)


def _counted(
    results: Iterator[R], total: int, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[int, R]]:
    for index, result in enumerate(results):
        yield index, result
        if progress:
            progress(index + 1, total)


def _pooled(function: Callable[[T], R], shards: Shards[T], workers: int) -> Iterator[R]:
    pool = ProcessPoolExecutor(
        min(workers, len(shards)) or 1,
        multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(max(1, (os.cpu_count() or 1) // workers),),
    )
    waiting: deque[Future[R]] = deque()
    finished = False
    try:
        for shard in shards:
            if len(waiting) == workers * AHEAD:
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, shard))
        while waiting:
            yield waiting.popleft().result()
        finished = True
    except BrokenProcessPool as error:
        raise TriaxialError(
            "a worker process died, perhaps for lack of memory; committed shards are kept; "
            "call again with fewer workers"
        ) from error
    finally:
        # Not finished: an error, Ctrl-C, or the caller stopped reading. Nobody wants the running
        # shards then; the executor itself has no way to stop them before Python 3.14.
        processes = [] if finished else list((pool._processes or {}).values())
        for process in processes:
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(threads: int) -> None:
    """Leave Ctrl-C to the parent, follow it into the grave, share the cores."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))  # read when the library is first imported
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
