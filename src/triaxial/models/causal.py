"""Causal language models: the log-probability of every piece of a document, given all before it.

One adapter for Transformer-XL directories of ours and for any causal LM of Hugging Face.  A row is
the start mark, the pieces of a document and the end mark; each piece is a target exactly once, the
first included, and so is the end mark, which is kept apart.

- A Transformer-XL reads the row in segments and remembers; its memory never reaches into the next
  document.
- Any other model reads *windows*: the first holds `window` tokens, each further one begins `stride`
  tokens after the one before, and only targets that no window before has scored count. A target
  has at least `window` - `stride` tokens before it, or all there are.

Scores depend neither on the batch nor on padding: see `causal_readers`, where they are computed.

Source: Lazaridou et al. 2021 (every token, memory); reports on peers: lm-evaluation-harness #3333
(start mark twice), #1586 (end mark in its place), #2467 (windows undeclared), axolotl PR #3988
(padding scored).
Choice: text that looks like a mark is text; windows begin without a mark, but for the first; half a
window of overlap.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from triaxial.errors import InputError
from triaxial.models.base import (
    Checkpoint,
    Hardware,
    Work,
    hardware,
    load_config,
    load_pretrained,
    load_tokenizer,
    locate,
    longest_input,
)
from triaxial.models.batching import TOKEN_BUDGET
from triaxial.models.causal_readers import Reader, Segments, Windows, refuse_look_ahead
from triaxial.models.transformer_xl import load_transformer_xl

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

__all__ = [
    "CausalLM",
    "DocumentScore",
    "is_transformer_xl",
    "load_causal",
    "own_tokenizer",
]

_XL = "triaxial_transformer_xl"
_LONGEST_WINDOW = 2_048  # by default: of models that would take more
_ROWS_PER_ENCODING = 1_024  # documents tokenized at a time


@dataclass(frozen=True, slots=True)
class DocumentScore:
    """What a document of n pieces costs.

    Args:
        ids: Pieces, shape (n,), int32.
        offsets: Their characters in the text, start and end, shape (n, 2), int32.
        log_p: Natural log-probabilities, shape (n,), float32.
        end_log_p: That of the end of the document after all pieces; None where the model has none.
        unknown: Pieces that stand for characters which the vocabulary lacks. Above 0 the
            probability of the text is not known: a run of any length is one such piece.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int32]
    log_p: NDArray[np.float32]
    end_log_p: float | None
    unknown: int


