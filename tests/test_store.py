"""The store: keys, whole files, resumes, caches with several writers, claimed directories."""

from __future__ import annotations

import enum
import errno
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Literal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial import execute, files, store
from triaxial.errors import InputError, StoreError
from triaxial.store import (
    Store,
    claim_directory,
    digest,
    file_digest,
    finish_directory,
    read_jsonl,
    read_table,
    records_of,
    run_shards,
    table_of,
    write_bytes_atomic,
    write_json,
    write_jsonl,
    write_table,
)

SRC = Path(store.__file__).parents[1]
GOLDEN = "e90d96ac1b797325f0d2572271474c20"  # a change makes every store stale
FRAME = pl.DataFrame({"id": ["a", "é"], "n": [1, 2]})


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Everything:
    id: str
    colour: Colour
    share: float
    flag: bool | None
    span: tuple[int, int]
    words: tuple[str, ...]
    spans: list[Span]
    best: Span | None
    scores: dict[str, float]
    when: date
    raw: bytes
    side: Literal["p", "h"] = "p"
    colours: tuple[Colour, ...] = ()


ROWS = [
    Everything("1", Colour.RED, 0.5, True, (1, 2), ("a", "b"), [Span(0, 1)], Span(3, 4), {"m": 1.5},
               date(2020, 1, 2), b"\xff\x00", "h", (Colour.BLUE,)),
    Everything("2", Colour.BLUE, float("inf"), None, (0, 0), (), [], None, {}, date(1999, 1, 1),
               b""),
]  # fmt: skip


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*.tmp")]


# Digests


def test_digest_is_golden_and_sees_values_only() -> None:
    assert digest({"b": [1, 2.0, None], "a": "é"}) == GOLDEN
    assert digest({"a": "é", "b": (1, 2.0, None)}) == GOLDEN
    assert digest(Span(1, 2)) == digest({"end": 2, "start": 1})
    assert digest([Colour.RED]) == digest(["red"])
    assert len({digest(value) for value in (1, 1.0, True, "1", [1], None, {"1": 1})}) == 7


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.booleans(), max_size=5))
@settings(max_examples=30)
def test_digest_does_not_see_the_order_of_names(value: dict[str, object]) -> None:
    assert digest(value) == digest(dict(reversed(value.items())))


def test_what_a_digest_refuses() -> None:
    with pytest.raises(InputError, match="a value is nan; wanted a finite number"):
        digest({"alpha": [float("nan")]})
    with pytest.raises(InputError, match="a value is inf"):
        digest(float("inf"))
    with pytest.raises(TypeError, match="PosixPath cannot be part of a digest"):
        digest([Path("x")])
    with pytest.raises(TypeError, match="set cannot be part of a digest"):
        digest({"x": {1}})
    with pytest.raises(TypeError, match="not all str"):
        digest({1: 2})


