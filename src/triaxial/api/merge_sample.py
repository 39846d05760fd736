"""A sample of the seeds of a set: what a slow or costly model is scored on.

Source: MERGE, LLMs (500 seeds of each data set, sampled so that the labels keep their shares and
the accuracy stays).
Choice: the seeds that have variants enough are sampled; "the accuracy" is that of one model of an
earlier run, whose right and wrong seeds keep their shares within each label.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from triaxial.api.budget import stratified
from triaxial.api.merge_compare import named_run
from triaxial.api.merge_files import VariantSet
from triaxial.errors import InputError
from triaxial.merge.analyses import groups_of
from triaxial.merge.score import DrawOptions
from triaxial.nli import LABELS
from triaxial.store import digest

if TYPE_CHECKING:
    from triaxial.nli import Pair

__all__ = ["sampled"]


def sampled(made: VariantSet, count: int, draw: DrawOptions, like: str | None = None) -> VariantSet:
    """A set of so many seeds of those with variants enough; the set itself where it has no more.

    Args:
        made: The whole set.
        count: Seeds wanted.
        draw: How variants are drawn: says which seeds count, and seeds the sample.
        like: `RUN` or `RUN:MODEL`, whose accuracy the sample keeps.

    Raises:
        InputError: The run has no prediction for a seed, or is of other pairs.
    """
    import polars as pl

    group = next((g for g in groups_of(made.index(), draw) if g.kind == "all"), None)
    positions = [] if group is None else group.seeds.tolist()
    pairs = [made.pairs[n] for n in positions]
    if count >= len(pairs):
        return made
    strata = [pair.label.value for pair in pairs]
    if like is not None:
        right = _right(pairs, like)
        strata = [f"{label} {told}" for label, told in zip(strata, right, strict=True)]
    chosen = sorted(stratified(strata, draw.seed)[:count])
    kept = tuple(pairs[n] for n in chosen)
    ids = [pair.id for pair in kept]
    told = {"pairs": len(kept), "of": len(pairs), "like": like}
    facts = {**made.facts, "data": {**made.facts["data"], "sample": told}}
    return replace(
        made,
        key=digest({"set": made.key, "sample": ids}),
        pairs=kept,
        replacements=made.replacements.filter(pl.col("seed").is_in(ids)),
        facts=facts,
    )


def _right(pairs: list[Pair], like: str) -> list[bool]:
    """Which pairs a model of an earlier run labels rightly."""
    made, _, predictions = named_run(like)
    found = dict(zip(made.pairs, predictions.seeds.tolist(), strict=True))
    missing = [pair for pair in pairs if found.get(pair, -1) < 0]
    if missing:
        raise InputError(
            f"has no prediction for {len(missing):,} of {len(pairs):,} seeds, {missing[0].id!r} "
            "first; name a run of the same set and draws, not of a sample",
            where=like,
        )
    return [LABELS[found[pair]] is pair.label for pair in pairs]
