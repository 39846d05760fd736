"""Documents in another language, and near-duplicates, of which the earliest stays.

Near-duplicates are found by MinHash over word shingles (rensa): documents that share a band of the
signature are candidates, and the Jaccard similarity of the candidates' shingles decides, not an
estimate of it. Judged in the order of (date, id), a document goes when an earlier one that stays
is a near-duplicate of it: no two that stay are near-duplicates, a chain of small changes does not
fall as a whole, and the order of files and shards does not matter.

Held in memory: 8 bytes a band and 8 for the whole set of shingles (264 bytes a document), its id
and date (about 150), as much while sorting, and in a second pass over the documents the shingles
(8 bytes each) of those candidates that are no exact copies; measured with the reader, 660 bytes a
document. Shingles are compared by hashes of 64 bits.

Letters: N documents, B bands, R rows a band.

Source: Lazaridou et al. 2021 (documents in other languages removed, duplicates removed by MinHash;
no parameters); Broder 1997 (shingles, MinHash); RedPajama-Data #125 (the earliest date stays).
Choice: shingles of 5 words, case-folded and without punctuation; 32 bands of 4 rows, which miss
one in 10^7 pairs of similarity .8; a threshold of .8.
Choice: the language is that of the first 400 characters, by py3langid.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triaxial.errors import InputError
from triaxial.temporal.corpus import Document
from triaxial.text import fold

__all__ = [
    "DedupOptions",
    "Duplicate",
    "Signatures",
    "joined",
    "language_of",
    "near_duplicates",
    "near_duplicates_between",
    "only_language",
    "signatures",
]

_READ = 400  # characters that tell the language: none of 3,897 real documents is misjudged
_BATCH = 512  # documents whose shingles are hashed at a time, at most
_CHARACTERS = 1 << 19  # of them, as soon as so many are there
_KNOWN = 1 << 18  # words whose hashes are remembered
_WORD = re.compile(r"\w+")
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # of splitmix64

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class DedupOptions:
    """What a near-duplicate is, and how it is looked for.

    Args:
        threshold: Jaccard similarity of the shingles from which on, in (0, 1].
        shingle: Words a shingle; a shorter document is one shingle.
        bands: B; more of them miss fewer pairs.
        rows: R; more of them give fewer candidates.
        seed: Of the permutations.
    """

    threshold: float = 0.8
    shingle: int = 5
    bands: int = 32
    rows: int = 4
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A document, the one it repeats, and the Jaccard similarity of their shingles."""

    id: str
    of: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Signatures:
    """What is known of N documents without their texts.

    Args:
        ids: Their ids.
        dates: Their dates.
        whole: Hash of the set of shingles, shape (N,).
        bands: Hashes of the bands of the MinHash signature, shape (N, B).
    """

    ids: tuple[str, ...]
    dates: tuple[str, ...]
    whole: Hashes
    bands: Hashes


def near_duplicates(
    documents: Iterable[Document],
    options: DedupOptions | None = None,
    *,
    signed: Signatures | None = None,
) -> tuple[Duplicate, ...]:
    """The documents to be left out, in the order of (date, id), each with one that stays.

    Args:
        documents: In any order; iterated twice, so that a list or an object that reads again.
        options: See `DedupOptions`.
        signed: Their signatures, where they were made before, shard by shard.

    Raises:
        InputError: An option cannot be used, or an id stands twice.
    """
    options = _checked(options)
    if signed is None:
        signed = signatures(_again(documents), options)
    _check_ids(signed)
    order = sorted(range(len(signed.ids)), key=lambda n: (signed.dates[n], signed.ids[n]))
    # Exact copies are judged once, by the earliest.
    _, found, copies = np.unique(signed.whole[order], return_index=True, return_inverse=True)
    firsts = np.array(order, np.int64)[found]
    suspects = _sharing(signed.bands, firsts)
    shingles = _shingle_sets(documents, {signed.ids[n] for n in suspects}, options)

    verdicts: dict[int, Duplicate] = {}
    kept: dict[int, list[int]] = {}  # in the bucket of a band, in order
    for n, copy in zip(order, copies, strict=True):
        if n in suspects:
            mine = shingles[signed.ids[n]]
            keys = signed.bands[n].tolist()
            for other in sorted(
                {n for key in keys for n in kept.get(key, ())},
                key=lambda n: (signed.dates[n], signed.ids[n]),
            ):
                alike = _jaccard(mine, shingles[signed.ids[other]])
                if alike >= options.threshold:
                    verdicts[n] = Duplicate(signed.ids[n], signed.ids[other], alike)
                    break
            else:
                for key in keys:
                    kept.setdefault(key, []).append(n)
        first = int(firsts[copy])
        if n != first:
            same = verdicts.get(first) or Duplicate("", signed.ids[first], 1.0)
            verdicts[n] = Duplicate(signed.ids[n], same.of, same.similarity)
    return tuple(verdicts[n] for n in order if n in verdicts)


