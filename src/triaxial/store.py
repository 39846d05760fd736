"""The store: rows that are computed once, found again by what they are, and never half-written.

A stage is a plain function from rows and parameters to rows. Its key is the digest of its name, its
hand-bumped version, its parameters and the keys of its inputs; its rows lie in `ROOT/NAME-KEY/` as
Parquet parts, one a shard, each written under a temporary name and renamed. Whoever is killed loses
the shard at work and nothing else. Part files hold no time and no machine: the same code writes the
same bytes.

A cache maps 16-byte digests to rows, in immutable segments: several processes may add to it.
Nothing here knows an axis or a model. polars is imported when a table is first touched.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from .errors import StoreError
from .files import (
    MANIFEST,
    PLAN,
    SCHEMA,
    canonical,
    claim_directory,
    complete_manifest,
    digest,
    explained,
    file_digest,
    finish_directory,
    finished_directory,
    planned,
    provenance,
    read_json,
    write_bytes_atomic,
    write_json,
)
from .records import (
    read_jsonl,
    read_table,
    readable,
    records_of,
    table_of,
    write_jsonl,
    write_table,
)

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "Cache",
    "Stage",
    "Store",
    "claim_directory",
    "complete_manifest",
    "digest",
    "file_digest",
    "finish_directory",
    "finished_directory",
    "planned",
    "read_json",
    "read_jsonl",
    "read_table",
    "records_of",
    "run_shards",
    "table_of",
    "write_bytes_atomic",
    "write_json",
    "write_jsonl",
    "write_table",
]

KEY_BYTES = 16
STALE_SECONDS = 3600.0  # a temporary file older than that belongs to a killed process
Progress = Callable[[int, int], None]  # shards done, shards in all
Runner = Callable[
    [Callable[[int], "pl.DataFrame"], Sequence[int]], Iterable[tuple[int, "pl.DataFrame"]]
]


@dataclass(frozen=True, slots=True)
class Store:
    """A directory of stages and caches.

    Args:
        root: The directory; created by the first write.
    """

    root: str | Path

    def stage(
        self, name: str, version: int, params: Mapping[str, object], inputs: Sequence[str] = ()
    ) -> Stage:
        """The stage of this name, version, parameters and inputs, whether computed or not.

        Args:
            name: Lower-case letters, digits, `.`, `_`, `-`; for example "merge.score".
            version: Bumped by hand whenever the same parameters give other rows.
            params: What decides the rows, never how fast or where they are computed.
            inputs: Keys of stages, digests of files and models, in a fixed order.
        """
        plain = cast("dict[str, object]", canonical(params))
        key = digest({"stage": name, "version": version, "params": plain, "inputs": list(inputs)})
        path = Path(self.root) / f"{_checked_name(name)}-{key[:16]}"
        return Stage(name, version, plain, tuple(inputs), key, path)

    def cache(self, name: str, *key: object, schema: Mapping[str, pl.DataType]) -> Cache:
        """The cache of this name and key; `schema` gives the columns of its rows.

        Args:
            name: As for a stage.
            key: What the rows depend on besides their own 16-byte key, such as a model digest.
            schema: Column names and polars types; the column name "key" is taken.
        """
        folder = f"{_checked_name(name)}-{digest(['cache', name, list(key)])[:16]}"
        return Cache(Path(self.root) / folder, schema)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a store: where its rows are, and whether they are there."""

    name: str
    version: int
    params: dict[str, object]
    inputs: tuple[str, ...]
    key: str
    path: Path

    @property
    def complete(self) -> bool:
        """Whether every part was committed and the manifest written."""
        if not (self.path / MANIFEST).exists():
            return False
        return all((self.path / name).exists() for name in self.manifest["parts"])

    @property
    def manifest(self) -> dict[str, Any]:
        """What `finish` wrote: key, parameters, inputs, rows, sha256 of each part, facts, time."""
        found = read_json(self.path / MANIFEST)
        if found.get("schema") != SCHEMA or found.get("key") != self.key:
            raise StoreError(
                f"belongs to schema {found.get('schema')}, key {found.get('key')}, wanted schema "
                f"{SCHEMA}, key {self.key}; remove the directory and call again",
                where=self.path / MANIFEST,
            )
        return found

    def plan(self, shards: int, sizes: Sequence[int] | None = None) -> None:
        """Write down how many shards there will be, with how many units each where known.

        Raises:
            StoreError: The stage was begun with another division into shards.
        """
        plan = {"schema": SCHEMA, "key": self.key, "shards": shards, "sizes": sizes}
        plan_file = self.path / PLAN
        if not plan_file.exists():
            write_json(plan_file, plan)
        elif (begun := read_json(plan_file)) != plan:
            # Rows of another division under the same names would be repeated or lost.
            raise StoreError(
                f"was begun with another division ({begun.get('shards')} shards, now {shards}); "
                "use the earlier one or remove the directory",
                where=self.path,
            )

    def has(self, shard: int) -> bool:
        """Whether this shard is committed."""
        return self._part(shard).exists()

    def write(self, shard: int, frame: pl.DataFrame) -> None:
        """Commit the rows of one shard; a shard already committed (by another process) stays."""
        if not self.has(shard):
            write_table(self._part(shard), frame)

    def read(self) -> pl.DataFrame:
        """All rows, in shard order; each part is checked against its sha256.

        Raises:
            StoreError: The stage is not complete, or a part was changed or cut.
        """
        import polars as pl

        if not self.complete:
            raise StoreError(
                "is not complete: shards are missing; run the stage again", where=self.path
            )
        frames = []
        for name, seen in self.manifest["parts"].items():
            part = self.path / name
            if file_digest(part) != seen["sha256"]:
                raise StoreError(
                    "changed after it was written (sha256 differs); remove it and call again",
                    where=part,
                )
            frames.append(read_table(part))
        return pl.concat(frames)

    def finish(self, shards: int, facts: Mapping[str, object] | None = None) -> None:
        """Write the manifest, which makes the stage complete.

        Args:
            shards: How many there are, >= 1; all of them are committed.
            facts: What else a reader should know: counts, a funnel. Not part of the key.
        """
        import polars as pl

        parts: dict[str, dict[str, object]] = {}
        rows, schemas = 0, []
        for shard in range(shards):
            part = self._part(shard)
            with explained(part), readable(part):
                schemas.append(pl.read_parquet_schema(part))
                count = pl.scan_parquet(part, glob=False).select(pl.len()).collect().item()
                size = part.stat().st_size
            rows += count
            parts[part.name] = {"rows": count, "bytes": size, "sha256": file_digest(part)}
            if schemas[-1] != schemas[0]:
                raise ValueError(f"{part}: columns {schemas[-1]} differ from {schemas[0]}")
        _sweep(self.path)
        about = {"schema": SCHEMA, "stage": self.name, "version": self.version, "key": self.key}
        given = {"params": self.params, "inputs": list(self.inputs)}
        made = {"shards": shards, "rows": rows, "parts": parts, "facts": dict(facts or {})}
        write_json(self.path / MANIFEST, about | given | made | provenance())

    def _part(self, shard: int) -> Path:
        return self.path / f"part-{shard:05d}.parquet"


