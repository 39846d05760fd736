"""Words that the training text did not know, and words that a document has said before.

Source: Lazaridou et al. 2021: a word emerges when it has at least 50 mentions in the test and was
unseen in training, or has a unigram probability at least 5 times lower there; the first occurrence
in a document against the second, split by whether the first is inside the model's context.
Choice: words as they are written (no folding of case), of whatever kind, numbers too.
Choice: the second occurrence is inside the context when the first one's first piece is at most
`context` pieces before its own; third and later occurrences take no part; a word that occurs once
counts as a first occurrence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from triaxial.errors import InputError
from triaxial.temporal.corpus import month_name
from triaxial.temporal.resample import Bins, Resampler, figure, ledger_of, perplexity
from triaxial.temporal.slices import Runs, by_cell, cell_contrast
from triaxial.temporal.words import Scored

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "CELLS",
    "OCCURRENCES",
    "emerging_codes",
    "emerging_figures",
    "emerging_words",
    "occurrence_codes",
    "occurrences",
]

Array = npt.NDArray[Any]

CELLS = ("known", "emerging")
OCCURRENCES = ("first", "second, inside the context", "second, outside it")
LISTED = 30  # words that a summary names


def emerging_words(
    test: pl.DataFrame, training: pl.DataFrame, *, least: int = 50, ratio: float = 5.0
) -> pl.DataFrame:
    """The emerging words by the paper's rule.

    Args:
        test: `text` and `count` of the test words; rows of a word (by month) are added up.
        training: The same of the training words, cut by the same tokenizer.
        least: Mentions in the test.
        ratio: How many times less likely in training; `inf` leaves the unseen words only.

    Returns:
        `text`, `mentions`, `training` (mentions there), `lower` (test probability over training
        probability, null where unseen), `unseen`; the most mentioned first.

    Raises:
        InputError: A table lacks a column, training is empty, or a parameter is out of range.
    """
    import polars as pl

    if least < 1 or not ratio >= 1:
        raise InputError(
            f"at least {least} mentions and a ratio of {ratio}; wanted at least 1 of both"
        )
    for where, table in (("test", test), ("training", training)):
        if not {"text", "count"} <= set(table.columns):
            raise InputError(
                f"counts with the columns {', '.join(table.columns)}; wanted `text` and `count`",
                where=where,
            )
    known = training.group_by("text").agg(training=pl.col("count").sum().cast(pl.Int64))
    size = int(known["training"].sum())
    if not size:
        raise InputError(
            "no training words are counted; every word would be new: count the training text",
            where="training",
        )
    own = test.group_by("text").agg(mentions=pl.col("count").sum().cast(pl.Int64))
    all_own = int(own["mentions"].sum())
    lower = pl.col("mentions") / all_own / (pl.col("training") / size)
    # Compared as c_train · ratio · n_test <= c_test · n_train: whole numbers, as far as they go.
    rare = pl.col("training") * (ratio * float(all_own)) <= pl.col("mentions") * float(size)
    unseen = pl.col("training") == 0
    return (
        own.filter(pl.col("mentions") >= least)
        .join(known, on="text", how="left")
        .with_columns(pl.col("training").fill_null(0))
        .filter(unseen | rare)
        .with_columns(lower=pl.when(unseen).then(None).otherwise(lower), unseen=unseen)
        .select("text", "mentions", "training", "lower", "unseen")
        .sort("mentions", "text", descending=[True, False])
    )


def emerging_codes(scored: Scored, words: pl.DataFrame) -> Array:
    """Cell of `CELLS` of every test word, shape (words,)."""
    found: Array = scored.words["text"].is_in(words["text"].implode()).to_numpy()
    return found.astype(np.int64)


def emerging_figures(
    scored: Scored,
    bins: Bins,
    resampler: Resampler,
    runs: Runs,
    words: pl.DataFrame,
    codes: Array,
) -> dict[str, Any]:
    """What emerging words cost each model.

    Args:
        scored: The test set.
        bins: Its bins.
        resampler: Of its documents.
        runs: Control of each model.
        words: From `emerging_words`.
        codes: From `emerging_codes`.

    Returns:
        `words` (how many), `mentions`, `cells` (rows of `slices.by_cell` for known and emerging
        words), `worse` by model (100 · log of the perplexity of emerging words over that of
        known ones), `staler` by model (`slices.cell_contrast`: the increase over the control), and
        `top`: the most mentioned with `month` of the first mention and `perplexity` by model.
    """
    models = tuple(dict.fromkeys((*runs, *runs.values())))
    values = {name: scored.log_p(name) for name in models}
    ledger = ledger_of(scored, bins, resampler, values, codes, CELLS)
    whole = ledger.whole()
    worse = {}
    for name in models:
        (new, news), (old, olds) = (whole.mean(name, cell) for cell in ("emerging", "known"))
        worse[name] = figure(100 * (old - new)[0], 100 * (olds - news)[:, 0])
        worse[name]["n"] = int(whole.total[0, :, 0].sum())
    return {
        "words": len(words),
        "mentions": int(words["mentions"].sum()) if len(words) else 0,
        "cells": by_cell(ledger, runs, len(scored.words)),
        "worse": worse,
        "staler": {
            name: cell_contrast(ledger, (name, control), ["emerging"], ["known"])
            for name, control in runs.items()
        },
        "top": _top(scored, words, models),
    }


def occurrence_codes(scored: Scored, name: str, context: int, among: Array | None = None) -> Array:
    """Cell of `OCCURRENCES` of every word under one model's pieces, -1 for the others.

    Args:
        scored: The test set.
        name: The model whose pieces count.
        context: Pieces that it is sure to see before a word.
        among: Restricts the words, shape (words,), bool.

    Raises:
        InputError: The context is negative.
    """
    return _codes(scored, name, context, *_firsts_and_seconds(scored, among))


def occurrences(
    scored: Scored,
    bins: Bins,
    resampler: Resampler,
    contexts: Mapping[str, int],
    among: Array | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Perplexity of the first and the second occurrence of a word in a document, by model.

    Args:
        scored: The test set.
        bins: Its bins.
        resampler: Of its documents.
        contexts: Pieces that each model is sure to see before a word.
        among: Restricts the words, such as to the emerging ones; shape (words,), bool.

    Returns:
        By model a row for each of `OCCURRENCES`: `cell`, `n`, `perplexity` (`value`, `low`,
        `high`).
    """
    out = {}
    places = _firsts_and_seconds(scored, among)
    for name, context in contexts.items():
        codes = _codes(scored, name, context, *places)
        values = {name: scored.log_p(name)}
        whole = ledger_of(scored, bins, resampler, values, codes, OCCURRENCES).whole()
        rows = []
        for cell in OCCURRENCES:
            total, drawn = whole.pooled(cell)
            value = float(perplexity(total[0, 1], total[0, 0]))
            spread = perplexity(drawn[:, 0, 1], drawn[:, 0, 0])
            rows.append({"cell": cell, "n": int(total[0, 0]), "perplexity": figure(value, spread)})
        out[name] = rows
    return out