def near_duplicates_between(
    first: Iterable[Document], second: Iterable[Document], options: DedupOptions | None = None
) -> tuple[Duplicate, ...]:
    """The documents of `first` with a near-duplicate in `second`, each with its most similar one.

    Args:
        first: Iterated twice.
        second: Iterated twice.
        options: See `DedupOptions`.

    Returns:
        In the order of `first`; among equally similar ones the least (date, id) is named.

    Raises:
        InputError: An option cannot be used, or an id stands twice on one side.
    """
    options = _checked(options)
    ours = signatures(_again(first), options)
    theirs = signatures(_again(second), options)
    _check_ids(ours)
    _check_ids(theirs)
    common = np.intersect1d(ours.bands, theirs.bands)
    buckets: dict[int, list[int]] = {}
    for n, band in zip(*np.nonzero(np.isin(theirs.bands, common)), strict=True):
        buckets.setdefault(int(theirs.bands[n, band]), []).append(int(n))
    near = {
        n: sorted({m for key in ours.bands[n].tolist() for m in buckets.get(key, ())})
        for n in np.flatnonzero(np.isin(ours.bands, common).any(axis=1)).tolist()
    }
    mine = _shingle_sets(first, {ours.ids[n] for n in near}, options)
    other = _shingle_sets(
        second, {theirs.ids[m] for found in near.values() for m in found}, options
    )
    verdicts = []
    for n, found in near.items():
        alike, _, of = min(
            (-_jaccard(mine[ours.ids[n]], other[theirs.ids[m]]), theirs.dates[m], theirs.ids[m])
            for m in found
        )
        if -alike >= options.threshold:
            verdicts.append(Duplicate(ours.ids[n], of, -alike))
    return tuple(verdicts)


def signatures(documents: Iterable[Document], options: DedupOptions | None = None) -> Signatures:
    """The signatures of documents, read once; those of a shard do not depend on the others.

    Raises:
        InputError: An option cannot be used.
    """
    options = _checked(options)
    ids: list[str] = []
    dates: list[str] = []
    whole, bands = bytearray(), bytearray()  # they grow in place: the sum is never held twice
    for batch in _batches(documents):
        part = _signed(batch, options)
        ids += part.ids
        dates += part.dates
        whole += part.whole.tobytes()
        bands += part.bands.tobytes()
    rows = np.frombuffer(bands, np.uint64).reshape(len(ids), options.bands)
    return Signatures(tuple(ids), tuple(dates), np.frombuffer(whole, np.uint64), rows)


def joined(parts: Sequence[Signatures]) -> Signatures:
    """The signatures of several shards, at least one, as one."""
    return Signatures(
        tuple(name for part in parts for name in part.ids),
        tuple(date for part in parts for date in part.dates),
        np.concatenate([part.whole for part in parts]),
        np.concatenate([part.bands for part in parts]),
    )


def only_language(
    documents: Iterable[Document], language: str = "en", *, dropped: Counter[str] | None = None
) -> Iterator[Document]:
    """The documents in a language.

    Args:
        documents: Read once.
        language: ISO 639-1, such as "en" or "de".
        dropped: Counts the others, as "language fr" and so on.

    Raises:
        InputError: The language is not one that the identifier knows.
    """
    known = _identifier().labels
    if language not in known:
        raise InputError(f"language {language!r} is not one of {', '.join(sorted(known))}")
    for document in documents:
        found, _ = language_of(document.text)
        if found == language:
            yield document
        elif dropped is not None:
            dropped[f"language {found}"] += 1


