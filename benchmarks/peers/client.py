"""Environments of the peers, and the pipe to a script that runs inside one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PEERS", "Found", "Peer", "Spec", "interpreter"]

_HERE = Path(__file__).parent
# First and alone in every environment: what a peer asks for would bring a CUDA build of 6 GB.
TORCH = "torch==2.13.0"


@dataclass(frozen=True, slots=True)
class Spec:
    """A peer and how it is asked.

    Args:
        name: In the report.
        package: Chosen by `--peers`, and the name of its environment.
        script: In this directory.
        requirements: What pip installs behind torch; none for a peer that our environment has.
        unit: What is drawn at random: single queries, `chunk` (32 in the given order) or
            `sentence` (all queries of one sentence of one pair).
        target: The least ratio that we want, `None` where the figure is for information.
        ways: Ways to ask it, the first as it would be used; see its script.
        options: For its script.
    """

    name: str
    package: str
    script: str
    requirements: tuple[str, ...]
    unit: str
    target: float | None
    ways: tuple[str, ...] = ("given",)
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a peer finds for N queries; all of shape (N, K).

    Args:
        ids: Its likeliest entries, in its order.
        p: Their probabilities, from its model's logits in float64.
        own: Their probabilities as it says them; NaN where it says none.
    """

    ids: NDArray[np.int64]
    p: NDArray[np.float64]
    own: NDArray[np.float64]


_TEXTATTACK = ("textattack==0.3.11", "transformers>=4.56,<5", "datasets>=3,<4.5")
PEERS = (
    Spec("fill-mask pipeline", "hf", "fill_mask.py", (), "query", 5),
    Spec(
        "nlpaug",
        "nlpaug",
        "nlpaug_bert.py",
        ("nlpaug==1.1.11", "transformers>=4.57,<4.58"),
        "chunk",
        2,
        ways=("given", "equal"),
    ),
    Spec(
        "textattack, 512",
        "textattack",
        "textattack_bae.py",
        _TEXTATTACK,
        "sentence",
        20,
        options={"max_length": 512},
    ),
    Spec(
        "textattack, 128",
        "textattack",
        "textattack_bae.py",
        _TEXTATTACK,
        "sentence",
        20,
        options={"max_length": 128},
    ),
)


def interpreter(spec: Spec, cache: Path) -> str:
    """The Python of a peer's environment, which is made where it is not there yet."""
    if not spec.requirements:
        return sys.executable
    where = cache / spec.package
    python = where / "bin" / "python"
    wanted = [TORCH, *spec.requirements]
    done = where / "installed.json"
    if done.exists() and json.loads(done.read_text()) == wanted:
        return str(python)
    print(f"making the environment of {spec.package} in {where}: {', '.join(wanted)}", flush=True)
    if not python.exists():
        venv.create(where, with_pip=True)
    for requirements in ([TORCH], wanted):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
    done.write_text(json.dumps(wanted))
    return str(python)


class Peer:
    """A peer's script in its own process.

    Args:
        spec: Which peer.
        python: Of its environment.
        cache: For what its packages keep on disk.
        job: Model, queries, K and threads.
    """

    def __init__(self, spec: Spec, python: str, cache: Path, job: Mapping[str, Any]) -> None:
        self.spec = spec
        self._folder = TemporaryDirectory()
        path = Path(self._folder.name) / "job.json"
        path.write_text(json.dumps({**job, "options": spec.options or {}}))
        self._process = subprocess.Popen(
            [python, str(_HERE / spec.script), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(log := (Path(self._folder.name) / "log").open("w+")),
            text=True,
            env=_environment(cache, job["threads"]),
        )
        self._log = log
        told = self._reply()
        self.versions: dict[str, str] = told["versions"]
        self.usable: list[bool] = told["usable"]
        assert told["threads"] == job["threads"], "peers run on as many threads as we do"

    def check(self, rows: Sequence[int], way: str) -> Found:
        """What it finds, for comparison."""
        file = Path(self._folder.name) / "answers.npz"
        self._ask(do="check", rows=rows, way=way, file=str(file))
        with np.load(file) as found:
            return Found(found["ids"], found["p"], found["own"])

    def time(self, rows: Sequence[int], way: str) -> dict[str, float]:
        """Seconds, forwards and padded tokens."""
        return self._ask(do="time", rows=rows, way=way)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()
        self._folder.cleanup()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            sys.exit(f"{self.spec.name} ended:\n{self._log.read()[-2000:]}")
        return json.loads(line)  # type: ignore[no-any-return]


def _environment(cache: Path, threads: int) -> dict[str, str]:
    """Offline, as many threads as we have, and nothing written outside the cache."""
    stop_words = cache / "nltk_data" / "corpora" / "stopwords" / "english"
    if not stop_words.exists():  # textattack reads it when it is imported
        stop_words.parent.mkdir(parents=True, exist_ok=True)
        stop_words.write_text("a\nan\nthe\n")
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(threads),
        "NLTK_DATA": str(cache / "nltk_data"),
        "TA_CACHE_DIR": str(cache / "textattack_cache"),
        "FLAIR_CACHE_ROOT": str(cache / "flair_cache"),
    }
