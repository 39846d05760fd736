"""Intervals, comparisons, claims and tables of whole prediction tables."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from triaxial.c2gen.analyses import (
    claims,
    orders,
    pseudo_against_real,
    representations,
    signature,
    summarize,
    sweep,
)
from triaxial.c2gen.metrics import COLUMNS, Rows, macro
from triaxial.c2gen.paper import CLAIMS, PAPER
from triaxial.c2gen.resample import Resampler, figure, holm
from triaxial.c2gen.verbs import TYPES, composed_label
from triaxial.cli.c2gen_tables import print_analysis, print_summary, print_types
from triaxial.errors import InputError
from triaxial.nli import LABELS
from triaxial.stats import bootstrap, generator

HEADS = ["v0", "v1", "v2", "n0", "n1", "n2", "c0", "c1", "c2"]
Rates = tuple[float, float, float]  # V, N, CI: the share that is right


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triaxial.c2gen.resample.DRAWS", 500)


def rows(
    stream: str,
    strategy: str,
    rates: Rates | Callable[[int], Rates],
    *,
    folds: tuple[int, ...] = (1, 5, 9),
    seeds: tuple[int, ...] = (1,),
    stages: int = 2,
    n: int = 20,
    part: str = "test",
    shift: int = 0,
    **other: Any,
) -> list[dict[str, Any]]:
    """A run: in each unit and stage, the first `rate * n` of n items are right."""
    out = []
    for fold in folds:
        for seed in seeds:
            for stage in range(1, stages + 1):
                share = rates(stage) if callable(rates) else rates
                for i in range(n):
                    kind = fold if part == "test" else fold % 9 + 1
                    v, k = TYPES[kind]
                    gold = [LABELS.index(x) for x in (v, k, composed_label(v, k))]
                    said = [
                        g if (i + shift) % n < round(rate * n) else (g + 1) % 3
                        for g, rate in zip(gold, share, strict=True)
                    ]
                    scores = [-0.1 if x == c else -3.0 for x in said for c in range(3)]
                    one = {
                        **{"stream": stream, "test_type": fold, "solution": 1, "seed": seed},
                        **{"strategy": strategy, "stage": stage, "stages": stages},
                        **{"stage_name": f"s{stage}", "item": f"{part}-{kind}-{i}", "part": part},
                        **{"type": kind, "verb": "manage", "relation": "other"},
                        **{"group": f"g{i}", "learned": 0 if part == "test" else 1},
                        **dict(zip(("gold_v", "gold_n", "gold"), gold, strict=True)),
                        **{"sound": gold[2]},
                        **dict(zip(HEADS, scores, strict=True)),
                    }
                    out.append({**one, **other})
    return out


def table(*runs: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame([one for run in runs for one in run])


def last(summary: dict[str, Any], stream: str, strategy: str = "none") -> dict[str, Any]:
    run = summary["streams"][stream][strategy]
    found: dict[str, Any] = run["after"][str(run["stages"])]["test"]
    return found


def compared(summary: dict[str, Any], kind: str, metric: str = "CI") -> list[dict[str, Any]]:
    return [r for r in summary["comparisons"] if (r["kind"], r["metric"]) == (kind, metric)]


def test_figures_by_hand() -> None:
    runs = [
        rows("ver-nat", "none", (0.9, 0.8, 0.5), folds=(1,), seeds=(1, 2)),  # CI 10 of 20
        rows("ver-nat", "none", (0.9, 0.8, 0.3), folds=(5,), seeds=(1,)),
        rows("ver-nat", "none", (0.9, 0.8, 0.7), folds=(5,), seeds=(2,)),
    ]
    summary = summarize(table(*runs))
    found = last(summary, "ver-nat")["CI"]
    # Units 50, 50, 30, 70: mean 50. Folds 50 and 50: no spread. Seeds 40 and 60: sd 200 ** .5.
    assert found["value"] == pytest.approx(50.0)
    assert (found["n"], found["folds"], found["seeds"]) == (80, 2, 2)
    assert found["std_folds"] == pytest.approx(0.0)
    assert found["std_seeds"] == pytest.approx(200**0.5)
    assert found["low"] < 40 < 60 < found["high"]
    assert last(summary, "ver-nat")["gap"]["value"] == pytest.approx(30.0)  # both right: 16 of 20
    assert last(summary, "ver-nat")["types"]["5"]["CI"]["seeds"] == 2
    assert last(summary, "ver-nat")["functions"]["f_ve"]["CI"]["value"] == pytest.approx(50.0)
    # Rows 1..10 right in all heads, of them; see the quadrants: CI right within both right.
    assert last(summary, "ver-nat")["quadrants"]["all"]["P+ CI+"] == 10 + 10 + 6 + 14


def test_values_are_plain_and_nothing_is_nan() -> None:
    summary = summarize(
        table(
            rows("cgen", "none", (0.0, 0.0, 0.0), stages=1),
            rows("ver-nat", "none", (0.0, 0.0, 0.0)),
            rows("ver-nat", "er-res", (1.0, 1.0, 1.0)),
        )
    )
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    run = summary["streams"]["ver-nat"]["none"]
    assert run["after"]["2"]["unseen"] is None
    assert run["forgetting"]["unseen"] is None
    assert run["matrix"]["unseen"] is None
    assert summary["baselines"]["cgen"]["probe"] is None
    # Nothing was right after stage 1, so no share of it can be lost.
    forget = run["forgetting"]["test"]["forget"]["CI"]
    assert (forget["value"], forget["low"], forget["n"]) == (None, None, 0)
    assert run["forgetting"]["test"]["max_minus_last"]["CI"]["value"] == 0.0
    assert summary["streams"]["cgen"]["none"]["forgetting"]["test"] is None
    json.dumps(claims(summary), allow_nan=False)


def test_one_unit_and_one_group() -> None:
    one = rows("ver-nat", "none", (1.0, 1.0, 0.5), folds=(5,))
    found = last(summarize(table(one)), "ver-nat")["CI"]
    assert (found["value"], found["std_folds"], found["std_seeds"]) == (50.0, None, None)
    assert 20 < found["low"] < 50 < found["high"] < 80
    # All items of one premise: nothing to resample, so no interval rather than a sure figure.
    same = [{**r, "group": "g"} for r in one]
    found = last(summarize(table(same)), "ver-nat")["CI"]
    assert (found["value"], found["low"], found["high"]) == (50.0, None, None)


def test_forgetting_of_a_run() -> None:
    def rates(stage: int) -> Rates:
        return (0.8, 1.0, 0.5) if stage == 1 else (0.6, 1.0, 0.55)

    runs = [rows("ver-nat", "none", rates, part=part) for part in ("test", "probe")]
    found = summarize(table(*runs))["streams"]["ver-nat"]["none"]["forgetting"]
    test, probe = found["test"], found["probe"]
    assert test["forget"]["V"]["value"] == pytest.approx(25.0)  # (80 - 60) / 80
    assert test["max_minus_last"]["V"]["value"] == pytest.approx(20.0)
    assert test["max_minus_last"]["CI"]["value"] == pytest.approx(-5.0)
    assert test["bwt"]["V"]["value"] is None  # a held-out type is never learned
    assert probe["bwt"]["V"]["value"] == pytest.approx(-20.0)
    assert probe["bwt"]["V"]["low"] <= -20 <= probe["bwt"]["V"]["high"]
    assert probe["bwt"]["N"] == {
        **{"value": 0.0, "low": 0.0, "high": 0.0, "n": 60, "folds": 3, "seeds": 1},
        **{"std_folds": 0.0, "std_seeds": None},
    }


def test_a_run_does_not_depend_on_what_else_is_in_the_table() -> None:
    alone = rows("ver-nat", "none", (0.9, 0.8, 0.4))
    more = table(rows("ver-nat", "kd", (0.5, 0.5, 0.5)), alone[::-1], rows("x", "none", (1, 1, 1)))
    first, second = (summarize(t)["streams"]["ver-nat"]["none"] for t in (table(alone), more))
    assert first == second
    other = summarize(table(alone), seed=2)["streams"]["ver-nat"]["none"]
    assert other["after"]["2"]["test"]["CI"]["value"] == pytest.approx(40.0)
    assert other["after"] != first["after"]  # other resamples


def test_paired_differences() -> None:
    summary = summarize(
        table(
            rows("ver-nat", "none", (0.9, 0.9, 0.4)),
            rows("ver-nat", "kd", (0.9, 0.9, 0.4)),  # the same answers
            rows("ver-nat", "agem", (0.9, 0.9, 0.6), shift=0),  # 4 of 20 more, none less
            rows("ver-nat", "ewc", (0.9, 0.9, 0.4), shift=10),  # as good, on other items
        )
    )
    same, better, other = compared(summary, "remedy")
    assert [r["new"]["strategy"] for r in (same, better, other)] == ["kd", "agem", "ewc"]
    assert (same["difference"]["low"], same["difference"]["high"]) == (0.0, 0.0)
    assert (same["p"], same["mcnemar"]["p"]) == (1.0, 1.0)
    assert (better["base_value"], better["new_value"]) == (40.0, 60.0)
    assert better["difference"]["value"] == pytest.approx(20.0)
    assert better["difference"]["low"] > 0
    # 4 items in each of 3 folds: McNemar 2 * .5 ** 12.
    assert better["mcnemar"] == {"only_base": 0, "only_new": 12, "p": pytest.approx(0.5**11)}
    assert better["p_holm"] >= better["p"]
    assert other["difference"]["value"] == 0.0
    assert other["difference"]["low"] < -20 < 20 < other["difference"]["high"]


def test_differences_use_common_items_and_units_alone() -> None:
    base = rows("nat-ver", "none", (1.0, 1.0, 0.5), folds=(1, 5))
    new = rows("ver-nat", "none", (1.0, 1.0, 1.0), folds=(5, 9), solution=1)
    (found,) = (
        compared(summarize(table(base, new[: len(new) // 2 - 5], new)), "order")
        if 0
        else (compared(summarize(table(base, new)), "order"))
    )
    assert (found["difference"]["folds"], found["difference"]["n"]) == (1, 20)
    assert (found["base_value"], found["new_value"]) == (50.0, 100.0)
    # CGen knows no solution: it is compared with both.
    both = [rows("ver-nat", "none", (1.0, 1.0, 1.0), solution=s) for s in (1, 2)]
    cgen = rows("cgen", "none", (1.0, 1.0, 0.5), stages=1)
    (found,) = compared(summarize(table(cgen, *both)), "offline")
    assert (found["difference"]["value"], found["difference"]["n"]) == (50.0, 120)
    # Without a common unit there is no comparison.
    assert (
        compared(summarize(table(base, rows("ver-nat", "none", (1, 1, 1), folds=(9,)))), "order")
        == []
    )


def test_holm_by_hand() -> None:
    found: list[dict[str, Any]] = [
        {"kind": kind, "metric": "CI", "p": p, "p_holm": None}
        for kind, p in (("a", 0.01), ("a", 0.04), ("a", 0.03), ("b", 0.04), ("a", None))
    ]
    holm(found)
    # 3 * .01; then 2 * .03 = .06, and .04 may not fall below it; b is a family of its own.
    assert [row["p_holm"] for row in found] == [
        pytest.approx(p) for p in (0.03, 0.06, 0.06, 0.04)
    ] + [None]


def cell_rows(right: np.ndarray, group: np.ndarray) -> Rows:
    count = len(right)
    zero = np.zeros(count, np.int64)
    values = np.zeros((count, len(COLUMNS)), np.int64)
    values[:, 0], values[:, COLUMNS.index("CI")] = 1, right
    return Rows(np.asarray([[1, 1, 1]]), zero, group, {}, zero, zero, zero, zero, values)


def test_interval_is_that_of_the_clustered_bootstrap() -> None:
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(60), 4)
    right = (rng.random(240) < np.repeat(rng.random(60), 4)).astype(np.int64)
    found = rows_figure(Resampler(1), right, group)
    units = np.column_stack([np.ones(240, np.int64), right])
    naive = bootstrap(
        units, lambda s: 100 * s[..., 1] / s[..., 0], clusters=group, rng=generator("test", 1)
    )
    assert found["value"] == pytest.approx(naive.value)
    assert found["low"] == pytest.approx(naive.low, abs=1.0)
    assert found["high"] == pytest.approx(naive.high, abs=1.0)


def test_interval_covers_the_truth() -> None:
    # 150 data sets of 50 premises with 4 items each, which share half of their fate.
    rng, resampler, covered = np.random.default_rng(2), Resampler(1), 0
    group = np.repeat(np.arange(50), 4)
    for _ in range(150):
        shared = np.repeat(rng.random(50) < 0.6, 4)
        own = rng.random(200) < 0.6
        right = np.where(rng.random(200) < 0.5, shared, own).astype(np.int64)
        found = rows_figure(resampler, right, group)
        covered += found["low"] <= 60 <= found["high"]
    assert 0.88 <= covered / 150 <= 0.995  # 95 %, give or take 4 standard errors


def rows_figure(resampler: Resampler, right: np.ndarray, group: np.ndarray) -> dict[str, Any]:
    made = cell_rows(right, group)
    cell = resampler.cell(made, made.values, np.unique(group))
    return figure(cell, lambda sums, weights: macro(sums, weights, "CI"))


def test_units_without_all_stages_are_left_out_and_named() -> None:
    whole = rows("ver-nat", "none", (1.0, 1.0, 1.0), folds=(1, 5))
    half = [r for r in rows("ver-nat", "none", (0, 0, 0), folds=(9,)) if r["stage"] == 1]
    summary = summarize(table(whole, half))
    assert summary["incomplete"] == [
        {
            **{"stream": "ver-nat", "strategy": "none", "test_type": 9, "solution": 1, "seed": 1},
            **{"stages": 2, "there": [1]},
        }
    ]
    assert last(summary, "ver-nat")["CI"]["folds"] == 2
    assert "WARNING: left out: ver-nat none, test type 9" in shown(summary)
    with pytest.raises(InputError, match="none of 1 units has predictions of all its stages"):
        summarize(table(half))


def study(**ci: float) -> dict[str, Any]:
    """A summary with these CI shares; names are stream__strategy, `_` standing for `-` and `/`."""
    runs = []
    for name, share in ci.items():
        stream, _, strategy = name.partition("__")
        stream = stream.replace("ver_nat", "ver-nat").replace("nat_ver", "nat-ver")
        stream = stream.replace("_easy_hard", "/easy-hard").replace("_hard_easy", "/hard-easy")
        rates = (0.95, 0.95, share)
        stages = 1 if stream == "cgen" else 2
        runs.append(rows(stream, strategy.replace("_", "-"), rates, stages=stages, n=100))
    return summarize(table(*runs), version="0.1.0")


def answers(summary: dict[str, Any]) -> dict[str, str]:
    return {claim["claim"]: claim["answer"] for claim in claims(summary)}


def test_claims_that_hold() -> None:
    summary = study(
        cgen__none=0.4,
        ver_nat__none=0.2, nat_ver__none=0.05, ver_nat__agem=0.3, ver_nat__kd=0.3,
        ver_nat__er_res=0.38, ver_nat_easy_hard__none=0.3, ver_nat_hard_easy__none=0.1,
    )  # fmt: skip
    assert answers(summary) == dict.fromkeys(CLAIMS, "yes")
    order = claims(summary)[1]
    assert order["difference"] == pytest.approx(15.0)
    assert order["low"] > 0
    assert (order["n"], order["decided_by"]) == (300, "ver-nat none - nat-ver none")
    # er-res against agem and kd; er-res, agem and kd against none.
    tests = claims(summary)[2]["tests"]
    assert sorted(test["test"].replace("ver-nat ", "") for test in tests) == [
        "agem - none", "er-res - agem", "er-res - kd", "er-res - none", "kd - none",
    ]  # fmt: skip
    # What decides a yes is the smallest of them.
    assert claims(summary)[2]["difference"] == pytest.approx(8.0)


def test_claims_that_fail() -> None:
    summary = study(
        cgen__none=0.9,  # right where it should fail
        ver_nat__none=0.95, nat_ver__none=1.0, ver_nat__er_res=0.7, ver_nat__kd=0.8,
        nat_ver_easy_hard__none=0.1, nat_ver_hard_easy__none=0.3,
    )  # fmt: skip
    assert answers(summary) == dict.fromkeys(CLAIMS, "no")


def test_claims_that_stay_open() -> None:
    summary = study(cgen__none=0.5, ver_nat__none=0.5, ver_nat__er_res=0.5)
    assert answers(summary) == {
        "continual": "undecided",
        "order": "not measured",
        "replay": "undecided",
        "gap": "undecided",
        "difficulty": "not measured",
    }
    missing = claims(summary)[1]
    assert (missing["difference"], missing["n"], missing["tests"]) == (None, None, [])
    # One test against the claim outweighs one for it.
    summary = study(cgen__none=0.4, ver_nat__none=0.1, nat_ver__none=0.8)
    assert answers(summary)["continual"] == "no"


def test_paper_figures() -> None:
    told = {(f.stream, f.strategy, f.metric): f.value for f in PAPER if "Llama" not in f.model}
    drops = {"ver-nat": 7.27, "nat-ver": 9.31}
    for stream, drop in drops.items():
        assert told[stream, "none", "CI"] == pytest.approx(told["cgen", "none", "CI"] - drop)
    assert told["*/easy-hard", "none", "CI"] == pytest.approx(48.64 - 0.42)
    assert all(f.note for f in PAPER if f.derived and f.strategy == "none")
    means = [told["cgen", "none", f"CI {name}"] for name in ("f_ve", "f_vn", "f_vc")]
    assert sum(means) / 3 == pytest.approx(told["cgen", "none", "CI"], abs=0.01)


def test_signature() -> None:
    summary = study(ver_nat__none=0.5)
    found = last(summary, "ver-nat")["CI"]
    assert signature(summary, "ver-nat", "none") == (
        f"CI = 50.0 [{found['low']:.1f}, {found['high']:.1f}] | stream:ver-nat | strategy:none | "
        "stage:2/2 | folds:3 | seeds:1 | n:300 | v:0.1.0"
    )
    only_probe = summarize(table(rows("x", "kd", (1, 1, 1), part="probe")), target="sound")
    assert signature(only_probe, "x", "kd") == (
        "CI = - [-, -] | stream:x | strategy:kd | stage:2/2 | folds:0 | seeds:0 | n:0 | "
        "target:sound"
    )


def test_sweep() -> None:
    found = sweep(
        {
            "1e-05": table(rows("ver-nat", "none", (1.0, 1.0, 0.4))),
            "2e-05": table(
                rows("ver-nat", "none", (1.0, 1.0, 0.7)), rows("ver-nat", "kd", (1.0, 1.0, 0.5))
            ),
        }
    )
    assert [(r["setting"], r["strategy"], r["CI"]["value"]) for r in found] == [
        ("1e-05", "none", 40.0), ("2e-05", "none", 70.0), ("2e-05", "kd", 50.0),
    ]  # fmt: skip
    assert found[0]["difference"] is None
    assert found[1]["difference"]["value"] == pytest.approx(30.0)
    assert found[1]["p_holm"] == found[1]["p"] < 0.01
    assert found[2]["difference"] is None  # the base has no such run
    assert found[1]["forgetting"]["forget"]["CI"]["value"] == 0.0


def test_pseudo_against_real() -> None:
    real = table(
        rows("ver-nat", "none", (1.0, 1.0, 0.8)), rows("cgen", "none", (1, 1, 1), stages=1)
    )
    pseudo = table(rows("ver-nat", "none", (0.5, 1.0, 0.4)))
    found = {row["metric"]: row for row in pseudo_against_real(real, pseudo)}
    assert found["CI"]["difference"]["value"] == pytest.approx(-40.0)
    assert found["CI"]["difference"]["high"] < 0
    assert found["V"]["difference"]["value"] == pytest.approx(-50.0)
    assert found["N"]["difference"]["value"] == 0.0
    with pytest.raises(InputError, match="share no stream and strategy"):
        pseudo_against_real(real, table(rows("nat-ver", "none", (1, 1, 1))))
    with pytest.raises(InputError, match="ver-nat none: real and pseudo predictions share no test"):
        pseudo_against_real(real, table(rows("ver-nat", "none", (1, 1, 1), folds=(2,))))


def test_orders() -> None:
    summary = study(
        cgen__none=0.4, ver_nat__none=0.3, nat_ver__none=0.2, ver_nat__kd=0.9,
        ver_nat_easy_hard__none=0.5, ver_nat_hard_easy__none=0.25,
    )  # fmt: skip
    found = {row["stream"]: row for row in orders(summary)}
    assert list(found) == [
        "ver-nat/easy-hard", "cgen", "ver-nat", "ver-nat/hard-easy", "nat-ver",
    ]  # fmt: skip
    assert found["ver-nat/easy-hard"]["reverse"]["value"] == pytest.approx(25.0)
    assert found["ver-nat"]["reverse"]["value"] == pytest.approx(10.0)
    assert found["nat-ver"]["offline"]["value"] == pytest.approx(-20.0)
    assert found["cgen"]["offline"] is None
    assert [found[s]["paper"] for s in ("cgen", "ver-nat", "ver-nat/easy-hard")] == [
        46.67, 39.40, 48.22,
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_representations(method: str) -> None:
    rng = np.random.default_rng(1)
    centres = np.eye(3, 8) * 20  # far apart
    vectors = np.concatenate([c + rng.normal(size=(5, 8)) for c in centres])
    labels = [kind for kind in "xyz" for _ in range(5)]
    found = representations(vectors, labels, method=method)
    assert np.shape(found["coordinates"]) == (15, 2)
    assert found["silhouette"]["space"]["all"] > 0.8
    assert found["silhouette"]["plane"]["all"] > 0.5
    assert set(found["silhouette"]["space"]) == {"all", "x", "y", "z"}
    mixed = representations(vectors, rng.permutation(labels).tolist(), method=method)
    assert mixed["silhouette"]["space"]["all"] < 0.1
    assert mixed["coordinates"] == found["coordinates"]  # the same seed, the same plane


def test_representations_that_cannot_be_drawn() -> None:
    points = np.random.default_rng(1).normal(size=(6, 4))
    with pytest.raises(InputError, match=r"shape \(6, 4\) with 6 labels of 1 kinds; wanted"):
        representations(points, ["a"] * 6)
    with pytest.raises(InputError, match="method 'umap'; wanted 'tsne' or 'pca'"):
        representations(points, list("aaabbb"), method="umap")
    points[2, 1] = np.nan
    with pytest.raises(InputError, match="holds NaN or infinity"):
        representations(points, list("aaabbb"))


def shown(summary: dict[str, Any]) -> str:
    console = Console(width=120, file=io.StringIO(), color_system=None)
    print_summary(console, summary, claims(summary))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_tables_fit_120_columns() -> None:
    summary = study(
        cgen__none=0.4, ver_nat__none=0.2, ver_nat__er_res=0.6, nat_ver__none=0.2
    )  # fmt: skip
    cost = {"steps": 1_234_567, "tokens_per_second": 12345.6, "seconds": 86400.0, "peak_mib": 20480}
    summary["costs"] = {"ver-nat": {"none": cost}}
    text = shown(summary)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    assert "…" not in text
    best = next(line for line in lines if line.startswith("   er-res"))
    ci = last(summary, "ver-nat", "er-res")["CI"]
    assert f"60.0 [{ci['low']:.1f}, {ci['high']:.1f}]" in best
    assert "+40.0*" in best
    assert any(line.split()[:2] == ["none", "95.0"] and "1,234,567" in line for line in lines)
    # Types 1, 5 and 9 are e, n, e: neutral has one fold of three.
    assert any(line.split() == ["always", "neutral", "33.3"] for line in lines)
    assert any(line.split() == ["paper", "none", "46.7"] for line in lines)
    assert any(line.split() == ["paper", "none", "(Llama)", "49.5"] for line in lines)
    assert any(line.split() == ["paper", "none", "80.7", "39.4†"] for line in lines)
    assert any("undecided" in line or "yes" in line for line in lines[-20:])


def test_tables_without_test_rows() -> None:
    summary = summarize(table(rows("x", "kd", (1.0, 1.0, 0.5), part="probe")))
    text = shown(summary)
    assert "kd" in text
    assert "not measured" in text
    console = Console(width=120, file=io.StringIO(), color_system=None)
    print_types(console, summary, "probe")
    assert isinstance(console.file, io.StringIO)
    # Folds 1, 5, 9 probe types 2, 6 and 1.
    assert "S2 50.0 50.0 - - - 50.0 - - - 50.0 50.0" in " ".join(console.file.getvalue().split())


def test_tables_of_analyses() -> None:
    real, pseudo = (table(rows("ver-nat", "none", (1.0, 1.0, ci))) for ci in (0.4, 0.7))
    shape = representations(np.eye(6)[[0, 0, 0, 1, 1, 1]], list("xxxyyy"), method="pca")
    found = {
        "orders": orders(summarize(real)),
        "representations": [
            {"stream": "ver-nat", "strategy": "none", "seed": 1, "stage": 2, **shape}
        ],
        "pseudo": pseudo_against_real(real, pseudo),
        "sweep": sweep({"memory=50": real, "memory=100": pseudo}),
        "setting": "memory",
    }
    console = Console(width=120, file=io.StringIO(), color_system=None)
    print_analysis(console, found)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 120
    assert not any("…" in line for line in lines)
    words = [line.split() for line in lines]
    assert any(row[:2] == ["ver-nat", "100.0"] and row[-1] == "39.4" for row in words)
    assert any(row[:6] == ["ver-nat", "none", "1", "S2", "6", "+1.00"] for row in words)
    assert any(row[:6] == ["ver-nat", "none", "CI", "40.0", "70.0", "+30.0"] for row in words)
    assert any(row[:4] == ["memory=100", "ver-nat", "none", "100.0"] for row in words)
    assert any(row[0] == "memory=50" and row[-2:] == ["-", "-"] for row in words if row)
