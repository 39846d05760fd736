"""The paper's figures, and the paper's claims put to a summary of any model.

A claim is answered from figures of the held-out types after the last stage, with no training
strategy unless the claim names one. Where a claim has several tests all must hold (so no correction
for their number is due); one that turns out the other way round makes it a no.

Source: Fu and Frank, TACL 12, 2024, pp. 912-932.
Choice: what is tested as "ER above the others" is er-res against agem and kd, and each of the three
against none; "primitives right, half of the compositions wrong" is V+N at or above 80 % and CI at
or below 50 % with their whole intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

__all__ = ["CLAIMS", "PAPER", "Printed", "claims", "orders", "printed"]

HIGH, HALF = 80.0, 50.0
ORDERS = ("ver-nat", "nat-ver")


@dataclass(frozen=True, slots=True)
class Printed:
    """A figure of the paper, in percent, for RoBERTa-large unless `model` says otherwise.

    Args:
        stream: As in the prediction table; "*" stands for the order of the stages before.
        strategy: As in the prediction table.
        metric: "V", "N", "V+N", "CI", "CI f_ve" … or "forget N".
        value: Percent.
        derived: Computed by us from other figures of the paper.
        note: From what it was derived, or which stage it belongs to.
        model: The model.
    """

    stream: str
    strategy: str
    metric: str
    value: float
    derived: bool = False
    note: str = ""
    model: str = "RoBERTa-large"


_LLAMA = "Llama-2-7B"
_BASE = "CGen 48.64 of the same experiment"

PAPER: tuple[Printed, ...] = (
    Printed("cgen", "none", "CI", 46.67),
    Printed("cgen", "none", "CI f_ve", 35.76),
    Printed("cgen", "none", "CI f_vn", 85.74),
    Printed("cgen", "none", "CI f_vc", 18.51),
    Printed("ver-nat", "none", "CI", 39.40, True, "46.67 - 7.27"),
    Printed("nat-ver", "none", "CI", 37.36, True, "46.67 - 9.31"),
    Printed("ver-nat", "none", "V", 80.72, False, "after stage 2; the stream is inferred"),
    Printed("nat-ver", "none", "N", 71.15, False, "after stage 2; the stream is inferred"),
    Printed("nat-ver", "none", "forget N", 24.26, False, "93.94 to 71.15"),
    Printed("ver-nat", "er-res", "V+N", 94.04),
    Printed("nat-ver", "er-res", "V+N", 87.43),
    Printed("ver-nat", "er-res", "CI", 44.89, True),
    Printed("nat-ver", "er-res", "CI", 42.34, True),
    Printed("*/easy-hard", "none", "CI", 48.22, True, f"0.42 below {_BASE}"),
    Printed("*/hard-easy", "none", "CI", 46.06, True, f"2.58 below {_BASE}"),
    Printed("p|c", "none", "CI", 46.90, True, f"1.74 below {_BASE}"),
    Printed("cgen", "none", "CI", 49.51, False, "", _LLAMA),
    Printed("ver-nat", "none", "CI", 44.39, True, "49.51 - 5.12", _LLAMA),
    Printed("nat-ver", "none", "CI", 42.63, True, "49.51 - 6.88", _LLAMA),
)
"""What the paper says of its own models and data, to stand beside ours."""

CLAIMS: Mapping[str, str] = MappingProxyType(
    {
        "continual": "learning in stages composes worse than learning all at once",
        "order": "veridical before natural composes better than natural before veridical",
        "replay": "replay (er-res) is above A-GEM and distillation, and all three above none",
        "gap": "both primitives are mostly right while half of the compositions fail",
        "difficulty": "easy before hard compositions is better than hard before easy",
    }
)
"""The five claims, in the order of `claims`."""


def claims(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each claim of `CLAIMS` with its answer, and what decided it.

    Args:
        summary: From `analyses.summarize`.

    Returns:
        `claim`, `text`, `answer` (`yes`, `no`, `undecided`, `not measured`), `difference`, `low`,
        `high` and `n` of the test that decided (the one furthest from the claim among those with
        the answer's verdict), `decided_by`, and all `tests`, each with the same figures, its own
        `verdict` and the sign that the claim wants.
    """
    kinds: dict[str, list[tuple[str, str]]] = {
        "continual": [("offline", "none")],
        "order": [("order", "none")],
        "replay": [("rival", "er-res"), *(("remedy", s) for s in ("er-res", "agem", "kd"))],
        "difficulty": [("difficulty", "none")],
    }
    rivals = ("none", "agem", "kd")
    out = []
    for claim, text in CLAIMS.items():
        if claim == "gap":
            tests = _gaps(summary)
        else:
            sign = -1 if claim == "continual" else 1
            tests = [
                _test(row, sign)
                for row in summary["comparisons"]
                if row["metric"] == "CI"
                and (row["kind"], row["new"]["strategy"]) in kinds[claim]
                and (claim != "replay" or row["base"]["strategy"] in rivals)
                # The paper's two orders; what S3 adds to them has a claim of its own.
                and (claim == "difficulty" or row["new"]["stream"] in ORDERS)
            ]
        out.append({"claim": claim, "text": text, **_answer(tests), "tests": tests})
    return out


