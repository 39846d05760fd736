"""Vocabularies: the pieces of a language model, learned from a split's own training documents.

A vocabulary that saw the test months knows their new words, so it is a leak like any other. Here
documents outside the split's training part cannot enter, and what went in is written down: a digest
of the ids, by which `trained_ids` proves the vocabulary before a model is trained or tested with
it. Two kinds, both written as a fast tokenizer (`tokenizer.json`) with character offsets:

- `unigram`: SentencePiece's. Its pieces are those of the sentencepiece library itself, on any text:
  transformers would segment the same model wrongly.
- `bpe`: byte-level BPE.

Both give pieces to any character, so that no text is unknown, and none to white space for its own
sake beyond what they merge into pieces. One mark, `<s>`, stands before, between and after
documents; text that looks like it is text.

Source: Lazaridou et al. 2021 (SentencePiece, 50,259 pieces, of each setup's own training data).
Choice: unigram; white space of any kind and length is one blank, as in SentencePiece; nothing else
is normalized, so that the pieces spell the text; characters outside the alphabet become bytes.

It reads a corpus as a stream; the sentencepiece library holds the training documents in memory
(about 20 bytes a character), byte-BPE their distinct words.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from triaxial.errors import InputError, StoreError
from triaxial.stats import generator
from triaxial.temporal.corpus import Document
from triaxial.temporal.splits import Split

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = [
    "FACTS",
    "MARK",
    "Vocabulary",
    "VocabularyOptions",
    "read_vocabulary",
    "train_vocabulary",
    "trained_ids",
]

Kind = Literal["unigram", "bpe"]

MARK = "<s>"  # before, between and after documents
FACTS = "vocabulary.json"
_UNKNOWN = "<unk>"
# Unicode's white space, which tokenizers' and Python's notions of it both hold.
_BLANKS = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
# sentencepiece drops every training text that holds it; encoding does not mind.
_RESERVED = "\u2585"
# What "<0x41>" and "<unk>" are written with. Marks and bytes have names that a text may hold; their
# score is so low that the characters one by one, all of them known, are always the better reading.
_SPELLED = "<>0123456789ABCDEFx/sunk"
_NEVER = -1e6
# The sums of sentencepiece's threads depend on their number, so it is the same on every machine.
_THREADS = 4
_LEAST = {"unigram": 512, "bpe": 258}  # bytes, marks and, for unigram, what an alphabet needs


@dataclass(frozen=True, slots=True)
class VocabularyOptions:
    """What is learned.

    Args:
        kind: `unigram` (SentencePiece) or `bpe` (byte-level).
        size: Pieces, marks and bytes among them.
        documents: Most documents to learn from, drawn at random; `None` is all.
        coverage: Share of the characters that the alphabet holds, the rest is bytes; of `unigram`.
        seed: Of the draw.
    """

    kind: Kind = "unigram"
    size: int = 8192
    documents: int | None = None
    coverage: float = 0.9995
    seed: int = 1

    def __post_init__(self) -> None:
        if self.kind not in _LEAST:
            raise InputError(f"is {self.kind!r}; it must be one of unigram, bpe", where="kind")
        wanted = {
            "size": (self.size >= _LEAST[self.kind], f"at least {_LEAST[self.kind]}"),
            "documents": (self.documents is None or self.documents >= 1, "at least 1"),
            "coverage": (0.9 <= self.coverage <= 1, "a share from .9 to 1"),
        }
        for name, (good, rule) in wanted.items():
            if not good:
                raise InputError(f"is {getattr(self, name)!r}; it must be {rule}", where=name)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a vocabulary was learned from.

    Args:
        kind: See the options.
        size: Pieces.
        split: Name of the split.
        documents: How many it was learned from.
        digest: SHA-256 of their ids in order.
        sample: The `documents` of the options.
        seed: Of the draw.
    """

    kind: Kind
    size: int
    split: str
    documents: int
    digest: str
    sample: int | None
    seed: int


def train_vocabulary(
    documents: Iterable[Document],
    split: Split,
    directory: Path,
    options: VocabularyOptions | None = None,
) -> Vocabulary:
    """Learn a vocabulary and write it: the same documents in the same order give the same files.

    Args:
        documents: The corpus, read once; documents outside the split's training part are skipped.
        split: Whose training documents count.
        directory: For `tokenizer.json`, `tokenizer_config.json` and `vocabulary.json`.
        options: What is learned.

    Raises:
        InputError: A training document is missing or stands twice; there is too little text for
            so many pieces.
        StoreError: The directory cannot be written.
    """
    options = options or VocabularyOptions()
    ids = _drawn(split.train, options.documents, options.seed)
    texts = _texts(documents, ids, split.name)
    tokenizer = _unigram(texts, options) if options.kind == "unigram" else _bpe(texts, options)
    size = tokenizer.get_vocab_size()
    facts = Vocabulary(
        options.kind, size, split.name, len(ids), _digest(ids), options.documents, options.seed
    )
    # Read by transformers; its own class for the architecture would build another tokenizer.
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": MARK,
        "eos_token": MARK,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    } | ({"unk_token": _UNKNOWN} if options.kind == "unigram" else {})
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write(directory / "tokenizer.json", tokenizer.to_str())
        _write(directory / "tokenizer_config.json", json.dumps(config, indent=1))
        _write(directory / FACTS, json.dumps(asdict(facts), indent=1))
    except OSError as error:
        raise StoreError(
            f"the vocabulary cannot be written ({error}); make room or choose another directory",
            where=directory,
        ) from None
    return facts


