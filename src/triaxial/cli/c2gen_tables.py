"""Tables of C2Gen for a terminal, from the plain values of a summary alone; 120 columns are enough.

Source: Fu and Frank, TACL 12, 2024; its figures stand in dim rows marked "paper".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "print_analysis",
    "print_claims",
    "print_comparisons",
    "print_overview",
    "print_quadrants",
    "print_summary",
    "print_types",
]

_TYPES = tuple(str(n) for n in range(1, 10))
_FUNCTIONS = ("f_ve", "f_vn", "f_vc")
_COSTS = {"steps": "steps", "tokens_per_second": "tok/s", "seconds": "s", "peak_mib": "MiB"}
_SURE = 0.05
_DERIVED = "†"


def print_summary(
    console: Console, summary: Mapping[str, Any], claims: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Everything: overview, comparisons, types, quadrants, and the claims where given."""
    for left in summary["incomplete"]:
        console.print(
            f"WARNING: left out: {left['stream']} {left['strategy']}, test type "
            f"{left['test_type']}, seed {left['seed']}: stages {left['there']} of {left['stages']}",
            style="bold",
            markup=False,
        )
    print_overview(console, summary)
    print_comparisons(console, summary)
    print_types(console, summary)
    print_quadrants(console, summary)
    if claims:
        print_claims(console, claims)


def print_overview(console: Console, summary: Mapping[str, Any]) -> None:
    """The main table: the held-out types after the last stage, baselines and the paper's figures.

    `costs`, where the summary has them: by stream and strategy `steps`, `tokens_per_second`,
    `seconds` and `peak_mib`; what is missing is a dash.
    """
    costs = summary.get("costs")
    target = "" if summary["target"] == "paper" else ", sound labels"
    table = _table(f"Held-out types after the last stage, % with 95 % intervals{target}")
    table.add_column("run", overflow="fold")
    names = ("V", "N", "V+N", "CI", "oracle", "fgt V", "fgt N", "fgt CI", "Δ none")
    for name in (*names, *(_COSTS.values() if costs else ())):
        table.add_column(name, justify="right")
    gains = {
        (row["new"]["stream"], row["new"]["strategy"]): row
        for row in summary["comparisons"]
        if row["kind"] == "remedy" and row["metric"] == "CI"
    }
    for stream, runs in summary["streams"].items():
        first = next(iter(runs.values()))
        table.add_row(Text(stream, style="bold"), end_section=False)
        for strategy, run in runs.items():
            spent = (costs or {}).get(stream, {}).get(strategy, {})
            table.add_row(
                Text(f"  {strategy}"),
                *_scores(run),
                *(_forgotten(run, metric) for metric in ("V", "N", "CI")),
                _gain(gains.get((stream, strategy))),
                *(_cost(spent.get(name)) for name in _COSTS if costs),
            )
        for name, figure in (summary["baselines"][stream]["test"] or {}).items():
            shown = f"  {name}" + (f" ({figure['label'][0]})" if "label" in figure else "")
            table.add_row(Text(shown), "", "", "", _number(figure["value"]), style="italic")
        for cells in _printed(summary["paper"], stream):
            table.add_row(*cells, style="dim")
        table.add_row(Text(f"  n {_rows(first):,}", style="dim"), end_section=True)
    console.print(table)
    console.print(
        f"V+N: both right; oracle: the rule on the model's own V and N; fgt: (S1 - last) / S1; "
        f"Δ none: CI less that without a strategy, * where p < {_SURE} (Holm); "
        f"{_DERIVED} derived from the paper's figures; paper rows: its own models and data",
        style="dim",
        markup=False,
    )


def print_comparisons(console: Console, summary: Mapping[str, Any]) -> None:
    """Paired differences of CI with interval, p and McNemar's test."""
    rows = [row for row in summary["comparisons"] if row["metric"] == "CI"]
    if not rows:
        return
    table = _table("CI on the same items: new less base, points")
    for name in ("kind", "new", "base"):
        table.add_column(name, overflow="fold")
    for name in ("difference", "p (Holm)", "McNemar p", "n"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["kind"],
            *(Text(f"{row[side]['stream']} {row[side]['strategy']}") for side in ("new", "base")),
            _figure(row["difference"], sign="+"),
            _p(row["p_holm"]),
            f"{row['mcnemar']['p']:.3f}",
            f"{row['difference']['n']:,}",
        )
    console.print(table)


