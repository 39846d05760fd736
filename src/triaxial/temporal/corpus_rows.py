"""Rows of a source of dated documents, whole or a shard of it, as plain mappings.

The readers behind `triaxial.temporal.corpus`. They know files and columns and nothing of dates.
They stream, from plain JSONL from any byte on, and what they yield is the text of the source.
CSV, TSV and hub data sets come through `triaxial.nli_rows`.

Choice: a directory of texts is read in the order of its paths; hidden files do not count.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, cast

from triaxial.errors import InputError
from triaxial.nli_rows import MEND, BadRowError, Columns, file_source, hub_source, parse_source

__all__ = ["ROLES", "Row", "Rows", "Shard", "cut_rows", "open_rows"]

Row = Mapping[str, object] | BadRowError

ROLES = ("id", "date", "text", "source")
_NEEDED = ("date", "text")
_FORMATS = ("jsonl", "csv", "tsv", "parquet", "text", "hub")
_BATCH = 1024  # rows of Parquet that are Python objects at a time
_LONGEST_FIELD = 2**31 - 1  # of CSV; the module's own limit of 131,072 is less than a long article


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a source: `start` to `stop` (left out), in bytes, rows, row groups or files."""

    unit: Literal["bytes", "rows", "groups", "files"]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a shard.

    Args:
        place: Of the source, in errors.
        name: What is called the source of its documents where no column says so.
        rows: As they come.
        before: Number of data rows before the shard; may read the source.
        where: Place of a row, by its number in the shard (from 1); by default `place:row`.
    """

    place: str
    name: str
    rows: Iterator[Row]
    before: Callable[[], int]
    where: Callable[[int], str] | None = None


def cut_rows(
    source: str,
    columns: Mapping[str, str],
    split: str | None,
    pattern: str | None,
    *,
    size: int,
    rows: int,
) -> tuple[Shard, ...]:
    """The shards of a source; see `corpus.cut_source`."""
    kind, where = parse_source(source, _FORMATS)
    path = Path(where).expanduser()
    if kind == "jsonl" and not _zipped(path):
        with _explained(path):
            total = path.stat().st_size
        return tuple(Shard("bytes", at, min(at + size, total)) for at in range(0, total or 1, size))
    if kind == "parquet":
        with _parquet(path) as table:
            return _runs("groups", _group_sizes(table), rows)
    if kind == "text":
        return _runs("files", [file.stat().st_size for file in _files(path)], size)
    total = sum(1 for _ in open_rows(source, None, columns, split, pattern).rows)
    return tuple(Shard("rows", at, min(at + rows, total)) for at in range(0, total or 1, rows))


def open_rows(
    source: str,
    shard: Shard | None,
    columns: Mapping[str, str],
    split: str | None,
    pattern: str | None,
) -> Rows:
    """The rows of a source or of a shard of it, under the column names of the source.

    Args:
        source: As for `corpus.read_documents`.
        shard: `None` for the whole.
        columns: Column names by role, where they are not the roles themselves.
        split: Of a hub data set.
        pattern: Of the file names of a directory of texts.

    Raises:
        InputError: The source, a column or an argument cannot be used; partly while iterating.
    """
    kind, where = parse_source(source, _FORMATS)
    path = Path(where).expanduser()
    names = {role: columns.get(role, role) for role in ROLES}
    needed = [names[role] for role in ROLES if role in _NEEDED or role in columns]
    asked = _Asked(tuple(needed), names["id"], names["source"])
    start, stop = (shard.start, shard.stop) if shard else (0, None)
    if kind == "text":
        files = _files(path)[start:stop]
        form = _compiled(pattern or "")
        texts = (_text_row(file, path, form, names) for file in files)
        return Rows(str(path), path.name, texts, lambda: start, lambda n: str(files[n - 1]))
    if kind == "parquet":
        with _parquet(path) as table:
            sizes, there = _group_sizes(table), table.schema_arrow.names
        if message := asked.missing(there):
            raise InputError(message, where=path)
        groups = list(range(len(sizes)))[start:stop]
        found = _parquet_rows(path, groups, asked.of(there))
        return Rows(str(path), path.name, found, lambda: sum(sizes[:start]))
    if kind == "jsonl":
        with _explained(path):
            path.open("rb").close()  # a missing file is an error now, not at the first row
        if _zipped(path):
            objects = (_json_row(line, asked) for line in islice(_lines(path), start, stop))
            return Rows(str(path), path.name, objects, lambda: start)
        objects = (_json_row(line, asked) for line in _lines(path, start, stop))
        return Rows(str(path), path.name, objects, lambda: sum(1 for _ in _lines(path, 0, start)))
    csv.field_size_limit(_LONGEST_FIELD)
    read = hub_source(where, split, asked) if kind == "hub" else file_source(path, kind, asked)
    name = where if kind == "hub" else path.name
    return Rows(read.place, name, islice(read.rows, start, stop), lambda: start)


def _lines(path: Path, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Lines that begin in `start` to `stop` (bytes), without the blank ones and a BOM."""
    rows = 0
    try:
        with cast("IO[bytes]", gzip.open(path) if _zipped(path) else path.open("rb")) as file:
            at = start
            if start:
                file.seek(start - 1)
                at += len(file.readline()) - 1
            while (stop is None or at < stop) and (line := file.readline()):
                kept = line if at else line.removeprefix(b"\xef\xbb\xbf")
                at += len(line)
                if kept.strip():
                    yield kept
                    rows += 1
    except (OSError, EOFError, zlib.error) as error:
        seen = f"cannot be read after {rows} whole rows, {error}"
        raise InputError(f"{seen}; copy the file again", where=path) from error


