"""Readers: each format, each fault with its one line, and text that stays as it is in the file."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.nli import LABELS, Label, Pair, parse_columns, parse_map, read_pairs

E, N, C = LABELS
HEAD = "premise,hypothesis,label,id\n"
ROW = {"premise": "A dog runs.", "hypothesis": "A dog moves.", "label": "entailment", "id": "x"}
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file: text, bytes, or rows as JSONL; gives back its path as text."""

    def writer(name: str, content: str | bytes | list[dict[str, Any]]) -> str:
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return writer


def refusal(source: str, **options: Any) -> str:
    """The text of the refusal, without the directory of the file; always one line."""
    with pytest.raises(InputError) as caught:
        read_pairs(source, **options)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text.replace(f"{Path(source.split(':', 1)[-1]).parent}/", "")


# Formats.


def test_labels_are_in_the_order_of_the_arrays() -> None:
    assert LABELS == ("entailment", "neutral", "contradiction")


def test_sick(write: Write) -> None:
    head = "pair_ID\tsentence_A\tsentence_B\tentailment_label\tSemEval_set\r\n"
    rows = '1\t"Hello" he said\tA man\tNEUTRAL\tTRAIN\r\n7\ta\xa0b  c\td \tENTAILMENT\tTEST\r\n'
    path = write("SICK.txt", head + rows)
    first = Pair("1", '"Hello" he said', "A man", N)
    second = Pair("7", "a\xa0b  c", "d ", E)
    reading = read_pairs(f"sick:{path}")
    assert reading.pairs == (first, second)
    assert reading.source == f"sick:{path}"
    assert reading.dropped == {}
    assert reading.digest == hashlib.sha256((head + rows).encode()).hexdigest()
    assert read_pairs(f"sick:{path}", split="test").pairs == (second,)
    assert refusal(f"sick:{path}", split="dev") == (
        "--split: 'dev' is not one of TRAIN, TRIAL, TEST; mend it or leave it out"
    )
    assert refusal(f"sick:{path}", split="TRIAL") == (
        "SICK.txt: no pair is left (no data row); check the source"
    )


def test_the_real_sick_file(shared: Path) -> None:
    source = f"sick:{shared / 'data/nli/SICK.txt'}"
    start = time.perf_counter()
    reading = read_pairs(source)
    seconds = time.perf_counter() - start
    # By `cut -f 4 | sort | uniq -c`: CONTRADICTION 712+641+71, ENTAILMENT 1404+1274+143, the rest.
    assert Counter(pair.label for pair in reading.pairs) == {C: 1424, E: 2821, N: 5595}
    assert len(read_pairs(source, split="TEST").pairs) == 712 + 1404 + 2790
    assert len(read_pairs(source, limit=20).pairs) == 20
    assert reading.pairs[1].id == "2"
    assert seconds < 2  # 0.1 s alone; the machine may be shared


@pytest.mark.parametrize("kind", ["snli", "mnli"])
def test_distributed_jsonl_drops_pairs_without_gold_label(write: Write, kind: str) -> None:
    row = {"gold_label": "neutral", "sentence1": "p", "sentence2": "h", "pairID": "1n"}
    rows = [row, {**row, "gold_label": "-", "pairID": "1c"}, {**row, "gold_label": -1}]
    reading = read_pairs(f"{kind}:{write('x_1.0_dev.jsonl', rows)}")
    assert reading.pairs == (Pair("1n", "p", "h", N),)
    assert reading.dropped == {"no gold label": 2}


def test_distributed_txt_may_lack_the_last_annotators_labels_and_no_other_field(
    write: Write,
) -> None:
    head = "gold_label\tsentence1\tsentence2\tpairID\tlabel1\tlabel2\n"
    path = write("snli_1.0_dev.txt", head + "neutral\tp\th\t1n\tneutral\n-\tp\th\t2\ta\tb\n")
    reading = read_pairs(f"snli:{path}")
    assert (reading.pairs, reading.dropped) == ((Pair("1n", "p", "h", N),), {"no gold label": 1})
    # jiant #1073: with the gold label last, a field more makes an annotator's label the gold one.
    path = write("train.tsv", "sentence1\tsentence2\tlabel1\tgold_label\np\th\tneutral\t-\tx\n")
    assert refusal(f"snli:{path}").startswith(
        "train.tsv:1: 5 fields, but the header has 4; mend the row"
    )


