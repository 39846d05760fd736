"""Errors: one line, the place first, an exit code by kind."""

from __future__ import annotations

import pickle

import pytest

from triaxial.errors import GateError, InputError, StoreError, TriaxialError

KINDS = [TriaxialError, InputError, StoreError, GateError]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_is_one_line_with_the_place_before_it(kind: type[TriaxialError]) -> None:
    error = kind("label 'maybe'\nis unknown;\npass --label-map", where="data/x.jsonl:17")
    assert str(error) == "data/x.jsonl:17: label 'maybe' is unknown; pass --label-map"
    assert error.where == "data/x.jsonl:17"
    assert len(str(error).splitlines()) == 1


def test_a_place_may_hold_a_line_break_or_be_left_out() -> None:
    assert str(InputError("no such file", where="a\nb.csv")) == "a b.csv: no such file"
    error = InputError("nothing to do")
    assert (str(error), error.where) == ("nothing to do", None)


def test_exit_codes() -> None:
    # Bad input and a bad store are the user's to mend (2); a gate that was not met is a result (1).
    assert [kind.exit_code for kind in KINDS] == [2, 2, 2, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_crosses_a_process_whole(kind: type[TriaxialError]) -> None:
    there = kind("seen; wanted", where="part:3")
    back = pickle.loads(pickle.dumps(there))
    assert (type(back), str(back), back.where, back.exit_code) == (
        kind,
        "part:3: seen; wanted",
        "part:3",
        kind.exit_code,
    )
