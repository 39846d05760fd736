"""The stages of MERGE, in order: sentences, masked queries, variants, predictions.

1. `sentences`: words, offsets and tags of every distinct sentence (stage in the store).
2. masked queries: each distinct masked query once, into a cache keyed by weights, precision and
   masked ids; another filter, preset or threshold costs no forward.
3. `variants`: the filters, shard by shard of seeds; replacements and the funnel (two stages).
4. `predict`: each distinct pair once, into a cache keyed by the model.

Everything after that is array work on tables and lives in `analyses`.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from triaxial import execute
from triaxial.execute import Computing
from triaxial.merge.filters import Replacement
from triaxial.merge.lexicon import WordNet
from triaxial.merge.queries import MaskedSource, ask
from triaxial.merge.targets import Seed, Slot
from triaxial.merge.variants import Fate, FunnelRow, Preset, slots_of, variants_of
from triaxial.models.base import NliModel, Work
from triaxial.models.tagger import Tag, load_tagger
from triaxial.nli import LABELS, Pair
from triaxial.store import Cache, Store, digest, run_shards, table_of
from triaxial.text import Word, words

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from triaxial.models.masked import Query

__all__ = [
    "Clock",
    "NliSource",
    "labels_of",
    "masked_sources",
    "predict",
    "refuse_marks",
    "seeds_of",
    "variants",
]

SEEDS_A_SHARD = 256
_SENTENCES_A_SHARD = 1024


@dataclass(slots=True)
class Clock:
    """Seconds by kind of work, to be printed: where the time went."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def time(self, what: str) -> Iterator[None]:
        """Add the time of a block to one kind of work."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[what] = self.seconds.get(what, 0.0) + spent


@dataclass(frozen=True, slots=True)
class NliSource:
    """A model that labels pairs, not loaded yet.

    Args:
        name: For people.
        kind: What it is, beside progress and seconds: classifier, language model, endpoint.
        fingerprint: All that decides its numbers: the key of what it predicted.
        load: Gives the model; called only where a pair is not in the cache.
        pairs_a_shard: Pairs whose predictions are kept at a time, and lost at most.
    """

    name: str
    kind: str
    fingerprint: Mapping[str, str]
    load: Callable[[], NliModel]
    pairs_a_shard: int = 4096


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with its words and their tags."""

    text: str
    words: tuple[Word, ...]
    tags: tuple[Tag, ...]


