"""Shards on a Ray cluster of this machine: the same rows, whoever is killed, and nothing left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from triaxial import execute_ray
from triaxial.api import temporal_ingest
from triaxial.api.merge import GenerateOptions, generate, with_options
from triaxial.api.merge_predict import EvaluateOptions, evaluate
from triaxial.api.system import entries
from triaxial.api.temporal import fit
from triaxial.api.temporal_adapt import AdaptRequest, adapt
from triaxial.api.temporal_corpus import plant_corpus, split_corpus
from triaxial.api.temporal_evaluate import evaluate as score_all
from triaxial.api.temporal_ingest import ingest
from triaxial.c2gen import stages
from triaxial.c2gen.compose import Item
from triaxial.c2gen.grid import Grid, TrainOptions
from triaxial.c2gen.items import read_items
from triaxial.c2gen.stages import jobs_of, predictions_of, run_jobs
from triaxial.c2gen.streams import Draw
from triaxial.c2gen.units import units_of
from triaxial.errors import InputError, TriaxialError
from triaxial.execute import Computing, run
from triaxial.merge import stages as merge_stages
from triaxial.merge.score import DrawOptions
from triaxial.merge.variants import PRESETS
from triaxial.models import resume
from triaxial.models.fit import FitOptions
from triaxial.models.tiny import tiny_classifier, tiny_masked
from triaxial.models.xl_config import XLConfig
from triaxial.nli import Pair, read_pairs
from triaxial.store import read_json, table_of, write_jsonl
from triaxial.temporal.corpus import CorpusOptions
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.splits import SplitOptions
from triaxial.temporal.train import TrainOptions as LanguageModel
from triaxial.temporal.vocabulary import VocabularyOptions
from triaxial.worlds import compositions, world

if find_spec("ray") is None:  # not imported here: what it reads from its environment is ours
    pytest.skip('needs Ray: pip install "triaxial[ray]"', allow_module_level=True)
# Raised inside Ray, when it makes its own options.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")
TESTS = Path(__file__).parent

# Workers import their functions by name, so the functions stand in a module of their own.
WORK = """
import os, time
from pathlib import Path
from triaxial.errors import InputError

def square(n):
    time.sleep(0.05 * (n == 0))
    return n * n

def fail(n):
    if n == 1:
        raise InputError("bad unit", where=f"shard {n}")
    return n

def fault(n):
    raise KeyError("a fault of ours")

def die(n):
    os._exit(9)

def once(mark):
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), 9)
    return os.getcwd()
"""

# Stands in for the work of c2gen: the first worker with a second stage dies in its middle.
KILLED = """
import os, threading, time
from triaxial.c2gen.stages import train_job

def killed_once(job):
    mark = job.stage.path.parent / "killed"
    if job.number == 1 and not mark.exists():
        mark.touch()
        threading.Thread(target=die, args=(job,), daemon=True).start()
    train_job(job)

def die(job):
    while not list(job.stage.path.glob("checkpoints/step-*")):
        time.sleep(0.002)
    os.kill(os.getpid(), 9)
"""

DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_execute_ray import grid_of, predicted
predicted({data!r}, grid_of({encoder!r}), Path(sys.argv[1]), ray="local", workers=2)
"""

LOCAL: dict[str, Any] = {"ray": "local", "workers": 2}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The functions of WORK, and a cluster that can import them; it ends with the module."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "ray_work.py").write_text(WORK)
    (folder / "ray_killed.py").write_text(KILLED)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        import ray_work  # type: ignore[import-not-found]

        yield ray_work
        execute_ray.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "items.jsonl"
    write_jsonl(path, table_of(compositions(*WORLD), Item))
    return str(path)


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    texts = [t for one in compositions(*WORLD) for t in (one.sent1, one.mid_sent, one.sent2)]
    words = [word for text in texts for word in text.split()]
    return grid_of(str(tiny_masked(tmp_path_factory.mktemp("encoder"), words, hidden=16)))


