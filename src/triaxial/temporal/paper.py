"""The paper's figures, and the paper's claims put to a summary of any models.

A claim is a few tests, each a difference with an interval and a wanted sign. All must hold for a
yes; one that turns out the other way round makes it a no; else it is undecided, and not measured
where no run can tell.

Source: Lazaridou et al. 2021.
Choice: "proper nouns fastest" is the slope of proper nouns above that of each other open class;
"function words flat" is half of the overall slope above that of function words. "Worst" is emerging
words above known ones both in perplexity and in its increase over the control.
Choice: "size does not change the slope" is a yes where the interval of the difference lies within
half of the smaller model's slope and holds 0, a no where it does not hold 0.
Choice: "cheaper" compares seconds and is decided by three repeats or more: each of one side below
each of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

__all__ = ["CLAIMS", "PAPER", "Printed", "claims", "printed"]

REPEATS = 3
SAME = 0.5  # of the smaller model's slope
BESIDE = "open classes - function words"  # told, but no part of the claim


@dataclass(frozen=True, slots=True)
class Printed:
    """A figure of the paper.

    Args:
        corpus: "WMT", "news", "arXiv" or "German WMT".
        figure: What it is.
        value: In the unit of `figure`: perplexity a word, its difference, percent or a count.
        note: Whose, or from what.
    """

    corpus: str
    figure: str
    value: float
    note: str = ""


_FIRST, _INSIDE, _OUTSIDE = "first occurrence", "second, inside", "second, outside"

PAPER: tuple[Printed, ...] = (
    Printed("WMT", "perplexity", 22.45, "time-stratified"),
    Printed("WMT", "perplexity", 21.11, "control"),
    Printed("WMT", "delta", 1.34),
    Printed("WMT", "percent", 6.34),
    Printed("news", "delta", 2.95),
    Printed("news", "percent", 16.04),
    Printed("arXiv", "delta", 1.79),
    Printed("arXiv", "percent", 8.37),
    Printed("German WMT", "perplexity", 30.87, "time-stratified"),
    Printed("German WMT", "perplexity", 26.79, "control"),
    Printed("German WMT", "percent", 15.23),
    Printed("WMT", "emerging words", 287, "count"),
    Printed("WMT", "emerging mentions", 87_636, "count"),
    Printed("WMT", "emerging perplexity", 109.73, "static"),
    Printed("WMT", "emerging perplexity", 66.26, "dynamic evaluation"),
    Printed("WMT", _FIRST, 694.95, "static; of emerging words"),
    Printed("WMT", _INSIDE, 75.95, "static; of emerging words"),
    Printed("WMT", _OUTSIDE, 2719.25, "static; of emerging words"),
    Printed("WMT", _FIRST, 357.40, "dynamic evaluation; of emerging words"),
    Printed("WMT", _INSIDE, 44.21, "dynamic evaluation; of emerging words"),
    Printed("WMT", _OUTSIDE, 1430.34, "dynamic evaluation; of emerging words"),
    Printed("WMT", "perplexity", 22.17, "dynamic evaluation"),
    Printed("WMT", "perplexity", 22.02, "time-stratified, control's tokenizer"),
    Printed("WMT", "tokenizer delta", 0.43, "of the 1.34"),
    Printed("WMT", "perplexity of words cut differently", 650, "own tokenizer"),
    Printed("WMT", "perplexity of words cut differently", 100, "control's tokenizer"),
)
"""What the paper says of its own models and data, to stand beside ours."""

CLAIMS: Mapping[str, str] = MappingProxyType(
    {
        "increase": "a model trained on the past is worse on the future than its control",
        "distance": "the increase grows with the distance from the training months",
        "words": "proper nouns go stale fastest, function words stay flat",
        "emerging": "emerging new words are the worst",
        "dynamic": "dynamic evaluation lowers perplexity and the slope of its increase",
        "cheaper": "adapting biases or embeddings alone is cheaper than adapting all parameters",
        "size": "a larger model goes stale at the same rate",
        "tokenizer": "part of the increase is the tokenizer's age",
    }
)
"""The claims, in the order of `claims`."""


def claims(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each claim of `CLAIMS` with its answer, and what decided it.

    Args:
        summary: From `analyses.summarize`.

    Returns:
        `claim`, `text`, `answer` (`yes`, `no`, `undecided`, `not measured`), `difference`, `low`,
        `high`, `n` and `unit` of the test that decided (the one furthest from the claim among those
        with the answer's verdict), `decided_by`, and all `tests`, each with the same figures, its
        own `verdict` and the `sign` that the claim wants (0: no difference).
    """
    tests: Mapping[str, Callable[[Mapping[str, Any]], list[dict[str, Any]]]] = {
        "increase": _increase,
        "distance": _distance,
        "words": _words,
        "emerging": _emerging,
        "dynamic": _dynamic,
        "cheaper": _cheaper,
        "size": _size,
        "tokenizer": _tokenizer,
    }
    out = []
    for claim, text in CLAIMS.items():
        found = tests[claim](summary)
        out.append({"claim": claim, "text": text, **_answer(found), "tests": found})
    return out


def printed() -> list[dict[str, Any]]:
    """`PAPER` as plain values, for JSON."""
    return [asdict(figure) for figure in PAPER]


def _increase(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        _test(f"{name} - {c['control']}", 1, c["overall"]["percent"], c["overall"]["n"], "%")
        for name, c in _base(summary)
    ]


