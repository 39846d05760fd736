"""A corpus as a directory: documents of any sources, cleaned, told apart, counted.

A corpus is a directory with the documents (`part-*.parquet`), the near-duplicates that were left
out (`duplicates.parquet`), a card (`card.json`, `card.md`) and a manifest. Sources are read shard
by shard into the store, and near-duplicates are looked for over all of them.

Held at a time: a shard (32 MB of JSONL or of text files, 20,000 rows of anything else, or a larger
row group of Parquet), and what tells documents apart: about 660 bytes each.

Choice: of two documents with one id in two sources the first is kept, where bad rows are dropped.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triaxial import __version__, execute
from triaxial.errors import InputError
from triaxial.execute import Computing
from triaxial.nli_rows import Columns, hub_source
from triaxial.store import (
    Stage,
    Store,
    claim_directory,
    digest,
    file_digest,
    finish_directory,
    read_json,
    read_table,
    table_of,
    write_bytes_atomic,
    write_json,
    write_table,
)
from triaxial.temporal.corpus import (
    CorpusOptions,
    DataCard,
    Document,
    Shard,
    cut_source,
    data_card,
    moses_words,
    shard_documents,
)
from triaxial.temporal.dedup import (
    DedupOptions,
    Duplicate,
    language_of,
    near_duplicates,
    only_language,
)
from triaxial.temporal.stages import CORPUS

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ReadOptions", "ingest"]

VERSION = 1  # of the corpus, bumped by hand whenever the same sources and options give another one
SHARD_BYTES, SHARD_ROWS = 1 << 25, 20_000
_FILES = ("jsonl", "csv", "tsv", "parquet", "text")
_COLUMNS = ["id", "date", "text", "source"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Which documents of a source are kept.

    Args:
        corpus: How its rows are read.
        language: ISO 639-1; `None` keeps every language.
    """

    corpus: CorpusOptions = field(default_factory=CorpusOptions)
    language: str | None = "en"