def run_shards(
    stage: Stage,
    units: Sequence[Sequence[object]] | int,
    function: Callable[[int], pl.DataFrame],
    progress: Progress | None = None,
    *,
    each: Runner | None = None,
    facts: Mapping[str, object] | None = None,
) -> pl.DataFrame:
    """The rows of a stage: committed shards are skipped, the others computed and committed.

    Args:
        stage: Where they go.
        units: The units of every shard, or only the number of shards; at least one shard
            (an empty one where there is nothing to do, so that the columns are known).
        function: From the shard's number to its rows.
        progress: Called with shards done and shards in all, first before any work.
        each: Runs the missing shards, for example `functools.partial(execute.run, workers=4)`;
            by default one after the other.
        facts: For the manifest.

    Returns:
        All rows in shard order: the same after a resume as without an interruption.

    Raises:
        StoreError: The stage was begun with another division into shards.
    """
    sizes = None if isinstance(units, int) else [len(unit) for unit in units]
    shards = units if isinstance(units, int) else len(units)
    if shards < 1:
        raise ValueError("a stage has at least one shard; pass an empty one")
    if stage.complete:
        return stage.read()
    stage.plan(shards, sizes)
    missing = [shard for shard in range(shards) if not stage.has(shard)]
    done = shards - len(missing)
    if progress:
        progress(done, shards)
    for index, frame in (each or _one_by_one)(function, missing):
        stage.write(missing[index], frame)
        done += 1
        if progress:
            progress(done, shards)
    stage.finish(shards, facts)
    return stage.read()


