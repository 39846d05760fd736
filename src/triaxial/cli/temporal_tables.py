"""Tables of the time axis for a terminal, from the plain values of a summary alone; 120 columns.

Source: Lazaridou et al. 2021; its figures stand in dim rows marked "paper".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "print_change",
    "print_claims",
    "print_curves",
    "print_drift",
    "print_emerging",
    "print_overview",
    "print_remedies",
    "print_slices",
    "print_summary",
    "print_terms",
    "print_tokenizer",
]

_DASH = "-"
_TOP = 12  # words named in a table; the summary has more


def print_summary(console: Console, summary: Mapping[str, Any]) -> None:
    """Everything that was measured, the claims last."""
    for name, run in summary["runs"].items():
        if not run["valid"]:
            console.print(
                f"WARNING: {name}: {run['unknown']:,} unknown pieces; its perplexity is not valid",
                style="bold",
                markup=False,
            )
    print_overview(console, summary)
    print_curves(console, summary)
    for kind in ("tags", "topics"):
        print_slices(console, summary, kind)
    print_emerging(console, summary)
    print_tokenizer(console, summary)
    print_change(console, summary)
    print_terms(console, summary)
    print_drift(console, summary)
    print_remedies(console, summary)
    print_claims(console, summary["claims"])


def print_overview(console: Console, summary: Mapping[str, Any]) -> None:
    """Each run on the whole test: perplexity, bits per byte, increase and slope; the paper's."""
    first, last = summary["months"]
    table = _table(
        f"{summary['documents']:,} documents, {summary['words']:,} words, {first} to {last}",
        "run", "perplexity", "bits/byte", "pieces/word", "Δ", "Δ %", "slope, %/month",
    )  # fmt: skip
    for name, run in summary["runs"].items():
        found = summary["curves"].get(name)
        whole = found["overall"] if found and found["control_kind"] == "control" else None
        mark = "" if not found or whole else "†"
        table.add_row(
            Text(name + mark),
            _figure(run["perplexity"], ".2f"),
            _number(run["bits_per_byte"]["value"], ".4f"),
            _number(run["pieces_per_word"], ".2f"),
            _number(whole["delta"]["value"], "+.2f") if whole else _DASH,
            _figure(whole["percent"], "+.2f") if whole else _DASH,
            _slope(found["slope"]) if found else _DASH,
        )
    for row in summary["paper"]:
        if row["figure"] == "perplexity" and row["corpus"] == "WMT":
            table.add_row(f"paper, {row['note']}", _number(row["value"], ".2f"), style="dim")
    console.print(table)
    console.print(
        "Δ: perplexity a word over the control's; slope of 100 log(ratio), t-interval over bins, "
        "* p < .05; † trend against a unigram control refit per month, not a CONTROL model; paper: "
        "its own models, WMT",
        style="dim",
        markup=False,
    )


def print_curves(console: Console, summary: Mapping[str, Any]) -> None:
    """Increase over the control bin by bin, slopes, and differences between runs."""
    curves = summary["curves"]
    for names in _in_groups(list(curves), 3):
        table = _table(
            f"Increase over the control, % by {summary['bin']}", "bin", "documents", "words", *names
        )
        for b, row in enumerate(curves[names[0]]["bins"]):
            cells = [_figure(curves[n]["bins"][b]["increase"], "+.2f") for n in names]
            table.add_row(row["bin"], f"{row['documents']:,}", f"{row['words']:,}", *cells)
        table.add_section()
        table.add_row("slope", "", "", *(_slope(curves[n]["slope"]) for n in names))
        spread = [(curves[n]["slope"] or {}).get("documents") for n in names]
        table.add_row("  by documents", "", "", *(_figure(s, "+.3f") for s in spread))
        matched = [curves[n]["matched"] for n in names]
        if any(matched):
            table.add_row(
                "  venues matched", "", "", *(_slope((m or {}).get("slope")) for m in matched)
            )
        console.print(table)
    if summary["differences"]:
        table = _table(
            "Runs against each other", "kind", "new - base", "Δ %", "slope, %/month", "p"
        )
        for row in summary["differences"]:
            found = row["slope"]
            table.add_row(
                row["kind"],
                Text(f"{row['new']} - {row['base']}"),
                _figure(row["overall"]["percent"], "+.2f"),
                _slope(found),
                _number(found["p"], ".3f") if found else _DASH,
            )
        console.print(table)


