"""Which words go stale: by part of speech, by topic, and by how a tokenizer cuts them.

Every slice is a cell of one ledger: its words, their share, perplexities, increase over the control
with interval, and the slope of that increase. Differences between slices are paired by bin.

Source: Lazaridou et al. 2021 (by POS, by topic, tokenizer age).
Choice: the coarse classes of `models.tagger` in two groups, open and function words; numbers,
interjections, punctuation and X are in neither.
Choice: a word is cut differently when two tokenizers give it different numbers of pieces; the same
number at other places is not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triaxial.errors import InputError
from triaxial.temporal.curves import curve, increase, trend
from triaxial.temporal.resample import (
    Bins,
    Ledger,
    Resampler,
    figure,
    ledger_of,
    perplexity,
)
from triaxial.temporal.words import Scored

__all__ = [
    "CUT",
    "FUNCTION",
    "OPEN",
    "Runs",
    "by_cell",
    "cell_contrast",
    "cut_codes",
    "fragmentation",
    "slices",
    "tag_codes",
    "topic_codes",
]

Array = npt.NDArray[Any]
Runs = Mapping[str, str]
"""The control of each model."""

OPEN = ("NOUN", "PROPN", "VERB", "ADJ", "ADV")
FUNCTION = ("AUX", "PRON", "DET", "ADP", "CONJ", "PART")
CUT = ("alike", "more pieces", "fewer pieces")


def tag_codes(scored: Scored) -> tuple[Array, tuple[str, ...]]:
    """Cell of every word by its tag, and the tags, the most frequent first.

    Raises:
        InputError: The words are not tagged.
    """
    import polars as pl

    if "tag" not in scored.words.columns:
        raise InputError("the words have no tags; tag them first, as the column `tag`")
    tag = scored.words["tag"].fill_null("X")
    counts = tag.value_counts().sort(["count", "tag"], descending=[True, False])
    known = counts.select("tag").with_row_index("code")
    codes = pl.DataFrame({"tag": tag}).join(known, on="tag", how="left", maintain_order="left")
    return codes["code"].to_numpy().astype(np.int64), tuple(counts["tag"].to_list())


def topic_codes(scored: Scored) -> tuple[Array, tuple[str, ...]]:
    """Cell of every word by its document's topic (-1 where it has none), and the topics' numbers.

    Raises:
        InputError: The documents have no topics.
    """
    if "topic" not in scored.documents.columns:
        raise InputError("the documents have no topics; assign them first, as the column `topic`")
    topic = scored.documents["topic"].fill_null(-1).to_numpy().astype(np.int64)
    known = np.unique(topic[topic >= 0])
    code = np.where(topic >= 0, np.searchsorted(known, topic), -1)
    return code[scored.doc], tuple(str(number) for number in known)


def cut_codes(scored: Scored, old: str, new: str) -> Array:
    """Cell of `CUT` of every word: whether the old model's tokenizer cuts it into more pieces."""
    sign = np.sign(scored.pieces(old).astype(np.int64) - scored.pieces(new))
    cell: Array = np.where(sign == 0, 0, np.where(sign > 0, 1, 2))
    return cell


def slices(
    scored: Scored,
    bins: Bins,
    resampler: Resampler,
    runs: Runs,
    codes: Array,
    cells: Sequence[str],
) -> tuple[list[dict[str, Any]], Ledger]:
    """The figures of every cell, and the ledger they came from.

    Args:
        scored: The test set.
        bins: Its bins.
        resampler: Of its documents.
        runs: Control of each model that is compared.
        codes: Cell of every word, -1 = none.
        cells: Their names.

    Returns:
        As of `by_cell`.
    """
    names = dict.fromkeys((*runs, *runs.values()))
    values = {name: scored.log_p(name) for name in names}
    ledger = ledger_of(scored, bins, resampler, values, codes, cells)
    return by_cell(ledger, runs, len(codes)), ledger


