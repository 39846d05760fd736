"""Tables of MERGE for a terminal, from the plain values of `metrics.json` alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from triaxial.merge.analyses import Comparison

__all__ = [
    "print_comparison",
    "print_funnel",
    "print_metrics",
    "print_plan",
    "print_ratings",
    "print_seconds",
    "print_seed",
    "print_words",
]

_SHOWN = (50, 95)
# Source: MERGE, findings. The paper's tables of S, SV and MC are not public here: none is shown.
_PAPER = (
    "The paper finds that most models hold their seed accuracy only at CT of about 50 % or less "
    "(its own models and data)."
)


def print_metrics(
    console: Console, metrics: Mapping[str, Any], ratings: Mapping[str, Any] | None = None
) -> None:
    """Everything that `score` says: overall, by threshold, class, label and masked LM."""
    seeds, variants, draw = metrics["seeds"], metrics["variants"], metrics["draw"]
    by_class = ", ".join(f"{name} {count:,}" for name, count in variants["by_class"].items())
    console.print(
        f"{seeds['pairs']:,} pairs, {seeds['with_variants']:,} with variants, "
        f"{seeds['kept']:,} seeds kept (at least {draw['n']} variants); "
        f"{variants['all']:,} variants ({by_class})"
    )
    if variants["label_risk"] is None:
        console.print("label risk: not known, as no WordNet data was found (see --wordnet)")
    elif variants["all"]:
        share = 100 * variants["label_risk"] / variants["all"]
        console.print(f"label risk: flagged in {variants['label_risk']:,} variants ({share:.0f} %)")
    for warning in metrics["warnings"]:
        console.print(f"WARNING: {warning}", style="bold", markup=False)
    if not metrics["models"]:
        return
    rows = {**metrics["models"], **metrics["baselines"]}
    console.print()
    console.print(_overview(rows, draw))
    for model, scored in metrics["models"].items():
        console.print()
        console.print(_curve(model, scored["all"]["all"], metrics["grid"], ratings))
        for kind, title in (
            ("class", "by word class"),
            ("label", "by gold label"),
            ("source", "by masked LM, on the seeds with enough variants from each"),
        ):
            if scored.get(kind):
                console.print()
                console.print(_groups(model, title, scored[kind], metrics["baselines"], kind))
    console.print()
    console.print(_PAPER, style="dim")
    for model, scored in metrics["models"].items():
        console.print(f"{model}: {scored['signature']}", markup=False)


def print_funnel(console: Console, funnel: pl.DataFrame) -> None:
    """What became of shared words, slots, suggestions and variants, by masked LM and class."""
    import polars as pl

    titles = {
        "word": "Shared words",
        "slot": "Slots asked of a masked LM",
        "suggestion": "Suggestions of a masked LM",
        "variant": "Validated words",
    }
    for unit, title in titles.items():
        mine = funnel.filter(pl.col("unit") == unit)
        if not len(mine):
            continue
        sums = mine.group_by("mlm", "fate", "pos").agg(pl.col("count").sum())
        classes = sorted(set(sums["pos"]) - {""})
        table = Table(title=title, title_justify="left")
        for name in ("masked LM", "fate"):
            table.add_column(name)
        for name in ("count", *classes):
            table.add_column(name, justify="right")
        totals: dict[tuple[str, str], dict[str, int]] = {}
        for mlm, fate, pos, count in sums.iter_rows():
            totals.setdefault((mlm, fate), {})[pos] = count
        for (mlm, fate), row in sorted(
            totals.items(), key=lambda item: (item[0][0], -sum(item[1].values()))
        ):
            cells = [f"{row.get(pos, 0):,}" for pos in classes]
            table.add_row(Text(mlm or "-"), fate, f"{sum(row.values()):,}", *cells)
        console.print(table)


def print_seconds(console: Console, work: Mapping[str, Any]) -> None:
    """How the time splits, and what was computed rather than found in the store."""
    spent = {name: s for name, s in work.get("seconds", {}).items()}
    total = sum(spent.values())
    split = ", ".join(f"{name} {s:.1f} s ({100 * s / total:.0f} %)" for name, s in spent.items())
    if total:
        console.print(f"time: {split}", markup=False)
    for label, facts in work.get("masked_lm", {}).items():
        console.print(
            f"{label}: {facts['forwards']:,} masked-LM forwards ({facts['rows']:,} queries, "
            f"{facts['tokens']:,} tokens, {facts['padded']:,} with padding)",
            markup=False,
        )
    for label, facts in work.get("models", {}).items():
        if facts.get("kind") == "endpoint":
            _print_endpoint(console, label, facts)
        elif facts:
            cut = f"; {facts['truncated']:,} pairs cut" if facts["truncated"] else ""
            console.print(
                f"{label}: {facts['forwards']:,} {facts['kind']} forwards ({facts['rows']:,} rows, "
                f"{facts['tokens']:,} tokens, {facts['padded']:,} with padding){cut}",
                markup=False,
            )


def _print_endpoint(console: Console, label: str, facts: Mapping[str, Any]) -> None:
    """What a server was asked; nothing where all was known."""
    cost = f", cost {facts['cost']:.4f}" if facts.get("cost") is not None else ""
    floored = facts.get("floored", 0)
    unlisted = f"; {floored:,} answers not listed" if floored else ""
    console.print(
        f"{label}: {facts.get('requests', 0):,} requests ({facts.get('items', 0):,} prompts, "
        f"{facts.get('retries', 0):,} tries again, "
        f"{facts.get('cached', 0):,} answered before; {facts.get('prompt_tokens', 0):,} + "
        f"{facts.get('completion_tokens', 0):,} tokens{cost}){unlisted}",
        markup=False,
    )


def print_plan(console: Console, plan: Mapping[str, Any]) -> None:
    """Queries, tokens and expected time."""
    by_class = ", ".join(f"{name} {n:,}" for name, n in plan["slots_by_class"].items())
    console.print(
        f"{plan['pairs']:,} pairs, {plan['with_slots']:,} share a word; "
        f"{plan['slots']:,} slots ({by_class})"
    )
    if plan["dropped"]:
        console.print(f"dropped on reading: {_counts(plan['dropped'])}", markup=False)
    if plan["skipped_words"]:
        console.print(f"shared words that are no slot: {_counts(plan['skipped_words'])}")
    table = Table(title="Masked queries", title_justify="left")
    table.add_column("masked LM")
    for name in ("queries", "distinct", "in the store", "tokens to compute", "about"):
        table.add_column(name, justify="right")
    for row in plan["masked_lms"]:
        table.add_row(
            Text(row["mlm"]),
            f"{row['queries']:,}",
            f"{row['distinct']:,}",
            f"{row['cached']:,}",
            f"{row['tokens']:,}",
            _duration(row["seconds"]),
        )
    console.print(table)
    console.print(
        f"at {plan['rate_gflops']:.0f} GFLOP/s, measured here; tagging and the classifier come on "
        "top and depend on how many variants are found",
        style="dim",
    )


def print_comparison(
    console: Console, rows: Sequence[Comparison], old: str, new: str, metric: str
) -> None:
    """Differences, and the verdict on the chosen figure."""
    table = Table(
        title=f"{new} against {old}: {rows[0].seeds:,} seeds, {rows[0].premises:,} premises",
        title_justify="left",
    )
    for name in ("figure", "old", "new", "difference", "95 % interval", "smallest visible"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    table.add_column("verdict")
    for row in rows:
        table.add_row(
            row.metric,
            f"{row.old:.1f}",
            f"{row.new:.1f}",
            f"{row.difference.value:+.1f}",
            f"[{row.difference.low:+.1f}, {row.difference.high:+.1f}]".replace("[", "\\["),
            f"{row.smallest:.1f}",
            row.verdict,
            style="bold" if row.metric == metric else None,
        )
    console.print(table)
    chosen = next(row for row in rows if row.metric == metric)
    p = next((f"; McNemar on S: p = {row.p:.3f}" for row in rows if row.p is not None), "")
    console.print(
        f"{metric}: {chosen.verdict} ({chosen.difference.value:+.1f} points; with these seeds a "
        f"difference of {chosen.smallest:.1f} points is seen with 80 % power{p})"
    )


def print_ratings(console: Console, found: Any, grid: Sequence[int], paper: Any) -> None:
    """Good share, agreement, and the ceiling."""
    share = found.good
    console.print(
        f"{found.items:,} variants, {found.raters} raters: good (F + R >= 9) "
        f"{share.value:.1f} % \\[{share.low:.1f}, {share.high:.1f}]; mean F {found.fluency:.2f}, "
        f"mean R {found.relation:.2f}"
    )
    if found.kappa_fluency is not None:
        console.print(
            f"agreement (quadratic kappa): F {found.kappa_fluency:.2f}, "
            f"R {found.kappa_relation:.2f}"
        )
    told = ", ".join(f"{name} {value} %" for name, value in paper.items())
    console.print(f"the paper's good shares (its own sets): {told}", style="dim")
    table = Table(title="Ceiling of SV that these ratings imply, %", title_justify="left")
    table.add_column("CT", justify="right")
    table.add_column("ceiling", justify="right")
    for ct, value in zip(grid, found.ceiling, strict=True):
        table.add_row(str(ct), _figure(vars_of(value)))
    console.print(table)


def print_seed(
    console: Console, view: Any, refused: Iterable[Mapping[str, Any]], most: int
) -> None:
    """A seed, its variants with the changed word marked, and the rejected candidates."""
    pair = view.pair
    console.print(f"seed {pair.id}  gold: {pair.label}", markup=False, style="bold")
    console.print(f"  p: {pair.premise}", markup=False)
    console.print(f"  h: {pair.hypothesis}", markup=False)
    for model, label in view.seed_labels.items():
        mark = "right" if label == pair.label else "WRONG"
        console.print(f"  {model}: {label} ({mark})", markup=False)
    console.print(f"{len(view.variants)} variants", style="bold")
    for row in view.variants:
        said = ", ".join(
            f"{model}: {label}{'' if label == pair.label else ' (WRONG)'}"
            for model, label in row["labels"].items()
        )
        risk = f"  risk: {row['label_risk']}" if row["label_risk"] else ""
        console.print(
            f"  #{row['variant']} {row['word']} → {row['replacement']} ({row['pos']}, "
            f"+{row['gain']:.2f} nats, {', '.join(row['sources'])}){risk}  {said or 'not drawn'}",
            markup=False,
        )
        console.print(f"     p: {row['premise']}\n     h: {row['hypothesis']}", markup=False)
    rows = list(refused)
    if rows:
        console.print("rejected", style="bold")
    for row in rows:
        words = row["candidates"]
        shown = " ".join(words[:most]) + (
            f" … and {len(words) - most}" if len(words) > most else ""
        )
        console.print(
            f"  {row['word']} ({row['pos']}, {row['mlm']}) {row['fate']}: {len(words)}: {shown}"
            if words
            else f"  {row['word']} ({row['pos']}, {row['mlm']}) {row['fate']}",
            markup=False,
        )


def print_words(
    console: Console, found: Mapping[str, Mapping[str, Any]], top: int, least: int
) -> None:
    """The words that each model fails on, the surest first."""
    for model, each in found.items():
        whole = each["all"]
        if whole is None:
            console.print(
                f"{model}: no seed is labelled rightly, so none can be lost", markup=False
            )
            continue
        console.print(
            f"{model}: {_figure(whole['lost'])} % of the variants of rightly labelled seeds are "
            f"wrong ({whole['wrong']:,} of {whole['variants']:,}, {whole['premises']:,} premises)"
        )
        for side, title in (("in", "put in"), ("out", "taken out")):
            lost = [one for one in each[side] if one["example"]]
            rarer = each["rarer"][side]
            more = f"; {rarer:,} with fewer (--least)" if rarer else ""
            if not lost:
                console.print(
                    f"no word {title} of at least {least} premises makes a variant wrong{more}"
                )
                continue
            rest = len(lost) - top
            table = Table(
                title=f"Words {title}, by the lower end of the interval (95 %, over premises)"
                + (f"; {rest:,} more with --top" if rest > 0 else "")
                + more,
                title_justify="left",
            )
            table.add_column("word", overflow="fold")
            table.add_column("class")
            for name in ("premises", "variants", "wrong, %"):
                table.add_column(name, justify="right")
            table.add_column("taken for")
            table.add_column("for example", overflow="fold")
            for one in lost[:top]:
                table.add_row(
                    Text(one["word"]),
                    one["pos"],
                    f"{one['premises']:,}",
                    f"{one['variants']:,}",
                    _figure(one["lost"]),
                    one["taken_for"],
                    Text(one["example"]),
                )
            console.print(table)


def vars_of(interval: Any) -> dict[str, float]:
    """An interval as it stands in `metrics.json`."""
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def _overview(rows: Mapping[str, Any], draw: Mapping[str, int]) -> Table:
    table = Table(
        title=f"S, SV and MC in % with 95 % intervals (n = {draw['n']} variants, "
        f"{draw['draws']} draws, seed {draw['seed']})",
        title_justify="left",
    )
    table.add_column("model", overflow="fold")
    for name in ("seeds", "S", *(f"SV{ct}" for ct in _SHOWN), "MC", "variants right"):
        table.add_column(name, justify="right")
    for model, scored in rows.items():
        one = scored["all"]["all"]
        table.add_row(
            Text(model),
            f"{one['seeds']:,}",
            _figure(one["seed_accuracy"]),
            *(_figure(one["sv"][ct // 5 - 1]) for ct in _SHOWN),
            _matching(one["matching"]),
            _figure(one["variant_accuracy"]),
        )
    return table


def _curve(
    model: str, one: Mapping[str, Any], grid: Sequence[int], ratings: Mapping[str, Any] | None
) -> Table:
    table = Table(
        title=f"{model}: SV by threshold, {one['seeds']:,} seeds of {one['premises']:,} premises, "
        f"n = {one['n']}; S = {_plain_figure(one['seed_accuracy'])}",
        title_justify="left",
    )
    table.add_column("CT", justify="right")
    names = ["SV", "± draws", "agreement", "SV | seed right", "SV | seed wrong"]
    for name in [*names, *(["ceiling"] if ratings else [])]:
        table.add_column(name, justify="right")
    best = set(one["matching"]["all"])
    for row, ct in enumerate(grid):
        cells = [
            _figure(one["sv"][row]),
            f"{one['spread'][row]:.1f}",
            _figure(one["agreement"][row]),
            f"{one['sv_right'][row]:.1f}" if one["sv_right"] else "-",
            f"{one['sv_wrong'][row]:.1f}" if one["sv_wrong"] else "-",
        ]
        if ratings:
            cells.append(_figure(ratings["ceiling"][row]))
        mark = " ← MC" if ct in best else ""
        table.add_row(f"{ct}{mark}", *cells, style="bold" if ct in best else None)
    return table


def _groups(
    model: str, title: str, groups: Mapping[str, Any], baselines: Mapping[str, Any], kind: str
) -> Table:
    table = Table(title=f"{model}: {title}", title_justify="left")
    table.add_column("group", overflow="fold")
    for name in ("seeds", "S", *(f"SV{ct}" for ct in _SHOWN), "MC", "always neutral"):
        table.add_column(name, justify="right")
    for name, one in groups.items():
        neutral = baselines["always neutral"].get(kind, {}).get(name)
        table.add_row(
            Text(name),
            f"{one['seeds']:,}",
            _figure(one["seed_accuracy"]),
            *(_figure(one["sv"][ct // 5 - 1]) for ct in _SHOWN),
            _matching(one["matching"]),
            "-" if neutral is None else f"{neutral['seed_accuracy']['value']:.1f}",
        )
    return table


def _figure(interval: Mapping[str, float]) -> str:
    # The bracket is escaped, as rich would read it as markup.
    return f"{interval['value']:.1f} \\[{interval['low']:.1f}, {interval['high']:.1f}]"


def _plain_figure(interval: Mapping[str, float]) -> str:
    return f"{interval['value']:.1f} ({interval['low']:.1f} to {interval['high']:.1f})"


def _matching(found: Mapping[str, Any]) -> str:
    if found["point"] is None:
        return "none (S = 0)"
    several = f" of {len(found['all'])}" if len(found["all"]) > 1 else ""
    return f"{found['point']}{several} \\[{found['low']:.0f}, {found['high']:.0f}]"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
