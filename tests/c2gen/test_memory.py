"""Memories: uniform, balanced, nothing from outside, the same after a resume."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from triaxial.c2gen.memory import Memory, balanced, drawn, quotas, reservoir

SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=5)


def cut(sizes: list[int]) -> list[np.ndarray]:
    """Stages of these sizes, rows numbered through, each in an order of its own."""
    ends = np.cumsum([0, *sizes])
    return [np.arange(a, b)[::-1] for a, b in itertools.pairwise(ends)]


def test_reservoir_holds_every_row_of_the_stream_equally_often() -> None:
    # 30 rows in three stages of 5, 10 and 15, 6 places: each is held with probability 1/5
    # (open_spiel #264: the oldest too; avalanche #765: uniform over the whole stream).
    held = np.zeros(30)
    seeds = 3_000
    for seed in range(seeds):
        held[reservoir(cut([5, 10, 15]), 6, seed).rows] += 1
    assert held.sum() == 6 * seeds
    assert chisquare(held).pvalue > 0.001
    # As pairs: rows that straddle the capacity are no more often together than others.
    together = [set(reservoir(cut([5, 10, 15]), 6, seed).rows) >= {5, 6} for seed in range(seeds)]
    assert np.mean(together) == pytest.approx(6 / 30 * 5 / 29, abs=0.01)


def test_reservoir_equals_algorithm_r_written_plainly() -> None:
    from triaxial.stats import generator

    rows, capacity, seed = np.arange(100, 140), 7, 3
    draws = generator("c2gen.reservoir", seed).random(len(rows))
    plain: list[int] = []
    for n, row in enumerate(rows):
        place = int(draws[n] * (n + 1))
        if n < capacity:
            plain.append(int(row))
        elif place < capacity:
            plain[place] = int(row)
    assert reservoir([rows], capacity, seed).rows.tolist() == plain


@given(SIZES, st.integers(1, 40), st.integers(0, 5))
def test_a_memory_holds_what_came_once_and_says_from_where(
    sizes: list[int], capacity: int, seed: int
) -> None:
    stages = cut(sizes)
    kinds = np.arange(sum(sizes) or 1) % 4
    for memory in (reservoir(stages, capacity, seed), balanced(stages, kinds, capacity, seed)):
        assert len(memory) == min(capacity, sum(sizes))
        assert len(set(memory.rows.tolist())) == len(memory)
        for row, stage in zip(memory.rows, memory.stages, strict=True):
            assert row in stages[stage]


@given(SIZES, st.integers(1, 40), st.integers(0, 5), st.data())
def test_a_longer_stream_goes_on_from_its_beginning(
    sizes: list[int], capacity: int, seed: int, data: st.DataObject
) -> None:
    stages = cut(sizes)
    count = data.draw(st.integers(0, sizes[-1]))
    begun = [*stages[:-1], stages[-1][:count]]
    before, after = (set(reservoir(s, capacity, seed).rows.tolist()) for s in (begun, stages))
    assert after <= before | set(stages[-1][count:].tolist())  # what left never comes back
    kinds = np.arange(sum(sizes) or 1) % 4
    held = balanced(stages, kinds, capacity, seed)
    for number in range(len(stages) - 1):  # a stage's share only shrinks
        then = balanced(stages[: number + 1], kinds, capacity, seed)
        mine = set(held.rows[held.stages == number].tolist())
        assert mine <= set(then.rows[then.stages == number].tolist())


@given(SIZES, st.integers(0, 60))
def test_quotas_are_equal_and_waste_nothing(sizes: list[int], capacity: int) -> None:
    shares = quotas(sizes, capacity)
    assert sum(shares) == min(capacity, sum(sizes))  # avalanche #543
    assert all(share <= size for share, size in zip(shares, sizes, strict=True))
    full = [share for share, size in zip(shares, sizes, strict=True) if share < size]
    assert not full or max(shares) - min(full) <= 1


def test_quotas_by_hand() -> None:
    assert quotas([50, 50], 5) == [2, 3]
    assert quotas([3, 50, 50], 100) == [3, 48, 49]  # 33 each; 30 left over of the first's share
    assert quotas([3, 4], 100) == [3, 4]
    assert quotas([], 10) == []


def test_buffer_takes_the_types_in_turn() -> None:
    # 30 rows of type 0 and 3 of type 1: of eight places three go to type 1.
    kinds = np.asarray([0] * 30 + [1] * 3)
    held = balanced([np.arange(33)], kinds, 8, seed=1)
    assert np.bincount(kinds[held.rows]).tolist() == [5, 3]


def test_draws_are_without_replacement_and_named() -> None:
    memory = Memory(np.arange(50, 70), np.zeros(20, dtype=np.intp))
    first = drawn(memory, 8, 1, "stage", 3)
    assert len(set(first.tolist())) == 8
    assert set(first.tolist()) <= set(range(50, 70))
    assert np.array_equal(first, drawn(memory, 8, 1, "stage", 3))
    assert not np.array_equal(first, drawn(memory, 8, 1, "stage", 4))
    assert np.array_equal(drawn(memory, 20, 1), memory.rows)
    counts = np.bincount(
        np.concatenate([drawn(memory, 5, step) for step in range(2_000)]) - 50, minlength=20
    )
    assert chisquare(counts).pvalue > 0.001
