"""Scores of models on a set of variants: overall, by word class, label and masked LM; comparison.

Everything is array work on one table of predicted labels. A model predicts each distinct pair
once; draws, thresholds, groups and bootstraps only look its labels up.

Source: MERGE, findings (by class, by source model, seeds that the model got wrong).

S seeds, D draws, n variants a draw, G thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from triaxial.errors import InputError
from triaxial.merge.score import GRID, DrawOptions, Scores, drawn, passes, scores
from triaxial.nli import LABELS, Pair
from triaxial.stats import Interval, generator, interval, mcnemar, resampled_sums
from triaxial.stats import smallest_difference as smallest

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Comparison",
    "Group",
    "Predictions",
    "VariantIndex",
    "compare",
    "groups_of",
    "score_model",
    "trivial",
]


@dataclass(frozen=True, slots=True)
class VariantIndex:
    """Which variants each seed has, without their texts.

    Args:
        pairs: All seeds of the set, in order.
        classes: Word class of each variant, by seed id, in the order of the variants.
        sources: Masked LMs that validate each variant, by seed id.
    """

    pairs: tuple[Pair, ...]
    classes: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True, slots=True)
class Group:
    """Seeds that are scored together, and the variants drawn from each.

    Args:
        kind: `all`, `class`, `label` or `source`.
        name: "all", a class, a label or a masked LM.
        seeds: Positions among the pairs of the index, shape (S,).
        variants: Numbers of the drawn variants within their seed, shape (S, D, n).
    """

    kind: str
    name: str
    seeds: NDArray[np.int64]
    variants: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Predictions:
    """Labels that one model gives, as indices into `LABELS`; -1 where it was not asked.

    Args:
        model: Its name.
        seeds: Shape (pairs,).
        variants: Of all variants, seed after seed, shape (variants,).
        offsets: Where each seed's variants begin, shape (pairs + 1,).
    """

    model: str
    seeds: NDArray[np.int8]
    variants: NDArray[np.int8]
    offsets: NDArray[np.int64]


def groups_of(index: VariantIndex, options: DrawOptions) -> list[Group]:
    """All groups that hold a seed, each with its draws.

    A seed is in `all` with n variants over all classes, in a class with n of that class. Masked
    LMs are compared on the same seeds: those with n variants from each of them. Labels share the
    draws of `all`.
    """
    groups = [_group(index, "all", "all", lambda _cls, _src: True, options)]
    everywhere = groups[0]
    classes = sorted({c for row in index.classes.values() for c in row})
    groups += [
        _group(index, "class", name, lambda cls, _src, name=name: cls == name, options)
        for name in classes
    ]
    gold = np.asarray([LABELS.index(index.pairs[i].label) for i in everywhere.seeds], dtype=int)
    groups += [
        Group("label", name.value, everywhere.seeds[gold == n], everywhere.variants[gold == n])
        for n, name in enumerate(LABELS)
    ]
    names = sorted({m for row in index.sources.values() for v in row for m in v})
    if len(names) > 1:
        by_source = [
            _group(index, "source", name, lambda _cls, src, name=name: name in src, options)
            for name in names
        ]
        common = set.intersection(*(set(g.seeds.tolist()) for g in by_source))
        for group in by_source:
            kept = np.asarray([s in common for s in group.seeds], dtype=bool)
            groups.append(Group("source", group.name, group.seeds[kept], group.variants[kept]))
    return [group for group in groups if len(group.seeds)]


def score_model(
    index: VariantIndex, groups: Sequence[Group], predictions: Predictions, *, seed: int
) -> dict[str, dict[str, Scores]]:
    """Scores by kind and name of group."""
    gold = np.asarray([LABELS.index(pair.label) for pair in index.pairs], dtype=np.int8)
    out: dict[str, dict[str, Scores]] = {}
    for group in groups:
        own, labels = _labels(group, predictions)
        wanted = gold[group.seeds]
        out.setdefault(group.kind, {})[group.name] = scores(
            own == wanted,
            labels == wanted[:, None, None],
            labels == own[:, None, None],
            [index.pairs[i].premise for i in group.seeds],
            rng=generator("merge.bootstrap", seed, group.kind, group.name),
        )
    return out


def trivial(index: VariantIndex, offsets: NDArray[np.int64]) -> list[Predictions]:
    """The baselines that stand in every table: one label always, one a label.

    Their SV equals their S at every threshold, as a variant has the label of its seed.
    """
    return [
        Predictions(
            f"always {label.value}",
            np.full(len(index.pairs), n, dtype=np.int8),
            np.full(int(offsets[-1]), n, dtype=np.int8),
            offsets,
        )
        for n, label in enumerate(LABELS)
    ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two models on the same seeds and variants; figures in percent, difference new minus old.

    Args:
        metric: "S", "SV5" … "SV100".
        old: Value of the old model.
        new: Value of the new model.
        difference: With its paired interval, clustered by premise.
        smallest: The smallest difference that this number of seeds shows with a power of 80 %.
        p: Exact McNemar test on the seeds, for S alone.
        verdict: `better`, `worse` or `undecided`.
        seeds: Number of seeds.
        premises: Number of clusters.
    """

    metric: str
    old: float
    new: float
    difference: Interval
    smallest: float
    p: float | None
    verdict: str
    seeds: int
    premises: int

    def plain(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def compare(
    index: VariantIndex, group: Group, old: Predictions, new: Predictions, *, seed: int
) -> list[Comparison]:
    """The release gate: S and SV at every threshold, paired by seed and draw."""
    gold = np.asarray([LABELS.index(index.pairs[i].label) for i in group.seeds], dtype=np.int8)
    draws = group.variants.shape[1]
    sides = []
    for predictions in (old, new):
        own, labels = _labels(group, predictions)
        reached = passes((labels == gold[:, None, None]).sum(axis=2), group.variants.shape[2])
        sides.append(np.column_stack([(own == gold) * draws, reached]).astype(np.int64))
    premises = [index.pairs[i].premise for i in group.seeds]
    clusters = np.unique(np.asarray(premises), return_inverse=True)[1]
    units = np.column_stack([np.ones(len(gold), dtype=np.int64), sides[1] - sides[0]])
    rng = generator("merge.compare", seed, group.kind, group.name)
    sums = resampled_sums(units, clusters=clusters, draws=2000, rng=rng)
    only_old = int(((sides[0][:, 0] > 0) & (sides[1][:, 0] == 0)).sum())
    only_new = int(((sides[1][:, 0] > 0) & (sides[0][:, 0] == 0)).sum())
    out = []
    for column, metric in enumerate(["S", *(f"SV{ct}" for ct in GRID)]):
        samples = 100 * sums[:, column + 1] / (sums[:, 0] * draws)
        before, after = (100 * float(side[:, column].mean()) / draws for side in sides)
        total = 100 * float(units[:, column + 1].sum()) / (len(gold) * draws)
        found = interval(samples, total)
        out.append(
            Comparison(
                metric,
                before,
                after,
                found,
                smallest(float(samples.std(ddof=1))),
                mcnemar(only_old, only_new) if metric == "S" else None,
                "better" if found.low > 0 else "worse" if found.high < 0 else "undecided",
                len(gold),
                int(clusters.max()) + 1,
            )
        )
    return out


def _group(index: VariantIndex, kind: str, name: str, chosen: Any, options: DrawOptions) -> Group:
    seeds, variants = [], []
    for position, pair in enumerate(index.pairs):
        classes = index.classes.get(pair.id, ())
        sources = index.sources.get(pair.id, ())
        mine = [n for n, (c, s) in enumerate(zip(classes, sources, strict=True)) if chosen(c, s)]
        if len(mine) >= options.n:
            seeds.append(position)
            picked = drawn(pair.id, name, len(mine), options)
            variants.append(np.asarray(mine, dtype=np.int64)[picked])
    shape = (0, options.draws, options.n)
    stacked = np.stack(variants) if variants else np.zeros(shape, dtype=np.int64)
    return Group(kind, name, np.asarray(seeds, dtype=np.int64), stacked)


def _labels(group: Group, predictions: Predictions) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    own = predictions.seeds[group.seeds]
    rows = predictions.offsets[group.seeds][:, None, None] + group.variants
    labels = predictions.variants[rows]
    missing = int((own < 0).sum() + (labels < 0).sum())
    if missing:
        raise InputError(
            f"{missing} predictions of the drawn variants are missing; evaluate the model again",
            where=predictions.model,
        )
    return own, labels