def test_file_digest(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")  # the standard's own example
    assert file_digest(tmp_path / "f").startswith("ba7816bf8f01cfea414140de5dae2223")
    with pytest.raises(StoreError, match=r"g: is not there; check the name"):
        file_digest(tmp_path / "g")


# Whole files


def test_atomic_write_replaces_and_survives_short_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: whole(handle, bytes(data)[:2]))
    for data in (b"older", b"newer text", b""):
        write_bytes_atomic(tmp_path / "new" / "f", data)
        assert (tmp_path / "new" / "f").read_bytes() == data
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize(
    ("failure", "seen", "text"),
    [
        (
            OSError(errno.ENOSPC, "full"),
            StoreError,
            "no space left here; committed shards are kept",
        ),
        (
            OSError(errno.EROFS, "Read-only file system"),
            StoreError,
            "no permission .Read-only file",
        ),
        (PermissionError(errno.EACCES, "denied"), StoreError, "no permission .denied.; mend it"),
        (OSError(errno.EIO, "bad disk"), StoreError, "bad disk; mend that"),
        (KeyboardInterrupt(), KeyboardInterrupt, ""),
    ],
)
def test_nothing_half_written_stays(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    failure: BaseException,
    seen: type[BaseException],
    text: str,
) -> None:
    write_bytes_atomic(tmp_path / "f", b"older")

    def fail(*_: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(seen, match=text or None):
            write_bytes_atomic(tmp_path / "f", b"newer")
    assert (tmp_path / "f").read_bytes() == b"older"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(StoreError, match="mend that or choose another directory"):
        write_json(tmp_path / "f" / "g", {})


# Tables and records


def test_records_go_through_parquet(tmp_path: Path) -> None:
    for rows in (ROWS, []):
        write_table(tmp_path / "t.parquet", table_of(rows, Everything))
        assert records_of(read_table(tmp_path / "t.parquet"), Everything) == rows
    assert table_of(iter(ROWS), Everything).schema == table_of([], Everything).schema
    assert table_of([], Everything).schema["span"] == pl.Array(pl.Int64, 2)


def test_what_tables_refuse() -> None:
    @dataclass
    class Odd:
        path: Path = field(default_factory=Path)

    with pytest.raises(TypeError, match="has no column type"):
        table_of([], Odd)
    with pytest.raises(TypeError, match="int is not a dataclass"):
        table_of([], int)
    with pytest.raises(TypeError, match="Int64"):
        table_of([Span("x", 1)], Span)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Span.end is None in record 1"):
        table_of([Span(1, 2), Span(1, None)], Span)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="columns id, n does not hold Span records, wanted start"):
        records_of(FRAME, Span)


def test_equal_rows_are_equal_bytes(tmp_path: Path) -> None:
    many = pl.DataFrame({"x": range(70_000), "s": [str(i) for i in range(70_000)]})
    write_table(tmp_path / "a", many)
    write_table(tmp_path / "b", pl.concat([many[:9], many[9:500], many[500:]], rechunk=False))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_path_is_no_pattern(tmp_path: Path) -> None:
    path = tmp_path / "run [1]*" / "k=2" / "t.parquet"
    write_table(path, FRAME)
    assert read_table(path).equals(FRAME)
    assert read_table(path, columns=["n"]).columns == ["n"]


def test_a_cut_table(tmp_path: Path) -> None:
    write_table(tmp_path / "t", FRAME)
    whole = (tmp_path / "t").read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        (tmp_path / "t").write_bytes(whole[:size])
        with pytest.raises(StoreError, match=r"t: is not readable as Parquet .*; remove it"):
            read_table(tmp_path / "t")


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    frame = table_of(ROWS[:1], Everything).drop("raw").with_columns(text=pl.lit('a\n"\u2028'))
    write_jsonl(path, frame)
    assert path.read_bytes().count(b"\n") == 1
    assert json.loads(path.read_text("utf-8"))["when"] == "2020-01-02"
    write_jsonl(path, FRAME)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n\n"))
    assert read_jsonl(path).equals(FRAME)
    path.write_bytes(b"")
    assert read_jsonl(path, FRAME.schema).schema == FRAME.schema
    dated = pl.DataFrame({"d": [date(2020, 1, 2), None]})
    write_jsonl(path, dated)
    assert read_jsonl(path, dated.schema).equals(dated)
    late = pl.DataFrame({"a": [None] * 200 + [1.5]})  # the type is seen in the last row only
    write_jsonl(path, late)
    assert read_jsonl(path).equals(late)


def test_what_jsonl_refuses(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with pytest.raises(StoreError, match=r"row 2 has no JSON form .*; write Parquet instead"):
        write_jsonl(path, pl.DataFrame({"x": [1.0, float("nan")]}))
    with pytest.raises(StoreError, match=r"row 1 has no JSON form .bytes"):
        write_jsonl(path, pl.DataFrame({"x": [b"a"]}))
    assert not path.exists()
    for line in (b'{"a": ', b"[1]", b"\xff"):
        path.write_bytes(b'{"a": 1}\n\n' + line + b"\n")
        with pytest.raises(InputError, match=r"t.jsonl:3: is not a JSON object .*; mend the line"):
            read_jsonl(path)
    path.write_text('{"a": 1}\n{"a": "x"}\n')
    with pytest.raises(InputError, match=r"t.jsonl: column 'a' holds values of another type"):
        read_jsonl(path)


# Stages


def rows_of(shard: int) -> pl.DataFrame:
    rows = {"shard": [shard] * shard, "x": [i / 7 for i in range(shard)]}
    return pl.DataFrame(rows, {"shard": pl.Int64(), "x": pl.Float64()})


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("part-*")}


