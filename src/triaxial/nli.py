"""NLI pairs and where they come from: one record, one label order.

`read_pairs` reads SICK, SNLI and MNLI as distributed, JSONL, CSV, TSV, Parquet and data sets of the
Hugging Face hub. A fault is one line with the file and the data row (1 = the first row after the
header; blank lines do not count), or, when asked, a dropped row with a count by reason. The text
of a sentence stays byte-identical: nothing is stripped, joined or normalised.

Source: MERGE (seeds); datasets #1963 (label -1 used as a class).
Choice: a label map that names "-1" or "-" outranks the rule that these are no gold label.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from triaxial.errors import InputError
from triaxial.nli_rows import (
    MEND,
    BadRowError,
    Columns,
    checked_id,
    checked_text,
    ending,
    file_source,
    hub_source,
    parse_source,
)

__all__ = [
    "LABELS",
    "Label",
    "Pair",
    "Reading",
    "parse_columns",
    "parse_map",
    "read_labels",
    "read_pairs",
]

_ROLES = ("premise", "hypothesis", "label", "id")
_FORMATS = ("sick", "snli", "mnli", "hub", "jsonl", "csv", "tsv", "parquet")
_REPOSITORIES = {"snli": "stanfordnlp/snli", "mnli": "nyu-mll/multi_nli"}
_SICK_SPLIT = "SemEval_set"
_SICK_SPLITS = ("TRAIN", "TRIAL", "TEST")
_NO_GOLD = "no gold label"


class Label(StrEnum):
    """What the premise says about the hypothesis."""

    ENTAILMENT = "entailment"
    NEUTRAL = "neutral"
    CONTRADICTION = "contradiction"


LABELS: tuple[Label, ...] = (Label.ENTAILMENT, Label.NEUTRAL, Label.CONTRADICTION)
"""The order of the columns of every array of shape (pairs, 3)."""

_ALIASES = {
    **{name: label for label in LABELS for name in (label.value, label.value[0])},
    **{"entail": Label.ENTAILMENT, "contradict": Label.CONTRADICTION},
}
_NAMES = ", ".join(LABELS)


@dataclass(frozen=True, slots=True)
class Pair:
    """A premise, a hypothesis and the gold label; the text is as in the file."""

    id: str
    premise: str
    hypothesis: str
    label: Label


@dataclass(frozen=True, slots=True)
class Reading:
    """The pairs of one source.

    Args:
        pairs: At least one, in file order.
        dropped: Rows left out, by reason. Another split and what follows `limit` do not count.
        source: The source as it was given.
        digest: SHA-256 of the file's bytes, or of a directory's names and bytes; for a data set of
            the hub its commit.
    """

    pairs: tuple[Pair, ...]
    dropped: dict[str, int]
    source: str
    digest: str


def read_pairs(
    source: str,
    *,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    label_map: Mapping[str, str] | None = None,
    on_bad: Literal["refuse", "drop"] = "refuse",
    limit: int | None = None,
) -> Reading:
    """Reads labelled pairs.

    Args:
        source: A path that ends in .jsonl, .csv, .tsv or .parquet, or `FORMAT:WHERE`. FORMAT is one
            of these four; `sick`; `snli` or `mnli` (a file as distributed, a directory in the hub's
            format, nothing, or `hub[:REPOSITORY]`); or `hub` (`REPOSITORY[:CONFIGURATION]` or a
            directory). Files other than Parquet may be gzipped (.gz).
        split: `TRAIN`, `TRIAL` or `TEST` of SICK (by default all), or a split of a hub data set
            (may be left out where there is only one).
        columns: Column names by role (premise, hypothesis, label, id), where they are not the
            format's own. Where there is no id column the id is the number of the data row.
        label_map: Label by text or number, for labels other than entailment, neutral and
            contradiction, their first letters, entail and contradict, in any case. Numbers mean
            nothing without it, except 0, 1, 2 of SNLI and MNLI.
        on_bad: A bad row is an error, or dropped and counted. A row without a gold label (-1, "-")
            is always dropped and counted.
        limit: Stop after so many pairs, at least 1.

    Raises:
        InputError: The source, a row or an argument cannot be used; the text says where and why.
    """
    _check_options(columns or {}, on_bad, limit)
    kind, where = parse_source(source, _FORMATS)
    meanings = dict(_ALIASES)
    if kind in _REPOSITORIES:
        meanings |= {str(number): label for number, label in enumerate(LABELS)}
    for seen, wanted in (label_map or {}).items():
        meanings[_key(seen)] = _label_of_map(seen, wanted)

    hub = _hub_name(kind, where)
    only = _sick_split(kind, split) if hub is None else None
    roles = _roles(kind, hub is not None) | dict(columns or {})
    needed = [name for role, name in roles.items() if role != "id" or role in (columns or {})]
    asked = Columns((*needed, *([_SICK_SPLIT] if only else [])), roles["id"])
    if hub is not None:
        read = hub_source(hub, split, asked)
    else:
        path = Path(where).expanduser()
        # SNLI and MNLI come as .jsonl and as .txt or .tsv, under the same format.
        distributed = kind in _REPOSITORIES
        shape = ending(path) if distributed else kind
        read = file_source(path, shape, asked, ragged=distributed)

    pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    row_of: dict[str, int] = {}
    with closing(read.rows) as rows:
        for number, row in enumerate(rows, 1):
            try:
                if isinstance(row, BadRowError):
                    raise row
                if only and str(row[_SICK_SPLIT]).upper() != only:
                    continue
                pair = _pair(row, number, roles, meanings)
                if pair.id in row_of:
                    seen = f"the id {pair.id!r} is that of row {row_of[pair.id]} already"
                    raise BadRowError("duplicate id", f"{seen}; choose another column, id=NAME")
            except BadRowError as bad:
                if on_bad == "refuse" and bad.reason != _NO_GOLD:
                    raise InputError(bad.message, where=f"{read.place}:{number}") from None
                dropped[bad.reason] += 1
                continue
            row_of[pair.id] = number
            pairs.append(pair)
            if len(pairs) == limit:
                break
    if not pairs:
        seen = ", ".join(f"{count} with {reason}" for reason, count in sorted(dropped.items()))
        raise InputError(
            f"no pair is left ({seen or 'no data row'}); check the source", where=read.place
        )
    return Reading(tuple(pairs), dict(sorted(dropped.items())), source, read.digest)


def read_labels(path: str | Path) -> dict[str, Label]:
    """A model's labels by item, from a .jsonl, .csv, .tsv or .parquet file.

    Args:
        path: The file, with the columns `item` and `label`.

    Raises:
        InputError: The file or a row cannot be used, or an item stands twice.
    """
    path = Path(path)
    shape = ending(path)
    if shape not in ("jsonl", "csv", "tsv", "parquet"):
        message = "the name does not say the format; wanted .jsonl, .csv, .tsv or .parquet"
        raise InputError(message, where=path)
    read = file_source(path, shape, Columns(("item", "label"), "item"))
    labels: dict[str, Label] = {}
    with closing(read.rows) as rows:
        for number, row in enumerate(rows, 1):
            try:
                if isinstance(row, BadRowError):
                    raise row
                item = str(row["item"])
                if item in labels:
                    raise BadRowError("duplicate item", f"the item {item!r} stands twice; keep one")
                labels[item] = _label(row["label"], _ALIASES)
            except BadRowError as bad:
                raise InputError(bad.message, where=f"{read.place}:{number}") from None
    return labels


def parse_columns(text: str) -> dict[str, str]:
    """Column names by role, from `premise=a,hypothesis=b,label=c,id=d` (any of the four).

    Raises:
        InputError: An item is not ROLE=NAME, names an unknown role, or a role twice.
    """
    columns = _parse_items(text, "--columns", "premise=NAME,hypothesis=NAME,label=NAME,id=NAME")
    _check_options(columns)
    return columns


def parse_map(text: str) -> dict[str, str]:
    """Labels by what the file says, from `maybe=neutral,2=contradiction`.

    Raises:
        InputError: An item is not SEEN=LABEL, has an unknown label, or repeats what was seen.
    """
    items = _parse_items(text, "--label-map", "SEEN=LABEL,SEEN=LABEL")
    return {seen: _label_of_map(seen, wanted).value for seen, wanted in items.items()}


def _check_options(columns: Mapping[str, str], on_bad: str = "drop", limit: int | None = 1) -> None:
    for role in columns:
        if role not in _ROLES:
            wanted = ", ".join(_ROLES)
            message = f"{role!r} is not one of {wanted}; write ROLE=NAME with one of them"
            raise InputError(message, where="--columns")
    if on_bad not in ("refuse", "drop"):
        raise InputError(f"{on_bad!r} is neither refuse nor drop; choose one", where="--on-bad")
    if limit is not None and limit < 1:
        raise InputError(f"{limit} is less than 1; ask for a pair, or for all", where="--limit")


def _parse_items(text: str, option: str, wanted: str) -> dict[str, str]:
    items: dict[str, str] = {}
    for item in text.split(","):
        left, _, right = (part.strip() for part in item.partition("="))
        if not left or not right:
            raise InputError(f"cannot read {item!r} in {text!r}; write {wanted}", where=option)
        if left in items:
            raise InputError(f"{left!r} stands twice in {text!r}; keep one of them", where=option)
        items[left] = right
    return items


def _label_of_map(seen: str, wanted: str) -> Label:
    label = _ALIASES.get(_key(wanted))
    if label is None:
        message = f"{wanted!r} in {seen}={wanted} is not one of {_NAMES}; write one of these"
        raise InputError(message, where="--label-map")
    return label


def _roles(kind: str, on_hub: bool) -> dict[str, str]:
    """The format's own columns by role. Source: the files of SICK, SNLI 1.0 and MultiNLI 1.0."""
    names = _ROLES
    if kind == "sick":
        names = ("sentence_A", "sentence_B", "entailment_label", "pair_ID")
    elif kind in _REPOSITORIES:
        renamed = ("premise", "hypothesis", "label", "pairID")
        names = renamed if on_hub else ("sentence1", "sentence2", "gold_label", "pairID")
    return dict(zip(_ROLES, names, strict=True))


