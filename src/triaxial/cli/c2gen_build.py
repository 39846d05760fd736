"""`triax c2gen build` and `validate`: the data of the composition axis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from triaxial.cli import options
from triaxial.cli.console import note, out, print_json, progress
from triaxial.errors import InputError

if TYPE_CHECKING:
    from triaxial.api.c2gen_data import Made

__all__ = ["build", "validate"]

_SHOWN = 20  # faults that are printed


def build(
    sick: Annotated[
        Path, typer.Option("--sick", help="SICK.txt as distributed (CC BY-NC-SA, not included).")
    ],
    out_dir: Annotated[Path, typer.Option("--out", help="Directory for the data.")],
    aspect: Annotated[
        Literal["simple", "progressive"],
        typer.Option(help="`to sing` and `sings`, or `to be singing` and `is singing`."),
    ] = "simple",
    per_premise: Annotated[
        int, typer.Option("--per-premise", min=1, help="Primitives that may share a premise.")
    ] = 2,
    counts: Annotated[
        str, typer.Option(help="Seen primitives with label entailment, neutral, contradiction.")
    ] = "747,693,690",
    unseen: Annotated[
        str, typer.Option(help="Unseen primitives, at most, by the same labels.")
    ] = "75,70,70",
    pseudo: Annotated[
        Literal["verbs", "nouns", "all"] | None,
        typer.Option(help="Put invented words for the verbs, the deciding words, or both."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 1,
    tagger: Annotated[str, typer.Option(help="`hanta` or `spacy:NAME_OR_DIRECTORY`.")] = "hanta",
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Build composed items from SICK.

    Example: `triax c2gen build --sick SICK.txt --out data`
    """
    from triaxial.api.c2gen_data import build_data
    from triaxial.c2gen.build import BuildOptions

    asked = BuildOptions(
        aspect, per_premise, _three(counts, "--counts"), _three(unseen, "--unseen"), seed
    )
    with progress() as told:
        made = build_data(
            sick,
            out_dir,
            asked,
            pseudo=pseudo,
            tagger=tagger,
            overwrite=overwrite,
            progress=told,
        )
    if as_json:
        print_json({key: value for key, value in made.facts.items() if key != "primitives"})
        return
    _print_made(made, out_dir)
    note(f"next: `triax c2gen validate {out_dir}`")


def validate(
    path: Annotated[
        Path,
        typer.Argument(
            help="A directory of `triax c2gen build`, or a JSON-lines file, the authors' too.",
            show_default=False,
        ),
    ],
    as_json: options.Json = False,
) -> None:
    """Check composed items: labels by the rule, types, verbs, duplicates, sentences that match.

    Example: `triax c2gen validate data`
    """
    from triaxial.api.c2gen_data import validate_data

    found = validate_data(path)
    faults = found["faults"]
    if as_json:
        print_json(found)
    else:
        console = out()
        types = ", ".join(f"{number}: {count:,}" for number, count in found["types"].items())
        primitives = ", ".join(f"{count:,} {what}" for what, count in found["primitives"].items())
        console.print(
            f"{found['file']}: {found['items']:,} items, {found['verbs']} of "
            f"{found['of_verbs']} verbs\ntypes {types}\nprimitives {primitives}",
            markup=False,
        )
        for fault in faults[:_SHOWN]:
            console.print(fault, markup=False, soft_wrap=True)
    if faults:
        many = f"{len(faults):,} faults, --json lists them all" if faults[1:] else "1 fault"
        raise InputError(f"{many}; mend the file or build it again", where=path)
    note("no faults; next: `triax c2gen run DATA --encoder ENCODER --plan`")


def _three(text: str, option: str) -> tuple[int, int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise InputError(f"cannot read {text!r}; write three counts as 747,693,690", where=option)
    first, second, third = map(int, parts)
    return first, second, third


def _print_made(made: Made, directory: Path) -> None:
    from rich.table import Table

    from triaxial.nli import LABELS

    console = out()
    built = made.built
    console.print(
        f"{len(built.items):,} items of {len(built.primitives):,} natural primitives in "
        f"{directory}; what was dropped and why is in card.md",
        markup=False,
    )
    table = Table("primitives", *LABELS)
    for part in ("seen", "unseen"):
        mine = [p.label for p in built.primitives if p.part == part]
        table.add_row(part, *(f"{mine.count(label):,}" for label in LABELS))
    table.add_row("candidates", *(f"{built.counts[f'candidates {n}']:,}" for n in LABELS))
    console.print(table)
    if made.pseudo is not None:
        console.print(
            f"invented words: {len(made.pseudo.verbs)} verbs, {made.pseudo.pairs} pairs of words "
            f"in {made.pseudo.instances} primitives",
            markup=False,
        )
