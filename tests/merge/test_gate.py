"""The gate and the signature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from triaxial.errors import GateError, InputError
from triaxial.merge.gate import check_gate, parse_gate, signature
from triaxial.merge.score import DrawOptions, Scores, scores
from triaxial.stats import generator


def scored(hits: int, right: bool = True) -> Scores:
    correct = np.zeros((2, 10, 20), bool)
    correct[:, :, :hits] = True
    return scores(np.full(2, right), correct, correct, ["p", "q"], rng=generator("test"))


def metrics(**models: dict[str, dict[str, Scores]]) -> dict[str, Any]:
    return {
        "models": {
            model: {kind: {n: s.plain() for n, s in row.items()} for kind, row in kinds.items()}
            | {"signature": "text"}
            for model, kinds in models.items()
        }
    }


RUN = metrics(
    good={
        "all": {"all": scored(20)},
        "class": {"VERB": scored(10)},
        "source": {"org/a:b": scored(5)},
    },
    bad={
        "all": {"all": scored(18)},
        "class": {"VERB": scored(20)},
        "source": {"org/a:b": scored(9)},
    },
)


@pytest.mark.parametrize(
    "condition",
    ["SV95 < 0", "SV90 < 100", "S<100", "S > 100", "MC < 90", "all:SV95 > 100", "SV5<=99.9"],
)
def test_a_gate_that_holds(condition: str) -> None:
    check_gate(RUN, condition)


@pytest.mark.parametrize(
    ("condition", "models"),
    [
        ("SV95 < 70", "bad: SV95 = 0.0"),
        ("  SV95<=0 ", "bad: SV95 = 0.0"),
        ("SV90 >= 100", "good: SV90 = 100.0; bad: SV90 = 100.0"),
        ("MC < 95", "bad: MC = 90.0"),
        ("VERB:SV95 < 60", "good: SV95 = 0.0"),
        ("VERB:S > 99", "good: S = 100.0; bad: S = 100.0"),
        ("org/a:b:SV30 < 50", "good: SV30 = 0.0"),
    ],
)
def test_a_gate_that_fails(condition: str, models: str) -> None:
    with pytest.raises(GateError) as caught:
        check_gate(RUN, condition)
    assert str(caught.value) == f"gate {condition!r} failed: {models}"
    assert caught.value.exit_code == 1


def test_limits_are_percent() -> None:
    for limit in ("0.7", ".05", "0.999"):
        with pytest.raises(InputError) as caught:
            parse_gate(f"SV95 < {limit}")
        shown = f"{100 * float(limit):g}"
        assert str(caught.value).startswith("--fail-if: a limit of 0.")
        assert str(caught.value).endswith(f"looks like a share; give percent ({shown})")
    for limit in ("0", "1", "1.0", "70", "99.5", "100"):
        assert parse_gate(f"SV95 < {limit}")[3] == float(limit)


@pytest.mark.parametrize(
    "condition",
    ["", "SV95", "SV95 = 70", "SV93 < 70", "SV0 < 1", "SV105 < 70", "sv95 < 70", "F1 < 7"],
)
def test_conditions_that_cannot_be_read(condition: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_gate(condition)
    assert str(caught.value) == (
        f"--fail-if: {condition!r} cannot be read; wanted METRIC < PERCENT with S, MC or "
        "SV5 … SV100, such as 'SV95 < 70'"
    )


@pytest.mark.parametrize("limit", ["seventy", "70%", "nan", "inf"])
def test_limits_that_are_no_numbers(limit: str) -> None:
    with pytest.raises(InputError, match=rf"^--fail-if: '{limit}' is no number; wanted METRIC <"):
        parse_gate(f"SV95 < {limit}")


def test_what_the_run_does_not_have() -> None:
    with pytest.raises(InputError, match=r"^--fail-if: good has no SV95 for 'ADV'$"):
        check_gate(RUN, "ADV:SV95 < 70")
    nothing = metrics(none={"all": {"all": scored(3, right=False)}})
    with pytest.raises(InputError, match=r"^--fail-if: none has no MC for 'all'$"):
        check_gate(nothing, "MC < 50")
    with pytest.raises(InputError, match="no model was scored, so the gate says nothing"):
        check_gate({"models": {}}, "SV95 < 70")


def test_the_signature_says_what_makes_a_figure_comparable() -> None:
    assert signature("faithful", 2, DrawOptions(), scored(19), "1.2.3") == (
        "SV95 = 100.0 [100.0, 100.0] | n:20 | draws:10 | seeds:2 | preset:faithful | mlm:2 | "
        "seed:1 | v:1.2.3"
    )
