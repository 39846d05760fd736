"""Causal language models as NLI models: the likeliest of three answers to a prompt.

The score of an answer is the log-likelihood of its tokens behind the prompt; the three scores,
divided by a length where that is wanted, become log-probabilities that sum to one.

Tokens are those of lm-evaluation-harness, so the log-likelihoods are too: prompt and answer are
tokenized together, blanks at the end of the prompt go with the answer, and what the prompt alone
has not is the answer. The start mark stands once where the tokenizer puts it at all.

Source: MERGE, LLMs; lm-evaluation-harness 0.4.13, `loglikelihood`; Zhao et al. 2021 (calibration).
Choice: a prompt that the model cannot take whole is refused, never cut; of an answer in a chat the
blank before it is left away; marks of the tokenizer in a text are marks, as the harness has it;
pairs without content are N/A, [MASK] and nothing on both sides, and their probabilities' mean
counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
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
from triaxial.models.causal_readers import refuse_look_ahead
from triaxial.models.choice_scores import AnswerScorer, Question
from triaxial.prompts import ChoiceOptions, answers, messages, prefix, question

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

__all__ = ["CONTENT_FREE", "ChoiceModel", "fingerprint_of", "load_choice"]

CONTENT_FREE = ("N/A", "[MASK]", "")
_ROWS_PER_ENCODING = 1_024  # pairs tokenized at a time


class ChoiceModel:
    """A language model that chooses among answers; see `load_choice`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        options: ChoiceOptions,
        where: Hardware,
        token_budget: int | None,
        reuse: bool,
    ) -> None:
        from transformers import AutoModelForCausalLM

        self.name = checkpoint.name
        self.options = options
        self.work = Work()
        self._asker = _Asker(load_tokenizer(checkpoint), options, checkpoint.name)
        self.fingerprint = _fingerprint(checkpoint, where, self._asker)
        config = load_config(checkpoint)
        self._longest = longest_input(config, self._asker.tokenizer)
        model = load_pretrained(AutoModelForCausalLM, checkpoint).to(where.device)
        refuse_look_ahead(model, self.name)
        budget = token_budget or TOKEN_BUDGET[torch.device(where.device).type]
        self._scorer = AnswerScorer(model, where, budget, self.work, reuse=reuse)
        self._vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self._free: NDArray[np.float32] | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What must be said beside every figure; `reuse` changes none."""
        return {"model": self.name, **self.fingerprint, "reuse": self._scorer.reuses}

    def predict(
        self,
        pairs: Sequence[tuple[str, str]],
        progress: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        """Log-probabilities of shape (N, 3), columns in the order of `LABELS`.

        Each distinct pair is computed once.

        Args:
            pairs: Premise and hypothesis of each.
            progress: Told the number of distinct pairs done since it was last called.

        Raises:
            InputError: A prompt is longer than the model takes.
        """
        place = {pair: n for n, pair in enumerate(dict.fromkeys(pairs))}
        log_p = self._log_p(list(place), progress)
        if self.options.calibrate:
            if self._free is None:
                free = self._log_p([(text, text) for text in CONTENT_FREE], None)
                self._free = np.asarray(np.log(np.exp(free).mean(0)), dtype=np.float32)
            log_p = _normal(log_p - self._free)
        return log_p[[place[pair] for pair in pairs]]

    def log_likelihoods(
        self,
        pairs: Sequence[tuple[str, str]],
        progress: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        """Log-likelihood of each answer behind the prompt of each pair, shape (N, 3)."""
        return self._scores(self._questions(pairs), progress)

    def _log_p(
        self, pairs: Sequence[tuple[str, str]], progress: Callable[[int], None] | None
    ) -> NDArray[np.float32]:
        questions = self._questions(pairs)
        scores = self._scores(questions, progress)
        if self.options.normalize == "tokens":
            sizes = [[len(answer) for answer in one.answers] for one in questions]
            scores /= np.asarray(sizes, dtype=np.float32).reshape(scores.shape)
        elif self.options.normalize == "bytes":
            told = answers(self.options.prompt)
            scores /= np.asarray([len(text.encode()) for text in told], dtype=np.float32)
        return _normal(scores)

    def _scores(
        self, questions: Sequence[Question], progress: Callable[[int], None] | None
    ) -> NDArray[np.float32]:
        return self._scorer.scores(questions, progress).reshape(len(questions), 3)

    def _questions(self, pairs: Sequence[tuple[str, str]]) -> list[Question]:
        """What is asked of each pair, in tokens; none is longer than the model takes."""
        found = self._asker.questions(pairs)
        long = [n for n, one in enumerate(found) if one.longest > self._longest]
        if long:
            premise, hypothesis = pairs[long[0]]
            raise InputError(
                f"{len(long):,} of {len(pairs):,} prompts are longer than the {self._longest:,} "
                f"tokens that it takes, the first of {found[long[0]].longest:,} for "
                f"{premise[:40]!r} / {hypothesis[:40]!r}; show fewer or shorter examples",
                where=self.name,
            )
        highest = max((max(one.context) for one in found), default=0)
        if highest >= self._vocabulary:
            raise InputError(
                f"its tokenizer has pieces up to {highest}, the model {self._vocabulary} pieces; "
                "use the tokenizer that the model was trained with",
                where=self.name,
            )
        return found


def load_choice(
    name: str,
    *,
    options: ChoiceOptions | None = None,
    revision: str | None = None,
    device: str = "auto",
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    token_budget: int | None = None,
    reuse: bool = True,
) -> ChoiceModel:
    """Load any Hugging Face causal LM to label pairs by multiple choice.

    Args:
        name: Directory or hub id.
        options: How it is asked; by default letters without examples.
        revision: Hub revision.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        precision: `auto` is bf16 where the chip has it; the output layer is always in fp32.
        token_budget: Padded tokens of a batch; by default what suits the device.
        reuse: Whether the beginning that all prompts share is read once, where the model allows
            it; the log-probabilities are the same either way.

    Raises:
        InputError: No such model, no fast tokenizer, no chat template where one is wanted; it
            looks ahead.
    """
    where = hardware(device, precision)
    checkpoint = locate(name, revision)
    return ChoiceModel(checkpoint, options or ChoiceOptions(), where, token_budget, reuse)


def fingerprint_of(
    name: str,
    options: ChoiceOptions,
    *,
    revision: str | None = None,
    precision: Literal["auto", "fp32", "bf16"],
    device: str,
) -> dict[str, str]:
    """What decides the numbers, without reading the weights into memory."""
    checkpoint = locate(name, revision)
    asker = _Asker(load_tokenizer(checkpoint), options, name)
    return _fingerprint(checkpoint, hardware(device, precision), asker)


class _Asker:
    """Pairs to tokens."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, options: ChoiceOptions, name: str
    ) -> None:
        self.tokenizer = tokenizer
        self.options = options
        self.name = name
        if options.chat and tokenizer.chat_template is None:
            raise InputError(
                "its tokenizer has no chat template; ask without one (--no-chat), or choose a "
                "model that is trained to chat",
                where=name,
            )
        self._encoder = tokenizer.backend_tokenizer
        self._encoder.no_padding()
        self._encoder.no_truncation()
        bos = tokenizer.bos_token_id
        begins = self._encoder.encode("a").ids[:1]
        self.bos = bos if bos is not None and begins == [bos] else None
        gap = "" if options.chat else " "
        self._answers = [f"{gap}{answer}" for answer in answers(options.prompt)]
        self._prefix = prefix(options.prompt)

    def context(self, premise: str, hypothesis: str) -> str:
        """The prompt of one pair."""
        prompt = self.options.prompt
        if not self.options.chat:
            return self._prefix + question(prompt, premise, hypothesis)
        from jinja2 import TemplateError

        try:
            told: Any = messages(prompt, premise, hypothesis)
            rendered = self.tokenizer.apply_chat_template(
                told, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise InputError(
                f"its chat template refuses the prompt ({error}); an empty --instruction makes no "
                "system message",
                where=self.name,
            ) from None
        return str(rendered)

    def questions(self, pairs: Sequence[tuple[str, str]]) -> list[Question]:
        """What is asked of each pair, in tokens."""
        found = []
        for at in range(0, len(pairs), _ROWS_PER_ENCODING):
            texts = []
            for pair in pairs[at : at + _ROWS_PER_ENCODING]:
                whole = self.context(*pair)
                plain = whole.rstrip()
                texts += [plain, *(whole + answer for answer in self._answers)]
            rows = self._encode(texts)
            for n in range(0, len(rows), 4):
                context, *both = rows[n : n + 4]
                found.append(Question(context, tuple(row[len(context) :] for row in both)))
        if not all(answer for one in found for answer in one.answers):
            raise InputError(
                "its tokenizer makes one piece of the end of the prompt and an answer; ask for "
                "the other kind of answers (--answers)",
                where=self.name,
            )
        return found

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        rows = [e.ids for e in self._encoder.encode_batch(list(texts), add_special_tokens=False)]
        if self.bos is None:
            return rows
        mark = str(self.tokenizer.bos_token)
        return [
            row if text.startswith(mark) else [self.bos, *row]
            for text, row in zip(texts, rows, strict=True)
        ]


def _normal(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Log-probabilities from scores, shape (N, 3)."""
    return np.asarray(torch.log_softmax(torch.from_numpy(scores), dim=-1).numpy())


def _fingerprint(checkpoint: Checkpoint, where: Hardware, asker: _Asker) -> dict[str, str]:
    options = asker.options
    template = asker.tokenizer.chat_template if options.chat else None
    return {
        **checkpoint.fingerprint,
        "precision": where.precision,
        # As rendered: a template may put in the date.
        "prompt": _digest([asker.context("\0p", "\0h"), asker._answers]),
        "examples": str(len(options.prompt.examples)),
        "answers": options.prompt.style,
        "chat": "none" if template is None else _digest(template),
        "bos": "none" if asker.bos is None else "once",
        "normalize": options.normalize,
        "calibrate": _digest(CONTENT_FREE) if options.calibrate else "none",
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
