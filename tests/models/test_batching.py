"""Batches: every row once, within the budget, longest first; memory that runs out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.models.batching import TOKEN_BUDGET, length_batches, pad, with_backoff

lengths_of = st.lists(st.integers(0, 60), max_size=60)


@given(lengths_of, st.integers(1, 200), st.integers(1, 9))
def test_every_row_once_within_the_budget(lengths: list[int], budget: int, most: int) -> None:
    batches = length_batches(lengths, budget, most_rows=most)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    order = [lengths[i] for batch in batches for i in batch]
    assert order == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) <= most
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= budget


@given(lengths_of, st.integers(1, 200))
def test_batches_cannot_take_a_row_more(lengths: list[int], budget: int) -> None:
    batches = length_batches(lengths, budget)
    for batch in batches[:-1]:
        assert (len(batch) + 1) * max(lengths[batch[0]], 1) > budget


def test_rows_of_equal_length_keep_their_order() -> None:
    (batch,) = length_batches([3, 5, 3, 5, 3], 100)
    assert batch.tolist() == [1, 3, 0, 2, 4]


def test_a_row_longer_than_the_budget_is_alone() -> None:
    assert [b.tolist() for b in length_batches([50, 2, 2], 4)] == [[0], [1, 2]]


def test_sorted_batches_hold_little_padding() -> None:
    # 512 sentences of 5 to 25 pieces: padding is below a tenth; unsorted it is two thirds more.
    lengths = np.random.default_rng(0).integers(5, 26, 512)
    padded = sum(len(b) * lengths[b[0]] for b in length_batches(lengths, 512))
    assert padded < 1.1 * lengths.sum()


def test_padding() -> None:
    assert pad([[1, 2], [3]], 9).tolist() == [[1, 2], [3, 9]]
    assert pad([[1, 2], [3]], 0, 4).tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]


def test_budgets_are_for_the_devices_that_hardware_allows() -> None:
    assert set(TOKEN_BUDGET) == {"cpu", "cuda", "mps"}


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: not enough memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    MemoryError(),
]


def limited(most: int, error: Exception, calls: list[int]) -> Callable[..., list[int]]:
    def forward(part: np.ndarray) -> list[int]:
        calls.append(len(part))
        if len(part) > most:
            raise error
        return [10 * i for i in part]

    return forward


@pytest.mark.parametrize("error", ERRORS, ids=["cuda", "cpu", "cpu-mmap", "numpy"])
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_halves_until_it_fits(error: Exception, most: int) -> None:
    calls: list[int] = []
    batch = np.asarray([7, 3, 5, 1, 2])
    parts = list(with_backoff(limited(most, error, calls), batch))
    assert [i for part, _ in parts for i in part] == batch.tolist()
    assert all(out == [10 * i for i in part] for part, out in parts)
    assert calls[0] == 5
    assert len(calls) <= 2 * len(batch) - 1  # a binary tree over the rows at most


def test_a_single_row_that_does_not_fit() -> None:
    with pytest.raises(InputError, match=r"^device: out of memory on a single row; use a smaller"):
        list(with_backoff(limited(0, ERRORS[0], []), np.arange(4)))


def test_other_errors_pass_through() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        list(with_backoff(limited(1, RuntimeError("mat1 and mat2 shapes"), []), np.arange(4)))
