"""Two models on the same variants: the release gate of MERGE."""

from __future__ import annotations

from pathlib import Path

from triaxial.api.merge_files import VariantSet, labels_by_variant, read_run
from triaxial.errors import InputError
from triaxial.merge.analyses import Comparison, Predictions, compare, groups_of
from triaxial.merge.score import DrawOptions

__all__ = ["compare_runs", "named_run"]


def compare_runs(
    old: str, new: str, *, kind: str = "all", name: str = "all", seed: int = 1
) -> tuple[list[Comparison], str, str]:
    """Two models on the same variants and draws, paired.

    Args:
        old: `RUN` or `RUN:MODEL`.
        new: The same.
        kind: Kind of the group, as in `merge.analyses.Group`.
        name: Name of the group.
        seed: Of the bootstrap.

    Raises:
        InputError: The runs are not of the same variants and draws, or lack the group.
    """
    sides = [named_run(text) for text in (old, new)]
    (one, draw, before), (other, other_draw, after) = sides
    if one.key != other.key or draw != other_draw:
        raise InputError(
            "the two runs are not of the same variants and draws; evaluate both models on one set "
            + (
                f"(sets {one.key[:8]} and {other.key[:8]})"
                if one.key != other.key
                else f"(n, draws and seed are {_told(draw)} and {_told(other_draw)})"
            )
        )
    index = one.index()
    for group in groups_of(index, draw):
        if (group.kind, group.name) == (kind, name):
            return compare(index, group, before, after, seed=seed), before.model, after.model
    raise InputError(f"no seeds in the group {kind} {name}")


def _told(draw: DrawOptions) -> str:
    return f"{draw.n}, {draw.draws}, {draw.seed}"


def named_run(text: str) -> tuple[VariantSet, DrawOptions, Predictions]:
    """A run's set and draws, and what one of its models predicted, by `RUN` or `RUN:MODEL`.

    Raises:
        InputError: No such model, or several and none is named.
    """
    directory, model = Path(text), ""
    if not directory.is_dir() and ":" in text:
        place, _, model = text.rpartition(":")
        directory = Path(place)
    made, predictions, draw, models = read_run(directory)
    if not model and len(models) > 1:
        raise InputError(
            f"holds {len(models)} models ({', '.join(models)}); name one as RUN:MODEL", where=text
        )
    chosen = model or next(iter(models))
    if chosen not in models:
        raise InputError(f"has no model {chosen!r}; it has {', '.join(models)}", where=text)
    return made, draw, labels_by_variant(made, predictions, chosen, made.offsets())
