"""Tiny random models with the real architectures and tokenizer families, made on the spot.

Tests and the demo need a masked model or a classifier of every family without a network.  A tiny
model is an ordinary directory: configuration, safetensors and a fast tokenizer whose vocabulary
holds the given words whole and everything else in single characters (WordPiece, unigram) or bytes
(byte-BPE).  What such a model predicts is arbitrary, but it depends on the context and on nothing
but the arguments: the same call writes the same files.
"""

from __future__ import annotations

import contextlib
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triaxial.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["FAMILIES", "tiny_causal", "tiny_classifier", "tiny_masked"]

_LONGEST = 128  # tokens
# Ten times BERT's: with its .02 a model this narrow gives nearly the same answer to everything.
_SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class _Family:
    """How a family is put together: tokenizer class, special tokens in id order, configuration."""

    kind: str  # wordpiece, bpe, unigram
    tokenizer: str
    specials: tuple[str, ...]
    # Positions that the architecture sets aside in front of the first token.
    offset: int = 0
    mask_last: bool = False
    config: dict[str, Any] = field(default_factory=dict)


_BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_FAMILY = {
    "bert": _Family("wordpiece", "BertTokenizer", _BERT),
    "distilbert": _Family("wordpiece", "BertTokenizer", _BERT),
    "electra": _Family("wordpiece", "BertTokenizer", _BERT, config={"embedding_size": 16}),
    "mpnet": _Family(
        "wordpiece", "MPNetTokenizer", ("<s>", "<pad>", "</s>", "[UNK]", "<mask>"), offset=2
    ),
    "roberta": _Family("bpe", "RobertaTokenizer", _ROBERTA, offset=2, mask_last=True),
    "modernbert": _Family(
        "bpe",
        "PreTrainedTokenizerFast",
        ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"),
        config={"global_attn_every_n_layers": 2, "local_attention": 16},
    ),
    "xlm-roberta": _Family("unigram", "XLMRobertaTokenizer", _ROBERTA, offset=2, mask_last=True),
    "albert": _Family(
        "unigram",
        "AlbertTokenizer",
        ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
        config={"embedding_size": 16},
    ),
    "deberta-v2": _Family(
        "unigram",
        "DebertaV2Tokenizer",
        ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
        mask_last=True,
        config={
            "relative_attention": True,
            "position_biased_input": False,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_buckets": 32,
        },
    ),
}

FAMILIES = tuple(_FAMILY)


def tiny_masked(
    directory: Path,
    words: Iterable[str],
    family: str = "bert",
    *,
    seed: int = 0,
    cased: bool = False,
    hidden: int = 32,
    layers: int = 2,
) -> Path:
    """Write a random masked language model and its tokenizer; return the directory.

    Args:
        directory: Where to write; made when absent.
        words: Words or whole sentences; each word becomes one token.
        family: One of `FAMILIES`.
        seed: Of the weights.
        cased: Keep capitals, for the WordPiece families; the others always do, but for ALBERT,
            which lowers them as its published checkpoints do.
        hidden: Width, a multiple of 4.
        layers: Depth.

    Raises:
        InputError: There is no such family.
    """
    return _write(
        directory, words, family, "AutoModelForMaskedLM", seed, cased, hidden, layers, labels=None
    )


