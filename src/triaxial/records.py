"""Records as Parquet rows and JSONL lines.

A record is a frozen dataclass with plain fields; its annotations are the schema, so that a table of
no rows has the right columns too. Part of the store, which offers these names as its own: import
them from `store`. polars is imported when a table is first touched.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import json
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import InputError, StoreError
from .files import explained, write_bytes_atomic

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "read_jsonl",
    "read_table",
    "readable",
    "records_of",
    "table_of",
    "write_jsonl",
    "write_table",
]

R = TypeVar("R")


def write_table(path: str | Path, frame: pl.DataFrame) -> None:
    """Write Parquet atomically; equal rows give equal bytes."""
    buffer = io.BytesIO()
    # One chunk and a fixed compression: the bytes may not tell how the frame came about.
    frame.rechunk().write_parquet(
        buffer, compression="zstd", compression_level=1, row_group_size=1 << 16
    )
    write_bytes_atomic(path, buffer.getbuffer())


def read_table(path: str | Path, columns: list[str] | None = None) -> pl.DataFrame:
    """The rows of a Parquet file; StoreError where it cannot be read.

    Args:
        path: One file; its name is taken as it is, not as a pattern.
        columns: Only these.
    """
    import polars as pl

    with explained(path), readable(path):
        return pl.read_parquet(path, columns=columns, glob=False, hive_partitioning=False)


def table_of(records: Iterable[object], cls: type) -> pl.DataFrame:
    """Records as a table, whose columns are the fields of `cls`.

    Fields: bool, int, float, str, bytes, date, datetime, enums, `X | None`, `Literal`, dataclasses;
    list[X] and tuple[X, ...] (lists), tuple[X, X] (arrays), dict[str, X] (lists of key and value).

    Raises:
        TypeError: A field has another type, or a value is not of its field's type.
    """
    import polars as pl

    rows = list(records)
    columns = []
    for name, (dtype, encode, _) in _fields(cls).items():
        values = [getattr(row, name) for row in rows]
        if encode:
            values = [encode(value) for value in values]
        column = pl.Series(name, values, dtype=dtype, strict=True)
        if column.null_count() and not _optional(typing.get_type_hints(cls)[name]):
            raise TypeError(f"{cls.__name__}.{name} is None in record {column.is_null().arg_max()}")
        columns.append(column)
    return pl.DataFrame(columns)


def records_of(frame: pl.DataFrame, cls: type[R]) -> list[R]:
    """The records of a table that `table_of` made, in order.

    Raises:
        StoreError: The columns are not the fields of `cls`.
    """
    fields = _fields(cls)
    if set(frame.columns) != set(fields):
        raise StoreError(
            f"a table with the columns {', '.join(frame.columns)} does not hold {cls.__name__} "
            f"records, wanted {', '.join(fields)}; another version wrote it: remove it, call again"
        )
    columns = []
    for name, (_, _, decode) in fields.items():
        values = frame[name].to_list()
        columns.append([decode(value) for value in values] if decode else values)
    return [cls(**dict(zip(fields, row, strict=True))) for row in zip(*columns, strict=True)]


def write_jsonl(path: str | Path, frame: pl.DataFrame) -> None:
    """Write one JSON object a row, atomically; dates as ISO text.

    Raises:
        StoreError: A value has no JSON form (NaN, bytes); polars would write null without a word.
    """
    lines = []
    for number, row in enumerate(frame.iter_rows(named=True), 1):
        try:
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False, default=_iso))
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"row {number} has no JSON form ({error}); write Parquet instead", where=path
            ) from error
    write_bytes_atomic(path, "".join(line + "\n" for line in lines).encode())


def read_jsonl(path: str | Path, schema: Mapping[str, pl.DataType] | None = None) -> pl.DataFrame:
    """The rows of a JSONL file; blank lines are skipped.

    Args:
        path: A UTF-8 file with one object a line.
        schema: The columns wanted and their polars types, dates from ISO text; by default every
            name in the file, with the type of its values.

    Raises:
        InputError: A line is not a JSON object, or its values are not of the schema.
    """
    import polars as pl

    rows: list[tuple[int, dict[str, Any]]] = []
    with explained(path), open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError(f"a {type(row).__name__}")
                except ValueError as error:
                    raise InputError(
                        f"is not a JSON object ({error}); mend the line", where=f"{path}:{number}"
                    ) from error
                rows.append((number, row))
    names = dict.fromkeys(name for _, row in rows for name in row)
    columns = []
    for name in schema or names:
        dtype = schema[name] if schema else None
        values = [row.get(name) for _, row in rows]
        try:
            if isinstance(dtype, pl.Date | pl.Datetime):
                kind = date if isinstance(dtype, pl.Date) else datetime
                values = [item if item is None else kind.fromisoformat(item) for item in values]
            columns.append(pl.Series(name, values, dtype=dtype, strict=True))
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            raise InputError(
                f"column {name!r} holds values of another type ({_first_line(error)}); mend them",
                where=path,
            ) from error
    return pl.DataFrame(columns)


@contextlib.contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Turn polars' errors on a cut or foreign Parquet file into one clear line."""
    import polars as pl

    try:
        yield
    # On some damage polars panics, which is not even an Exception.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise StoreError(
            f"is not readable as Parquet ({_first_line(error)}); remove it and call again",
            where=path,
        ) from error