def print_slices(console: Console, summary: Mapping[str, Any], kind: str) -> None:
    """Increase and slope by part of speech (`tags`) or topic (`topics`), the stalest first."""
    if not summary[kind]:
        return
    for name in summary["curves"]:
        table = _table(
            f"{name} by {'part of speech' if kind == 'tags' else 'topic'}",
            "cell", "n", "share %", "perplexity", "Δ %", "slope, %/month",
        )  # fmt: skip
        rows = summary[kind]["rows"]
        for row in sorted(rows, key=lambda r: -(r["runs"][name]["increase"]["value"] or 0)):
            found = row["runs"][name]
            label = f"{row['cell']} {' '.join(row.get('top', [])[:5])}".strip()
            table.add_row(
                Text(label),
                f"{row['n']:,}",
                _number(None if row["share"] is None else 100 * row["share"], ".1f"),
                _number(row["perplexity"][name]["value"], ",.2f"),
                _figure(found["increase"], "+.2f"),
                _slope(found["slope"]),
            )
        for label, found in summary[kind].get("contrasts", {}).get(name, {}).items():
            if found:
                level = _figure(found["level"], "+.2f")
                table.add_row(
                    Text(label, style="italic"), "", "", "", level, _slope(found["slope"])
                )
        console.print(table)


def print_emerging(console: Console, summary: Mapping[str, Any]) -> None:
    """Emerging words, and first against second occurrences."""
    found, runs = summary["emerging"], list(summary["runs"])
    if found:
        table = _table(
            f"{found['words']:,} emerging words, {found['mentions']:,} mentions (at least "
            f"{found['least']}; unseen in training or {found['ratio']:g} times rarer): perplexity",
            "words", "n", *found["cells"][0]["perplexity"],
        )  # fmt: skip
        for row in found["cells"]:
            cells = (_figure(value, ",.2f") for value in row["perplexity"].values())
            table.add_row(row["cell"], f"{row['n']:,}", *cells)
        table.add_section()
        for word in found["top"][:_TOP]:
            cells = (_number(value, ",.1f") for value in word["perplexity"].values())
            label = f"  {word['text']} ({word['month']}{', unseen' if word['unseen'] else ''})"
            table.add_row(Text(label), f"{word['mentions']:,}", *cells)
        table.add_row(
            Text("  paper"), "87,636", "109.73 static, 66.26 dynamic evaluation", style="dim"
        )
        console.print(table)
    table = _table("Perplexity of occurrences in a document", "words", "occurrence", *runs)
    for kind in ("all", "emerging"):
        rows = summary["occurrences"][kind]
        for n, row in enumerate(rows[runs[0]] if rows else ()):
            table.add_row(
                kind, row["cell"], *(_figure(rows[r][n]["perplexity"], ",.2f") for r in runs)
            )
    for note in ("static", "dynamic evaluation"):
        values = [
            row["value"] for row in summary["paper"] if row["note"] == f"{note}; of emerging words"
        ]
        told = " / ".join(f"{value:,.2f}" for value in values)
        table.add_row("paper", f"{note}: {told}", style="dim")
    console.print(table)


def print_tokenizer(console: Console, summary: Mapping[str, Any]) -> None:
    """How finely two tokenizers cut, and what the words cut differently cost."""
    for found in summary["tokenizer"]:
        old, new = found["old"], found["new"]
        per_word = found["pieces_per_word"]
        table = _table(
            f"Tokenizers: {old} {per_word[old]['value']:.3f} pieces a word, "
            f"{new} {per_word[new]['value']:.3f}",
            f"words that {old} cuts", "n", "share %", f"perplexity {old}", f"perplexity {new}",
        )  # fmt: skip
        for row in found["cells"]:
            table.add_row(
                "alike" if row["cell"] == "alike" else f"into {row['cell']}",
                f"{row['n']:,}",
                f"{100 * row['share']:.2f}",
                *(_figure(row["perplexity"][name], ",.2f") for name in (old, new)),
            )
        console.print(table)


def print_change(console: Console, summary: Mapping[str, Any]) -> None:
    """The parts of each increase, which add up."""
    for name, found in summary["change"].items():
        table = _table(
            f"Parts of the increase of {name}, 100 · nats a word; they add up",
            "part", "level", f"first to last {summary['bin']}", "slope, per month",
        )  # fmt: skip
        for part, values in found["parts"].items():
            if values is None:
                table.add_row(Text(part), "not measured", style="dim")
                continue
            moved = [row for row in values["change"] if row["value"] is not None]
            table.add_row(
                Text(part, style="bold" if part == "all" else ""),
                _figure(values["level"], "+.2f"),
                _figure(moved[-1], "+.2f"),
                _slope(values["slope"]),
            )
        console.print(table)