def read_vocabulary(directory: Path) -> Vocabulary:
    """What the vocabulary of a directory was learned from.

    Raises:
        InputError: It is not one of ours, or its record is damaged.
    """
    path = directory / FACTS
    if not path.is_file():
        raise InputError(
            f"no {FACTS}: what its tokenizer was trained on is unknown; train one with this split",
            where=directory,
        )
    try:
        return Vocabulary(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise InputError("is damaged; train the vocabulary again", where=path) from None


def trained_ids(directory: Path, split: Split) -> tuple[str, ...]:
    """Ids of the documents that a vocabulary was learned from, all of them the split's training.

    Made for the leak check of `splits.validate_splits`.

    Raises:
        InputError: It was learned from anything else, or nothing is known.
    """
    facts = read_vocabulary(directory)
    ids = _drawn(split.train, facts.sample, facts.seed)
    if _digest(ids) != facts.digest:
        raise InputError(
            f"its tokenizer was trained on {facts.documents} documents of {facts.split!r}, which "
            f"are not the training documents of {split.name!r} as they are now; train a vocabulary "
            "for this split",
            where=directory,
        )
    return ids


def _drawn(train: tuple[str, ...], most: int | None, seed: int) -> tuple[str, ...]:
    if most is None or most >= len(train):
        return train
    chosen = generator("vocabulary", seed).permutation(len(train))[:most]
    return tuple(train[n] for n in sorted(chosen))


def _digest(ids: Collection[str]) -> str:
    return hashlib.sha256(json.dumps(sorted(ids)).encode()).hexdigest()


def _texts(documents: Iterable[Document], ids: Collection[str], name: str) -> Iterator[str]:
    missing = set(ids)
    if not missing:
        raise InputError("has no training documents; make the split again", where=name)
    known = frozenset(missing)
    for document in documents:
        if document.id not in known:
            continue
        if document.id not in missing:
            raise InputError(
                f"the training document {document.id!r} stands twice in the corpus; remove one",
                where=name,
            )
        missing.remove(document.id)
        yield document.text
    if missing:
        raise InputError(
            f"{len(missing)} training documents are not in the corpus ({min(missing)!r}, …); "
            "read the corpus that the split was made from",
            where=name,
        )


def _unigram(texts: Iterable[str], options: VocabularyOptions) -> Tokenizer:
    return _fast(_unigram_model(texts, options))


def _unigram_model(texts: Iterable[str], options: VocabularyOptions) -> bytes:
    """SentencePiece's own file."""
    from sentencepiece import SentencePieceTrainer

    # An error of ours inside the iterator would reach us as one of sentencepiece's.
    held: list[Exception] = []

    def fed() -> Iterator[str]:
        try:
            for text in texts:
                yield text.replace(_RESERVED, " ")
        except InputError as error:
            held.append(error)

    written = BytesIO()
    descriptor, rules = tempfile.mkstemp(suffix=".tsv")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.writelines(f"{ord(blank):X}\t20\n" for blank in _BLANKS if blank != " ")
        SentencePieceTrainer.train(
            sentence_iterator=fed(),
            model_writer=written,
            model_type="unigram",
            vocab_size=options.size,
            character_coverage=options.coverage,
            required_chars=_SPELLED,
            byte_fallback=True,
            normalization_rule_tsv=rules,
            max_sentence_length=1 << 30,  # longer ones would be dropped
            unk_id=0,
            unk_piece=_UNKNOWN,
            bos_id=1,
            bos_piece=MARK,
            eos_id=-1,
            pad_id=-1,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        if not held:
            reason = str(error).rpartition("] ")[2].strip().rstrip(".")[-200:]
            reason = reason or "there is no text"
            held.append(
                InputError(
                    f"is {options.size}, which the training texts do not allow ({reason}); choose "
                    "another size or give more text",
                    where="size",
                )
            )
    finally:
        Path(rules).unlink()
    if held:
        raise held[0] from None
    return written.getvalue()


def _fast(model: bytes) -> Tokenizer:
    """SentencePiece's file as a fast tokenizer that segments every text alike."""
    from sentencepiece import SentencePieceProcessor
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    spm = SentencePieceProcessor(model_proto=model)
    marks = [spm.is_byte(n) or spm.is_control(n) or spm.is_unknown(n) for n in range(len(spm))]
    pieces = [
        (spm.id_to_piece(n), _NEVER if mark else spm.get_score(n)) for n, mark in enumerate(marks)
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, spm.unk_id(), True))
    # As SentencePiece does: blanks, a blank in front, and none (nor a "▁" of the text) at the end.
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(f"[{_BLANKS}]+"), " "),
            normalizers.Strip(),
            normalizers.Prepend("▁"),
            normalizers.Replace(" ", "▁"),
            normalizers.Replace(Regex(r"▁+\z"), ""),
        ]
    )
    # Not Metaspace, which puts no blank before a text that begins with "▁".
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([_UNKNOWN, MARK])
    tokenizer.encode_special_tokens = True
    return tokenizer


def _bpe(texts: Iterable[str], options: VocabularyOptions) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=options.size,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[MARK],
    )
    tokenizer.train_from_iterator(iter(texts), trainer)
    size = tokenizer.get_vocab_size()
    if size != options.size:
        raise InputError(
            f"is {options.size}, which the training texts do not allow (no more than {size}); "
            "choose another size or give more text",
            where="size",
        )
    tokenizer.encode_special_tokens = True
    return tokenizer


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