def test_numbers_are_labels_of_snli_and_mnli_alone(write: Write) -> None:
    row = {"sentence1": "p", "sentence2": "h"}
    path = write("a.jsonl", [{**row, "gold_label": number} for number in (0, 1, 2)])
    assert [pair.label for pair in read_pairs(f"mnli:{path}").pairs] == [E, N, C]
    assert refusal(write("b.jsonl", [{**ROW, "label": 2}])) == (
        "b.jsonl:1: label 2 is a number, which means something else in every data set, not one of "
        "entailment, neutral, contradiction; pass --label-map 2=LABEL for each number"
    )


def test_jsonl_skips_blank_lines_and_numbers_rows_without_an_id(write: Write) -> None:
    row = {key: value for key, value in ROW.items() if key != "id"}
    line = json.dumps(row)
    path = write("x.jsonl", f"\ufeff{line}\n\n  \n{line}")
    assert [pair.id for pair in read_pairs(path).pairs] == ["1", "2"]
    assert read_pairs(path, limit=1).pairs == (Pair("1", "A dog runs.", "A dog moves.", E),)


def test_csv_with_line_breaks_in_quotes(write: Write) -> None:
    path = write("x.CSV", HEAD + '"a\nb","say ""hi"", c",e,1\np,"h\r\n",n,2\n\np,h,contradict,3\n')
    assert read_pairs(path).pairs == (
        Pair("1", "a\nb", 'say "hi", c', E),
        Pair("2", "p", "h\r\n", N),
        Pair("3", "p", "h", C),
    )
    # The third data row, on line 5 of the file.
    path = write("y.csv", HEAD + '"a\nb",h,e,1\np,h,n,2\np,h,maybe,3\n')
    assert refusal(path).startswith("y.csv:3: label 'maybe' is not one of")


def test_tsv_has_no_quoting(write: Write) -> None:
    path = write("x.tsv", 'label\tpremise\thypothesis\nNeutral\t"a\t"b" c\u2028\x0bd\r\n')
    assert read_pairs(path).pairs == (Pair("1", '"a', '"b" c\u2028\x0bd', N),)


def test_parquet(tmp_path: Path) -> None:
    import polars as pl

    path = tmp_path / "[x]*.parquet"
    labels = pl.Series(["e", "N", "-"], dtype=pl.Categorical)
    pl.DataFrame(
        {"id": [10, 11, 12], "premise": ["a\n", "b", "c"], "hypothesis": ["d"] * 3, "label": labels}
    ).write_parquet(path)
    reading = read_pairs(str(path))
    assert reading.pairs == (Pair("10", "a\n", "d", E), Pair("11", "b", "d", N))
    assert reading.dropped == {"no gold label": 1}


def test_whole_numbers_that_became_floats_are_numbers(tmp_path: Path) -> None:
    import polars as pl

    path = tmp_path / "x.parquet"
    columns = {"premise": ["a", "b"], "hypothesis": ["d", "d"], "label": [2.0, None]}
    pl.DataFrame(columns).write_parquet(path)
    reading = read_pairs(str(path), label_map={"2": "c"}, on_bad="drop")
    assert (reading.pairs, reading.dropped) == ((Pair("1", "a", "d", C),), {"unknown label": 1})


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.csv.gz", "x.tsv.gz", "sick.txt.gz"])
def test_gzip(tmp_path: Path, name: str) -> None:
    mark = "\t" if name[0] == "s" or "tsv" in name else ","
    text = "premise,hypothesis,label\np,h,e\n".replace(",", mark)
    if "jsonl" in name:
        text = json.dumps({"premise": "p", "hypothesis": "h", "label": "e"})
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    columns = {"premise": "premise", "hypothesis": "hypothesis", "label": "label"}
    source = f"sick:{path}" if name[0] == "s" else str(path)
    reading = read_pairs(source, columns=columns)
    assert reading.pairs == (Pair("1", "p", "h", E),)
    assert reading.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(path.read_bytes()[:-12])
    assert f"{name}: cannot be read, Compressed file ended" in refusal(source, columns=columns)
    path.write_bytes(b"no gzip")
    assert f"{name}: cannot be read, Not a gzipped file" in refusal(source, columns=columns)


@pytest.fixture(scope="module")
def hub_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set in the hub's format: two splits in Parquet, labels as a class."""
    import datasets

    folder = tmp_path_factory.mktemp("hub")
    names = ["contradiction", "entailment", "neutral"]  # not our order: names must win
    features = datasets.Features(
        premise=datasets.Value("string"),
        hypothesis=datasets.Value("string"),
        label=datasets.ClassLabel(names=names),
    )
    datasets.disable_progress_bars()
    for split, labels in {"test": [0, -1, 2], "validation": [1, 1, 1]}.items():
        rows = {"premise": ["a\xa0b", "c", " d"], "hypothesis": ["e", "f", "g"], "label": labels}
        data = datasets.Dataset.from_dict(rows, features=features)
        data.to_parquet(folder / f"data/{split}-00000-of-00001.parquet")
    return folder


