"""What the commands of `triax temporal` print beside the summary: corpora, splits, perplexities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from triaxial.temporal.perplexity import Perplexity
    from triaxial.temporal.splits import PartCount

__all__ = ["print_choice", "print_corpus", "print_perplexity", "print_splits"]


def print_corpus(console: Console, facts: Mapping[str, Any]) -> None:
    """What a corpus holds, and what was left out."""
    first, last = facts["months"]
    console.print(
        f"{facts['documents']:,} documents, {facts['words']:,} words, {first} to {last}",
        markup=False,
    )
    for name in ("dropped", "flagged"):
        if facts[name]:
            told = ", ".join(f"{count:,} {reason}" for reason, count in facts[name].items())
            console.print(f"{name}: {told}", markup=False, soft_wrap=True)


def print_splits(console: Console, counts: Sequence[PartCount], empty: Sequence[str]) -> None:
    """Documents and words of every part, and the test by bin."""
    from rich.table import Table

    table = Table("split", "part", box=None, header_style="bold")
    for name in ("from", "to", "documents", "words"):
        table.add_column(name, justify="right")
    for split, part in dict.fromkeys((row.split, row.part) for row in counts):
        mine = [row for row in counts if (row.split, row.part) == (split, part)]
        held = [row for row in mine if row.documents]
        table.add_row(
            split,
            part,
            held[0].bin if held else "-",
            held[-1].bin if held else "-",
            f"{sum(row.documents for row in mine):,}",
            f"{sum(row.words for row in mine):,}",
        )
    console.print(table)
    test = [row for row in counts if row.part == "test" and row.split == counts[0].split]
    least, most = (f(row.documents for row in test) for f in (min, max))
    console.print(f"test documents of a bin: {least:,} to {most:,}", markup=False)
    if empty:
        console.print(f"without test documents: {', '.join(empty)}", markup=False)


def print_perplexity(console: Console, rows: Sequence[Perplexity]) -> None:
    """Perplexity a word and bits a byte, each with its interval, by bin."""
    from rich.table import Table

    table = Table("bin", box=None, header_style="bold")
    for name in ("documents", "words", "perplexity", "bits/byte"):
        table.add_column(name, justify="right")
    for row in rows:
        word, byte = row.per_word, row.bits_per_byte
        table.add_row(
            row.bin,
            f"{row.documents:,}",
            f"{row.words:,}",
            f"{word.value:,.2f} \\[{word.low:,.2f}, {word.high:,.2f}]",
            f"{byte.value:.4f} \\[{byte.low:.4f}, {byte.high:.4f}]",
        )
    console.print(table)
    if not all(row.valid for row in rows):
        unknown = sum(row.unknown for row in rows if row.bin != "all")
        console.print(
            f"WARNING: {unknown:,} unknown pieces; the perplexity is not valid", style="bold"
        )


def print_choice(console: Console, name: str, facts: Mapping[str, Any]) -> None:
    """The settings that were tried on validation documents, and the cost."""
    found, cost = facts["settings"], facts["cost"]
    tried = facts["choice"]["tried"]
    for row in tried:
        chosen = (row["learning_rate"], row["decay"]) == (found["learning_rate"], found["decay"])
        value = "diverged" if row["per_word"] is None else f"{row['per_word']:.3f}"
        console.print(
            f"{'→' if chosen else ' '} {name}: learning rate {row['learning_rate']:g}, decay "
            f"{row['decay']:g}: perplexity {value} on validation documents",
            markup=False,
            style=None if chosen else "dim",
        )
    if facts["choice"]["edge"]:
        console.print(f"{name}: the best is at the edge; try more", style="bold", markup=False)
    if tried and not found["learning_rate"]:
        console.print(f"{name}: nothing is better than static", style="bold", markup=False)
    rate = cost["pieces_per_second"]
    console.print(
        f"{name}: {cost['updates']:,} updates of {cost['weights']:,} weights, "
        f"{cost['seconds']:.1f} s{f', {rate:,.0f} pieces/s' if rate else ''}, "
        f"{cost['flops'] / 1e9:,.1f} GFLOP at least",
        markup=False,
    )
