"""Words keep their places, a splice changes nothing else, and case follows the pattern."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.text import Word, case_pattern, fold, match_case, splice, words

# Ordinary text, and what tokenizers stumble over: blanks of all kinds, controls, marks, quotes.
CHARACTERS = (
    "ab.,()'\u2019\"\u201c-/@\xe9\u72ac\u0301\u0308\ufe0f \t\n\xa0\u2003\u2028\u200b\xad\ufeff"
    "\x00\x07\x1c\x1f\x7f\x85\x92"
)
TOKENS = ["Dog", "U.S.", "don't", "dogs'", "KO'ed", "1.1", "1,000", "...", "&amp;", "<b>", "[MASK]"]
TOKENS += ["\r\n", "e\u0301", "\u0939\u093f", "\u2764\ufe0f", "\U0001f469\u200d\U0001f467"]
PIECES = st.sampled_from([*CHARACTERS, *TOKENS])
SENTENCES = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=30))


def is_dropped(character: str) -> bool:
    return character.isspace() or character < " "


def texts(sentence: str) -> list[str]:
    return [word.text for word in words(sentence)]


@settings(max_examples=150, deadline=None)
@given(SENTENCES)
def test_words_have_their_places_in_order_and_leave_out_only_blanks(sentence: str) -> None:
    inside: set[int] = set()
    at = 0
    for word in words(sentence):
        assert at <= word.start < word.end <= len(sentence)
        span = sentence[word.start : word.end]
        assert "".join(c for c in span if not is_dropped(c)) == word.text
        inside |= set(range(word.start, at := word.end))
    assert all(is_dropped(c) for i, c in enumerate(sentence) if i not in inside)


@settings(max_examples=150, deadline=None)
@given(SENTENCES)
def test_no_word_but_a_stray_mark_starts_with_a_combining_mark(sentence: str) -> None:
    for word in words(sentence):
        if unicodedata.category(word.text[0]).startswith("M"):
            assert word.start == 0 or is_dropped(sentence[word.start - 1])


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("U.S. troops don't go.", ["U.S.", "troops", "don", "'t", "go", "."]),  # nlpaug #171
        ("A (group) of 1.1 dogs", ["A", "(", "group", ")", "of", "1.1", "dogs"]),  # nlpaug #325
        ("He was KO'ed.", ["He", "was", "KO", "'ed", "."]),  # TextAttack PR #293
        ("an e-mail, “so-called”", ["an", "e-mail", ",", "“", "so-called", "”"]),
        ("Wait.... what..", ["Wait", "....", "what", ".."]),
        ("A\xa0man  runs\tfast", ["A", "man", "runs", "fast"]),
        ("cafe\u0301 nai\u0308ve", ["cafe\u0301", "nai\u0308ve"]),
        ("\u0301 a", ["\u0301", "a"]),
        ("do\x07g runs", ["dog", "runs"]),
        ("the dog\x92s tail", ["the", "dog", "\x92", "s", "tail"]),
        ("", []),
        (" \t\x00", []),
    ],
)
def test_words_of_hard_sentences(sentence: str, expected: list[str]) -> None:
    assert texts(sentence) == expected


def test_offsets_count_characters_of_the_raw_sentence() -> None:
    # "A" 0-1, NBSP 1, "man" 2-5, two blanks 5-7, "do" BEL "g" 7-11, "." 11-12.
    assert words("A\xa0man  do\x07g.") == (
        Word("A", 0, 1),
        Word("man", 2, 5),
        Word("dog", 7, 11),
        Word(".", 11, 12),
    )


def test_a_sentence_that_the_tokenizer_rewrites_is_refused() -> None:
    with pytest.raises(InputError, match=r"^cannot place the word '\.' in the sentence 'DOTMULTI'"):
        words("DOTMULTI")


def test_words_of_real_sentences_are_placed(shared: Path) -> None:
    lines = (shared / "data/nli/SICK.txt").read_text().splitlines()[1:4000:10]
    for line in lines:
        sentence = line.split("\t")[1]
        assert [sentence[w.start : w.end] for w in words(sentence)] == texts(sentence)


@settings(max_examples=150, deadline=None)
@given(SENTENCES, st.data())
def test_replacing_one_word_leaves_all_else_byte_identical(
    sentence: str, data: st.DataObject
) -> None:
    found = words(sentence)
    if not found:
        return
    word = data.draw(st.sampled_from(found))
    edited = splice(sentence, [(word.start, word.end, "guitar")])
    assert edited[: word.start] == sentence[: word.start]
    assert edited[word.start :].removeprefix("guitar") == sentence[word.end :]


@settings(deadline=None)
@given(SENTENCES)
def test_splicing_every_word_by_itself_is_nothing(sentence: str) -> None:
    found = [(w.start, w.end, sentence[w.start : w.end]) for w in words(sentence)]
    assert splice(sentence, found) == sentence
    assert splice(sentence, []) == sentence


def test_splice_takes_edits_in_any_order_at_both_ends() -> None:
    assert splice("a dog ran", [(6, 9, "sat"), (0, 1, "The")]) == "The dog sat"
    assert splice("", [(0, 0, "x")]) == "x"


@pytest.mark.parametrize("edits", [[(0, 3, "x"), (2, 4, "y")], [(0, 6, "x")], [(3, 2, "x")]])
def test_splice_refuses_spans_that_overlap_or_leave_the_text(
    edits: list[tuple[int, int, str]],
) -> None:
    with pytest.raises(AssertionError, match="spans overlap or leave the text"):
        splice("a dog", edits)


@pytest.mark.parametrize(
    ("word", "pattern"),
    [
        ("dog", "lower"),
        ("Dog", "title"),
        ("A", "title"),
        ("TV", "upper"),
        ("U.S.", "upper"),
        ("McDonald", "mixed"),
        ("iPhone", "mixed"),
        ("E-mail", "title"),
        ("1.1", "lower"),
        ("犬", "lower"),
        ("Élan", "title"),
        ("", "lower"),
    ],
)
def test_case_pattern(word: str, pattern: str) -> None:
    assert case_pattern(word) == pattern


@pytest.mark.parametrize(
    ("word", "lower", "title", "upper", "mixed"),
    [
        ("guitar", "guitar", "Guitar", "GUITAR", "guitar"),
        ("London", None, "London", "LONDON", "London"),
        ("TV", None, None, "TV", "TV"),
        ("iPhone", None, None, None, "iPhone"),
        ("1.1", "1.1", "1.1", "1.1", "1.1"),
        ("élan", "élan", "Élan", "ÉLAN", "élan"),
    ],
)
def test_match_case(
    word: str, lower: str | None, title: str | None, upper: str | None, mixed: str | None
) -> None:
    patterns = ("lower", "title", "upper", "mixed")
    assert [match_case(pattern, word) for pattern in patterns] == [lower, title, upper, mixed]


@settings(deadline=None)
@given(st.text(st.characters(max_codepoint=0x17F, categories=["L", "N"]), min_size=1, max_size=8))
def test_match_case_keeps_the_word(word: str) -> None:
    for pattern in ("lower", "title", "upper", "mixed"):
        written = match_case(pattern, word)
        if written is not None and fold(word.upper()) == fold(word):
            assert fold(written) == fold(word)
    assert match_case(case_pattern(word), word) == word


@given(st.text(max_size=20))
def test_fold_is_one_form_of_a_word_however_it_is_written(text: str) -> None:
    assert fold(unicodedata.normalize("NFD", text)) == fold(text) == fold(fold(text))


def test_fold_by_hand() -> None:
    assert fold("Cafe\u0301") == "caf\u00e9" == fold("CAFÉ")
    assert fold("Straße") == "strasse"
