"""Groups of seeds, scores by group, baselines, and the paired comparison of two models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from triaxial.errors import InputError
from triaxial.merge.analyses import (
    Comparison,
    Group,
    Predictions,
    VariantIndex,
    compare,
    groups_of,
    score_model,
    trivial,
)
from triaxial.merge.score import GRID, DrawOptions, drawn
from triaxial.nli import LABELS, Label, Pair

N, V, A = "NOUN", "VERB", "ADJ"
E, U, C = LABELS
FEW = DrawOptions(n=4, draws=3)


def index_of(
    *seeds: tuple[str, Label, dict[str, int]], by: dict[str, list[tuple[str, ...]]] | None = None
) -> VariantIndex:
    pairs = tuple(Pair(str(n), p, f"h{n}", label) for n, (p, label, _) in enumerate(seeds))
    classes = {
        str(n): tuple(c for c, count in counts.items() for _ in range(count))
        for n, (_, _, counts) in enumerate(seeds)
        if counts
    }
    sources = {seed: tuple(("A",) for _ in row) for seed, row in classes.items()}
    return VariantIndex(pairs, classes, sources if by is None else {**sources, **{
        seed: tuple(row) for seed, row in by.items()
    }})  # fmt: skip


def offsets_of(index: VariantIndex) -> np.ndarray:
    sizes = [len(index.classes.get(pair.id, ())) for pair in index.pairs]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def predictions(index: VariantIndex, labels: dict[str, tuple[int, list[int]]]) -> Predictions:
    offsets = offsets_of(index)
    seeds = np.full(len(index.pairs), -1, np.int8)
    variants = np.full(int(offsets[-1]), -1, np.int8)
    for n, pair in enumerate(index.pairs):
        if pair.id in labels:
            seeds[n] = labels[pair.id][0]
            variants[offsets[n] : offsets[n + 1]] = labels[pair.id][1]
    return Predictions("model", seeds, variants, offsets)


def test_who_is_eligible() -> None:
    index = index_of(
        ("p", E, {N: 3, V: 1}),  # 4 over all classes, in no class
        ("p", U, {N: 4}),
        ("q", C, {N: 2, V: 1}),  # 3: dropped, never drawn with replacement
        ("r", E, {}),  # no variants
        ("r", U, {N: 4, V: 5}),
    )
    groups = {(g.kind, g.name): g for g in groups_of(index, FEW)}
    seeds = {key: group.seeds.tolist() for key, group in groups.items()}
    assert seeds == {
        ("all", "all"): [0, 1, 4],
        ("class", N): [1, 4],
        ("class", V): [4],
        ("label", "entailment"): [0],
        ("label", "neutral"): [1, 4],
    }
    for group in groups.values():
        assert group.variants.shape == (len(group.seeds), 3, 4)
        assert all(len(set(draw)) == 4 for draws in group.variants.tolist() for draw in draws)
    # A class draws from its own variants; labels share the draws of `all`.
    assert set(groups["class", V].variants.ravel().tolist()) <= {4, 5, 6, 7, 8}
    rest = groups["all", "all"]
    np.testing.assert_array_equal(groups["label", "neutral"].variants, rest.variants[1:])
    np.testing.assert_array_equal(rest.variants[2], drawn("4", "all", 9, FEW))


def test_draws_do_not_depend_on_the_other_seeds() -> None:
    rows = [("p", E, {N: 9}), ("q", U, {N: 7, V: 8}), ("r", C, {V: 6})]
    whole = index_of(*rows)
    by_seed = {
        (g.kind, g.name, whole.pairs[s].id): v.tolist()
        for g in groups_of(whole, FEW)
        for s, v in zip(g.seeds, g.variants, strict=True)
    }
    turned = replace(whole, pairs=whole.pairs[::-1][:2])
    for group in groups_of(turned, FEW):
        for seed, variants in zip(group.seeds, group.variants, strict=True):
            key = (group.kind, group.name, turned.pairs[seed].id)
            assert variants.tolist() == by_seed[key]


def test_masked_lms_are_compared_on_the_same_seeds() -> None:
    both, a, b = ("A", "B"), ("A",), ("B",)
    index = index_of(
        ("p", E, {N: 8}), ("q", U, {N: 8}), ("r", C, {N: 4}),
        by={"0": [a] * 4 + [b] * 4, "1": [a] * 5 + [b] * 3, "2": [both] * 4},
    )  # fmt: skip
    groups = {g.name: g for g in groups_of(index, FEW) if g.kind == "source"}
    assert {name: g.seeds.tolist() for name, g in groups.items()} == {"A": [0, 2], "B": [0, 2]}
    assert set(groups["B"].variants[0].ravel().tolist()) == {4, 5, 6, 7}
    one = index_of(("p", E, {N: 8}))
    assert not [g for g in groups_of(one, FEW) if g.kind == "source"]


def test_no_seed_is_eligible() -> None:
    assert groups_of(index_of(("p", E, {N: 3})), FEW) == []
    assert groups_of(index_of(("p", E, {})), FEW) == []


def test_scores_by_hand() -> None:
    index = index_of(("p", E, {N: 4}), ("q", U, {V: 4}))
    # The first seed is right, with 3 of 4 variants; the second wrong, all its variants likewise.
    model = predictions(index, {"0": (0, [0, 0, 1, 0]), "1": (2, [2, 2, 2, 2])})
    scored = score_model(index, groups_of(index, FEW), model, seed=1)
    overall = scored["all"]["all"]
    assert overall.seed_accuracy.value == 50
    assert [overall.at(ct).value for ct in (5, 75, 80)] == [50, 50, 0]
    agreement = dict(zip(GRID, (i.value for i in overall.agreement), strict=True))
    assert [agreement[ct] for ct in (75, 80, 100)] == [100, 50, 50]
    assert scored["class"][N].at(75).value == 100
    assert scored["class"][V].at(5).value == 0
    assert set(scored["label"]) == {"entailment", "neutral"}


def test_a_prediction_that_is_missing() -> None:
    index = index_of(("p", E, {N: 4}), ("q", U, {V: 4}))
    model = predictions(index, {"0": (0, [0, 0, -1, 0]), "1": (-1, [1, 1, 1, 1])})
    groups = groups_of(index, FEW)
    with pytest.raises(
        InputError, match=r"^model: 4 predictions of the drawn variants are missing"
    ):
        score_model(index, groups[:1], model, seed=1)  # one seed, and one variant in 3 draws


def test_baselines_have_sv_equal_to_s() -> None:
    index = index_of(("p", E, {N: 4}), ("q", U, {N: 5}), ("r", U, {N: 6}))
    baselines = trivial(index, offsets_of(index))
    names = ["always entailment", "always neutral", "always contradiction"]
    assert [b.model for b in baselines] == names
    for baseline, share in zip(baselines, (100 / 3, 200 / 3, 0), strict=True):
        found = score_model(index, groups_of(index, FEW), baseline, seed=1)["all"]["all"]
        assert found.seed_accuracy.value == pytest.approx(share)
        assert [interval.value for interval in found.sv] == pytest.approx([share] * 20)
        assert found.matching.point == (100 if share else None)


# Comparison.


def pair_of_models(old: list[int], new: list[int], premises: int | None = None) -> list[Comparison]:
    """Models that have so many of 20 variants right, and the seed where it is all of them."""
    count = len(old)
    rows = [(f"p{n % (premises or count)}", E, {N: 20}) for n in range(count)]
    index = index_of(*rows)
    (group,) = [g for g in groups_of(index, DrawOptions()) if g.kind == "all"]
    sides = [
        predictions(
            index,
            {str(n): (0 if h == 20 else 1, [0] * h + [1] * (20 - h)) for n, h in enumerate(hits)},
        )
        for hits in (old, new)
    ]
    return compare(index, group, *sides, seed=1)


def by_metric(rows: list[Comparison]) -> dict[str, Comparison]:
    return {row.metric: row for row in rows}


def test_better_worse_and_undecided() -> None:
    old, new = [20] * 100 + [10] * 100, [20] * 150 + [10] * 50
    found = by_metric(pair_of_models(old, new))
    assert list(found) == ["S", *(f"SV{ct}" for ct in GRID)]
    assert (found["SV95"].old, found["SV95"].new, found["SV95"].verdict) == (50, 75, "better")
    assert found["SV95"].difference.value == 25
    assert (found["SV50"].old, found["SV50"].new, found["SV50"].verdict) == (100, 100, "undecided")
    turned = by_metric(pair_of_models(new, old))
    assert (turned["SV95"].difference.value, turned["SV95"].verdict) == (-25, "worse")
    assert (found["S"].seeds, found["S"].premises) == (200, 200)
    same = by_metric(pair_of_models(old, old))
    assert {row.verdict for row in same.values()} == {"undecided"}
    assert same["S"].p == 1


def test_a_difference_that_chance_could_make_is_undecided() -> None:
    # One seed of 100 more: an interval from -1 to +3 or so.
    old, new = [20] * 50 + [0] * 50, [20] * 49 + [0] + [20] * 2 + [0] * 48
    found = by_metric(pair_of_models(old, new))["SV95"]
    assert (found.difference.value, found.verdict) == (1, "undecided")
    assert found.difference.low < 0 < found.difference.high
    assert found.smallest > 1


def test_the_smallest_difference_that_so_many_seeds_show() -> None:
    # 10 % of 400 seeds change for the better: SE = sqrt(.1 * .9 / 400) = 1.5 %; 2.80 SE = 4.2.
    old, new = [20] * 200 + [0] * 200, [20] * 240 + [0] * 160
    found = by_metric(pair_of_models(old, new))["SV95"]
    assert found.smallest == pytest.approx((1.959964 + 0.841621) * 1.5, rel=0.05)
    # A quarter of the seeds: twice as much.
    few = by_metric(pair_of_models(old[::4], new[::4]))["SV95"]
    assert few.smallest == pytest.approx(2 * found.smallest, rel=0.1)


def test_clusters_widen_a_comparison() -> None:
    old, new = [20] * 80 + [0] * 80, ([20] * 20 + [0] * 20) * 4
    apart, together = (
        by_metric(pair_of_models(old, new, premises))["SV95"] for premises in (None, 20)
    )
    assert (apart.premises, together.premises) == (160, 20)
    assert apart.difference.value == together.difference.value == 0


def test_mcnemar_on_the_seeds_by_hand() -> None:
    # Only the old model is right on 1 seed, only the new on 5:
    # p = 2 (C(6,0) + C(6,1)) / 2^6 = 14 / 64.
    old = [20] * 10 + [20] + [0] * 5 + [0] * 4
    new = [20] * 10 + [0] + [20] * 5 + [0] * 4
    rows = pair_of_models(old, new)
    found = by_metric(rows)
    assert found["S"].p == pytest.approx(14 / 64)
    assert {row.p for row in rows[1:]} == {None}
    assert (found["S"].old, found["S"].new) == (55, 75)


def test_the_order_of_the_seeds_does_not_matter_to_the_values() -> None:
    old, new = [20, 18, 3, 0, 11], [19, 20, 3, 5, 11]
    one, other = pair_of_models(old, new), pair_of_models(old[::-1], new[::-1])
    assert [r.old for r in one] == pytest.approx([r.old for r in other])
    assert [r.new for r in one] == pytest.approx([r.new for r in other])


def test_a_comparison_is_plain_values() -> None:
    plain = pair_of_models([20, 0], [20, 20])[0].plain()
    assert plain["metric"] == "S"
    assert set(plain["difference"]) == {"value", "low", "high", "level"}


def test_missing_predictions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(("p", E, {N: 4}))
    group = Group("all", "all", np.asarray([0]), drawn("0", "all", 4, FEW)[None])
    full, none = predictions(index, {"0": (0, [0] * 4)}), predictions(index, {})
    with pytest.raises(InputError, match="13 predictions of the drawn variants are missing"):
        compare(index, group, full, none, seed=1)
