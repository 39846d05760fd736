"""Seed-Variant accuracy, the matching threshold, and how sure both are.

A model is correct on a seed at threshold CT when at least CT percent of n variants drawn from it
get the gold label.  SV(CT) is the share of such seeds, the mean over the draws; S is the accuracy
on the seeds themselves; MC is the CT at which SV comes closest to S.  Everything is integer
arithmetic on one array of hits: with floats, 9 of 20 thresholds are misjudged.

Source: MERGE, metrics (SV accuracy, MC; 20 variants, 10 draws).
Choice: a seed is not its own variant; never drawn with replacement; intervals are a bootstrap over
seeds clustered by premise, no narrower than Wilson's over premises, as few resamples differ near 0
and 100 %; the spread over the draws stands beside them.

S seeds, D draws, n variants a draw, G thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from triaxial.stats import Interval, at_least_wilson, generator, interval, intervals, resampled_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "GRID",
    "DrawOptions",
    "MatchingThreshold",
    "Scores",
    "drawn",
    "passes",
    "scores",
    "signature",
]

GRID = tuple(range(5, 101, 5))
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class DrawOptions:
    """How variants are drawn from a seed.

    Args:
        n: Variants a draw, and the fewest that a seed must have. Source: 20, since 95 % of 20 is
            a whole number.
        draws: Source: 10.
        seed: Of the generators; each (seed id, group, draw) has its own.
    """

    n: int = 20
    draws: int = 10
    seed: int = 1


@dataclass(frozen=True, slots=True)
class MatchingThreshold:
    """The CT at which SV comes closest to S.

    Args:
        point: The highest of `all`, or `None` with a `reason`.
        all: The whole arg-min set: SV may be equally close at several thresholds.
        low: Lower end of the bootstrap interval.
        high: Upper end.
        reason: Why there is none.
    """

    point: int | None
    all: tuple[int, ...]
    low: float | None
    high: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Scores:
    """One model on one group of seeds; shares are in percent.

    Args:
        n: Variants a draw.
        draws: Number of draws.
        seeds: Number of seeds in the group.
        premises: Number of distinct premises, the clusters of the bootstrap.
        seed_accuracy: S.
        variant_accuracy: Share of drawn variants with the gold label.
        sv: SV at each CT of `GRID`.
        spread: Standard deviation of SV over the draws, at each CT.
        matching: MC.
        agreement: As `sv`, against the model's own label of the seed in place of the gold label.
        sv_right: As `sv` values, over seeds that the model labels rightly; empty where none are.
        sv_wrong: The same over seeds that it labels wrongly.
        right: Number of seeds labelled rightly.
    """

    n: int
    draws: int
    seeds: int
    premises: int
    seed_accuracy: Interval
    variant_accuracy: Interval
    sv: tuple[Interval, ...]
    spread: tuple[float, ...]
    matching: MatchingThreshold
    agreement: tuple[Interval, ...]
    sv_right: tuple[float, ...]
    sv_wrong: tuple[float, ...]
    right: int

    def at(self, percent: int) -> Interval:
        """SV at one threshold of the grid."""
        return self.sv[GRID.index(percent)]

    def plain(self) -> dict[str, Any]:
        """As plain dictionaries and lists, for JSON."""
        return asdict(self)


def drawn(seed: str, group: str, variants: int, options: DrawOptions) -> NDArray[np.int64]:
    """Positions drawn from a seed's variants in a group, shape (D, n), without replacement.

    Args:
        seed: Id of the seed.
        group: Name of the group ("all", a class, a masked LM): its own stream of draws.
        variants: How many the seed has in the group, >= n.
        options: See `DrawOptions`.
    """
    assert variants >= options.n, "a seed with fewer variants than a draw is not eligible"
    return np.stack(
        [
            generator("merge.draw", options.seed, seed, group, draw).permutation(variants)[
                : options.n
            ]
            for draw in range(options.draws)
        ]
    )


def passes(hits: NDArray[np.integer], n: int) -> NDArray[np.int64]:
    """Number of draws that reach each threshold, shape (S, G).

    Args:
        hits: Variants with the wanted label, of n, shape (S, D).
        n: Variants a draw. A threshold is compared as 100 * hits >= CT * n.
    """
    grid = np.asarray(GRID)
    reached: NDArray[np.bool_] = 100 * hits[:, :, None] >= grid * n  # (S, D, G)
    counts: NDArray[np.int64] = reached.sum(axis=1, dtype=np.int64)
    return counts


def scores(
    seed_correct: NDArray[np.bool_],
    correct: NDArray[np.bool_],
    agrees: NDArray[np.bool_],
    premises: Sequence[str],
    *,
    rng: np.random.Generator,
) -> Scores:
    """All figures of one model on one group of seeds.

    Args:
        seed_correct: Whether the seed itself gets the gold label, shape (S,).
        correct: Whether each drawn variant gets the gold label, shape (S, D, n).
        agrees: Whether it gets the label that the model gives the seed, shape (S, D, n).
        premises: Premise of each seed: the clusters.
        rng: Of the bootstrap.
    """
    count, draws, n = correct.shape
    hits = correct.sum(axis=2)
    reached = passes(hits, n)
    agreed = passes(agrees.sum(axis=2), n)
    clusters = np.unique(np.asarray(premises, dtype=object).astype(str), return_inverse=True)[1]
    columns = [np.ones(count), seed_correct, hits.sum(axis=1)]
    units = np.column_stack([*columns, reached, agreed]).astype(np.int64)
    sums = resampled_sums(units, clusters=clusters, draws=_RESAMPLES, rng=rng)
    total = units.sum(axis=0)
    wide = len(GRID)

    # Columns: the count itself, then S, hits, draws passed and draws agreed at each CT.
    most = np.asarray([1, 1, draws * n, *[draws] * (2 * wide)])
    samples = 100 * sums / (sums[:, [0]] * most)
    premises_drawn = int(clusters.max()) + 1
    shares = [
        _widened(found, premises_drawn)
        for found in intervals(samples[:, 1:], 100 * total[1:] / (count * most[1:]))
    ]
    by_draw = 100 * np.stack([passes(hits[:, [d]], n).sum(axis=0) for d in range(draws)]) / count
    return Scores(
        n=n,
        draws=draws,
        seeds=count,
        premises=premises_drawn,
        seed_accuracy=shares[0],
        variant_accuracy=shares[1],
        sv=tuple(shares[2 : 2 + wide]),
        spread=tuple(float(x) for x in by_draw.std(axis=0, ddof=1 if draws > 1 else 0)),
        matching=matching_threshold(total, sums, draws),
        agreement=tuple(shares[2 + wide :]),
        sv_right=_conditional(reached, seed_correct, draws),
        sv_wrong=_conditional(reached, ~seed_correct, draws),
        right=int(seed_correct.sum()),
    )


def signature(preset: str, mlms: int, draw: DrawOptions, scores: Scores, version: str) -> str:
    """The line that makes a figure comparable, in sacreBLEU's manner.

    Choice: ours.
    """
    sv = scores.at(95)
    parts = [
        f"SV95 = {sv.value:.1f} [{sv.low:.1f}, {sv.high:.1f}]",
        f"n:{draw.n}",
        f"draws:{draw.draws}",
        f"seeds:{scores.seeds}",
        f"preset:{preset}",
        f"mlm:{mlms}",
        f"seed:{draw.seed}",
        f"v:{version}",
    ]
    return " | ".join(parts)


def matching_threshold(
    total: NDArray[np.int64], sums: NDArray[np.int64], draws: int
) -> MatchingThreshold:
    """MC from whole numbers: the CT that minimizes |SV - S|, ties included.

    Args:
        total: Sums over seeds: count, right seeds, hits, then draws passed at each CT.
        sums: The same for each bootstrap sample, shape (samples, columns).
        draws: Draws a seed.
    """
    if total[1] == 0:
        return MatchingThreshold(None, (), None, None, "no seed is labelled rightly (S = 0)")
    grid = np.asarray(GRID)
    curve = slice(3, 3 + len(GRID))
    gap = np.abs(total[curve] - draws * total[1])
    best = tuple(int(ct) for ct in grid[gap == gap.min()])
    gaps = np.abs(sums[:, curve] - draws * sums[:, [1]])[sums[:, 1] > 0]
    # The highest CT of each sample's arg-min set, as for the point.
    highest = grid[::-1][gaps[:, ::-1].argmin(axis=1)]
    found = interval(highest.astype(float), float(best[-1]))
    return MatchingThreshold(best[-1], best, found.low, found.high)


def _widened(found: Interval, premises: int) -> Interval:
    low, high = at_least_wilson(found.value, found.low, found.high, premises)
    return Interval(found.value, low, high, found.level)


def _conditional(
    reached: NDArray[np.int64], chosen: NDArray[np.bool_], draws: int
) -> tuple[float, ...]:
    if not chosen.any():
        return ()
    return tuple(float(x) for x in 100 * reached[chosen].mean(axis=0) / draws)
