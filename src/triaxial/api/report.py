"""One report of any runs: which axis each is of, its section, and what the gates say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from triaxial import __version__
from triaxial.api import report_c2gen, report_merge, report_temporal
from triaxial.api.c2gen import RUN as C2GEN
from triaxial.api.gates import Condition, Figure, check_gate, judge, parse_gate
from triaxial.api.merge_files import RUN as MERGE
from triaxial.api.temporal import ANALYSIS as TEMPORAL
from triaxial.errors import InputError
from triaxial.report.page import Gate, Report, Section, as_html, as_markdown, as_plain
from triaxial.store import complete_manifest, write_bytes_atomic, write_json

__all__ = ["Form", "named_runs", "report", "write_report"]

Form = Literal["html", "md", "json"]

_AXES: dict[str, Callable[[Path, str, str], tuple[Section, list[Figure]]]] = {
    MERGE: report_merge.section_of,
    C2GEN: report_c2gen.section_of,
    TEMPORAL: report_temporal.section_of,
}


def report(
    runs: Mapping[str, str | Path] | Sequence[str | Path],
    *,
    fail_if: Sequence[str] = (),
    title: str = "What breaks these language models",
    planted: Mapping[str, str] | None = None,
) -> Report:
    """Put runs of any axes into one report.

    Args:
        runs: Directories of `triax merge run`, `triax c2gen run` and `triax temporal analyse`, by
            name or named after themselves.
        fail_if: Conditions such as `SV95 < 70`, `er-res:CI < 50`, `increase > 5`.
        title: Heading.
        planted: Truths that a demo planted, and what was measured of each.

    Raises:
        InputError: A directory is no run of an axis, or a condition fits none of them.
    """
    named = (
        {name: Path(path) for name, path in runs.items()}
        if isinstance(runs, Mapping)
        else named_runs(runs)
    )
    conditions = [parse_gate(text) for text in fail_if]
    sections: list[Section] = []
    figures: list[list[Figure]] = []
    for number, (name, path) in enumerate(named.items(), 1):
        section, found = _AXES[_kind(path)](path, name, f"run{number}")
        sections.append(section)
        figures.append(found)
    for condition in conditions:
        gates = [_gate(condition, found) for found in figures]
        if not any(gates):  # it must fit a run, though not each
            check_gate([figure for found in figures for figure in found], condition.text)
        sections = [_with_gate(one, gate) for one, gate in zip(sections, gates, strict=True)]
    return Report(title, tuple(sections), __version__, tuple((planted or {}).items()))


def named_runs(runs: Sequence[str | Path]) -> dict[str, Path]:
    """Directories by name: NAME=DIRECTORY, or a directory named after itself.

    Raises:
        InputError: None is given, or two have one name.
    """
    if not runs:
        raise InputError("no run; name at least one directory of an earlier --out")
    found: dict[str, Path] = {}
    for given in runs:
        label, told, rest = str(given).partition("=")
        path = Path(rest if told and not Path(given).exists() else given)
        name = label if told and path == Path(rest) else path.resolve().name
        if any(path.resolve() == other.resolve() for other in found.values()):
            raise InputError("is given twice; name each run once", where=path)
        if name in found:
            name = f"{path.resolve().parent.name}/{name}"
        if name in found:
            raise InputError("has the name of another run; say NAME=DIRECTORY", where=path)
        found[name] = path
    return found


def write_report(made: Report, out: str | Path, form: Form = "html") -> None:
    """Write a report as one file.

    Args:
        made: The report.
        out: The file; its directory is made.
        form: `html`, `md` or `json`.
    """
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if form == "json":
        write_json(out, as_plain(made))
        return
    text = as_html(made) if form == "html" else as_markdown(made)
    write_bytes_atomic(out, text.encode("utf-8", "replace"))


def _gate(condition: Condition, figures: Sequence[Figure]) -> Gate | None:
    """What a condition says of one run; `None` where it is about others."""
    seen, failed = judge(condition, figures)
    return Gate(condition.text, not failed, "; ".join(failed or seen)) if seen else None


def _with_gate(section: Section, gate: Gate | None) -> Section:
    if gate is None:
        return section
    verdict = section.verdict
    return replace(section, verdict=replace(verdict, gates=(*verdict.gates, gate)))


def _kind(path: Path) -> str:
    manifest = complete_manifest(
        path,
        _AXES,
        missing="is no run (no manifest.json); name the --out of a command",
        wanted="; wanted the --out of `triax merge run`, `triax c2gen run` or `triax temporal "
        "analyse`",
    )
    return str(manifest["kind"])