def print_terms(console: Console, summary: Mapping[str, Any]) -> None:
    """Mentions of chosen terms per million words."""
    terms = summary["terms"]
    for some in _in_groups(terms or [], 8):
        table = _table("Mentions per million words", "bin", *(row["term"] for row in some))
        for b, first in enumerate(some[0]["bins"]):
            cells = (_number(row["bins"][b]["per_million"], ",.1f") for row in some)
            table.add_row(first["bin"], *cells)
        console.print(table)


def print_drift(console: Console, summary: Mapping[str, Any]) -> None:
    """The drift report of each run."""
    unit = summary["bin"]
    table = _table(
        "Drift", "run", "drifts", "slope, %/month", "+5 % after, months", "kink, month", "alarm"
    )
    for name, found in summary["drift"].items():
        bend, alarm = found["kink"], found["alarm"]
        shown = _DASH if not bend else "none" if not bend["supported"] else _figure(bend, ".1f")
        table.add_row(
            Text(name),
            found["drifts"],
            _slope(found["slope"]),
            _figure(found["rise"], ".1f", missing="∞"),
            shown,
            _DASH if alarm is None else alarm["alarm"] or "none",
        )
    console.print(table)
    rules = [d["alarm"] for d in summary["drift"].values() if d["alarm"]]
    if rules:
        console.print(
            f"alarm: CUSUM after {rules[0]['reference']} {unit}s of reference, false alarms "
            f"{100 * rules[0]['false_alarms']:g} % over {rules[0]['horizon']} {unit}s; kink: shown "
            "where p < .05; months count from the cut-off, or from the first month",
            style="dim",
            markup=False,
        )


def print_remedies(console: Console, summary: Mapping[str, Any]) -> None:
    """The cheapest time between retrainings, with and without adapting."""
    if not summary["remedies"]:
        return
    table = _table(
        "Retrain or adapt: cost a month at the cheapest interval",
        "run", "retrain every, months", "cost", "with adapting, months", "cost", "cheaper",
    )  # fmt: skip
    for name, found in summary["remedies"].items():
        cells: list[str] = []
        for remedy in ("retrain", "adapt"):
            best = found["best"].get(remedy)
            cells += [str(best["months"]), f"{best['cost']:,.2f}"] if best else [_DASH, _DASH]
        table.add_row(Text(name), *cells, found["best"]["remedy"])
    console.print(table)


def print_claims(console: Console, claims: Sequence[Mapping[str, Any]]) -> None:
    """The paper's claims with their answers and what decided."""
    table = _table("The paper's claims", "claim", "answer", "difference", "unit", "n", "decided by")
    for row in claims:
        found = {"value": row["difference"], "low": row["low"], "high": row["high"]}
        table.add_row(
            Text(row["text"]),
            Text(row["answer"], style="bold"),
            _figure(found, "+.2f"),
            row["unit"] or _DASH,
            _DASH if row["n"] is None else f"{row['n']:,}",
            Text(row["decided_by"] or _DASH),
        )
    console.print(table)


def _table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    table = Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        min_width=min(len(title), 100),
    )
    for n, name in enumerate(columns):
        words = n == 0 or name in ("new - base", "unit", "decided by", "occurrence", "answer")
        table.add_column(Text(name), justify="left" if words else "right", overflow="fold")
    return table


def _figure(found: Mapping[str, Any] | None, form: str, missing: str = _DASH) -> str:
    if found is None or found["value"] is None:
        return missing
    if found["low"] is None and found["high"] is None:
        return format(found["value"], form)
    # The bracket is escaped, as rich would read it as markup.
    low, high = (_number(found[end], form, missing) for end in ("low", "high"))
    return f"{found['value']:{form}} \\[{low}, {high}]"


def _slope(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return _DASH
    return _figure(found, "+.3f") + ("*" if found["p"] < 0.05 else "")


def _number(value: float | None, form: str, missing: str = _DASH) -> str:
    return missing if value is None else format(value, form)


def _in_groups(items: list[Any], size: int) -> list[list[Any]]:
    return [items[n : n + size] for n in range(0, len(items), size)]
