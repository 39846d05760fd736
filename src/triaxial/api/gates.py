"""Gates: the condition under which a figure makes a run count as failed, `SV95 < 70`.

The same for all axes, on the plain values of `metrics.json`.

Choice: ours; the papers have no gates.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triaxial.errors import GateError, InputError

__all__ = [
    "Condition",
    "Figure",
    "c2gen_figures",
    "check_gate",
    "judge",
    "merge_figures",
    "parse_gate",
    "temporal_figures",
]

_CONDITION = re.compile(
    r"\s*(?:(?P<group>\S+?):)?(?P<metric>[A-Za-z][\w+]*)\s*(?P<op><=|<|>=|>)\s*(?P<limit>\S+)\s*"
)
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MERGE = ("S", "MC", *(f"SV{ct}" for ct in range(5, 105, 5)))
_C2GEN = ("V", "N", "V+N", "CI", "forgetting")
_TEMPORAL = ("increase", "slope", "perplexity")
_WANTED = (
    "wanted [GROUP:]METRIC < LIMIT with S, MC, SV5 … SV100 (replacement), V, N, V+N, CI, "
    "forgetting (composition), increase, slope, perplexity (time), such as 'SV95 < 70'"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition, read.

    Args:
        text: As it was given.
        group: What it is about: a word class, a label, a masked LM; a stream or strategy; a run of
            the time axis. "" is the whole.
        metric: Name of the figure.
        op: One of <, <=, >, >=.
        limit: In the unit of the figure; percent but for perplexity.
    """

    text: str
    group: str
    metric: str
    op: str
    limit: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that a condition can name.

    Args:
        subject: What it is of: a model, a strategy on a stream, a run.
        metric: Its name.
        value: Its value; `None` where there is none.
        groups: What it may be asked for under.
    """

    subject: str
    metric: str
    value: float | None
    groups: tuple[str, ...] = ("",)


def parse_gate(text: str) -> Condition:
    """Read a condition such as `SV95 < 70`, `VERB:SV95 < 60`, `er-res:CI < 50`, `slope > 0.5`.

    >>> read = parse_gate("VERB:SV95 < 60")
    >>> read.group, read.metric, read.limit
    ('VERB', 'SV95', 60.0)

    Raises:
        InputError: It cannot be read, or its limit is no number or a share.
    """
    match = _CONDITION.fullmatch(text)
    if match is None or match["metric"] not in (*_MERGE, *_C2GEN, *_TEMPORAL):
        raise InputError(f"{text!r} cannot be read; {_WANTED}", where="--fail-if")
    try:
        limit = float(match["limit"])
        if not math.isfinite(limit):
            raise ValueError  # "nan" would never fail
    except ValueError:
        raise InputError(f"{match['limit']!r} is no number; {_WANTED}", where="--fail-if") from None
    if 0 < limit < 1 and match["metric"] not in _TEMPORAL:
        raise InputError(
            f"a limit of {limit} looks like a share; give percent ({100 * limit:g})",
            where="--fail-if",
        )
    return Condition(text, match["group"] or "", match["metric"], match["op"], limit)


def check_gate(figures: Sequence[Figure], condition: str) -> None:
    """Raise `GateError` when at least one subject meets a condition.

    Raises:
        InputError: The condition cannot be read, or names what the run does not have.
        GateError: It holds.
    """
    read = parse_gate(condition)
    if not figures:
        raise InputError("no model was scored, so the gate says nothing", where="--fail-if")
    seen, failed = judge(read, figures)
    if not seen:
        of = f" of {read.group!r}" if read.group else ""
        groups = {g for f in figures if f.metric == read.metric for g in f.groups if g}
        known = f"; it has them of {', '.join(sorted(groups))}" if groups else ""
        raise InputError(f"the run has no {read.metric}{of}{known}", where="--fail-if")
    if failed:
        raise GateError(f"gate {condition!r} failed: {'; '.join(failed)}")


def judge(condition: Condition, figures: Sequence[Figure]) -> tuple[list[str], list[str]]:
    """The figures that a condition names, in words, and those that meet it.

    >>> figures = [Figure("old", "S", 81.0), Figure("new", "S", 79.5)]
    >>> judge(parse_gate("S < 80"), figures)
    (['old: S = 81.0', 'new: S = 79.5'], ['new: S = 79.5'])
    """
    meets = _OPERATORS[condition.op]
    seen, failed = [], []
    for figure in figures:
        if figure.metric != condition.metric or condition.group not in figure.groups:
            continue
        if figure.value is not None:
            told = f"{figure.subject}: {figure.metric} = {figure.value:.1f}"
            seen.append(told)
            if meets(figure.value, condition.limit):
                failed.append(told)
    return seen, failed


def merge_figures(metrics: Mapping[str, Any]) -> list[Figure]:
    """S, MC and SV by model, overall and by word class, label and masked LM."""
    found = []
    for model, kinds in metrics["models"].items():
        for kind in kinds.values():
            if not isinstance(kind, Mapping):
                continue
            for group, one in kind.items():
                groups = ("", "all") if group == "all" else (group,)
                values = [
                    one["seed_accuracy"]["value"],
                    one["matching"]["point"],
                    *(sv["value"] for sv in one["sv"]),
                ]
                found += [
                    Figure(model, metric, value, groups)
                    for metric, value in zip(_MERGE, values, strict=True)
                ]
    return found


def c2gen_figures(metrics: Mapping[str, Any]) -> list[Figure]:
    """V, N, V+N and CI of held-out types after the last stage, and the share of CI forgotten."""
    found = []
    for stream, runs in metrics["streams"].items():
        for strategy, run in runs.items():
            subject, groups = f"{stream} {strategy}", ("", stream, strategy)
            scored = run["after"][str(run["stages"])]["test"]
            lost = run["forgetting"]["probe"] or run["forgetting"]["test"]
            if scored is not None:
                found += [Figure(subject, m, scored[m]["value"], groups) for m in _C2GEN[:4]]
            if lost is not None:
                found.append(Figure(subject, "forgetting", lost["forget"]["CI"]["value"], groups))
    return found


def temporal_figures(metrics: Mapping[str, Any]) -> list[Figure]:
    """Perplexity by run; of those that are no CONTROL the increase and its slope, in percent."""
    found = []
    for run, one in metrics["runs"].items():
        groups = ("", run)
        found.append(Figure(run, "perplexity", one["perplexity"]["value"], groups))
        curve = metrics["curves"].get(run)
        if curve is not None:
            found.append(Figure(run, "increase", curve["overall"]["percent"]["value"], groups))
            slope = None if curve["slope"] is None else curve["slope"]["value"]
            found.append(Figure(run, "slope", slope, groups))
    return found
