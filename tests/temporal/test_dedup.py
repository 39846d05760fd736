"""Near-duplicates against a naive reference, and languages."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.temporal.corpus import Document
from triaxial.temporal.dedup import (
    DedupOptions,
    Duplicate,
    joined,
    language_of,
    near_duplicates,
    near_duplicates_between,
    only_language,
    signatures,
)

TEXT = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"


def document(name: str, text: str, date: str = "2020-01-01") -> Document:
    return Document(name, date, text, "s")


def shingles(text: str, size: int) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold()) or [text.strip()]
    return {tuple(words[n : n + size]) for n in range(max(1, len(words) - size + 1))}


def naive(documents: list[Document], options: DedupOptions) -> list[Duplicate]:
    """Every pair, sets of words, in the order of (date, id)."""
    kept: list[Document] = []
    gone = []
    for one in sorted(documents, key=lambda d: (d.date, d.id)):
        mine = shingles(one.text, options.shingle)
        for other in kept:
            theirs = shingles(other.text, options.shingle)
            alike = len(mine & theirs) / len(mine | theirs)
            if alike >= options.threshold:
                gone.append(Duplicate(one.id, other.id, alike))
                break
        else:
            kept.append(one)
    return gone


# Texts that share long runs of words, so that all similarities occur; some without any word.
WORDS = TEXT.split()
RUNS = st.tuples(st.integers(0, 5), st.integers(9, 15)).map(lambda r: WORDS[r[0] : r[1]])
TEXTS = st.one_of(
    st.builds(lambda run, sign: sign.join(run), RUNS, st.sampled_from([" ", ", ", " \n"])),
    st.builds(lambda run, more: " ".join([*run, *more]), RUNS, RUNS),
    st.sampled_from(["", "!!!", "?", "One", "one two", "One, two!", TEXT.upper()]),
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(TEXTS, st.sampled_from(["2020", "2021"])), max_size=14),
    st.sampled_from([0.3, 0.5, 0.8, 1.0]),
    st.sampled_from([1, 2, 5]),
    st.randoms(use_true_random=False),
)
def test_as_a_naive_search_whatever_the_order(
    texts: list[tuple[str, str]], threshold: float, size: int, order: random.Random
) -> None:
    # One row a band: at .3, 64 bands miss a pair once in 10^10.
    options = DedupOptions(threshold, size, bands=64, rows=1)
    documents = [document(f"{n:02d}", text, f"{y}-01") for n, (text, y) in enumerate(texts)]
    expected = naive(documents, options)
    order.shuffle(documents)
    assert list(near_duplicates(documents, options)) == expected
    cut = len(documents) // 2
    parts = [signatures(documents[:cut], options), signatures(documents[cut:], options)]
    assert list(near_duplicates(documents, options, signed=joined(parts))) == expected


def test_the_defaults_on_long_texts_against_a_naive_search() -> None:
    # 15 texts of 300 words with 5 copies each, 0 to 12 words changed. A change spoils 5 of 296
    # shingles: 6 leave 266 of 326 (.82), 7 leave 261 of 331 (.79).
    draw = random.Random(1)
    documents = []
    for n in range(15):
        words = [f"w{draw.randrange(5000)}" for _ in range(300)]
        for copy in range(6):
            changed = list(words)
            for place in draw.sample(range(300), draw.randrange(13) if copy else 0):
                changed[place] = "new"
            name, day = f"{n:02d}-{copy}", draw.randrange(1, 29)
            documents.append(document(name, " ".join(changed), f"2020-01-{day:02d}"))
    expected = naive(documents, DedupOptions())
    assert 20 < len(expected) < 60
    assert list(near_duplicates(documents)) == expected


def test_the_earliest_stays_and_ties_go_by_id() -> None:
    # RedPajama-Data #125.
    late, early = document("a", TEXT, "2021-01-01"), document("b", TEXT, "2020-12-31")
    assert near_duplicates([late, early]) == (Duplicate("a", "b", 1.0),)
    month = document("c", TEXT, "2020-12")  # before every day of it
    assert [d.of for d in near_duplicates([late, early, month])] == ["c", "c"]
    twins = [document("z", TEXT), document("y", TEXT + "!")]
    assert near_duplicates(twins) == (Duplicate("z", "y", 1.0),)


def test_similarity_by_hand() -> None:
    # 15 words give 11 shingles of 5; without the last word 10 of them: 10/11.
    other = TEXT.rsplit(" ", 1)[0]
    pair = [document("a", TEXT), document("b", other.title())]
    assert near_duplicates(pair) == (Duplicate("b", "a", 10 / 11),)
    assert near_duplicates(pair, DedupOptions(threshold=10 / 11)) != ()
    assert near_duplicates(pair, DedupOptions(threshold=0.92)) == ()
    # The order of words tells, case and punctuation do not.
    turned = " ".join(reversed(TEXT.split()))
    assert near_duplicates([document("a", TEXT), document("b", turned)]) == ()


def test_a_chain_of_small_changes_does_not_fall_as_a_whole() -> None:
    # Each leaves out the first word of the one before: 10/11, 9/10, 8/9; a to c 9/11, a to d 8/11.
    words = TEXT.split()
    chain = [document("abcd"[n], " ".join(words[n:]), f"2020-0{n + 1}") for n in range(4)]
    found = near_duplicates(chain)
    assert found == (Duplicate("b", "a", 10 / 11), Duplicate("c", "a", 9 / 11))


def test_near_duplicates_between_two_corpora() -> None:
    words = TEXT.split()
    first = [document("a", TEXT), document("b", "x " * 9), document("c", " ".join(words[1:]))]
    second = [
        document("a", " ".join(words[:-1]), "2020-02"),
        document("y", " ".join(words[:-1]), "2020-01"),
        document("z", " ".join(words[2:])),
    ]
    # Of two equally similar ones, the earlier; c shares 9 of 10 shingles with z, 9 of 11 with y.
    assert near_duplicates_between(first, second) == (
        Duplicate("a", "y", 10 / 11),
        Duplicate("c", "z", 9 / 10),
    )
    assert near_duplicates_between(first, second, DedupOptions(threshold=0.95)) == ()
    assert near_duplicates_between(first, []) == near_duplicates_between([], second) == ()
    assert near_duplicates([]) == ()


@settings(max_examples=50, deadline=None)
@given(st.lists(TEXTS, max_size=8), st.lists(TEXTS, max_size=8))
def test_between_is_the_same_as_every_pair(ours: list[str], theirs: list[str]) -> None:
    options = DedupOptions(0.5, 2, bands=64, rows=1)
    first = [document(f"a{n}", text) for n, text in enumerate(ours)]
    second = [document(f"b{n}", text) for n, text in enumerate(theirs)]
    expected = []
    for one in first:
        mine = shingles(one.text, 2)
        pairs = [
            (len(mine & s) / len(mine | s), d.id) for d in second for s in [shingles(d.text, 2)]
        ]
        alike, name = min(((-p, name) for p, name in pairs), default=(0.0, ""))
        if -alike >= 0.5:
            expected.append(Duplicate(one.id, name, -alike))
    assert list(near_duplicates_between(first, second, options)) == expected


def test_signatures_are_small_and_those_of_a_shard_its_own() -> None:
    documents = [document(str(n), f"{TEXT} {n % 7} {n}") for n in range(1200)]
    whole = signatures(documents)
    # What the docstring says: 8 bytes a band and 8 for the set.
    assert whole.bands.nbytes + whole.whole.nbytes == 1200 * 264
    parts = joined([signatures(documents[:5]), signatures(documents[5:]), signatures([])])
    assert (parts.ids, parts.dates) == (whole.ids, whole.dates)
    assert np.array_equal(parts.bands, whole.bands)
    assert np.array_equal(parts.whole, whole.whole)
    other = signatures(documents, DedupOptions(seed=2))
    assert not np.array_equal(other.bands, whole.bands)


def test_memory_does_not_grow_with_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triaxial.temporal.dedup._CHARACTERS", 50_000)

    class Generated:
        def __init__(self, count: int) -> None:
            self.count = count

        def __iter__(self) -> Iterator[Document]:
            for n in range(self.count):
                yield document(str(n), " ".join(f"w{(n * 31 + k * k) % 503}" for k in range(400)))

    def peak(count: int) -> int:
        tracemalloc.start()
        assert near_duplicates(Generated(count)) == ()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(100)  # tables that are filled once
    # A document has 2 kB of text; 264 bytes of it stay, and its id and date.
    assert peak(500) - peak(200) < 300 * 1000


def test_what_cannot_be_used_is_refused() -> None:
    one = [document("a", TEXT)]
    with pytest.raises(InputError, match=r"^a threshold of 0; wanted a similarity in \(0, 1\], su"):
        near_duplicates(one, DedupOptions(threshold=0))
    with pytest.raises(InputError, match=r"^5 words, 0 bands, 4 rows; wanted at least 1 of each"):
        signatures(one, DedupOptions(bands=0))
    with pytest.raises(InputError, match=r"^the id 'a' stands twice; give every document its own"):
        near_duplicates(one * 2)
    with pytest.raises(InputError, match=r"^the id 'a' stands twice"):
        near_duplicates_between(one, one * 2)
    with pytest.raises(TypeError, match="read twice"):
        near_duplicates(iter(one))


LANGUAGES = {
    "en": "The members of the council have not yet said when the new bridge will be opened.",
    "de": "Die Mitglieder des Rates haben noch nicht gesagt, wann die neue Brücke eröffnet wird.",
    "fr": "Les membres du conseil n'ont pas encore dit quand le nouveau pont sera ouvert.",
    "es": "Los miembros del consejo aún no han dicho cuándo se abrirá el nuevo puente.",
    "ru": "Члены совета ещё не сказали, когда будет открыт новый мост.",
    "zh": "委员会的成员还没有说新桥什么时候开放。",
}


def test_only_documents_in_the_language_stay() -> None:
    documents = [document(name, text) for name, text in LANGUAGES.items()]
    dropped: Counter[str] = Counter()
    assert [d.id for d in only_language(documents, dropped=dropped)] == ["en"]
    assert dropped == {f"language {name}": 1 for name in LANGUAGES if name != "en"}
    assert [d.id for d in only_language(documents, "de")] == ["de"]
    assert all(p > 0.9 for _, p in map(language_of, LANGUAGES.values()))
    with pytest.raises(InputError, match=r"^language 'english' is not one of .*, de, .*, en, "):
        list(only_language(documents, "english"))


def test_dates_in_order_are_kept_in_order() -> None:
    texts = [f"{TEXT} {n // 2}" for n in range(20)]
    documents = [document(str(n), text, f"2020-{12 - n // 2:02d}") for n, text in enumerate(texts)]
    found = near_duplicates(documents)
    dates = {d.id: (d.date, d.id) for d in documents}
    assert all(dates[a.id] < dates[b.id] for a, b in pairwise(found))
    assert all(dates[d.of] < dates[d.id] for d in found)