def test_the_key_is_name_version_parameters_and_inputs(tmp_path: Path) -> None:
    kept = Store(tmp_path)
    base = kept.stage("merge.score", 1, {"k": 200, "pos": ("NOUN",)}, ["a"])
    assert base.path == tmp_path / f"merge.score-{base.key[:16]}"
    assert base.key == kept.stage("merge.score", 1, {"pos": ["NOUN"], "k": 200}, ("a",)).key
    others = [
        kept.stage("merge.scores", 1, {"k": 200, "pos": ["NOUN"]}, ["a"]),
        kept.stage("merge.score", 2, {"k": 200, "pos": ["NOUN"]}, ["a"]),
        kept.stage("merge.score", 1, {"k": 201, "pos": ["NOUN"]}, ["a"]),
        kept.stage("merge.score", 1, {"k": 200, "pos": ["NOUN"]}, ["b"]),
    ]
    assert len({stage.key for stage in [base, *others]}) == 5
    with pytest.raises(ValueError, match=r"'../x' is not a stage name"):
        kept.stage("../x", 1, {})


def test_rows_come_back_in_shard_order_with_a_manifest(tmp_path: Path) -> None:
    stage = Store(tmp_path).stage("s", 3, {"a": 1}, ["in"])
    seen: list[tuple[int, int]] = []
    got = run_shards(
        stage, 4, rows_of, lambda *now: seen.append(now), facts={"funnel": {"kept": 6}}
    )
    assert got.equals(pl.concat(map(rows_of, range(4))))
    assert seen == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    about = stage.manifest
    assert (about["rows"], about["shards"], about["params"], about["inputs"]) == (
        6,
        4,
        {"a": 1},
        ["in"],
    )
    assert about["facts"] == {"funnel": {"kept": 6}}
    assert about["parts"]["part-00002.parquet"]["sha256"] == file_digest(
        stage.path / "part-00002.parquet"
    )
    assert "polars" in about["versions"]

    def never(_: int) -> pl.DataFrame:
        raise AssertionError("a complete stage is not run again")

    assert run_shards(stage, 4, never).equals(got)


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5), data=st.data())
@settings(max_examples=8, deadline=None)
def test_a_resume_gives_the_same_as_no_interruption(sizes: list[int], data: st.DataObject) -> None:
    units = [list(range(size)) for size in sizes]
    stops = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=3))

    def work(shard: int) -> pl.DataFrame:
        return rows_of(len(units[shard])).with_columns(at=pl.lit(shard))

    with tempfile.TemporaryDirectory() as name:
        whole = Store(Path(name) / "whole").stage("s", 1, {})
        cut = Store(Path(name) / "cut").stage("s", 1, {})
        wanted = run_shards(whole, units, work)
        for stop in stops:

            def stopping(shard: int, stop: int = stop) -> pl.DataFrame:
                if shard == stop:
                    raise KeyboardInterrupt
                return work(shard)

            if not cut.has(stop):
                with pytest.raises(KeyboardInterrupt):
                    run_shards(cut, units, stopping)
                assert not cut.complete
        assert run_shards(cut, units, work).equals(wanted)
        assert tree(cut.path) == tree(whole.path)


