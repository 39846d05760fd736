"""Documents cut into what one update of a training reads: parallel streams, or windows.

The documents become one row of pieces, a mark before, between and after them: `<s> d1 <s> d2 <s>`.
Every piece and every end of a document is a target exactly once an epoch; nothing is dropped, and
what is missing to a full last segment is padding without a target.

Where documents may not see each other (`borders="reset"`), each begins a segment of its own.

B streams or windows of an update, T pieces of a segment, S segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from triaxial.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IGNORED", "Borders", "Cut", "cut_streams", "cut_windows"]

IGNORED = -100  # no target, as everywhere in torch
Borders = Literal["carry", "reset"]


@dataclass(frozen=True, slots=True)
class Cut:
    """What one update reads.

    Args:
        ids: Pieces, shape (B, T).
        targets: The piece after each one, shape (B, T); `IGNORED` where there is none.
        reset: Rows that remember nothing here, shape (B,), bool.
    """

    ids: NDArray[np.int32]
    targets: NDArray[np.int32]
    reset: NDArray[np.bool_]


def cut_streams(
    texts: Sequence[NDArray[np.int32]],
    mark: int,
    rows: int,
    width: int,
    borders: Borders,
    rng: np.random.Generator,
) -> list[Cut]:
    """An epoch of parallel streams: row b of each cut goes on where row b of the one before ended.

    Args:
        texts: Pieces of each document.
        mark: Stands before and after each.
        rows: Streams.
        width: Pieces of a segment; the last of the epoch may be shorter.
        borders: Whether a document may see those before it (`carry`) or not (`reset`).
        rng: Of the order of documents.

    Returns:
        As many cuts for any order.

    Raises:
        InputError: There are more streams than pieces, or segments.
    """
    ids: NDArray[Any]
    targets: NDArray[Any]
    begins: NDArray[Any]
    if borders == "carry":
        row = _row(texts, mark, rng)
        ids, targets = row[:-1], row[1:]
        begins = np.zeros(len(ids), dtype=np.bool_)
    else:
        ids, targets, begins = _own_segments(texts, mark, width, rng)
    units = len(ids)  # pieces, or whole segments
    if units < rows:
        what = "pieces" if borders == "carry" else "segments"
        raise InputError(
            f"is {rows} for {units} {what}; choose fewer or give more text", where="rows"
        )
    length = -(-units // rows)
    missing = rows * length - units
    # Row b is stream b, shape (B, all of the stream).
    ids = _filled(ids, missing, mark).reshape(rows, -1)
    targets = _filled(targets, missing, IGNORED).reshape(rows, -1)
    begins = _filled(begins, missing, False).reshape(rows, length)
    begins[:, 0] = True
    step = width if borders == "carry" else 1  # pieces, or whole segments, of a cut
    return [
        Cut(ids[:, at : at + width], targets[:, at : at + width], begins[:, at // width * step])
        for at in range(0, ids.shape[1], width)
    ]


def cut_windows(
    texts: Sequence[NDArray[np.int32]],
    mark: int,
    rows: int,
    width: int,
    borders: Borders,
    rng: np.random.Generator,
) -> list[Cut]:
    """An epoch of windows in random order; arguments as for `cut_streams`.

    Windows do not overlap. With `reset` each lies within one document, whose later windows begin
    without its earlier pieces.
    """
    if borders == "carry":
        row = _row(texts, mark, rng)
        missing = -(len(row) - 1) % width
        ids = _filled(row[:-1], missing, mark).reshape(-1, width)
        targets = _filled(row[1:], missing, IGNORED).reshape(-1, width)
    else:
        ids, targets, _ = _own_segments(texts, mark, width, rng)
    order = rng.permutation(len(ids))
    cuts = []
    for at in range(0, len(order), rows):
        some = order[at : at + rows]
        used = int((targets[some] != IGNORED).any(0).nonzero()[0].max()) + 1
        cuts.append(Cut(ids[some, :used], targets[some, :used], np.ones(len(some), dtype=np.bool_)))
    return cuts


def _row(
    texts: Sequence[NDArray[np.int32]], mark: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """All documents in random order, a mark before, between and after them."""
    marks = np.asarray([mark], dtype=np.int32)
    order = rng.permutation(len(texts))
    return np.concatenate([part for n in order for part in (marks, texts[n])] + [marks])


def _own_segments(
    texts: Sequence[NDArray[np.int32]], mark: int, width: int, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """Documents in random order, each in segments of its own.

    Returns:
        Ids and targets, each of shape (S, T), and which segments begin a document, shape (S,).
    """
    order = rng.permutation(len(texts))
    counts = [-(-(len(texts[n]) + 1) // width) for n in order]
    ids = np.full((sum(counts), width), mark, dtype=np.int32)
    targets = np.full((sum(counts), width), IGNORED, dtype=np.int32)
    begins = np.zeros(sum(counts), dtype=np.bool_)
    at = 0
    for n, count in zip(order, counts, strict=True):
        size = len(texts[n])
        ids[at : at + count].reshape(-1)[1 : size + 1] = texts[n]
        targets[at : at + count].reshape(-1)[:size] = texts[n]
        targets[at : at + count].reshape(-1)[size] = mark
        begins[at] = True
        at += count
    return ids, targets, begins


def _filled(array: NDArray[Any], missing: int, value: int | bool) -> NDArray[Any]:
    """`missing` more entries at the end."""
    return np.concatenate([array, np.full((missing, *array.shape[1:]), value, dtype=array.dtype)])
