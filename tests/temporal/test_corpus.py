"""Dated documents: each format, each fault with its one line, months, shards, and Moses words."""

from __future__ import annotations

import gzip
import itertools
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.temporal.corpus import (
    CorpusOptions,
    Document,
    MonthCount,
    Shard,
    bin_of,
    cut_source,
    data_card,
    month_name,
    month_of,
    moses_words,
    read_documents,
    shard_documents,
)
from triaxial.text import words

ROW = {"id": "x", "date": "2021-03-07", "text": "A dog runs.", "source": "news"}
DROP = CorpusOptions(on_bad="drop")
TEXT = CorpusOptions(pattern="news-{year}-{month}-{day}*.txt")
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file: text, bytes, or rows as JSONL, gzipped by its name; gives its path."""

    def writer(name: str, content: str | bytes | list[Any]) -> str:
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return writer


def read(source: str, options: CorpusOptions | None = None) -> list[Document]:
    return list(read_documents(source, options).documents)


def refusal(source: str, options: CorpusOptions | None = None) -> str:
    """The text of the refusal, without the directory of the file; always one line."""
    with pytest.raises(InputError) as caught:
        read(source, options)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text.replace(f"{Path(source.split(':', 1)[-1]).parent}/", "")


def dated(value: object, tmp_path: Path) -> str:
    """The date of a document whose row has this value."""
    path = tmp_path / "dated.jsonl"
    path.write_text(json.dumps({**ROW, "date": value}))
    return read(str(path))[0].date


# Months.


@given(st.integers(0, 9999), st.integers(1, 12), st.integers(1, 28))
def test_a_month_has_one_number_and_one_name(year: int, month: int, day: int) -> None:
    name = f"{year:04d}-{month:02d}"
    assert month_of(f"{name}-{day:02d}") == month_of(name) == 12 * year + month - 1
    assert month_name(month_of(name)) == name
    after = f"{year + month // 12:04d}-{month % 12 + 1:02d}"
    assert month_name(month_of(name) + 1) == after


def test_months_over_a_year_end_by_hand() -> None:
    assert month_of("2018-01") - month_of("2017-12-31") == 1
    assert month_of("2019-12") - month_of("2018-01") == 23
    assert month_name(month_of("2018-02") - 3) == "2017-11"
    assert month_name(month_of("2018-01-15") + 24) == "2020-01"


def test_bins_by_hand() -> None:
    months = [f"2021-{month:02d}" for month in range(1, 13)]
    assert [bin_of(m + "-28", "month") for m in months] == months
    quarters = [f"2021-Q{n}" for n in (1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4)]
    assert [bin_of(m, "quarter") for m in months] == quarters
    assert [bin_of(m, "half") for m in months] == ["2021-H1"] * 6 + ["2021-H2"] * 6
    assert {bin_of(m, "year") for m in months} == {"2021"}


# Dates.


@pytest.mark.parametrize(
    ("seen", "kept"),
    [
        ("2021-03", "2021-03"),
        ("2020-02-29", "2020-02-29"),
        ("2021-03-07T12:00", "2021-03-07"),
        ("2021-03-07 23:59:59.999Z", "2021-03-07"),
        # A year ends elsewhere earlier or later than in UTC.
        ("2020-12-31T23:30:00-02:00", "2021-01-01"),
        ("2021-01-01T00:30:00+01:00", "2020-12-31"),
        ("2021-01-01T05:29+0530", "2020-12-31"),
        ("2021-01-01T05:30+05:30", "2021-01-01"),
        ("2020-03-01T00:00+00:01", "2020-02-29"),
    ],
)
def test_a_date_is_iso_and_in_utc(tmp_path: Path, seen: str, kept: str) -> None:
    assert dated(seen, tmp_path) == kept


@settings(max_examples=50, deadline=None)
@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.integers(-1439, 1439))
def test_offsets_against_the_library(
    tmp_path_factory: pytest.TempPathFactory, there: datetime, minutes: int
) -> None:
    aware = there.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=minutes)))
    path = tmp_path_factory.getbasetemp()
    assert dated(aware.isoformat(), path) == aware.astimezone(UTC).date().isoformat()


@pytest.mark.parametrize("bad", ["03/07/2021", "2021-3-7", "20210307", "7 March 2021", "2021"])
@pytest.mark.parametrize("more", ["", " "])
def test_what_is_not_iso_is_never_guessed(write: Write, bad: str, more: str) -> None:
    assert refusal(write("a.jsonl", [ROW, {**ROW, "id": "y", "date": bad + more}])) == (
        f"a.jsonl:2: the date '{bad + more}' is not ISO; wanted 2021-03, 2021-03-07 or "
        "2021-03-07T23:30:00+02:00 (day and month are never guessed); "
        "mend the row, or drop bad rows with --on-bad drop"
    )


@pytest.mark.parametrize("bad", ["2021-13", "2021-02-29", "2021-00-01", "2021-01-00", "0000-01"])
@pytest.mark.parametrize("time", ["", "T24:00", "T00:00+24:00", "T00:00+01:60"])
def test_impossible_dates_are_refused(write: Write, bad: str, time: str) -> None:
    value = ("2021-01-01" if time else bad) + time
    seen = refusal(write("a.jsonl", [{**ROW, "date": value}]))
    assert seen.startswith(f"a.jsonl:1: there is no such date as '{value}'; mend the row")


def test_a_date_before_the_first_year_in_utc_is_refused(write: Write) -> None:
    path = write("a.jsonl", [{**ROW, "date": "0001-01-01T00:00+01:00"}])
    assert refusal(path).startswith("a.jsonl:1: there is no such date as '0001-01-01T00:00+01:00'")


def test_dates_after_the_crawl_are_kept_and_flagged(write: Write) -> None:
    dates = ["2021-03-07", "2021-03-08", "2021-03", "2021-04", "2022-01-01"]
    path = write("a.jsonl", [{**ROW, "id": day, "date": day} for day in dates])
    reading = read_documents(path, CorpusOptions(crawled="2021-03-07T23:00-02:00"))
    assert [document.date for document in reading.documents] == dates
    # The crawl was on 8 March in UTC: 2021-04 and 2022-01-01 are later.
    assert reading.flagged == {"dated after the crawl": 2}
    reading = read_documents(path, CorpusOptions(crawled="2021-03"))
    assert (len(list(reading.documents)), reading.flagged.total()) == (5, 2)
    assert refusal(path, CorpusOptions(crawled="today")).startswith(
        "--crawled: the date 'today' is not ISO; wanted 2021-03"
    )


# Formats.


def test_jsonl_as_it_stands(write: Write) -> None:
    text = "  A\xa0dog \u2028 runs.\r\n\tIt's \u0301 \U0001f415 "
    rows = [{**ROW, "text": text, "more": 1}, {"date": "2021-03", "text": "b"}]
    line = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    for name in ("a.jsonl", "a.jsonl.gz"):
        assert read(write(name, "\ufeff" + line)) == [
            Document("x", "2021-03-07", text, "news"),
            # No id: the number of the row; no source: the name of the file.
            Document("2", "2021-03", "b", name),
        ]


def test_columns_by_role(write: Write) -> None:
    path = write("a.jsonl", [{"key": 7, "when": "2021-03", "body": "b", "paper": "p"}])
    columns = {"id": "key", "date": "when", "text": "body", "source": "paper"}
    options = CorpusOptions(columns=columns)
    assert read(path, options) == [Document("7", "2021-03", "b", "p")]
    assert refusal(path).startswith("a.jsonl:1: column 'date' is missing, there are 'key', 'when'")
    none = CorpusOptions(columns={"writer": "paper"})
    assert refusal(path, none) == (
        "--columns: 'writer' is not one of id, date, text, source; write ROLE=NAME"
    )


def test_csv_and_tsv(write: Write) -> None:
    long = "word " * 60_000  # beyond the csv module's own limit
    path = write("a.csv", f'id,date,text,source\n1,2021-03,"a\nb, ""c""",s\n2,2021-04,{long},s\n')
    assert [document.text for document in read(path)] == ['a\nb, "c"', long]
    assert read(write("a.tsv.gz", 'date\ttext\n2021-03\t"a\n')) == [
        Document("1", "2021-03", '"a', "a.tsv.gz")
    ]
    assert refusal(write("b.csv", "date,text\n2021-03\n")).startswith("b.csv:1: 1 fields, but the")