def _json_row(line: bytes, asked: Columns) -> Row:
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as error:
        seen = f"byte {error.start + 1} of the row, 0x{line[error.start]:02x}, is not UTF-8"
        return BadRowError("not UTF-8", f"{seen}; save the file as UTF-8")
    except (ValueError, RecursionError) as error:
        return BadRowError("invalid JSON", f"invalid JSON, {error}; {MEND}")
    if not isinstance(row, dict):
        seen = f"a {type(row).__name__}; wanted one JSON object a line"
        return BadRowError("invalid JSON", f"{seen}; {MEND}")
    if message := asked.missing(row):
        return BadRowError("missing column", message)
    return row


def _parquet(path: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    with _explained(path):
        try:
            return pyarrow.parquet.ParquetFile(path)
        except pyarrow.ArrowException as error:
            seen = " ".join(str(error).split())[:200]
            raise InputError(f"not Parquet, {seen}; write it again", where=path) from error


def _group_sizes(table: Any) -> list[int]:
    return [table.metadata.row_group(n).num_rows for n in range(table.num_row_groups)]


def _parquet_rows(path: Path, groups: list[int], columns: list[str]) -> Iterator[Row]:
    import pyarrow

    with _parquet(path) as table:
        try:
            for group in groups:
                for batch in table.iter_batches(_BATCH, [group], columns):
                    yield from batch.to_pylist()
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            seen = " ".join(str(error).split())[:200]
            raise InputError(f"cannot be read, {seen}; write it again", where=path) from error


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputError("no such directory; write text:DIRECTORY", where=folder)
    found = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    shown = [f for f in found if not any(p.startswith(".") for p in f.relative_to(folder).parts)]
    if not shown:
        raise InputError("the directory holds no file; check the name", where=folder)
    return shown


def _text_row(file: Path, folder: Path, form: re.Pattern[str], names: Mapping[str, str]) -> Row:
    inside = file.relative_to(folder).as_posix()
    match = form.fullmatch(inside if "/" in form.pattern else file.name)
    if match is None:
        return BadRowError("name without date", f"the name does not fit the pattern; {MEND}")
    when = "-".join(part for part in match.group("year", "month", "day") if part)
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        seen = f"byte {error.start + 1}, 0x{error.object[error.start]:02x}, is not UTF-8"
        return BadRowError("not UTF-8", f"{seen}; save the file as UTF-8")
    except OSError as error:
        raise InputError(f"cannot be read, {error.strerror}; mend that", where=file) from error
    return {names["id"]: inside, names["date"]: when, names["text"]: text}


def _compiled(pattern: str) -> re.Pattern[str]:
    digits = {"{year}": "(?P<year>[0-9]{4})", "{month}": "(?P<month>[0-9]{2})"}
    digits["{day}"] = "(?P<day>[0-9]{2})"
    parts = re.split(r"(\{\w*\}|\*)", pattern)
    fields = [part for part in parts if part.startswith("{")]
    if not {"{year}", "{month}"} <= set(fields) <= set(digits) or len(fields) > len(set(fields)):
        wanted = "{year} and {month}, and {day} where there is one, each once"
        message = f"{pattern!r} does not say where the date stands; wanted {wanted}"
        raise InputError(message, where="--pattern")
    made = [".*" if part == "*" else digits.get(part, re.escape(part)) for part in parts]
    if "{day}" not in fields:
        made.append("(?P<day>)")
    return re.compile("".join(made), re.S)


def _runs(unit: Literal["groups", "files"], counts: list[int], most: int) -> tuple[Shard, ...]:
    starts, held = [0], 0
    for number, count in enumerate(counts):
        if held and held + count > most:
            starts.append(number)
            held = 0
        held += count
    ends = [*starts[1:], len(counts)]
    return tuple(Shard(unit, start, stop) for start, stop in zip(starts, ends, strict=True))


def _zipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        wanted = "name a readable file, or write text:DIRECTORY or hub:DIRECTORY"
        raise InputError(f"{error.strerror or error}; {wanted}", where=path) from error


@dataclass(frozen=True, slots=True)
class _Asked(Columns):
    """Columns to read, of which the source's may be absent like the id's."""

    also: str = "source"

    def of(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in (*self.needed, self.optional, self.also)]