def masked_sources(
    names: Sequence[str],
    precision: Literal["auto", "fp32", "bf16"],
    k: int,
    settings: Computing,
) -> list[MaskedSource]:
    """The masked LMs behind their caches in the store, none loaded yet."""
    return [
        MaskedSource(
            name,
            label,
            precision,
            k,
            _FillCache(Store(settings.store)),
            device=settings.device,
            token_budget=settings.token_budget,
        )
        for name, label in zip(names, labels_of(names), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _FillCache:
    """Opens the cache of a masked LM's answers; a value, so that another process can open it."""

    store: Store

    def __call__(
        self, fingerprint: Mapping[str, str], k: int, schema: Mapping[str, pl.DataType]
    ) -> Cache:
        return self.store.cache("merge.fills", fingerprint, k, schema=schema)


def labels_of(names: Sequence[str]) -> list[str]:
    """Short names of models for the tables: the last part of each, or the whole where two agree."""
    short = [name.rstrip("/").rpartition("/")[2] for name in names]
    return [s if short.count(s) == 1 else n for s, n in zip(short, names, strict=True)]


def refuse_marks(pairs: Sequence[Pair], sources: Sequence[MaskedSource]) -> list[Pair]:
    """The pairs that contain a mask token or another mark of a masked LM's tokenizer."""
    marks = {"[MASK]", "<mask>"}.union(*(source.tokenizer.special_tokens for source in sources))
    return [p for p in pairs if any(m in p.premise or m in p.hypothesis for m in marks)]


def seeds_of(
    pairs: Sequence[Pair], tagger: str, settings: Computing, clock: Clock
) -> tuple[list[Seed], str]:
    """Pairs with words and tags, and the key of the stage that holds these."""
    from triaxial.store import records_of

    texts = list(dict.fromkeys(s for pair in pairs for s in (pair.premise, pair.hypothesis)))
    shards = _cut(texts, _SENTENCES_A_SHARD)
    stage = Store(settings.store).stage(
        "merge.sentences", 1, {"tagger": load_tagger(tagger).fingerprint}, [digest(texts)]
    )

    def frame(shard: int) -> pl.DataFrame:
        return _tagged(tagger, shards[shard])

    def each(
        _: Callable[[int], pl.DataFrame], missing: Sequence[int]
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        wanted, work = [shards[shard] for shard in missing], partial(_tagged, tagger)
        return execute.run(work, wanted, workers=settings.workers, ray=settings.ray)

    with clock.time("tagging"):
        pool = each if settings.spread and len(shards) > 2 else None
        table = run_shards(stage, shards, frame, settings.told("tagging sentences"), each=pool)
        by_text = {row.text: row for row in records_of(table, Sentence)}
    seeds = []
    for pair in pairs:
        p, h = by_text[pair.premise], by_text[pair.hypothesis]
        seeds.append(Seed(pair, p.words, h.words, p.tags, h.tags))
    return seeds, stage.key


def variants(
    seeds: Sequence[Seed],
    sentences_key: str,
    sources: Sequence[MaskedSource],
    preset: Preset,
    tagger: str,
    wordnet: WordNet | None,
    settings: Computing,
    clock: Clock,
) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """Replacements and funnel of all seeds, and the key of the stage.

    First every masked LM in turn fills its queries, shard by shard; then the filters read them
    from the cache.
    """
    params = {
        **asdict(preset),
        "mlm": {source.label: source.fingerprint for source in sources},
        "wordnet": None if wordnet is None else wordnet.digest,
        "tagger": load_tagger(tagger).fingerprint,
    }
    pairs = digest([asdict(seed.pair) for seed in seeds])
    store = Store(settings.store)
    stage = store.stage("merge.variants", 1, params, [sentences_key, pairs])
    funnel = store.stage("merge.funnel", 1, params, [sentences_key, pairs])
    if stage.complete and funnel.complete:
        return stage.read(), funnel.read(), stage.key
    slots, words_funnel = slots_of(seeds, preset.targets)
    shards = _cut(range(len(seeds)), SEEDS_A_SHARD)
    stage.plan(len(shards), [len(shard) for shard in shards])
    missing = [n for n in range(len(shards)) if not (stage.has(n) and funnel.has(n))]
    open_ = [([seeds[i] for i in shards[n]], [slots[i] for i in shards[n]]) for n in missing]
    workers = 1 if settings.ray is None else settings.workers  # torch has all cores already
    with clock.time("masked LM"):
        fills = _Fills(open_, tuple(sources), preset)
        done = execute.run(
            partial(_fill, fills.sources),
            fills,
            workers=workers,
            ray=settings.ray,
            gpus=settings.gpus,
        )
        for at, facts in done:
            source = sources[at // len(open_)]
            if settings.ray is not None:
                source.count(facts)
            settings.told(f"masked LM {source.label}")(1 + at % len(open_), len(open_))
        for source in sources:
            source.release()
    with clock.time("filters and tagging"):
        given = partial(_filtered, fills.sources, preset, tagger, wordnet)
        for at, (kept, counts) in execute.run(given, open_, workers=workers, ray=settings.ray):
            number = missing[at]
            if number == 0:
                counts += words_funnel
            rows = [FunnelRow(*key, count) for key, count in sorted(counts.items())]
            funnel.write(number, table_of(rows, FunnelRow))
            stage.write(number, kept)
            settings.told("filtering")(at + 1, len(open_))
        funnel.finish(len(shards))
        stage.finish(len(shards))
    return stage.read(), funnel.read(), stage.key


def predict(
    pairs: Sequence[tuple[str, str]], source: NliSource, *, settings: Computing, clock: Clock
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Log-probabilities (N, 3) of distinct pairs, and the work done; cached by the fingerprint."""
    import polars as pl

    names = [label.value for label in LABELS]
    cache = Store(settings.store).cache(
        "merge.predictions", source.fingerprint, schema=dict.fromkeys(names, pl.Float32())
    )
    model: NliModel | None = None
    keys = [_pair_key(*pair) for pair in pairs]
    shards = _cut(range(len(pairs)), source.pairs_a_shard)
    with clock.time(source.kind):
        for number, shard in enumerate(shards):
            found, _frame = cache.lookup([keys[i] for i in shard])
            missing = [i for i, there in zip(shard, found, strict=True) if not there]
            if missing:
                if model is None:
                    model = source.load()
                values = model.predict([pairs[i] for i in missing])
                frame = pl.DataFrame(values, schema=cache.schema)
                cache.add([keys[i] for i in missing], frame)
            if settings.progress:
                settings.progress(f"{source.kind} {source.name}", number + 1, len(shards))
        found, frame = cache.lookup(keys)
    assert found.all(), "every pair was computed or cached"
    work = getattr(model, "work", None) or Work()
    more = {"kind": source.kind, "truncated": getattr(model, "truncated", 0)}
    return frame.select(names).to_numpy(), {**work.facts(), **more}


_Slots = tuple[Sequence[Seed], Sequence[Sequence[Slot]]]  # of a shard


@dataclass(frozen=True, slots=True)
class _Fills:
    """The queries of each masked LM, shard by shard, each once; made as they are handed out."""

    shards: Sequence[_Slots]
    sources: tuple[MaskedSource, ...]
    preset: Preset

    def __len__(self) -> int:
        return len(self.sources) * len(self.shards)

    def __iter__(self) -> Iterator[tuple[int, list[Query]]]:
        for number, source in enumerate(self.sources):
            seen: set[bytes] = set()
            for seeds, slots in self.shards:
                asked = ask(seeds, slots, source, self.preset.propose)
                queries = {q.key: q for row in asked for one in row for q in one.queries}
                yield number, [query for key, query in queries.items() if key not in seen]
                seen |= queries.keys()


def _fill(sources: Sequence[MaskedSource], unit: tuple[int, Sequence[Query]]) -> dict[str, int]:
    """Fill the queries of one shard at one masked LM; the work that it was."""
    number, queries = unit
    for other in (*sources[:number], *sources[number + 1 :]):
        other.release()
    before = sources[number].work
    sources[number].compute(queries)
    return {name: count - before[name] for name, count in sources[number].work.items()}


def _filtered(
    sources: Sequence[MaskedSource],
    preset: Preset,
    tagger: str,
    wordnet: WordNet | None,
    shard: _Slots,
) -> tuple[pl.DataFrame, Counter[Fate]]:
    kept, counts = variants_of(*shard, sources, preset, load_tagger(tagger), wordnet)
    return table_of(kept, Replacement), counts


def _tagged(tagger: str, texts: Sequence[str]) -> pl.DataFrame:
    tokens = [words(text) for text in texts]
    tags = load_tagger(tagger).tag([[word.text for word in row] for row in tokens])
    rows = [Sentence(*row) for row in zip(texts, tokens, tags, strict=True)]
    return table_of(rows, Sentence)


def _pair_key(premise: str, hypothesis: str) -> bytes:
    data = f"{len(premise)}\0{premise}{hypothesis}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).digest()


def _cut(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[at : at + size] for at in range(0, len(items), size)] or [items]
