"""Sets and runs of MERGE as directories: the tables, the manifest, and what they say.

A set is a directory with the tables `seeds`, `variants` and `funnel`; a run is a set with
`predictions` and `metrics.json`. Everything that is shown is computed from these files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from triaxial.errors import StoreError
from triaxial.merge.analyses import Predictions, VariantIndex
from triaxial.merge.score import DrawOptions
from triaxial.nli import LABELS, Pair
from triaxial.store import (
    claim_directory,
    complete_manifest,
    finish_directory,
    read_json,
    read_table,
    records_of,
    table_of,
    write_json,
    write_table,
)

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "RATINGS",
    "RUN",
    "SET",
    "VariantSet",
    "both_works",
    "check_directory",
    "labels_by_variant",
    "read_metrics",
    "read_predictions",
    "read_ratings",
    "read_run",
    "read_set",
    "write_run",
    "write_set",
]

SET = "merge.set"
RUN = "merge.run"
RATINGS = "ratings.json"


@dataclass(frozen=True, slots=True)
class VariantSet:
    """Seeds, their variants, and how these came to be.

    Args:
        key: What names the set: the key of the stage that made it.
        pairs: All seeds, those without variants too.
        replacements: Table of `merge.filters.Replacement`.
        funnel: Table of `merge.variants.FunnelRow`.
        facts: Data, preset, models and tagger: what a reader must know.
        work: Forwards, tokens, seconds of this call: no part of the tables.
    """

    key: str
    pairs: tuple[Pair, ...]
    replacements: pl.DataFrame
    funnel: pl.DataFrame
    facts: Mapping[str, Any]
    work: dict[str, Any] = field(default_factory=dict)

    def index(self) -> VariantIndex:
        """Classes and sources of the variants, by seed."""
        columns = self.replacements.select("seed", "pos", "sources")
        classes: dict[str, list[str]] = {}
        sources: dict[str, list[tuple[str, ...]]] = {}
        for seed, pos, by in columns.iter_rows():
            classes.setdefault(seed, []).append(pos)
            sources.setdefault(seed, []).append(tuple(by))
        return VariantIndex(
            self.pairs,
            {seed: tuple(row) for seed, row in classes.items()},
            {seed: tuple(row) for seed, row in sources.items()},
        )

    def offsets(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where each seed's variants begin in `replacements`, shape (pairs + 1,)."""
        counts = dict(self.replacements.group_by("seed").len().iter_rows())
        sizes = [counts.get(pair.id, 0) for pair in self.pairs]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def write_set(out: Path, made: VariantSet, *, overwrite: bool = False) -> None:
    """Write a set to a directory of its own."""
    claim_directory(out, SET, made.key, replace=overwrite)
    _write_tables(out, made)
    finish_directory(out, {"set": made.key, **made.facts, "work": made.work})


def write_run(
    out: Path,
    made: VariantSet,
    predictions: pl.DataFrame,
    metrics: Mapping[str, Any],
    facts: Mapping[str, Any],
    key: str,
    *,
    overwrite: bool = False,
) -> None:
    """Write a run to a directory of its own: tables, metrics, manifest."""
    claim_directory(out, RUN, key, replace=overwrite)
    _write_tables(out, made)
    write_table(out / "predictions.parquet", predictions)
    write_json(out / "metrics.json", metrics)
    work = both_works(made.work, facts["work"])
    about = {"set": made.key, **made.facts, "models": facts["models"], "draw": metrics["draw"]}
    finish_directory(out, {**about, "work": work})


def both_works(generating: Mapping[str, Any], evaluating: Mapping[str, Any]) -> dict[str, Any]:
    """The work of a whole run: seconds by kind, and what each model computed."""
    seconds = {**generating.get("seconds", {}), **evaluating.get("seconds", {})}
    return {**generating, **evaluating, "seconds": seconds}


def read_metrics(directory: Path) -> dict[str, Any]:
    """The figures of a run."""
    _manifest(directory, (RUN,))
    return read_json(directory / "metrics.json")


def read_predictions(directory: Path) -> pl.DataFrame | None:
    """The predictions of a run; `None` for a set."""
    path = directory / "predictions.parquet"
    return read_table(path) if path.is_file() else None


def read_ratings(directory: Path) -> dict[str, Any] | None:
    """The summary of the raters, where they were imported."""
    path = directory / RATINGS
    return read_json(path) if path.is_file() else None


def read_set(directory: Path) -> VariantSet:
    """A set, or the set inside a run."""
    facts = dict(_manifest(directory, (SET, RUN))["facts"])
    key = facts.pop("set")
    work = facts.pop("work", {})
    pairs = tuple(records_of(read_table(directory / "seeds.parquet"), Pair))
    replacements = read_table(directory / "variants.parquet")
    return VariantSet(
        key, pairs, replacements, read_table(directory / "funnel.parquet"), facts, work
    )


def read_run(directory: Path) -> tuple[VariantSet, pl.DataFrame, DrawOptions, dict[str, Any]]:
    """A run: its set, predictions, draws, and facts by model."""
    _manifest(directory, (RUN,))
    made = read_set(directory)
    draw = DrawOptions(**made.facts["draw"])
    return made, read_table(directory / "predictions.parquet"), draw, made.facts["models"]


def labels_by_variant(
    made: VariantSet,
    table: pl.DataFrame,
    model: str,
    offsets: np.ndarray[Any, np.dtype[np.int64]],
) -> Predictions:
    """One model's labels as arrays over seeds and variants.

    Args:
        made: The set.
        table: Predictions of a run.
        model: Its name there.
        offsets: Of `made`.
    """
    import polars as pl

    mine = table.filter(pl.col("model") == model)
    position = {pair.id: n for n, pair in enumerate(made.pairs)}
    numbers = {label.value: n for n, label in enumerate(LABELS)}
    seeds = np.full(len(made.pairs), -1, dtype=np.int8)
    labels = np.full(int(offsets[-1]), -1, dtype=np.int8)
    for seed, variant, label in mine.select("seed", "variant", "label").iter_rows():
        if variant < 0:
            seeds[position[seed]] = numbers[label]
        else:
            labels[offsets[position[seed]] + variant] = numbers[label]
    return Predictions(model, seeds, labels, offsets)


def check_directory(out: Path) -> None:
    """Refuse a directory that is not ours before any work is done."""
    if not out.is_dir() or not any(out.iterdir()):
        return
    kind = read_json(out / "manifest.json").get("kind") if (out / "manifest.json").exists() else ""
    if kind not in (SET, RUN):
        raise StoreError("holds files that are not ours; choose an empty or a new one", where=out)


def _write_tables(out: Path, made: VariantSet) -> None:
    write_table(out / "seeds.parquet", table_of(made.pairs, Pair))
    write_table(out / "variants.parquet", made.replacements)
    write_table(out / "funnel.parquet", made.funnel)


def _manifest(directory: Path, kinds: Sequence[str]) -> dict[str, Any]:
    return complete_manifest(
        directory,
        kinds,
        missing="is not a set or a run (no manifest.json); name the --out of an earlier command",
        wanted=f", wanted {' or '.join(kinds)}",
    )
