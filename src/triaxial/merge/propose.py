"""What masked language models propose for a slot, and which proposals they validate.

The cheap filters of MERGE, per masked LM and in array work: an entry must be a word in that place,
fit the case of the word it replaces, differ from every word of the pair, be at least as likely as
the word itself, and all that at every occurrence of the word on both sides.

Source: MERGE, conditions (i) to (iv).

J occurrences of a slot, K suggestions, U distinct candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from triaxial.merge.targets import Seed, Slot
from triaxial.text import case_pattern, fold

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "REASONS",
    "Candidates",
    "Occurrence",
    "ProposeOptions",
    "Vocabulary",
    "candidates",
    "occurrence_texts",
]

# Why a suggestion is not a candidate, from cheap to dear; each suggestion has the first that holds.
REASONS = ("not_a_word", "case", "in_pair", "less_likely", "not_everywhere")
_ACCEPTED = len(REASONS)


@dataclass(frozen=True, slots=True)
class ProposeOptions:
    """What is asked of the masked LMs and what they must say.

    Args:
        k: Suggestions taken from each masked LM before any filter. Source: 200.
        context: What the masked LM reads, the `sentence` alone or the `pair`. Choice: sentence.
        strict: Whether p(r) must exceed p(o), not only reach it. Choice: reach; the paper writes
            both.
        across: `same` demands one masked LM that validates r at every occurrence on both sides;
            `any` lets one vouch for the premise and another for the hypothesis. Source: same.
    """

    k: int = 200
    context: Literal["sentence", "pair"] = "sentence"
    strict: bool = False
    across: Literal["same", "any"] = "same"


class Forms(Protocol):
    """The part of a masked LM's tokenizer that says which entries are words."""

    def forms(self, unit: Literal["start", "spaced", "glued"]) -> list[str | None]:
        """The word of each entry in a place, `None` where it is no word."""
        ...


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One masked LM's answer at one occurrence of a slot.

    Args:
        side: 0 for the premise, 1 for the hypothesis.
        unit: How the tokenizer writes a word there.
        surface: The word as it stands there.
        ids: Suggested entries, shape (K,).
        log_p: Their log-probabilities, shape (K,).
        log_p_target: Log-probability of the word itself.
    """

    side: int
    unit: Literal["start", "spaced", "glued"]
    surface: str
    ids: NDArray[np.int32]
    log_p: NDArray[np.float32]
    log_p_target: float


class Vocabulary:
    """The words of one masked LM's vocabulary as integers, by place and by case.

    Args:
        forms: The tokenizer side of a masked LM.
    """

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self.words: list[str] = []
        self._index: dict[str, int] = {}
        self._folded: dict[str, list[int]] = {}
        self._units: dict[str, tuple[NDArray[np.int32], dict[str, NDArray[np.bool_]]]] = {}

    def keys(
        self, unit: Literal["start", "spaced", "glued"], pattern: str
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """For each entry the index of its lower-case word (-1: no word), and whether it fits.

        An entry fits where its own capitals allow the pattern: "Guitar" cannot stand for "ball",
        as it would be a name there.
        """
        if unit not in self._units:
            forms = self._forms.forms(unit)
            keys = np.full(len(forms), -1, dtype=np.int32)
            own = np.full(len(forms), "", dtype="<U5")
            for entry, word in enumerate(forms):
                if word is not None:
                    keys[entry] = self._intern(word.lower())
                    own[entry] = case_pattern(word)
            fits = {
                "lower": own == "lower",
                "title": (own == "lower") | (own == "title"),
                "upper": (own == "lower") | (own == "title") | (own == "upper"),
            }
            self._units[unit] = keys, fits
        keys, fits = self._units[unit]
        return keys, fits[pattern]

    def indices_of(self, words: Sequence[str]) -> list[int]:
        """Indices of all entries that equal one of the words, case-folded."""
        return [index for word in words for index in self._folded.get(fold(word), ())]

    def _intern(self, word: str) -> int:
        index = self._index.setdefault(word, len(self.words))
        if index == len(self.words):
            self.words.append(word)
            self._folded.setdefault(fold(word), []).append(index)
        return index


@dataclass(frozen=True, slots=True)
class Candidates:
    """What became of one masked LM's suggestions for one slot.

    Args:
        words: Distinct suggested words in lower case, shape (U,).
        reasons: Index into `REASONS`, or `len(REASONS)` where the word is validated, shape (U,).
        log_p: Log-probability at each occurrence, -inf where not suggested, shape (U, J).
        rank: Place among the suggestions from 1, 0 where not suggested, shape (U, J).
        valid_sides: Whether the word holds on the premise side and on the hypothesis side alone,
            shape (U, 2).
        not_words: Number of distinct suggested entries that are no words at any occurrence.
    """

    words: tuple[str, ...]
    reasons: NDArray[np.int8]
    log_p: NDArray[np.float32]
    rank: NDArray[np.int32]
    valid_sides: NDArray[np.bool_]
    not_words: int


def candidates(
    occurrences: Sequence[Occurrence],
    pair_words: Sequence[str],
    vocabulary: Vocabulary,
    options: ProposeOptions,
) -> Candidates:
    """Judge one masked LM's suggestions for one slot by the cheap conditions.

    Args:
        occurrences: Every occurrence of the slot, the premise's first.
        pair_words: All words of premise and hypothesis; a candidate must differ from each.
        vocabulary: Of the same masked LM.
        options: See `ProposeOptions`.
    """
    width = len(occurrences)
    keys_at, fits_at = [], []
    not_words: set[int] = set()
    words: set[int] = set()
    for occurrence in occurrences:
        keys, fits = vocabulary.keys(occurrence.unit, case_pattern(occurrence.surface))
        # Entries behind the tokenizer's last are padding of the embedding table: no words.
        inside = occurrence.ids < len(keys)
        here = np.where(inside, keys[np.where(inside, occurrence.ids, 0)], -1)
        not_words.update(occurrence.ids[here < 0].tolist())
        words.update(occurrence.ids[here >= 0].tolist())
        keys_at.append(here)
        fits_at.append(fits[np.where(inside, occurrence.ids, 0)])
    distinct = np.unique(np.concatenate(keys_at))
    distinct = distinct[distinct >= 0]
    log_p = np.full((len(distinct), width), -np.inf, dtype=np.float32)  # (U, J)
    rank = np.zeros((len(distinct), width), dtype=np.int32)
    suggested = np.zeros((len(distinct), width), dtype=bool)
    for j, occurrence in enumerate(occurrences):
        is_word = keys_at[j] >= 0
        suggested[np.searchsorted(distinct, keys_at[j][is_word]), j] = True
        usable = np.flatnonzero(is_word & fits_at[j])[
            ::-1
        ]  # the likeliest spelling is written last
        rows = np.searchsorted(distinct, keys_at[j][usable])
        log_p[rows, j] = occurrence.log_p[usable]
        rank[rows, j] = usable + 1
    own = np.asarray([occurrence.log_p_target for occurrence in occurrences], dtype=np.float32)
    present = rank > 0
    likely = present & ((log_p > own) if options.strict else (log_p >= own))
    in_pair = np.isin(distinct, vocabulary.indices_of(pair_words))
    reasons = np.full(len(distinct), _ACCEPTED, dtype=np.int8)
    # From dear to cheap, so that the cheapest reason is written last.
    reasons[~present.all(axis=1)] = REASONS.index("not_everywhere")
    reasons[(present & ~likely).any(axis=1)] = REASONS.index("less_likely")
    reasons[in_pair] = REASONS.index("in_pair")
    reasons[(suggested & ~present).any(axis=1)] = REASONS.index("case")
    sides = np.asarray([occurrence.side for occurrence in occurrences])
    valid_sides = np.stack([likely[:, sides == side].all(axis=1) for side in (0, 1)], axis=1)
    valid_sides &= ~in_pair[:, None]
    return Candidates(
        tuple(vocabulary.words[key] for key in distinct),
        reasons,
        log_p,
        rank,
        valid_sides,
        len(not_words - words),
    )


def occurrence_texts(
    seed: Seed, slot: Slot, options: ProposeOptions
) -> list[tuple[str, int, int, str | None, bool]]:
    """Text, start, end, other sentence and order of every occurrence: one mask at a time."""
    sides = seed.sides()
    out = []
    for side, index in slot.places():
        text, tokens, _ = sides[side]
        other = sides[1 - side][0] if options.context == "pair" else None
        out.append(
            (text, tokens[index].start, tokens[index].end, other, other is None or side == 0)
        )
    return out


def accepted_by(
    judged: Mapping[str, Candidates], across: Literal["same", "any"]
) -> dict[str, tuple[str, ...]]:
    """The words that pass the cheap conditions, each with the masked LMs that vouch for it.

    Args:
        judged: Candidates by name of masked LM.
        across: See `ProposeOptions`.
    """
    sources: dict[str, list[str]] = {}
    if across == "same":
        for name, found in judged.items():
            for row in np.flatnonzero(found.reasons == _ACCEPTED):
                sources.setdefault(found.words[row], []).append(name)
    else:
        vouched: dict[str, set[int]] = {}
        for name, found in judged.items():
            for row in np.flatnonzero(found.valid_sides.any(axis=1)):
                word = found.words[row]
                sources.setdefault(word, []).append(name)
                vouched.setdefault(word, set()).update(np.flatnonzero(found.valid_sides[row]))
        sources = {word: by for word, by in sources.items() if len(vouched[word]) == 2}
    return {word: tuple(by) for word, by in sorted(sources.items())}
