"""Rows of a file or of a hub data set, as plain mappings, with a name for what is wrong with a row.

The readers behind `triaxial.nli`. They know columns and nothing of labels or sentences. They stream
(Parquet apart), and what they yield is the text of the file, byte for byte.

Source: jiant #1073 (rows of a distributed SNLI file with too many fields).
Choice: a tab-separated file has no quoting, as in the distributions; a CSV file has.
Choice: numbers in a hub data set that names its classes come as these names.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from triaxial.errors import InputError

__all__ = [
    "MEND",
    "BadRowError",
    "Columns",
    "Rows",
    "Source",
    "checked_id",
    "checked_text",
    "ending",
    "file_source",
    "hub_source",
    "parse_source",
    "whole_rows",
]

MEND = "mend the row, or drop bad rows with --on-bad drop"


class BadRowError(Exception):
    """A row that cannot be used. Readers yield it, so that the caller may drop the row.

    Args:
        reason: The kind of fault, for counting.
        message: What was seen and what to do, without the place.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


Rows = Generator[Mapping[str, object] | BadRowError, None, None]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns to read: those that must be there, and one that may be."""

    needed: tuple[str, ...]
    optional: str

    def missing(self, names: Iterable[str]) -> str | None:
        """What to say when a needed column is missing or there twice, else `None`."""
        there = list(names)
        for name in self.needed:
            if there.count(name) != 1:
                seen = "there twice" if name in there else "missing"
                shown = ", ".join(map(repr, there[:30])) or "no columns"
                return f"column {name!r} is {seen}, there are {shown}; pass --columns ROLE=NAME"
        return None

    def of(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are to be read."""
        return [name for name in names if name in (*self.needed, self.optional)]


@dataclass(frozen=True, slots=True)
class Source:
    """Rows, where they are (for errors), and the digest of what they come from."""

    place: str
    digest: str
    rows: Rows


def file_source(path: Path, shape: str, columns: Columns, *, ragged: bool = False) -> Source:
    """The rows of a file.

    Args:
        path: The file, gzipped where its name ends in .gz.
        shape: jsonl, csv, parquet or tsv.
        columns: What to read.
        ragged: Accept rows that lack some of the last columns `label1` … `label5`.

    Raises:
        InputError: The file cannot be read, or a needed column is missing; partly while iterating.
    """
    readers = {"jsonl": _json_rows, "parquet": _parquet_rows, "csv": _csv_rows}
    digest = _digest(path)
    if shape in readers:
        return Source(str(path), digest, readers[shape](path, columns))
    return Source(str(path), digest, _tsv_rows(path, columns, ragged))


def hub_source(name: str, split: str | None, columns: Columns) -> Source:
    """The rows of a split of a hub data set, or of a directory in its format.

    Args:
        name: `REPOSITORY`, `REPOSITORY:CONFIGURATION`, or a directory.
        split: May be `None` where there is only one.
        columns: What to read.

    Raises:
        InputError: The data set cannot be loaded, or lacks the split or a column.
    """
    folder = Path(name).expanduser()
    if not name or (name[0] in "./~" and not folder.is_dir()):
        raise InputError(
            "no such directory; write hub:REPOSITORY or hub:DIRECTORY", where=f"hub:{name}"
        )
    import datasets

    try:
        if folder.is_dir():
            # Streaming reads the files themselves: no copy in a cache that could be out of date.
            parts = datasets.load_dataset_builder(str(folder)).as_streaming_dataset()
            digest = _folder_digest(folder)
        else:
            repository, _, configuration = name.partition(":")
            builder = datasets.load_dataset_builder(repository, configuration or None)
            builder.download_and_prepare()
            parts, digest = builder.as_dataset(), builder.hash  # the commit
        if split is None and len(parts) == 1:
            split = next(iter(parts))
        if split not in parts:
            seen = f"no split {split!r}" if split else "several splits"
            raise InputError(f"{seen}; pass --split with one of {', '.join(parts)}", where=name)
        data = parts[split]
        names = data.column_names or list(next(iter(data), {}))
    except InputError:
        raise
    except Exception as error:  # the library raises many kinds
        raise _not_loaded(name, error) from error
    place = f"{name}[{split}]"
    if message := columns.missing(names):
        raise InputError(message, where=place)
    classes = {column: getattr(kind, "names", ()) for column, kind in (data.features or {}).items()}
    return Source(place, digest, _hub_rows(place, data.select_columns(columns.of(names)), classes))


