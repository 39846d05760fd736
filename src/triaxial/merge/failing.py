"""The words that a model fails on: which word, put in or taken out, makes right answers wrong.

Only seeds that the model labels rightly count: what it gets wrong anyway tells nothing of a word.
A variant is *lost* when it is wrong although its seed is right; the share of a word's variants that
are lost is compared with the share of all.

Choice: all of it; the paper counts by word class. The interval is Wilson's with as many units as
there are premises, since variants of one premise are no independent trials, and words are ranked by
its lower end: first those of which it is surest that they fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from triaxial.nli import Pair
from triaxial.stats import Interval, wilson

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FailingWord", "all_words", "failing_words"]

Side = Literal["in", "out"]


@dataclass(frozen=True, slots=True)
class FailingWord:
    """What becomes of the variants that put one word in, or take it out.

    Args:
        word: Lower case.
        pos: Word class.
        premises: Distinct premises among its seeds: the units of the interval.
        variants: Distinct variants that were asked.
        lost: Share of them that is wrong although the seed is right, percent.
        taken_for: The label that most of the lost ones get; empty where none is lost.
        example: A lost variant, "seed#number"; empty where none is lost.
    """

    word: str
    pos: str
    premises: int
    variants: int
    lost: Interval
    taken_for: str
    example: str

    def plain(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def failing_words(
    pairs: Sequence[Pair],
    replacements: pl.DataFrame,
    predictions: pl.DataFrame,
    model: str,
    side: Side,
    *,
    least: int = 3,
) -> list[FailingWord]:
    """Words by how surely the model fails on them.

    Args:
        pairs: The seeds.
        replacements: Table of `merge.filters.Replacement`.
        predictions: Of a run: model, seed, variant (-1 for the seed itself), label.
        model: Which of them.
        side: Words put `in` for others, or taken `out`.
        least: Premises that a word must have.
    """
    import polars as pl

    column = "replacement" if side == "in" else "word"
    words = replacements.select(
        "seed",
        pl.col("variant").cast(pl.Int32),
        "pos",
        pl.col(column).str.to_lowercase().alias("shown"),
    )
    judged = _of_right_seeds(pairs, predictions, model).join(words, on=["seed", "variant"])
    wrong = ~pl.col("right")
    grouped = (
        judged.sort("seed", "variant")
        .group_by("shown", "pos", maintain_order=True)
        .agg(
            pl.col("premise").n_unique().alias("premises"),
            pl.len().alias("variants"),
            wrong.sum().alias("lost"),
            pl.col("label").filter(wrong).alias("labels"),
            pl.format("{}#{}", "seed", "variant").filter(wrong).first().alias("example"),
        )
        .filter(pl.col("premises") >= least)
    )
    found = [
        FailingWord(
            row["shown"],
            row["pos"],
            row["premises"],
            row["variants"],
            _percent(row["lost"] / row["variants"], row["premises"]),
            # The most frequent, the first in the alphabet of several.
            max(sorted(set(row["labels"])), key=row["labels"].count, default=""),
            row["example"] or "",
        )
        for row in grouped.iter_rows(named=True)
    ]
    return sorted(found, key=lambda one: (-one.lost.low, -one.lost.value, one.word, one.pos))


def all_words(
    pairs: Sequence[Pair], predictions: pl.DataFrame, model: str
) -> dict[str, Any] | None:
    """What becomes of all asked variants of rightly labelled seeds; `None` where there are none.

    Returns:
        `variants` and `wrong` (counts), `premises`, and `lost` (percent, with Wilson's interval
        over premises).
    """
    judged = _of_right_seeds(pairs, predictions, model)
    if not len(judged):
        return None
    wrong = len(judged) - int(judged["right"].sum())
    premises = judged["premise"].n_unique()
    counts = {"variants": len(judged), "wrong": wrong, "premises": premises}
    return {**counts, "lost": asdict(_percent(wrong / len(judged), premises))}


def _of_right_seeds(pairs: Sequence[Pair], predictions: pl.DataFrame, model: str) -> pl.DataFrame:
    """Seed, variant, premise, label and whether it is right, of seeds that are right themselves."""
    import polars as pl

    gold = pl.DataFrame(
        {
            "seed": [pair.id for pair in pairs],
            "premise": [pair.premise for pair in pairs],
            "gold": [pair.label.value for pair in pairs],
        }
    )
    judged = (
        predictions.filter(pl.col("model") == model)
        .join(gold, on="seed")
        .with_columns(right=pl.col("label") == pl.col("gold"))
    )
    known = judged.filter((pl.col("variant") < 0) & pl.col("right"))
    columns = ("seed", "variant", "premise", "label", "right")
    return judged.filter(pl.col("variant") >= 0).join(known, on="seed", how="semi").select(columns)


def _percent(share: float, units: int) -> Interval:
    found = wilson(share, units)
    return Interval(100 * found.value, 100 * found.low, 100 * found.high, found.level)