class Cache:
    """An on-disk mapping from 16-byte digests to rows, safe with several writers.

    Each `add` is one new immutable file. Where a key was added twice, the first file in name order
    (the earlier one) wins. Keys are held in memory (about 40 bytes each), values never.

    Args:
        path: The directory; created by the first `add`.
        schema: Columns of a row, without the key.
    """

    def __init__(self, path: Path, schema: Mapping[str, pl.DataType]) -> None:
        import polars as pl

        if "key" in schema:
            raise ValueError("the column name 'key' is taken by the cache")
        self.path = path
        self.schema = pl.Schema(schema)
        self._stored = pl.Schema({"key": pl.Binary(), **schema})
        self._loaded: dict[str, npt.NDArray[np.bytes_]] = {}  # file name -> keys in row order
        self._names: list[str] = []
        self._keys = _key_array([])  # sorted, distinct
        self._at = np.zeros((0, 2), np.int64)  # of every key: index in _names, row

    def __len__(self) -> int:
        self._refresh()
        return len(self._keys)

    def lookup(self, keys: Sequence[bytes]) -> tuple[npt.NDArray[np.bool_], pl.DataFrame]:
        """Which keys are there, and their rows.

        Args:
            keys: K digests of 16 bytes; a key may be asked for twice.

        Returns:
            found, shape (K,), bool; and found.sum() rows, in the order asked.

        Raises:
            StoreError: A segment cannot be read; the message names it.
        """
        import polars as pl

        asked = _key_array(keys)
        self._refresh()
        if not len(self._keys) or not len(asked):
            return np.zeros(len(asked), np.bool_), pl.DataFrame(schema=self.schema)
        place = np.minimum(np.searchsorted(self._keys, asked), len(self._keys) - 1)
        found: npt.NDArray[np.bool_] = self._keys[place] == asked
        segment, row = self._at[place[found]].T
        frames, order = [], []
        for number in np.unique(segment):
            here = np.flatnonzero(segment == number)
            frame = read_table(self.path / self._names[number], columns=self.schema.names())
            frames.append(frame[row[here]])
            order.append(here)
        if not frames:
            return found, pl.DataFrame(schema=self.schema)
        if len(frames) == 1:  # in the order asked already; a second pass costs as much as the first
            return found, frames[0]
        return found, pl.concat(frames)[np.argsort(np.concatenate(order))]

    def add(self, keys: Sequence[bytes], frame: pl.DataFrame) -> None:
        """Write rows under their keys, as one new segment.

        Args:
            keys: K digests of 16 bytes.
            frame: K rows with exactly the columns of the schema.
        """
        import polars as pl

        checked = _key_array(keys)
        if len(checked) != len(frame) or frame.schema != self.schema:
            raise ValueError(
                f"{len(checked)} keys and {len(frame)} rows of {frame.schema}, wanted as many rows "
                f"of {self.schema}"
            )
        if len(checked):
            name = f"segment-{time.time_ns():020d}-{secrets.token_hex(4)}.parquet"
            column = pl.Series("key", list(keys), dtype=pl.Binary())
            write_table(self.path / name, pl.DataFrame([column, *frame.get_columns()]))

    def _refresh(self) -> None:
        """Load the keys of segments that came since the last call."""
        import polars as pl

        with explained(self.path):
            names = sorted(path.name for path in self.path.glob("segment-*.parquet"))
        if names == self._names:
            return
        for name in names:
            if name not in self._loaded:
                path = self.path / name
                with explained(path), readable(path):
                    seen = pl.Schema(pl.read_parquet_schema(path))
                if seen != self._stored:
                    raise StoreError(
                        f"holds the columns {dict(seen)}, wanted {dict(self._stored)}; "
                        "remove the directory of this cache",
                        where=path,
                    )
                self._loaded[name] = _key_array(read_table(path, columns=["key"])["key"].to_list())
        each = [self._loaded[name] for name in names]
        # np.unique keeps the first occurrence, that is the first file in name order.
        self._keys, first = np.unique(np.concatenate([_key_array([]), *each]), return_index=True)
        numbers = np.repeat(np.arange(len(each)), [len(keys) for keys in each])
        rows = np.concatenate([np.zeros(0, np.int64), *(np.arange(len(keys)) for keys in each)])
        self._at = np.stack([numbers, rows], axis=1)[first]
        self._names = names


def _one_by_one(
    function: Callable[[int], pl.DataFrame], shards: Sequence[int]
) -> Iterator[tuple[int, pl.DataFrame]]:
    for index, shard in enumerate(shards):
        yield index, function(shard)


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise ValueError(f"{name!r} is not a stage name: wanted a-z, 0-9, '.', '_', '-'")
    return name


def _key_array(keys: Sequence[bytes]) -> npt.NDArray[np.bytes_]:
    """Keys as shape (K,), 16 bytes each.

    numpy drops trailing zero bytes when it compares; among keys of one length that loses nothing.
    """
    if any(len(key) != KEY_BYTES for key in keys):
        raise ValueError(f"a cache key has {KEY_BYTES} bytes")
    return np.frombuffer(b"".join(keys), dtype=f"S{KEY_BYTES}")


def _sweep(folder: Path) -> None:
    """Remove temporary files that killed processes left long ago."""
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()
