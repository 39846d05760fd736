"""`triax demo`: the axes on generated worlds with planted truths, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triaxial.cli import options
from triaxial.cli.console import note, out, print_json, progress

__all__ = ["demo"]


def demo(
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Where to work; by default a temporary directory.",
            rich_help_panel="Output",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the worlds and the models.")] = 1,
    as_json: options.Json = False,
) -> None:
    """Train tiny models on generated worlds and run all three axes: minutes, no network.

    What was planted stands beside what was measured; the last line names the report.

    Example: `triax demo --out runs/demo`
    """
    import tempfile

    from triaxial.demo import DemoOptions, run_demo
    from triaxial.report.page import as_plain

    directory = out_dir or Path(tempfile.mkdtemp(prefix="triax-demo-"))
    with progress() as told:
        made, _ = run_demo(directory, told, DemoOptions(seed=seed))
    if as_json:
        print_json(as_plain(made))
    else:
        console = out()
        for section in made.sections:
            console.print(f"{section.verdict.axis}: {section.verdict.sentence}", markup=False)
        for planted, measured in made.planted:
            console.print(f"planted: {planted}\nmeasured: {measured}", markup=False)
    note(f"the report: {directory / 'report.html'}")
    note(f"next: `triax merge words {directory / 'replacement'}` for the words that it fails on")