def test_a_directory_in_the_hub_format(
    hub_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = (Pair("1", "a\xa0b", "e", C), Pair("3", " d", "g", N))
    digests = set()
    for source in (f"hub:{hub_directory}", f"snli:{hub_directory}", f"mnli:hub:{hub_directory}"):
        reading = read_pairs(source, split="test")
        assert (reading.pairs, reading.dropped) == (expected, {"no gold label": 1})
        digests.add(reading.digest)
    assert len(digests) == 1
    source = f"hub:{hub_directory}"
    assert refusal(source) == (
        f"{hub_directory.name}: several splits; pass --split with one of validation, test"
    )
    assert "no split 'dev'; pass --split with one of" in refusal(source, split="dev")
    assert "[test]: column 'gold' is missing, there are 'premise', 'hypothesis', 'label'; pass" in (
        refusal(source, split="test", columns={"label": "gold"})
    )

    # The same through the hub's own way: a repository, its commit as the digest.
    import datasets

    builder = datasets.load_dataset_builder(str(hub_directory), cache_dir=str(hub_directory / ".c"))
    builder.hash = "c0ffee"
    asked: list[tuple[str, str | None]] = []
    monkeypatch.setattr(
        datasets, "load_dataset_builder", lambda name, part: asked.append((name, part)) or builder
    )
    for source in ("snli", "mnli:hub", "snli:hub:me/mine", "hub:me/mine:small"):
        reading = read_pairs(source, split="test")
        assert (reading.pairs, reading.digest) == (expected, "c0ffee")
    assert asked == [
        ("stanfordnlp/snli", None),
        ("nyu-mll/multi_nli", None),
        ("me/mine", None),
        ("me/mine", "small"),
    ]

    def offline(*_: object) -> None:
        raise ConnectionError("Couldn't reach\nthe Hub")

    monkeypatch.setattr(datasets, "load_dataset_builder", offline)
    assert refusal("hub:me/mine") == (
        "mine: the data set cannot be loaded, ConnectionError: Couldn't reach the Hub; "
        "check name and network, or give a file or a directory"
    )


def test_a_hub_directory_with_a_bad_file(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_bytes(b"PAR1" + bytes(40))
    assert "the data set cannot be loaded, " in refusal(f"hub:{tmp_path}")
    with pytest.raises(
        InputError, match=r"^hub:\./none: no such directory; write hub:REPOSITORY or"
    ):
        read_pairs("hub:./none")


# Labels, columns, ids.


@pytest.mark.parametrize(
    ("text", "label"),
    [("ENTAILMENT", E), ("n", N), ("C", C), ("Entail", E), (" contradict ", C), ("neutral", N)],
)
def test_labels_in_any_case(write: Write, text: str, label: Label) -> None:
    assert read_pairs(write("x.jsonl", [{**ROW, "label": text}])).pairs[0].label is label


def test_an_unknown_label_says_which_and_what_to_pass(write: Write) -> None:
    rows = [{**ROW, "id": str(i), "label": "e" if i < 16 else "maybe"} for i in range(17)]
    path = write("x.jsonl", rows)
    assert refusal(path) == (
        "x.jsonl:17: label 'maybe' is not one of entailment, neutral, contradiction; "
        "pass --label-map maybe=LABEL for each label of the data"
    )
    reading = read_pairs(path, label_map={"Maybe": "Neutral"})
    assert reading.pairs[16].label is N
    assert refusal(path, label_map={"maybe": "perhaps"}) == (
        "--label-map: 'perhaps' in maybe=perhaps is not one of entailment, neutral, contradiction; "
        "write one of these"
    )


def test_a_label_map_outranks_all_else(write: Write) -> None:
    rows = [{**ROW, "id": str(i), "label": label} for i, label in enumerate([-1, 0, True, "n"])]
    reading = read_pairs(
        write("x.jsonl", rows), label_map={"-1": "c", "0": "n", "true": "e", "n": "c"}
    )
    assert [pair.label for pair in reading.pairs] == [C, N, E, C]
    assert reading.dropped == {}


def test_columns(write: Write) -> None:
    path = write("x.csv", "a,b,c,d\np,h,e,7\n")
    columns = parse_columns("premise=a, hypothesis=b,label=c")
    assert read_pairs(path, columns=columns).pairs == (Pair("1", "p", "h", E),)
    columns = parse_columns("premise=a,hypothesis=b,label=c,id=d")
    assert read_pairs(path, columns=columns).pairs == (Pair("7", "p", "h", E),)
    assert refusal(path, columns={**columns, "id": "z"}) == (
        "x.csv: column 'z' is missing, there are 'a', 'b', 'c', 'd'; pass --columns ROLE=NAME"
    )
    assert refusal(write("y.csv", "premise,premise,label,hypothesis\n")) == (
        "y.csv: column 'premise' is there twice, there are 'premise', 'premise', 'label', "
        "'hypothesis'; pass --columns ROLE=NAME"
    )


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_columns, "premise", "--columns: cannot read 'premise' in 'premise'; write premise="),
        (parse_columns, "", "--columns: cannot read '' in ''; write premise=NAME"),
        (parse_columns, "id=a,id=b", "--columns: 'id' stands twice in 'id=a,id=b'; keep one"),
        (
            parse_columns,
            "text=a",
            "--columns: 'text' is not one of premise, hypothesis, label, id;",
        ),
        (parse_map, "2=", "--label-map: cannot read '2=' in '2='; write SEEN=LABEL,SEEN=LABEL"),
        (parse_map, "2=x", "--label-map: 'x' in 2=x is not one of entailment, neutral, contra"),
    ],
)
def test_bad_options_are_one_line(parse: Callable[[str], Any], text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1


def test_parse_map() -> None:
    assert parse_map("maybe=neutral, 2=C") == {"maybe": "neutral", "2": "contradiction"}


# Faults of rows: refused with the row, or dropped with a count.

GOOD = json.dumps({**ROW, "id": "good"}).encode()


@pytest.mark.parametrize(
    ("line", "reason", "message"),
    [
        ({**ROW, "label": "x"}, "unknown label", "label 'x' is not one of"),
        ({**ROW, "label": None}, "unknown label", "the label is empty; mend the row"),
        ({**ROW, "label": True}, "unknown label", "label 'True' is not one of"),
        ({**ROW, "label": "a\r\u2028b"}, "unknown label", "label 'a b' is not one of"),
        (
            {**ROW, "premise": ""},
            "empty premise",
            "the premise is empty; mend the row, or drop bad",
        ),
        ({**ROW, "hypothesis": " \xa0\n"}, "empty hypothesis", "the hypothesis is empty; mend"),
        ({**ROW, "premise": None}, "premise not text", "the premise is null, not text; mend"),
        ({**ROW, "premise": ["a"]}, "premise not text", "the premise is a list, not text; mend"),
        (
            {**ROW, "premise": "\ud83d"},
            "premise not text",
            "the premise has half a character, '\\u",
        ),
        ({**ROW, "id": "good"}, "duplicate id", "the id 'good' is that of row 1 already; choose"),
        ({**ROW, "id": 1.0}, "id not text", "the id is a float, not text"),
        ({**ROW, "id": ""}, "empty id", "the id is empty"),
        (
            {"premise": "p"},
            "missing column",
            "column 'hypothesis' is missing, there are 'premise';",
        ),
        ({}, "missing column", "column 'premise' is missing, there are no columns; pass --columns"),
        (b"{'premise'", "invalid JSON", "invalid JSON, Expecting property name enclosed in double"),
        (b"[" * 100_000, "invalid JSON", "invalid JSON, "),
        (b"[1]", "invalid JSON", "a list; wanted one JSON object a line; mend the row"),
        # `{"premise": "` has 13 characters, so "é" is bytes 14 and 15 and the bad byte is 16.
        (
            b'{"premise": "\xc3\xa9\x92"}',
            "not UTF-8",
            "byte 16 of the row, 0x92, is not UTF-8; save",
        ),
    ],
)
def test_a_bad_row(write: Write, line: object, reason: str, message: str) -> None:
    raw = line if isinstance(line, bytes) else json.dumps(line).encode()
    path = write("x.jsonl", GOOD + b"\n" + raw + b"\n" + GOOD.replace(b"good", b"better"))
    assert refusal(path).startswith(f"x.jsonl:2: {message}")
    reading = read_pairs(path, on_bad="drop")
    assert [pair.id for pair in reading.pairs] == ["good", "better"]
    assert reading.dropped == {reason: 1}


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_bad_rows_of_tables(write: Write, ending: str) -> None:
    mark = b"," if ending == "csv" else b"\t"
    lines = [b"premise,hypothesis,label", b"p,h,e", b"p,h", b"p,h\xff,e", b"p,h,n"]
    path = write(f"x.{ending}", b"\n".join(lines).replace(b",", mark))
    assert refusal(path).startswith(f"x.{ending}:2: 2 fields, but the header has 3; mend the row")
    reading = read_pairs(path, on_bad="drop")
    assert [pair.id for pair in reading.pairs] == ["1", "4"]
    assert reading.dropped == {"not UTF-8": 1, "wrong number of fields": 1}
    path = write(f"y.{ending}", b"\n".join([*lines[:2], lines[3]]).replace(b",", mark))
    assert refusal(path) == (
        f"y.{ending}:2: byte 4 of the row, 0xff, is not UTF-8; save the file as UTF-8"
    )


# Faults of files: refused, also where bad rows may be dropped.


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"", "x.csv: the file is empty; check it"),
        ("x.tsv", b"\n\n", "x.tsv: the file is empty; check it"),
        ("x.jsonl", b"\n", "x.jsonl: no pair is left (no data row); check the source"),
        ("x.csv", HEAD.encode(), "x.csv: no pair is left (no data row); check the source"),
        ("x.jsonl", b"[]", "x.jsonl: no pair is left (1 with invalid JSON); check the source"),
        (
            "x.csv",
            b"premise;label\n",
            "x.csv: column 'premise' is missing, there are 'premise;label'",
        ),
        ("x.csv", b"\xff\xfep\0", "x.csv:header: byte 1 of the row, 0xff, is not UTF-8; save"),
        ("x.csv", HEAD.encode() + b'p,h,e,1\n"p,h\n', "x.csv:2: not CSV, unexpected end of data;"),
        ("x.csv", b'"a"b', "x.csv:header: not CSV, ',' expected after '\"'; quote fields"),
        ("x.parquet", b"", "x.parquet: not Parquet, "),
        ("x.parquet", b"PAR1" + bytes(60), "x.parquet: not Parquet, "),
        ("x.txt", b"", "x.txt: the name does not say the format; write FORMAT:"),
    ],
)
def test_a_bad_file(write: Write, name: str, content: bytes, message: str) -> None:
    assert refusal(write(name, content), on_bad="drop").startswith(message)


