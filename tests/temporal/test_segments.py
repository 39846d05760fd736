"""What an update reads: every target once an epoch, streams that go on, borders that hold."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.stats import generator
from triaxial.temporal.segments import IGNORED, Cut, cut_streams, cut_windows

MARK = 1
TEXTS = [np.asarray(ids, dtype=np.int32) for ids in ([10, 11, 12], [20], [30, 31, 32, 33, 34, 35])]


def pairs(cuts: list[Cut]) -> list[tuple[int, int]]:
    """Piece and target of every place that counts."""
    return sorted(
        (int(one), int(target))
        for cut in cuts
        for one, target in zip(cut.ids.ravel(), cut.targets.ravel(), strict=True)
        if target != IGNORED
    )


def wanted(texts: list[np.ndarray]) -> list[tuple[int, int]]:
    """By hand: a mark before and after each document."""
    rows = [[MARK, *text.tolist(), MARK] for text in texts]
    return sorted((a, b) for row in rows for a, b in pairwise(row))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(1, 7),
    st.sampled_from(["carry", "reset"]),
    st.sampled_from([cut_streams, cut_windows]),
)
def test_every_target_once(sizes: list[int], rows: int, width: int, borders: Any, cut: Any) -> None:
    # Also the tails, which transformer-xl's public code drops.
    texts = [
        np.arange(100 * n + 2, 100 * n + 2 + size, dtype=np.int32) for n, size in enumerate(sizes)
    ]
    try:
        cuts, again = (cut(texts, MARK, rows, width, borders, generator(seed)) for seed in (1, 2))
    except InputError:
        assert cut is cut_streams
        return
    assert pairs(cuts) == pairs(again) == wanted(texts)
    assert [c.ids.shape for c in cuts] == [c.ids.shape for c in again] or cut is cut_windows
    assert len(cuts) == len(again)
    assert all(c.ids.shape == c.targets.shape and c.ids.shape[1] <= width for c in cuts)


def test_streams_go_on_where_they_stopped() -> None:
    # 13 places in two streams of 7, the last of the second is padding.
    cuts = cut_streams(TEXTS, MARK, 2, 3, "carry", generator(1))
    assert [cut.ids.shape for cut in cuts] == [(2, 3), (2, 3), (2, 1)]
    ids = np.concatenate([cut.ids for cut in cuts], 1)
    targets = np.concatenate([cut.targets for cut in cuts], 1)
    row, after = ids.ravel()[:-1], targets.ravel()[:-1]
    assert row[1:].tolist() == after[:-1].tolist()
    assert (targets == IGNORED).sum() == 1
    assert [cut.reset.tolist() for cut in cuts] == [[True, True], [False, False], [False, False]]


def test_with_reset_each_document_begins_a_segment_and_forgets() -> None:
    # 4, 2 and 7 places: 2, 1 and 3 segments of 3, in two streams of 3 segments.
    cuts = cut_streams(TEXTS, MARK, 2, 3, "reset", generator(1))
    assert len(cuts) == 3
    for at, cut in enumerate(cuts):
        for ids, targets, reset in zip(cut.ids, cut.targets, cut.reset, strict=True):
            begins = ids[0] == MARK
            assert reset == (begins or at == 0)
            real = ids[targets != IGNORED]
            assert (real[1:] != MARK).all()  # never two documents in a segment
            assert len({int(n) // 10 for n in real if n != MARK}) <= 1


def test_windows_of_a_document_are_no_wider_than_needed() -> None:
    cuts = cut_windows(TEXTS[1:2], MARK, 4, 50, "reset", generator(1))
    assert [cut.ids.tolist() for cut in cuts] == [[[MARK, 20]]]
    assert cuts[0].targets.tolist() == [[20, MARK]]


@pytest.mark.parametrize(("borders", "what"), [("carry", "13 pieces"), ("reset", "6 segments")])
def test_more_streams_than_text(borders: Any, what: str) -> None:
    with pytest.raises(InputError, match=f"^rows: is 99 for {what}; choose fewer or give more"):
        cut_streams(TEXTS, MARK, 99, 3, borders, generator(1))