def _distance(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        _test(f"slope of {name}", 1, c["slope"], c["overall"]["n"], "%/month")
        for name, c in _base(summary)
        if c["slope"]
    ]


def _words(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    out = []
    contrasts = (summary["tags"] or {}).get("contrasts", {})
    for name, _ in _base(summary):
        for key, found in contrasts.get(name, {}).items():
            if key != BESIDE and found and found["slope"]:
                out.append(_test(f"{name}: {key}", 1, found["slope"], found["n"], "%/month"))
    return out


def _emerging(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    out = []
    found = summary["emerging"]
    if found and found["words"]:
        for name, _ in _base(summary):
            worse = found["worse"].get(name)
            if worse and worse["value"] is not None:
                out.append(_test(f"{name}: emerging - known", 1, worse, worse["n"], "log %"))
            staler = found["staler"].get(name)
            if staler:
                level = staler["level"]
                out.append(
                    _test(f"{name}: increase, emerging - known", 1, level, staler["n"], "log %")
                )
    return out


def _dynamic(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [row for row in summary["differences"] if row["kind"] == "adaptation"]
    # The paper adapts all parameters; where nobody did, what was adapted answers.
    every = [row for row in rows if summary["runs"][row["new"]]["adaptation"] == "all"]
    out = []
    for row in every or rows:
        test = f"{row['new']} - {row['base']}"
        out.append(_test(test, -1, row["overall"]["percent"], row["overall"]["n"], "%"))
        if row["slope"]:
            out.append(_test(f"slope, {test}", -1, row["slope"], row["overall"]["n"], "%/month"))
    return out


def _cheaper(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Seconds of the small parameter sets over those of all, less 1, in percent."""
    runs, costs = summary["runs"], summary["costs"] or {}
    spent: dict[tuple[str, str], list[float]] = {
        (runs[name]["size"], runs[name]["adaptation"]): list(cost["seconds"])
        for name, cost in costs.items()
        if name in runs and cost.get("seconds")
    }
    out = []
    for (size, adaptation), seconds in spent.items():
        every = spent.get((size, "all"))
        if adaptation not in ("biases", "embeddings") or not every:
            continue
        ratios = [
            100 * (a / b - 1)
            for a, b in (
                (_median(seconds), _median(every)),
                (min(seconds), max(every)),
                (max(seconds), min(every)),
            )
        ]
        enough = min(len(seconds), len(every)) >= REPEATS
        found = {
            "value": ratios[0],
            "low": ratios[1] if enough else None,
            "high": ratios[2] if enough else None,
        }
        n = len(seconds) + len(every)
        out.append(_test(f"{size} {adaptation} / all".strip(), -1, found, n, "% seconds"))
    return out


def _size(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    out = []
    for row in summary["differences"]:
        if row["kind"] != "size" or not row["slope"]:
            continue
        found = row["slope"]
        steep = summary["curves"][row["base"]]["slope"]["value"]
        test = _test(
            f"slope, {row['new']} - {row['base']}", 0, found, row["overall"]["n"], "%/month"
        )
        margin = SAME * abs(steep)
        apart = found["low"] > 0 or found["high"] < 0
        within = -margin < found["low"] and found["high"] < margin
        test["verdict"] = "no" if apart else "yes" if within else "undecided"
        out.append(test)
    return out


def _tokenizer(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        # New is the run with the control's tokenizer, so that its perplexity should be lower.
        _test(
            f"{row['new']} - {row['base']}", -1, row["overall"]["percent"], row["overall"]["n"], "%"
        )
        for row in summary["differences"]
        if row["kind"] == "tokenizer"
    ]


def _base(summary: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Curves of static models on the past with their own tokenizer, against a true CONTROL."""
    out = []
    for name, found in summary["curves"].items():
        run = summary["runs"][name]
        plain = not run["adaptation"] and run["tokenizer"] == "own"
        if plain and found["control_kind"] == "control":
            out.append((name, found))
    return out


def _test(test: str, sign: int, found: Mapping[str, Any], n: int, unit: str) -> dict[str, Any]:
    verdict = "undecided"
    if found["low"] is not None and found["high"] is not None:
        ends = sorted((sign * found["low"], sign * found["high"]))
        verdict = "yes" if ends[0] > 0 else "no" if ends[1] < 0 else "undecided"
    return {
        "test": test,
        "sign": sign,
        "difference": found["value"],
        "low": found["low"],
        "high": found["high"],
        "n": n,
        "unit": unit,
        "verdict": verdict,
    }


def _answer(tests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    verdicts = {test["verdict"] for test in tests}
    answer = next((v for v in ("no", "undecided", "yes") if v in verdicts), "not measured")

    def nearness(test: Mapping[str, Any]) -> float:
        """How far a test is on the claim's side; units differ, so in half-widths."""
        low, high = test["low"], test["high"]
        wide = (high - low) / 2 if low is not None and high is not None and high > low else 1.0
        value = test["difference"] or 0.0
        return float((test["sign"] * value if test["sign"] else -abs(value)) / wide)

    deciding = min((t for t in tests if t["verdict"] == answer), key=nearness, default=None)
    figures = ("difference", "low", "high", "n", "unit")
    return {
        "answer": answer,
        **{name: None if deciding is None else deciding[name] for name in figures},
        "decided_by": None if deciding is None else deciding["test"],
    }


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
