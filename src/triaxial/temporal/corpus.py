"""Dated documents, where they come from, their months and their words.

Documents stream: nothing but the rows at work and a digest of every id is held. A date is ISO with
month or day precision, in UTC; nothing about it is guessed. A fault is one line with the file and
the data row (1 = the first row after the header; blank lines do not count) or, when asked, a
dropped row with a count by reason. The text of a document stays byte-identical.

A source can be cut into shards, each read by itself: byte ranges of plain JSONL, row groups of
Parquet, files of a directory, and runs of rows of whatever can only be read from its beginning.

Source: Lazaridou et al. 2021 (dated documents, Moses words); metadata-lib #103 (day and month
swapped); sacremoses #27 (escaped characters that no longer map back to the text).
Choice: a time without an offset is UTC; a document dated after the crawl is flagged and kept.
Choice: without an id column the id is the number of the data row; without a source column the
source is the name of the file, directory or data set.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from typing import Literal

from triaxial.errors import InputError
from triaxial.nli_rows import MEND, BadRowError, checked_id, checked_text
from triaxial.temporal.corpus_rows import ROLES, Rows, Shard, cut_rows, open_rows
from triaxial.text import Word, words

__all__ = [
    "Bin",
    "CorpusOptions",
    "DataCard",
    "Document",
    "MonthCount",
    "Reading",
    "Shard",
    "bin_of",
    "cut_source",
    "data_card",
    "month_name",
    "month_of",
    "moses_words",
    "read_documents",
    "shard_documents",
]

Bin = Literal["month", "quarter", "half", "year"]
_CACHED = 1 << 16  # spans whose words are remembered: about 40 MB when full
_LONGEST = 48  # characters of such a span; longer ones do not come twice

_DATE = re.compile(
    r"(\d{4})-(\d\d)(?:-(\d\d)"
    r"(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d+)?)?(?:([Zz])|([+-])(\d\d):?(\d\d))?)?)?",
    re.ASCII,
)
_PLAIN = r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"
_SPAN = re.compile(
    rf"({_PLAIN})([,.]?)(?:\s+(?=[A-Za-z0-9])|\s*\Z)|.+?(?:(?<=\s)(?=[A-Za-z0-9])|\Z)", re.S
)


@dataclass(frozen=True, slots=True)
class Document:
    """A dated text.

    Args:
        id: Unique in its corpus.
        date: "YYYY-MM-DD" or "YYYY-MM", in UTC.
        text: As it stands in the source.
        source: Where it was published.
    """

    id: str
    date: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How a source is read.

    Args:
        columns: Column names by role (id, date, text, source), where they are not these words.
        split: Of a hub data set; may be left out where there is only one.
        pattern: File names of a directory of texts, such as "news-{year}-{month}-{day}*.txt":
            4, 2 and 2 digits, {day} may be left out, * is anything. With a slash in it the path
            below the directory is meant. A file that does not fit is a bad row.
        on_bad: A bad row is an error, or dropped and counted.
        crawled: Date of the crawl; documents dated after it are counted as flagged.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    split: str | None = None
    pattern: str | None = None
    on_bad: Literal["refuse", "drop"] = "refuse"
    crawled: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Documents as they come, and what is counted meanwhile.

    Args:
        place: Name of the source in errors.
        documents: To be read once.
        dropped: Rows left out so far, by reason.
        flagged: Documents kept so far that deserve a look, by reason.
    """

    place: str
    documents: Iterator[Document]
    dropped: Counter[str]
    flagged: Counter[str]


@dataclass(frozen=True, slots=True)
class MonthCount:
    """Documents and words of one month, "YYYY-MM"."""

    month: str
    documents: int
    words: int


@dataclass(frozen=True, slots=True)
class DataCard:
    """What a corpus holds; every month from the first to the last stands in it, empty or not."""

    months: tuple[MonthCount, ...]
    documents: int
    words: int
    dropped: dict[str, int]
    flagged: dict[str, int]


def read_documents(source: str, options: CorpusOptions | None = None) -> Reading:
    """Reads dated documents.

    Args:
        source: A path that ends in .jsonl, .csv, .tsv or .parquet, or `FORMAT:WHERE`. FORMAT is one
            of these four; `text` (a directory, with a pattern in the options); or `hub`
            (`REPOSITORY[:CONFIGURATION]` or a directory in the hub's format). Files other than
            Parquet may be gzipped (.gz).
        options: See `CorpusOptions`.

    Raises:
        InputError: The source, an option or, partly while iterating, a row cannot be used.
    """
    return shard_documents(source, None, options)


