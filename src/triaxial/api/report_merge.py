"""What a report says of a run of MERGE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from triaxial.api.gates import Figure, merge_figures
from triaxial.api.merge_files import VariantSet, labels_by_variant, read_metrics, read_run
from triaxial.api.report_seeds import failing_tables, worst_seeds
from triaxial.api.report_shown import count, dated, ends, interval, slug
from triaxial.merge.analyses import compare, groups_of
from triaxial.merge.score import DrawOptions
from triaxial.report.figures import Axis, Chart, curves, intervals, parts
from triaxial.report.page import (
    Browser,
    Section,
    Table,
    Verdict,
)
from triaxial.store import read_json

__all__ = ["section_of"]

_DIGEST = 12  # characters of a digest
_PAPER = "The paper: most models hold S only at CT of about 50 % or less (its own models and data)."
_METHOD = (
    "A variant replaces one word that premise and hypothesis share, in both, by a word that a "
    "masked language model finds at least as likely in both places; the gold label stays.",
    "SV at CT is the share of seeds of which at least CT percent of the variants are labelled "
    "rightly; MC is the CT at which SV comes closest to S, the accuracy on the seeds.",
    "Intervals are 95 % bootstraps over premises, no narrower than Wilson's over them; n variants "
    "are drawn for each seed, several times, and figures are means over the draws.",
    "Source: MERGE, arXiv 2510.24295.",
)
_LIMITS = (
    "Labels of variants are inherited, not annotated: rate a sample (`triax merge rate`) and read "
    "SV against the ceiling that the ratings imply.",
    "A seed needs enough variants to be counted, so seeds are not a random sample of the data.",
)


def section_of(path: Path, name: str, place: str) -> tuple[Section, list[Figure]]:
    """The section of a run, and the figures that gates may name.

    Args:
        path: Directory of the run.
        name: How it is called.
        place: Name of its place on the page.
    """
    metrics = read_metrics(path)
    made, predictions, draw, models = read_run(path)
    manifest = read_json(path / "manifest.json")
    blocks: list[Table | Chart | Browser] = [_overview(metrics, place)]
    if metrics["models"]:
        blocks += [_by_model(metrics, place)]
        blocks += [*_by_group(metrics, place)]
    blocks.append(_funnel(made.funnel, place))
    if metrics["models"]:
        if len(metrics["models"]) > 1:
            blocks.insert(1, _paired(made, predictions, draw, list(metrics["models"]), place))
        blocks += failing_tables(made, predictions, list(metrics["models"]), place)
        blocks += worst_seeds(made, predictions, list(metrics["models"]), place)
    facts = [
        ("pairs from", made.facts["data"]["source"]),
        ("digest of the data", made.facts["data"]["digest"]),
        ("preset", metrics["preset"]),
        *(
            (f"masked LM {label}", f"{one['name']} @ {one['revision']}, {one['precision']}")
            for label, one in made.facts["mlm"].items()
        ),
        *(
            # What decides a model's numbers depends on its kind: a file has neither.
            (f"model {label}", ", ".join([one["name"], *_decides(one)]))
            for label, one in models.items()
        ),
        *dated(manifest),
    ]
    section = Section(
        place,
        f"Replacement: {name}",
        Verdict("replacement", name, _sentence(metrics)),
        tuple(blocks),
        tuple(metrics["warnings"]),
        tuple(one["signature"] for one in metrics["models"].values()),
        _METHOD,
        _LIMITS,
        tuple((key, str(value)) for key, value in facts),
    )
    return section, merge_figures(metrics)


def _decides(model: Mapping[str, Any]) -> list[str]:
    """What is known of a model besides its name: revision, precision, digests in short."""
    return [
        f"{key} {str(value)[:_DIGEST] if key in ('digest', 'file') else value}"
        for key, value in model.items()
        if key != "name"
    ]


def _sentence(metrics: Mapping[str, Any]) -> str:
    told = []
    for model, scored in metrics["models"].items():
        one = scored["all"]["all"]
        lost = one["seed_accuracy"]["value"] - one["sv"][18]["value"]
        matching = one["matching"]["point"]
        told.append(
            f"{model} is right on {interval(one['seed_accuracy'])} % of {one['seeds']:,} seeds, "
            f"but on 95 % of their variants for only {interval(one['sv'][18])} %: {lost:.1f} "
            "points lost to replaced words"
            + ("" if matching is None else f"; SV comes closest to it at CT {matching} %")
            + f". Always neutral: {_neutral(metrics)} %."
        )
    return " ".join(told) or "No model was scored."


def _neutral(metrics: Mapping[str, Any]) -> str:
    return f"{metrics['baselines']['always neutral']['all']['all']['seed_accuracy']['value']:.1f}"


def _overview(metrics: Mapping[str, Any], place: str) -> Table:
    rows: list[tuple[str, ...]] = []
    quiet: list[int] = []
    for name, scored in {**metrics["models"], **metrics["baselines"]}.items():
        one = scored["all"]["all"]
        if name in metrics["baselines"]:
            quiet.append(len(rows))
        matching = one["matching"]
        rows.append(
            (
                name,
                f"{one['seeds']:,}",
                interval(one["seed_accuracy"]),
                interval(one["sv"][9]),
                interval(one["sv"][18]),
                "none (S = 0)"
                if matching["point"] is None
                else f"{matching['point']} [{matching['low']:.0f}, {matching['high']:.0f}]",
                interval(one["variant_accuracy"]),
            )
        )
    draw = metrics["draw"]
    return Table(
        slug(place, "overview"),
        "Accuracy on seeds and on their variants",
        ("model", "seeds", "S", "SV50", "SV95", "MC", "variants right"),
        tuple(rows),
        f"Percent, with 95 % intervals over premises; {draw['n']} variants a seed, "
        f"{draw['draws']} draws, seed {draw['seed']}. {_PAPER}",
        tuple(quiet),
    )


def _by_model(metrics: Mapping[str, Any], place: str) -> Chart:
    rows: list[dict[str, Any]] = []
    for model, scored in metrics["models"].items():
        rows += _curve(model, scored["all"]["all"], metrics["grid"])
    seeds = max(scored["all"]["all"]["seeds"] for scored in metrics["models"].values())
    return curves(
        slug(place, "curves"),
        "Seed-Variant accuracy by threshold",
        "Across: CT, percent of a seed's variants that must be right. Up: SV, percent of "
        f"{seeds:,} seeds, with 95 % bands over premises. Thin dashes: S, the accuracy on the "
        "seeds. Diamond: MC, where the curve comes closest to it.",
        rows,
        Axis("CT", "CT, % of variants right"),
        Axis("SV", "seeds, %", domain=(0, 100)),
        series="model",
        level="S",
        marked="MC",
    )


def _by_group(metrics: Mapping[str, Any], place: str) -> list[Chart]:
    found = []
    for kind, what, of in (
        ("class", "word class", "A seed counts in every class of which it has variants enough."),
        ("label", "gold label", "Every seed has one gold label."),
    ):
        rows: list[dict[str, Any]] = []
        points: list[dict[str, Any]] = []
        for model, scored in metrics["models"].items():
            for group, one in (scored.get(kind) or {}).items():
                panel = f"{group} ({count(one['seeds'], 'seed')})"
                rows += [{**row, what: panel} for row in _curve(model, one, metrics["grid"])]
                sv = one["sv"][18]
                points.append(
                    {what: panel, "model": model, "SV95": sv["value"], **ends(sv)}
                    | {"S": one["seed_accuracy"]["value"], "n": one["seeds"]}
                )
        if not rows:
            continue
        groups = tuple(dict.fromkeys(str(row[what]) for row in points))
        found.append(
            intervals(
                slug(place, kind),
                f"SV95 by {what}",
                f"Percent of seeds with at least 95 % of their variants right, with 95 % intervals "
                f"over premises; n stands beside each {what}. {of}",
                points,
                Axis(what, "", "N", groups),
                Axis("SV95", "SV95, % of seeds", domain=(0, 100)),
                series="model",
            )
        )
        found.append(
            curves(
                slug(place, kind, "curves"),
                f"Seed-Variant accuracy by threshold and {what}",
                f"One panel for each {what}, n beside its name. Across: CT, percent of variants "
                "right; up: percent of seeds, with 95 % bands; thin dashes: S.",
                rows,
                Axis("CT", "CT, %"),
                Axis("SV", "seeds, %", domain=(0, 100)),
                series="model",
                level="S",
                panels=Axis(what, "", "N", groups),
            )
        )
    return found


def _curve(model: str, one: Mapping[str, Any], grid: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "model": model,
            "CT": ct,
            "SV": sv["value"],
            **ends(sv),
            "S": one["seed_accuracy"]["value"],
            "MC": ct == one["matching"]["point"],
            "n": one["seeds"],
        }
        for ct, sv in zip(grid, one["sv"], strict=True)
    ]


def _funnel(funnel: Any, place: str) -> Chart:
    import polars as pl

    titles = {
        "word": "shared words",
        "slot": "slots asked",
        "suggestion": "suggestions",
        "variant": "validated words",
    }
    # Where a step counts over all masked LMs ("all"), its rows by masked LM would count twice.
    together = pl.col("mlm") == "all"
    whole = funnel.filter(together | ~together.any().over("unit"))
    sums = whole.group_by("unit", "fate").agg(pl.col("count").sum()).sort("unit", "fate")
    counts = {(unit, fate): n for unit, fate, n in sums.iter_rows()}
    rows = [
        {"of": title, "fate": fate, "count": n}
        for unit, title in titles.items()
        for (of, fate), n in sorted(counts.items(), key=lambda item: -item[1])
        if of == unit
    ]
    # A handful of fates is drawn, the rest together: the table has all.
    total: Counter[str] = Counter()
    for row in rows:
        total[str(row["fate"])] += int(str(row["count"]))
    return parts(
        slug(place, "funnel"),
        "What became of every word and suggestion",
        "Bars are shares of what came into each step: "
        + ", ".join(
            f"{title} {sum(n for (of, _), n in counts.items() if of == unit):,}"
            for unit, title in titles.items()
        )
        + ". Counts over word classes and masked LMs.",
        rows,
        Axis("of", "", "N", tuple(titles.values())),
        Axis("count", "share of the step"),
        Axis("fate", "", "N", tuple(name for name, _ in total.most_common())),
        share=True,
    )


def _paired(
    made: VariantSet, predictions: Any, draw: DrawOptions, models: Sequence[str], place: str
) -> Table:
    """Every model against the first, on the same seeds and draws."""
    index, offsets = made.index(), made.offsets()
    whole = groups_of(index, draw)[0]
    first, *others = (labels_by_variant(made, predictions, model, offsets) for model in models)
    rows = []
    for other in others:
        found = {one.metric: one for one in compare(index, whole, first, other, seed=draw.seed)}
        rows += [
            (
                other.model,
                metric,
                f"{found[metric].old:.1f}",
                f"{found[metric].new:.1f}",
                interval(asdict(found[metric].difference), "+.1f"),
                found[metric].verdict,
                f"{found[metric].smallest:.1f}",
            )
            for metric in ("S", "SV50", "SV95")
        ]
    return Table(
        slug(place, "paired"),
        f"Each model against {models[0]}",
        ("model", "figure", models[0], "its own", "difference", "verdict", "smallest"),
        tuple(rows),
        "Points of percent, paired by seed and draw, with 95 % intervals over premises. Smallest: "
        "the smallest difference that so many seeds show with a power of 80 %.",
    )