def print_types(console: Console, summary: Mapping[str, Any], part: str = "test") -> None:
    """CI by type and function after each stage.

    Args:
        console: Where to.
        summary: The summary.
        part: `test`, `probe` or `unseen`.
    """
    table = _table(f"CI by type and function after each stage, part {part}, %")
    table.add_column("run", overflow="fold")
    for name in ("after", *_TYPES, *_FUNCTIONS):
        table.add_column(name, justify="right")
    for name, run in _runs(summary):
        for stage, parts in run["after"].items():
            scored = parts[part]
            if scored is None:
                continue
            kinds = [("types", _TYPES), ("functions", _FUNCTIONS)]
            cells = [
                _number(scored[kind][key]["CI"]["value"] if key in scored[kind] else None)
                for kind, keys in kinds
                for key in keys
            ]
            table.add_row(Text(name if stage == "1" else ""), f"S{stage}", *cells)
    told = {row["metric"]: row["value"] for row in summary["paper"] if row["stream"] == "cgen"}
    if part == "test":
        cells = [_number(told.get(f"CI {name}")) for name in _FUNCTIONS]
        table.add_row("paper: cgen none", "", *[""] * len(_TYPES), *cells, style="dim")
    if table.row_count:
        console.print(table)


def print_quadrants(console: Console, summary: Mapping[str, Any], part: str = "test") -> None:
    """Rows by whether the primitives (P) and the composition (CI) are right, after the last stage.

    Args:
        console: Where to.
        summary: The summary.
        part: `test`, `probe` or `unseen`.
    """
    table = _table(f"Primitives (P: V and N both right) against CI, part {part}, rows")
    table.add_column("run", overflow="fold")
    names = ("P+ CI+", "P+ CI-", "P- CI+", "P- CI-")
    for name in (*names, "CI+ of P+ %", "CI+ of P- %"):
        table.add_column(name, justify="right")
    for name, run in _runs(summary):
        scored = run["after"][str(run["stages"])][part]
        if scored is None:
            continue
        counts = [scored["quadrants"]["all"][key] for key in names]
        shares = [_share(*counts[:2]), _share(*counts[2:])]
        table.add_row(Text(name), *(f"{n:,}" for n in counts), *(_number(s) for s in shares))
    if table.row_count:
        console.print(table)


def print_claims(console: Console, claims: Sequence[Mapping[str, Any]]) -> None:
    """The paper's claims and what this run says of them."""
    table = _table("Claims of the paper, tested on this run (CI, points)")
    table.add_column("claim", ratio=3)
    table.add_column("here", min_width=9)
    table.add_column("difference", justify="right", min_width=18)
    table.add_column("n", justify="right", min_width=6)
    table.add_column("decided by", overflow="fold", ratio=2)
    for claim in claims:
        tests = len(claim["tests"])
        by = claim["decided_by"] or "-"
        table.add_row(
            claim["text"],
            claim["answer"],
            _figure({**claim, "value": claim["difference"]}, sign="+"),
            "-" if claim["n"] is None else f"{claim['n']:,}",
            Text(f"{by} (of {tests} tests)" if tests > 1 else by),
        )
    console.print(table)


def print_analysis(console: Console, found: Mapping[str, Any]) -> None:
    """Tables of `orders`, `representations`, `pseudo` and `sweep`, of those that are there."""
    if "orders" in found:
        console.print(_orders(found["orders"]))
    if "representations" in found:
        console.print(_representations(found["representations"]))
    if "pseudo" in found:
        console.print(_pseudo(found["pseudo"]))
    if "sweep" in found:
        console.print(_sweep(found["sweep"], found.get("setting", "setting")))