def parquet(path: Path, rows: list[dict[str, Any]], group: int = 2) -> str:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=group)
    return str(path)


def test_parquet(tmp_path: Path, write: Write) -> None:
    late = datetime(2020, 12, 31, 23, 30, tzinfo=timezone(timedelta(hours=-2)))
    rows = [{"date": late, "text": "a", "year": 1}, {"date": None, "text": "b", "year": 1}]
    path = parquet(tmp_path / "a.parquet", rows)
    reading = read_documents(path, DROP)
    assert list(reading.documents) == [Document("1", "2021-01-01", "a", "a.parquet")]
    assert reading.dropped == {"missing date": 1}
    assert refusal(path).startswith("a.parquet:2: the date is missing; mend the row")
    days = parquet(tmp_path / "b.parquet", [{"date": date(2021, 3, 7), "text": "a"}])
    assert read(days)[0].date == "2021-03-07"
    wanted = CorpusOptions(columns={"source": "paper"})
    assert refusal(days, wanted).startswith("b.parquet: column 'paper' is missing, there are")
    assert refusal(write("c.parquet", b"PAR1" * 9)).startswith("c.parquet: not Parquet, ")
    data = Path(path).read_bytes()
    assert refusal(write("d.parquet", data[:4] + b"\xff" * 80 + data[84:])).startswith("d.parquet")


