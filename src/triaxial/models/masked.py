"""Masked language models: what they expect in the place of one word.

A query is a sentence with ONE mask id spliced over the token of one word (ids, never strings).
Queries run in length-sorted batches, the language-model head is applied at the mask position
alone, and top-k and the probability of the word itself are taken on the device.  Which vocabulary
entries are words is decided by position and offsets, the same way for WordPiece, byte-level BPE
and SentencePiece: an entry is a word where its text, written in that place, is tokenized into that
entry alone.

Source: MERGE, suggestions (200 suggestions from each masked LM).

Q queries, B rows of a batch, T tokens, d width, V vocabulary, K suggestions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from triaxial.models.base import (
    Hardware,
    Work,
    autocast,
    evaluation,
    hardware,
    load_config,
    load_pretrained,
    load_tokenizer,
    locate,
    longest_input,
)
from triaxial.models.batching import TOKEN_BUDGET, length_batches, pad, with_backoff
from triaxial.models.tensors import fetched, on_device, one_behind

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Fill", "MaskedLM", "MaskedTokenizer", "Place", "Query", "load_masked"]

Unit = Literal["start", "spaced", "glued"]

# A word is letters, with hyphens between letters; the same holds in every script.
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
# What stands before a word decides how a tokenizer writes it: "Ġman" behind a blank, else "man".
_CARRIERS: dict[Unit, str] = {"start": "", "spaced": "a ", "glued": "("}
# Logits of one batch hold at most so many numbers: 250,000 entries x 512 rows would be half a GiB.
_MOST_LOGITS = 32_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """A word of a sentence to be masked: `text[start:end]`; `other` is the pair's other sentence.

    `first` says whether `text` is the first of the two. Without `other` the sentence stands alone.
    """

    text: str
    start: int
    end: int
    other: str | None = None
    first: bool = True


@dataclass(frozen=True, slots=True)
class Query:
    """Token ids with one mask, the position of the mask and the id of the word it hides."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    position: int
    target: int
    unit: Unit

    @property
    def key(self) -> bytes:
        """Sixteen bytes that name the query within one model."""
        numbers = np.asarray([self.target, len(self.ids), *self.ids, *self.types], dtype="<i8")
        return hashlib.blake2b(numbers.tobytes(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Fill:
    """Suggestions for Q queries.

    Args:
        ids: The K likeliest entries, likeliest first, shape (Q, K), int32.
        log_p: Their natural log-probabilities over the whole vocabulary, shape (Q, K), float32.
        log_p_target: Log-probability of the hidden word, shape (Q,), float32.
    """

    ids: NDArray[np.int32]
    log_p: NDArray[np.float32]
    log_p_target: NDArray[np.float32]


class MaskedTokenizer:
    """The tokenizer side of a masked LM: queries and word forms, without the weights.

    Args:
        name: Directory or hub id.
        revision: Hub revision.
    """

    def __init__(self, name: str, revision: str | None = None) -> None:
        from triaxial.errors import InputError

        self.checkpoint = locate(name, revision)
        self.name = name
        self.config = load_config(self.checkpoint)
        self.tokenizer = load_tokenizer(self.checkpoint)
        if self.tokenizer.mask_token_id is None:
            raise InputError("its tokenizer has no mask token: not a masked LM", where=name)
        self.longest = longest_input(self.config, self.tokenizer)
        self._forms: dict[Unit, list[str | None]] = {}
        self._whole: dict[tuple[Unit, int], bool] = {}

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Strings that this tokenizer would read as marks and not as text."""
        return tuple(self.tokenizer.all_special_tokens)

    def queries(self, places: Sequence[Place]) -> list[Query | str]:
        """One query for each place, or the reason why there is none.

        Reasons: `split` (the word is not one token in its position), `unknown` (its token is the
        unknown token), `too_long` (the sentence exceeds what the model takes).
        """
        out: list[Query | str] = []
        encoded: dict[
            tuple[str, str | None, bool], tuple[list[int], list[int], dict[Any, int]]
        ] = {}
        for text, other, first in dict.fromkeys((p.text, p.other, p.first) for p in places):
            encoded[text, other, first] = self._encode(text, other, first)
        found = [encoded[p.text, p.other, p.first] for p in places]
        at_of = [
            spans.get((p.start, p.end)) for p, (_, _, spans) in zip(places, found, strict=True)
        ]
        self._settle(
            (unit, ids[at])
            for place, (ids, _, _), at in zip(places, found, at_of, strict=True)
            if at is not None
            for unit in _units(place)
        )
        for place, (ids, types, _), at in zip(places, found, at_of, strict=True):
            if len(ids) > self.longest:
                out.append("too_long")
            elif at is None:
                out.append("split")
            elif ids[at] == self.tokenizer.unk_token_id:
                out.append("unknown")
            elif not (units := [u for u in _units(place) if self._whole[u, ids[at]]]):
                # The last of several bytes of one letter, or what stands behind a lone "▁", has
                # the place of the word but is a piece of it.
                out.append("split")
            else:
                masked = (*ids[:at], self.tokenizer.mask_token_id, *ids[at + 1 :])
                out.append(Query(masked, tuple(types), at, ids[at], units[0]))
        return out

    def forms(self, unit: Unit) -> list[str | None]:
        """The word that each vocabulary entry stands for in a place, `None` where it is no word.

        Length V. A piece of a word, punctuation, a number, a mark and an entry that the tokenizer
        itself would never produce for its own text are all no words.
        """
        if unit not in self._forms:
            self._forms[unit] = self._word_forms(unit)
        return self._forms[unit]

    def _encode(
        self, text: str, other: str | None, first: bool
    ) -> tuple[list[int], list[int], dict[tuple[int, int], int]]:
        pair = (text,) if other is None else (text, other) if first else (other, text)
        encoding = self.tokenizer(*pair, return_offsets_mapping=True, return_token_type_ids=True)
        side = 0 if first else 1
        spans = {
            _trimmed(text, *span): at
            for at, (span, sequence) in enumerate(
                zip(encoding["offset_mapping"], encoding.sequence_ids(), strict=True)
            )
            if sequence == side
        }
        return encoding["input_ids"], encoding["token_type_ids"], spans

    def _word_forms(self, unit: Unit) -> list[str | None]:
        entries = range(len(self.tokenizer))
        texts = [str(self.tokenizer.decode([entry])).strip() for entry in entries]
        special = set(self.tokenizer.all_special_ids)
        found: list[str | None] = [None] * len(texts)
        words = [i for i, t in enumerate(texts) if i not in special and _WORD.fullmatch(t)]
        whole = self._are_whole(words, [texts[entry] for entry in words], unit)
        for entry, is_whole in zip(words, whole, strict=True):
            if is_whole:
                found[entry] = texts[entry]
        return found

    def _settle(self, asked: Iterable[tuple[Unit, int]]) -> None:
        """Find out which entries are one token in a place, each once."""
        new: dict[Unit, dict[int, None]] = {}
        for unit, entry in asked:
            if (unit, entry) not in self._whole:
                new.setdefault(unit, {})[entry] = None
        for unit, entries in new.items():
            texts = [str(self.tokenizer.decode([entry])).strip() for entry in entries]
            for entry, whole in zip(entries, self._are_whole([*entries], texts, unit), strict=True):
                self._whole[unit, entry] = whole

    def _are_whole(self, entries: Sequence[int], texts: Sequence[str], unit: Unit) -> list[bool]:
        """Whether each entry's text, written in a place, is tokenized into that entry alone."""
        if not entries:
            return []
        carrier = _CARRIERS[unit]
        encodings = self.tokenizer(
            [carrier + text for text in texts],
            add_special_tokens=False,
            return_offsets_mapping=True,
        ).encodings
        out = []
        for entry, text, encoding in zip(entries, texts, encodings or (), strict=True):
            spans = [_trimmed(carrier + text, *span) for span in encoding.offsets]
            out.append(
                encoding.ids[-1:] == [entry]
                and spans[-1] == (len(carrier), len(carrier + text))
                # A blank that is a token of its own ("▁", "man") makes two of the word.
                and all(start < end <= len(carrier) for start, end in spans[:-1])
            )
        return out


class MaskedLM(MaskedTokenizer):
    """A masked LM with its weights; see `load_masked`."""

    def __init__(
        self, name: str, where: Hardware, revision: str | None, token_budget: int | None
    ) -> None:
        from transformers import AutoModelForMaskedLM

        super().__init__(name, revision)
        self.where = where
        self.work = Work()
        kind = torch.device(where.device).type
        self.token_budget = token_budget or TOKEN_BUDGET[kind]
        self.model = load_pretrained(AutoModelForMaskedLM, self.checkpoint).to(where.device)
        self.model.eval()
        prefix = self.model.base_model_prefix
        self._body = _AtMask(getattr(self.model, prefix), where)
        setattr(self.model, prefix, self._body)

    @cached_property
    def fingerprint(self) -> dict[str, str]:
        """What decides the numbers: weights, revision, precision."""
        return {**self.checkpoint.fingerprint, "precision": self.where.precision}

    def fill(
        self,
        queries: Sequence[Query],
        k: int = 200,
        progress: Callable[[int], None] | None = None,
    ) -> Fill:
        """The `k` likeliest entries for each query, before any filter, and the word's own value.

        Queries that differ in the hidden word alone share a forward. `progress` is told the number
        of queries done since it was last called.
        """
        members: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
        for row, query in enumerate(queries):
            members.setdefault((query.ids, query.types), []).append(row)
        rows = list(members.values())
        heads = [queries[group[0]] for group in rows]
        k = min(k, self.model.config.vocab_size)
        ids = np.zeros((len(queries), k), dtype=np.int32)
        log_p = np.zeros((len(queries), k), dtype=np.float32)
        own = np.zeros(len(queries), dtype=np.float32)
        most = max(_MOST_LOGITS // self.model.config.vocab_size, 1)
        lengths = [len(query.ids) for query in heads]

        def best(part: NDArray[np.intp], width: int) -> tuple[list[int], list[int], Any]:
            """Lines and rows of some queries, and what is there for the rows."""
            line = [n for n, i in enumerate(part) for _ in rows[i]]
            where = [row for i in part for row in rows[i]]
            logits = self._forward([heads[i] for i in part], width)
            norm = torch.logsumexp(logits, dim=-1, keepdim=True)  # (B, 1)
            top = torch.topk(logits, k, dim=-1)  # (B, K)
            targets = np.asarray([queries[row].target for row in where])
            at, of = (on_device(array, logits.device) for array in (np.asarray(line), targets))
            hidden = logits[at, of] - norm[at, 0]
            found = fetched(hidden, top.indices.to(torch.int32), top.values - norm)
            return line, where, found

        batches = length_batches(lengths, self.token_budget, most_rows=most)
        with evaluation(self.model):
            done = (
                found
                for batch in batches
                for _, found in with_backoff(partial(best, width=lengths[batch[0]]), batch)
            )
            for line, where, found in one_behind(done):
                hidden, indices, values = found()
                own[where] = hidden
                ids[where] = indices[line]
                log_p[where] = values[line]
                if progress is not None:
                    progress(len(where))
        return Fill(ids, log_p, own)

    def _forward(self, queries: Sequence[Query], width: int) -> torch.Tensor:
        device = self.where.device
        ids = pad([query.ids for query in queries], self.tokenizer.pad_token_id or 0, width)
        lengths = np.asarray([len(query.ids) for query in queries])
        inputs = {
            "input_ids": ids,  # (B, T)
            "attention_mask": (np.arange(width) < lengths[:, None]).astype(np.int64),
        }
        if "token_type_ids" in self.tokenizer.model_input_names:
            inputs["token_type_ids"] = pad([query.types for query in queries], 0, width)
        positions = on_device(np.asarray([query.position for query in queries]), device)
        self._body.positions = positions
        sent = {name: on_device(array, device) for name, array in inputs.items()}
        logits = self.model(**sent).logits  # (B, 1, V)
        self.work.count(len(queries), int(lengths.sum()), ids.size)
        if logits.shape[1] != 1:
            # A model whose head does not read the body's last hidden state: slower, same numbers.
            logits = logits[torch.arange(len(queries), device=device), positions][:, None]
        return logits[:, 0].float()  # type: ignore[no-any-return]  # (B, V)


class _AtMask(nn.Module):
    """The body of a masked LM, whose output keeps the mask position alone, in fp32.

    The head then costs 1 / T, and its logits are not rounded to bf16, which would make
    probabilities tie.
    """

    def __init__(self, body: nn.Module, where: Hardware) -> None:
        super().__init__()
        self.body = body
        self.where = where
        self.positions = torch.empty(0, dtype=torch.long)

    def __getattr__(self, name: str) -> Any:
        # The head of some models asks the body for its embeddings.
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("body"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with autocast(self.where):
            output = self.body(*args, **kwargs)
        hidden = output[0]  # (B, T, d)
        rows = torch.arange(len(self.positions), device=hidden.device)
        output.last_hidden_state = hidden[rows, self.positions][:, None].float()  # (B, 1, d)
        return output


def load_masked(
    name: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    precision: Literal["auto", "fp32", "bf16"] = "fp32",
    token_budget: int | None = None,
) -> MaskedLM:
    """Load any Hugging Face masked LM from a directory or the hub.

    Args:
        name: Directory or hub id.
        revision: Hub revision; the commit that it resolves to goes into the fingerprint.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        precision: fp32 by default, as probabilities are compared (`log p(r) >= log p(o)`).
        token_budget: Padded tokens of a batch; by default what suits the device.

    Raises:
        InputError: No such model, no weights, no mask token, no fast tokenizer.
    """
    return MaskedLM(name, hardware(device, precision), revision, token_budget)


def _units(place: Place) -> tuple[Unit, ...]:
    """The kinds of place that a word may stand in, the likelier first."""
    before = place.text[place.start - 1 : place.start] if place.start else ""
    if not before:
        return ("start",)
    if before == " ":
        return ("spaced",)
    # A no-break space or a tab is a blank to some tokenizers and a letter to others.
    return ("spaced", "glued") if before.isspace() else ("glued",)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A token's span without the white space that some tokenizers count to it."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end
