"""Ray on one machine: what it costs beside this process, and that it gives the same bytes.

- A grid of 12 small stages of composition (two seeds, a first stage that five strategies share, and
  five second ones): in this process, in a pool of two processes (once), and on Ray with one and two
  workers, warm (they have loaded torch), each into a store of its own. The overhead of a
  stage is what one worker took longer than this process, divided by 12.
- Shards that do nothing: what handing out one costs.
- Ingest of a generated JSONL file (200 MB): in this process, in a pool of two, and through Ray Data
  with two workers.

Compared before a figure is printed: the bytes of every part of every stage, and all files of the
corpora apart from the time in their manifests.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in every worker

import temporal_ingest
from common import header, spread, table

from triaxial import execute_ray
from triaxial.api.temporal_ingest import ReadOptions, ingest
from triaxial.c2gen.compose import Item
from triaxial.c2gen.grid import Grid, TrainOptions
from triaxial.c2gen.items import read_items
from triaxial.c2gen.stages import jobs_of, run_jobs
from triaxial.c2gen.streams import Draw
from triaxial.c2gen.units import units_of
from triaxial.execute import Computing, run
from triaxial.models.tiny import tiny_masked
from triaxial.store import table_of, write_jsonl
from triaxial.worlds import compositions

WORLD = (
    ("dog", "cat", "man", "woman", "boy", "girl"),
    ("run", "sleep", "sing", "swim", "eat", "jump"),
)
WAYS: dict[str, dict[str, Any]] = {
    "this process": {},
    "pool of 2": {"workers": 2},
    "Ray, 1 worker": {"ray": "local", "workers": 1},
    "Ray, 2 workers": {"ray": "local", "workers": 2},
}
STAGES = 12
READ = ReadOptions(language=None)  # the words are random


def main() -> None:
    """Run every way, compare, print; exit code 1 where two ways disagree."""
    options = _arguments()
    print(header("Ray on one machine", 1, ["triaxial", "ray", "torch"]), flush=True)
    with TemporaryDirectory(dir=options.tmp) as folder:
        print(grids(Path(folder), options.repeats), flush=True)
        print(ingests(Path(folder), options.megabytes), flush=True)
    execute_ray.stop()


def grids(folder: Path, repeats: int) -> str:
    """The table of the grid."""
    items = compositions(*WORLD)
    texts = [text for one in items for text in (one.sent1, one.mid_sent, one.sent2)]
    encoder = tiny_masked(folder / "encoder", [w for t in texts for w in t.split()], hidden=16)
    data = folder / "items.jsonl"
    write_jsonl(data, table_of(items, Item))
    grid = Grid(
        str(encoder),
        folds=(1,),
        streams=("ver-nat",),
        strategies=("none", "er-res", "er-buff", "agem", "kd"),
        seeds=(1, 2),
        draw=Draw(per_type=10, test_per_type=20, probe_per_type=2, unseen_per_type=0),
        train=TrainOptions(epochs=1, learning_rate=3e-3, batch_size=8),
        settings={"memory": 16},
    )
    wanted: dict[str, bytes] = {}
    seconds: dict[str, list[float]] = {}
    rows = []
    for way, given in WAYS.items():
        started = _timed(lambda given=given: list(run(abs, [1], **given)))
        store = folder / way.replace(" ", "-")
        seconds[way] = []
        pool = way == "pool of 2"  # begins anew for every call: nothing is warm, once tells
        for repeat in range(1, 2) if pool else range(repeats + 1):
            computing = Computing(store / str(repeat), "cpu", **given)
            chains = jobs_of(units_of(read_items(data), grid), str(data), grid, computing)
            took = _timed(lambda c=chains, how=computing: run_jobs(c, how))
            if repeat:  # the first loads torch
                seconds[way].append(took)
            found = _parts(store / str(repeat))
            if len(found) != STAGES or found != (wanted := wanted or found):
                sys.exit(f"{way}: {len(found)} parts, or other bytes than in this process")
        more = median(seconds[way]) - median(seconds["this process"])
        empty = _timed(lambda given=given: list(run(abs, range(200), **given))) / 200
        told = f"{1000 * more / STAGES:,.0f}" if way == "Ray, 1 worker" else ""
        rows.append([way, f"{started:.1f}", spread(seconds[way], 1), told, f"{1000 * empty:.2f}"])
    head = ["12 stages", "start, s", "s", "overhead of a stage, ms", "an empty shard, ms"]
    return table(head, rows)


def ingests(folder: Path, megabytes: int) -> str:
    """The table of the ingest."""
    file = temporal_ingest.written(folder, megabytes)
    wanted: dict[str, Any] = {}
    rows = []
    for way in ("this process", "pool of 2", "Ray, 2 workers"):
        out, store = folder / f"corpus of {way}", folder / f"store of {way}"
        computing = Computing(store, "cpu", **WAYS[way])
        took = _timed(lambda o=out, how=computing: ingest([str(file.path)], o, READ, computing=how))
        found = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
        manifest = json.loads(found.pop("manifest.json"))
        del manifest["created"]
        found["manifest"] = manifest
        if found != (wanted := wanted or found):
            sys.exit(f"{way}: another corpus than in this process")
        rows.append([way, f"{took:,.0f}", f"{file.documents / took:,.0f}"])
        print(f"  {way}: {took:,.0f} s", flush=True)
    return table([f"ingest of {megabytes} MB", "s", "documents/s"], rows)


def _parts(store: Path) -> dict[str, bytes]:
    return {
        path.relative_to(store).as_posix(): path.read_bytes()
        for path in sorted(store.glob("*/part-*.parquet"))
    }


def _timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="of the grid, after a warm one (5)")
    parser.add_argument("--megabytes", type=int, default=200, help="of the ingest (200)")
    parser.add_argument("--tmp", help="directory for the files (the system's own)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
