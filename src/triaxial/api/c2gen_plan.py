"""What a run on the composition axis would cost, before any weights are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from triaxial.api.budget import decided
from triaxial.api.c2gen import dropped_of, items_file, prepared
from triaxial.c2gen.grid import Grid
from triaxial.c2gen.items import read_items
from triaxial.c2gen.stages import Job
from triaxial.errors import InputError
from triaxial.execute import Computing
from triaxial.models.base import (
    load_config,
    load_tokenizer,
    locate,
    measured_rate,
    split_revision,
    token_flops,
)
from triaxial.store import file_digest

__all__ = ["plan", "within"]

_RESERVE = 0.75  # of a budget: the rest judges, and covers what the estimate misses
_FEWEST = 4  # items of a type: one for each head's label at least, and a batch that varies
_EFFICIENCY = 0.6  # share of the plain matrix product's rate that training reaches


def plan(data: str | Path, grid: Grid, computing: Computing) -> dict[str, Any]:
    """What a run would do, before any weights are read: stages, steps, tokens, time.

    Returns:
        `units`, `stages` (distinct ones; `done` of them), `without_sharing`, by strategy and stage
        `rows` of `steps`, `tokens` and `seconds`, `seconds` in all of what is not done, `dropped`
        by fold, `rate_gflops`.

    Raises:
        InputError: Data, grid or encoder cannot be used.
    """
    units, chains, _ = prepared(data, grid, computing)
    jobs = {job.stage.key: job for chain in chains.values() for job in chain}
    tokens, seconds, rate = _work_of(list(jobs.values()))
    rows: dict[tuple[str, int, str], dict[str, Any]] = {}
    for job, count, time in zip(jobs.values(), tokens, seconds, strict=True):
        stream = job.unit.fold.stream.name
        key = (stream, job.number + 1, job.strategy.name)
        row = rows.setdefault(
            key,
            {"stream": stream, "stage": job.number + 1, "strategy": job.strategy.name}
            | dict.fromkeys(("stages", "done", "items", "steps", "tokens", "seconds"), 0),
        )
        row["stages"] += 1
        row["done"] += job.done()
        row["items"] += len(job.unit.fold.stages[job.number])
        row["steps"] += job.steps
        row["tokens"] += count
        row["seconds"] += time
    open_ = [time for job, time in zip(jobs.values(), seconds, strict=True) if not job.done()]
    return {
        "units": len(units),
        "stages": len(jobs),
        "done": sum(job.done() for job in jobs.values()),
        "without_sharing": sum(len(chain) for chain in chains.values()),
        "rows": list(rows.values()),
        "seconds": sum(open_),
        "dropped": dropped_of(units),
        "rate_gflops": rate / 1e9,
    }


def within(data: str | Path, grid: Grid, computing: Computing, budget: float) -> Grid:
    """The grid with as many items of each type as fit a time; the shares of the parts stay.

    Folds, streams, strategies and seeds stay too: what is asked stays what it was, with wider
    intervals. Judging is counted as part of the reserve.

    Args:
        data: As for `plan`.
        grid: What was asked.
        computing: How the work is done.
        budget: Seconds.

    Raises:
        InputError: Not even the fewest items fit.
    """

    def scaled(per_type: int) -> Grid:
        share, test = per_type / grid.draw.per_type, grid.draw.test_per_type
        draw = replace(
            grid.draw,
            per_type=per_type,
            test_per_type=None if test is None else max(1, round(share * test)),
            probe_per_type=round(share * grid.draw.probe_per_type),
            unseen_per_type=round(share * grid.draw.unseen_per_type),
        )
        return replace(grid, draw=draw)

    def decide() -> dict[str, Any]:
        # Training alone: what is done already counts too, so that a finished run decides alike.
        def seconds(per_type: int) -> float:
            rows = plan(data, scaled(per_type), computing)["rows"]
            return float(sum(row["seconds"] for row in rows))

        most = grid.draw.per_type
        each = seconds(most) / most
        fits = min(most, int(_RESERVE * budget / each))
        if fits < _FEWEST:
            raise InputError(
                f"{budget:g} s hold {fits} items a type, fewer than {_FEWEST}; give more time, or "
                "fewer folds, streams, strategies or seeds",
                where="--budget",
            )
        return {"per_type": fits}

    about = {"grid": asdict(grid) | {"settings": dict(grid.settings)}, "budget": budget}
    inputs = [file_digest(items_file(data))]
    return scaled(decided("c2gen", about, inputs, computing, decide)["per_type"])


def _work_of(jobs: Sequence[Job]) -> tuple[list[int], list[float], float]:
    """Tokens and seconds that jobs will take, and the FLOPs a second that this rests on.

    Tokens of an item are the mean over a sample. Time is FLOPs over the rate of a matrix product
    measured here and now, of which training reaches some 60 %.
    """
    grid, where = jobs[0].grid, jobs[0].where
    place, revision = split_revision(grid.encoder)
    source = locate(place, revision)
    tokenizer = load_tokenizer(source)
    every = read_items(jobs[0].items)
    sample = [every[row] for row in jobs[0].needed[:: max(1, len(jobs[0].needed) // 500)]]
    texts = [text for i in sample for text in (i.sent1, i.sent1, i.mid_sent)]
    others = [text for i in sample for text in (i.mid_sent, i.sent2, i.sent2)]
    an_item = sum(map(len, tokenizer(texts, others)["input_ids"])) / len(sample)
    body, _ = token_flops(load_config(source))
    rate = measured_rate(where)
    tokens = [round(job.steps * job.strategy.cost(grid.train.batch_size) * an_item) for job in jobs]
    # Forward, and twice that backward.
    seconds = [count * 3 * body / (rate * _EFFICIENCY) for count in tokens]
    return tokens, seconds, rate
