"""An OpenAI-compatible server on the loopback that is deterministic, and bad on purpose.

What it answers is a function of the prompt alone; which request fails, and how, is a function of
the prompt and of how often it was asked. So a troubled run can be compared with a calm one.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import socket
import struct
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LETTERS = ("A", "B", "C")
MALFORMED = (
    b'{"choices": [{"logprobs": {"top_lo',
    b"<html><body>502 upstream</body></html>",
    b"",
    b"[]",
    b'"words"',
    b"[" * 100_000,
    b"\xff\xfe",
    b'{"choices": []}',
    b'{"choices": {}}',
    b'{"choices": [null]}',
    b'{"choices": [{"logprobs": null}, {"logprobs": null}, {"logprobs": null}]}',
    b'{"choices": [{}, {}, {}]}',
    b'{"choices": [{"logprobs": {"top_logprobs": []}}], "usage": "many"}',
    b'{"choices": [{"logprobs": {"top_logprobs": [{" A": "likely"}]}}]}',
    b'{"choices": [{"logprobs": {"top_logprobs": [{" A": NaN}]}}]}',
    b'{"choices": [{"logprobs": {"top_logprobs": [{" A": 0.7}]}}]}',
    b'{"choices": [{"logprobs": {"top_logprobs": [{" A": true}]}}]}',
    b'{"choices": [{"logprobs": {"content": [{"top_logprobs": [3]}]}}]}',
    b'{"choices": [{"logprobs": {"content": [{"top_logprobs": [{"token": 3, "logprob": -1}]}]}}]}',
    b'{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": []}}]}',
)


def share(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    text = json.dumps(parts).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big") / 2**48


def pieces(text: str) -> list[str]:
    """The tokens of a text: at most four letters with the blank before them, as byte-BPE cuts."""
    return re.findall(r"\s?\w{1,4}|\s?[^\w\s]|\s", text)


def token_log_p(context: str, token: str) -> float:
    """What this model thinks of a token behind a context."""
    return math.log(0.02 + 0.9 * share("token", context, token))


def log_likelihood(context: str, continuation: str) -> float:
    """Of a continuation, token by token."""
    total, behind = 0.0, context
    for token in pieces(continuation):
        total += token_log_p(behind, token)
        behind += token
    return total


def letters_log_p(prompt: str) -> dict[str, float]:
    """Of the first tokens that this model knows, the letters with and without a blank among them.

    Some prompts have no C in the list.
    """
    tokens = [" A", "A", " B", " C", " The", "\n", " Premise"]
    if share("no C", prompt) < 0.2:
        tokens.remove(" C")
    weights = {token: 0.05 + share("letter", prompt, token) for token in tokens}
    total = sum(weights.values()) * 1.1
    return {token: math.log(weight / total) for token, weight in weights.items()}


@dataclass
class Trouble:
    """Shares of the requests that go wrong, and how.

    Args:
        failing: Answered with 500, 429 with `Retry-After`, 503, or a reset connection.
        malformed: Answered with 200 and one of `MALFORMED`.
        slow: Seconds before each answer.
        drip: Seconds between the bytes of an answer.
        only: Index into `MALFORMED`, for one kind alone.
    """

    failing: float = 0.0
    malformed: float = 0.0
    slow: float = 0.0
    drip: float = 0.0
    only: int | None = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # clients are killed, that is no fault
            super().handle_error(request, client_address)


class FakeEndpoint:
    """The server; a context manager that serves while it is open.

    Args:
        trouble: What goes wrong.
        key: Wanted in the header; None wants none.
        model: The only one it knows.
        chat_form: Whether completions come in the form of chat, as from the llama.cpp server.
        echo: Whether it echoes prompts.
        start: A token before each echoed prompt, such as `<s>`.
        newer: Whether it takes `max_completion_tokens` alone, as OpenAI's newer models.
        status: Answers every request with this status and `said`.
        said: An object for that; `headers` go with it.
    """

    def __init__(
        self,
        trouble: Trouble | None = None,
        *,
        key: str | None = None,
        model: str = "fake",
        chat_form: bool = False,
        echo: bool = True,
        start: str = "",
        newer: bool = False,
        status: int = 200,
        said: Any = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.trouble = trouble or Trouble()
        self.key, self.model = key, model
        self.chat_form, self.echo, self.start, self.newer = chat_form, echo, start, newer
        self.status, self.said, self.headers = status, said, headers or {}
        self.asked: Counter[str] = Counter()  # requests by prompt
        self.bodies: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def __enter__(self) -> FakeEndpoint:
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    @property
    def requests(self) -> int:
        return sum(self.asked.values())

    def _handler(fake) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each answer waits 40 ms for the client's nod

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                with fake._lock:
                    fake.at_once += 1
                    fake.most_at_once = max(fake.most_at_once, fake.at_once)
                try:
                    fake._serve(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                finally:
                    with fake._lock:
                        fake.at_once -= 1

        return Handler

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        data = handler.rfile.read(int(handler.headers["Content-Length"]))
        if not data:
            raise ConnectionResetError
        body = json.loads(data)
        item = item_of(body)
        with self._lock:
            self.asked[item] += 1
            number = self.asked[item]
            self.bodies.append(body)
            self.authorizations.append(handler.headers.get("Authorization"))
        if self.trouble.slow:
            time.sleep(self.trouble.slow)
        if self.status != 200:
            send(handler, self.status, json.dumps(self.said).encode(), **self.headers)
        elif self.key and handler.headers.get("Authorization") != f"Bearer {self.key}":
            seen = handler.headers.get("Authorization")
            send_json(handler, 401, {"error": {"message": f"Incorrect API key provided: {seen}"}})
        elif body["model"] != self.model or not handler.path.startswith("/v1/"):
            said = f"The model `{body['model']}` does not exist."
            send_json(handler, 404, {"object": "error", "message": said})
        elif self.newer and "max_tokens" in body:
            said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            send_json(handler, 400, {"error": {"message": said, "code": "unsupported_parameter"}})
        elif share("failing", item, number) < self.trouble.failing:
            self._fail(handler, item, number)
        elif share("malformed", item, number) < self.trouble.malformed:
            which = int(share("which", item, number) * len(MALFORMED))
            data = MALFORMED[which if self.trouble.only is None else self.trouble.only]
            send(handler, 200, data)
        else:
            data = json.dumps(self.answer(body, handler.path)).encode()
            send(handler, 200, data, drip=self.trouble.drip)

    def _fail(self, handler: BaseHTTPRequestHandler, item: str, number: int) -> None:
        kind = int(share("kind", item, number) * 4)
        if kind == 3:  # reset the connection: close it with bytes unsent and no grace
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.close()
            handler.close_connection = True
            raise ConnectionResetError
        headers: Any = {"Retry-After": "0"} if kind == 1 else {}
        send(handler, (500, 429, 503)[kind], b"overloaded", **headers)

    def answer(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        """What it says when nothing goes wrong."""
        if body.get("echo") and self.echo:
            choices = [self._echoed(n, text) for n, text in enumerate(body["prompt"])]
            choices.reverse()  # the order is told by the index
        else:
            found = letters_log_p(item_of(body))
            listed = dict(sorted(found.items(), key=lambda one: -one[1])[: top_of(body)])
            text = max(listed, key=lambda token: listed[token])
            if path.endswith("/chat/completions") or self.chat_form:
                entries = [{"token": t, "logprob": p, "bytes": None} for t, p in listed.items()]
                first = {"token": text, "logprob": listed[text], "top_logprobs": entries}
                logprobs: Any = {"content": [first]}
            else:
                logprobs = {"top_logprobs": [listed], "tokens": [text]}
            choices = [{"index": 0, "text": text, "logprobs": logprobs}]
        count = len(item_of(body)) // 4
        usage = {"prompt_tokens": count, "completion_tokens": len(choices)}
        return {"object": "text_completion", "choices": choices, "usage": usage}

    def _echoed(self, index: int, text: str) -> dict[str, Any]:
        tokens, values, behind = [], [], ""
        for token in pieces(text):
            values.append(token_log_p(behind, token) if behind else None)
            tokens.append(token)
            behind += token
        if self.start:
            tokens.insert(0, self.start)
            values.insert(0, None)
            values[1] = -3.0
        made = [*tokens, "\n"], [*values, -0.5]
        return {"index": index, "logprobs": {"tokens": made[0], "token_logprobs": made[1]}}


def item_of(body: dict[str, Any]) -> str:
    """The item that a request is of: its prompt, or all it holds."""
    if "messages" in body:
        return "\n".join(message["content"] for message in body["messages"])
    return body["prompt"] if isinstance(body["prompt"], str) else "\n".join(body["prompt"])


def top_of(body: dict[str, Any]) -> int:
    return body["top_logprobs"] if "top_logprobs" in body else body["logprobs"]


def send(
    handler: BaseHTTPRequestHandler, status: int, data: bytes, drip: float = 0, **headers: str
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data)))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    if not drip:
        handler.wfile.write(data)
        return
    for n in range(len(data)):
        handler.wfile.write(data[n : n + 1])
        time.sleep(drip)


def send_json(handler: BaseHTTPRequestHandler, status: int, value: Any) -> None:
    send(handler, status, json.dumps(value).encode())
