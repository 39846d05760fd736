"""Training in stages: shared first stages, exact resumption for every strategy, bad input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from triaxial.c2gen import train
from triaxial.c2gen.compose import Item
from triaxial.c2gen.grid import Grid, TrainOptions
from triaxial.c2gen.items import read_items
from triaxial.c2gen.stages import jobs_of, predictions_of, run_jobs, vectors_of
from triaxial.c2gen.strategies import STRATEGIES
from triaxial.c2gen.streams import Draw
from triaxial.c2gen.units import units_of
from triaxial.errors import InputError, StoreError
from triaxial.execute import Computing
from triaxial.models import resume
from triaxial.store import table_of, write_jsonl

ALL = tuple(STRATEGIES)
TRAIN = TrainOptions(epochs=1, learning_rate=3e-3, batch_size=8, checkpoint_every=2)
DRAW = Draw(per_type=10, test_per_type=20, probe_per_type=2, unseen_per_type=0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, items: list[Item]) -> str:
    path = tmp_path_factory.mktemp("data") / "items.jsonl"
    write_jsonl(path, table_of(items, Item))
    return str(path)


@pytest.fixture
def grid(tiny_encoder: str) -> Grid:
    return Grid(
        tiny_encoder,
        folds=(1,),
        streams=("ver-nat",),
        strategies=("none", "er-res"),
        seeds=(1,),
        draw=DRAW,
        train=TRAIN,
        settings={"memory": 16},
    )


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "_sync", lambda path: None)


def predicted(data: str, grid: Grid, store: Path, **computing: Any) -> pl.DataFrame:
    items = read_items(data)
    units = units_of(items, grid)
    chains = jobs_of(units, data, grid, Computing(store, **computing))
    run_jobs(chains, Computing(store, **computing))
    return predictions_of(chains, units, items)[0]


@pytest.mark.usefixtures("quick_disk")
def test_first_stage_is_trained_once_for_all_strategies(
    data: str, grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[int, str]] = []
    real = train.train_stage

    def spy(material: Any, stage: Any, strategy: Any, *args: Any, **kwargs: Any) -> Any:
        trained.append((stage.number, strategy.name))
        return real(material, stage, strategy, *args, **kwargs)

    monkeypatch.setattr(train, "train_stage", spy)
    grid = replace(grid, strategies=ALL, settings={"memory": 16, "mir_pool": 12, "fisher_items": 4})
    table = predicted(data, grid, tmp_path)
    assert sorted(trained) == sorted([(0, "none"), *((1, name) for name in ALL)])
    # The rows of the shared stage stand under each strategy, and are the same.
    first = table.filter(pl.col("stage") == 1).drop("strategy")
    assert len(first.unique()) * len(ALL) == len(first)
    # Every remedy changes what the second stage ends with.
    last = table.filter(pl.col("stage") == 2)
    finals = {
        name: frame["c0"].to_numpy()
        for (name,), frame in last.group_by("strategy", maintain_order=True)
    }
    assert len({values.tobytes() for values in finals.values()}) == len(ALL)
    # Called again, nothing is trained.
    trained.clear()
    assert predicted(data, grid, tmp_path).equals(table)
    assert trained == []


def test_a_replay_from_the_stream_has_a_first_stage_of_its_own(data: str, grid: Grid) -> None:
    items = read_items(data)
    for scope, stages in (("previous_stage", 3), ("stream", 4)):
        mine = replace(grid, settings={"memory": 16, "memory_scope": scope})
        chains = jobs_of(units_of(items, mine), data, mine, Computing(Path("nowhere")))
        assert len({job.stage.key for chain in chains.values() for job in chain}) == stages


def test_keys_hold_what_decides_and_nothing_else(data: str, grid: Grid) -> None:
    items = read_items(data)

    def keys(changed: Grid, **computing: Any) -> list[str]:
        chains = jobs_of(units_of(items, changed), data, changed, Computing(**computing))
        return [job.stage.key for chain in chains.values() for job in chain]

    base = keys(grid)
    faster = replace(grid, train=replace(TRAIN, checkpoint_every=9))
    assert keys(faster, token_budget=64, workers=2) == base
    for other in (
        replace(grid, train=replace(TRAIN, learning_rate=1e-4)),
        replace(grid, draw=replace(DRAW, seed=2)),
        replace(grid, seeds=(2,)),
        replace(grid, pooling="mean"),
    ):
        assert not set(keys(other)) & set(base)
    # Another memory changes the second stage of the strategy that has one, and no other.
    memory = keys(replace(grid, settings={"memory": 17}))
    assert [a == b for a, b in zip(memory, base, strict=True)] == [True, True, True, False]


def plain(grid: Grid) -> Grid:
    """The same grid without a remedy."""
    return replace(grid, strategies=("none",), settings={})


class Kill(Exception):
    """Stands for whatever ends a process."""


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("name", ALL)
def test_a_killed_stage_ends_like_an_undisturbed_one(
    name: str, data: str, grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # avalanche #1517, #1680. Ten updates in two stages; kills in the first, at its end, and twice
    # in the second, at and between checkpoints.
    settings = {"memory": 16, "mir_pool": 12, "fisher_items": 4, "memory_scope": "stream"}
    own = {f for f in STRATEGIES[name].__dataclass_fields__}
    streams = {"memory_scope"} if name == "er-buff" else set()  # one of them on the stream
    mine = {k: v for k, v in settings.items() if k in own and k not in {"memory_scope"} - streams}
    grid = replace(
        grid,
        strategies=(name,),
        settings=mine,
        train=replace(TRAIN, optimizer_on_stage="keep"),
    )
    whole = predicted(data, grid, tmp_path / "whole")
    real = train.fit
    left = [3, 2, 2, 1]

    def dying(*args: Any, **kwargs: Any) -> Any:
        countdown = left.pop(0) if left else -1

        def after(done: int) -> None:
            nonlocal countdown
            countdown -= 1
            if countdown == 0:
                raise Kill

        return real(*args, **kwargs, after_step=after)

    monkeypatch.setattr(train, "fit", dying)
    for _ in range(4):
        with pytest.raises(Kill):
            predicted(data, grid, tmp_path / "killed")
    assert predicted(data, grid, tmp_path / "killed").equals(whole)
    assert not list(tmp_path.glob("killed/*/checkpoints"))


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_stages import Computing, Grid, Draw, DRAW, TRAIN, predicted
grid = Grid({encoder!r}, folds=(1,), streams=("ver-nat",), strategies=("er-mir",), seeds=(1,),
            draw=DRAW, train=TRAIN, settings={{"memory": 16, "mir_pool": 12}})
predicted({data!r}, grid, Path(sys.argv[1]))
"""


