"""The page: everything escaped, nothing fetched, all of it there in every form."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triaxial.report.figures import Axis, Chart, curves
from triaxial.report.page import (
    SCHEMA,
    Browser,
    Case,
    Gate,
    Report,
    Section,
    Sentence,
    Table,
    Variant,
    Verdict,
    as_html,
    as_markdown,
    as_plain,
    csv_of,
    marked,
)

EVIL = '<script>alert("x")</script> & <b>'
ROWS = (
    {"series": EVIL, "x": 1, "y": 10.0, "low": 8.0, "high": 12.0},
    {"series": EVIL, "x": 2, "y": 20.0, "low": None, "high": None},
)


@pytest.fixture(scope="module")
def chart() -> Chart:
    return curves("run1-curve", f"Curve {EVIL}", "n 2", ROWS, Axis("x", EVIL), Axis("y", "%"))


@pytest.fixture(scope="module")
def made(chart: Chart) -> Report:
    cells = ((EVIL, "1 [0, 2]"), ("base", "0"))
    table = Table("run1-table", EVIL, ("run", "a|b"), cells, EVIL, (1,))
    # Clipped and with a legend: both are drawn by parts that name each other.
    pair = [{**row, "series": name} for name in ("p", "q") for row in ROWS]
    other = curves("run1-pair", "Pair", "n 2", pair, Axis("x", "x"), Axis("y", "%"))
    browser = Browser(
        "run1-cases",
        "Cases",
        "note",
        (
            Case(
                EVIL,
                "2 of 3 wrong",
                (Sentence("premise", EVIL),),
                (Variant("man → boy", (Sentence("premise", "A boy & a dog", ((2, 5),)),)),),
            ),
        ),
    )
    gates = (Gate("SV95 < 70", False, "m: SV95 = 61.3"), Gate("MC < 10", True, "m: MC = 50.0"))
    section = Section(
        "run1",
        f"Replacement: {EVIL}",
        Verdict("replacement", EVIL, f"{EVIL} is right", gates),
        (table, chart, other, browser),
        (EVIL,),
        ("SV95 = 61.3 | n:20",),
        ("how",),
        ("what not",),
        (("data", EVIL),),
    )
    return Report("A report", (section,), "0.0", ((EVIL, "seen"),))


class Reader(HTMLParser):
    """Tags, their attributes, and the text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


def test_texts_stand_as_text(made: Report) -> None:
    page = read(as_html(made))
    assert not page.open, "every element is closed"
    # One script, ours: none came from a text.
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not [tag for tag, _ in page.tags if tag == "b"]
    shown = " ".join(page.text)
    assert shown.count(EVIL) >= 8
    assert EVIL in " ".join(page.text)


def test_nothing_is_fetched(made: Report) -> None:
    html = as_html(made)
    for _, attributes in read(html).tags:
        for name in ("src", "href", "action", "data"):
            target = attributes.get(name) or "#"
            assert target.startswith(("#", "data:text/csv")), target
    assert "@import" not in html
    # Parts of the drawings name each other, nothing outside.
    assert all(place.startswith("#run1-") for place in re.findall(r"url\(([^)]*)\)", html))
    assert "default-src 'none'" in html


def test_places_are_unique_and_links_lead_to_them(made: Report) -> None:
    page = read(as_html(made))
    names = [a["id"] for _, a in page.tags if "id" in a]
    assert len(set(names)) == len(names)
    links = {a["href"][1:] for _, a in page.tags if (a.get("href") or "").startswith("#")}
    assert links <= set(names)
    assert {"run1", "run1-table", "run1-curve", "run1-cases"} <= links


def test_the_numbers_can_be_had(made: Report, chart: Chart) -> None:
    files = {
        a["download"]: base64.b64decode(a["href"].split("base64,")[1]).decode("utf-8-sig")
        for _, a in read(as_html(made)).tags
        if "download" in a
    }
    assert set(files) == {"run1-table.csv", "run1-curve.csv", "run1-pair.csv"}
    assert files["run1-curve.csv"] == csv_of(chart)
    rows = list(csv.reader(io.StringIO(files["run1-curve.csv"])))
    assert rows[0] == ["series", "x", "y", "low", "high"]
    assert rows[1] == [EVIL, "1", "10.0", "8.0", "12.0"]
    assert rows[2][3:] == ["", ""], "what was not measured is empty, not zero"


def test_drawings_have_names_and_take_the_colours_of_the_page(chart: Chart) -> None:
    root = re.match(r"<svg ([^>]*)>", chart.svg)
    assert root is not None
    assert 'role="img" aria-label="Curve &lt;script&gt;' in root[1]
    assert "currentColor" in chart.svg
    assert "var(--series-1)" in chart.svg
    assert "<script" not in chart.svg


def test_gates_are_told_in_every_form(made: Report) -> None:
    text = " ".join(" ".join(read(as_html(made)).text).split())
    assert "✗ failed SV95 < 70 : m: SV95 = 61.3" in text
    assert "✓ passed MC < 10" in text
    assert "2 gates, 1 failed." in text
    markdown = as_markdown(made)
    assert "gate `SV95 < 70`: FAILED (m: SV95 = 61.3)" in markdown
    assert as_plain(made)["sections"][0]["verdict"]["gates"][0]["passed"] is False


def test_markdown_reads_no_text_as_markup(made: Report) -> None:
    markdown = as_markdown(made)
    assert "<script>" not in markdown.replace("\\<script\\>", "")
    header = next(line for line in markdown.splitlines() if line.startswith("| run |"))
    assert header == "| run | a\\|b |"
    assert "| x | y |" in markdown  # the numbers of the chart stand there too


def test_plain_values_survive_json_and_name_their_form(made: Report) -> None:
    plain = json.loads(json.dumps(as_plain(made)))
    assert plain["schema"] == SCHEMA
    assert "svg" not in json.dumps(plain)
    assert plain["sections"][0]["blocks"][1]["rows"][0] == [EVIL, 1, 10.0, 8.0, 12.0]


@given(st.text(max_size=30), st.data())
def test_marks_change_no_character(text: str, data: st.DataObject) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6, unique=True)))
    marks = tuple(zip(ends[::2], ends[1::2], strict=False))
    html = str(marked(Sentence("premise", text, marks)))
    reader = read(f"<p>{html}</p>".replace("\r", "&#13;"))
    assert "".join(reader.text) == text.replace("\x00", "\x00")
    assert html.count("<mark>") == len(marks)