def orders(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Streams against each other: what the order of the stages does.

    Returns:
        One row a stream without a remedy, best CI first: `stream`, `stages`, `V+N`, `CI` and
        `functions` on the held-out types after the last stage, `offline` (difference to CGen) and
        `reverse` (difference to the reversed order; both null where not measured), and `paper`
        (CI of the paper, or null).
    """
    told = {
        figure.stream: figure.value
        for figure in PAPER
        if (figure.metric, figure.strategy) == ("CI", "none") and figure.model != _LLAMA
    }
    out = []
    for stream, runs in summary["streams"].items():
        run = runs.get("none")
        scored = run and run["after"][str(run["stages"])]["test"]
        if not scored:
            continue
        found = {
            row["kind"]: row["difference"]
            for row in summary["comparisons"]
            if row["metric"] == "CI" and row["new"] == {"stream": stream, "strategy": "none"}
        }
        out.append(
            {
                "stream": stream,
                "stages": run["stages"],
                "V+N": scored["V+N"],
                "CI": scored["CI"],
                "functions": {name: f["CI"] for name, f in scored["functions"].items()},
                "offline": found.get("offline"),
                "reverse": found.get("difficulty", found.get("order")),
                "paper": told.get(stream, told.get(f"*/{stream.rpartition('/')[2]}")),
            }
        )
    return sorted(out, key=lambda row: -row["CI"]["value"])


def printed() -> list[dict[str, Any]]:
    """`PAPER` as plain values, for JSON."""
    return [asdict(figure) for figure in PAPER]


def _test(row: Mapping[str, Any], sign: int) -> dict[str, Any]:
    """A comparison as a test of a claim that wants a difference of this sign."""
    found = row["difference"]
    sides = [f"{row[side]['stream']} {row[side]['strategy']}" for side in ("new", "base")]
    verdict = "undecided"
    if found["low"] is not None and found["high"] is not None:
        ends = sorted((sign * found["low"], sign * found["high"]))
        verdict = "yes" if ends[0] > 0 else "no" if ends[1] < 0 else "undecided"
    return {
        "test": f"{sides[0]} - {sides[1]}",
        "sign": sign,
        "difference": found["value"],
        **{name: found[name] for name in ("low", "high", "n")},
        "p_holm": row["p_holm"],
        "verdict": verdict,
    }


def _gaps(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """V+N against CI: of the offline run, and of er-res where it was run."""
    out = []
    for stream, runs in summary["streams"].items():
        for strategy, run in runs.items():
            replayed = stream in ORDERS and strategy == "er-res"
            if (stream, strategy) != ("cgen", "none") and not replayed:
                continue
            scored = run["after"][str(run["stages"])]["test"]
            if scored is None or scored["gap"]["value"] is None:
                continue
            primitives, composed = scored["V+N"], scored["CI"]
            verdict = "undecided"
            if primitives["low"] is not None and composed["low"] is not None:
                if primitives["low"] >= HIGH and composed["high"] <= HALF:
                    verdict = "yes"
                elif primitives["high"] < HIGH or composed["low"] > HALF:
                    verdict = "no"
            gap = scored["gap"]
            out.append(
                {
                    "test": f"{stream} {strategy}: V+N - CI",
                    "sign": 1,
                    "difference": gap["value"],
                    **{name: gap[name] for name in ("low", "high", "n")},
                    "p_holm": None,
                    "verdict": verdict,
                }
            )
    return out


def _answer(tests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    verdicts = {test["verdict"] for test in tests}
    answer = next((v for v in ("no", "undecided", "yes") if v in verdicts), "not measured")
    deciding = min(
        (test for test in tests if test["verdict"] == answer),
        key=lambda test: test["sign"] * test["difference"],
        default=None,
    )
    figures = ("difference", "low", "high", "n")
    return {
        "answer": answer,
        **{name: None if deciding is None else deciding[name] for name in figures},
        "decided_by": None if deciding is None else deciding["test"],
    }
