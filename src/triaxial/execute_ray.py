"""Run independent shards on Ray: on a cluster of this machine, or on one that is there.

A process has one cluster, started or joined by the first shards that need it and left at its end,
whatever that is. Functions come with the shards, rows go through the store where they are large;
what a worker needs besides is a directory: all nodes see the working directory of the caller.

A worker that dies is replaced and its shard computed again. Plain tasks give results in order, at
most `AHEAD` a slot ahead of the reader; Ray Data does the same for results of megabytes and also
holds the workers back when the object store fills.

Source: Ray 2.60. Choice: the cluster of this machine listens on the loopback address alone, asks
for a token that lives in memory, has no dashboard, tells no usage statistics, and writes into a
temporary directory that is removed at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from .errors import InputError, TriaxialError

__all__ = ["Shards", "connected", "results", "stop", "streamed"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
LOCAL = "local"
RETRIES = 3  # times that a shard is computed again after its worker died
AHEAD = 4  # shards handed out per slot
_STORE = 1 << 27  # bytes of the object store of a local cluster, for the driver and each worker
_SECONDS = 5.0  # that a cluster has to answer
_LONGEST = 22  # characters of a folder in which the names of Ray's sockets stay below 107
_ADDRESS = re.compile(r"auto|(?:ray://)?([^/\s]+):(\d+)")
_TOKEN = secrets.token_hex(16)


class Shards(Protocol[T_co]):
    """Arguments of known number, such as a list; or made as they are handed out."""

    def __len__(self) -> int:
        """How many."""
        ...

    def __iter__(self) -> Iterator[T_co]:
        """One after the other."""
        ...


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a shard gave: a value, or an error that is told in one line."""

    value: Any
    error: TriaxialError | None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the caller is: its working directory, and where it imports from."""

    folder: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What this process is connected to: how it was asked for, and the folder to be removed."""

    asked: tuple[str, int]
    folder: Path | None


_running: list[_Cluster] = []  # at most one


def results(
    function: Callable[[T], R],
    shards: Shards[T],
    address: str,
    *,
    workers: int,
    gpus: float = 0,
) -> Iterator[R]:
    """Results of all shards, in their order.

    Args:
        function: Of one shard; importable by name.
        shards: Its arguments.
        address: `local`, or that of a cluster: `auto`, `HOST:PORT`, `ray://HOST:PORT`.
        workers: Of a local cluster.
        gpus: That a shard has for itself, where the cluster has any.

    Raises:
        InputError: Ray is not installed, or no cluster answers.
        TriaxialError: A shard ended its workers; an error raised by the function comes as itself.
    """
    if not len(shards):
        return
    ray = connected(address, workers)
    there: Mapping[str, float] = ray.cluster_resources()
    asked = {"num_cpus": 1, "num_gpus": gpus if there.get("GPU") else 0, "max_retries": RETRIES}
    task = ray.remote(**asked)(_outcome)
    slots = max(1, int(there.get("CPU", 1)))
    shared, place = ray.put(ray.cloudpickle.dumps(function)), _Place(os.getcwd(), tuple(sys.path))
    waiting: deque[Any] = deque()
    try:
        with _told(ray):
            for shard in shards:
                if len(waiting) == AHEAD * slots:
                    yield _value(ray.get(waiting.popleft()))
                waiting.append(task.remote(shared, ray.cloudpickle.dumps(shard), place))
            while waiting:
                yield _value(ray.get(waiting.popleft()))
    finally:  # an error, Ctrl-C, or the caller stopped reading: nobody wants the others
        rest = list(waiting)
        if rest and ray.wait(rest, num_returns=len(rest), timeout=1, fetch_local=False)[1]:
            stop()  # to cancel them may abort this process, in Ray 2.60


def streamed(
    function: Callable[[T], R], shards: Shards[T], address: str, *, workers: int
) -> Iterator[R]:
    """As `results`, through Ray Data: for results of megabytes, in bounded memory."""
    if not len(shards):
        return
    ray = connected(address, workers)
    from ray.data import from_items

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what goes wrong is one line, here
    data = from_items(list(range(len(shards))), override_num_blocks=len(shards))
    data.context.execution_options.preserve_order = True
    data.context.enable_progress_bars = False
    work, *each = (ray.cloudpickle.dumps(one) for one in (function, *shards))
    row = partial(_row, work, each, _Place(os.getcwd(), tuple(sys.path)))
    with warnings.catch_warnings():  # its own default is to try without end
        warnings.filterwarnings("ignore", "`ray_remote_args` is deprecated")
        found = data.map(row, num_cpus=1, max_retries=RETRIES)
    with _told(ray):
        for found_row in found.iter_rows():
            yield _value(found_row["outcome"])


