"""`triax doctor` and `triax runs`: the machine, and what earlier calls left on it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from triaxial.cli import options
from triaxial.cli.console import note, out, print_json

if TYPE_CHECKING:
    from triaxial.api.system import Entry

__all__ = ["doctor", "runs_app"]

runs_app = typer.Typer(
    no_args_is_help=True, help="What earlier calls left in a store: list it, look, remove."
)

Where = Annotated[
    Path,
    typer.Option("--store", help="Store, or a directory of runs.", rich_help_panel="Computing"),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(help="Names, keys, or beginnings of keys.", show_default=False),
]


def doctor(store: options.StoreDir = Path(".triaxial"), as_json: options.Json = False) -> None:
    """Look at versions, devices and their speed, caches, word lists and the model hub.

    The exit code is 1 where something that is needed is missing.

    Example: `triax doctor`
    """
    from triaxial.api.system import doctor as looked
    from triaxial.errors import GateError

    found = looked(store)
    if as_json:
        print_json([check.plain() for check in found])
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table("", "what", "found", box=None, show_header=False)
        marks = {"ok": "ok", "note": "--", "missing": "NO"}
        for check in found:
            table.add_row(marks[check.state], Text(check.name), Text(check.found))
        out().print(table)
    lacking = [check.name for check in found if check.state == "missing"]
    if lacking:
        raise GateError(f"not everything that is needed is here: {', '.join(lacking)}")
    note("next: `triax demo` tries all three axes in minutes")


@runs_app.command("list")
def list_runs(
    store: Where = Path(".triaxial"),
    incomplete: Annotated[bool, typer.Option("--incomplete", help="Unfinished ones only.")] = False,
    as_json: options.Json = False,
) -> None:
    """List stages, caches and runs with size and age, the latest first.

    Example: `triax runs list --incomplete`
    """
    from triaxial.api.system import entries

    found = sorted(entries(store), key=lambda one: -one.changed)
    found = [one for one in found if not (incomplete and one.complete)]
    if as_json:
        print_json([one.plain() for one in found])
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("what", "key", "state", box=None, header_style="bold")
    for name in ("rows", "MiB", "changed"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(
            Text(one.kind),
            one.key[:16],
            _state(one),
            "-" if one.rows is None else f"{one.rows:,}",
            f"{one.bytes / 2**20:,.1f}",
            _ago(time.time() - one.changed),
        )
    out().print(table)
    whole = sum(one.bytes for one in found)
    note(f"{len(found):,} in {store}, {whole / 2**20:,.0f} MiB; next: `triax runs show KEY`")


@runs_app.command("show")
def show_run(
    name: Annotated[str, typer.Argument(help="Name, key, or its beginning.", show_default=False)],
    store: Where = Path(".triaxial"),
    as_json: options.Json = False,
) -> None:
    """Print what made a stage or run: parameters, inputs, versions, files.

    Example: `triax runs show 1a2b3c4d`
    """
    from triaxial.api.system import find
    from triaxial.store import read_json

    (entry,) = find(store, [name])
    files = [Path(entry.path) / name for name in ("manifest.json", "plan.json")]
    about: dict[str, Any] = next((read_json(file) for file in files if file.is_file()), {})
    if as_json:
        print_json({**entry.plain(), "manifest": about})
        return
    import json

    more = "" if entry.complete else "; the command that made it goes on"
    print(f"{entry.path}: {entry.kind}, {_state(entry)}{more}, {entry.bytes / 2**20:,.1f} MiB")
    print(json.dumps(about, indent=1, ensure_ascii=False))


@runs_app.command("rm")
def remove_runs(
    names: Names = None,
    store: Where = Path(".triaxial"),
    incomplete: Annotated[bool, typer.Option("--incomplete", help="All unfinished ones.")] = False,
    older: Annotated[
        float | None, typer.Option(min=0, help="All that were last written so many days ago.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove stages and runs; what a later call needs is computed again.

    Example: `triax runs rm --older 30`
    """
    from triaxial.api.system import entries, find, remove
    from triaxial.errors import InputError

    if not names and not incomplete and older is None:
        raise InputError("nothing is named; give keys, --incomplete or --older DAYS")
    chosen = find(store, names or [])
    for one in entries(store) if incomplete or older is not None else ():
        aged = older is None or time.time() - one.changed > 86_400 * older
        if aged and not (incomplete and one.complete) and one not in chosen:
            chosen.append(one)
    size = sum(one.bytes for one in chosen) / 2**20
    if chosen and not yes:
        many = f"{len(chosen):,} director{'y' if len(chosen) == 1 else 'ies'}, {size:,.0f} MiB"
        try:
            typer.confirm(f"remove {many}?", abort=True, err=True)
        except typer.Abort:
            note("nothing was removed; pass --yes where nobody can be asked")
            raise
    freed = remove(chosen)
    if as_json:
        print_json({"removed": [one.path for one in chosen], "bytes": freed})
        return
    print(f"removed {len(chosen):,}, {freed / 2**20:,.1f} MiB")


def _state(entry: Entry) -> str:
    """In words; of what is at work or was killed also how far it is."""
    if entry.complete:
        return "whole"
    if not entry.planned:
        return "unfinished"
    return f"{entry.done:,} of {entry.planned:,} {entry.parts}"


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