def test_a_data_set_in_the_format_of_the_hub(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    write("hub/train.jsonl", [{**ROW, "paper": "p"}, {**ROW, "id": "y", "date": "no"}])
    options = CorpusOptions(columns={"source": "paper"}, on_bad="drop")
    reading = read_documents(f"hub:{tmp_path / 'hub'}", options)
    assert list(reading.documents) == [Document("x", "2021-03-07", "A dog runs.", "p")]
    assert reading.dropped == {"date not ISO": 1}
    assert ":2: the date 'no' is not ISO" in refusal(f"hub:{tmp_path / 'hub'}")


def test_a_directory_of_texts(tmp_path: Path, write: Write) -> None:
    write("t/b/news-2021-03-07-x.txt", "\ufeffa\r\nb ")
    write("t/a/news-2020-12-31.txt", "c")
    write("t/.hidden/news-2020-12-31.txt", "c")
    source = f"text:{tmp_path / 't'}"
    expected = [
        Document("a/news-2020-12-31.txt", "2020-12-31", "c", "t"),
        Document("b/news-2021-03-07-x.txt", "2021-03-07", "a\r\nb ", "t"),
    ]
    assert read(source, TEXT) == expected
    below = CorpusOptions(pattern="*/news-{year}-{month}*.txt")
    assert [document.date for document in read(source, below)] == ["2020-12", "2021-03"]
    write("t/c/news-21-03-07.txt", "d")
    assert refusal(source, TEXT) == (
        "t/c/news-21-03-07.txt: the name does not fit the pattern; "
        "mend the row, or drop bad rows with --on-bad drop"
    )
    reading = read_documents(source, CorpusOptions(pattern=TEXT.pattern, on_bad="drop"))
    assert (list(reading.documents), reading.dropped) == (expected, {"name without date": 1})
    write("t/a/news-2021-02-30.txt", "d")
    assert "no such date as '2021-02-30'" in refusal(source, TEXT)
    write("t/a/news-2021-02-30.txt", b"d\xe9")
    assert "a/news-2021-02-30.txt: byte 2, 0xe9, is not UTF-8; save" in refusal(source, TEXT)


@pytest.mark.parametrize("pattern", [None, "*", "{year}", "{year}-{month}-{month}", "{y}{month}"])
def test_a_pattern_says_where_the_date_stands(write: Write, pattern: str | None) -> None:
    source = f"text:{Path(write('t/a.txt', 'a')).parent}"
    assert refusal(source, CorpusOptions(pattern=pattern)) == (
        f"--pattern: {pattern or ''!r} does not say where the date stands; wanted {{year}} and "
        "{month}, and {day} where there is one, each once"
    )


# Faults.


@pytest.mark.parametrize(
    ("row", "reason", "seen"),
    [
        ({**ROW, "text": " \n"}, "empty text", "the text is empty; mend the row"),
        ({**ROW, "text": None}, "text not text", "the text is null, not text"),
        ({**ROW, "text": "a\ud800"}, "text not text", r"the text has half a character, '\ud800'"),
        ({**ROW, "date": None}, "missing date", "the date is missing"),
        ({**ROW, "date": ""}, "missing date", "the date is missing"),
        ({**ROW, "date": 20210307}, "date not ISO", "the date '20210307' is not ISO"),
        ({**ROW, "id": 1.0}, "id not text", "the id is a float, not text"),
        ({**ROW, "id": ""}, "empty id", "the id is empty"),
        ({**ROW, "source": 3}, "source not text", "the source is a int, not text"),
        ({"id": "y", "text": "a"}, "missing column", "column 'date' is missing, there are 'id'"),
        ([1], "invalid JSON", "a list; wanted one JSON object a line"),
        (ROW, "duplicate id", "the id 'x' stands in an earlier row; mend the row"),
    ],
)
def test_a_bad_row_is_refused_or_counted(write: Write, row: Any, reason: str, seen: str) -> None:
    path = write("a.jsonl", [ROW, row, {**ROW, "id": "z"}])
    assert refusal(path).startswith(f"a.jsonl:2: {seen}")
    reading = read_documents(path, DROP)
    assert [document.id for document in reading.documents] == ["x", "z"]
    assert reading.dropped == {reason: 1}


def test_bytes_that_are_not_utf8_and_lines_that_are_not_json(write: Write) -> None:
    good = json.dumps(ROW).encode()
    path = write("a.jsonl.gz", b'{"text": "\xe9"}\n' + good + b'\n{"text": \n')
    assert refusal(path) == (
        "a.jsonl.gz:1: byte 11 of the row, 0xe9, is not UTF-8; save the file as UTF-8"
    )
    reading = read_documents(path, DROP)
    assert [document.id for document in reading.documents] == ["x"]
    assert reading.dropped == {"not UTF-8": 1, "invalid JSON": 1}


def test_a_cut_gzip_file_is_an_error_after_its_whole_rows(write: Write, tmp_path: Path) -> None:
    rows = [{**ROW, "id": str(n), "text": f"{n * 7919 % 1009} dogs"} for n in range(3000)]
    data = Path(write("a.jsonl.gz", rows)).read_bytes()
    for on_bad in (CorpusOptions(), DROP):
        (tmp_path / "b.jsonl.gz").write_bytes(data[: len(data) // 2])
        seen: list[Document] = []
        documents = read_documents(str(tmp_path / "b.jsonl.gz"), on_bad).documents
        with pytest.raises(InputError) as caught:
            seen.extend(documents)
        assert 1000 < len(seen) < 2000
        assert [document.id for document in seen] == [str(n) for n in range(len(seen))]
        assert str(caught.value).endswith(
            f"b.jsonl.gz: cannot be read after {len(seen)} whole rows, Compressed file ended "
            "before the end-of-stream marker was reached; copy the file again"
        )
    (tmp_path / "b.jsonl.gz").write_bytes(data[:40] + b"\x00" * 40 + data[80:])
    assert "b.jsonl.gz: cannot be read after " in refusal(str(tmp_path / "b.jsonl.gz"))


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert refusal(f"{tmp_path}/no.jsonl").startswith("no.jsonl: No such file or directory; name a")
    with pytest.raises(InputError, match=r"no\.jsonl: No such file"):
        cut_source(f"{tmp_path}/no.jsonl")
    assert refusal(f"{tmp_path}/no.parquet").startswith("no.parquet: ")
    assert refusal(f"text:{tmp_path}/no", TEXT) == "no: no such directory; write text:DIRECTORY"
    assert refusal(f"text:{tmp_path}/empty", TEXT).startswith("empty: the directory holds no file")
    assert refusal("news").startswith("news: the name does not say the format; write FORMAT:news")
    bad = CorpusOptions(on_bad="skip")  # type: ignore[arg-type]
    assert refusal("a.jsonl", bad).startswith("--on-bad: 'skip' is neither refuse nor drop")


def test_reading_holds_few_documents_at_a_time(write: Write) -> None:
    rows = [{**ROW, "id": str(n), "text": "a dog " * 2000} for n in range(500)]
    paths = [write(name, rows) for name in ("a.jsonl", "a.jsonl.gz")]  # 6 MB each
    del rows
    for path in paths:
        tracemalloc.start()
        count = sum(1 for _ in read_documents(path).documents)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (count, peak < 500_000) == (500, True)


# Shards.


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["", " ", "short", "a longer text " * 9, "é犬"]), max_size=12),
    st.integers(1, 200),
    st.booleans(),
    st.booleans(),
)
def test_shards_hold_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int, bom: bool, last: bool
) -> None:
    # An empty text is a blank line; no id, so that rows must be numbered alike.
    row = {"date": "2021-03"}
    lines = [json.dumps(row | {"text": t}, ensure_ascii=False) if t.strip() else t for t in texts]
    data = ("\ufeff" * bom + "\n".join(lines) + "\n" * last).encode()
    path = tmp_path_factory.getbasetemp() / "shards.jsonl"
    path.write_bytes(data)
    whole = read(str(path))
    shards = cut_source(str(path), size=size)
    assert [shard.start for shard in shards] == list(range(0, len(data) or 1, size))
    parts = [list(shard_documents(str(path), shard).documents) for shard in reversed(shards)]
    assert list(itertools.chain(*reversed(parts))) == whole
    assert [document.id for document in whole] == [str(n + 1) for n in range(len(whole))]


