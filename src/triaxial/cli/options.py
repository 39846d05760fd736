"""Options that several commands share, under one name and one help text each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from triaxial.nli import Reading

__all__ = ["check_condition", "check_workers", "read", "seconds"]

Source = Annotated[
    str,
    typer.Argument(
        help="NLI pairs: FORMAT:WHERE or a path. `sick:SICK.txt`, `snli:hub`, `mnli:FILE`, "
        "`hub:REPOSITORY`, or a .jsonl, .csv, .tsv or .parquet file.",
        show_default=False,
    ),
]
Split = Annotated[
    str | None,
    typer.Option(help="Split: TRAIN, TRIAL, TEST of SICK, or the hub's.", rich_help_panel="Data"),
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="Column names: `premise=a,hypothesis=b,label=c,id=d`.", rich_help_panel="Data"
    ),
]
LabelMap = Annotated[
    str | None,
    typer.Option(
        help="What the data's labels mean: `maybe=neutral,2=contradiction`.", rich_help_panel="Data"
    ),
]
OnBad = Annotated[
    Literal["refuse", "drop"],
    typer.Option(help="A bad row is refused, or dropped and counted.", rich_help_panel="Data"),
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Take the first so many pairs only.", rich_help_panel="Data"),
]
StoreDir = Annotated[
    Path,
    typer.Option(
        "--store", help="Where finished work is kept and found again.", rich_help_panel="Computing"
    ),
]
Device = Annotated[
    str, typer.Option(help="`auto`, `cpu`, `cuda`, `cuda:N` or `mps`.", rich_help_panel="Computing")
]
Precision = Annotated[
    Literal["auto", "fp32", "bf16"],
    typer.Option(
        help="`auto` takes bf16 where the device multiplies it natively.",
        rich_help_panel="Computing",
    ),
]
TokenBudget = Annotated[
    int | None,
    typer.Option(
        min=16, help="Padded tokens of a batch; by default what suits.", rich_help_panel="Computing"
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        help="Work on Ray: `local` starts --workers on this machine, `auto` or `HOST:PORT` joins a "
        "cluster.",
        rich_help_panel="Computing",
    ),
]
RayWorkers = Annotated[
    int, typer.Option(min=1, help="Workers of --ray local.", rich_help_panel="Computing")
]
Budget = Annotated[
    str | None,
    typer.Option(
        help="Time for the whole: `90s`, `15m`, `1h30m`. A stratified sample that fits is taken, "
        "and the intervals are those of the sample.",
        rich_help_panel="Computing",
    ),
]
FailIf = Annotated[
    str | None,
    typer.Option(
        help="Exit with 1 when this holds: `SV95 < 70`, `VERB:SV95 < 60`; `er-res:CI < 50`, "
        "`forgetting > 20`; `increase > 5`, `slope > 0.5`.",
        rich_help_panel="Output",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print the figures as JSON instead of tables.", rich_help_panel="Output"
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Replace the run of another call in --out.", rich_help_panel="Output"
    ),
]


def seconds(budget: str | None) -> float | None:
    """A budget in seconds."""
    if budget is None:
        return None
    from triaxial.api.budget import parse_budget

    return parse_budget(budget)


def check_workers(workers: int, ray: str | None) -> None:
    """Refuse workers where they do nothing."""
    if workers > 1 and ray != "local":
        from triaxial.errors import InputError

        raise InputError("goes with --ray local; leave it out", where="--workers")


def check_condition(fail_if: str | None) -> None:
    """Refuse a condition that cannot be read before any work is done."""
    if fail_if is not None:
        from triaxial.api.gates import parse_gate

        parse_gate(fail_if)


def read(
    source: str,
    split: str | None,
    columns: str | None,
    label_map: str | None,
    on_bad: Literal["refuse", "drop"],
    limit: int | None,
) -> Reading:
    """Read pairs as the options say."""
    from triaxial.nli import parse_columns, parse_map, read_pairs

    return read_pairs(
        source,
        split=split,
        columns=parse_columns(columns) if columns else None,
        label_map=parse_map(label_map) if label_map else None,
        on_bad=on_bad,
        limit=limit,
    )
