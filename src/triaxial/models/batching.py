"""Batches under a token budget, sorted by length, halved when memory runs out.

Padding is most of the cost of a careless loop: sentences of 13 pieces padded to 512 cost forty
times the tokens, unsorted batches nearly twice.  A batch is a run of rows of similar length whose
padded size stays within the budget.

B rows, T padded length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from triaxial.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TOKEN_BUDGET", "length_batches", "pad", "with_backoff"]

# Large enough that matrix products run at full rate, small enough for the cache of a laptop.
TOKEN_BUDGET = {"cpu": 2_048, "mps": 16_384, "cuda": 65_536}

Output = TypeVar("Output")


def length_batches(
    lengths: Sequence[int] | NDArray[np.integer], token_budget: int, *, most_rows: int = 1 << 30
) -> list[NDArray[np.intp]]:
    """Indices of rows, batch by batch, longest first, each with B * T <= `token_budget`.

    Every index occurs once. A row longer than the budget is a batch of its own. Longest first, so
    that memory that runs out does so at once and not after an hour. Rows of equal length keep
    their order, so the batches depend on the lengths alone.
    """
    lengths = np.asarray(lengths)
    order = np.argsort(-lengths, kind="stable")
    batches = []
    at = 0
    while at < len(order):
        width = max(int(lengths[order[at]]), 1)
        rows = min(max(token_budget // width, 1), most_rows)
        batches.append(order[at : at + rows])
        at += rows
    return batches


def pad(rows: Sequence[Sequence[int]], value: int, width: int | None = None) -> NDArray[np.int64]:
    """Rows of unequal length as one array (B, T), padded on the right with `value`."""
    width = max(map(len, rows)) if width is None else width
    out = np.full((len(rows), width), value, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out


def with_backoff(
    forward: Callable[[NDArray[np.intp]], Output], batch: NDArray[np.intp]
) -> Iterable[tuple[NDArray[np.intp], Output]]:
    """Run `forward` on a batch of row indices; in halves, quarters, … when memory runs out.

    Yields the indices and the output of each part. The caller pads every part to the width of the
    whole batch, so that a split changes no result.

    Raises:
        InputError: A single row does not fit.
    """
    try:
        output = forward(batch)
    except Exception as error:
        if not _out_of_memory(error):
            raise
        if len(batch) == 1:
            raise InputError(
                "out of memory on a single row; use a smaller model, bf16 or another device",
                where="device",
            ) from None
    else:
        yield batch, output
        return
    _release_memory()
    middle = len(batch) // 2
    yield from with_backoff(forward, batch[:middle])
    yield from with_backoff(forward, batch[middle:])


def _out_of_memory(error: Exception) -> bool:
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "not enough memory" in text or "can't allocate memory" in text
    )


def _release_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
