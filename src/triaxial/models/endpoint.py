"""NLI labels from an OpenAI-compatible server with log-probabilities: vLLM, llama.cpp, OpenAI.

Several requests are under way at a time. What may pass is asked again, after waits that grow; what
was answered is committed to the cache, in the groups in which answers come, before it counts as
done. So a run that is killed loses what was under way and asks nothing again that it had counted.

Source: MERGE, LLMs.
Choice: an item that fails after all its tries is set aside and the others go on; some more such
items, or one failure that cannot pass, end the run. The answers that are then under way have some
seconds to come in, since they are paid for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from triaxial.errors import InputError
from triaxial.models.endpoint_answers import PATHS, Answer, answer_of, request, usage_of
from triaxial.models.endpoint_wire import (
    EndpointOptions,
    Failed,
    Key,
    Wire,
    base_url,
    key_for,
    said,
)
from triaxial.nli import LABELS
from triaxial.prompts import PromptOptions, answers, messages, prefix
from triaxial.stats import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Answer",
    "AnswerCache",
    "Endpoint",
    "EndpointOptions",
    "EndpointWork",
    "estimate",
    "fingerprint_of",
    "load_endpoint",
]

_LAST_SECONDS = 5.0  # that answers under way have to come in when a run ends early
_LONGEST_WAIT = 30.0
_LONGEST_REASON = 500  # characters
_CHARACTERS_A_TOKEN = 4  # of English text, roughly; only for the estimate
Pairs = Sequence[tuple[str, str]]


class AnswerCache(Protocol):
    """Answers by the digest of their request: a dictionary, or one that keeps them on disk."""

    def get(self, key: str, /) -> Answer | None:
        """The answer, where there is one."""
        ...

    def update(self, answers: Mapping[str, Answer], /) -> None:
        """Keep answers; when this returns, they outlive the process."""
        ...


@dataclass(slots=True)
class EndpointWork:
    """What a run asked, got and paid, for its report.

    `items` are distinct prompts, `cached` those that were answered before; `uncounted` are
    responses that told no token counts, `floored` items with an answer that was not listed. `cost`
    is of the tokens, in the currency of the prices; None without these.
    """

    items: int = 0
    cached: int = 0
    requests: int = 0
    retries: int = 0
    failures: int = 0
    floored: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    seconds: float = 0.0
    cost: float | None = None

    def facts(self) -> dict[str, Any]:
        """The counts as a plain dictionary."""
        return asdict(self)


@dataclass(slots=True)
class _Outcome:
    """What became of one item: an answer, a failure, or a fault of ours."""

    key: str
    pair: tuple[str, str]
    answer: Answer | None = None
    failure: BaseException | None = None
    requests: int = 0
    uncounted: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Endpoint:
    """A model behind a server; see `load_endpoint`.

    Args:
        name: Of the model, as the server knows it.
        url: As `base_url` gives it.
        prompt: How a pair is asked.
        options: How the server is asked.
        cache: Of the answers.
        key: None where the server wants none.
        sleep: Waits before another try; by default until the time is over or the run ends.
    """

    def __init__(
        self,
        name: str,
        url: str,
        prompt: PromptOptions,
        options: EndpointOptions,
        cache: AnswerCache,
        *,
        key: Key | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.name = name
        self.url = url
        self.prompt = prompt
        self.options = options
        self.fingerprint = fingerprint_of(name, url, prompt, options)
        self.work = EndpointWork()
        self._cache = cache
        self._key = key
        self._sleep = sleep
        self._limit = "max_tokens"

    def predict(
        self, pairs: Pairs, progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        """Log-probabilities of shape (N, 3), columns in the order of `LABELS`.

        Identical prompts are asked once, and not at all where the cache has their answers.

        Args:
            pairs: Premise and hypothesis of each.
            progress: Told how many more distinct prompts have their answer on disk.

        Raises:
            InputError: The server refused, or items stayed without an answer; what was answered
                is kept, and the same call goes on.
        """
        begun = time.perf_counter()
        keys = {pair: self._digest_of(pair) for pair in dict.fromkeys(pairs)}
        distinct = {key: pair for pair, key in keys.items()}
        missing = {key: pair for key, pair in distinct.items() if self._cache.get(key) is None}
        self.work.items += len(distinct)
        self.work.cached += len(distinct) - len(missing)
        if progress is not None and len(missing) < len(distinct):
            progress(len(distinct) - len(missing))
        try:
            if missing:
                self._ask_all(missing, progress)
        finally:
            self.work.seconds += time.perf_counter() - begun
        found = {key: self._cache.get(key) for key in distinct}
        values = {key: answer.log_p() for key, answer in found.items() if answer is not None}
        self.work.floored += sum(answer.floored for answer in found.values() if answer)
        rows = [values[keys[pair]] for pair in pairs]
        return np.asarray(rows, dtype=np.float32).reshape(len(pairs), len(LABELS))

    def _digest_of(self, pair: tuple[str, str]) -> str:
        """Digest of everything that decides an answer: where it is asked, and the whole request."""
        body = request(self.name, self.prompt, self.options, *pair)
        return _digest([self.url, PATHS[self.options.api], body])

    def _ask_all(
        self, missing: Mapping[str, tuple[str, str]], progress: Callable[[int], None] | None
    ) -> None:
        """Have every item answered and committed, several at a time."""
        waiting: queue.SimpleQueue[tuple[str, tuple[str, str]]] = queue.SimpleQueue()
        done: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        stop = threading.Event()
        wire = Wire(self.url, self.options, self._key)
        for item in missing.items():
            waiting.put(item)

        def work() -> None:
            while not stop.is_set():
                try:
                    item = waiting.get_nowait()
                except queue.Empty:
                    return
                outcome = self._ask(wire, *item, stop)
                if outcome.answer is None and not _passing(outcome):
                    stop.set()
                done.put(outcome)

        # Daemons, so that Ctrl-C need not wait until a slow server has answered.
        count = min(self.options.concurrency, len(missing))
        threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
        left, failed = len(missing), list[_Outcome]()
        try:
            for thread in threads:
                thread.start()
            while left and len(failed) <= self.options.failures:
                group = [done.get(), *_drained(done)]
                left -= len(group)
                self._commit(group)
                failed += [one for one in group if one.answer is None]
                if progress is not None and (answered := sum(o.answer is not None for o in group)):
                    progress(answered)
                if any(not _passing(one) for one in failed):
                    break
        finally:
            stop.set()
            until = time.monotonic() + _LAST_SECONDS
            for thread in filter(threading.Thread.is_alive, threads):
                thread.join(max(0.0, until - time.monotonic()))
            wire.close()
            self._commit(_drained(done))
            self.work.failures += len(failed)
        if failed:
            self._give_up(failed, len(missing))

    def _commit(self, group: Sequence[_Outcome]) -> None:
        """Keep the answers of a group, and count what they cost."""
        self._cache.update({one.key: one.answer for one in group if one.answer is not None})
        work = self.work
        for one in group:
            work.requests += one.requests
            work.retries += max(0, one.requests - 1)
            work.uncounted += one.uncounted
            work.prompt_tokens += one.prompt_tokens
            work.completion_tokens += one.completion_tokens
        work.cost = _cost(self.options, work.prompt_tokens, work.completion_tokens)

    def _ask(self, wire: Wire, key: str, pair: tuple[str, str], stop: threading.Event) -> _Outcome:
        """Ask for one item until it is answered, fails for good, or the run ends."""
        outcome = _Outcome(key, pair)
        try:
            for number in range(self.options.retries + 1):
                try:
                    outcome.answer = self._try(wire, outcome)
                    return outcome
                except Failed as failure:
                    outcome.failure = failure
                    if not failure.again or number == self.options.retries:
                        return outcome
                    wait = self._wait(key, number) + (failure.after or 0)
                    (self._sleep or stop.wait)(wait)
                    if stop.is_set():
                        return outcome
        except BaseException as fault:  # a fault of ours must not leave the run waiting for ever
            outcome.failure = fault
        return outcome

    def _wait(self, key: str, number: int) -> float:
        """Seconds before the next try; random, so that many do not come back at once."""
        longest = min(self.options.first_wait * 2.0**number, _LONGEST_WAIT)
        jitter = generator("models.endpoint", self.options.seed, key, number)
        return longest * (1 + float(jitter.random())) / 2

    def _try(self, wire: Wire, outcome: _Outcome) -> Answer:
        """One request, and its answer."""
        body = request(self.name, self.prompt, self.options, *outcome.pair)
        limit = self._limit
        body[limit] = body.pop("max_tokens")
        outcome.requests += 1
        try:
            payload = wire.post(PATHS[self.options.api], body)
        except Failed as failure:
            # OpenAI's newer models take the same limit under another name alone.
            if "max_completion_tokens" in failure.reason and limit == "max_tokens":
                self._limit = "max_completion_tokens"
                return self._try(wire, outcome)
            raise
        usage = usage_of(payload)
        if usage is None:
            outcome.uncounted += 1
        else:
            outcome.prompt_tokens += usage[0]
            outcome.completion_tokens += usage[1]
        return answer_of(payload, self.prompt)

    def _give_up(self, failed: Sequence[_Outcome], asked: int) -> None:
        """One line of the failure that ended the run, or else of the first."""
        worst = next((one for one in failed if not _passing(one)), failed[0])
        if not isinstance(worst.failure, Failed):
            assert worst.failure is not None
            raise worst.failure
        premise, hypothesis = worst.pair
        tries = f" after {worst.requests} tries" if worst.requests > 1 else ""
        reason = said(worst.failure.reason, self._key, _LONGEST_REASON)
        raise InputError(
            f"no answer to {premise[:40]!r} / {hypothesis[:40]!r}{tries}: {reason} "
            f"({len(failed):,} of {asked:,} items failed; answers are kept, the same call goes on)",
            where=self.url,
        )


def load_endpoint(
    name: str,
    url: str,
    prompt: PromptOptions,
    options: EndpointOptions | None = None,
    cache: AnswerCache | None = None,
) -> Endpoint:
    """The model of a server, with the key from the environment. Nothing is asked yet.

    Args:
        name: Of the model, as the server knows it.
        url: Up to the path before `/completions`, for example `http://127.0.0.1:8000/v1`.
        prompt: How a pair is asked.
        options: How the server is asked.
        cache: Of the answers; by default they live as long as the object.

    Raises:
        InputError: The URL, the key or the options cannot be used.
    """
    options = options or EndpointOptions()
    url = base_url(url)
    key = key_for(url, plain_http=options.plain_http)
    kept: AnswerCache = {} if cache is None else cache
    return Endpoint(name, url, prompt, options, kept, key=key)


def fingerprint_of(
    name: str, url: str, prompt: PromptOptions, options: EndpointOptions
) -> dict[str, str]:
    """What decides an endpoint's numbers, as far as it can be known from here.

    Choice: a server may change the weights behind a name, which nobody sees from outside.

    Raises:
        InputError: The name or the URL is none, or the prompt cannot be asked this way.
    """
    if not name:
        raise InputError("has no model name; wanted endpoint:MODEL", where="endpoint")
    if options.api == "chat" and prompt.style == "words":
        raise InputError(
            "chat gives log-probabilities of the first token alone, which is no whole word; ask "
            "for letters, or for words without chat",
            where="endpoint",
        )
    return {
        "model": name,
        "url": base_url(url),
        "api": options.api,
        "asked": "echo" if prompt.style == "words" else f"top {options.top}",
        "sampling": f"temperature 0, seed {options.seed}",
        "prompt": _digest([prefix(prompt), messages(prompt, "", ""), answers(prompt)]),
    }


def estimate(pairs: Pairs, prompt: PromptOptions, options: EndpointOptions) -> dict[str, Any]:
    """What a run would ask, without a server and before any cache.

    Choice: four characters a token, as the server's tokenizer is not known here.

    Returns:
        items, prompt_tokens, completion_tokens (both estimated) and cost (None without prices).
    """
    bodies = [request("", prompt, options, *pair) for pair in dict.fromkeys(pairs)]
    characters = 0
    for body in bodies:
        texts = body.get("prompt") or [message["content"] for message in body["messages"]]
        characters += sum(map(len, [texts] if isinstance(texts, str) else texts))
    prompt_tokens = -(-characters // _CHARACTERS_A_TOKEN)
    made = len(bodies) * (3 if prompt.style == "words" else 1)
    return {
        "items": len(bodies),
        "prompt_tokens": prompt_tokens,
        "completion_tokens": made,
        "cost": _cost(options, prompt_tokens, made),
    }


def _cost(options: EndpointOptions, prompt_tokens: int, made: int) -> float | None:
    if options.price_in is None and options.price_out is None:
        return None
    return (prompt_tokens * (options.price_in or 0) + made * (options.price_out or 0)) / 1e6


def _passing(one: _Outcome) -> bool:
    return isinstance(one.failure, Failed) and one.failure.again


def _drained(done: queue.SimpleQueue[_Outcome]) -> list[_Outcome]:
    found = []
    with contextlib.suppress(queue.Empty):
        while True:
            found.append(done.get_nowait())
    return found


def _digest(value: Iterable[object]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()
