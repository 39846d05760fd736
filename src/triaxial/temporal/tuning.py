"""Learning rate and decay of dynamic evaluation, chosen on validation documents alone.

Tuning on the test stream is the known way to fool oneself, so documents of test months are refused
by their dates.

Choice: perplexity per word decides; static evaluation takes part, and wins a tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from triaxial.errors import InputError
from triaxial.models.causal import CausalLM
from triaxial.temporal.corpus import Document, month_of
from triaxial.temporal.dynamic import AdaptOptions, DivergedError, adapt
from triaxial.temporal.updates import Statistics

__all__ = ["Choice", "Grid", "choose"]


@dataclass(frozen=True, slots=True)
class Grid:
    """Settings to try: every learning rate with every decay."""

    learning_rates: tuple[float, ...]
    decays: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings found on validation documents.

    Args:
        options: The best; learning rate 0 where no setting is better than static.
        tried: One row a setting, static first: `learning_rate`, `decay`, `per_word` (perplexity;
            infinite where it diverged) and `seconds`.
        edge: Whether the best is the greatest or the least rate or decay of several: try more.
    """

    options: AdaptOptions
    tried: tuple[dict[str, float], ...]
    edge: bool


def choose(
    model: CausalLM,
    documents: Sequence[Document],
    grid: Grid,
    options: AdaptOptions,
    *,
    test_from: str,
    statistics: Statistics | None = None,
    progress: Callable[[int], None] | None = None,
) -> Choice:
    """Learning rate and decay with the lowest perplexity per word on validation documents.

    Each setting adapts to all the documents from the trained weights on; static evaluation takes
    part. Of equals the first of the grid is chosen, and static before all.

    Args:
        model: As for `adapt`.
        documents: Of validation months, in the order of date and id.
        grid: What to try.
        options: All else.
        test_from: First month of the test documents, "YYYY-MM"; none may be as late.
        statistics: As for `adapt`.
        progress: Told the number of documents done since it was last called, in all settings.

    Raises:
        InputError: There are no documents with words, or some of test months; the grid is empty.
    """
    late = [document for document in documents if month_of(document.date) >= month_of(test_from)]
    if late:
        raise InputError(
            f"{late[0].id!r} is of {late[0].date}, in the test months from {test_from} on; choose "
            "settings on earlier documents alone",
            where="validation",
        )
    settings = [
        replace(options, learning_rate=rate, decay=decay)
        for rate in grid.learning_rates
        for decay in grid.decays
        if rate > 0
    ]
    if not settings:
        raise InputError(
            "has no learning rate above 0 or no decay; give at least one each", where="grid"
        )
    tried: list[dict[str, float]] = []
    static = replace(options, learning_rate=0.0, decay=0.0)
    for setting in (static, *settings):
        row = {"learning_rate": setting.learning_rate, "decay": setting.decay}
        log_p, words, seconds = 0.0, 0, 0.0
        try:
            for found in adapt(model, documents, setting, statistics=statistics, progress=progress):
                log_p += float(found.tables.documents["log_p"].sum())
                words += int(found.tables.documents["words"].sum())
                seconds += found.cost.seconds
        except DivergedError:
            log_p, words = -math.inf, 1
        if not words:
            raise InputError(
                "no document with words; give documents of validation months", where="validation"
            )
        surprise = -log_p / words
        tried.append({**row, "per_word": math.exp(surprise) if surprise < 700 else math.inf})
        tried[-1]["seconds"] = seconds
    best = min(range(len(tried)), key=lambda n: tried[n]["per_word"])
    chosen = (static, *settings)[best]
    edge = best > 0 and any(
        len(set(values)) > 1 and value in (min(values), max(values))
        for value, values in (
            (chosen.learning_rate, grid.learning_rates),
            (chosen.decay, grid.decays),
        )
    )
    return Choice(chosen, tuple(tried), edge)