def test_a_truncated_parquet_file(tmp_path: Path) -> None:
    import polars as pl

    path = tmp_path / "x.parquet"
    pl.DataFrame([ROW]).write_parquet(path)
    whole = path.read_bytes()
    broken = [whole[: len(whole) // 2], whole[:-1], whole[:20] + bytes(60) + whole[80:]]
    for content in broken:
        path.write_bytes(content)
        assert refusal(str(path)).startswith("x.parquet: not Parquet, ")
    path.write_bytes(whole)
    assert refusal(str(path), columns={"label": "gold"}).startswith(
        "x.parquet: column 'gold' is missing, there are 'premise', 'hypothesis', 'label', 'id';"
    )


def test_no_such_file_and_a_directory(tmp_path: Path) -> None:
    wanted = "name a readable file, or write hub:DIRECTORY for a data set in a directory"
    assert refusal(f"{tmp_path}/none.csv") == f"none.csv: No such file or directory; {wanted}"
    assert refusal(f"sick:{tmp_path}") == f"{tmp_path.name}: Is a directory; {wanted}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "--limit: 0 is less than 1; ask for a pair, or for all"),
        ({"on_bad": "skip"}, "--on-bad: 'skip' is neither refuse nor drop; choose one"),
        ({"columns": {"text": "a"}}, "--columns: 'text' is not one of premise, hypothesis, label"),
        (
            {"split": "test"},
            "--split: 'test' is not there in a jsonl file; mend it or leave it out",
        ),
    ],
)
def test_bad_arguments(write: Write, options: dict[str, Any], message: str) -> None:
    assert refusal(write("x.jsonl", [ROW]), **options).startswith(message)


# Whatever the text, it comes out as it went in.

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda t: bool(t.strip())
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4), st.sampled_from(["jsonl", "csv"]))
def test_text_is_byte_identical(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]], ending: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"roundtrip.{ending}"
    rows = [{"premise": p, "hypothesis": h, "label": "e"} for p, h in texts]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    if ending == "csv":
        quoted = [[text.replace('"', '""') for text in row.values()] for row in rows]
        lines = ["premise,hypothesis,label", *('"' + '","'.join(row) + '"' for row in quoted)]
    path.write_bytes("\n".join(lines).encode())
    assert [(pair.premise, pair.hypothesis) for pair in read_pairs(str(path)).pairs] == texts