def connected(address: str, workers: int) -> Any:
    """The module `ray`, connected; the same cluster as before where the same is asked for.

    Raises:
        InputError: Ray is not installed, the address cannot be read, or no cluster answers.
    """
    asked = (address, workers if address == LOCAL else 0)
    host = _ADDRESS.fullmatch(address)
    if address != LOCAL and host is None:
        seen = f"{address!r} is neither local nor a cluster"
        raise InputError(f"{seen}; write local, auto or HOST:PORT", where="--ray")
    if _running and _running[0].asked != asked:
        stop()
    with _environment(_settings(asked)):
        try:
            import ray
        except ImportError:
            message = 'Ray is not installed; pip install "triaxial[ray]"'
            raise InputError(message, where="--ray") from None
        if not ray.is_initialized():
            _running.clear()
            if host is None:
                _running.append(_Cluster(asked, _started(ray, workers)))
            else:
                _joined(ray, address, host)
                _running.append(_Cluster(asked, None))
            atexit.register(stop)
    return ray


def stop() -> None:
    """Leave the cluster; one that was started here ends, and its folder goes."""
    atexit.unregister(stop)
    while _running:
        import ray

        cluster = _running.pop()
        ray.shutdown()
        if cluster.folder is not None:
            shutil.rmtree(cluster.folder, ignore_errors=True)


def _started(ray: Any, workers: int) -> Path:
    where = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp("", "triax-ray-", where if len(where) <= _LONGEST else "/tmp"))
    try:
        with _signals():
            ray.init(
                num_cpus=workers,
                object_store_memory=_STORE * (1 + workers),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=str(folder / "r"),  # which Ray opens to all; the one above is ours alone
            )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _joined(ray: Any, address: str, host: re.Match[str]) -> None:
    mend = "start one with `ray start --head`, or pass --ray local"
    try:
        if host[1]:  # Ray itself asks for minutes
            socket.create_connection((host[1], int(host[2])), _SECONDS).close()
        with _signals():
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:120]
        message = f"no Ray cluster answers at {address} ({why}); {mend}"
        raise InputError(message, where="--ray") from error


def _settings(asked: tuple[str, int]) -> dict[str, str]:
    """What Ray and the workers of a local cluster are told by their environment."""
    told = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # messages about workers would stand among the results
        "RAY_IGNORE_UNHANDLED_ERRORS": "1",
        "RAY_NUM_REDIS_GET_RETRIES": "2",  # of half a minute each, to find a cluster that is there
    }
    address, workers = asked
    if address == LOCAL:
        told |= {"RAY_AUTH_TOKEN": _TOKEN, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        threads = str(max(1, (os.cpu_count() or 1) // workers))
        for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS"):
            told[name] = os.environ.get(name, threads)
    return told


@contextlib.contextmanager
def _environment(told: Mapping[str, str]) -> Iterator[None]:
    """Variables for a while; what else changes meanwhile is undone too."""
    before = dict(os.environ)
    os.environ.update(told)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Ray takes SIGTERM; the caller has it back, or an end in which the cluster is left."""
    mine = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGTERM, _end if before is signal.SIG_DFL else before)


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


@contextlib.contextmanager
def _told(ray: Any) -> Iterator[None]:
    """One line for what goes wrong in the cluster; errors of the work itself pass."""
    try:
        yield
    except ray.exceptions.RayTaskError:
        raise  # a fault of ours, with its traceback
    except ray.exceptions.RayError as error:
        why = (str(error).splitlines() or [""])[0][:120]
        raise TriaxialError(
            f"a shard ended its workers {1 + RETRIES} times, or the Ray cluster went "
            f"({type(error).__name__}: {why}); committed shards are kept; call again, with fewer "
            "workers if memory was short"
        ) from error


def _value(outcome: _Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def _outcome(function: bytes, shard: bytes, place: _Place) -> _Outcome:
    """In a worker: the work, in the directory of the caller, where its relative names hold."""
    try:
        os.chdir(place.folder)
    except OSError as error:
        here, why = socket.gethostname(), error.strerror
        message = f"is not on {here} ({why}); call from a directory that all nodes share"
        return _Outcome(None, InputError(message, where=place.folder))
    sys.path += [name for name in place.path if name not in sys.path]
    try:
        return _Outcome(pickle.loads(function)(pickle.loads(shard)), None)
    except TriaxialError as error:
        return _Outcome(None, error)


def _row(
    function: bytes, shards: Sequence[bytes], place: _Place, row: dict[str, Any]
) -> dict[str, Any]:
    return {"outcome": _outcome(function, shards[row["item"]], place)}