def _hub_name(kind: str, where: str) -> str | None:
    """The hub data set or directory that is meant, or `None` where a file is."""
    if kind in _REPOSITORIES:
        if where in ("", "hub"):
            return _REPOSITORIES[kind]
        if not where.startswith("hub:"):
            return where if Path(where).expanduser().is_dir() else None
    return where.removeprefix("hub:") if kind in ("hub", *_REPOSITORIES) else None


def _sick_split(kind: str, split: str | None) -> str | None:
    if split is None or (kind == "sick" and split.upper() in _SICK_SPLITS):
        return split and split.upper()
    wanted = f"one of {', '.join(_SICK_SPLITS)}" if kind == "sick" else f"there in a {kind} file"
    raise InputError(f"{split!r} is not {wanted}; mend it or leave it out", where="--split")


def _pair(
    row: Mapping[str, object],
    number: int,
    roles: Mapping[str, str],
    meanings: Mapping[str, Label],
) -> Pair:
    label = _label(row[roles["label"]], meanings)
    identity = row.get(roles["id"], number)
    return Pair(
        checked_id(identity),
        checked_text(row[roles["premise"]], "premise"),
        checked_text(row[roles["hypothesis"]], "hypothesis"),
        label,
    )


def _label(value: object, meanings: Mapping[str, Label]) -> Label:
    key = _key(value)
    if key in meanings:
        return meanings[key]
    if key in ("-", "-1"):
        raise BadRowError(_NO_GOLD, _NO_GOLD)
    if value is None or not key:
        raise BadRowError("unknown label", f"the label is empty; {MEND}")
    shown = " ".join(str(value).split())[:40]
    seen = f"label {shown!r} is not one of {_NAMES}; pass "
    seen += f"--label-map {shown}=LABEL for each label of the data"
    if re.fullmatch(r"-?\d+", key):
        seen = f"label {key} is a number, which means something else in every data set, not one of "
        seen += f"{_NAMES}; pass --label-map {key}=LABEL for each number"
    raise BadRowError("unknown label", seen)


def _key(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of whole numbers with a gap in it comes as floats
    return str(value).strip().casefold()
