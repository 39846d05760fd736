"""Gates on figures of all axes, and the signature of MERGE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from triaxial.api.gates import (
    c2gen_figures,
    check_gate,
    merge_figures,
    parse_gate,
    temporal_figures,
)
from triaxial.errors import GateError, InputError
from triaxial.merge.score import DrawOptions, Scores, scores, signature
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
    check_gate(merge_figures(RUN), condition)


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
        check_gate(merge_figures(RUN), condition)
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
        assert parse_gate(f"SV95 < {limit}").limit == float(limit)


@pytest.mark.parametrize(
    "condition",
    ["", "SV95", "SV95 = 70", "SV93 < 70", "SV0 < 1", "SV105 < 70", "sv95 < 70", "F1 < 7"],
)
def test_conditions_that_cannot_be_read(condition: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_gate(condition)
    assert str(caught.value) == (
        f"--fail-if: {condition!r} cannot be read; wanted [GROUP:]METRIC < LIMIT with S, "
        "MC, SV5 … SV100 (replacement), V, N, V+N, CI, forgetting (composition), increase, slope, "
        "perplexity (time), such as 'SV95 < 70'"
    )


@pytest.mark.parametrize("limit", ["seventy", "70%", "nan", "inf"])
def test_limits_that_are_no_numbers(limit: str) -> None:
    with pytest.raises(
        InputError, match=rf"^--fail-if: '{limit}' is no number; wanted .GROUP:.METRIC <"
    ):
        parse_gate(f"SV95 < {limit}")


def test_what_the_run_does_not_have() -> None:
    with pytest.raises(
        InputError,
        match=r"^--fail-if: the run has no SV95 of 'ADV'; it has them of VERB, all, org/a:b$",
    ):
        check_gate(merge_figures(RUN), "ADV:SV95 < 70")
    nothing = metrics(none={"all": {"all": scored(3, right=False)}})
    with pytest.raises(InputError, match=r"^--fail-if: the run has no MC; it has them of all$"):
        check_gate(merge_figures(nothing), "MC < 50")
    with pytest.raises(InputError, match="no model was scored, so the gate says nothing"):
        check_gate(merge_figures({"models": {}}), "SV95 < 70")


def test_the_signature_says_what_makes_a_figure_comparable() -> None:
    assert signature("faithful", 2, DrawOptions(), scored(19), "1.2.3") == (
        "SV95 = 100.0 [34.2, 100.0] | n:20 | draws:10 | seeds:2 | preset:faithful | mlm:2 | "
        "seed:1 | v:1.2.3"
    )


def test_figures_of_the_other_axes() -> None:
    of = {"V": 90.0, "N": 80.0, "V+N": 75.0, "CI": 40.0}
    run = {
        "stages": 2,
        "after": {"2": {"test": {name: {"value": value} for name, value in of.items()}}},
        "forgetting": {"probe": None, "test": {"forget": {"CI": {"value": 24.26}}}},
    }
    composed = c2gen_figures({"streams": {"ver-nat": {"er-res": run}}})
    check_gate(composed, "CI < 40")
    with pytest.raises(GateError, match=r"^gate 'er-res:CI < 50' failed: ver-nat er-res: CI = 40"):
        check_gate(composed, "er-res:CI < 50")
    with pytest.raises(GateError, match=r"ver-nat er-res: forgetting = 24.3"):
        check_gate(composed, "forgetting > 20")
    with pytest.raises(InputError, match=r"has no V.N of 'kd'; it has them of er-res, ver-nat$"):
        check_gate(composed, "kd:V+N < 50")
    past = {"overall": {"percent": {"value": 6.34}}, "slope": {"value": 0.2}}
    drifted = temporal_figures(
        {
            "runs": {name: {"perplexity": {"value": 22.0}} for name in ("past", "control")},
            "curves": {"past": past},
        }
    )
    check_gate(drifted, "slope > 0.5")  # not percent of something: a small limit is one
    with pytest.raises(GateError, match=r"past: increase = 6.3$"):
        check_gate(drifted, "increase > 5")
    with pytest.raises(GateError, match=r"control: perplexity = 22.0$"):
        check_gate(drifted, "control:perplexity > 20")