def language_of(text: str) -> tuple[str, float]:
    """The language of a text's first characters, ISO 639, and its probability, 0..1."""
    found, p = _identifier().classify(text[:_READ])
    return str(found), float(p)


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _signed(documents: Sequence[Document], options: DedupOptions) -> Signatures:
    from rensa import RMinHash

    flat, ends = _shingles([document.text for document in documents], options.shingle)
    starts = np.concatenate([[0], ends]).astype(np.uint64)
    width = options.bands * options.rows
    made = RMinHash.digest_matrix_from_flat_token_hashes(flat, starts, width, options.seed)
    rows = np.array(made.to_rows(), np.uint64).reshape(-1, options.bands, options.rows)
    # The band's number goes in, so that equal rows in two bands are two buckets.
    hashed = np.broadcast_to(np.arange(options.bands, dtype=np.uint64), rows.shape[:2])
    for column in range(options.rows):
        hashed = _mixed(hashed + rows[:, :, column])
    whole = [
        int.from_bytes(hashlib.blake2b(np.unique(part).tobytes(), digest_size=8).digest())
        for part in np.split(flat, ends[:-1])
    ]
    return Signatures(
        tuple(document.id for document in documents),
        tuple(document.date for document in documents),
        np.array(whole[: len(documents)], np.uint64),
        hashed,
    )


def _shingles(texts: Sequence[str], size: int) -> tuple[Hashes, NDArray[np.int64]]:
    """Hashes of the shingles of all texts, one after the other, and where each text's end."""
    words = [_WORD.findall(fold(text)) or [text.strip()] for text in texts]
    lengths = np.array([len(found) for found in words], np.int64)
    flat = np.fromiter((_word_hash(word) for found in words for word in found), np.uint64)
    # A short text is filled up to one shingle: a word hash is never 0 but in one of 2^64 cases.
    short = np.maximum(size - lengths, 0)
    flat = np.insert(flat, np.repeat(np.cumsum(lengths), short), np.uint64(0))
    lengths += short
    count = len(flat) - size + 1 if len(flat) else 0
    sums = np.zeros(count, np.uint64)
    for place in range(size):
        # Mixed after every word, so that the order of the words tells.
        sums = _mixed(sums + flat[place : place + count])
    inside = np.concatenate(
        [np.arange(n) <= n - size for n in lengths.tolist()] or [np.zeros(0, bool)]
    )[:count]
    return sums[inside], np.cumsum(lengths - size + 1)


def _shingle_sets(
    documents: Iterable[Document], wanted: set[str], options: DedupOptions
) -> Mapping[str, Hashes]:
    found: dict[str, Hashes] = {}
    if wanted:
        for batch in _batches(document for document in documents if document.id in wanted):
            flat, ends = _shingles([document.text for document in batch], options.shingle)
            for document, part in zip(batch, np.split(flat, ends[:-1]), strict=True):
                found[document.id] = np.unique(part)
    return found


def _sharing(bands: Hashes, numbers: NDArray[np.int64]) -> set[int]:
    """Those of these documents that share a bucket with another of them."""
    shared = np.zeros(len(numbers), bool)
    for column in range(bands.shape[1]):
        band = bands[numbers, column]
        order = np.argsort(band, kind="stable")
        same = band[order][1:] == band[order][:-1]
        shared[order[1:][same]] = True
        shared[order[:-1][same]] = True
    return set(numbers[shared].tolist())


def _jaccard(first: Hashes, second: Hashes) -> float:
    both = len(np.intersect1d(first, second, assume_unique=True))
    return both / (len(first) + len(second) - both)


def _mixed(values: Hashes) -> Hashes:
    """The last steps of splitmix64: a bijection whose every bit depends on all bits."""
    values = (values ^ (values >> np.uint64(30))) * _MIX[0]
    values = (values ^ (values >> np.uint64(27))) * _MIX[1]
    return values ^ (values >> np.uint64(31))


@lru_cache(_KNOWN)
def _word_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch, held = [], 0
    for document in documents:
        batch.append(document)
        held += len(document.text)
        if len(batch) == _BATCH or held >= _CHARACTERS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _again(documents: Iterable[Document]) -> Iterable[Document]:
    if iter(documents) is documents:
        raise TypeError("the documents are read twice; pass a list or an object that reads again")
    return documents


def _check_ids(signed: Signatures) -> None:
    if len(set(signed.ids)) < len(signed.ids):
        name = next(name for name, times in Counter(signed.ids).items() if times > 1)
        raise InputError(f"the id {name!r} stands twice; give every document its own")


def _checked(options: DedupOptions | None) -> DedupOptions:
    options = options or DedupOptions()
    if not 0 < options.threshold <= 1:
        seen = f"a threshold of {options.threshold}"
        raise InputError(f"{seen}; wanted a similarity in (0, 1], such as 0.8")
    if min(options.shingle, options.bands, options.rows) < 1:
        seen = f"{options.shingle} words, {options.bands} bands, {options.rows} rows"
        raise InputError(f"{seen}; wanted at least 1 of each")
    return options
