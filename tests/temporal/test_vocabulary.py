"""Vocabularies: SentencePiece's own pieces, from training documents alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.errors import InputError, StoreError
from triaxial.temporal import vocabulary
from triaxial.temporal.corpus import Document
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.splits import Entry, Split, SplitOptions, validate_splits
from triaxial.temporal.vocabulary import (
    VocabularyOptions,
    read_vocabulary,
    train_vocabulary,
    trained_ids,
)

AWKWARD = [
    "",
    "  ",
    "The treaty",
    "The  treaty\n\r\nwas ▁signed",
    "▁start",
    "\u3000x\u2028y\x85z",
    "☃☃☃ ☃a",
    "e\u0301te\u0301 cafe\u0301",
    "<s> <unk> </s> <0x41><0xE2>",
    "a\x00b",
    "日本語 text",
    "👩\u200d👩\u200d👧 family",
    " lead and trail  ",
    "\x1c\x1dz",
    "▁▁▁",
    "a ▁",
    "ﬁ ligature \uff21 ½",
    "▅ block\tand tab",
    "x" * 300,
]
SMALL = VocabularyOptions(size=540)
DOCUMENTS = plant(PlantOptions(documents=96))[0]
SPLIT = Split("time-stratified", tuple(d.id for d in DOCUMENTS[:80]), (), ("new",))
NEW = Document("new", "2020-01", "covfefe covfefe covfefe " * 99, "x")
CORPUS = [*DOCUMENTS, NEW]


@pytest.fixture(scope="module")
def unigram(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """SentencePiece's own model, and ours made of it."""
    from sentencepiece import SentencePieceProcessor

    model = vocabulary._unigram_model((d.text for d in DOCUMENTS), SMALL)
    return SentencePieceProcessor(model_proto=model), vocabulary._fast(model)


@pytest.mark.parametrize("text", AWKWARD)
def test_pieces_are_those_of_sentencepiece(unigram: tuple[Any, Any], text: str) -> None:
    spm, ours = unigram
    assert ours.encode(text, add_special_tokens=False).ids == spm.encode(text)


def test_pieces_of_documents_are_those_of_sentencepiece(unigram: tuple[Any, Any]) -> None:
    spm, ours = unigram
    for document in DOCUMENTS:
        encoding = ours.encode(document.text, add_special_tokens=False)
        assert encoding.ids == spm.encode(document.text)
        assert ours.decode(encoding.ids) == document.text  # nothing is lost


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="abcT <>0x41E/sunk▁\t\né☃\u0301日.,'\x85\0", max_size=25))
def test_pieces_of_any_text_are_those_of_sentencepiece(unigram: tuple[Any, Any], text: str) -> None:
    spm, ours = unigram
    assert ours.encode(text, add_special_tokens=False).ids == spm.encode(text)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_same_documents_give_the_same_file(tmp_path: Path, kind: Any) -> None:
    options = replace(SMALL, kind=kind)
    facts = [train_vocabulary(iter(CORPUS), SPLIT, tmp_path / n, options) for n in "ab"]
    files = [(tmp_path / n / "tokenizer.json").read_bytes() for n in "ab"]
    assert files[0] == files[1]
    assert facts[0] == facts[1] == read_vocabulary(tmp_path / "a")
    assert (facts[0].size, facts[0].documents, facts[0].kind) == (540, 80, kind)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_transformers_reads_it_beside_any_model(tmp_path: Path, kind: Any) -> None:
    from transformers import AutoTokenizer, LlamaConfig

    train_vocabulary(CORPUS, SPLIT, tmp_path, replace(SMALL, kind=kind))
    LlamaConfig().save_pretrained(tmp_path)  # LlamaTokenizer would segment it otherwise
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    from tokenizers import Tokenizer

    ours = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in (*AWKWARD, DOCUMENTS[0].text):
        if "<" not in text:  # marks in texts are marks to transformers, unless told otherwise
            assert loaded(text)["input_ids"] == ours.encode(text, add_special_tokens=False).ids
    assert (loaded.bos_token, loaded.eos_token) == ("<s>", "<s>")
    assert len(loaded) == 540


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_documents_outside_training_teach_nothing(tmp_path: Path, kind: Any) -> None:
    options = replace(SMALL, kind=kind)
    train_vocabulary(CORPUS, SPLIT, tmp_path / "a", options)
    train_vocabulary(DOCUMENTS[:80], SPLIT, tmp_path / "b", options)
    first, second = ((tmp_path / n / "tokenizer.json").read_text() for n in "ab")
    assert first == second
    assert "covfefe" not in first
    leaky = Split("leaky", ("new", *SPLIT.train), (), ())
    train_vocabulary(CORPUS, leaky, tmp_path / "c", options)
    assert "covfefe" in (tmp_path / "c" / "tokenizer.json").read_text()