def test_kill_leaves_whole_shards_only(tmp_path: Path) -> None:
    """Kill -9 while shard 2 is being written: 0 and 1 stay, the rest is computed again."""
    code = (
        "import os, sys, polars as pl\nfrom triaxial import store\n"
        "made = []\ndef work(shard):\n    made.append(shard)\n"
        "    return pl.DataFrame({'shard': [shard] * 9})\n"
        "real = os.fsync\n"
        "def fsync(handle):\n    real(handle)\n"
        "    if made == [0, 1, 2]: print('now', flush=True); import time; time.sleep(60)\n"
        "os.fsync = fsync\n"
        f"store.run_shards(store.Store({str(tmp_path)!r}).stage('s', 1, {{}}), 4, work)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    child = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"now\n"
        child.send_signal(signal.SIGKILL)
    stage = Store(tmp_path).stage("s", 1, {})
    assert [stage.has(shard) for shard in range(4)] == [True, True, False, False]
    assert len(leftovers(tmp_path)) == 1
    old = time.time() - 2 * store.STALE_SECONDS
    os.utime(stage.path / leftovers(tmp_path)[0], (old, old))
    made: list[int] = []

    def work(shard: int) -> pl.DataFrame:
        made.append(shard)
        return pl.DataFrame({"shard": [shard] * 9})

    assert run_shards(stage, 4, work)["shard"].to_list() == [0] * 9 + [1] * 9 + [2] * 9 + [3] * 9
    assert made == [2, 3]
    assert leftovers(tmp_path) == []


def test_a_full_disk_keeps_what_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Store(tmp_path).stage("s", 1, {})
    calls, whole = [], os.write

    def fill(handle: int, data: bytes) -> int:
        calls.append(1)
        if len(calls) > 3:  # the plan and two shards
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill)
        with pytest.raises(StoreError, match=r"part-00002.parquet: no space left here"):
            run_shards(stage, 4, rows_of)
    assert sorted(tree(stage.path)) == ["part-00000.parquet", "part-00001.parquet"]
    assert leftovers(tmp_path) == []
    assert run_shards(stage, 4, rows_of)["shard"].to_list() == [1, 2, 2, 3, 3, 3]


def test_shards_run_through_a_pool(tmp_path: Path) -> None:
    stage = Store(tmp_path).stage("s", 1, {})
    stage.write(1, rows_of(1))
    got = run_shards(stage, 3, rows_of, each=functools.partial(execute.run, workers=1))
    assert got.equals(pl.concat(map(rows_of, range(3))))


def test_the_first_commit_of_a_shard_stays(tmp_path: Path) -> None:
    stage = Store(tmp_path).stage("s", 1, {})
    stage.write(0, FRAME)
    stage.write(0, FRAME[:1])
    assert read_table(stage.path / "part-00000.parquet").equals(FRAME)