def tiny_classifier(
    directory: Path,
    words: Iterable[str],
    family: str = "bert",
    *,
    seed: int = 0,
    cased: bool = False,
    hidden: int = 32,
    layers: int = 2,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write a random sequence classifier and its tokenizer; return the directory.

    Args:
        directory: Where to write; made when absent.
        words: Words or whole sentences; each word becomes one token.
        family: One of `FAMILIES`.
        seed: Of the weights.
        cased: As in `tiny_masked`.
        hidden: Width, a multiple of 4.
        layers: Depth.
        labels: Names of the classes in the order of the outputs; by default those of `nli.LABELS`.

    Raises:
        InputError: There is no such family.
    """
    if labels is None:
        from triaxial.nli import LABELS

        labels = [str(label) for label in LABELS]
    auto = "AutoModelForSequenceClassification"
    return _write(directory, words, family, auto, seed, cased, hidden, layers, labels=labels)


def tiny_causal(
    directory: Path,
    words: Iterable[str],
    *,
    seed: int = 0,
    hidden: int = 32,
    layers: int = 2,
    longest: int = _LONGEST,
) -> Path:
    """Write a random decoder of the Llama family and a byte-BPE tokenizer; return the directory.

    Its tokenizer puts `<s>` in front, and has no padding token, as most decoders have none.

    Args:
        directory: Where to write; made when absent.
        words: Words or whole sentences; each word becomes one token.
        seed: Of the weights.
        hidden: Width, a multiple of 4.
        layers: Depth.
        longest: Tokens that it takes.
    """
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1 << 20,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<s>", "</s>"],
    )
    units = _units(words)
    tokenizer.train_from_iterator([form for unit in units for form in (unit, f" {unit}")], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)]
    )
    make: Any = transformers.PreTrainedTokenizerFast
    fast = make(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=longest,
        model_input_names=["input_ids", "attention_mask"],
    )
    config = transformers.LlamaConfig(
        vocab_size=len(fast),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        max_position_embeddings=longest,
        initializer_range=_SPREAD,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = transformers.LlamaForCausalLM(config)
    with _without_bars():
        model.save_pretrained(directory)
    fast.save_pretrained(str(directory))
    return directory


def _write(
    directory: Path,
    words: Iterable[str],
    family: str,
    auto: str,
    seed: int,
    cased: bool,
    hidden: int,
    layers: int,
    *,
    labels: Sequence[str] | None,
) -> Path:
    import torch
    import transformers

    if family not in _FAMILY:
        raise InputError(
            f"no tiny model of the family {family!r}; use one of {', '.join(FAMILIES)}",
            where="family",
        )
    parts = _FAMILY[family]
    tokenizer = _tokenizer(parts, _units(words), cased)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": _LONGEST + parts.offset,
        "initializer_range": _SPREAD,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "cls_token_id": tokenizer.cls_token_id,
        "sep_token_id": tokenizer.sep_token_id,
    }
    if family == "distilbert":
        sizes |= {"dim": hidden, "hidden_dim": 2 * hidden, "n_heads": 2, "n_layers": layers}
    else:
        sizes |= {
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_attention_heads": 2,
            "num_hidden_layers": layers,
        }
    if labels is not None:
        sizes["id2label"] = dict(enumerate(labels))
        sizes["label2id"] = {label: index for index, label in enumerate(labels)}
    config = transformers.AutoConfig.for_model(family, **sizes | parts.config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = getattr(transformers, auto).from_config(config)
    with _without_bars():
        model.save_pretrained(directory)
    tokenizer.save_pretrained(str(directory))
    return directory


def _units(texts: Iterable[str]) -> list[str]:
    # Words and single marks in order of first appearance: never a set, whose order would vary.
    return list(dict.fromkeys(unit for text in texts for unit in re.findall(r"\w+|[^\w\s]", text)))


def _tokenizer(parts: _Family, units: Sequence[str], cased: bool) -> PreTrainedTokenizerFast:
    import transformers

    build: dict[str, Callable[[], dict[str, Any]]] = {
        "wordpiece": lambda: _wordpiece(parts.specials, units, cased),
        "bpe": lambda: _byte_bpe(parts, units),
        "unigram": lambda: _unigram(parts, units),
    }
    made: PreTrainedTokenizerFast = getattr(transformers, parts.tokenizer)(
        **build[parts.kind](), model_max_length=_LONGEST
    )
    return made


def _wordpiece(specials: Sequence[str], units: Sequence[str], cased: bool) -> dict[str, Any]:
    from tokenizers import normalizers

    # As the tokenizer will see them: BERT's uncased models also lose their accents.
    normal = normalizers.BertNormalizer(lowercase=not cased)
    units = list(dict.fromkeys(normal.normalize_str(unit) for unit in units))
    letters = _letters(units, cased)
    pieces = [*specials, *units, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    return {"vocab": vocabulary, "do_lower_case": not cased}


def _byte_bpe(parts: _Family, units: Sequence[str]) -> dict[str, Any]:
    import json

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1 << 20,  # merges go on until every word is whole
        min_frequency=1,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[*parts.specials[:-1]],
    )
    # Each word as the first of a sentence, without its blank, and as a later one.
    tokenizer.train_from_iterator([form for unit in units for form in (unit, f" {unit}")], trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    vocabulary: dict[str, int] = learned["vocab"]
    vocabulary[parts.specials[-1]] = len(vocabulary)
    merges = [tuple(pair) for pair in learned["merges"]]
    if parts.tokenizer != "PreTrainedTokenizerFast":
        return {"vocab": vocabulary, "merges": merges}
    # ModernBERT has no tokenizer class: its files carry the whole pipeline.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(mark, vocabulary[mark]) for mark in ("[CLS]", "[SEP]")],
    )
    names = ("unk_token", "cls_token", "sep_token", "pad_token", "mask_token")
    marks = dict(zip(names, parts.specials, strict=True))
    # Its inputs have no segment ids.
    inputs = ["input_ids", "attention_mask"]
    return {"tokenizer_object": tokenizer, "model_input_names": inputs, **marks}


def _unigram(parts: _Family, units: Sequence[str]) -> dict[str, Any]:
    lower = parts.tokenizer == "AlbertTokenizer"
    if lower:
        units = list(dict.fromkeys(unit.lower() for unit in units))
    letters = _letters(units, cased=not lower)
    # A word costs less than its letters together, and a word after a blank less than one without.
    scores = {special: 0.0 for special in parts.specials[:-1]}
    last = {parts.specials[-1]: 0.0}
    if not parts.mask_last:
        scores |= last
    for pieces, score in (
        ([f"▁{unit}" for unit in units], -8.0),
        (units, -9.0),
        (["▁", *letters], -10.0),
    ):
        for piece in pieces:
            scores.setdefault(piece, score)
    if parts.mask_last:
        scores |= last
    return {"vocab": list(scores.items()), **({"do_lower_case": True} if lower else {})}


def _letters(units: Sequence[str], cased: bool) -> list[str]:
    # All of ASCII's, so that a word that was not given is split as by a real vocabulary.
    letters = string.ascii_letters if cased else string.ascii_lowercase
    return sorted({*letters, *string.digits, *"".join(units)})


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()