def test_what_it_was_trained_on_is_proved_by_the_ids(tmp_path: Path) -> None:
    train_vocabulary(CORPUS, SPLIT, tmp_path, SMALL)
    assert trained_ids(tmp_path, SPLIT) == SPLIT.train
    other = replace(SPLIT, name="control", train=(*SPLIT.train[1:], "new"))
    with pytest.raises(InputError, match="80 documents of 'time-stratified', which are not the tr"):
        trained_ids(tmp_path, other)
    # The leak check of splits takes it as it is.
    entries = [Entry(d.id, d.date, 9) for d in CORPUS]
    split = replace(SPLIT, train=SPLIT.train[:60], test=(DOCUMENTS[-1].id,))
    month = DOCUMENTS[-1].date[:7]
    options = SplitOptions(month, month, per_month=1, valid_months=0)
    leaky = {split.name: (*split.train, DOCUMENTS[-1].id)}
    assert DOCUMENTS[60].date[:7] < month
    validate_splits(entries, [split], options, vocabulary={split.name: split.train})
    with pytest.raises(InputError, match="tokenizer"):
        validate_splits(entries, [split], options, vocabulary=leaky)


def test_a_sample_is_drawn_by_the_seed_and_known_afterwards(tmp_path: Path) -> None:
    options = replace(SMALL, size=300, kind="bpe", documents=20)
    facts = train_vocabulary(CORPUS, SPLIT, tmp_path, options)
    ids = trained_ids(tmp_path, SPLIT)
    assert len(ids) == facts.documents == 20
    assert set(ids) < set(SPLIT.train)
    only = replace(SPLIT, train=ids)
    train_vocabulary(CORPUS, only, tmp_path / "again", replace(options, documents=None))
    again = (tmp_path / "again" / "tokenizer.json").read_text()
    assert (tmp_path / "tokenizer.json").read_text() == again
    train_vocabulary(CORPUS, SPLIT, tmp_path / "other", replace(options, seed=2))
    assert trained_ids(tmp_path / "other", SPLIT) != ids


def test_long_documents_are_not_dropped() -> None:
    # By default sentencepiece leaves out what is longer than 4,192 bytes, without an error.
    from sentencepiece import SentencePieceProcessor

    long = " ".join(f"{word} zyzzyva" for word in " ".join(d.text for d in DOCUMENTS).split())
    assert len(long) > 20_000
    model = vocabulary._unigram_model([long], SMALL)
    assert "▁zyzzyva" in SentencePieceProcessor(model_proto=model).encode("a zyzzyva", out_type=str)


@pytest.mark.parametrize("mark", ["▅", "\t", "\0", "\n"])
def test_texts_with_odd_characters_are_not_dropped(mark: str) -> None:
    # With the first one sentencepiece drops the whole text.
    from sentencepiece import SentencePieceProcessor

    texts = [d.text.replace(" ", f"{mark}ß ", 3) for d in DOCUMENTS[:40]]
    options = replace(SMALL, size=520, coverage=1.0)
    model = vocabulary._unigram_model([*texts, *(d.text for d in DOCUMENTS[40:])], options)
    assert "ß" in "".join(SentencePieceProcessor(model_proto=model).encode("aß", out_type=str))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "word"}, "^kind: is 'word'; it must be one of unigram, bpe"),
        ({"size": 400}, "^size: is 400; it must be at least 512"),
        ({"documents": 0}, "^documents: is 0; it must be at least 1"),
        ({"coverage": 0.5}, r"^coverage: is 0\.5; it must be a share from \.9 to 1"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        VocabularyOptions(**options)


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    def train(corpus: Any, split: Split = SPLIT, kind: Any = "unigram", size: int = 9000) -> None:
        train_vocabulary(corpus, split, tmp_path, VocabularyOptions(kind=kind, size=size))

    with pytest.raises(InputError, match=r"^size: is 9000, which .* allow .*too high.*<= [0-9]+"):
        train(CORPUS)
    with pytest.raises(InputError, match=r"^size: is 9000, which .*no more than [0-9]+"):
        train(CORPUS, kind="bpe")
    blank = [Document("new", "2020-01", "\n\t ", "x")]
    with pytest.raises(InputError, match="there is no text"):
        train(blank, Split("s", ("new",), (), ()))
    with pytest.raises(InputError, match=r"^time-stratified: 75 training documents are not in the"):
        train(CORPUS[:5])
    with pytest.raises(InputError, match="stands twice in the corpus; remove one"):
        train([*CORPUS, CORPUS[0]])
    with pytest.raises(InputError, match=r"^s: has no training documents"):
        train(CORPUS, Split("s", (), (), ()))
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match="the vocabulary cannot be written"):
        train_vocabulary(CORPUS, SPLIT, file, SMALL)


def test_a_record_that_is_missing_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no vocabulary\.json: what its tokenizer was trained on"):
        read_vocabulary(tmp_path)
    (tmp_path / "vocabulary.json").write_text(json.dumps({"kind": "bpe"}))
    with pytest.raises(InputError, match="is damaged; train the vocabulary again"):
        read_vocabulary(tmp_path)