class CausalLM:
    """A language model that scores documents; see `load_causal`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        tokenizer: PreTrainedTokenizerFast,
        separator: str | None,
        reader: Reader,
        where: Hardware,
        work: Work,
    ) -> None:
        self.name = checkpoint.name
        self.checkpoint = checkpoint
        self.tokenizer = tokenizer
        self.where = where
        self.work = work
        self.given: tuple[Any, ...] = ()
        self.start, self.end = _marks(tokenizer, separator, checkpoint.name)
        self._reader = reader
        self._encoder = tokenizer.backend_tokenizer
        self._encoder.no_padding()
        self._encoder.no_truncation()
        self._encoder.encode_special_tokens = True
        vocabulary = self._encoder.get_vocab()
        self._bytes = {
            vocabulary[piece]: None
            for piece in (f"<0x{byte:02X}>" for byte in range(256))
            if piece in vocabulary
        }
        highest = max(self.start, self.end or 0, len(tokenizer) - 1)
        if highest >= reader.vocabulary:
            raise InputError(
                f"its tokenizer has pieces up to {highest}, the model {reader.vocabulary} pieces; "
                "use the tokenizer that the model was trained with",
                where=self.name,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        assert self.given, "made by load_causal"
        return _again, self.given

    @property
    def network(self) -> torch.nn.Module:
        """The model itself, for training and dynamic evaluation."""
        network: torch.nn.Module = self._reader.model
        return network

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What must be said beside every figure: window and stride or memory, precision, marks."""
        marks = {"start": self.start, "end": self.end}
        return {
            "model": self.name,
            "precision": self.where.precision,
            **self._reader.facts,
            **marks,
        }

    @cached_property
    def fingerprint(self) -> dict[str, str]:
        """What decides the numbers: weights, revision, precision, windows or memory, marks."""
        decides = {name: str(value) for name, value in self.facts.items() if name != "model"}
        return {**self.checkpoint.fingerprint, **decides}

    def encode(self, texts: Sequence[str]) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """Ids, shape (n,), and character offsets, shape (n, 2), of each text's pieces; no marks."""
        found = []
        for at in range(0, len(texts), _ROWS_PER_ENCODING):
            some = list(texts[at : at + _ROWS_PER_ENCODING])
            for text, encoding in zip(
                some, self._encoder.encode_batch(some, add_special_tokens=False), strict=True
            ):
                ids = np.asarray(encoding.ids, dtype=np.int32)
                offsets = np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2)
                if self._bytes:
                    self._place_bytes(text, ids, offsets)
                found.append((ids, offsets))
        return found

    def score(
        self, texts: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[DocumentScore]:
        """Score documents, each by itself.

        Args:
            texts: Whole documents, of any length, empty ones too.
            progress: Told the number of documents done since it was last called.

        Raises:
            InputError: A single row does not fit into memory.
        """
        encoded = self.encode(texts)
        ends = [] if self.end is None else [self.end]
        rows = [[self.start, *ids.tolist(), *ends] for ids, _ in encoded]
        values = self._reader.log_p(rows, progress or (lambda _: None))
        unknown = self.tokenizer.unk_token_id
        return [
            DocumentScore(
                ids,
                offsets,
                log_p[: len(ids)],
                None if self.end is None else float(log_p[-1]),
                0 if unknown is None else int((ids == unknown).sum()),
            )
            for (ids, offsets), log_p in zip(encoded, values, strict=True)
        ]

    def _place_bytes(self, text: str, ids: NDArray[np.int32], offsets: NDArray[np.int32]) -> None:
        """Give every byte its own character where a tokenizer gives it the whole unknown run."""
        wide = np.flatnonzero(offsets[:, 1] - offsets[:, 0] > 1)
        at = 0
        for first in wide.tolist():
            if first < at or int(ids[first]) not in self._bytes:
                continue
            start, end = offsets[first]
            lengths = [len(c.encode("utf-8", "surrogatepass")) for c in text[start:end]]
            at = first + sum(lengths)
            run = slice(first, at)
            whole = at <= len(ids) and bool((offsets[run] == (start, end)).all())
            if not whole or any(int(n) not in self._bytes for n in ids[run]):
                at = first + 1  # of a tokenizer that changed the characters: left as it is
                continue
            character = start + np.repeat(np.arange(len(lengths)), lengths)
            offsets[run] = np.stack([character, character + 1], 1)


def load_causal(
    name: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    window: int | None = None,
    stride: int | None = None,
    memory: int | None = None,
    separator: str | None = None,
    token_budget: int | None = None,
) -> CausalLM:
    """Load a Transformer-XL of ours, or any Hugging Face causal LM.

    Args:
        name: Directory or hub id.
        revision: Hub revision.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        precision: `auto` is bf16 where the chip has it; the output layer is always in fp32.
        window: Tokens that a model without memory sees; by default what it takes, at most 2,048.
        stride: Tokens between the beginnings of two windows; by default half a window.
        memory: Tokens that a Transformer-XL remembers; by default its `memory_test`.
        separator: Token that stands before and after documents in place of the tokenizer's marks;
            needed where it has no start mark (such as "<|endoftext|>").
        token_budget: Padded tokens of a batch; by default what suits the device.

    Raises:
        InputError: No such model, no fast tokenizer, no start mark; it looks ahead; an option does
            not fit the model.
    """
    given = name, revision, device, precision, window, stride, memory, separator, token_budget
    model = _loaded(*given)
    model.given = given
    return model


def is_transformer_xl(checkpoint: Checkpoint) -> bool:
    """Whether a directory holds a Transformer-XL of ours."""
    try:
        found = json.loads((checkpoint.path / "config.json").read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("model_type") == _XL


def own_tokenizer(directory: Path, name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a directory of ours, as its `tokenizer.json` says; `name` is for errors.

    Raises:
        InputError: There is none, or it is damaged.
    """
    from transformers import PreTrainedTokenizerFast

    if not (directory / "tokenizer.json").is_file():
        raise InputError("no tokenizer.json; save the tokenizer beside the weights", where=name)
    try:
        found: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(directory)
    except Exception as error:  # tokenizers raises bare exceptions
        reason = str(error).splitlines()[0]
        raise InputError(f"no tokenizer can be loaded: {reason}", where=name) from None
    return found


@lru_cache(1)
def _again(*given: Any) -> CausalLM:
    """A model that came from another process: one here, however often it comes."""
    return _loaded(*given)


def _loaded(
    name: str,
    revision: str | None,
    device: str,
    precision: Literal["auto", "fp32", "bf16"],
    window: int | None,
    stride: int | None,
    memory: int | None,
    separator: str | None,
    token_budget: int | None,
) -> CausalLM:
    where = hardware(device, precision)
    checkpoint = locate(name, revision)
    work = Work()
    budget = token_budget or TOKEN_BUDGET[torch.device(where.device).type]
    if is_transformer_xl(checkpoint):
        if window is not None or stride is not None:
            raise InputError(
                "a Transformer-XL has a memory in place of windows; pass memory, or neither",
                where="window, stride",
            )
        tokenizer = own_tokenizer(checkpoint.path, name)
        network = load_transformer_xl(checkpoint.path, device=where.device)
        if memory is not None:
            network.config = replace(network.config, memory_test=memory)
        reader: Reader = Segments(network, where, budget, work)
        return CausalLM(checkpoint, tokenizer, separator, reader, where, work)
    if memory is not None:
        raise InputError(
            "this model has windows and no memory; pass window and stride, or neither",
            where="memory",
        )
    from transformers import AutoModelForCausalLM

    config = load_config(checkpoint)
    tokenizer = load_tokenizer(checkpoint)
    longest = longest_input(config, tokenizer)
    window = min(longest, _LONGEST_WINDOW) if window is None else window
    stride = max(window // 2, 1) if stride is None else stride
    if not 1 <= window <= longest:
        raise InputError(f"is {window}; {name} takes 1 to {longest} tokens", where="window")
    if not 1 <= stride <= window:
        raise InputError(f"is {stride}; it must be 1 to {window}, the window", where="stride")
    model = load_pretrained(AutoModelForCausalLM, checkpoint).to(where.device)
    refuse_look_ahead(model, name)
    windows = Windows(model, where, budget, work, window, stride)
    return CausalLM(checkpoint, tokenizer, separator, windows, where, work)


def _marks(
    tokenizer: PreTrainedTokenizerFast, separator: str | None, name: str
) -> tuple[int, int | None]:
    """Ids of the start and the end mark."""
    if separator is not None:
        if separator not in tokenizer.get_vocab():
            raise InputError(
                f"its tokenizer has no token {separator!r}; name one of its own, such as one of "
                f"{', '.join(tokenizer.all_special_tokens) or 'its pieces'}",
                where=name,
            )
        mark = tokenizer.get_vocab()[separator]
        return mark, mark
    if tokenizer.bos_token_id is None:
        raise InputError(
            "its tokenizer has no start mark (BOS), so the first token of a document cannot be "
            "scored; choose the token that stood between documents in training as separator, "
            f"such as one of {', '.join(tokenizer.all_special_tokens) or 'its pieces'}",
            where=name,
        )
    return tokenizer.bos_token_id, tokenizer.eos_token_id