def ingest(
    sources: Sequence[str],
    out: str | Path,
    options: ReadOptions | None = None,
    dedup: DedupOptions | None = None,
    computing: Computing | None = None,
    *,
    duplicates: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Read sources into a corpus; called again after an interruption it goes on where it stopped.

    Args:
        sources: As for `corpus.read_documents`, all with the same options.
        out: Directory for the corpus.
        options: What is kept.
        dedup: What a near-duplicate is.
        computing: How the work is done.
        duplicates: Keep near-duplicates.
        overwrite: Replace the corpus of another call.

    Returns:
        What the manifest says: `documents`, `words`, `dropped` and `flagged` (counts by reason),
        `months` (first, last), `sources`, `options`.

    Raises:
        InputError: A source, row or option cannot be used, or no document is left.
        StoreError: `out` holds something else, or cannot be written.
    """
    options, computing, out = options or ReadOptions(), computing or Computing(), Path(out)
    dedup = None if duplicates else dedup or DedupOptions()
    if not sources:
        raise InputError("no source; name at least one")
    for source, times in Counter(sources).items():
        if times > 1:
            raise InputError("is given twice; name it once", where=source)
    rows = [_source_rows(source, options, computing) for source in sources]
    about = {"options": asdict(options), "dedup": None if dedup is None else asdict(dedup)}
    keys = [one.stage.key for one in rows]
    key = digest({"kind": CORPUS, "version": VERSION, "sources": keys, "dedup": about["dedup"]})
    claim_directory(out, CORPUS, key, replace=overwrite)
    manifest = read_json(out / "manifest.json")
    if manifest["complete"] and all((out / name).is_file() for name in manifest["files"]):
        found: dict[str, Any] = manifest["facts"]
        return found
    for one in rows:
        _read_source(one, computing)
    kept = _Kept(rows)
    refused = kept.keep_first(options.corpus.on_bad)
    removed: tuple[Duplicate, ...] = ()
    if dedup is not None:
        told = computing.told("looking for near-duplicates")
        told(0, 1)
        removed = near_duplicates(kept, dedup)
        kept.remove({one.id for one in removed})
        told(1, 1)
    dropped, flagged = _counts(rows)
    dropped += Counter({"duplicate id": refused, "near-duplicate": len(removed)})
    card = kept.write(out, dropped=+dropped, flagged=flagged)
    if not card.documents:
        why = ", ".join(f"{count:,} {reason}" for reason, count in card.dropped.items())
        message = f"no document is left ({why or 'there are no rows'}); mend or choose the source"
        raise InputError(message, where=", ".join(sources))
    write_table(out / "duplicates.parquet", table_of(removed, Duplicate))
    write_json(out / "card.json", card)
    write_bytes_atomic(out / "card.md", _card_text(card, rows).encode())
    facts = {
        "version": __version__,
        "documents": card.documents,
        "words": card.words,
        "dropped": card.dropped,
        "flagged": card.flagged,
        "months": [card.months[0].month, card.months[-1].month],
        "sources": [{"name": one.name, "digest": one.stage.inputs[0]} for one in rows],
        **about,
    }
    finish_directory(out, facts)
    return facts


@dataclass(frozen=True, slots=True)
class _SourceRows:
    """A source in two stages: its documents, and what was left out or flagged.

    The first has `id`, `date`, `text`, `source`, `words` and `dropped`, the reason why a document
    is not kept (its text is "" then) or null; the second `kind`, `reason`, `count`.
    """

    source: str
    name: str
    options: ReadOptions
    stage: Stage
    funnel: Stage

    @property
    def parts(self) -> list[Path]:
        """The files of a read source."""
        return [self.stage.path / name for name in sorted(self.stage.manifest["parts"])]


class _Kept:
    """The documents of all sources that are kept so far, as often as they are read."""

    def __init__(self, rows: Sequence[_SourceRows]) -> None:
        import numpy as np

        self.parts = [(one.source, part) for one in rows for part in one.parts]
        self.masks: list[Any] = []  # which rows of each part
        for _, part in self.parts:
            reasons = read_table(part, ["dropped"])["dropped"]
            self.masks.append(np.array(reasons.is_null().to_numpy()))

    def __iter__(self) -> Iterator[Document]:
        for (_, part), mask in zip(self.parts, self.masks, strict=True):
            for row in read_table(part, _COLUMNS).filter(mask).iter_rows():
                yield Document(*row)

    def keep_first(self, on_bad: str) -> int:
        """Leaves out documents with the id of an earlier source; how many there are."""
        if len({source for source, _ in self.parts}) < 2:
            return 0
        owner: dict[bytes, int] = {}
        names = list(dict.fromkeys(source for source, _ in self.parts))
        refused = 0
        for (source, part), mask in zip(self.parts, self.masks, strict=True):
            number = names.index(source)
            for row, name in enumerate(read_table(part, ["id"])["id"]):
                (key,) = _keys([name])
                first = owner.setdefault(key, number)
                if first == number or not mask[row]:
                    continue
                if on_bad == "refuse":
                    raise InputError(
                        f"its id {name!r} stands in {names[first]} too; give every document an id "
                        "of its own (--columns id=NAME), or drop later ones with --on-bad drop",
                        where=source,
                    )
                mask[row] = False
                refused += 1
        return refused

    def remove(self, ids: set[str]) -> None:
        """Leaves documents out."""
        for (_, part), mask in zip(self.parts, self.masks, strict=True):
            for row, name in enumerate(read_table(part, ["id"])["id"]):
                mask[row] &= name not in ids

    def write(self, out: Path, *, dropped: Counter[str], flagged: Counter[str]) -> DataCard:
        """Writes the parts, those without documents left out, and counts by month."""

        def dated() -> Iterator[tuple[str, int]]:
            number = 0
            for (_, part), mask in zip(self.parts, self.masks, strict=True):
                table = read_table(part, [*_COLUMNS, "words"]).filter(mask)
                if len(table):
                    write_table(out / f"part-{number:05d}.parquet", table)
                    number += 1
                yield from table.select("date", "words").iter_rows()

        return data_card(dated(), dropped=dropped, flagged=flagged)


def _source_rows(source: str, options: ReadOptions, computing: Computing) -> _SourceRows:
    """The stages of a source, read or not; its digest is taken."""
    if options.language is not None:
        list(only_language((), options.language))  # refuses a language that is not known
    kind, _, where = source.partition(":")
    kind, where = (kind, where) if kind in (*_FILES, "hub") else ("", source)
    name = where if kind == "hub" else Path(where).name
    about = {"format": kind, "name": name, "cut": [SHARD_BYTES, SHARD_ROWS], **asdict(options)}
    inputs = [_source_digest(kind, where, options.corpus)]
    store = Store(computing.store)
    stages = (store.stage(f"temporal.{n}", VERSION, about, inputs) for n in ("read", "funnel"))
    return _SourceRows(source, name, options, *stages)


def _read_source(rows: _SourceRows, computing: Computing) -> None:
    """Read what is not read yet; ids differ over all shards, after a resume too."""
    stage, funnel = rows.stage, rows.funnel
    if stage.complete and funnel.complete:
        return
    source, options = rows.source, rows.options
    shards = cut_source(source, options.corpus, size=SHARD_BYTES, rows=SHARD_ROWS)
    stage.plan(len(shards))
    there = [stage.has(n) and funnel.has(n) for n in range(len(shards))]
    missing = [shard for shard, done in zip(shards, there, strict=True) if not done]
    read = partial(_shard_tables, source, options)
    found = execute.run(read, missing, workers=computing.workers, ray=computing.ray, large=True)
    told = computing.told(f"reading {rows.name}")
    seen: set[bytes] = set()
    for number, shard in enumerate(shards):
        told(number, len(shards))
        if there[number]:
            part = stage.path / f"part-{number:05d}.parquet"
            seen |= _keys(read_table(part, ["id"])["id"])
            continue
        _, (documents, counts) = next(found)
        if not seen.isdisjoint(_keys(documents["id"])):  # again, to name the row or to drop it
            documents, counts = _shard_tables(source, options, shard, seen)
        funnel.write(number, counts)
        stage.write(number, documents)
        seen |= _keys(documents["id"])
    funnel.finish(len(shards))
    stage.finish(len(shards))
    told(len(shards), len(shards))


def _shard_tables(
    source: str, options: ReadOptions, shard: Shard, seen: set[bytes] | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Documents of a shard, and counts of what was left out, given ids of earlier ones."""
    import polars as pl

    reading = shard_documents(source, shard, options.corpus, seen=None if seen is None else {*seen})
    rows: list[tuple[str, str, str, str, int, str | None]] = []
    for one in reading.documents:
        reason, count = None, 0
        if options.language is not None:
            found, _ = language_of(one.text)
            reason = None if found == options.language else f"language {found}"
        if reason is None:
            try:
                count = len(moses_words(one.text))
            except InputError as error:
                if options.corpus.on_bad == "refuse":
                    seen_there = f"the document {one.id!r} has a word without a place ({error})"
                    mend = "mend its text, or drop bad rows with --on-bad drop"
                    raise InputError(f"{seen_there}; {mend}", where=reading.place) from None
                reason = "word without a place"
        # The id of a document that is not kept is remembered, so that it is known after a resume.
        text = one.text if reason is None else ""
        rows.append((one.id, one.date, text, one.source, count, reason))
    schema: dict[str, Any] = dict.fromkeys(_COLUMNS, pl.String())
    schema |= {"words": pl.Int32(), "dropped": pl.String()}
    counts = [
        (kind, reason, count)
        for kind, counter in (("dropped", reading.dropped), ("flagged", reading.flagged))
        for reason, count in sorted(counter.items())
    ]
    kinds: dict[str, Any] = {"kind": pl.String(), "reason": pl.String(), "count": pl.Int64()}
    return (
        pl.DataFrame(rows, schema=schema, orient="row"),
        pl.DataFrame(counts, schema=kinds, orient="row"),
    )


def _keys(ids: Iterable[str]) -> set[bytes]:
    """Digests of ids, as `shard_documents` keeps them."""
    return {hashlib.blake2b(name.encode(), digest_size=16).digest() for name in ids}


def _source_digest(kind: str, where: str, options: CorpusOptions) -> str:
    if kind == "hub":
        return hub_source(where, options.split, Columns((), "id")).digest
    path = Path(where).expanduser()
    if not path.is_dir():
        return file_digest(path)
    files = [(file.relative_to(path), file) for file in sorted(path.rglob("*")) if file.is_file()]
    shown = [(name, file) for name, file in files if not any(p[0] == "." for p in name.parts)]
    return digest([[name.as_posix(), file_digest(file)] for name, file in shown])


def _counts(rows: Sequence[_SourceRows]) -> tuple[Counter[str], Counter[str]]:
    """Dropped rows and flagged documents of all sources, by reason."""
    dropped: Counter[str] = Counter()
    flagged: Counter[str] = Counter()
    for one in rows:
        for kind, reason, count in one.funnel.read().iter_rows():
            (dropped if kind == "dropped" else flagged)[reason] += count
        for part in one.parts:
            reasons = read_table(part, ["dropped"])["dropped"].drop_nulls()
            dropped.update(str(reason) for reason in reasons)
    return dropped, flagged


def _card_text(card: DataCard, rows: Sequence[_SourceRows]) -> str:
    """The card for people."""
    lines = [
        "# Corpus",
        "",
        f"{card.documents:,} documents, {card.words:,} words, {card.months[0].month} to "
        f"{card.months[-1].month}, from {', '.join(one.name for one in rows)}.",
        "",
    ]
    for title, counts in (("Left out", card.dropped), ("Flagged, kept", card.flagged)):
        told = "; ".join(f"{count:,} {reason}" for reason, count in counts.items())
        lines += [f"{title}: {told or 'nothing'}.", ""]
    lines += ["| month | documents | words |", "|---|---:|---:|"]
    lines += [f"| {one.month} | {one.documents:,} | {one.words:,} |" for one in card.months]
    return "\n".join(lines) + "\n"