Codec = tuple["pl.DataType", Callable[[Any], Any] | None, Callable[[Any], Any] | None]


def _fields(cls: type) -> dict[str, Codec]:
    """Column type, encoder and decoder (None: as it is) of every field."""
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls.__name__} is not a dataclass; wanted a record type")
    hints = typing.get_type_hints(cls)
    return {field.name: _codec(hints[field.name]) for field in dataclasses.fields(cls)}


def _codec(hint: Any) -> Codec:
    import polars as pl

    plain: dict[Any, pl.DataType] = {
        bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64(), str: pl.String(),
        bytes: pl.Binary(), date: pl.Date(), datetime: pl.Datetime("us"),
    }  # fmt: skip
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in plain:
        return plain[hint], None, None
    if origin in (typing.Union, types.UnionType) and _optional(hint) and len(args) == 2:
        dtype, encode, decode = _codec(args[0] if args[1] is type(None) else args[1])
        return dtype, _or_none(encode), _or_none(decode)
    if origin is typing.Literal and len({type(arg) for arg in args}) == 1:
        return _codec(type(args[0]))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return plain[type(next(iter(hint)).value)], lambda item: hint(item).value, hint
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _struct(hint)
    if origin in (list, tuple, Sequence) and args:
        dtype, encode, decode = _codec(args[0])
        kind = list if origin is list else tuple
        fixed = origin is tuple and args[-1] is not ...
        if not fixed or len(set(args)) == 1:
            return (
                pl.Array(dtype, len(args)) if fixed else pl.List(dtype),
                lambda items: [encode(item) if encode else item for item in items],
                lambda items: kind(decode(item) if decode else item for item in items),
            )
    if origin in (dict, Mapping) and args[0] is str:
        dtype, encode, decode = _codec(args[1])
        return (
            pl.List(pl.Struct({"key": pl.String(), "value": dtype})),
            lambda d: [{"key": k, "value": encode(v) if encode else v} for k, v in d.items()],
            lambda rows: {r["key"]: decode(r["value"]) if decode else r["value"] for r in rows},
        )
    raise TypeError(f"a field of type {hint} has no column type; use plain fields")


def _struct(cls: type) -> Codec:
    import polars as pl

    fields = _fields(cls)

    def encode(item: Any) -> dict[str, Any]:
        values = {name: getattr(item, name) for name in fields}
        return {
            name: turn(values[name]) if turn else values[name]
            for name, (_, turn, _) in fields.items()
        }

    def decode(row: dict[str, Any]) -> Any:
        return cls(
            **{
                name: turn(row[name]) if turn else row[name]
                for name, (_, _, turn) in fields.items()
            }
        )

    return pl.Struct({name: dtype for name, (dtype, _, _) in fields.items()}), encode, decode


def _or_none(turn: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return turn and (lambda item: None if item is None else turn(item))


def _optional(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def _iso(value: object) -> str:
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