def shard_documents(
    source: str,
    shard: Shard | None,
    options: CorpusOptions | None = None,
    *,
    seen: set[bytes] | None = None,
) -> Reading:
    """The documents of one shard, the same wherever and how often it is read.

    Args:
        source: As for `read_documents`.
        shard: One of `cut_source`, or `None` for the whole.
        options: See `CorpusOptions`.
        seen: Digests of the ids seen so far (about 100 bytes a document); pass one set to find an
            id that stands in two shards or sources.

    Raises:
        InputError: As for `read_documents`.
    """
    options = options or CorpusOptions()
    _check(options)
    dropped: Counter[str] = Counter()
    flagged: Counter[str] = Counter()
    raw = open_rows(source, shard, options.columns, options.split, options.pattern)
    documents = _documents(raw, options, set() if seen is None else seen, dropped, flagged)
    return Reading(raw.place, documents, dropped, flagged)


def cut_source(
    source: str, options: CorpusOptions | None = None, *, size: int = 1 << 25, rows: int = 20_000
) -> tuple[Shard, ...]:
    """Cuts a source into shards that together hold each row once; at least one shard.

    Plain JSONL and directories are cut by bytes, without reading them; Parquet by its row groups;
    the rest by rows, which are counted by reading it once, and later read from its beginning.

    Args:
        source: As for `read_documents`.
        options: The same as for reading.
        size: Bytes of a shard of JSONL or of a directory; a longer line or file stays whole.
        rows: Rows of any other shard; a larger row group stays whole.

    Raises:
        InputError: The source cannot be read.
    """
    options = options or CorpusOptions()
    _check(options)
    if size < 1 or rows < 1:
        raise InputError(f"shards of {size} bytes or {rows} rows; wanted at least 1 of each")
    columns, split, pattern = options.columns, options.split, options.pattern
    return cut_rows(source, columns, split, pattern, size=size, rows=rows)


def data_card(
    dated: Iterable[tuple[str, int]],
    *,
    dropped: Mapping[str, int] | None = None,
    flagged: Mapping[str, int] | None = None,
) -> DataCard:
    """Counts by month.

    Args:
        dated: Date and number of words of every document.
        dropped: Rows left out by reason, of all shards.
        flagged: Documents flagged by reason, of all shards.
    """
    documents: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for when, count in dated:
        month = month_of(when)
        documents[month] += 1
        total[month] += count
    span = range(min(documents), max(documents) + 1) if documents else range(0)
    return DataCard(
        tuple(MonthCount(month_name(month), documents[month], total[month]) for month in span),
        documents.total(),
        total.total(),
        dict(sorted((dropped or {}).items())),
        dict(sorted((flagged or {}).items())),
    )


def month_of(date: str) -> int:
    """Months since year 0 of an ISO date: 12 * year + month - 1."""
    return 12 * int(date[:4]) + int(date[5:7]) - 1


def month_name(month: int) -> str:
    """The month "YYYY-MM" of a number of `month_of`."""
    return f"{month // 12:04d}-{month % 12 + 1:02d}"


def bin_of(date: str, kind: Bin) -> str:
    """The bin that a date falls into: "2021-03", "2021-Q1", "2021-H1" or "2021"."""
    month = int(date[5:7]) - 1
    match kind:
        case "month":
            return date[:7]
        case "quarter":
            return f"{date[:4]}-Q{month // 3 + 1}"
        case "half":
            return f"{date[:4]}-H{month // 6 + 1}"
        case "year":
            return date[:4]


def moses_words(text: str) -> tuple[Word, ...]:
    """Moses words with offsets into the text: what `triaxial.text.words` gives, faster.

    The text is cut before every letter or digit (of ASCII) that follows white space, and the words
    of a span are remembered. Nothing of the tokenizer reaches over such a cut but two things, which
    are given to the span: whether the text ends there, and whether a lower-case letter, a capital
    or a digit follows. (Its rules for commas and apostrophes see one character on either side, and
    none begins at a letter or digit; its rule for full stops sees the first character of the next
    word.) By the same rules, letters, digits and inner hyphens are one word, a comma behind them is
    another, and so is a full stop before a capital or a digit, save after an abbreviation.

    Raises:
        InputError: The tokenizer changed a character, so that a word has no place in the text.
    """
    found: list[Word] = []
    abbreviations = _abbreviations()
    for match in _SPAN.finditer(text):
        at, end = match.span()
        plain, sign = match.groups()
        if plain and "MULTI" not in plain and (sign != "." or plain not in abbreviations):
            middle = at + len(plain)
            if sign == "." and text[end : end + 1].islower():
                found.append(Word(plain + sign, at, middle + 1))
                continue
            found.append(Word(plain, at, middle))
            if sign:
                found.append(Word(sign, middle, middle + 1))
            continue
        follows = _follows(text[end]) if end < len(text) else ""
        parts = _span_words if end - at <= _LONGEST else _span_words.__wrapped__
        found += [Word(word, at + i, at + j) for word, i, j in parts(match[0], follows)]
    return tuple(found)