def test_kill_nine(data: str, grid: Grid, tiny_encoder: str, tmp_path: Path) -> None:
    code = SCRIPT.format(tests=str(Path(__file__).parent), encoder=tiny_encoder, data=data)
    killed = tmp_path / "killed"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", code, str(killed)], env=env)
    deadline = time.monotonic() + 120
    while not list(killed.glob("*/checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(killed.glob("*/checkpoints/step-*"))
    mine = replace(grid, strategies=("er-mir",), settings={"memory": 16, "mir_pool": 12})
    table = predicted(data, mine, killed)
    assert table.equals(predicted(data, mine, tmp_path / "whole"))


@pytest.mark.usefixtures("quick_disk")
def test_workers_give_the_same_rows(data: str, grid: Grid, tmp_path: Path) -> None:
    one = predicted(data, grid, tmp_path / "one")
    two = predicted(data, grid, tmp_path / "two", workers=2)
    assert one.equals(two)


@pytest.mark.usefixtures("quick_disk")
def test_progress_counts_the_whole_grid(data: str, grid: Grid, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    predicted(data, grid, tmp_path, progress=lambda *what: told.append(what))
    # 40 items a stage in batches of 8 are 5 steps; three stages.
    assert {total for _, _, total in told} == {15}
    done = [count for _, count, _ in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 15)


@pytest.mark.usefixtures("quick_disk")
def test_a_first_stage_without_its_weights_is_trained_again(
    data: str, grid: Grid, tmp_path: Path
) -> None:
    table = predicted(data, plain(grid), tmp_path)
    for weights in tmp_path.glob("*/weights.safetensors"):
        weights.unlink()
    again = predicted(data, grid, tmp_path)
    assert again.filter(pl.col("strategy") == "none").equals(table)


@pytest.mark.usefixtures("quick_disk")
def test_the_last_stage_of_one_stream_may_be_in_the_middle_of_another(
    data: str, grid: Grid, tmp_path: Path
) -> None:
    both = replace(plain(grid), streams=("ver-nat", "ver-nat/easy-hard"))
    table = predicted(data, both, tmp_path)
    # After the two stages f_vn, f_ve and f_vc; the shared ones are the same rows.
    stages = dict(table.group_by("stream").agg(pl.col("stage").max()).iter_rows())
    assert stages == {"ver-nat": 2, "ver-nat/easy-hard": 5}
    assert predicted(data, replace(both, streams=("ver-nat/easy-hard",)), tmp_path).equals(
        table.filter(pl.col("stream") == "ver-nat/easy-hard")
    )
    # Alone first, its weights are not kept: they are made again where they are needed.
    alone = predicted(data, plain(grid), tmp_path / "alone")
    assert predicted(data, both, tmp_path / "alone").equals(table)
    assert alone.equals(table.filter(pl.col("stream") == "ver-nat"))


@pytest.mark.usefixtures("quick_disk")
def test_damaged_weights_are_named(data: str, grid: Grid, tmp_path: Path) -> None:
    predicted(data, plain(grid), tmp_path)
    (weights,) = tmp_path.glob("*/weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(StoreError, match=r"weights.safetensors: cannot be read .*remove its dir"):
        predicted(data, grid, tmp_path)


@pytest.mark.usefixtures("quick_disk")
def test_vectors_are_kept_when_asked_for(data: str, grid: Grid, tmp_path: Path) -> None:
    items = read_items(data)
    for count in (0, 5):
        mine = replace(plain(grid), vectors=count)
        units = units_of(items, mine)
        chains = jobs_of(units, data, mine, Computing(tmp_path))
        run_jobs(chains, Computing(tmp_path))
        job = chains[0][-1]
        if not count:
            with pytest.raises(StoreError, match="holds no vectors; run again with --vectors 200"):
                vectors_of(job)
        else:
            table = vectors_of(job)
            assert (len(table), len(table["vector"][0])) == (5, 16)


@pytest.mark.usefixtures("quick_disk")
def test_the_table_knows_items_and_stages(
    data: str, grid: Grid, tmp_path: Path, items: list[Item]
) -> None:
    table = predicted(data, plain(grid), tmp_path)
    by_id = {item.id: item for item in items}
    for row in table.iter_rows(named=True):
        item = by_id[row["item"]]
        assert (row["type"], row["verb"]) == (item.type, item.verb)
        assert ["entailment", "neutral", "contradiction"][row["gold"]] == item.label
        for head in "vnc":
            assert sum(np.exp(row[f"{head}{n}"]) for n in range(3)) == pytest.approx(1, abs=1e-5)
    # Test type 1; the ver stage has 2, 5, 3, 9, the nat stage 4, 6, 7, 8.
    learned = dict(table.select("type", "learned").unique().iter_rows())
    assert learned == {1: 0, 2: 1, 5: 1, 3: 1, 9: 1, 4: 2, 6: 2, 7: 2, 8: 2}
    assert set(table.filter(pl.col("part") == "test")["type"]) == {1}


def test_steps_do_not_depend_on_the_memory(data: str, grid: Grid) -> None:
    items = read_items(data)
    steps = set()  # avalanche #1274
    for memory in (8, 40):
        mine = replace(grid, strategies=("er-res",), settings={"memory": memory})
        chains = jobs_of(units_of(items, mine), data, mine, Computing(Path("nowhere")))
        steps.add(tuple(job.steps for job in chains[0]))
    assert steps == {(5, 5)}
    two = replace(grid, strategies=("er-res",), settings={"memory": 8, "replay_mode": "two_step"})
    chains = jobs_of(units_of(items, two), data, two, Computing(Path("nowhere")))
    assert [job.steps for job in chains[0]] == [5, 10]


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("supervision", ["both", "stage"])
def test_a_stage_teaches_its_own_primitive_alone_when_asked(
    supervision: str, data: str, grid: Grid, tmp_path: Path
) -> None:
    # Heads that get no gradient keep their weights: N in the ver stage.
    grid = replace(
        plain(grid),
        train=replace(TRAIN, primitive_supervision=supervision),  # type: ignore[arg-type]
    )
    items = read_items(data)
    chains = jobs_of(units_of(items, grid), data, grid, Computing(tmp_path))
    run_jobs(chains, Computing(tmp_path))
    weights = train.load_tensors(chains[0][0].stage.path / "weights.safetensors")
    from triaxial.c2gen.stages import _material

    material, _ = _material(chains[0][0])
    material.learner.restart(1)
    start = material.learner.weights()
    moved = [
        not np.array_equal(weights[f"heads.{h}.4.weight"], start[f"heads.{h}.4.weight"])
        for h in range(3)
    ]
    assert moved == [True, supervision == "both", True]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"settings": {"memory": 41}}, "memory of 41 rows is larger than stage 'ver' with 40"),
        ({"train": replace(TRAIN, batch_size=41)}, "stage 'ver': has 40 items, fewer than a batch"),
        ({"strategies": ("erres",)}, "'erres' is no strategy; choose from none, er-res"),
        ({"streams": ("nat",)}, "no stream 'nat'"),
        ({"folds": (12,)}, "12"),
        ({"folds": ()}, "--folds: nothing is chosen"),
        ({"settings": {"kd_weight": 2.0}}, "kd_weight: no chosen strategy (none, er-res) has it"),
        ({"encoder": "/nowhere"}, "/nowhere: no such model directory"),
    ],
)
def test_bad_grids_are_refused_before_any_training(
    changes: dict[str, Any], wanted: str, data: str, grid: Grid, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        predicted(data, replace(grid, **changes), tmp_path)
    assert wanted in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_training_that_diverges_is_told_and_loses_nothing(
    data: str, grid: Grid, tmp_path: Path
) -> None:
    kept = predicted(data, plain(grid), tmp_path)
    wild = replace(plain(grid), train=replace(TRAIN, learning_rate=1e30, clip_norm=None))
    with pytest.raises(InputError, match=r"is not finite .* at step .*; lower the learning rate"):
        predicted(data, wild, tmp_path)
    assert predicted(data, plain(grid), tmp_path).equals(kept)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"primitive_supervision": "none"}, "primitive_supervision: is 'none'"),
        ({"optimizer_on_stage": "drop"}, "optimizer_on_stage: is 'drop'"),
        ({"batch_size": 0}, "batch_size: is 0"),
        ({"epochs": 0}, "epochs: is 0"),
        ({"schedule": "step"}, "schedule: is 'step'"),
    ],
)
def test_wrong_training_options(options: dict[str, Any], wanted: str) -> None:
    with pytest.raises(InputError) as error:
        TrainOptions(**options)
    assert wanted in str(error.value)


