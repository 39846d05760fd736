"""A scripted masked LM, a table tagger and tiny models: what the tests of MERGE are played with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triaxial.merge.propose import Vocabulary
from triaxial.merge.targets import Seed, tagged_seeds
from triaxial.models.masked import Fill, Place, Query
from triaxial.models.tagger import Tag
from triaxial.models.tiny import tiny_classifier, tiny_masked
from triaxial.nli import Label, Pair
from triaxial.text import fold

NO_WORDS = ("##s", "Ġ", "1", ".", "[MASK]")


class TableTagger:
    """Tags by a table, word by word, case-folded."""

    name = "table"
    fingerprint: Mapping[str, str] = {"name": "table"}

    def __init__(self, table: Mapping[str, Tag]) -> None:
        self.table = table
        self.sentences: list[tuple[str, ...]] = []

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[tuple[Tag, ...]]:
        self.sentences += [tuple(sentence) for sentence in sentences]
        return [
            tuple(self.table.get(fold(w), Tag("X", "", fold(w))) for w in sentence)
            for sentence in sentences
        ]


def table_tagger(lines: str) -> TableTagger:
    """From "NOUN sing: dog cat" lines; a lemma of its own is written "dogs/dog"."""
    table = {}
    for line in filter(None, map(str.strip, lines.splitlines())):
        kind, _, listed = line.partition(":")
        pos, _, form = kind.strip().partition(" ")
        for item in listed.split():
            word, _, lemma = item.partition("/")
            table[word] = Tag(pos, form, lemma or word)
    return TableTagger(table)


Script = Callable[[Place], tuple[float, Iterable[tuple[str, float]]]]


class ScriptedLM:
    """Stands for `MaskedSource`: its answers are told, word by word, and its pieces too.

    Args:
        label: Name.
        script: From a place to log p(o) and the suggestions, likeliest first.
        words: More words of its vocabulary.
        split: Words that it has no single token for.
    """

    def __init__(
        self, label: str, script: Script, words: Sequence[str] = (), split: Sequence[str] = ()
    ) -> None:
        self.label, self.script, self.split = label, script, frozenset(split)
        self.entries: list[str] = [*NO_WORDS, *words]
        self.tokenizer, self.vocabulary = self, Vocabulary(self)
        self.places: list[Place] = []
        self.fingerprint = {"name": label}

    special_tokens = ("[MASK]", "[CLS]")

    def forms(self, unit: str) -> list[str | None]:
        return [None if entry in NO_WORDS else entry for entry in self.entries]

    def queries(self, places: Sequence[Place]) -> list[Query | str]:
        out: list[Query | str] = []
        for place in places:
            self.places.append(place)
            if place.text[place.start : place.end].lower() in self.split:
                out.append("split")
            else:
                unit: Any = "start" if place.start == 0 else "spaced"
                out.append(Query((len(self.places) - 1,), (), 0, 0, unit))
        return out

    def look_up(self, queries: Sequence[Query]) -> Fill:
        answers = [self.script(self.places[query.ids[0]]) for query in queries]
        rows = [[*suggestions] for _, suggestions in answers]
        for row in rows:
            self.entries += [word for word, _ in row if word not in self.entries]
        width = max([len(row) for row in rows] + [1])
        ids = np.full((len(rows), width), self.entries.index("##s"), dtype=np.int32)
        log_p = np.full((len(rows), width), -99.0, dtype=np.float32)
        for n, row in enumerate(rows):
            ids[n, : len(row)] = [self.entries.index(word) for word, _ in row]
            log_p[n, : len(row)] = [value for _, value in row]
        own = np.asarray([float(value) for value, _ in answers], dtype=np.float32)
        return Fill(ids, log_p, own)


def says(words: str, *, own: float = -5.0, log_p: float = -2.0) -> Script:
    """The same words at every place, each likelier than the word itself."""
    return lambda place: (own, [(word, log_p - n / 100) for n, word in enumerate(words.split())])


class MemoryCache:
    """An `AnswerCache` in a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Any] = {}
        self.added: list[int] = []
        self.schema: Mapping[str, Any] = {}

    def lookup(self, keys: Sequence[bytes]) -> Any:
        import polars as pl

        found = np.asarray([key in self.rows for key in keys], dtype=bool)
        frames = [self.rows[key] for key in keys if key in self.rows]
        return found, pl.concat(frames) if frames else pl.DataFrame(schema=self.schema)

    def add(self, keys: Sequence[bytes], frame: Any) -> None:
        self.added.append(len(keys))
        self.rows |= {key: frame[n : n + 1] for n, key in enumerate(keys)}


def seeds(tagger: Any, *pairs: tuple[str, str], label: Label = Label.NEUTRAL) -> list[Seed]:
    numbered = [Pair(str(n), p, h, label) for n, (p, h) in enumerate(pairs)]
    return tagged_seeds(numbered, tagger)


@pytest.fixture(scope="session")
def toy() -> SimpleNamespace:
    """`toy.tagger(lines)`, `toy.seeds(tagger, *pairs)`, `toy.lm(label, script)`, `toy.says(…)`."""
    return SimpleNamespace(
        tagger=table_tagger, seeds=seeds, lm=ScriptedLM, says=says, cache=MemoryCache
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny("masked" | "classifier", family, text, …)`: the directory of a tiny model."""
    import torch

    torch.set_num_threads(1)

    @cache
    def make(kind: str, family: str, text: str, **options: object) -> Path:
        write = tiny_masked if kind == "masked" else tiny_classifier
        return write(tmp_path_factory.mktemp(f"{kind}-{family}"), text.split(), family, **options)

    return make
