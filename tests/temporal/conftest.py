"""Evaluations made of thin air, with a drift that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from triaxial.stats import generator
from triaxial.temporal.corpus import month_of
from triaxial.temporal.words import Evaluation

Row = tuple[str, float]  # text, log p; pieces are one a word unless told

TAGS = {"n": "NOUN", "p": "PROPN", "f": "DET", "e": "NOUN"}
"""By first letter: nouns, proper nouns, function words and emerging words."""


@pytest.fixture(scope="session")
def evaluation() -> Callable[..., Evaluation]:
    """See `made_evaluation`."""
    return made_evaluation


@pytest.fixture(scope="session")
def drifting() -> Callable[..., dict[str, Evaluation]]:
    """See `made_drift`."""
    return made_drift


def made_evaluation(
    documents: Sequence[tuple[str, str, Sequence[Row]]],
    *,
    pieces: Mapping[str, int] | None = None,
    sources: Sequence[str] = ("a",),
    topics: Sequence[int] | None = None,
    tags: bool = False,
    **fields: Any,
) -> Evaluation:
    """Tables of documents given as id, date and (text, log p) of each word."""
    cut = pieces or {}
    words: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for n, (name, date, said) in enumerate(documents):
        at = 0
        for position, (text, log_p) in enumerate(said):
            words.append(
                {"document": name, "word": position, "start": at, "end": at + len(text)}
                | {"text": text, "pieces": cut.get(text, 1), "log_p": log_p}
                | ({"tag": TAGS[text[0]]} if tags else {})
            )
            at += len(text) + 1
        rows.append(
            {"document": name, "date": date, "month": month_of(date)}
            | {"source": sources[n % len(sources)], "words": len(said)}
            | {"pieces": sum(cut.get(text, 1) for text, _ in said), "bytes": at - 1}
            | {"log_p": sum(log_p for _, log_p in said), "end_log_p": None, "unknown": 0}
            | ({} if topics is None else {"topic": topics[n]})
        )
    schema = {"word": pl.Int32, "start": pl.Int32, "end": pl.Int32, "pieces": pl.Int16}
    return Evaluation(
        pl.DataFrame(words, schema_overrides=schema | {"log_p": pl.Float32}),
        pl.DataFrame(rows, schema_overrides={"month": pl.Int32, "end_log_p": pl.Float32}),
        fields.pop("model", "made up"),
        **fields,
    )


def made_drift(
    rates: Mapping[str, float],
    *,
    seed: int = 1,
    months: int = 12,
    documents: int = 20,
    length: int = 30,
    event: float = 0.0,
    level: Mapping[str, float] | None = None,
) -> dict[str, Evaluation]:
    """A model trained on the past and its control.

    Args:
        rates: Nats a word and month by which the past's model falls behind, by kind of word: its
            first letter, as in `TAGS`.
        seed: Of the texts and their noise.
        months: From January 2018 on.
        documents: A month.
        length: Words a document.
        event: Standard deviation over months of what both suffer unequally.
        level: Nats a word by which the past's model is behind at month 0, by kind.
    """
    rng = generator(seed, "tables")
    kinds = sorted(rates)
    count = months * documents
    shocks = event * rng.standard_normal(months)
    past, control = [], []
    for n in range(count):
        month = n // documents
        date = f"{2018 + month // 12}-{month % 12 + 1:02d}-{n % 28 + 1:02d}"
        said = [f"{kinds[k]}{rng.integers(5)}" for k in rng.integers(0, len(kinds), length)]
        base = -3 - rng.exponential(1.0, length)
        behind = np.asarray([(level or {}).get(t[0], 0) + rates[t[0]] * month for t in said])
        lost = behind + shocks[month] + 0.2 * rng.standard_normal(length)
        name = f"d{n:05d}"
        control.append((name, date, list(zip(said, base.tolist(), strict=True))))
        past.append((name, date, list(zip(said, (base - lost).tolist(), strict=True))))
    return {
        "past": made_evaluation(past, tags=True, context=64),
        "control": made_evaluation(control, tags=True, setup="control", context=64),
    }
