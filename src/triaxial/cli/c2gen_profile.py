"""`triax c2gen profile`: a profile that gains facts, and what a model forgets of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from triaxial.cli import c2gen_options as own
from triaxial.cli import options
from triaxial.cli.console import note, out, print_json, progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["profile"]


def profile(
    encoder: own.Encoder,
    file: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            help="Facts of your own, .toml or .jsonl; by default a small set of ours.",
            show_default=False,
        ),
    ] = None,
    strategies: own.Strategies = "none,er-res,kd",
    seed: Annotated[int, typer.Option(help="Of training.", rich_help_panel="Training")] = 1,
    epochs: own.Epochs = 5,
    learning_rate: own.Rate = 1e-4,
    batch_size: own.BatchSize = 8,
    memory: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Lines kept of earlier stages. [a third of the first]",
            rich_help_panel="Strategies",
        ),
    ] = None,
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    out_dir: own.OutDir = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Teach a model a profile that gains facts stage by stage, and show what it forgets.

    Example: `triax c2gen profile --encoder roberta-base --strategies none,er-res`
    """
    from triaxial.api.c2gen_profile import TRAIN
    from triaxial.api.c2gen_profile import profile as learned
    from triaxial.execute import Computing

    train = replace(TRAIN, epochs=epochs, learning_rate=learning_rate, batch_size=batch_size)
    with progress() as told:
        found = learned(
            encoder,
            Computing(store, device, progress=told),
            file=file,
            strategies=tuple(name.strip() for name in strategies.split(",")),
            train=train,
            memory=memory,
            seed=seed,
            out=out_dir,
            overwrite=overwrite,
        )
    if as_json:
        print_json(found)
    else:
        _print(out(), found)
    if out_dir is not None:
        note(f"in {out_dir}; what the columns mean: docs/profile.md")


def _print(console: Console, found: Mapping[str, Any]) -> None:
    from triaxial.api.c2gen_profile import WHAT

    lines = " + ".join(map(str, found["trained"]))
    remembered = f"; memory of {found['memory']} lines" if found["memory"] else ""
    console.print(
        f"{found['facts']} facts in {found['stages']} stages, {lines} lines trained{remembered}; "
        f"{found['train']['epochs']} epochs, seed {found['seed']}; {found['seconds']:.0f} s"
    )
    for what in dict.fromkeys(row["what"] for row in found["rows"]):
        console.print()
        console.print(_table(found, what, f"{what}: {WHAT[what]}, % right [95 % interval]"))
    base = found["strategies"][0]
    console.print(
        "(…): before these facts were learned; forgotten: points lost since they were, the last "
        f"stage's left out; Δ {base}: less '{base}' after the last stage, points; intervals: facts "
        "resampled; V-only, N-only: the verb's or the utterance's own label as the answer",
        style="dim",
        markup=False,
    )
    console.print()
    console.print(_excerpt(found["excerpt"], base))


def _table(found: Mapping[str, Any], what: str, title: str) -> Table:
    from rich.text import Text

    from triaxial.cli.c2gen_tables import _table as plain

    table = plain(title)
    table.add_column("facts")
    table.add_column("strategy")
    stages = [str(number + 1) for number in range(found["stages"])]
    for name in (*(f"after S{stage}" for stage in stages), "forgotten"):
        table.add_column(name, justify="right")
    base = found["strategies"][0]
    if len(found["strategies"]) > 1:
        table.add_column(f"Δ {base}", justify="right")
    table.add_column("n", justify="right")
    rows = [row for row in found["rows"] if row["what"] == what]
    simple = [row for row in found["baselines"] if row["what"] == what]
    for facts in dict.fromkeys(row["facts"] for row in rows):
        mine = [row for row in rows if row["facts"] == facts]
        # Of one stage the constant answer is enough; the others stand under the whole profile.
        constant = [row for row in simple if row["facts"] == facts]
        mine += constant if facts == 0 else constant[:1]
        for number, row in enumerate(mine):
            model = "gain" in row
            cells = [
                _cell(row["after"][stage], bracket=model, before=model and int(stage) < facts)
                for stage in stages
            ]
            cells.append(_cell(row.get("forgotten"), sign="+"))
            if len(found["strategies"]) > 1:
                cells.append(_cell(row.get("gain"), sign="+"))
            name = f"of stage {facts}" if facts else "profile so far"
            last = row["after"][stages[-1]]
            table.add_row(
                name if number == 0 else "",
                Text(row["strategy"]),
                *cells,
                str(last["n"]),
                style="" if model else "italic",
                end_section=number == len(mine) - 1,
            )
    return table


def _excerpt(excerpt: Mapping[str, Any], base: str) -> Table:
    from rich.text import Text

    from triaxial.cli.c2gen_tables import _table as plain

    table = plain(
        f"Trained lines of earlier facts, answers after each stage: first some of the "
        f"{excerpt['lost']} (of {excerpt['of']}) that were right when learned and are lost under "
        f"'{base}', then others"
    )
    for name in ("S", "the profile says", "an utterance", "gold"):
        table.add_column(name, overflow="fold")
    for name in excerpt["strategies"]:
        table.add_column(name, no_wrap=True)
    before = True
    for row in excerpt["lines"]:
        if before and not row["lost"] and table.row_count:
            table.add_section()
        before = row["lost"]
        answers = []
        for said in row["answers"].values():
            shown = Text()
            for number, label in enumerate(said, 1):
                wrong = label != row["gold"]
                mark = f"({label[0]})" if number < row["facts"] else label[0]
                shown.append(f"{mark}{'✗' if wrong and number >= row['facts'] else ''} ")
            answers.append(shown)
        table.add_row(
            str(row["facts"]), Text(row["line"]), Text(row["utterance"]), row["gold"][0], *answers
        )
    return table


def _cell(
    figure: Mapping[str, Any] | None, *, sign: str = "", bracket: bool = True, before: bool = False
) -> str:
    if figure is None:
        return "-"
    text = f"{figure['value']:{sign}.0f}"
    if bracket and figure["low"] is not None:
        text += f" \\[{figure['low']:{sign}.0f}, {figure['high']:{sign}.0f}]"
    return f"({text})" if before else text
