"""The stages of the time axis in the store, after a corpus was made: scores, tags, topics, counts.

- `temporal.vocabulary`: the pieces of a split's training part, shared by models of all sizes.
- `temporal.words` and `temporal.documents`: the documents of one month under one model. Their keys
  hold the texts, so that a new month, or another split, costs what is new alone.
- `temporal.tags`, `temporal.topics`, `temporal.counts`: what the analyses join to the words; one
  for all models on the same documents.

Documents stream; what is held is said beside each function.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triaxial import execute
from triaxial.errors import StoreError
from triaxial.execute import Computing
from triaxial.models.tagger import load_tagger
from triaxial.store import (
    Stage,
    Store,
    digest,
    finished_directory,
    planned,
    read_table,
    run_shards,
)
from triaxial.temporal.corpus import Document, month_of
from triaxial.temporal.perplexity import document_tables
from triaxial.temporal.splits import Split
from triaxial.temporal.topics import TopicOptions, assign_topics, fit_topics
from triaxial.temporal.vocabulary import VocabularyOptions, train_vocabulary
from triaxial.temporal.words import training_counts

if TYPE_CHECKING:
    import polars as pl

    from triaxial.models.causal import CausalLM

__all__ = [
    "CORPUS",
    "Corpus",
    "Picked",
    "in_order",
    "open_corpus",
    "picked_by_month",
    "score_documents",
    "tags_of",
    "topics_of",
    "training_words",
    "vocabulary_of",
]

CORPUS = "temporal.corpus"
DOCUMENTS_A_SHARD = 512  # of an evaluation
_WORDS_A_SHARD = 1 << 18  # that are tagged at a time
_SENTENCE = 64  # most words that are tagged as one sentence
_ENDS = frozenset([".", "!", "?", "...", "…"])

# Id, date, source, digest of the text, and the part of the corpus that it stands in.
Picked = tuple[str, str, str, str, int]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents of Parquet parts, as often as they are read; one part is in memory at a time.

    Args:
        place: For errors.
        key: Of what wrote them.
        parts: Files with the columns `id`, `date`, `text`, `source`.
        ids: Documents that count; `None` for all.
    """

    place: str
    key: str
    parts: tuple[Path, ...]
    ids: Collection[str] | None = None

    def __iter__(self) -> Iterator[Document]:
        """The documents, in the order of the parts."""
        for n in range(len(self.parts)):
            yield from self.part(n)

    def only(self, ids: Iterable[str]) -> Corpus:
        """The documents with some ids, whichever counted before."""
        return replace(self, ids=frozenset(ids))

    def part(self, number: int) -> list[Document]:
        """The documents of one part."""
        table = read_table(self.parts[number], ["id", "date", "text", "source"])
        return [Document(*row) for row in self._counting(table).iter_rows()]

    def columns(self) -> pl.DataFrame:
        """`id`, `date`, `source` and `words` of every document that counts, without the texts."""
        import polars as pl

        names = ["id", "date", "source", "words"]
        return self._counting(pl.concat([read_table(part, names) for part in self.parts]))

    def _counting(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows of documents that count."""
        import polars as pl

        if self.ids is None:
            return table
        ids = self.ids
        return table.filter(pl.Series([name in ids for name in table["id"]], dtype=pl.Boolean))


def open_corpus(directory: str | Path) -> Corpus:
    """The corpus that `ingest` wrote.

    Raises:
        StoreError: It is none, or was not finished.
    """
    path = Path(directory).expanduser()
    manifest = finished_directory(path, CORPUS, "corpus; make it with `triax temporal ingest`")
    names = sorted(name for name in manifest["files"] if name.startswith("part-"))
    for name in names:
        if not (path / name).is_file():
            raise StoreError("is gone; call `triax temporal ingest` again", where=path / name)
    return Corpus(str(path), manifest["key"], tuple(path / name for name in names))


def vocabulary_of(
    corpus: Corpus, split: Split, options: VocabularyOptions, computing: Computing
) -> Path:
    """The directory of a vocabulary learned from a split's training part.

    Raises:
        InputError: As of `train_vocabulary`.
    """
    import polars as pl

    inputs = [corpus.key, digest(split.train)]
    about = {"split": split.name, **asdict(options)}
    stage = Store(computing.store).stage("temporal.vocabulary", 1, about, inputs)
    if not stage.complete:
        told = computing.told("learning the vocabulary")
        told(0, 1)
        facts = train_vocabulary(corpus, split, stage.path, options)
        stage.write(0, pl.DataFrame([asdict(facts)], schema_overrides={"sample": pl.Int64}))
        stage.finish(1)
        told(1, 1)
    return stage.path


def picked_by_month(corpus: Corpus) -> dict[int, list[Picked]]:
    """By month, in the order of (date, id), what tells the documents of a corpus apart.

    Held: about 300 bytes a document.
    """
    months: dict[int, list[Picked]] = {}
    for number in range(len(corpus.parts)):
        for one in corpus.part(number):
            text = one.text.encode("utf-8", "surrogatepass")
            told = hashlib.blake2b(text, digest_size=16).hexdigest()
            found = months.setdefault(month_of(one.date), [])
            found.append((one.id, one.date, one.source, told, number))
    return {
        month: sorted(found, key=lambda one: (one[1], one[0])) for month, found in months.items()
    }


def in_order(corpus: Corpus, months: Mapping[int, Sequence[Picked]]) -> Iterator[Document]:
    """The documents by (date, id); those of a month are held."""
    for month in sorted(months):
        yield from _documents(corpus, months[month])


def score_documents(
    model: CausalLM, corpus: Corpus, computing: Computing
) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, Any]]:
    """Words and documents of a corpus under a model, by (month, date, id), and what it cost.

    Held: the texts of a month, a digest of every document, and the tables.

    Args:
        model: Of `load_causal`.
        corpus: At least one document.
        computing: Where and how.

    Returns:
        Tables as of `perplexity.Tables`, and `seconds`, `pieces`, `pieces_per_second`: measured on
        what was computed now or before, as far as it was not interrupted.
    """
    import polars as pl

    store = Store(computing.store)
    months = picked_by_month(corpus)
    total = sum(len(found) for found in months.values())
    told, done = computing.told(f"scoring with {Path(model.name).name}"), 0
    tables: list[tuple[pl.DataFrame, pl.DataFrame]] = []
    seconds, timed, pieces = 0.0, 0, 0
    about = {"model": model.fingerprint, "shard": DOCUMENTS_A_SHARD}
    every: list[tuple[Sequence[Picked], Stage, Stage]] = []
    for month in sorted(months):
        inputs = [digest([list(one[:4]) for one in months[month]])]
        words = store.stage("temporal.words", 1, about, inputs)
        documents = store.stage("temporal.documents", 1, about, inputs)
        every.append((months[month], words, documents))
    stages = [stage.path.name for _, *both in every for stage in both]
    with planned(computing.store, "temporal.months", stages):
        if computing.ray is not None:
            _score_on_ray(model, corpus, every, computing)
        for picked, words, documents in every:
            if not (words.complete and documents.complete):
                step = partial(_step, told, done, total)
                _score_month(model, corpus, picked, words, documents, step)
            done += len(picked)
            told(done, total)
            tables.append((words.read(), documents.read()))
            facts = documents.manifest["facts"]
            seconds += facts["seconds"]
            timed += facts["pieces"]
            pieces += int(tables[-1][1]["pieces"].sum())
    rate = timed / seconds if seconds else None
    cost = {
        "seconds": pieces / rate if rate else None,
        "pieces": pieces,
        "pieces_per_second": rate,
    }
    return pl.concat([w for w, _ in tables]), pl.concat([d for _, d in tables]), cost


def tags_of(words: pl.DataFrame, tagger: str, computing: Computing) -> pl.Series:
    """The tag of every word of a words table.

    Words are tagged in pieces like sentences: up to a full stop, an exclamation or question mark,
    at most 64 words, never over the end of a document.

    Args:
        words: `document`, `text`, in the order of documents and positions.
        tagger: As for `models.tagger.load_tagger`.
        computing: Where and how.
    """
    import polars as pl

    sentences = _sentences(words)
    shards: list[list[list[str]]] = [[]]
    held = 0
    for sentence in sentences:
        if held >= _WORDS_A_SHARD:
            shards.append([])
            held = 0
        shards[-1].append(sentence)
        held += len(sentence)
    whole = hashlib.blake2b(digest_size=16)
    for sentence in sentences:
        whole.update(("\0".join(sentence) + "\1").encode("utf-8", "surrogatepass"))
    about = {"tagger": load_tagger(tagger).fingerprint, "shard": _WORDS_A_SHARD}
    stage = Store(computing.store).stage("temporal.tags", 1, about, [whole.hexdigest()])

    def each(
        _: Callable[[int], pl.DataFrame], missing: Sequence[int]
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        wanted = [shards[number] for number in missing]
        work = partial(_tagged, tagger)
        return execute.run(work, wanted, workers=computing.workers, ray=computing.ray)

    pool = each if computing.spread and len(shards) > 1 else None
    table = run_shards(
        stage,
        shards,
        lambda number: _tagged(tagger, shards[number]),
        computing.told("tagging"),
        each=pool,
    )
    return table["tag"].cast(pl.String)


def topics_of(
    corpus: Corpus,
    split: Split,
    test: Sequence[str],
    options: TopicOptions,
    computing: Computing,
) -> tuple[pl.DataFrame, list[list[str]]]:
    """Topics of some documents, fitted on the split's training part, and what describes each.

    Returns:
        `document`, `topic`, `share`; and the words of each topic.

    Raises:
        InputError: A test document is among those of training, or there are too few to fit.
    """
    inputs = [corpus.key, digest(split.train), digest(sorted(test))]
    stage = Store(computing.store).stage("temporal.topics", 1, asdict(options), inputs)
    if not stage.complete:
        told = computing.told("fitting topics")
        told(0, 1)
        model = fit_topics(corpus.only(split.train), options, test=test)
        table = assign_topics(model, corpus.only(test))
        stage.write(0, table)
        stage.finish(1, {"top": [list(words) for words in model.top]})
        told(1, 1)
    return stage.read(), stage.manifest["facts"]["top"]


def training_words(corpus: Corpus, split: Split, computing: Computing) -> pl.DataFrame:
    """Counts of the words of a split's training part: `month`, `text`, `count`.

    As of `words.training_counts`, part by part.
    """
    import polars as pl

    inputs = [corpus.key, digest(split.train)]
    stage = Store(computing.store).stage("temporal.counts", 1, {}, inputs)
    training = corpus.only(split.train)
    table = run_shards(
        stage,
        len(training.parts),
        lambda number: training_counts(training.part(number)),
        computing.told("counting words of training"),
    )
    summed = table.group_by("month", "text").agg(pl.col("count").sum())
    return summed.sort("month", "text")


def _documents(corpus: Corpus, picked: Sequence[Picked]) -> list[Document]:
    """Some documents with their texts, in the order given."""
    mine = corpus.only(one[0] for one in picked)
    found = {one.id: one for number in {p[4] for p in picked} for one in mine.part(number)}
    return [found[one[0]] for one in picked]


def _step(told: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    told(before + done, total)


def _score_on_ray(
    model: CausalLM,
    corpus: Corpus,
    every: Sequence[tuple[Sequence[Picked], Stage, Stage]],
    computing: Computing,
) -> None:
    """Score the months that are not there yet, each as one shard."""
    missing = [one for one in every if not (one[1].complete and one[2].complete)]
    done = execute.run(
        partial(_score_one, model, replace(corpus, ids=None)),
        missing,
        workers=computing.workers,
        ray=computing.ray,
        gpus=computing.gpus,
        progress=computing.told("months"),
    )
    for _ in done:
        pass


def _score_one(
    model: CausalLM, corpus: Corpus, month: tuple[Sequence[Picked], Stage, Stage]
) -> None:
    _score_month(model, corpus, *month, lambda done: None)


def _score_month(
    model: CausalLM,
    corpus: Corpus,
    picked: Sequence[Picked],
    words: Stage,
    documents: Stage,
    told: Callable[[int], None],
) -> None:
    """Score the shards of a month that are not there yet."""
    texts = _documents(corpus, picked)
    starts = range(0, len(picked), DOCUMENTS_A_SHARD)
    seconds, pieces = 0.0, 0
    for shard, at in enumerate(starts):
        if words.has(shard) and documents.has(shard):
            continue
        some = texts[at : at + DOCUMENTS_A_SHARD]
        begun = time.perf_counter()
        done = at

        def step(more: int) -> None:
            nonlocal done
            done += more
            told(done)

        tables = document_tables(some, model.score([one.text for one in some], step))
        seconds += time.perf_counter() - begun
        pieces += int(tables.documents["pieces"].sum())
        words.write(shard, tables.words)
        documents.write(shard, tables.documents)
    words.finish(len(starts))
    documents.finish(len(starts), {"seconds": seconds, "pieces": pieces})


def _sentences(words: pl.DataFrame) -> list[list[str]]:
    found: list[list[str]] = []
    last, ended = None, True
    for document, text in words.select("document", "text").iter_rows():
        if ended or document != last or len(found[-1]) >= _SENTENCE:
            found.append([])
        found[-1].append(text)
        last, ended = document, text in _ENDS
    return found


def _tagged(tagger: str, sentences: Sequence[Sequence[str]]) -> pl.DataFrame:
    import polars as pl

    tags = load_tagger(tagger).tag(sentences)
    return pl.DataFrame(
        {"tag": pl.Series([tag.pos for row in tags for tag in row], dtype=pl.String)}
    )
