"""Samples that fit a time: strata keep their shares, decisions stay, nothing runs twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triaxial.api.budget import decided, fitting, parse_budget, stratified
from triaxial.errors import InputError
from triaxial.execute import Computing


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("90", 90), ("15m", 900), ("2h", 7200), ("1h30m", 5400), ("1.5m", 90)],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0m", "soon", "-5m", "5 minutes", "15m2h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InputError, match=r"^--budget: .* is no time; write 90s, 15m or 1h30m$"):
        parse_budget(text)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=60), st.integers(0, 3))
def test_every_beginning_has_the_shares_of_the_whole(strata: list[str], seed: int) -> None:
    order = stratified(strata, seed)
    assert sorted(order) == list(range(len(strata)))
    sizes = Counter(strata)
    seen: Counter[str] = Counter()
    for number, position in enumerate(order, 1):
        seen[strata[position]] += 1
        for name, size in sizes.items():
            assert abs(seen[name] - number * size / len(strata)) <= 1.5, (name, number)


def test_how_many_fit() -> None:
    # .9 · 100 s - 10 s spent = 80 s at 2 s each: 40 more than the 5 that were measured.
    assert fitting(100, 10, 2.0, 1000, 5) == 45
    assert fitting(100, 10, 2.0, 20, 5) == 20
    assert fitting(5, 10, 2.0, 20, 5) == 5
    assert fitting(100, 10, 0.0, 20, 5) == 20


def test_a_decision_is_made_once(tmp_path: Path) -> None:
    computing, asked = Computing(store=tmp_path), []

    def decide() -> dict[str, int]:
        asked.append(1)
        return {"pairs": 7 * len(asked)}

    for _ in range(3):
        assert decided("merge", {"budget": 60.0}, ["data"], computing, decide) == {"pairs": 7}
    assert decided("merge", {"budget": 61.0}, ["data"], computing, decide) == {"pairs": 14}
