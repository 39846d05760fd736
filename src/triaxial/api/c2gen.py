"""The composition axis as functions: run, score, analyse.

A run is a directory with the tables `predictions` and `costs`, `metrics.json` and a manifest; with
vectors kept, `vectors` too. All that is shown is computed from these files.

Source: Fu and Frank, TACL 12, 2024; see `docs/choices.md` for what the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from triaxial import __version__
from triaxial.c2gen.analyses import (
    claims,
    orders,
    pseudo_against_real,
    representations,
    signature,
    summarize,
    sweep,
)
from triaxial.c2gen.grid import Grid
from triaxial.c2gen.items import check_items, read_items
from triaxial.c2gen.stages import Job, jobs_of, predictions_of, run_jobs, vectors_of
from triaxial.c2gen.units import Unit, units_of
from triaxial.errors import InputError
from triaxial.execute import Computing
from triaxial.store import (
    claim_directory,
    digest,
    file_digest,
    finish_directory,
    finished_directory,
    read_table,
    write_json,
    write_table,
)

if TYPE_CHECKING:
    import polars as pl

__all__ = ["RUN", "analyse", "dropped_of", "items_file", "prepared", "run", "score"]

RUN = "c2gen.run"
ITEMS = "items.jsonl"

Target = Literal["paper", "sound"]


def items_file(data: str | Path) -> Path:
    """The items of a directory that `build` wrote, or a file of items itself."""
    path = Path(data).expanduser()
    if path.is_dir():
        if not (path / ITEMS).is_file():
            message = f"holds no {ITEMS}; make it with `triax c2gen build`"
            raise InputError(message, where=path)
        return path / ITEMS
    return path


def run(
    data: str | Path, grid: Grid, computing: Computing, out: Path, *, overwrite: bool = False
) -> dict[str, Any]:
    """Train and judge a whole grid; returns the metrics.

    Called again after an interruption it goes on where it stopped, within a stage too.

    Raises:
        InputError: Data, grid or encoder cannot be used, or training diverges.
        StoreError: `out` holds something else, or cannot be written.
    """
    units, chains, items = prepared(data, grid, computing)
    keys = [chain[-1].stage.key for chain in chains.values()]
    key = digest(["c2gen.run", keys])
    claim_directory(out, RUN, key, replace=overwrite)
    run_jobs(chains, computing)
    predictions, costs = predictions_of(chains, units, items)
    write_table(out / "predictions.parquet", predictions)
    write_table(out / "costs.parquet", costs)
    if grid.vectors:
        write_table(out / "vectors.parquet", _vectors(units, chains))
    metrics = _metrics(predictions, costs, "paper")
    write_json(out / "metrics.json", metrics)
    about = asdict(grid)
    about["settings"] = dict(grid.settings)
    source = {"file": items_file(data).name, "digest": file_digest(items_file(data))}
    facts = {"data": source, "grid": about, "dropped": dropped_of(units), "units": len(units)}
    finish_directory(out, facts)
    return metrics


def score(out: str | Path, *, target: Target = "paper") -> dict[str, Any]:
    """The metrics of a run, computed again from its tables.

    Args:
        out: Directory of the run.
        target: The paper's labels of composed pairs, or those that logic gives.

    Raises:
        StoreError: It is no finished run.
    """
    predictions, costs, _ = _read(Path(out))
    return _metrics(predictions, costs, target)


def analyse(
    runs: Sequence[str | Path], *, target: Target = "paper", method: str = "tsne"
) -> dict[str, Any]:
    """What one run says beyond its scores, or how several compare.

    One run: `orders` and, where vectors were kept, `representations` of the held-out items after
    each stage. Several: `pseudo` where two differ in their data (the first is the real one), and
    otherwise `sweep` over the setting in which they differ (learning rate, memory, ...).

    Raises:
        InputError: Runs that differ in more than one setting, or in none.
        StoreError: A directory that is no finished run.
    """
    read = [_read(Path(path)) for path in runs]
    if len(read) == 1:
        predictions, costs, _ = read[0]
        path = Path(runs[0]) / "vectors.parquet"
        found: dict[str, Any] = {"orders": orders(_metrics(predictions, costs, target))}
        if path.exists():
            found["representations"] = _representations(read_table(path), method)
        return found
    tables = [table for table, _, _ in read]
    if len({facts["data"]["digest"] for _, _, facts in read}) > 1:
        if len(read) > 2:
            raise InputError("runs on different data compare in pairs; give the real one and one")
        return {"pseudo": pseudo_against_real(*tables, target=target)}
    settings = [_settings(facts["grid"]) for _, _, facts in read]
    names = sorted({name for one in settings for name in one})
    differ = [n for n in names if len({str(one.get(n)) for one in settings}) > 1]
    if len(differ) != 1:
        said = f"differ in {', '.join(differ)}" if differ else "do not differ"
        raise InputError(f"the runs {said}; wanted one setting that differs")
    by_setting = {
        f"{differ[0]}={one.get(differ[0])}": table
        for one, table in zip(settings, tables, strict=True)
    }
    return {"setting": differ[0], "sweep": sweep(by_setting, target=target)}


def prepared(
    data: str | Path, grid: Grid, computing: Computing
) -> tuple[list[Unit], dict[int, list[Job]], list[Any]]:
    """Units, their jobs and the items of a grid, all checked."""
    path = items_file(data)
    items = read_items(path)
    check_items(items, str(path))
    units = units_of(items, grid)
    return units, jobs_of(units, str(path), grid, computing), items


def _metrics(predictions: pl.DataFrame, costs: pl.DataFrame, target: Target) -> dict[str, Any]:
    summary = summarize(predictions, target=target, version=__version__)
    summary = {"schema": 1, **summary, "costs": _costs(costs), "claims": claims(summary)}
    summary["signatures"] = {
        stream: {strategy: signature(summary, stream, strategy) for strategy in strategies}
        for stream, strategies in summary["streams"].items()
    }
    return summary


def _costs(costs: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """By stream and strategy, means over units of what the stages after the first took.

    The first stage is the same for all; a stream of one stage has that alone.
    """
    import polars as pl

    mine = costs.filter((pl.col("stage") > 1) | (pl.col("stages") == 1))
    unit = ["stream", "strategy", "test_type", "seed"]
    sums = mine.group_by(unit, maintain_order=True).agg(
        pl.col("steps", "tokens", "seconds").sum(), pl.col("peak_mib").max()
    )
    rows = sums.group_by("stream", "strategy", maintain_order=True).agg(
        pl.col("steps", "seconds").mean(),
        (pl.col("tokens").sum() / pl.col("seconds").sum()).alias("tokens_per_second"),
        pl.col("peak_mib").max(),
    )
    out: dict[str, dict[str, Any]] = {}
    for row in rows.iter_rows(named=True):
        out.setdefault(row.pop("stream"), {})[row.pop("strategy")] = row
    return out


def _read(out: Path) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, Any]]:
    wanted = "run of `triax c2gen run`; name its --out directory"
    found = finished_directory(out, RUN, wanted)
    tables = (read_table(out / name) for name in ("predictions.parquet", "costs.parquet"))
    return *tables, found["facts"]


def _vectors(units: Sequence[Unit], chains: Mapping[int, Sequence[Job]]) -> pl.DataFrame:
    import polars as pl

    tables = []
    for number, unit in enumerate(units):
        for job in chains[number]:
            stream = unit.fold.stream
            about = {
                "stream": stream.name,
                "test_type": stream.test_type,
                "strategy": unit.strategy.name,
                "seed": unit.seed,
                "stage": job.number + 1,
            }
            columns = [pl.lit(value).alias(name) for name, value in about.items()]
            tables.append(vectors_of(job).select(*columns, pl.all()))
    return pl.concat(tables)


def _representations(vectors: pl.DataFrame, method: str) -> list[dict[str, Any]]:
    """Vectors of all folds of one stream, strategy, seed and stage, by the type of their item."""
    import numpy as np

    keys = ["stream", "strategy", "seed", "stage"]
    out = []
    for key, table in vectors.group_by(keys, maintain_order=True):
        types = table["test_type"].to_list()
        if len(set(types)) < 2:
            continue
        points = np.asarray(table["vector"].to_list())
        found = representations(points, [str(kind) for kind in types], method=method)
        out.append(dict(zip(keys, key, strict=True)) | found | {"item": table["item"].to_list()})
    if not out:
        raise InputError("vectors of one fold alone have one type; run at least two --folds")
    return out


def _settings(grid: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a grid under plain names, but for what the tables themselves hold."""
    flat = {name: value for name, value in grid.items() if not isinstance(value, Mapping)}
    for name in ("draw", "train", "settings", "lora"):
        flat |= {key: value for key, value in (grid.get(name) or {}).items() if key not in flat}
    shown = ("folds", "streams", "strategies", "seeds", "checkpoint_every", "vectors")
    return {name: value for name, value in flat.items() if name not in shown}


def dropped_of(units: Sequence[Unit]) -> list[dict[str, Any]]:
    """What each fold lacks, by reason."""
    found = {(u.fold.stream.name, u.fold.stream.test_type): u.fold.dropped for u in units}
    return [
        {"stream": stream, "test_type": kind, **dropped}
        for (stream, kind), dropped in found.items()
        if dropped
    ]