def by_cell(ledger: Ledger, runs: Runs, words: int) -> list[dict[str, Any]]:
    """A row a cell: `cell`, `n`, `share` of all `words`, `perplexity` by model, and `runs`.

    `runs` holds by model `increase` over its control (percent), `slope` (percent a month) and
    `bins` (rows of `bin`, `words`, `share` of the bin's words, `increase`).
    """
    whole = ledger.whole()
    out = []
    models = dict.fromkeys((*runs, *runs.values()))
    for cell in ledger.cells:
        total, drawn = whole.pooled(cell)
        row: dict[str, Any] = {"cell": cell, "n": int(total[0, 0])}
        row |= {"share": float(total[0, 0] / words) if words else None, "perplexity": {}}
        for name in models:
            at = ledger.values.index(name)
            value = perplexity(total[0, at], total[0, 0])
            spread = perplexity(drawn[:, 0, at], drawn[:, 0, 0])
            row["perplexity"][name] = figure(float(value), spread)
        row["runs"] = {}
        for name, control in runs.items():
            ratio, ratios = whole.log_ratio(name, control, cell)
            found = curve(ledger, name, control, cell)
            row["runs"][name] = {
                "increase": increase(ratio[0], ratios[:, 0]),
                "slope": found["slope"],
                "bins": [
                    {"bin": each["bin"], "words": each["words"]}
                    | {"share": each["words"] / size if size else None}
                    | {"increase": each["increase"]}
                    for each, size in zip(found["bins"], ledger.bins.words, strict=True)
                ],
            }
        out.append(row)
    return out


def cell_contrast(
    ledger: Ledger,
    run: tuple[str, str],
    high: Sequence[str],
    low: Sequence[str],
    *,
    factor: float = 1.0,
) -> dict[str, Any] | None:
    """How much more some cells go stale than others.

    Args:
        ledger: With cells.
        run: A model and its control.
        high: Cells whose log ratio is taken `factor` times.
        low: Cells whose log ratio is subtracted.
        factor: See `high`.

    Returns:
        `level` (100 · difference of log ratios over the whole test), `slope` of `trend`, `n` words
        of both; null where either has no words.
    """
    if not high or not low:
        return None
    whole = ledger.whole()
    sums = (whole.pooled(*high)[0][0, 0], whole.pooled(*low)[0][0, 0])
    if not min(sums):
        return None

    def difference(of: Ledger) -> tuple[Array, Array]:
        (one, ones), (two, twos) = (of.log_ratio(*run, *cells) for cells in (high, low))
        return factor * one - two, factor * ones - twos

    y, drawn = difference(whole)
    ys, all_drawn = difference(ledger)
    # A bin's difference is known as well as its smaller side.
    weights = np.minimum(ledger.pooled(*high)[0][:, 0], ledger.pooled(*low)[0][:, 0])
    return {
        "level": figure(100 * y[0], 100 * drawn[:, 0]),
        "slope": trend(ledger.bins.x, ys, weights, all_drawn),
        "n": int(sum(sums)),
    }


def fragmentation(
    scored: Scored, bins: Bins, resampler: Resampler, old: str, new: str
) -> dict[str, Any]:
    """Two tokenizers on the same words: how finely each cuts, and what differently cut words cost.

    Args:
        scored: The test set.
        bins: Its bins.
        resampler: Of its documents.
        old: Model whose tokenizer is under suspicion.
        new: Model with the other tokenizer.

    Returns:
        `pieces_per_word` by model (`value`, `low`, `high`, and `bins`, null where empty), and
        `cells`: a row for each of `CUT`: `cell`, `n`, `share`, `perplexity` by model.
    """
    values = {one: scored.log_p(one) for one in (old, new)}
    pieces = {f"pieces {one}": scored.pieces(one).astype(np.float64) for one in (old, new)}
    ledger = ledger_of(scored, bins, resampler, values | pieces, cut_codes(scored, old, new), CUT)
    whole = ledger.whole()
    per_word = {}
    for one in (old, new):
        value, drawn = whole.mean(f"pieces {one}")
        by_bin = ledger.mean(f"pieces {one}")[0]
        per_word[one] = figure(value[0], drawn[:, 0]) | {
            "bins": [float(v) if np.isfinite(v) else None for v in by_bin]
        }
    rows = by_cell(ledger, {old: new}, len(scored.words))
    return {
        "old": old,
        "new": new,
        "pieces_per_word": per_word,
        "cells": [{k: row[k] for k in ("cell", "n", "share", "perplexity")} for row in rows],
    }