@pytest.mark.usefixtures("quick_disk")
def test_replay_beats_none_on_a_toy_stream(data: str, grid: Grid, tmp_path: Path) -> None:
    # avalanche #574. Two stages of one verb signature and natural label each: what the first one
    # taught is unlearned in the second without replay.
    stream = tmp_path / "toy.toml"
    stream.write_text(
        """
name = "toy"
[[stages]]
name = "first"
types = [1]
[[stages]]
name = "second"
types = [8]
""",
        encoding="utf-8",
    )
    grid = replace(
        grid,
        streams=(str(stream),),
        draw=replace(DRAW, per_type=20, probe_per_type=4),
        train=TrainOptions(epochs=8, learning_rate=5e-3, batch_size=4),
    )
    table = predicted(data, grid, tmp_path).filter(
        (pl.col("stage") == 2) & (pl.col("part") == "probe") & (pl.col("learned") == 1)
    )
    right = {
        strategy: np.mean([np.argmax([r["c0"], r["c1"], r["c2"]]) == r["gold"] for r in rows])
        for strategy, rows in (
            (name, list(frame.iter_rows(named=True)))
            for (name,), frame in table.group_by("strategy")
        )
    }
    assert right["er-res"] >= right["none"] + 0.5, right


@pytest.mark.usefixtures("quick_disk")
def test_the_strategy_of_the_guide_works(
    data: str, grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = Path(__file__).parents[2] / "docs" / "strategies.md"
    code = guide.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    module = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)  # dataclasses look their module up
    exec(compile(code, str(guide), "exec"), module.__dict__)
    monkeypatch.setitem(STRATEGIES, "lwf", module.Lwf)  # type: ignore[arg-type]
    away = []
    for weight in (1e-6, 30.0):
        lwf = replace(grid, strategies=("none", "lwf"), settings={"lwf_weight": weight})
        table = predicted(data, lwf, tmp_path).filter(pl.col("strategy") == "lwf")
        first, last = (
            table.filter(pl.col("stage") == stage).sort("item")["c0"].to_numpy() for stage in (1, 2)
        )
        away.append(np.abs(first - last).mean())
    assert away[1] < away[0]
