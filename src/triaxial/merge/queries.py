"""Masked queries done once: what is asked of a masked LM, and its answers behind a cache.

Over SICK's 9,840 pairs half of the queries are the same as another, and another preset asks
nothing new at all: answers lie in a cache keyed by weights, precision and masked ids, and the
weights are read only when a query is not there.

Source: MERGE, suggestions; one occurrence is masked at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from triaxial.errors import StoreError
from triaxial.merge.propose import (
    Candidates,
    Occurrence,
    ProposeOptions,
    Vocabulary,
    accepted_by,
    candidates,
    occurrence_texts,
)
from triaxial.merge.targets import Seed, Slot

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from triaxial.models.masked import Fill, MaskedLM, Query

__all__ = ["AnswerCache", "Asked", "Judged", "MaskedSource", "ask", "judge_slots"]


class AnswerCache(Protocol):
    """Rows by 16-byte keys: `store.Cache`, or anything that keeps them."""

    def lookup(self, keys: Sequence[bytes]) -> tuple[NDArray[np.bool_], pl.DataFrame]:
        """Which keys are there, and the rows of those, in the order asked."""
        ...

    def add(self, keys: Sequence[bytes], frame: pl.DataFrame) -> None:
        """Keep rows under their keys."""
        ...


class MaskedSource:
    """A masked LM behind its cache: the weights are read only when a query is not cached.

    Args:
        name: Directory or hub id, `@revision` behind it where wanted.
        label: Its name in the tables.
        precision: `fp32`, `bf16` or `auto`.
        k: Suggestions a query.
        open_cache: From fingerprint, k and columns to the cache of the answers.
        device: `auto`, `cpu`, `cuda`, `cuda:N`, `mps`.
        token_budget: Padded tokens of a batch.
    """

    def __init__(
        self,
        name: str,
        label: str,
        precision: Literal["auto", "fp32", "bf16"],
        k: int,
        open_cache: Callable[[Mapping[str, str], int, Mapping[str, pl.DataType]], AnswerCache],
        *,
        device: str = "auto",
        token_budget: int | None = None,
    ) -> None:
        import polars as pl

        from triaxial.models.base import Work, hardware, split_revision
        from triaxial.models.masked import MaskedTokenizer

        self.label = label
        self._given = (name, label, precision, k, open_cache, device, token_budget)
        self._place, self._revision = split_revision(name)
        self._token_budget = token_budget
        self._hardware = hardware(device, precision)
        self.tokenizer = MaskedTokenizer(self._place, self._revision)
        self.vocabulary = Vocabulary(self.tokenizer)
        self.k = min(k, self.tokenizer.config.vocab_size)
        self.fingerprint = {
            **self.tokenizer.checkpoint.fingerprint,
            "precision": self._hardware.precision,
        }
        self.schema: dict[str, pl.DataType] = {
            "ids": pl.Array(pl.Int32, self.k),
            "log_p": pl.Array(pl.Float32, self.k),
            "log_p_target": pl.Float32(),
        }
        self.cache = open_cache(self.fingerprint, self.k, self.schema)
        self._model: MaskedLM | None = None
        self._work = Work()

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, self._given

    @property
    def work(self) -> dict[str, int]:
        """Forwards, rows and tokens computed by this process, or told to it."""
        return self._work.facts()

    def count(self, work: Mapping[str, int]) -> None:
        """Add the work of another process."""
        for name, count in work.items():
            setattr(self._work, name, getattr(self._work, name) + count)

    def compute(self, queries: Sequence[Query]) -> int:
        """Fill the queries that are not cached, as one committed segment; how many they were."""
        import polars as pl

        from triaxial.models.masked import load_masked

        distinct = {query.key: query for query in queries}
        found, _ = self.cache.lookup(list(distinct))
        missing = [
            query for query, there in zip(distinct.values(), found, strict=True) if not there
        ]
        if not missing:
            return 0
        if self._model is None:
            self._model = load_masked(
                self._place,
                revision=self._revision,
                device=self._hardware.device,
                precision=self._hardware.precision,
                token_budget=self._token_budget,
            )
            self._model.work = self._work
        fill = self._model.fill(missing, self.k)
        columns = {"ids": fill.ids, "log_p": fill.log_p, "log_p_target": fill.log_p_target}
        frame = pl.DataFrame(
            [pl.Series(name, values, self.schema[name]) for name, values in columns.items()]
        )
        self.cache.add([query.key for query in missing], frame)
        return len(missing)

    def look_up(self, queries: Sequence[Query]) -> Fill:
        """Answers from the cache alone, in the order of the queries."""
        from triaxial.models.masked import Fill

        found, frame = self.cache.lookup([query.key for query in queries])
        if not found.all():
            raise StoreError(
                f"{int((~found).sum())} masked queries are not in this store; name the store that "
                "the set was made with, or generate again",
                where=self.label,
            )
        return Fill(
            frame["ids"].to_numpy().reshape(-1, self.k),
            frame["log_p"].to_numpy().reshape(-1, self.k),
            frame["log_p_target"].to_numpy(),
        )

    def release(self) -> None:
        """Drop the weights: masked LMs are computed one after the other."""
        self._model = None


@lru_cache(32)
def _opened(
    name: str,
    label: str,
    precision: Literal["auto", "fp32", "bf16"],
    k: int,
    open_cache: Callable[[Mapping[str, str], int, Mapping[str, pl.DataType]], AnswerCache],
    device: str,
    token_budget: int | None,
) -> MaskedSource:
    """A source that came from another process: one here, however often it comes."""
    return MaskedSource(
        name, label, precision, k, open_cache, device=device, token_budget=token_budget
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """One slot at one masked LM: its queries, or the fate of a slot that cannot be asked."""

    slot: Slot
    queries: tuple[Query, ...]
    fate: str


def ask(
    seeds: Sequence[Seed],
    slots: Sequence[Sequence[Slot]],
    source: MaskedSource,
    options: ProposeOptions,
) -> list[list[Asked]]:
    """The queries of every slot at one masked LM, by seed."""
    from triaxial.models.masked import Place

    places, counts = [], []
    for seed, mine in zip(seeds, slots, strict=True):
        for slot in mine:
            texts = occurrence_texts(seed, slot, options)
            counts.append(len(texts))
            places += [Place(*text) for text in texts]
    answers = iter(source.tokenizer.queries(places))
    sizes = iter(counts)
    out = []
    for mine in slots:
        row = []
        for slot in mine:
            got = [next(answers) for _ in range(next(sizes))]
            reasons = [answer for answer in got if isinstance(answer, str)]
            queries = tuple(answer for answer in got if not isinstance(answer, str))
            row.append(Asked(slot, () if reasons else queries, reasons[0] if reasons else "asked"))
        out.append(row)
    return out


@dataclass(frozen=True, slots=True)
class Judged:
    """Everything that became of one slot: by masked LM, and of the words that passed."""

    seed: Seed
    slot: Slot
    fates: Mapping[str, str]
    by_mlm: Mapping[str, Candidates]
    own: Mapping[str, tuple[float, ...]]
    accepted: Mapping[str, tuple[str, ...]]


def judge_slots(
    seeds: Sequence[Seed],
    slots: Sequence[Sequence[Slot]],
    sources: Sequence[MaskedSource],
    options: ProposeOptions,
) -> list[Judged]:
    """The cheap conditions on every slot, from cached answers."""
    asked = {source.label: ask(seeds, slots, source, options) for source in sources}
    answers = {}
    for source in sources:
        queries = [q for row in asked[source.label] for one in row for q in one.queries]
        answers[source.label] = iter(_rows(source.look_up(queries) if queries else None))
    out = []
    for position, (seed, mine) in enumerate(zip(seeds, slots, strict=True)):
        sides = seed.sides()
        pair_words = [word.text for _, tokens, _ in sides for word in tokens]
        for number, slot in enumerate(mine):
            fates, found, own = {}, {}, {}
            for source in sources:
                one = asked[source.label][position][number]
                fates[source.label] = one.fate
                if not one.queries:
                    continue
                occurrences = []
                for (side, index), query in zip(slot.places(), one.queries, strict=True):
                    ids, log_p, target = next(answers[source.label])
                    surface = sides[side][1][index].text
                    occurrences.append(Occurrence(side, query.unit, surface, ids, log_p, target))
                own[source.label] = tuple(o.log_p_target for o in occurrences)
                found[source.label] = candidates(
                    occurrences, pair_words, source.vocabulary, options
                )
            out.append(Judged(seed, slot, fates, found, own, accepted_by(found, options.across)))
    return out


def _rows(fill: Fill | None) -> Iterator[tuple[Any, Any, float]]:
    if fill is not None:
        for ids, log_p, target in zip(fill.ids, fill.log_p, fill.log_p_target, strict=True):
            yield ids, log_p, float(target)
