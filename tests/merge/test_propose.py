"""The cheap conditions against a slow reference made of sets and dictionaries."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.merge.propose import (
    REASONS,
    Candidates,
    Occurrence,
    ProposeOptions,
    Vocabulary,
    accepted_by,
    candidates,
    occurrence_texts,
)
from triaxial.merge.targets import TargetOptions, shared_slots
from triaxial.text import case_pattern, fold, match_case


@dataclass
class Forms:
    """By place the word of each entry; by default the same everywhere."""

    spaced: list[str | None]
    other: dict[str, list[str | None]] = field(default_factory=dict)

    def forms(self, unit: str) -> list[str | None]:
        return self.other.get(unit, self.spaced)


ENTRIES: list[str | None] = [
    *("dog", "Dog", "DOG", "cat", "London", "TV", "iPhone", "apple", "Apple", "café", "cafe\u0301"),
    *(None, "straße", "STRASSE", "man", "pear", None),
]


def occurrence(
    suggestions: dict[str | int, float],
    own: float = -3.0,
    surface: str = "ball",
    side: int = 0,
    unit: Any = "spaced",
    entries: list[str | None] = ENTRIES,
) -> Occurrence:
    ids = [s if isinstance(s, int) else entries.index(s) for s in suggestions]
    return Occurrence(
        side,
        unit,
        surface,
        np.asarray(ids, dtype=np.int32),
        np.asarray(list(suggestions.values()), dtype=np.float32),
        own,
    )


def judged(
    *occurrences: Occurrence, pair: str = "a ball", forms: Forms | None = None, **options: Any
) -> Candidates:
    vocabulary = Vocabulary(forms or Forms(ENTRIES))
    return candidates(occurrences, pair.split(), vocabulary, ProposeOptions(**options))


def reasons(found: Candidates) -> dict[str, str]:
    names = [*REASONS, "accepted"]
    return {w: names[r] for w, r in zip(found.words, found.reasons, strict=True)}


BOTH = {"cat": -1.0, "apple": -2.0, "pear": -4.0}


def test_accepted_everywhere_on_both_sides() -> None:
    found = judged(occurrence(BOTH), occurrence(BOTH, side=1), occurrence(BOTH, side=1))
    assert reasons(found) == {"cat": "accepted", "apple": "accepted", "pear": "less_likely"}
    row = found.words.index("apple")
    assert found.log_p[row].tolist() == [-2.0] * 3
    assert found.rank[row].tolist() == [2] * 3
    assert found.valid_sides[row].tolist() == [True, True]


def test_missing_at_one_of_several_occurrences() -> None:
    found = judged(occurrence(BOTH), occurrence({"cat": -1.0}), occurrence(BOTH, side=1))
    assert reasons(found) == {"cat": "accepted", "apple": "not_everywhere", "pear": "less_likely"}
    row = found.words.index("apple")
    assert found.rank[row].tolist() == [2, 0, 2]
    assert found.log_p[row].tolist() == [-2.0, -np.inf, -2.0]
    assert found.valid_sides[row].tolist() == [False, True]


def test_equal_probability_is_enough_unless_strict() -> None:
    both = [occurrence({"cat": -3.0}, -3.0), occurrence({"cat": -3.0}, -3.0, side=1)]
    assert reasons(judged(*both)) == {"cat": "accepted"}
    assert reasons(judged(*both, strict=True)) == {"cat": "less_likely"}
    # As float32 a probability does not tie with one a little above it.
    above = float(np.nextafter(np.float32(-3.0), np.float32(0)))
    assert reasons(judged(occurrence({"cat": -3.0}, above), both[1])) == {"cat": "less_likely"}
    more = [occurrence({"cat": above}, -3.0), occurrence({"cat": above}, -3.0, side=1)]
    assert reasons(judged(*more, strict=True)) == {"cat": "accepted"}


def test_differs_from_every_word_of_the_pair_folded_and_composed() -> None:
    suggested = {"Dog": -1.0, "café": -1.1, "STRASSE": -1.2, "man": -1.3, "cat": -1.4}
    both = [occurrence(suggested, surface="BALL"), occurrence(suggested, side=1, surface="BALL")]
    found = judged(*both, pair="a DOG CAFE\u0301 strasse MAN")
    words = {"dog": "in_pair", "café": "in_pair", "strasse": "in_pair", "man": "in_pair"}
    assert reasons(found) == {**words, "cat": "accepted"}
    assert not found.valid_sides[found.words.index("dog")].any()


@pytest.mark.parametrize(
    ("surface", "fitting"),
    [
        ("ball", {"dog", "cat"}),
        ("Ball", {"dog", "cat", "london"}),
        ("BALL", {"dog", "cat", "london", "tv"}),
        ("A", {"dog", "cat", "london"}),
    ],
)
def test_capitals_of_its_own_must_fit(surface: str, fitting: set[str]) -> None:
    suggested = {"dog": -1.0, "cat": -1.1, "London": -1.2, "TV": -1.3, "iPhone": -1.4}
    both = [occurrence(suggested, surface=surface, side=side) for side in (0, 1)]
    found = reasons(judged(*both, pair="x"))
    assert {word for word, reason in found.items() if reason == "accepted"} == fitting
    assert {word for word, reason in found.items() if reason == "case"} == {
        "dog", "cat", "london", "tv", "iphone",
    } - fitting  # fmt: skip


def test_the_likeliest_fitting_spelling_counts() -> None:
    suggested = {"DOG": -1.0, "Dog": -1.5, "dog": -2.5}
    lower = judged(occurrence(suggested), occurrence(suggested, side=1), pair="x")
    assert lower.log_p.tolist() == [[-2.5, -2.5]]
    assert lower.rank.tolist() == [[3, 3]]
    title = judged(*(occurrence(suggested, surface="Ball", side=s) for s in (0, 1)), pair="x")
    assert title.rank.tolist() == [[2, 2]]


def test_entries_that_are_no_words() -> None:
    # 11 and 16 are pieces, 17 and 99 stand behind the tokenizer's last entry.
    suggested: dict[str | int, float] = {11: -1, "cat": -1.5, 16: -2, 17: -2.5, 99: -3}
    found = judged(occurrence(suggested), occurrence(suggested, side=1))
    assert (found.words, found.not_words) == (("cat",), 4)
    assert found.rank.tolist() == [[2, 2]]


def test_an_entry_that_is_a_word_in_one_place_alone_is_counted_once() -> None:
    start: list[str | None] = ["dog", None, "cat", None]
    spaced: list[str | None] = [None, "dog", None, "cat"]
    forms = Forms(spaced, {"start": start})
    every: dict[str | int, float] = {0: -1, 1: -1.1, 2: -1.2, 3: -1.3}
    found = judged(
        occurrence(every, unit="start", surface="Ball"),
        occurrence(every, unit="spaced", side=1),
        pair="x",
        forms=forms,
    )
    assert reasons(found) == {"dog": "accepted", "cat": "accepted"}
    assert found.rank.tolist() == [[1, 2], [3, 4]]
    assert found.not_words == 0


def test_nothing_is_a_word() -> None:
    found = judged(occurrence({11: -1.0}), occurrence({16: -1.0}, side=1))
    assert (found.words, found.not_words) == ((), 2)
    assert accepted_by({"a": found}, "same") == accepted_by({"a": found}, "any") == {}


def test_one_masked_lm_must_hold_on_both_sides_or_two_may_share() -> None:
    none: dict[str | int, float] = {"man": -9.0}
    first = judged(occurrence({"cat": -1.0}), occurrence(none, side=1))
    second = judged(occurrence(none), occurrence({"cat": -1.0, "pear": -1.0}, side=1))
    third = judged(occurrence({"cat": -1.0}), occurrence({"cat": -1.0}, side=1))
    assert accepted_by({"A": first, "B": second}, "same") == {}
    assert accepted_by({"A": first, "B": second}, "any") == {"cat": ("A", "B")}
    assert accepted_by({"A": first, "B": second, "C": third}, "same") == {"cat": ("C",)}
    assert accepted_by({"A": first, "B": second, "C": third}, "any") == {"cat": ("A", "B", "C")}


def reference(
    occurrences: list[Occurrence], pair: list[str], entries: list[str | None], strict: bool
) -> tuple[dict[str, tuple[str, list[int], tuple[bool, bool]]], int]:
    """By word: the first reason that holds, ranks, valid sides; and the number of non-words."""
    listed = [
        [(entries[i] if i < len(entries) else None, float(p)) for i, p in zip(o.ids, o.log_p)]  # noqa: B905
        for o in occurrences
    ]
    no_word = {int(i) for o in occurrences for i in o.ids if i >= len(entries) or not entries[i]}
    out = {}
    for word in sorted({w.lower() for row in listed for w, _ in row if w}):
        ranks, good, misfit = [], [], False
        for o, row in zip(occurrences, listed, strict=True):
            mine = [(n, w, p) for n, (w, p) in enumerate(row, 1) if w and w.lower() == word]
            fits = [
                (n, p)
                for n, w, p in mine
                if case_pattern(w) != "mixed" and match_case(case_pattern(o.surface), w)
            ]
            misfit |= bool(mine) and not fits
            ranks.append(fits[0][0] if fits else 0)
            bound = float(np.float32(o.log_p_target))
            good.append(bool(fits) and (fits[0][1] > bound or (not strict and fits[0][1] == bound)))
        inside = fold(word) in {fold(w) for w in pair}
        present = [rank > 0 for rank in ranks]
        if misfit:
            reason = "case"
        elif inside:
            reason = "in_pair"
        elif any(p and not g for p, g in zip(present, good, strict=True)):
            reason = "less_likely"
        else:
            reason = "accepted" if all(present) else "not_everywhere"
        valid = tuple(
            not inside and all(g for o, g in zip(occurrences, good, strict=True) if o.side == side)
            for side in (0, 1)
        )
        out[word] = (reason, ranks, valid)
    return out, len(no_word)


@st.composite
def answers(draw: st.DrawFn) -> list[Occurrence]:
    sides = [0, *draw(st.lists(st.sampled_from([0, 1]), max_size=2)), 1]
    out = []
    for side in sorted(sides):
        ids = draw(st.lists(st.integers(0, len(ENTRIES) + 1), min_size=1, max_size=9, unique=True))
        values = draw(
            st.lists(st.sampled_from([-1, -2, -2.5, -3]), min_size=len(ids), max_size=len(ids))
        )
        surface = draw(st.sampled_from(["ball", "Ball", "BALL"]))
        log_p = np.asarray(sorted(values, reverse=True), dtype=np.float32)
        own = draw(st.sampled_from([-2.0, -2.5, -9.0]))
        out.append(Occurrence(side, "spaced", surface, np.asarray(ids, np.int32), log_p, own))
    return out


@settings(max_examples=120, deadline=None)
@given(
    answers(), st.lists(st.sampled_from(["DOG", "Cat", "ball", "STRASSE", "CAFÉ"])), st.booleans()
)
def test_against_the_slow_reference(
    occurrences: list[Occurrence], pair: list[str], strict: bool
) -> None:
    found = candidates(occurrences, pair, Vocabulary(Forms(ENTRIES)), ProposeOptions(strict=strict))
    expected, no_words = reference(occurrences, pair, ENTRIES, strict)
    assert set(found.words) == set(expected)
    assert len(found.words) == len(set(found.words))
    for word, reason, rank, log_p, valid in zip(
        found.words,
        reasons(found).values(),
        found.rank,
        found.log_p,
        found.valid_sides,
        strict=True,
    ):
        assert (reason, rank.tolist(), tuple(valid.tolist())) == expected[word], word
        for o, r, p in zip(occurrences, rank, log_p, strict=True):
            assert p == (o.log_p[r - 1] if r else -np.inf)
    assert found.not_words == no_words


def test_one_mask_at_a_time_alone_or_with_the_other_sentence(toy: SimpleNamespace) -> None:
    tagger = toy.tagger("NOUN sing: dog")
    (seed,) = toy.seeds(tagger, ("A dog, a dog.", "The dog"))
    ((slot,), _) = shared_slots(seed, TargetOptions())
    p, h = "A dog, a dog.", "The dog"
    assert occurrence_texts(seed, slot, ProposeOptions()) == [
        (p, 2, 5, None, True),
        (p, 9, 12, None, True),
        (h, 4, 7, None, True),
    ]
    assert occurrence_texts(seed, slot, ProposeOptions(context="pair")) == [
        (p, 2, 5, h, True),
        (p, 9, 12, h, True),
        (h, 4, 7, p, False),
    ]