def _firsts_and_seconds(scored: Scored, among: Array | None) -> tuple[Array, Array, Array]:
    """Rows of first occurrences in a document, and of second ones with their firsts."""
    import polars as pl

    rows = np.arange(len(scored.words)) if among is None else np.flatnonzero(among)
    frame = pl.DataFrame({"row": rows}).with_columns(
        scored.words["doc"].gather(rows), scored.words["text"].gather(rows)
    )
    # Rows of a word stand together in their order, so that a row's past is the row above.
    frame = frame.sort("doc", "text", "row")
    same = (frame["doc"] == frame["doc"].shift(1)) & (frame["text"] == frame["text"].shift(1))
    first = ~same.fill_null(False).to_numpy()
    row = frame["row"].to_numpy()
    second = np.flatnonzero(~first[1:] & first[:-1]) + 1
    return row[first], row[second], row[second - 1]


def _codes(
    scored: Scored, name: str, context: int, first: Array, second: Array, before: Array
) -> Array:
    if context < 0:
        raise InputError(f"a context of {context} pieces; wanted 0 or more", where=name)
    pieces = scored.pieces(name).astype(np.int64)
    start = np.cumsum(pieces) - pieces  # over documents: only differences within one are used
    codes = np.full(len(start), -1, np.int64)
    codes[first] = 0
    codes[second] = np.where(start[second] - start[before] <= context, 1, 2)
    return codes


def _top(scored: Scored, words: pl.DataFrame, models: tuple[str, ...]) -> list[dict[str, Any]]:
    """The most mentioned emerging words, each with its perplexities."""
    import polars as pl

    head = words.head(LISTED)
    mentions = scored.words.with_columns(month=pl.Series(scored.months[scored.doc])).filter(
        pl.col("text").is_in(head["text"].implode())
    )
    means = {
        name: (-pl.col(f"log_p.{name}").cast(pl.Float64).mean()).exp().alias(f"p.{name}")
        for name in models
    }
    found = mentions.group_by("text").agg(pl.col("month").min(), *means.values())
    rows = head.join(found, on="text", how="left", maintain_order="left").to_dicts()
    return [
        {key: row[key] for key in ("text", "mentions", "training", "lower", "unseen")}
        | {"month": month_name(row["month"])}
        | {"perplexity": {name: row[f"p.{name}"] for name in models}}
        for row in rows
    ]
