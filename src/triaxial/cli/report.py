"""`triax report`: runs of any axes in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from triaxial.cli import options
from triaxial.cli.console import note, out, print_json

__all__ = ["report"]


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Directories of `triax merge run`, `triax c2gen run` and `triax temporal "
            "analyse`, or NAME=DIRECTORY.",
            show_default=False,
        ),
    ],
    out_file: Annotated[
        Path,
        typer.Option("--out", help="The file: .html, .md or .json.", rich_help_panel="Output"),
    ] = Path("report.html"),
    form: Annotated[
        Literal["html", "md", "json"] | None,
        typer.Option(
            "--format", help="By default what the file's name says.", rich_help_panel="Output"
        ),
    ] = None,
    title: Annotated[
        str, typer.Option(help="Heading.", rich_help_panel="Output")
    ] = "What breaks these language models",
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Gate, such as `SV95 < 70`, `er-res:CI < 50`, `increase > 5`; may be repeated. "
            "The report is written; the exit code is 1.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Put runs of any axes into one file that opens from disk: verdicts, charts, tables, cases.

    Example: `triax report runs/mine runs/grid drift --fail-if "SV95 < 70" --out report.html`
    """
    from triaxial.api.report import named_runs, write_report
    from triaxial.api.report import report as reported
    from triaxial.errors import GateError, InputError
    from triaxial.report.page import as_plain

    suffix = out_file.suffix.lower().lstrip(".")
    suffix = {"htm": "html", "markdown": "md"}.get(suffix, suffix)
    chosen = form or suffix
    if chosen not in ("html", "md", "json"):
        message = "has no ending that tells its form; name it .html, .md or .json, or say --format"
        raise InputError(message, where=out_file)
    made = reported(named_runs(runs), fail_if=fail_if or (), title=title)
    write_report(made, out_file, chosen)  # type: ignore[arg-type]
    if as_json:
        print_json(as_plain(made))
    else:
        console = out()
        for section in made.sections:
            console.print(
                f"{section.verdict.axis}, {section.verdict.run}: {section.verdict.sentence}",
                markup=False,
            )
    failed = [
        f"{section.verdict.run}: gate {gate.condition!r} failed: {gate.seen}"
        for section in made.sections
        for gate in section.verdict.gates
        if not gate.passed
    ]
    how = "; open it in a browser" if chosen == "html" else ""
    note(f"written: {out_file} ({out_file.stat().st_size / 1024:,.0f} KiB){how}")
    if failed:
        raise GateError("; ".join(failed))