WORLD = (
    ("dog", "cat", "man", "woman", "boy", "girl"),
    ("run", "sleep", "sing", "swim", "eat", "jump"),
)


def grid_of(encoder: str) -> Grid:
    """Twelve stages: for two seeds a first one that all share and five second ones."""
    return Grid(
        encoder,
        folds=(1,),
        streams=("ver-nat",),
        strategies=("none", "er-res", "er-buff", "agem", "kd"),
        seeds=(1, 2),
        draw=Draw(per_type=10, test_per_type=20, probe_per_type=2, unseen_per_type=0),
        train=TrainOptions(epochs=1, learning_rate=3e-3, batch_size=8, checkpoint_every=4),
        settings={"memory": 16},
    )


def predicted(data: str, grid: Grid, store: Path, **computing: Any) -> pl.DataFrame:
    items = read_items(data)
    units = units_of(items, grid)
    chains = jobs_of(units, data, grid, Computing(store, **computing))
    run_jobs(chains, Computing(store, **computing))
    return predictions_of(chains, units, items)[0]


def parts(store: Path) -> dict[str, bytes]:
    """The bytes of every part of every stage."""
    found = sorted(store.glob("*/part-*.parquet"))
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def whole(data: str, grid: Grid, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The grid in this process: the parts that every other way has to give."""
    store = tmp_path_factory.mktemp("whole")
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "_sync", lambda path: None)
        predicted(data, grid, store)
    found = parts(store)
    assert len(found) == 12
    return found


@pytest.mark.parametrize("large", [False, True])
def test_results_come_in_order(work: Any, large: bool) -> None:
    seen: list[tuple[int, int]] = []
    got = run(work.square, range(7), large=large, progress=lambda *now: seen.append(now), **LOCAL)
    assert list(got) == [(n, n * n) for n in range(7)]
    assert seen == [(n, 7) for n in range(1, 8)]
    assert list(run(work.square, [], large=large, **LOCAL)) == []


@pytest.mark.parametrize("large", [False, True])
def test_an_error_comes_as_itself_in_one_line(
    work: Any, large: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    results = run(work.fail, range(5), large=large, **LOCAL)
    assert next(results) == (0, 0)
    with pytest.raises(InputError, match=r"^shard 1: bad unit$") as caught:
        next(results)
    assert caught.value.where == "shard 1"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("large", [False, True])
def test_a_fault_of_ours_keeps_its_kind(work: Any, large: bool) -> None:
    with pytest.raises(Exception, match="KeyError: 'a fault of ours'") as caught:
        list(run(work.fault, [1], large=large, **LOCAL))
    assert not isinstance(caught.value, TriaxialError)


@pytest.mark.parametrize("large", [False, True])
def test_a_killed_worker_is_replaced_and_works_where_the_caller_is(
    work: Any, large: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mark = str(tmp_path / "mark")
    assert list(run(work.once, [mark], large=large, **LOCAL)) == [(0, os.getcwd())]
    assert Path(mark).exists()
    assert capfd.readouterr() == ("", "")


def test_a_shard_that_kills_every_worker_is_told(work: Any) -> None:
    with pytest.raises(TriaxialError, match=r"ended its workers 4 times, .* with fewer workers"):
        list(run(work.die, [1], **LOCAL))


def test_a_directory_that_a_worker_does_not_see(tmp_path: Path) -> None:
    found = execute_ray._outcome(b"", b"", execute_ray._Place(str(tmp_path / "no"), ()))
    assert "call from a directory that all nodes share" in str(found.error)


def test_twelve_stages_give_the_same_bytes(
    work: Any, data: str, grid: Grid, whole: dict[str, bytes], tmp_path: Path
) -> None:
    predicted(data, grid, tmp_path, **LOCAL)
    assert parts(tmp_path) == whole


def test_twelve_stages_of_which_a_worker_was_killed(
    work: Any,
    data: str,
    grid: Grid,
    whole: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray_killed  # type: ignore[import-not-found]

    monkeypatch.setattr(stages, "train_job", ray_killed.killed_once)
    predicted(data, grid, tmp_path, **LOCAL)
    assert (tmp_path / "killed").exists()
    assert parts(tmp_path) == whole


def test_twelve_stages_of_which_the_driver_was_killed(
    work: Any, data: str, grid: Grid, whole: dict[str, bytes], tmp_path: Path
) -> None:
    code = DRIVER.format(tests=str(TESTS), data=data, encoder=grid.encoder)
    store = tmp_path / "store"
    command, env = [sys.executable, "-c", code, str(store)], {**os.environ, "TMPDIR": "/tmp"}
    with subprocess.Popen(command, env=env) as driver:
        try:
            wait_for(lambda: len(list(store.glob("*/manifest.json"))) >= 3)
            # But for two helpers, for which Ray takes a minute.
            family = [pid for pid in descendants(driver.pid) if "Agent" not in command_of(pid)]
        finally:
            driver.send_signal(signal.SIGKILL)
    assert family
    wait_for(lambda: not any(map(alive, family)))
    # Nobody lived to remove it.
    for session in Path("/tmp").glob(f"triax-ray-*/r/session_*_{driver.pid}"):
        shutil.rmtree(session.parents[1], ignore_errors=True)
    (state,) = (one for one in entries(store) if one.kind == "c2gen.grid")
    assert (state.complete, state.done, state.planned) == (False, len(parts(store)), 12)
    assert 3 <= len(parts(store)) < 12
    predicted(data, grid, store, **LOCAL)
    assert parts(store) == whole
    assert all(one.complete for one in entries(store))


def test_ingestion_gives_the_same_corpus(
    work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, _ = plant(PlantOptions(documents=400, months=6))
    rows = [asdict(one) for one in documents]
    rows += [row | {"id": f"again-{row['id']}"} for row in rows[:20]]  # near-duplicates
    rows += rows[100:103]  # ids that stand twice, in another shard
    source = tmp_path / "news.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    monkeypatch.setattr(temporal_ingest, "SHARD_BYTES", 40_000)
    reading = temporal_ingest.ReadOptions(CorpusOptions(on_bad="drop"), None)
    made = {}
    for name, given in (("one", {}), ("ray", LOCAL)):
        store, out = tmp_path / f"{name}-store", tmp_path / name
        facts = ingest([str(source)], out, reading, computing=Computing(store, **given))
        assert facts["dropped"] == {"duplicate id": 3, "near-duplicate": 20}
        manifest = read_json(out / "manifest.json")
        del manifest["created"]
        files = {one.name: one.read_bytes() for one in out.iterdir() if one.suffix != ".json"}
        made[name] = (manifest, files, (out / "card.json").read_bytes(), parts(store))
    assert len(made["one"][3]) > 4
    assert made["ray"] == made["one"]


def test_variants_and_predictions_are_the_same(
    work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world(3, sentences=30, training=30, seeds=24)
    masked = (
        tiny_masked(tmp_path / "a", made.words, seed=1),
        tiny_masked(tmp_path / "b", made.words),
    )
    models = (
        tiny_classifier(tmp_path / "x", made.words, seed=1),
        tiny_classifier(tmp_path / "y", made.words),
    )
    write_jsonl(tmp_path / "pairs.jsonl", table_of(made.seeds, Pair))
    monkeypatch.setattr(merge_stages, "SEEDS_A_SHARD", 8)
    monkeypatch.setattr(merge_stages, "_SENTENCES_A_SHARD", 16)
    reading = read_pairs(str(tmp_path / "pairs.jsonl"))
    preset = with_options(PRESETS["faithful"], k=50)
    generating = GenerateOptions(tuple(map(str, masked)), preset=preset)
    evaluating = EvaluateOptions(tuple(map(str, models)), draw=DrawOptions(2))
    got = []
    for name, given in (("one", {}), ("ray", LOCAL)):
        settings = Computing(tmp_path / f"{name}-store", **given)
        variants = generate(reading, generating, settings)
        predictions, facts = evaluate(variants, evaluating, settings)
        works = [*variants.work["masked_lm"].values(), *facts["work"]["models"].values()]
        got.append((parts(Path(settings.store)), predictions, [one["rows"] for one in works]))
    one, ray = got
    kinds = {name.rpartition("-")[0] for name in (path.split("/")[0] for path in one[0])}
    assert kinds == {"merge.sentences", "merge.variants", "merge.funnel"}
    assert len(one[0]) > 8
    assert ray[0] == one[0]
    assert ray[1].equals(one[1])
    assert ray[2] == one[2]
    assert min(one[2]) > 0


def test_months_and_parameter_sets_are_the_same(work: Any, tmp_path: Path) -> None:
    corpus, split, model = (tmp_path / name for name in ("corpus", "split", "model"))
    one, ray = Computing(tmp_path / "one", "cpu"), Computing(tmp_path / "ray", "cpu", **LOCAL)
    shape = XLConfig(9, d_model=16, heads=2, layers=1, d_inner=32, segment=16)
    training = LanguageModel(shape, rows=4, validation=0, fit=FitOptions(max_steps=1))
    asked = PlantOptions(documents=240, first="2016-01", months=12, sentences=3, new_words=4)
    plant_corpus(tmp_path / "planted.jsonl", asked)
    ingest([str(tmp_path / "planted.jsonl")], corpus, computing=one)
    split_corpus(corpus, split, SplitOptions("2016-10", "2016-12", 5, gap=2, valid_months=2))
    pieces = VocabularyOptions(size=512)
    fit(corpus, split, model, "time-stratified", training, pieces, one, precision="fp32")
    request = AdaptRequest(("all", "biases"), learning_rate=0.01)
    for name, computing in (("one", one), ("ray", ray)):
        score_all(str(model), corpus, tmp_path / f"{name}-out", split, computing=computing)
        adapt(str(model), corpus, tmp_path / f"{name}-sets", split, request, computing=computing)
    for left in sorted(tmp_path.glob("one-*/**/*.parquet")):
        other = str(left).replace("/one-", "/ray-")
        assert left.read_bytes() == Path(other).read_bytes()
    assert len(list(tmp_path.glob("ray-*/**/*.parquet"))) == 6
    assert not list(tmp_path.glob("ray/temporal.months-*"))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nowhere", "--ray: 'nowhere' is neither local nor a cluster; write local, auto or HOST"),
        ("127.0.0.1:9", r"--ray: no Ray cluster answers at 127.0.0.1:9 \(.*; start one with"),
    ],
)
def test_no_cluster(address: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        list(run(abs, [1], ray=address))


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r'Ray is not installed; pip install "triaxial\[ray\]"'):
        list(run(abs, [1], ray="auto"))


def test_nothing_is_left(work: Any) -> None:
    before = set(Path.home().iterdir())
    assert list(run(work.square, [2], ray="local", workers=1)) == [(0, 4)]  # another cluster
    (cluster,) = execute_ray._running
    assert cluster.folder is not None
    assert cluster.folder.stat().st_mode & 0o777 == 0o700
    family = [pid for pid in descendants(os.getpid()) if "ray" in command_of(pid)]
    assert len(family) > 4
    execute_ray.stop()
    wait_for(lambda: not any(map(alive, family)))
    assert not cluster.folder.exists()
    assert set(Path.home().iterdir()) == before
    assert not [name for name in os.environ if name.startswith("RAY_")]


def wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < until, "it did not happen in five minutes"
        time.sleep(0.01)


def descendants(pid: int) -> list[int]:
    """All processes under one, except those that have ended."""
    parent_of = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent_of[int(path.name)] = int(stat_of(int(path.name))[1])
        except OSError:
            continue
    found, new = [], {pid}
    while new:
        new = {child for child, parent in parent_of.items() if parent in new}
        found += [child for child in sorted(new) if alive(child)]
    return found


def alive(pid: int) -> bool:
    try:
        return stat_of(pid)[0] != "Z"
    except OSError:
        return False


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def stat_of(pid: int) -> list[str]:
    """State, parent, and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