def test_a_fault_in_a_shard_has_the_row_of_the_file(write: Write) -> None:
    rows = [{**ROW, "id": str(n), "date": "no" if n == 7 else "2021-03"} for n in range(10)]
    for name, size in (("a.jsonl", 100), ("a.jsonl.gz", 100)):
        path = write(name, rows)
        faults = []
        for shard in cut_source(path, size=size, rows=3):
            try:
                list(shard_documents(path, shard).documents)
            except InputError as error:
                faults.append(str(error))
        assert [f"{path}:8: the date 'no'" in fault for fault in faults] == [True]


def test_shards_of_what_is_not_plain_jsonl(tmp_path: Path, write: Write) -> None:
    rows = [{"date": "2021-03", "text": f"text {n}"} for n in range(7)]
    table = parquet(tmp_path / "a.parquet", rows, group=2)  # groups of 2, 2, 2 and 1 rows
    lines = "".join(f'2021-03,"text\n{n}"\n' for n in range(7))
    sources = {
        table: (CorpusOptions(), [("groups", 0, 2), ("groups", 2, 4)]),
        write("a.jsonl.gz", rows): (CorpusOptions(), [("rows", 0, 4), ("rows", 4, 7)]),
        write("a.csv", "date,text\n" + lines): (CorpusOptions(), [("rows", 0, 4), ("rows", 4, 7)]),
    }
    for n in range(7):
        write(f"t/news-2021-03-0{n + 1}.txt", "x" * (5 * n))
    folder = f"text:{tmp_path / 't'}"
    # 0 + 5 + 10 + 15 bytes are at most 30; then 20; 25; 30.
    sources[folder] = (TEXT, [("files", 0, 4), ("files", 4, 5), ("files", 5, 6), ("files", 6, 7)])
    for source, (options, wanted) in sources.items():
        shards = cut_source(source, options, rows=4, size=30)
        assert [(shard.unit, shard.start, shard.stop) for shard in shards] == wanted
        if source == folder:
            options = CorpusOptions(pattern=TEXT.pattern, on_bad="drop")
        parts = [list(shard_documents(source, shard, options).documents) for shard in shards]
        assert list(itertools.chain(*parts)) == read(source, options)
    assert cut_source(write("b.jsonl", "")) == (Shard("bytes", 0, 0),)
    assert cut_source(write("b.jsonl.gz", "")) == (Shard("rows", 0, 0),)
    with pytest.raises(InputError, match="shards of 0 bytes or 1 rows; wanted at least 1 of each"):
        cut_source(table, size=0, rows=1)


