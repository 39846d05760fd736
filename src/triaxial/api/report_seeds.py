"""What a report shows of single words and seeds of MERGE: what fails, and how it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from triaxial.api.merge_files import VariantSet
from triaxial.api.report_shown import interval, slug
from triaxial.merge.failing import failing_words
from triaxial.merge.filters import variant_texts
from triaxial.nli import Pair
from triaxial.report.page import Browser, Case, Sentence, Table, Variant

__all__ = ["failing_tables", "worst_seeds"]

_CASES = 60  # worst seeds shown, and of each so many wrong variants
_WRONG = 6
_SHOWN = 60  # characters of a premise in the heading of its case
_WORDS = 15  # failing words shown of a model


def failing_tables(
    made: VariantSet, predictions: Any, models: Sequence[str], place: str
) -> list[Table]:
    """By model, the words that make right answers wrong when they are put in."""
    found = []
    for model in models:
        words = failing_words(made.pairs, made.replacements, predictions, model, "in")
        lost = [one for one in words if one.example][:_WORDS]
        if not lost:
            continue
        rows = [
            (one.word, one.pos, f"{one.premises:,}", f"{one.variants:,}",
             interval(asdict(one.lost)), one.taken_for, one.example)
            for one in lost
        ]  # fmt: skip
        found.append(
            Table(
                slug(place, "words", model),
                f"The words that {model} fails on",
                ("put in", "class", "premises", "variants", "wrong, %", "taken for", "example"),
                tuple(rows),
                f"Of {len(words):,} words that stand in variants of at least 3 premises, counting "
                "rightly labelled seeds alone; by the lower end of Wilson's 95 % interval over "
                "premises. "
                "triax merge words has all, and the words taken out.",
            )
        )
    return found


def worst_seeds(
    made: VariantSet, predictions: Any, models: Sequence[str], place: str
) -> list[Browser]:
    """By model, the seeds with the largest share of wrong variants; right ones before others."""
    import polars as pl

    pairs = {pair.id: pair for pair in made.pairs}
    gold = pl.DataFrame(
        {"seed": list(pairs), "gold": [pair.label.value for pair in pairs.values()]}
    )
    judged = predictions.join(gold, on="seed").with_columns(right=pl.col("label") == pl.col("gold"))
    several = len(models) > 1
    cases = _CASES // len(models)
    return [
        _worst_of(
            made, pairs, judged.filter(pl.col("model") == model), cases, place, model, several
        )
        for model in models
    ]


def _worst_of(
    made: VariantSet,
    pairs: Mapping[str, Pair],
    judged: Any,
    most: int,
    place: str,
    model: str,
    several: bool,
) -> Browser:
    import polars as pl

    ranked = (
        judged.filter(pl.col("variant") >= 0)
        .group_by("seed")
        .agg((~pl.col("right")).sum().alias("wrong"), pl.len().alias("drawn"))
        .filter(pl.col("wrong") > 0)
        .join(
            judged.filter(pl.col("variant") < 0)
            .group_by("seed")
            .agg((~pl.col("right").any()).alias("lost")),
            on="seed",
        )
        .sort(
            "lost",
            pl.col("wrong") / pl.col("drawn"),
            "wrong",
            "seed",
            descending=[False, True, True, False],
        )
    )
    chosen = ranked.head(most)
    ids = chosen["seed"].to_list()
    mine = judged.filter(pl.col("seed").is_in(ids) & ~pl.col("right"))
    wrong: dict[str, dict[int, str]] = {}
    for seed, variant, label in (
        mine.sort("seed", "variant").select("seed", "variant", "label").iter_rows()
    ):
        wrong.setdefault(seed, {})[variant] = f"labelled {label}"
    of = {
        (row["seed"], row["variant"]): row
        for row in made.replacements.filter(pl.col("seed").is_in(ids)).iter_rows(named=True)
    }
    cases = []
    for seed, failures, drawn in chosen.select("seed", "wrong", "drawn").iter_rows():
        pair = pairs[seed]
        numbers = sorted(n for n in wrong[seed] if n >= 0)
        note = f"{pair.label.value}; {failures} of {drawn} wrong"
        if -1 in wrong[seed]:
            note += f"; the seed too: {wrong[seed][-1]}"
        cases.append(
            Case(
                f"seed {seed}: {pair.premise[:_SHOWN]}{'…' if len(pair.premise) > _SHOWN else ''}",
                note,
                (Sentence("premise", pair.premise), Sentence("hypothesis", pair.hypothesis)),
                tuple(_variant(pair, of[seed, n], wrong[seed][n]) for n in numbers[:_WRONG]),
            )
        )
    return Browser(
        slug(place, "worst", model) if several else slug(place, "worst"),
        f"The worst seeds of {model}" if several else "The worst seeds",
        f"{len(cases)} of {len(ranked):,} seeds with wrong variants: first those that are right "
        "themselves, by the share of variants that is wrong, then the others. Up to "
        f"{_WRONG} wrong variants each; the replaced word is marked.",
        tuple(cases),
    )


def _variant(pair: Pair, row: Mapping[str, Any], said: str) -> Variant:
    word, spans = row["replacement"], (row["premise_spans"], row["hypothesis_spans"])
    texts = variant_texts(pair, word, *spans)
    sides = ("premise", "hypothesis")
    originals = (pair.premise, pair.hypothesis)
    return Variant(
        f"{row['word']} → {word} ({row['pos']}): {said}",
        tuple(
            Sentence(side, text, _marks(original, text, places))
            for side, original, text, places in zip(sides, originals, texts, spans, strict=True)
        ),
    )


def _marks(
    original: str, changed: str, places: Sequence[Sequence[int]]
) -> tuple[tuple[int, int], ...]:
    """Where the replaced words stand in the changed text: all replacements have one length.

    An article before a word may have changed with it; it is part of the place then.
    """
    if not places:
        return ()
    spans = [(int(start), int(end)) for start, end in places]
    removed = sum(end - start for start, end in spans)
    each, rest = divmod(len(changed) - len(original) + removed, len(spans))
    if rest:
        return ()
    found, moved = [], 0
    for start, end in spans:
        found.append((start + moved, start + moved + each))
        moved += each - (end - start)
    return tuple(found)
