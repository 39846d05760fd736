"""Tiny models: real directories, right marks and offsets, the same files for the same call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

from triaxial.errors import InputError
from triaxial.models.base import load_pretrained, load_tokenizer, locate, longest_input
from triaxial.models.tiny import FAMILIES, tiny_classifier, tiny_masked
from triaxial.nli import LABELS

WORDS = ["A man is playing a guitar.", "Two dogs run on the beach.", "the café isn't open"]
SENTENCE = "A man is on the beach."
WHOLE = ["A", "man", "is", "on", "the", "beach", "."]


def pieces(tokenizer: Any, text: str) -> list[str]:
    encoding = tokenizer(text, return_offsets_mapping=True)
    return [text[start:end].strip() for start, end in encoding["offset_mapping"][1:-1]]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_masked_model_of_every_family(family: str, tmp_path: Path) -> None:
    checkpoint = locate(str(tiny_masked(tmp_path / "model", WORDS, family, seed=3)))
    tokenizer = load_tokenizer(checkpoint)
    model = load_pretrained(AutoModelForMaskedLM, checkpoint)
    assert len(tokenizer) == model.config.vocab_size
    # Every given word is one token, wherever it stands; another is split, not unknown.
    assert pieces(tokenizer, SENTENCE) == WHOLE
    assert pieces(tokenizer, "dogs") == ["dogs"]
    split = tokenizer("zebra", add_special_tokens=False)["input_ids"]
    assert len(split) > 3
    assert tokenizer.unk_token_id not in split
    # One mark in front, one behind, and every mark is known by name.
    ids = tokenizer(SENTENCE)["input_ids"]
    assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert len({tokenizer.mask_token_id, tokenizer.pad_token_id, ids[0], ids[-1]}) == 4
    assert model.config.pad_token_id == tokenizer.pad_token_id
    # The longest input fits its positions, one more token does not have to.
    long = tokenizer(
        "man " * 300, truncation=True, max_length=longest_input(model.config, tokenizer)
    )
    assert len(long["input_ids"]) == 128
    with torch.inference_mode():
        model(input_ids=torch.tensor([long["input_ids"]]))
        query = SENTENCE.replace("man", str(tokenizer.mask_token))
        at = tokenizer(query)["input_ids"].index(tokenizer.mask_token_id)
        logits = model(**tokenizer(query, return_tensors="pt")).logits[0, at]
    spread = logits.log_softmax(-1)
    assert spread.max() - spread.min() > 1  # it prefers some words, as a real one does


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_a_classifier_with_named_labels(family: str, tmp_path: Path) -> None:
    checkpoint = locate(str(tiny_classifier(tmp_path / "model", WORDS, family)))
    model = load_pretrained(AutoModelForSequenceClassification, checkpoint)
    assert list(model.config.id2label.values()) == list(LABELS)
    named = tiny_classifier(tmp_path / "named", WORDS, family, labels=["no", "yes"])
    model = load_pretrained(AutoModelForSequenceClassification, locate(str(named)))
    assert model.config.label2id == {"no": 0, "yes": 1}


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_the_same_call_writes_the_same_model(family: str, tmp_path: Path) -> None:
    state = torch.get_rng_state()
    first = locate(str(tiny_masked(tmp_path / "a", WORDS, family, seed=1))).digest
    torch.rand(7)
    assert locate(str(tiny_masked(tmp_path / "b", WORDS, family, seed=1))).digest == first
    assert locate(str(tiny_masked(tmp_path / "c", WORDS, family, seed=2))).digest != first
    torch.set_rng_state(state)
    before = torch.get_rng_state()
    tiny_masked(tmp_path / "d", WORDS, family)
    assert torch.equal(torch.get_rng_state(), before)  # the caller's randomness is untouched


def test_cased_and_uncased(tmp_path: Path) -> None:
    cased = load_tokenizer(locate(str(tiny_masked(tmp_path / "cased", WORDS, cased=True))))
    plain = load_tokenizer(locate(str(tiny_masked(tmp_path / "plain", WORDS))))
    assert cased.tokenize("Two café") == ["Two", "café"]
    assert plain.tokenize("Two café") == ["two", "cafe"]  # BERT's uncased models drop accents


def test_an_unknown_family(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tiny model of the family 'gpt2'; use one of bert,"):
        tiny_masked(tmp_path, WORDS, "gpt2")