def test_an_id_that_stands_in_two_shards(write: Write) -> None:
    path = write("a.jsonl", [ROW, {**ROW, "id": "y"}, ROW])
    shards = cut_source(path, size=len(json.dumps(ROW)) + 1)
    apart = [list(shard_documents(path, shard).documents) for shard in shards]
    assert len(list(itertools.chain(*apart))) == 3
    seen: set[bytes] = set()
    together = (shard_documents(path, shard, seen=seen).documents for shard in shards)
    with pytest.raises(InputError, match=r"a\.jsonl:3: the id 'x' stands in an earlier row"):
        list(itertools.chain.from_iterable(together))
    assert {len(key) for key in seen} == {16}


def test_the_data_card_counts_every_month() -> None:
    dated = [("2020-11-30", 5), ("2021-02", 1), ("2020-11-01", 2)]
    card = data_card(dated, dropped={"empty text": 2, "date not ISO": 1}, flagged={"late": 3})
    counts = [("2020-11", 2, 7), ("2020-12", 0, 0), ("2021-01", 0, 0), ("2021-02", 1, 1)]
    assert card.months == tuple(MonthCount(*count) for count in counts)
    assert (card.documents, card.words) == (3, 8)
    assert card.dropped == {"date not ISO": 1, "empty text": 2}
    assert card.flagged == {"late": 3}
    assert data_card([]).months == ()


