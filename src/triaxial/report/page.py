"""A report as plain values, and what is made of it: one HTML file, Markdown, JSON.

The HTML file holds everything it shows: it opens from disk, asks no network, and escapes all text.
Every chart and table can be had as CSV.

Nothing here computes a figure; sections come from `triaxial.api.report`.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any

from triaxial.report.figures import Chart, Value

__all__ = [
    "SCHEMA",
    "Browser",
    "Case",
    "Gate",
    "Report",
    "Section",
    "Sentence",
    "Table",
    "Variant",
    "Verdict",
    "as_html",
    "as_markdown",
    "as_plain",
    "csv_of",
    "marked",
]

SCHEMA = "triaxial.report/1"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as they are read.

    Args:
        name: Of its file and its place on the page; unique in a report.
        title: What it shows.
        columns: Headings; the first column names the row.
        rows: Cells, formatted.
        note: What a reader must know: units, intervals, marks.
        quiet: Numbers of rows that stand beside ours: baselines and a paper's figures.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    quiet: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text with marked places.

    Args:
        role: What it is: premise, hypothesis.
        text: The text.
        marks: Half-open character spans, in order and apart.
    """

    role: str
    text: str
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """A changed case and what became of it."""

    note: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """An item to look at: what it is, its texts, its variants."""

    title: str
    note: str
    sentences: tuple[Sentence, ...]
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True, slots=True)
class Browser:
    """Cases that a reader searches and unfolds."""

    name: str
    title: str
    note: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition under which a run counts as failed, and what was seen."""

    condition: str
    passed: bool
    seen: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one run says, in a sentence.

    Args:
        axis: replacement, composition or time.
        run: Name of the run.
        sentence: With its interval.
        gates: Conditions that were asked for.
    """

    axis: str
    run: str
    sentence: str
    gates: tuple[Gate, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One run.

    Args:
        name: Of its place on the page; unique in a report.
        title: Heading.
        verdict: What stands on the first screen.
        blocks: Tables, charts and browsers, in reading order.
        warnings: What makes figures doubtful.
        signatures: Lines that make the headline figures comparable.
        method: How it was measured.
        limits: What it cannot show.
        facts: Data, models, versions: name and value.
    """

    name: str
    title: str
    verdict: Verdict
    blocks: tuple[Table | Chart | Browser, ...]
    warnings: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What is read from top to bottom."""

    title: str
    sections: tuple[Section, ...]
    version: str
    planted: tuple[tuple[str, str], ...] = field(default=())
    """Truths that a demo planted, and what was measured of each."""


def as_html(report: Report) -> str:
    """One self-contained page."""
    import jinja2

    here = resources.files("triaxial.report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"marked": marked, "kind": _kind, "data_uri": _data_uri}
    template = environment.from_string((here / "page.html").read_text(encoding="utf-8"))
    return template.render(
        report=report,
        style=(here / "page.css").read_text(encoding="utf-8"),
        script=(here / "page.js").read_text(encoding="utf-8"),
        gates=[gate for section in report.sections for gate in section.verdict.gates],
    )


def as_markdown(report: Report) -> str:
    """The same for a pull request or a wiki: verdicts, tables, numbers of the charts."""
    return "\n".join(_markdown(report)) + "\n"


def as_plain(report: Report) -> dict[str, Any]:
    """The same as plain values, without drawings: `schema` names their form."""
    plain = asdict(report)
    for section in plain["sections"]:
        for block in section["blocks"]:
            block.pop("svg", None)
    return {"schema": SCHEMA, **plain}


def csv_of(block: Table | Chart) -> str:
    """The rows as CSV, with a heading."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(block.columns)
    writer.writerows(block.rows)
    return text.getvalue()


def marked(sentence: Sentence) -> Any:
    """Its text as HTML, escaped, with the marked places in `<mark>`.

    >>> print(marked(Sentence("premise", "A boy & a dog", ((2, 5),))))
    A <mark>boy</mark> &amp; a dog
    """
    from markupsafe import Markup, escape

    html, at = Markup(), 0
    for start, end in sentence.marks:
        html += escape(sentence.text[at:start])
        html += Markup("<mark>{}</mark>").format(sentence.text[start:end])
        at = end
    return html + escape(sentence.text[at:])


def _kind(block: Table | Chart | Browser) -> str:
    return type(block).__name__.lower()


def _data_uri(block: Table | Chart) -> str:
    # With a mark of UTF-8, without which spreadsheet programs guess.
    coded = base64.b64encode(csv_of(block).encode("utf-8-sig")).decode()
    return f"data:text/csv;charset=utf-8;base64,{coded}"


def _markdown(report: Report) -> Iterator[str]:
    yield f"# {_line(report.title)}\n"
    for section in report.sections:
        verdict = section.verdict
        yield f"- **{verdict.axis}**, {_line(verdict.run)}: {_line(verdict.sentence)}"
        for gate in verdict.gates:
            told = "passed" if gate.passed else "FAILED"
            yield f"  - gate `{gate.condition}`: {told} ({_line(gate.seen)})"
    if report.planted:
        yield ""
        yield from _rows(("planted", "measured"), report.planted)
    for section in report.sections:
        yield f"\n## {_line(section.title)}\n"
        for warning in section.warnings:
            yield f"**Warning:** {_line(warning)}\n"
        for block in section.blocks:
            yield f"### {_line(block.title)}\n"
            if isinstance(block, Browser):
                yield from _cases(block)
            else:
                rows = [[_cell(value) for value in row] for row in block.rows]
                yield from _rows(block.columns, rows)
                yield f"\n{_line(block.note if isinstance(block, Table) else block.caption)}\n"
        for signature in section.signatures:
            yield f"    {signature}"
        for heading, lines in (("Method", section.method), ("Limits", section.limits)):
            if lines:
                yield f"\n{heading}:\n"
                yield from (f"- {_line(line)}" for line in lines)
        if section.facts:
            yield ""
            yield from _rows(("fact", "value"), section.facts)
    yield f"\ntriaxial {report.version}"


def _cases(browser: Browser) -> Iterator[str]:
    yield f"{_line(browser.note)}\n"
    for case in browser.cases:
        yield f"- {_line(case.title)}: {_line(case.note)}"
        for sentence in case.sentences:
            yield f"  - {sentence.role}: {_line(sentence.text)}"
        for variant in case.variants:
            yield f"  - {_line(variant.note)}"
    yield ""


def _rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for number, row in enumerate((columns, *rows)):
        yield "| " + " | ".join(_line(cell).replace("|", "\\|") for cell in row) + " |"
        if not number:
            yield "|" + "---|" * len(columns)


def _cell(value: Value) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_MARKUP: Mapping[int, str] = {ord(c): f"\\{c}" for c in "\\`*_[]<>#"}


def _line(text: str) -> str:
    """Text as it is, in Markdown: on one line, nothing of it read as markup."""
    return " ".join(text.split()).translate(_MARKUP).replace("&", "&amp;")
