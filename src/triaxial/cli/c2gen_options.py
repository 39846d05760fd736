"""The options of `triax c2gen run`, and what they mean to the functions behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from triaxial.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from triaxial.c2gen.grid import Grid

__all__ = ["grid_of", "numbers", "print_plan"]

_GRID, _DRAWN = "Grid", "Items"
_TRAINING, _REMEDIES, _MODEL = "Training", "Strategies", "Model"

Data = Annotated[
    Path,
    typer.Argument(
        help="Directory that `triax c2gen build` wrote, or a file of items.", show_default=False
    ),
]
Encoder = Annotated[
    str,
    typer.Option(
        help="Encoder or decoder, directory or hub id (`id@revision`).",
        show_default=False,
        rich_help_panel=_MODEL,
    ),
]
OutDir = Annotated[
    Path | None,
    typer.Option("--out", help="Directory for tables and figures.", rich_help_panel="Output"),
]
RunDir = Annotated[Path, typer.Argument(help="Directory of a run.", show_default=False)]
Target = Annotated[
    Literal["paper", "sound"],
    typer.Option(help="Labels of composed pairs: the paper's, or what logic gives."),
]
Folds = Annotated[
    str, typer.Option(help="Types to hold out, `1,5,9` or `1-9`.", rich_help_panel=_GRID)
]
Streams = Annotated[
    str,
    typer.Option(
        help="`cgen`, `ver-nat`, `nat-ver`, these with `/easy-hard` or `/hard-easy` behind, `p|c`, "
        "or a .toml file with stages of your own.",
        rich_help_panel=_GRID,
    ),
]
Strategies = Annotated[
    str,
    typer.Option(
        help="`none`, `er-res`, `er-buff`, `er-mir`, `agem`, `kd`; beyond the paper `der`, `ewc`, "
        "`average`.",
        rich_help_panel=_GRID,
    ),
]
Seeds = Annotated[str, typer.Option(help="Of training, `1-3`.", rich_help_panel=_GRID)]
Solution = Annotated[
    int,
    typer.Option(
        min=1, max=2, help="Which of the two ways to divide a fold.", rich_help_panel=_GRID
    ),
]
PerType = Annotated[
    int, typer.Option(min=1, help="Training items of a type.", rich_help_panel=_DRAWN)
]
TestPerType = Annotated[
    int | None,
    typer.Option(min=1, help="Held-out items of a fold. [all]", rich_help_panel=_DRAWN),
]
Probe = Annotated[
    int,
    typer.Option(
        min=0, help="Untrained items of each trained type to judge.", rich_help_panel=_DRAWN
    ),
]
Unseen = Annotated[
    int,
    typer.Option(
        min=0,
        help="Items of each type with untrained primitives to judge.",
        rich_help_panel=_DRAWN,
    ),
]
DataSeed = Annotated[int, typer.Option(help="Of the items drawn.", rich_help_panel=_DRAWN)]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over a stage.", rich_help_panel=_TRAINING)]
Rate = Annotated[float, typer.Option(help="The highest learning rate.", rich_help_panel=_TRAINING)]
BatchSize = Annotated[int, typer.Option(min=1, help="Items of a step.", rich_help_panel=_TRAINING)]
Decay = Annotated[float, typer.Option(help="Of matrices.", rich_help_panel=_TRAINING)]
Warmup = Annotated[
    float,
    typer.Option(help="Share of a stage in which the rate rises.", rich_help_panel=_TRAINING),
]
Schedule = Annotated[
    Literal["linear", "cosine", "constant"],
    typer.Option(help="How the rate falls within a stage.", rich_help_panel=_TRAINING),
]
ClipNorm = Annotated[
    float, typer.Option(min=0, help="Longest gradient; 0 for any.", rich_help_panel=_TRAINING)
]
Supervision = Annotated[
    Literal["both", "stage"],
    typer.Option(
        "--primitive-supervision",
        help="An item teaches both primitives, or that of its stage alone.",
        rich_help_panel=_TRAINING,
    ),
]
OnStage = Annotated[
    Literal["reset", "keep"],
    typer.Option(help="The optimizer's moments at a stage's border.", rich_help_panel=_TRAINING),
]
Every = Annotated[
    int,
    typer.Option(
        min=1,
        help="Updates between two checkpoints. A killed call loses at most these.",
        rich_help_panel=_TRAINING,
    ),
]
Memory = Annotated[
    int | None,
    typer.Option(min=1, help="Rows kept of earlier stages. [100]", rich_help_panel=_REMEDIES),
]
ReplayBatch = Annotated[
    int | None,
    typer.Option(min=1, help="Rows replayed in a step. [as the batch]", rich_help_panel=_REMEDIES),
]
ReplayMode = Annotated[
    Literal["concat", "two_step"] | None,
    typer.Option(
        help="er-*: replayed rows join the batch, or take a step of their own. [concat]",
        rich_help_panel=_REMEDIES,
    ),
]
MemoryScope = Annotated[
    Literal["previous_stage", "stream"] | None,
    typer.Option(help="er-*: what the memory holds. [previous_stage]", rich_help_panel=_REMEDIES),
]
MirPool = Annotated[
    int | None,
    typer.Option(min=2, help="er-mir: candidates of a step. [50]", rich_help_panel=_REMEDIES),
]
KdWeight = Annotated[
    float | None, typer.Option(help="kd: of the distance. [1]", rich_help_panel=_REMEDIES)
]
DerAlpha = Annotated[
    float | None, typer.Option(help="der: of the distance. [0.5]", rich_help_panel=_REMEDIES)
]
DerBeta = Annotated[
    float | None, typer.Option(help="der: of the loss. [0.5]", rich_help_panel=_REMEDIES)
]
EwcWeight = Annotated[
    float | None, typer.Option(help="ewc: of the penalty. [100]", rich_help_panel=_REMEDIES)
]
FisherItems = Annotated[
    int | None,
    typer.Option(
        min=1, help="ewc: items that the penalty is estimated on. [100]", rich_help_panel=_REMEDIES
    ),
]
AverageWeight = Annotated[
    float | None,
    typer.Option(help="average: of the new weights. [0.5]", rich_help_panel=_REMEDIES),
]
Pooling = Annotated[
    Literal["auto", "first", "mean", "last"],
    typer.Option(help="Which vector the heads read.", rich_help_panel=_MODEL),
]
Lora = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Rank of adapters in place of the model's own weights (for LLMs).",
        rich_help_panel=_MODEL,
    ),
]
LoraTargets = Annotated[
    str, typer.Option(help="Layers with adapters, comma-separated.", rich_help_panel=_MODEL)
]
Vectors = Annotated[
    int,
    typer.Option(
        min=0,
        help="Held-out items of which to keep the vectors, for `analyse`.",
        rich_help_panel="Output",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        min=1,
        help="Stages trained at a time, each on its share of the cores.",
        rich_help_panel="Computing",
    ),
]
Plan = Annotated[
    bool,
    typer.Option(
        "--plan", help="Print stages, steps, tokens and time, and stop.", rich_help_panel="Output"
    ),
]

_SETTINGS = (
    "memory",
    "replay_batch",
    "replay_mode",
    "memory_scope",
    "mir_pool",
    "kd_weight",
    "der_alpha",
    "der_beta",
    "ewc_weight",
    "fisher_items",
    "average_weight",
)


def grid_of(context: typer.Context) -> Grid:
    """The grid that the options of `run` describe."""
    from triaxial.c2gen.grid import Grid, TrainOptions
    from triaxial.c2gen.streams import Draw
    from triaxial.models.heads import LoraOptions

    given = context.params
    settings = {name: given[name] for name in _SETTINGS if given[name] is not None}
    lora = given["lora"]
    return Grid(
        encoder=given["encoder"],
        folds=numbers(given["folds"], "--folds"),
        streams=_names(given["streams"], "--streams"),
        strategies=_names(given["strategies"], "--strategies"),
        seeds=numbers(given["seeds"], "--seeds"),
        solution=given["solution"],
        draw=Draw(
            per_type=given["per_type"],
            test_per_type=given["test_per_type"],
            probe_per_type=given["probe"],
            unseen_per_type=given["unseen"],
            seed=given["data_seed"],
        ),
        train=TrainOptions(
            epochs=given["epochs"],
            learning_rate=given["learning_rate"],
            batch_size=given["batch_size"],
            weight_decay=given["weight_decay"],
            warmup=given["warmup"],
            schedule=given["schedule"],
            clip_norm=given["clip_norm"] or None,
            primitive_supervision=given["supervision"],
            optimizer_on_stage=given["optimizer_on_stage"],
            checkpoint_every=given["checkpoint_every"],
        ),
        settings=settings,
        pooling=given["pooling"],
        lora=LoraOptions(lora, 2 * lora, targets=given["lora_targets"]) if lora else None,
        precision=given["precision"],
        vectors=given["vectors"],
    )


def numbers(text: str, where: str) -> tuple[int, ...]:
    """Whole numbers from `1,5,9`, `1-9` or both; each once, in the order given.

    Raises:
        InputError: It cannot be read.
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise InputError(f"cannot read {part!r}; write `1,5,9` or `1-9`", where=where)
        found |= dict.fromkeys(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(found)


def print_plan(console: Console, plan: Mapping[str, Any]) -> None:
    """A plan as a table."""
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name in ("stream", "stage", "strategy"):
        table.add_column(name)
    for name in ("stages", "done", "items", "steps", "tokens", "minutes"):
        table.add_column(name, justify="right")
    for row in plan["rows"]:
        shared = row["stage"] == 1 and row["stream"] != "cgen"
        table.add_row(
            row["stream"],
            str(row["stage"]),
            "all, shared" if shared and row["strategy"] == "none" else row["strategy"],
            *(f"{row[name]:,}" for name in ("stages", "done", "items", "steps", "tokens")),
            f"{row['seconds'] / 60:.1f}",
        )
    console.print(table)
    console.print(
        f"{plan['units']} units, {plan['stages']} stages of training ({plan['done']} done; "
        f"{plan['without_sharing']} without sharing); about {plan['seconds'] / 60:.0f} minutes at "
        f"{plan['rate_gflops']:.0f} GFLOP/s"
    )
    for row in plan["dropped"]:
        why = ", ".join(
            f"{count:,} {reason}"
            for reason, count in row.items()
            if reason not in ("stream", "test_type")
        )
        console.print(
            f"fold {row['test_type']} of {row['stream']}, left out: {why}",
            style="dim",
            markup=False,
        )


def _names(text: str, where: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise InputError(f"cannot read {text!r}; write names with commas between", where=where)
    return found