def _orders(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("Orders of learning: held-out types after the last stage, no strategy")
    table.add_column("stream", overflow="fold")
    for name in ("V+N", "CI", *_FUNCTIONS, "less CGen", "less reverse order", "paper"):
        table.add_column(name, justify="right")
    for row in rows:
        functions = [row["functions"].get(name) for name in _FUNCTIONS]
        table.add_row(
            Text(row["stream"]),
            _number(row["V+N"]["value"]),
            _figure(row["CI"]),
            *("-" if f is None else _number(f["value"]) for f in functions),
            *("-" if (d := row[k]) is None else _figure(d, "+") for k in ("offline", "reverse")),
            _number(row["paper"]),
        )
    return table


def _representations(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("Representations: mean silhouette of the types, -1 to 1")
    table.add_column("run", overflow="fold")
    for name in ("seed", "after", "vectors", "in the space", "on the plane"):
        table.add_column(name, justify="right")
    table.add_column("least apart", overflow="fold")
    for row in rows:
        widths = row["silhouette"]["space"]
        worst = min((name for name in widths if name != "all"), key=widths.__getitem__)
        table.add_row(
            Text(f"{row['stream']} {row['strategy']}"),
            f"{row['seed']}",
            f"S{row['stage']}",
            f"{len(row['labels']):,}",
            f"{widths['all']:+.2f}",
            f"{row['silhouette']['plane']['all']:+.2f} ({row['method']})",
            Text(f"{worst} ({widths[worst]:+.2f})"),
        )
    return table


def _pseudo(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("Invented words against real ones, on the same items, %")
    table.add_column("run", overflow="fold")
    table.add_column("figure")
    for name in ("real", "pseudo", "difference", "p (Holm)", "n"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            Text(f"{row['new']['stream']} {row['new']['strategy']}"),
            row["metric"],
            _number(row["base_value"]),
            _number(row["new_value"]),
            _figure(row["difference"], "+"),
            _p(row["p_holm"]),
            f"{row['difference']['n']:,}",
        )
    return table


def _sweep(rows: Sequence[Mapping[str, Any]], setting: str) -> Table:
    table = _table(f"Runs by {setting}: held-out types after the last stage, %")
    for name in ("setting", "run"):
        table.add_column(name, overflow="fold")
    for name in ("V", "N", "V+N", "CI", "fgt CI", "CI less the first", "p (Holm)"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            Text(str(row["setting"])),
            Text(f"{row['stream']} {row['strategy']}"),
            *(_number(row[name]["value"]) for name in ("V", "N", "V+N")),
            _figure(row["CI"]),
            _number(row["forgetting"] and row["forgetting"]["forget"]["CI"]["value"]),
            "-" if row["difference"] is None else _figure(row["difference"], "+"),
            _p(row["p_holm"]),
        )
    return table


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)


def _runs(summary: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for stream, runs in summary["streams"].items():
        for strategy, run in runs.items():
            yield f"{stream} {strategy}", run


def _scores(run: Mapping[str, Any]) -> list[str]:
    scored = run["after"][str(run["stages"])]["test"]
    if scored is None:
        return ["-"] * 5
    plain = [_number(scored[name]["value"]) for name in ("V", "N", "V+N", "oracle")]
    return [*plain[:3], _figure(scored["CI"]), plain[3]]


def _rows(run: Mapping[str, Any]) -> int:
    scored = run["after"][str(run["stages"])]["test"]
    return 0 if scored is None else int(scored["CI"]["n"])


def _forgotten(run: Mapping[str, Any], metric: str) -> str:
    found = run["forgetting"]["test"]
    return "-" if found is None else _number(found["forget"][metric]["value"])


def _gain(row: Mapping[str, Any] | None) -> str:
    if row is None or row["difference"]["value"] is None:
        return "-"
    sure = row["p_holm"] is not None and row["p_holm"] < _SURE
    return f"{row['difference']['value']:+.1f}{'*' if sure else ''}"


def _printed(paper: Sequence[Mapping[str, Any]], stream: str) -> Iterator[list[str | Text]]:
    """Cells of the paper's rows of a stream: one a strategy and model."""
    wanted = (stream, f"*/{stream.rpartition('/')[2]}")
    told: dict[tuple[str, str], dict[str, str]] = {}
    for row in paper:
        if row["stream"] in wanted:
            cell = f"{row['value']:.1f}{_DERIVED if row['derived'] else ''}"
            told.setdefault((row["strategy"], row["model"]), {})[row["metric"]] = cell
    for (strategy, model), cells in told.items():
        other = "" if model.startswith("RoBERTa") else f" ({model.split('-')[0]})"
        name = Text(f"  paper {strategy}{other}")
        columns = ("V", "N", "V+N", "CI", "", "forget V", "forget N", "forget CI")
        yield [name, *(cells.get(column, "") for column in columns)]


def _figure(figure: Mapping[str, Any], sign: str = "") -> str:
    if figure["value"] is None:
        return "-"
    if figure["low"] is None:
        return f"{figure['value']:{sign}.1f}"
    # The bracket is escaped, as rich would read it as markup.
    low, high = (f"{figure[end]:{sign}.1f}" for end in ("low", "high"))
    return f"{figure['value']:{sign}.1f} \\[{low}, {high}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _cost(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _share(right: int, wrong: int) -> float | None:
    return 100 * right / (right + wrong) if right + wrong else None
