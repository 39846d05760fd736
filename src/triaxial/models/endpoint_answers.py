"""What a server is asked of one pair, and what its log-probabilities say of the three answers.

Letters: the likeliest first tokens are asked for, and those that are an answer are looked up among
them. Words: the three whole texts are sent to be echoed, and the tokens after what they have in
common are summed, so that the likelihood is of the whole answer whatever its pieces.

Source: MERGE, LLMs (multiple choice on logits).  OpenAI's completions and chat completions, and how
vLLM and the llama.cpp server answer these.
Choice: an answer with and without a blank before it counts as one. An answer that is not listed
gets half the probability of the least that is, so that a listed one is always above it; which and
how many were floored is counted. What is kept is what the server said, before any floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triaxial.models.endpoint_wire import EndpointOptions, Failed
from triaxial.prompts import PromptOptions, answers, messages, prefix, question

__all__ = ["PATHS", "Answer", "answer_of", "request", "usage_of"]

PATHS = {"completions": "/completions", "chat": "/chat/completions"}
_LEAST = -9999.0  # as OpenAI writes it; a server may also say -inf, which is no JSON
_MARKS = " \t\n\u2581\u0120"  # blanks, and how SentencePiece and byte-BPE write them
Three = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """Log-probabilities of the three answers, in the order of `LABELS`.

    Args:
        listed: As the server gave them; None where an answer was not listed.
        least: The smallest that was listed.
    """

    listed: Three
    least: float

    @property
    def floored(self) -> bool:
        """Whether an answer was not listed."""
        return None in self.listed

    def log_p(self) -> list[float]:
        """Normalized over the three, with the floor for what was not listed.

        >>> one = Answer((math.log(0.4), None, None), math.log(0.2))
        >>> [round(math.exp(value), 2) for value in one.log_p()]
        [0.67, 0.17, 0.17]
        """
        floor = self.least - math.log(2)
        values = [floor if value is None else value for value in self.listed]
        total = _log_sum(values)
        return [value - total for value in values]


def request(
    name: str, prompt: PromptOptions, options: EndpointOptions, premise: str, hypothesis: str
) -> dict[str, Any]:
    """The body of the request that asks for one pair.

    Args:
        name: Of the model, as the server knows it.
        prompt: See `prompts.PromptOptions`.
        options: `api`, `top` and `seed`.
        premise: Of the pair.
        hypothesis: Of the pair.
    """
    body: dict[str, Any] = {"model": name, "max_tokens": 1, "temperature": 0, "seed": options.seed}
    if options.api == "chat":
        asked: list[Any] = list(messages(prompt, premise, hypothesis))
        return {**body, "messages": asked, "logprobs": True, "top_logprobs": options.top}
    text = prefix(prompt) + question(prompt, premise, hypothesis)
    if prompt.style == "letters":
        return {**body, "prompt": text, "logprobs": options.top}
    # One token more than wanted: some servers refuse to make none at all.
    texts = [f"{text} {answer}" for answer in answers(prompt)]
    return {**body, "prompt": texts, "logprobs": 1, "echo": True}


def answer_of(payload: Any, prompt: PromptOptions) -> Answer:
    """The answer in a response.

    Args:
        payload: Parsed JSON, of whatever shape.
        prompt: With which it was asked.

    Raises:
        Failed: It is malformed, without log-probabilities, or of a model that does not answer.
    """
    choices = payload.get("choices") if isinstance(payload, Mapping) else None
    if not isinstance(choices, list) or not all(isinstance(one, Mapping) for one in choices):
        raise Failed("the answer has no choices")
    if prompt.style == "words":
        return _echoed(choices, answers(prompt))
    if not choices:
        raise Failed("the answer has no choices")
    return _first_token(choices[0].get("logprobs"), answers(prompt))


def usage_of(payload: Any) -> tuple[int, int] | None:
    """Prompt and completion tokens of a response; None where it does not count them."""
    usage = payload.get("usage") if isinstance(payload, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    prompt, made = (usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
    if type(prompt) is not int or type(made) is not int or prompt < 0 or made < 0:
        return None
    return prompt, made


def _first_token(found: Any, wanted: Sequence[str]) -> Answer:
    tokens = _listed(found)
    by_answer: dict[str, list[float]] = {answer: [] for answer in wanted}
    for token, value in tokens:
        if (plain := token.strip(_MARKS)) in by_answer:
            by_answer[plain].append(value)
    if not any(by_answer.values()):
        likeliest = sorted(tokens, key=lambda one: -one[1])[:3]
        raise Failed(
            f"none of {', '.join(wanted)} is among the {len(tokens)} likeliest first tokens "
            f"({', '.join(repr(token) for token, _ in likeliest)}, …): the model does not "
            "answer the question; show it examples, or take another model or the other api"
        )
    first, second, third = (_log_sum(values) if values else None for values in by_answer.values())
    return Answer((first, second, third), min(value for _, value in tokens))


def _listed(found: Any) -> list[tuple[str, float]]:
    """The listed first tokens, in the form of completions or in that of chat.

    The llama.cpp server gives the latter for both.
    """
    if isinstance(found, Mapping):
        rows = found.get("top_logprobs", found.get("content"))
        first = rows[0] if isinstance(rows, list) and rows else None
        if isinstance(first, Mapping):
            pairs: Any = first.items()
            if isinstance(first.get("top_logprobs"), list):
                entries = first["top_logprobs"]
                if not all(isinstance(one, Mapping) for one in entries):
                    raise Failed("the listed log-probabilities are malformed")
                pairs = [(one.get("token"), one.get("logprob")) for one in entries]
            if found := [(_text(token), _log_p(value)) for token, value in pairs]:
                return found
    raise Failed(
        "the answer has no log-probabilities of the likeliest tokens; a model or server that gives "
        "none cannot be scored"
    )


def _echoed(choices: Sequence[Mapping[str, Any]], wanted: Sequence[str]) -> Answer:
    if len(choices) != len(wanted):
        raise Failed(f"{len(choices)} choices for {len(wanted)} prompts")
    if all(type(one.get("index")) is int for one in choices):
        choices = sorted(choices, key=lambda one: one["index"])
    rows: list[tuple[list[str], list[Any]]] = []
    for choice, answer in zip(choices, wanted, strict=True):
        found = choice.get("logprobs")
        if not isinstance(found, Mapping):
            raise Failed("the answer has no log-probabilities")
        tokens, values = found.get("tokens"), found.get("token_logprobs")
        if isinstance(tokens, list) and isinstance(values, list) and len(tokens) == len(values):
            rows.append(([_text(token) for token in tokens], values))
        elif "content" not in found:
            raise Failed("the log-probabilities of the echoed prompt are malformed")
        # What is not echoed is scored 0 for every answer, which looks like a model that guesses.
        if "content" in found or not "".join(rows[-1][0][:-1]).endswith(answer):
            raise Failed(
                "the server does not echo prompts with log-probabilities (vLLM does, the llama.cpp "
                "server does not); ask for letters instead of words",
                again=False,
            )
    columns = zip(*(tokens for tokens, _ in rows), strict=False)  # to the end of the shortest
    common = next((n for n, column in enumerate(columns) if len(set(column)) > 1), 0)
    sums = [sum(_log_p(value) for value in values[common:-1]) for _, values in rows]
    return Answer((sums[0], sums[1], sums[2]), min(sums))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Failed(f"a token is {value!r}; wanted text")
    return value


def _log_p(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 1e-3:
        raise Failed(f"a log-probability is {value!r}; wanted a number of at most 0")
    return float(max(value, _LEAST))


def _log_sum(values: Sequence[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))
