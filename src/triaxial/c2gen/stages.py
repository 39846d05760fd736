"""The stages of the composition axis in the store: one for each stage of training.

A unit of a grid is a stream on a fold with a strategy and a seed. Its stages of training are a
chain; each is a stage of the store whose key holds all that decides it and the key of the one
before. What two units share, above all the first stage of all strategies, has one key and is
trained once. A stage leaves predictions on the fold's items, and weights for the stage after it;
the last one's are not kept. A killed run goes on from the last checkpoint of the stage at work.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from triaxial import execute
from triaxial.c2gen.compose import Item
from triaxial.c2gen.grid import Grid
from triaxial.c2gen.items import read_items
from triaxial.c2gen.streams import Fold
from triaxial.c2gen.units import Unit
from triaxial.errors import StoreError
from triaxial.execute import Computing
from triaxial.models.base import Hardware, hardware
from triaxial.nli import LABELS
from triaxial.store import Stage, Store, digest, file_digest, planned, write_table

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from triaxial.c2gen.hooks import Finetuning
    from triaxial.c2gen.train import Material, StageData

__all__ = [
    "Job",
    "jobs_of",
    "predictions_of",
    "run_jobs",
    "vectors_of",
]

VERSION = 1
_WEIGHTS, _CARRIED, _MOMENTS = "weights", "carried", "moments"
_VECTORS = "vectors.parquet"
_CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class Job:
    """One stage of training, with all that a worker needs.

    Args:
        stage: Where its rows go.
        before: The stage before it, if any.
        unit: One of the units that need it.
        strategy: What it is trained with: no remedy where the stage is shared.
        number: Of the stage, 0-based.
        last: Whether nothing follows.
        items: The data's file.
        needed: Rows that any job of the grid needs.
        grid: What else there is.
        where: Device and precision.
        token_budget: As in `Computing`.
    """

    stage: Stage
    before: Stage | None
    unit: Unit
    strategy: Finetuning
    number: int
    last: bool
    items: str
    needed: tuple[int, ...]
    grid: Grid
    where: Hardware
    token_budget: int | None

    @property
    def steps(self) -> int:
        """Updates in all."""
        from triaxial.c2gen.train import steps_of

        size = len(self.unit.fold.stages[self.number])
        return steps_of(size, self.number, self.strategy, self.grid.train)

    def done(self) -> bool:
        """Whether its rows are there."""
        return self.stage.complete


def jobs_of(
    units: Sequence[Unit], items: str, grid: Grid, computing: Computing
) -> dict[int, list[Job]]:
    """The jobs of every unit (by its index), in order; shared ones are the same object.

    Raises:
        InputError: The encoder cannot be found; memory or batch do not fit a stage.
    """
    from triaxial.c2gen.strategies import strategy_named
    from triaxial.c2gen.train import check_stage
    from triaxial.models.heads import fingerprint_of

    where = hardware(computing.device, grid.precision)
    store = Store(computing.store)
    common = {
        "model": fingerprint_of(grid.encoder, where, grid.pooling, grid.lora),
        "train": {**asdict(grid.train), "checkpoint_every": None},
        "vectors": grid.vectors,
    }
    data = file_digest(items)
    needed = tuple(sorted({row for unit in units for rows in _rows_of(unit.fold) for row in rows}))
    plain = strategy_named("none", {})
    found: dict[str, Job] = {}
    chains: dict[int, list[Job]] = {}
    for index, unit in enumerate(units):
        fold = unit.fold
        chain: list[Job] = []
        judged = digest([fold.test, fold.probe, fold.unseen])
        for number, (phase, rows) in enumerate(zip(fold.stream.phases, fold.stages, strict=True)):
            shared = number == 0 and not unit.strategy.alters_first_stage()
            strategy = plain if shared else unit.strategy
            params = common | {
                "number": number,
                "phase": asdict(phase),
                "strategy": {"name": strategy.name, **asdict(strategy)},
                "seed": unit.seed,
            }
            before = chain[-1].stage if chain else None
            inputs = [data, digest(rows), judged, *([before.key] if before else [])]
            stage = store.stage("c2gen.stage", VERSION, params, inputs)
            if stage.key not in found:
                check_stage(_data_of(fold, number), strategy, grid.train)
                found[stage.key] = Job(
                    stage,
                    before,
                    unit,
                    strategy,
                    number,
                    True,
                    items,
                    needed,
                    grid,
                    where,
                    computing.token_budget,
                )
            chain.append(found[stage.key])
        chains[index] = chain
    # The last stage of one stream may be in the middle of another.
    goes_on = {job.stage.key for chain in chains.values() for job in chain[:-1]}
    found = {key: replace(job, last=key not in goes_on) for key, job in found.items()}
    return {index: [found[job.stage.key] for job in chain] for index, chain in chains.items()}


def run_jobs(chains: Mapping[Any, Sequence[Job]], computing: Computing) -> None:
    """Do what is not done, stage after stage, shared ones once.

    Raises:
        InputError: Training diverges.
        StoreError: Something cannot be written or read.
    """
    every = {job.stage.key: job for chain in chains.values() for job in chain}
    open_ = {key for key, job in every.items() if not job.done()}
    # A finished stage whose weights are gone is trained again where one that is not needs them.
    for chain in chains.values():
        for job, after in reversed(list(itertools.pairwise(chain))):
            if after.stage.key in open_ and not _file(job.stage, _WEIGHTS).exists():
                open_.add(job.stage.key)
    total = sum(job.steps for job in every.values())
    done = sum(job.steps for key, job in every.items() if key not in open_)
    what = f"training {len(every)} stages"

    def told(steps: int) -> None:
        if computing.progress:
            computing.progress(what, steps, total)

    told(done)
    with planned(computing.store, "c2gen.grid", [job.stage.path.name for job in every.values()]):
        for level in range(1 + max((job.number for job in every.values()), default=0)):
            mine = [job for key, job in every.items() if key in open_ and job.number == level]
            if not computing.spread:
                for job in mine:
                    train_job(job, lambda steps, start=done: told(start + steps))  # type: ignore[misc]
                    done += job.steps
                    told(done)
            else:
                found = execute.run(
                    train_job,
                    mine,
                    workers=computing.workers,
                    ray=computing.ray,
                    gpus=computing.gpus,
                )
                for index, _ in found:
                    done += mine[index].steps
                    told(done)


def train_job(job: Job, told: Callable[[int], None] | None = None) -> None:
    """Train one stage, judge the fold's items, and commit both."""
    import polars as pl

    from triaxial.c2gen.train import load_tensors, predict, train_stage

    material, items = _material(job)
    learner = material.learner
    fold, stage = job.unit.fold, job.stage
    carried: Mapping[str, Any] = {}
    moments: Mapping[str, Any] = {}
    if job.before is None:
        learner.restart(job.unit.seed)
    else:
        learner.load(load_tensors(_file(job.before, _WEIGHTS)))
        if _file(job.before, _CARRIED).exists():
            carried = load_tensors(_file(job.before, _CARRIED))
        if job.grid.train.optimizer_on_stage == "keep":
            moments = load_tensors(_file(job.before, _MOMENTS))

    def progress(done: int, total: int, loss: float) -> None:
        if told is not None:
            told(done)

    trained = train_stage(
        material,
        _data_of(fold, job.number),
        job.strategy,
        job.grid.train,
        job.unit.seed,
        carried=carried,
        moments=moments,
        checkpoint=stage.path / _CHECKPOINTS,
        run=stage.key,
        progress=progress,
    )
    if not job.last:
        _save(stage, _WEIGHTS, learner.weights())
        if trained.carried:
            _save(stage, _CARRIED, trained.carried)
        if trained.moments:
            _save(stage, _MOMENTS, trained.moments)
    frames = []
    for part, rows in (("test", fold.test), ("probe", fold.probe), ("unseen", fold.unseen)):
        if rows:
            found = predict(material, np.asarray(rows, dtype=np.intp))
            frames.append(_frame(part, rows, found))
    if job.grid.vectors:
        rows = fold.test[:: max(1, len(fold.test) // job.grid.vectors)][: job.grid.vectors]
        values = learner.vectors(material.pairs[np.asarray(rows, dtype=np.intp), 2])
        table = pl.DataFrame({"item": [items[row].id for row in rows], "vector": values.tolist()})
        write_table(stage.path / _VECTORS, table)
    stage.write(0, pl.concat(frames))
    stage.finish(1, {**trained.facts, "losses": list(trained.losses)})
    shutil.rmtree(stage.path / _CHECKPOINTS, ignore_errors=True)


def predictions_of(
    chains: Mapping[Any, Sequence[Job]], units: Sequence[Unit], items: Sequence[Item]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The table of predictions of all units and stages, and that of their costs."""
    import polars as pl

    index = {label.value: n for n, label in enumerate(LABELS)}
    group: dict[str, str] = {}
    about = pl.DataFrame(
        {
            "row": range(len(items)),
            "item": [item.id for item in items],
            "type": [item.type for item in items],
            "verb": [item.verb for item in items],
            "relation": [item.relation for item in items],
            "group": [group.setdefault(item.mid_sent, f"s{n}") for n, item in enumerate(items)],
            "gold_v": [index[item.veridical_label] for item in items],
            "gold_n": [index[item.sick_label] for item in items],
            "gold": [index[item.label] for item in items],
            "sound": [index[item.sound] for item in items],
        }
    )
    tables, costs = [], []
    for number, unit in enumerate(units):
        stream = unit.fold.stream
        learned = {
            kind: stage + 1
            for stage, phase in reversed(list(enumerate(stream.phases)))
            for kind in phase.types
        }
        for job in chains[number]:
            place = {
                "stream": stream.name,
                "test_type": stream.test_type,
                "solution": stream.solution,
                "strategy": unit.strategy.name,
                "seed": unit.seed,
                "stage": job.number + 1,
                "stages": len(stream.phases),
                "stage_name": stream.phases[job.number].name,
            }
            table = job.stage.read().join(about, on="row", how="left", maintain_order="left")
            kinds = table["type"].replace_strict(learned, default=0, return_dtype=pl.Int64)
            tables.append(
                table.select(
                    *(pl.lit(value).alias(name) for name, value in place.items()),
                    "item",
                    "part",
                    "type",
                    "verb",
                    "relation",
                    "group",
                    kinds.alias("learned"),
                    "gold_v",
                    "gold_n",
                    "gold",
                    "sound",
                    *_SCORES,
                ).with_columns(pl.col(pl.Int32).cast(pl.Int64))
            )
            facts = job.stage.manifest["facts"]
            shared = {"shared": job.strategy.name != unit.strategy.name}
            kept = ("items", "steps", "resumed_at", "tokens", "seconds", "peak_mib")
            costs.append(place | shared | {name: facts[name] for name in kept})
    return pl.concat(tables), pl.DataFrame(costs)


def vectors_of(job: Job) -> pl.DataFrame:
    """Items and vectors that a stage kept.

    Raises:
        StoreError: It kept none.
    """
    import polars as pl

    path = job.stage.path / _VECTORS
    if not path.exists():
        raise StoreError("holds no vectors; run again with --vectors 200", where=job.stage.path)
    return pl.read_parquet(path)


_SCORES = tuple(f"{head}{column}" for head in "vnc" for column in range(3))
_MATERIALS: dict[str, tuple[Material, list[Item]]] = {}


def _material(job: Job) -> tuple[Material, list[Item]]:
    """Model and items of a job: one of each a process, as all jobs of a grid share them."""
    from triaxial.c2gen.train import material_of
    from triaxial.models.heads import fingerprint_of

    grid = job.grid
    model = fingerprint_of(grid.encoder, job.where, grid.pooling, grid.lora)
    key = digest([file_digest(job.items), list(job.needed), model, job.where.device])
    if key not in _MATERIALS:
        _MATERIALS.clear()
        items = read_items(job.items)
        material = material_of(
            items,
            job.needed,
            grid.encoder,
            job.where,
            pooling=grid.pooling,
            lora=grid.lora,
            token_budget=job.token_budget,
        )
        _MATERIALS[key] = material, items
    return _MATERIALS[key]


def _data_of(fold: Fold, number: int) -> StageData:
    from triaxial.c2gen.train import StageData

    rows = tuple(np.asarray(rows, dtype=np.intp) for rows in fold.stages[: number + 1])
    return StageData(number, fold.stream.phases[: number + 1], rows)


def _rows_of(fold: Fold) -> Iterator[tuple[int, ...]]:
    yield from (*fold.stages, fold.test, fold.probe, fold.unseen)


def _frame(part: str, rows: Sequence[int], found: NDArray[np.float32]) -> pl.DataFrame:
    import polars as pl

    flat = found.reshape(len(rows), -1)
    return pl.DataFrame(
        {
            "row": list(rows),
            "part": [part] * len(rows),
            **{name: flat[:, column] for column, name in enumerate(_SCORES)},
        }
    )


def _save(stage: Stage, name: str, tensors: Mapping[str, Any]) -> None:
    from triaxial.models.tensors import write_tensors

    mend = "the checkpoint is kept: make room and call again"
    write_tensors(_file(stage, name), tensors, mend=mend)


def _file(stage: Stage, name: str) -> Path:
    return stage.path / f"{name}.safetensors"