@cache
def _abbreviations() -> frozenset[str]:
    from sacremoses.corpus import NonbreakingPrefixes

    # "No #NUMERIC_ONLY#": before a digit alone.
    return frozenset(line.split()[0] for line in NonbreakingPrefixes().words("en") if line.strip())


@lru_cache(_CACHED)
def _span_words(span: str, follows: str) -> tuple[tuple[str, int, int], ...]:
    found = words(span + follows)
    if follows:
        assert found[-1].text == follows, "the next word is one of its own"
        found = found[:-1]
    return tuple((word.text, word.start, word.end) for word in found)


def _follows(character: str) -> str:
    return "0" if character.isdigit() else "a" if character.islower() else "A"


def _documents(
    raw: Rows,
    options: CorpusOptions,
    seen: set[bytes],
    dropped: Counter[str],
    flagged: Counter[str],
) -> Iterator[Document]:
    names = {role: options.columns.get(role, role) for role in ROLES}
    crawled = options.crawled and _iso_date(options.crawled)
    before: int | None = None
    for number, row in enumerate(raw.rows, 1):
        try:
            if isinstance(row, BadRowError):
                raise row
            if names["id"] not in row and before is None:
                before = raw.before()
            published = row.get(names["source"])
            document = Document(
                checked_id(row.get(names["id"], (before or 0) + number)),
                _iso_date(row[names["date"]]),
                checked_text(row[names["text"]], "text"),
                raw.name if published is None else checked_text(published, "source"),
            )
            key = hashlib.blake2b(document.id.encode(), digest_size=16).digest()
            if key in seen:
                message = f"the id {document.id!r} stands in an earlier row; {MEND}"
                raise BadRowError("duplicate id", message)
            seen.add(key)
        except BadRowError as bad:
            if options.on_bad == "drop":
                dropped[bad.reason] += 1
                continue
            at = raw.where(number) if raw.where else f"{raw.place}:{raw.before() + number}"
            raise InputError(bad.message, where=at) from None
        if crawled and document.date[: len(crawled)] > crawled[: len(document.date)]:
            flagged["dated after the crawl"] += 1
        yield document


# Values.


def _iso_date(value: object) -> str:
    if value is None or value == "":
        raise BadRowError("missing date", f"the date is missing; {MEND}")
    try:
        if isinstance(value, datetime):
            return (value.astimezone(UTC) if value.tzinfo else value).date().isoformat()
        if isinstance(value, date):
            return value.isoformat()
        match = _DATE.fullmatch(value) if isinstance(value, str) else None
        if match is not None:
            return _in_utc(match)
    except (ValueError, OverflowError):
        seen = f"there is no such date as {str(value)!r}"
        raise BadRowError("impossible date", f"{seen}; {MEND}") from None
    wanted = "2021-03, 2021-03-07 or 2021-03-07T23:30:00+02:00"
    seen = f"the date {str(value)[:40]!r} is not ISO; wanted {wanted}"
    raise BadRowError("date not ISO", f"{seen} (day and month are never guessed); {MEND}")


def _in_utc(match: re.Match[str]) -> str:
    year, month, day, hour, minute, second, _, sign, hours, minutes = match.groups(default="0")
    if match[3] is None:
        return datetime(int(year), int(month), 1).date().isoformat()[:7]
    there = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second))
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError("no such offset")
    ahead = timedelta(hours=int(hours), minutes=int(minutes))
    return (there + ahead if sign == "-" else there - ahead).date().isoformat()


# Options.


def _check(options: CorpusOptions) -> None:
    for role in options.columns:
        if role not in ROLES:
            message = f"{role!r} is not one of {', '.join(ROLES)}; write ROLE=NAME"
            raise InputError(message, where="--columns")
    if options.on_bad not in ("refuse", "drop"):
        message = f"{options.on_bad!r} is neither refuse nor drop; choose one"
        raise InputError(message, where="--on-bad")
    if options.crawled is not None:
        try:
            _iso_date(options.crawled)
        except BadRowError as bad:
            raise InputError(bad.message.removesuffix(f"; {MEND}"), where="--crawled") from None