# Words.

PIECES = "ab A 1 , . ' - ` \" ( ) & U.S. etc. e.g. No. Mr. don't dogs' 'tis 5,300 a,b x. X-y .. ..."
PIECES += (
    " DOTMULTI MULTI &apos; &amp; http://x.y/z?a=b $5.00 犬 é. e\u0301 \u0301 \x07 \x1c \u200b"
)
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(PIECES.split(" ")), st.sampled_from(" \n\t\xa0\u2028") | st.just(" ")
    ),
    max_size=14,
).map("".join)


@settings(max_examples=200, deadline=None)
@given(TEXTS | st.text(max_size=30))
def test_the_words_are_those_of_the_tokenizer(text: str) -> None:
    try:
        expected = words(text)
    except InputError:
        with pytest.raises(InputError, match=r"^cannot place the word"):
            moses_words(text)
    else:
        assert moses_words(text) == expected


def test_words_by_hand() -> None:
    text = "&apos;It's 5,300&amp;\ndogs' U.S. toys, e.g. No. 5.\tThe end."
    found = moses_words(text)
    # sacremoses #27: an escaped apostrophe stays in pieces of the text, none of it unescaped.
    assert " ".join(word.text for word in found) == (
        "& apos ; It 's 5,300 & amp ; dogs ' U.S. toys , e.g. No. 5 . The end ."
    )
    assert all(text[word.start : word.end] == word.text for word in found)
    # Beside the text's end, and beside a word that begins with a small letter.
    assert [word.text for word in moses_words("end. so etc.")] == ["end.", "so", "etc", "."]


def test_a_word_without_a_place_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(InputError, match=r"^cannot place the word '\.' in the sentence 'DOTMULTI"):
        moses_words("A dog. DOTMULTI runs.")


def test_words_of_texts_without_a_place_to_cut() -> None:
    for piece, count in (("word ", 3000), ("犬 ", 3000), ("   ", 0), ("a-", 1)):
        assert len(moses_words(piece * 3000)) == count
