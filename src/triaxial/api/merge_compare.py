"""Two models on the same variants: the release gate of MERGE."""

from __future__ import annotations

from pathlib import Path

from triaxial.api.merge_files import labels_by_variant, read_run
from triaxial.errors import InputError
from triaxial.merge.analyses import Comparison, compare, groups_of

__all__ = ["compare_runs"]


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
    sides = []
    for text in (old, new):
        directory, model = _named_model(text)
        made, predictions, draw, models = read_run(directory)
        if model is None and len(models) > 1:
            raise InputError(
                f"holds {len(models)} models ({', '.join(models)}); name one as RUN:MODEL",
                where=text,
            )
        chosen = model or next(iter(models))
        if chosen not in models:
            raise InputError(f"has no model {chosen!r}; it has {', '.join(models)}", where=text)
        sides.append((made, draw, labels_by_variant(made, predictions, chosen, made.offsets())))
    (one, draw, before), (other, other_draw, after) = sides
    if one.key != other.key or draw != other_draw:
        raise InputError(
            "the two runs are not of the same variants and draws; evaluate both models on one set "
            f"(sets {one.key[:8]} and {other.key[:8]})"
        )
    index = one.index()
    for group in groups_of(index, draw):
        if (group.kind, group.name) == (kind, name):
            return compare(index, group, before, after, seed=seed), before.model, after.model
    raise InputError(f"no seeds in the group {kind} {name}")


def _named_model(text: str) -> tuple[Path, str | None]:
    if Path(text).is_dir():
        return Path(text), None
    directory, _, model = text.rpartition(":")
    return (Path(directory), model) if directory else (Path(text), None)
