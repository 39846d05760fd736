"""Words with character offsets, case patterns and splices: text is edited by offsets alone.

One tokenization feeds everything (targets, tags, the "differs from every word" filter), so that no
two parts of the program disagree about what a word is. The words are those of the Moses tokenizer;
an aligner maps each back to the raw text, and everything between words stays byte-identical.

Source: MERGE (word replacement); Mind the Gap (Moses words).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from triaxial.errors import InputError

if TYPE_CHECKING:
    from sacremoses import MosesTokenizer

__all__ = ["Word", "case_pattern", "fold", "match_case", "splice", "words"]


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its place: `sentence[start:end]` is `text`, save control characters inside it."""

    text: str
    start: int
    end: int


def words(sentence: str) -> tuple[Word, ...]:
    """Moses words of a sentence, with offsets into the sentence as it stands.

    Choice: a combining mark belongs to the word of the character before it. Moses makes it a word
    of its own, so that a replaced "cafe" would leave its accent on the next word put there.

    Raises:
        InputError: The tokenizer changed a character, so that a word has no place in the sentence.
    """
    found: list[Word] = []
    at = 0
    for token in _moses().tokenize(_without_marks(sentence), escape=False):
        start = at = _skip_blanks(sentence, at)
        for character in token:
            at = _skip_blanks(sentence, at)
            if at >= len(sentence) or sentence[at] != character:
                raise InputError(
                    f"cannot place the word {token!r} in the sentence {sentence!r}; the tokenizer "
                    "writes dots as DOTMULTI and back, take these letters out"
                )
            at += 1
            while at < len(sentence) and _is_mark(sentence[at]):
                at += 1
        text = sentence[start:at]
        if len(text) > len(token):
            text = "".join(character for character in text if not _is_blank(character))
        found.append(Word(text, start, at))
    return tuple(found)


def fold(text: str) -> str:
    """The form in which words are compared: NFC, case-folded."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def case_pattern(word: str) -> str:
    """One of `lower`, `title`, `upper`, `mixed`; words without case are `lower`.

    A single capital letter is `title`: "A" says nothing about the letters that would follow.
    """
    if word == word.lower():
        return "lower"
    if word[:1].isupper() and word[1:] == word[1:].lower():
        return "title"
    if word == word.upper():
        return "upper"
    return "mixed"


def match_case(pattern: str, word: str) -> str | None:
    """`word` written in a case pattern, or `None` where its own capitals forbid that.

    "guitar" fits every pattern; "London" does not fit `lower`, and "TV" fits only `upper` and
    `mixed`: lowering them would make another word, and hide a name from the tagger.
    """
    own = case_pattern(word)
    if pattern == "mixed" or own == pattern:
        return word
    if own == "lower":
        return word.upper() if pattern == "upper" else word[:1].upper() + word[1:]
    if own == "title" and pattern == "upper":
        return word.upper()
    return None


def splice(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """`text` with each `(start, end, replacement)` put in; every other character is untouched.

    Spans must not overlap.
    """
    pieces: list[str] = []
    at = 0
    for start, end, replacement in sorted(edits):
        assert at <= start <= end <= len(text), "spans overlap or leave the text"
        pieces += [text[at:start], replacement]
        at = end
    return "".join([*pieces, text[at:]])


@cache
def _moses() -> MosesTokenizer:
    from sacremoses import MosesTokenizer

    return MosesTokenizer(lang="en")


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and _is_blank(text[at]):
        at += 1
    return at


def _without_marks(text: str) -> str:
    if text.isascii():
        return text
    # A mark after a blank has no character to belong to: it stays.
    pairs = zip(" " + text, text, strict=False)
    return "".join(c for before, c in pairs if _is_blank(before) or not _is_mark(c))


def _is_blank(character: str) -> bool:
    # The tokenizer drops white space and these control characters, the latter within words too.
    return character.isspace() or character < " "


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")
