"""Shards in this process and in a pool: order, errors, and that no worker is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from triaxial import execute
from triaxial.errors import InputError, TriaxialError
from triaxial.execute import run

SRC = Path(execute.__file__).parents[1]

# The pool imports its function by name, so the functions stand in a module of their own.
WORK = """
import os, time
from triaxial.errors import InputError

def square(n):
    time.sleep(0.05 * (n == 0))
    return n * n

def fail(n):
    if n == 1:
        raise InputError("bad unit", where=f"shard {n}")
    return n

def die(n):
    os._exit(9)

def hang(folder):
    open(f"{folder}/{os.getpid()}", "w").close()
    time.sleep(60)
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pool_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("pool_work", None)
    import pool_work  # type: ignore[import-not-found]

    return pool_work


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order(work, workers: int) -> None:
    seen: list[tuple[int, int]] = []
    got = list(run(work.square, range(7), workers=workers, progress=lambda *now: seen.append(now)))
    assert got == [(n, n * n) for n in range(7)]
    assert seen == [(n, 7) for n in range(1, 8)]
    assert list(run(work.square, [], workers=workers)) == []
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_as_itself_after_the_results_before_it(work, workers: int) -> None:
    results = run(work.fail, range(5), workers=workers)
    assert next(results) == (0, 0)
    with pytest.raises(InputError, match=r"^shard 1: bad unit$") as caught:
        next(results)
    assert caught.value.where == "shard 1"
    assert multiprocessing.active_children() == []


def test_a_dead_worker_is_told(work) -> None:
    with pytest.raises(TriaxialError, match=r"a worker process died, .* call again with fewer"):
        list(run(work.die, [1], workers=2))


def test_no_workers() -> None:
    with pytest.raises(InputError, match="0 workers; wanted at least 1"):
        run(abs, [1], workers=0)


def test_shards_are_not_all_taken_at_once() -> None:
    taken: list[int] = []
    results = run(lambda n: taken.append(n) or n, range(100))
    next(results)
    assert taken == [0]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(work, tmp_path: Path, ending: signal.Signals) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    code = (
        "import pool_work\nfrom triaxial.execute import run\n"
        f"if __name__ == '__main__': list(run(pool_work.hang, [{str(pids)!r}] * 2, workers=2))\n"
    )
    (tmp_path / "main.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": f"{SRC}:{tmp_path}"}
    command = [sys.executable, str(tmp_path / "main.py")]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as parent:
        until = time.time() + 20
        while len(list(pids.iterdir())) < 2 and time.time() < until:
            time.sleep(0.02)
        workers = [int(path.name) for path in pids.iterdir()]
        assert len(workers) == 2
        parent.send_signal(ending)
        _, errors = parent.communicate(timeout=20)
    until = time.time() + 5
    while any(map(alive, workers)) and time.time() < until:
        time.sleep(0.02)
    assert not any(map(alive, workers))
    assert parent.returncode == -ending
    if ending == signal.SIGINT:
        assert errors.count("Traceback") == 1  # the parent's own; workers are silent
        assert "KeyboardInterrupt" in errors
