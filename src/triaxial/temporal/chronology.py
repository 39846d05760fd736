"""Documents in the order of time, in rounds and shards, and where a run through them stands.

Order is that of dates, then of ids; a date of a month alone stands before those of its days.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from triaxial.errors import InputError
from triaxial.temporal.corpus import Document, month_of

if TYPE_CHECKING:
    import torch

__all__ = ["Chronology", "State"]


@dataclass(frozen=True, slots=True)
class State:
    """Where a run stands after a shard.

    Args:
        run: Digest of what decides its numbers.
        documents: How many are done.
        seen: Digest of them.
        date: Of the last of them.
        id: Of the last of them.
        tensors: The weights that move, and a carried memory, on the host.
    """

    run: str
    documents: int
    seen: str
    date: str
    id: str
    tensors: dict[str, torch.Tensor]


class Chronology:
    """A stream of documents, checked for its order.

    Args:
        documents: From the beginning.
        state: Of a shard; those that it has seen are passed over, and must be the same.
    """

    def __init__(self, documents: Iterable[Document], state: State | None = None) -> None:
        self._documents, self._state = documents, state
        self.done = 0
        self.seen = ""
        self.last: Document | None = None

    def shards(self, least: int, streams: int, *, by_month: bool) -> Iterator[list[list[Document]]]:
        """Shards of rounds.

        Args:
            least: Documents of a shard; rounds are kept whole.
            streams: Documents of a round.
            by_month: Whether a round ends with its month.

        Raises:
            InputError: The documents are out of order, or not those of the state.
        """
        shard: list[list[Document]] = []
        for some in self._rounds(streams, by_month):
            shard.append(some)
            if sum(map(len, shard)) >= least:
                yield self._passed(shard)
                shard = []
        if shard:
            yield self._passed(shard)

    def state(self, run: str, tensors: dict[str, torch.Tensor]) -> State:
        """Where it stands after the last shard."""
        assert self.last is not None, "no shard was asked for"
        return State(run, self.done, self.seen, self.last.date, self.last.id, tensors)

    def _rounds(self, streams: int, by_month: bool) -> Iterator[list[Document]]:
        some: list[Document] = []
        for document in self._ordered():
            new = by_month and some and month_of(some[0].date) != month_of(document.date)
            if new or len(some) == streams:
                yield some
                some = []
            some.append(document)
        if some:
            yield some

    def _ordered(self) -> Iterator[Document]:
        passed = 0 if self._state is None else self._state.documents
        before: Document | None = None
        count = 0
        for count, document in enumerate(self._documents, 1):
            if before is not None and (document.date, document.id) <= (before.date, before.id):
                raise InputError(
                    f"{document.id!r} of {document.date} comes after {before.id!r} of "
                    f"{before.date}; sort the documents by date, then id",
                    where="documents",
                )
            before = document
            if count > passed:
                yield document
                continue
            self._pass(document)
            if count == passed:
                self._compare()
        if count < passed:
            self._compare()

    def _compare(self) -> None:
        if self._state is None or self.seen != self._state.seen:
            raise InputError(
                "is of other documents; give the same ones from the first on, or adapt anew",
                where="state",
            )

    def _passed(self, shard: list[list[Document]]) -> list[list[Document]]:
        for some in shard:
            for document in some:
                self._pass(document)
        return shard

    def _pass(self, document: Document) -> None:
        what = json.dumps([self.seen, document.id, document.date, document.text])
        self.seen = hashlib.blake2b(what.encode(), digest_size=16).hexdigest()
        self.done += 1
        self.last = document
