"""`triax c2gen`: does a model compose what it learned, and still after learning more?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from triaxial.cli import c2gen_options as own
from triaxial.cli import options
from triaxial.cli.c2gen_build import build, validate
from triaxial.cli.c2gen_profile import profile
from triaxial.cli.console import note, out, print_json, progress

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Composition: does a model compose what it learned, and still after learning more? "
    "(C²Gen NLI, TACL 2024)",
)
app.command()(build)
app.command()(validate)
app.command()(profile)


@app.command()
def run(
    context: typer.Context,
    data: own.Data,
    encoder: own.Encoder,
    out_dir: own.OutDir = None,
    folds: own.Folds = "1-9",
    streams: own.Streams = "cgen,ver-nat,nat-ver",
    strategies: own.Strategies = "none,er-res,er-buff,er-mir,agem,kd",
    seeds: own.Seeds = "1-3",
    solution: own.Solution = 1,
    per_type: own.PerType = 800,
    test_per_type: own.TestPerType = None,
    probe: own.Probe = 50,
    unseen: own.Unseen = 50,
    data_seed: own.DataSeed = 1,
    epochs: own.Epochs = 3,
    learning_rate: own.Rate = 1e-5,
    batch_size: own.BatchSize = 8,
    weight_decay: own.Decay = 0.0,
    warmup: own.Warmup = 0.0,
    schedule: own.Schedule = "constant",
    clip_norm: own.ClipNorm = 1.0,
    supervision: own.Supervision = "both",
    optimizer_on_stage: own.OnStage = "reset",
    memory: own.Memory = None,
    replay_batch: own.ReplayBatch = None,
    replay_mode: own.ReplayMode = None,
    memory_scope: own.MemoryScope = None,
    mir_pool: own.MirPool = None,
    kd_weight: own.KdWeight = None,
    der_alpha: own.DerAlpha = None,
    der_beta: own.DerBeta = None,
    ewc_weight: own.EwcWeight = None,
    fisher_items: own.FisherItems = None,
    average_weight: own.AverageWeight = None,
    pooling: own.Pooling = "auto",
    lora: own.Lora = None,
    lora_targets: own.LoraTargets = "all-linear",
    vectors: own.Vectors = 0,
    checkpoint_every: own.Every = 200,
    plan: own.Plan = False,
    precision: options.Precision = "auto",
    store: options.StoreDir = Path(".triaxial"),
    device: options.Device = "auto",
    token_budget: options.TokenBudget = None,
    workers: own.Workers = 1,
    ray: options.Ray = None,
    budget: options.Budget = None,
    fail_if: options.FailIf = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Train and judge a grid of folds, streams, strategies and seeds.

    The first stage is trained once for all strategies; a killed call goes on where it stopped.

    Example: `triax c2gen run c2gen-data --encoder roberta-large --out run --plan`
    """
    from triaxial.execute import Computing

    options.check_condition(fail_if)
    grid = own.grid_of(context)
    if (seconds := options.seconds(budget)) is not None:
        from triaxial.api.c2gen_plan import within

        grid = within(data, grid, Computing(store=store, device=device), seconds)
        note(
            f"budget {budget}: {grid.draw.per_type} items a type in training, "
            f"{grid.draw.test_per_type} in the test"
        )
    if plan:
        from triaxial.api.c2gen_plan import plan as planned

        found = planned(data, grid, Computing(store=store, device=device))
        if as_json:
            print_json(found)
            return
        own.print_plan(out(), found)
        note("next: the same command without --plan, and with --out DIR")
        return
    from triaxial.api.c2gen import run as run_grid
    from triaxial.errors import InputError

    if out_dir is None:
        raise InputError("is not given; name a directory, or pass --plan", where="--out")
    with progress() as told:
        computing = Computing(store, device, token_budget, workers, told, ray)
        metrics = run_grid(data, grid, computing, out_dir, overwrite=overwrite)
    _print(metrics, as_json)
    note(f"in {out_dir}; next: `triax report {out_dir}`, `triax c2gen analyse {out_dir}`")
    _gate(metrics, fail_if)


@app.command()
def score(
    run_dir: own.RunDir,
    target: own.Target = "paper",
    fail_if: options.FailIf = None,
    as_json: options.Json = False,
) -> None:
    """Compute and print the figures of a run again, from its tables alone.

    Example: `triax c2gen score run --target sound`
    """
    from triaxial.api.c2gen import score as scored

    options.check_condition(fail_if)
    metrics = scored(run_dir, target=target)
    _print(metrics, as_json)
    note(f"next: `triax report {run_dir}`, `triax c2gen analyse {run_dir}`")
    _gate(metrics, fail_if)


@app.command()
def analyse(
    runs: Annotated[
        list[Path],
        typer.Argument(help="One run, or several that differ in one setting.", show_default=False),
    ],
    target: own.Target = "paper",
    method: Annotated[
        Literal["tsne", "pca"], typer.Option(help="How vectors are laid on a plane.")
    ] = "tsne",
    as_json: options.Json = False,
) -> None:
    """Orders and representations of one run; sweeps and invented words of several.

    Example: `triax c2gen analyse run-50 run-100 run-200` for runs with three sizes of memory
    """
    from triaxial.api.c2gen import analyse as analysed

    found = analysed(runs, target=target, method=method)
    if as_json:
        print_json(found)
        return
    from triaxial.cli.c2gen_tables import print_analysis

    print_analysis(out(), found)
    note(f"next: `triax report {' '.join(map(str, runs))} --out report.html`")


def _print(metrics: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(metrics)
        return
    from triaxial.cli.c2gen_tables import print_summary

    console: Console = out()
    print_summary(console, metrics, metrics["claims"])
    for strategies in metrics["signatures"].values():
        for line in strategies.values():
            console.print(line, style="dim", markup=False, soft_wrap=True)


def _gate(metrics: Mapping[str, Any], fail_if: str | None) -> None:
    if fail_if is not None:
        from triaxial.api.gates import c2gen_figures, check_gate

        check_gate(c2gen_figures(metrics), fail_if)