def ending(path: Path) -> str:
    """The last ending of a file name in lower case, .gz apart, without the dot."""
    endings = [suffix[1:].lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return endings[-1] if endings else ""


def _json_rows(path: Path, columns: Columns) -> Rows:
    for line in _lines(path):
        try:
            if line.strip():
                row = _json_object(line)
                if message := columns.missing(row):
                    raise BadRowError("missing column", message)
                yield row
        except BadRowError as bad:
            yield bad


def _json_object(line: str) -> dict[str, object]:
    _check_utf8(line)
    try:
        row = json.loads(line)
        if isinstance(row, dict):
            return row
        seen = f"a {type(row).__name__}"
    except (ValueError, RecursionError) as error:
        seen = f"invalid JSON, {error}"
    raise BadRowError("invalid JSON", f"{seen}; wanted one JSON object a line; {MEND}")


def _csv_rows(path: Path, columns: Columns) -> Rows:
    return _table_rows(path, columns, _csv_records(path), ragged=False)


def _tsv_rows(path: Path, columns: Columns, ragged: bool) -> Rows:
    lines = (line.removesuffix("\n").removesuffix("\r") for line in _lines(path))
    return _table_rows(path, columns, ((line, line.split("\t")) for line in lines if line), ragged)


def _table_rows(
    path: Path, columns: Columns, records: Iterator[tuple[str, list[str]]], ragged: bool
) -> Rows:
    raw, header = next(records, ("", []))
    if not header:
        raise InputError("the file is empty; check it", where=path)
    try:
        _check_utf8(raw)
    except BadRowError as bad:
        raise InputError(bad.message, where=f"{path}:header") from None
    if message := columns.missing(header):
        raise InputError(message, where=path)
    least = len(header)
    # Some copies of SNLI and MNLI end a row after the last annotator's label that there is.
    spare = set(header) - set(columns.needed) if ragged else set()
    while header[least - 1] in spare and re.fullmatch(r"label\d", header[least - 1]):
        least -= 1
    for raw, fields in records:
        try:
            _check_utf8(raw)
            if not least <= len(fields) <= len(header):
                seen = f"{len(fields)} fields, but the header has {len(header)}"
                raise BadRowError("wrong number of fields", f"{seen}; {MEND}")
            yield dict(zip(header, fields, strict=False))
        except BadRowError as bad:
            yield bad


def _csv_records(path: Path) -> Iterator[tuple[str, list[str]]]:
    raw: list[str] = []  # the lines of the record that is being read

    def remembered() -> Iterator[str]:
        for line in _lines(path):
            raw.append(line)
            yield line

    number = 0  # of the data row; the header is row 0
    try:
        for fields in csv.reader(remembered(), strict=True):
            if fields:
                yield "".join(raw), fields
                number += 1
            raw.clear()
    except csv.Error as error:
        # Where a quote was not closed, nobody knows where the next row starts: not a bad row.
        wanted = "quote fields that hold a comma, quote or line break, and double inner quotes"
        where = f"{path}:{number or 'header'}"
        raise InputError(f"not CSV, {error}; {wanted}", where=where) from None


def _parquet_rows(path: Path, columns: Columns) -> Rows:
    import polars as pl

    try:
        lazy = pl.scan_parquet(path, glob=False)  # a name may hold [ or *
        names = lazy.collect_schema().names()
        if message := columns.missing(names):
            raise InputError(message, where=path)
        table = lazy.select(columns.of(names)).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise InputError(f"not Parquet, {error}; write it again", where=path) from error
    yield from table.iter_rows(named=True)


def _hub_rows(
    place: str, data: Iterable[dict[str, object]], classes: Mapping[str, Sequence[str]]
) -> Rows:
    def named(column: str, value: object) -> object:
        names = classes.get(column) or ()
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else value

    try:
        for row in data:
            yield {column: named(column, value) for column, value in row.items()}
    except Exception as error:  # the library raises many kinds
        raise _not_loaded(place, error) from error


def _not_loaded(place: str, error: Exception) -> InputError:
    seen = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    wanted = "check name and network, or give a file or a directory"
    return InputError(f"the data set cannot be loaded, {seen}; {wanted}", where=place)


def _lines(path: Path) -> Iterator[str]:
    """Lines as they are, ended by line feeds alone; bytes that are not UTF-8 become surrogates."""
    zipped = path.suffix.lower() == ".gz"
    try:
        with cast("IO[bytes]", gzip.open(path) if zipped else path.open("rb")) as file:
            for number, line in enumerate(file):
                kept = line if number else line.removeprefix(b"\xef\xbb\xbf")
                yield kept.decode("utf-8", "surrogateescape")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read, {error}; copy it again", where=path) from error


def _check_utf8(line: str) -> None:
    try:
        line.encode()
    except UnicodeEncodeError as error:
        at = len(line[: error.start].encode()) + 1
        seen = f"byte {at} of the row, 0x{ord(line[error.start]) - 0xDC00:02x}, is not UTF-8"
        raise BadRowError("not UTF-8", f"{seen}; save the file as UTF-8") from None


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        wanted = "name a readable file, or write hub:DIRECTORY for a data set in a directory"
        raise InputError(f"{error.strerror}; {wanted}", where=path) from error


def _folder_digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in inside.parts):
            total.update(f"{inside.as_posix()}\0{_digest(path)}\n".encode())
    return total.hexdigest()