def test_what_stages_refuse(tmp_path: Path) -> None:
    stage = Store(tmp_path).stage("s", 1, {})
    with pytest.raises(StoreError, match="is not complete: shards are missing; run the stage"):
        stage.read()
    with pytest.raises(ValueError, match="at least one shard; pass an empty one"):
        run_shards(stage, [], rows_of)
    with pytest.raises(ZeroDivisionError):
        run_shards(stage, [[1], [2, 3]], lambda shard: rows_of(1 // (1 - shard)))
    with pytest.raises(StoreError, match=r"another division \(2 shards, now 3\); use the earlier"):
        run_shards(stage, 3, rows_of)
    with pytest.raises(ValueError, match="differ from"):
        run_shards(stage, [[1], [2, 3]], lambda _: FRAME)
    (stage.path / "part-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=r"part-00001.parquet: is not readable as Parquet"):
        run_shards(stage, [[1], [2, 3]], rows_of)


def test_what_was_changed_afterwards_is_seen(tmp_path: Path) -> None:
    stage = Store(tmp_path).stage("s", 1, {})
    run_shards(stage, 2, rows_of)
    part = stage.path / "part-00001.parquet"
    whole = part.read_bytes()
    write_table(part, rows_of(2))
    with pytest.raises(StoreError, match=r"part-00001.parquet: changed after it was written"):
        stage.read()
    part.unlink()
    assert not stage.complete
    run_shards(stage, 2, rows_of)
    assert part.read_bytes() == whole
    (stage.path / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match=r"manifest.json: is not a JSON object; remove it"):
        stage.read()
    write_json(stage.path / "manifest.json", {"schema": 0, "key": "k"})
    with pytest.raises(StoreError, match="belongs to schema 0, key k, wanted schema 1"):
        stage.read()


# Caches

SCHEMA = {"ids": pl.List(pl.Int32()), "p": pl.Float32()}


def row(*numbers: int) -> pl.DataFrame:
    return pl.DataFrame(
        {"ids": [[n, n] for n in numbers], "p": [float(n) for n in numbers]}, SCHEMA
    )


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")  # ends in zero bytes, which numpy's bytes do not see


def test_a_cache_gives_rows_in_the_order_asked(tmp_path: Path) -> None:
    cache = Store(tmp_path).cache("mlm", "model", 1, schema=SCHEMA)
    assert (len(cache), cache.lookup([key(1)])[0].tolist()) == (0, [False])
    cache.add([key(5), key(1)], row(5, 1))
    cache.add([key(3)], row(3))
    cache.add([], row())
    for opened in (cache, Store(tmp_path).cache("mlm", "model", 1, schema=SCHEMA)):
        found, rows = opened.lookup([key(3), key(0), key(1), key(3), key(5)])
        assert found.tolist() == [True, False, True, True, True]
        assert rows.equals(row(3, 1, 3, 5))
        assert len(opened) == 3
        assert opened.lookup([])[1].schema == pl.Schema(SCHEMA)
        assert opened.lookup([key(9)])[1].schema == pl.Schema(SCHEMA)
    assert Store(tmp_path).cache("mlm", "other", 1, schema=SCHEMA).path != cache.path


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6), st.lists(st.integers(0, 9)))
@settings(max_examples=20, deadline=None)
def test_a_cache_is_a_mapping_in_which_the_first_wins(
    adds: list[list[int]], ask: list[int]
) -> None:
    wanted: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as name:
        cache = Store(name).cache("c", schema=SCHEMA)
        for number, keys in enumerate(adds):
            values = [100 * number + place for place in range(len(keys))]
            cache.add([key(k) for k in keys], row(*values))
            for k, value in zip(keys, values, strict=True):
                wanted.setdefault(k, value)
        found, rows = cache.lookup([key(k) for k in ask])
        assert found.tolist() == [k in wanted for k in ask]
        assert rows["p"].to_list() == [wanted[k] for k in ask if k in wanted]
        assert len(cache) == len(wanted)


def test_only_the_segments_asked_for_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Store(tmp_path).cache("c", schema=SCHEMA)
    for number in range(4):
        cache.add([key(number)], row(number))
    len(cache)  # keys are loaded now
    read: list[str] = []

    def watched(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
        read.append(path.name)
        return read_table(path, columns)

    monkeypatch.setattr(store, "read_table", watched)
    cache.lookup([key(2)])
    assert read == [sorted(path.name for path in cache.path.iterdir())[2]]


def add_many(name: str, start: int) -> None:
    cache = Store(name).cache("c", schema=SCHEMA)
    for number in range(start, start + 5):
        cache.add([key(number), key(0)], row(number, 0))


def test_two_processes_add_at_once(tmp_path: Path) -> None:
    work = functools.partial(add_many, str(tmp_path))
    here = str(Path(__file__).parent)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_store as t; "
    code += "t.add_many(sys.argv[2], int(sys.argv[3]))"
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    other = subprocess.Popen([sys.executable, "-c", code, here, str(tmp_path), "100"], env=env)
    work(200)
    assert other.wait() == 0
    cache = Store(tmp_path).cache("c", schema=SCHEMA)
    assert len(cache) == 11
    found, rows = cache.lookup([key(104), key(204), key(0)])
    assert (found.all(), rows.equals(row(104, 204, 0))) == (True, True)


def test_what_caches_refuse(tmp_path: Path) -> None:
    cache = Store(tmp_path).cache("c", schema=SCHEMA)
    with pytest.raises(ValueError, match="1 keys and 2 rows"):
        cache.add([key(1)], row(1, 2))
    with pytest.raises(ValueError, match="wanted as many rows of"):
        cache.add([key(1)], row(1).drop("p"))
    with pytest.raises(ValueError, match="a cache key has 16 bytes"):
        cache.lookup([b"short"])
    with pytest.raises(ValueError, match="'key' is taken"):
        Store(tmp_path).cache("c", schema={"key": pl.Int64()})
    cache.add([key(1)], row(1))
    foreign = cache.path / "segment-0.parquet"
    foreign.write_bytes(b"PAR1 cut")
    with pytest.raises(StoreError, match=r"segment-0.parquet: is not readable as Parquet"):
        cache.lookup([key(1)])
    write_table(foreign, FRAME)
    with pytest.raises(StoreError, match=r"segment-0.parquet: holds the columns .*, wanted"):
        len(cache)
    foreign.unlink()
    next(cache.path.glob("segment-*")).write_bytes(b"")
    with pytest.raises(StoreError, match=r"segment-\d{20}-\w{8}.parquet: is not readable"):
        Store(tmp_path).cache("c", schema=SCHEMA).lookup([key(1)])


# Claimed directories


def test_a_directory_is_claimed_finished_and_claimed_again(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    claim_directory(out, "merge", "k1")
    (out / "fig").mkdir()
    (out / "fig" / "a.svg").write_text("x")
    claim_directory(out, "merge", "k1")  # a resume
    finish_directory(out, {"seeds": 3})
    about = json.loads((out / "manifest.json").read_text())
    assert (about["kind"], about["key"], about["complete"]) == ("merge", "k1", True)
    assert about["facts"] == {"seeds": 3}
    assert list(about["files"]) == ["fig/a.svg"]
    claim_directory(out, "merge", "k1")
    with pytest.raises(StoreError, match=r"another run of 'merge' \(key k1, this one k2\); choose"):
        claim_directory(out, "merge", "k2")
    with pytest.raises(StoreError, match="holds a run of kind 'merge'; choose an empty"):
        claim_directory(out, "c2gen", "k1", replace=True)
    (out / "notes.txt").write_text("the user's")
    claim_directory(out, "merge", "k2", replace=True)
    (out / "b.json").write_text("{}")
    finish_directory(out, {})
    assert sorted(path.name for path in out.rglob("*.*")) == [
        "b.json",
        "manifest.json",
        "notes.txt",
    ]
    assert list(json.loads((out / "manifest.json").read_text())["files"]) == ["b.json"]


def test_an_unfinished_run_is_replaced_but_not_deleted(tmp_path: Path) -> None:
    claim_directory(tmp_path, "merge", "k1")
    for name in ("a", "b"):
        (tmp_path / name).write_text("old")
    claim_directory(tmp_path, "merge", "k2", replace=True)
    write_bytes_atomic(tmp_path / "b", b"new")
    os.utime(tmp_path / "b", ns=(1, 1))
    finish_directory(tmp_path, {})
    about = json.loads((tmp_path / "manifest.json").read_text())
    assert (list(about["files"]), about["key"]) == (["b"], "k2")
    assert (tmp_path / "a").exists()


def test_what_a_claim_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file, wanted a directory; choose another name"):
        claim_directory(tmp_path / "file", "merge", "k")
    with pytest.raises(StoreError, match="holds files that are not ours; choose an empty or a new"):
        claim_directory(tmp_path, "merge", "k", replace=True)
    (tmp_path / "manifest.json").write_text('{"name": "another program"}')
    with pytest.raises(StoreError, match="holds files that are not ours"):
        claim_directory(tmp_path, "merge", "k", replace=True)


def test_a_manifest_cannot_make_us_delete_elsewhere(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    other.write_text("mine")
    claim_directory(out, "merge", "k1")
    told = {"schema": 1, "kind": "merge", "key": "k1", "files": {"../other": {}, str(other): {}}}
    write_json(out / files.MANIFEST, told)
    claim_directory(out, "merge", "k2", replace=True)
    assert other.exists()


def test_importing_the_store_is_cheap() -> None:
    code = "import sys, triaxial.store; print('polars' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
