"""Splits of a corpus as directories, and planted corpora as files.

A split is a directory with `splits.parquet` (`name`, `part`, `id`), `counts.parquet` (documents and
words of every part by bin) and a manifest with the options. It is checked for leaks when it is
made, and holds ids alone: whoever reads it reads the corpus beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from triaxial import __version__
from triaxial.errors import InputError, StoreError
from triaxial.execute import Computing
from triaxial.store import (
    claim_directory,
    digest,
    finish_directory,
    finished_directory,
    read_table,
    table_of,
    write_bytes_atomic,
    write_table,
)
from triaxial.temporal.dedup import DedupOptions
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.splits import (
    Entry,
    PartCount,
    Split,
    SplitOptions,
    gap_series,
    make_splits,
    part_counts,
    time_stratified,
    validate_splits,
)
from triaxial.temporal.stages import Corpus, open_corpus

__all__ = [
    "SPLIT",
    "SplitRules",
    "SplitSet",
    "entries_of",
    "plant_corpus",
    "read_split",
    "split_corpus",
    "split_series",
]

SPLIT = "temporal.split"
VERSION = 1
_PARTS = ("train", "valid", "test")
_GROUPED = ("id", "date", "source")


@dataclass(frozen=True, slots=True)
class SplitSet:
    """A split directory.

    Args:
        place: For errors.
        key: Of what made it.
        corpus: Key of its corpus.
        splits: By name.
        options: How they were made.
        counts: Documents and words of every part by bin.
        empty: Test bins without documents.
    """

    place: str
    key: str
    corpus: str
    splits: Mapping[str, Split]
    options: SplitOptions
    counts: tuple[PartCount, ...]
    empty: tuple[str, ...]

    def named(self, name: str) -> Split:
        """One of the splits.

        Raises:
            InputError: There is none of this name.
        """
        if name not in self.splits:
            there = ", ".join(self.splits)
            raise InputError(f"has no split {name!r}; choose from {there}", where=self.place)
        return self.splits[name]

    def check(self, corpus: Corpus) -> None:
        """Refuses a corpus that the split was not made from."""
        if corpus.key != self.corpus:
            message = f"was made from another corpus than {corpus.place}; name that, or split again"
            raise InputError(message, where=self.place)


@dataclass(frozen=True, slots=True)
class SplitRules:
    """What is asked of a split beside its options.

    Args:
        group: Of a document, where groups are not divided: `date`, `source` or `id`, or one of
            them with a regular expression behind a colon, whose first group (or whole) counts.
        control: Make CONTROL too; without it every document of the test months may be tested.
        near_duplicates: Compare the texts of test documents with all others.
        allow_empty: Whether a test bin may be without documents.
        dedup: What a near-duplicate is.
    """

    group: str | None = None
    control: bool = True
    near_duplicates: bool = True
    allow_empty: bool = False
    dedup: DedupOptions = field(default_factory=DedupOptions)


def split_corpus(
    corpus: str | Path,
    out: str | Path,
    options: SplitOptions,
    rules: SplitRules | None = None,
    *,
    computing: Computing | None = None,
    overwrite: bool = False,
) -> SplitSet:
    """Split a corpus, look for every leak, and write the split.

    Args:
        corpus: Directory of a corpus.
        out: Directory for the split.
        options: Of the split.
        rules: What else is asked of it.
        computing: Where progress is told.
        overwrite: Replace the split of another call.

    Raises:
        InputError: The options do not fit the corpus, or there is a leak.
        StoreError: A directory cannot be used.
    """
    rules, found = rules or SplitRules(), open_corpus(corpus)
    entries = entries_of(found, rules.group)
    return _split(found, entries, Path(out), options, rules, computing, overwrite)


def split_series(
    corpus: str | Path,
    out: str | Path,
    options: SplitOptions,
    rules: SplitRules | None = None,
    *,
    step: int = 6,
    times: int = 11,
    computing: Computing | None = None,
    overwrite: bool = False,
) -> dict[str, SplitSet]:
    """Splits whose training ends earlier and earlier, of one size; errors as of `split_corpus`.

    Args:
        corpus: Directory of a corpus.
        out: Directory for the directories `gap-NNN` (months), one a split.
        options: Of the first.
        rules: Of all; CONTROL is the same in all.
        step: Months between two ends.
        times: How often training ends earlier.
        computing: Where progress is told.
        overwrite: Replace splits of another call.
    """
    rules, found = rules or SplitRules(), open_corpus(corpus)
    if step < 1 or times < 1:
        message = f"{times} times {step} months; wanted at least 1 of each"
        raise InputError(message, where="--gap-series")
    entries = entries_of(found, rules.group)
    made = {}
    for one in gap_series(entries, options, step=step, times=times):
        name = f"gap-{one.gap:03d}"
        made[name] = _split(found, entries, Path(out) / name, one, rules, computing, overwrite)
    return made


def read_split(directory: str | Path) -> SplitSet:
    """A split that was written.

    Raises:
        StoreError: It is none, or was not finished.
    """
    path = Path(directory).expanduser()
    manifest = finished_directory(path, SPLIT, "split; make it with `triax temporal split`")
    facts = manifest["facts"]
    table = read_table(path / "splits.parquet")
    splits = {}
    for name in facts["splits"]:
        mine = table.filter(table["name"] == name)
        parts = (tuple(mine.filter(mine["part"] == part)["id"].to_list()) for part in _PARTS)
        splits[name] = Split(name, *parts)
    counts = tuple(PartCount(*row) for row in read_table(path / "counts.parquet").iter_rows())
    return SplitSet(
        str(path),
        manifest["key"],
        facts["corpus"],
        splits,
        SplitOptions(**facts["options"]),
        counts,
        tuple(facts["empty"]),
    )


def entries_of(corpus: Corpus, group: str | None = None) -> list[Entry]:
    """What a split needs of each document, from the columns without texts.

    Raises:
        InputError: The group cannot be read, or a document has none.
    """
    column, _, pattern = (group or "").partition(":")
    if group is not None and column not in _GROUPED:
        wanted = "date, source or id, and may go on with a regular expression, as in id:^[^/]+"
        raise InputError(f"cannot read {group!r}; it begins with {wanted}", where="--group")
    try:
        form = re.compile(pattern) if pattern else None
    except re.error as error:
        message = f"{pattern!r} is no regular expression ({error}); mend it"
        raise InputError(message, where="--group") from None
    found = []
    for name, date, source, words in corpus.columns().iter_rows():
        value = {"id": name, "date": date, "source": source}.get(column, "")
        if form is not None:
            match = form.search(value)
            if match is None:
                message = f"{pattern!r} is not in the {column} {value!r}; choose another expression"
                raise InputError(message, where="--group")
            value = match[1] if form.groups else match[0]
            value = value or ""  # a group that took no part: the split asks for one
        found.append(Entry(name, date, words, value))
    return found


def plant_corpus(
    out: str | Path, options: PlantOptions | None = None, *, overwrite: bool = False
) -> dict[str, Any]:
    """Write a planted corpus as JSONL, and what was planted beside it (`NAME.truth.json`).

    Args:
        out: A name that ends in .jsonl.
        options: What is planted.
        overwrite: Replace another file of this name.

    Returns:
        Counts: `documents`, `new_words`, `mentions`; and `truth`, the name of that file.

    Raises:
        InputError: The name does not end in .jsonl, or an option is out of its range.
        StoreError: Something else stands there.
    """
    path, options = Path(out).expanduser(), options or PlantOptions()
    if path.suffix != ".jsonl":
        raise InputError("does not end in .jsonl; choose such a name", where=path)
    documents, truth = plant(options)
    lines = [json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in documents]
    told = {"options": asdict(options), **asdict(truth), "function": sorted(truth.function)}
    beside = path.with_suffix(".truth.json")
    files = {
        path: "".join(lines).encode(),
        beside: (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode(),
    }
    for one, data in files.items():
        if one.is_dir() or (one.exists() and not overwrite and one.read_bytes() != data):
            message = "holds something else; choose another name, or pass --overwrite"
            raise StoreError(message, where=one)
    for one, data in files.items():
        write_bytes_atomic(one, data)
    return {
        "documents": len(documents),
        "months": options.months,
        "new_words": len(truth.new),
        "mentions": sum(truth.mentions.values()),
        "file": str(path),
        "truth": str(beside),
    }


def _split(
    corpus: Corpus,
    entries: list[Entry],
    out: Path,
    options: SplitOptions,
    rules: SplitRules,
    computing: Computing | None,
    overwrite: bool,
) -> SplitSet:
    import polars as pl

    told = (computing or Computing()).told("looking for leaks")
    told(0, 1)
    splits = (
        make_splits(entries, options) if rules.control else (time_stratified(entries, options),)
    )
    empty = validate_splits(
        entries,
        splits,
        options,
        documents=corpus if rules.near_duplicates else None,
        dedup=rules.dedup,
        refuse_empty=not rules.allow_empty,
    )
    told(1, 1)
    known = {"options": asdict(options), "rules": asdict(rules)}
    key = digest({"kind": SPLIT, "version": VERSION, "corpus": corpus.key, **known})
    claim_directory(out, SPLIT, key, replace=overwrite)
    rows = [
        (split.name, part, name)
        for split in splits
        for part in _PARTS
        for name in getattr(split, part)
    ]
    schema: dict[str, Any] = dict.fromkeys(("name", "part", "id"), pl.String())
    counts = part_counts(entries, splits, options)
    write_table(out / "splits.parquet", pl.DataFrame(rows, schema=schema, orient="row"))
    write_table(out / "counts.parquet", table_of(counts, PartCount))
    sizes = {one.name: {part: len(getattr(one, part)) for part in _PARTS} for one in splits}
    facts = {"version": __version__, "corpus": corpus.key, "splits": [one.name for one in splits]}
    finish_directory(out, {**facts, "sizes": sizes, "empty": list(empty), **known})
    named = {one.name: one for one in splits}
    return SplitSet(str(out), key, corpus.key, named, options, counts, empty)
