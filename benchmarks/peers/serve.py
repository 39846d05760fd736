"""The loop inside a peer's environment: load once, then answer the benchmark line by line.

Runs with the peer's own packages, so it imports nothing of ours. A request is one line of JSON on
standard input, a reply one line on standard output; what the libraries print goes to standard
error. Loading a model is never timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, TextIO

__all__ = ["Answer", "Peer", "Query", "serve"]

Query = tuple[str, int, int]  # a text, and where the word to be masked starts and ends

Answer = tuple[Sequence[int], Any, Sequence[float]]
"""The K likeliest entries in its own order; the logits that its model gave the mask, (V,); and
its own probabilities of these entries, empty where it makes none.

Both, as a float32 softmax over a vocabulary is off by 2e-5 and more: the many small
terms get lost in the sum. The model's probabilities are computed from the logits in float64.
"""


class Peer(Protocol):
    """A package's own way to fill a mask.

    Attributes:
        model: Its torch module, on which forwards and tokens are counted.
        packages: Distributions to be named in the report.
        usable: Whether it can be asked each query at all.
    """

    model: Any
    packages: tuple[str, ...]
    usable: Sequence[bool]

    def run(self, rows: Sequence[int], way: str) -> None:
        """Fill the masks of some queries, untouched: what is timed."""
        ...

    def answers(self, rows: Sequence[int], way: str) -> list[Answer]:
        """The same, with what it finds: see `Answer`."""
        ...


class _Count:
    """Forwards and padded tokens, by a hook on the model."""

    def __init__(self) -> None:
        self.forwards = self.padded = 0

    def __call__(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.forwards += 1
        self.padded += (kwargs["input_ids"] if "input_ids" in kwargs else args[0]).numel()


def serve(make: Any) -> None:
    """Read the job named on the command line, load the peer, answer until standard input ends.

    Args:
        make: From model directory, queries, K and options to a `Peer`.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    import torch

    job = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(job["threads"])
    peer = make(job["model"], [tuple(query) for query in job["queries"]], job["k"], job["options"])
    peer.model.float()
    count = _Count()
    peer.model.register_forward_pre_hook(count, with_kwargs=True)
    _say(
        replies,
        versions={name: metadata.version(name) for name in ("torch", *peer.packages)},
        threads=torch.get_num_threads(),
        usable=[bool(x) for x in peer.usable],
    )
    for line in sys.stdin:
        request = json.loads(line)
        rows, way = request["rows"], request["way"]
        if request["do"] == "check":
            _save(request["file"], peer.answers(rows, way))
            _say(replies)
        else:
            count.forwards = count.padded = 0
            start = time.perf_counter()
            peer.run(rows, way)
            seconds = time.perf_counter() - start
            _say(replies, seconds=seconds, forwards=count.forwards, padded=count.padded)


def _save(file: str, answers: Sequence[Answer]) -> None:
    import numpy as np
    import torch

    ids = np.asarray([ids for ids, _, _ in answers])
    p = [torch.softmax(logits.double(), dim=-1)[ids] for ids, logits, _ in answers]
    own = [scores or [np.nan] * len(ids) for ids, _, scores in answers]
    np.savez(file, ids=ids, p=torch.stack(p).numpy(), own=np.asarray(own))


def _say(replies: TextIO, **what: Any) -> None:
    replies.write(json.dumps(what) + "\n")
    replies.flush()
