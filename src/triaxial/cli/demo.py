"""`triax demo`: the axes on a generated world with planted truths, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triaxial.cli.console import note, out, progress

__all__ = ["demo"]


def demo(
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Where to work; by default a temporary directory.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the world and the models.")] = 1,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Train tiny models on a generated world and run MERGE on them: a few minutes, no network.

    Example: `triax demo --out runs/demo`
    """
    import tempfile

    from triaxial.api.merge_files import both_works
    from triaxial.cli.merge_tables import print_funnel, print_metrics, print_seconds
    from triaxial.demo import PLANTED, run_demo

    directory = out_dir or Path(tempfile.mkdtemp(prefix="triax-demo-"))
    with progress(quiet) as told:
        made, metrics, facts = run_demo(directory, told, seed=seed)
    console = out()
    print_funnel(console, made.funnel)
    print_metrics(console, metrics)
    print_seconds(console, both_works(made.work, facts["work"]))
    (scored,) = metrics["models"].values()
    measured = ", ".join(
        f"{name} {one['sv'][18]['value']:.1f}" for name, one in scored.get("class", {}).items()
    )
    console.print(f"planted: {PLANTED}\nmeasured: SV95 by class: {measured}", markup=False)
    note(f"in {directory}; next: `triax merge show {directory}/run s0 --store {directory}/store`")