def parse_source(source: str, formats: Sequence[str]) -> tuple[str, str]:
    """Format and place of `FORMAT:WHERE`, or of a path whose ending says the format.

    Raises:
        InputError: Neither says the format.
    """
    kind, _, where = source.partition(":")
    if kind in formats:
        return kind, where
    shape = ending(Path(source))
    if shape in ("jsonl", "csv", "tsv", "parquet"):
        return shape, source
    raise InputError(
        f"the name does not say the format; write FORMAT:{source} with FORMAT one of "
        f"{', '.join(formats)}, or a path that ends in .jsonl, .csv, .tsv or .parquet",
        where=source,
    )


def checked_text(value: object, role: str) -> str:
    """A value of a row that must be text, byte-identical.

    Raises:
        BadRowError: It is no text, has no character but blanks, or half a character.
    """
    if not isinstance(value, str):
        seen = "null" if value is None else f"a {type(value).__name__}"
        raise BadRowError(f"{role} not text", f"the {role} is {seen}, not text; {MEND}")
    if not value.strip():
        raise BadRowError(f"empty {role}", f"the {role} is empty; {MEND}")
    if not value.isascii() and (half := re.search("[\ud800-\udfff]", value)) is not None:
        seen = f"half a character, {half.group()!a}"
        raise BadRowError(f"{role} not text", f"the {role} has {seen}; {MEND}")
    return value


def checked_id(value: object) -> str:
    """A row's id: text, or a whole number, which has one spelling; 1.0 and 1e3 have several.

    Raises:
        BadRowError: It is neither.
    """
    return str(value) if type(value) is int else checked_text(value, "id")


def whole_rows(read: Source, path: str | Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Place and content of every row of a file in which no row may be bad.

    Raises:
        InputError: A row is bad.
    """
    with closing(read.rows) as rows:
        for number, row in enumerate(rows, 1):
            where = f"{path}:{number}"
            if isinstance(row, BadRowError):
                raise InputError(row.message.replace(MEND, "mend the row"), where=where)
            yield where, row
