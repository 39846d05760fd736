"""Runs that fit a time: how much of the work a machine does in it, decided once and kept.

A sample is drawn in strata, so that it has the shape of the whole; fewer units make the intervals
wider by themselves. What was decided lies in the store: the same command again takes the same
sample, however fast the machine is then.

Choice: ours.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from triaxial.errors import InputError
from triaxial.execute import Computing
from triaxial.stats import generator
from triaxial.store import Store

__all__ = ["decided", "fitting", "parse_budget", "stratified"]

_PARTS = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
_RESERVE = 0.9  # of a budget: what was measured on a few units is not exact


def parse_budget(text: str) -> float:
    """Seconds of `90s`, `15m`, `2h` or `1h30m`.

    >>> parse_budget("1h30m")
    5400.0

    Raises:
        InputError: It is none of these.
    """
    match = _PARTS.fullmatch(text.strip())
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = 3600 * hours + 60 * minutes + seconds
    if total <= 0:
        raise InputError(f"{text!r} is no time; write 90s, 15m or 1h30m", where="--budget")
    return total


def stratified(strata: Sequence[str], seed: int) -> list[int]:
    """All positions in an order of which every beginning has the strata's shares, to within one.

    Args:
        strata: The stratum of each position.
        seed: Of the order within strata.

    >>> strata = ["a", "b"] * 4
    >>> sorted(strata[n] for n in stratified(strata, 1)[:4])
    ['a', 'a', 'b', 'b']
    """
    inside: dict[str, list[int]] = defaultdict(list)
    for position, stratum in enumerate(strata):
        inside[stratum].append(position)
    ranked = []
    for name in sorted(inside):
        rng = generator("budget", seed, name)
        shuffled = [inside[name][n] for n in rng.permutation(len(inside[name]))]
        ranked += [
            ((rank + 0.5) / len(shuffled), name, position) for rank, position in enumerate(shuffled)
        ]
    return [position for *_, position in sorted(ranked)]


def fitting(budget: float, spent: float, each: float, whole: int, least: int) -> int:
    """How many units fit.

    Ten percent are a reserve: of 100 seconds 90 count, of which 10 are gone.

    >>> fitting(100, 10, 2.0, 1000, 5)
    45

    Args:
        budget: Seconds.
        spent: Of them gone.
        each: Seconds of a unit.
        whole: Units there are.
        least: Units that were measured already, and cost nothing more.
    """
    if each <= 0:
        return whole
    return min(whole, least + max(0, int((_RESERVE * budget - spent) / each)))


def decided(
    name: str,
    about: Mapping[str, Any],
    inputs: Sequence[str],
    computing: Computing,
    decide: Callable[[], Mapping[str, Any]],
) -> dict[str, Any]:
    """What was decided for a budget: now, or by an earlier call of the same command."""
    import polars as pl

    stage = Store(computing.store).stage(f"{name}.budget", 1, about, inputs)
    if not stage.complete:
        found = dict(decide())
        stage.write(0, pl.DataFrame({"decided": [1]}))
        stage.finish(1, found)
    facts: dict[str, Any] = stage.manifest["facts"]
    return facts
