"""A figure with its signature, and the gate that a figure must pass.

Choice: both are ours; the signature follows sacreBLEU.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from typing import Any

from triaxial.errors import GateError, InputError
from triaxial.merge.score import GRID, DrawOptions, Scores

__all__ = ["check_gate", "parse_gate", "signature"]

_GATE = re.compile(
    r"\s*(?:(?P<group>\S+):)?(?P<metric>S|MC|SV(?P<ct>\d+))\s*(?P<op><=|<|>=|>)\s*(?P<limit>\S+)\s*"
)
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def signature(preset: str, mlms: int, draw: DrawOptions, scores: Scores, version: str) -> str:
    """The line that makes a figure comparable, in sacreBLEU's manner."""
    sv = scores.at(95)
    parts = [
        f"SV95 = {sv.value:.1f} [{sv.low:.1f}, {sv.high:.1f}]",
        f"n:{draw.n}",
        f"draws:{draw.draws}",
        f"seeds:{scores.seeds}",
        f"preset:{preset}",
        f"mlm:{mlms}",
        f"seed:{draw.seed}",
        f"v:{version}",
    ]
    return " | ".join(parts)


def check_gate(metrics: Mapping[str, Any], condition: str) -> None:
    """Raise `GateError` when a model meets a condition such as `SV95 < 70` or `VERB:SV95 < 60`.

    Limits are in percent, as everywhere.

    Raises:
        InputError: The condition cannot be read, or names what the run does not have.
        GateError: The condition holds for at least one model.
    """
    group, metric, test, limit = parse_gate(condition)
    failed = []
    for model, kinds in metrics["models"].items():
        scored = next(
            (k[group] for k in kinds.values() if isinstance(k, dict) and group in k), None
        )
        value = None if scored is None else _metric(scored, metric)
        if value is None:
            raise InputError(f"{model} has no {metric} for {group!r}", where="--fail-if")
        if test(value, limit):
            failed.append(f"{model}: {metric} = {value:.1f}")
    if not metrics["models"]:
        raise InputError("no model was scored, so the gate says nothing", where="--fail-if")
    if failed:
        raise GateError(f"gate {condition!r} failed: {'; '.join(failed)}")


def parse_gate(condition: str) -> tuple[str, str, Any, float]:
    """Group, metric, comparison and limit of a gate's condition."""
    match = _GATE.fullmatch(condition)
    wanted = "wanted METRIC < PERCENT with S, MC or SV5 … SV100, such as 'SV95 < 70'"
    if match is None or (match["ct"] and int(match["ct"]) not in GRID):
        raise InputError(f"{condition!r} cannot be read; {wanted}", where="--fail-if")
    try:
        limit = float(match["limit"])
        if not math.isfinite(limit):
            raise ValueError  # "nan" would never fail
    except ValueError:
        raise InputError(f"{match['limit']!r} is no number; {wanted}", where="--fail-if") from None
    if 0 < limit < 1:
        raise InputError(
            f"a limit of {limit} looks like a share; give percent ({100 * limit:g})",
            where="--fail-if",
        )
    return match["group"] or "all", match["metric"], _OPERATORS[match["op"]], limit


def _metric(scored: Mapping[str, Any], metric: str) -> float | None:
    if metric == "S":
        return float(scored["seed_accuracy"]["value"])
    if metric == "MC":
        point = scored["matching"]["point"]
        return None if point is None else float(point)
    return float(scored["sv"][GRID.index(int(metric[2:]))]["value"])
