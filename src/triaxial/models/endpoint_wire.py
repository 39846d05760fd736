"""The way to an OpenAI-compatible server: URL, key, one request, and what its failure means.

The key is read from the environment, signs requests to the given URL alone, and is written
nowhere: not in fingerprints, caches, messages or tracebacks. Redirects are not followed.

Source: the servers' status codes and `Retry-After` (RFC 9110).
Choice: 408, 409, 429, 5xx, broken connections and broken answers may pass and are asked again;
every other status is final. A server that wants a wait of more than five minutes is not waited for.
"""

from __future__ import annotations

import ipaddress
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from triaxial.errors import InputError

if TYPE_CHECKING:
    import httpx2

__all__ = ["KEYS", "EndpointOptions", "Failed", "Key", "Wire", "base_url", "key_for", "said"]

KEYS = ("TRIAXIAL_API_KEY", "OPENAI_API_KEY")  # environment variables, the first that is set
_PASSING = frozenset({408, 409, 429, *range(500, 600)})
_PATIENCE = 300.0  # seconds
_CONNECTING = 10.0  # seconds at most
_MOST_BYTES = 32 << 20  # of an answer; an echo of a long prompt has some hundred kilobytes


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """How a server is asked.

    Args:
        api: `completions` with the plain prompt, or `chat` with messages.
        top: Log-probabilities of the first token that are asked for; OpenAI's own completions
            give 5 at most.
        seed: Sent with each request, and of the jitter; the temperature is 0.
        concurrency: Requests at a time.
        retries: Further tries of a request whose failure may pass.
        failures: Items that may fail for good before the rest is not asked any more.
        timeout: Seconds without a byte, and seconds that an answer's body may take.
        first_wait: Seconds before the second try; each further wait is twice as long, 30 s at most.
        plain_http: Whether a key may go over plain http to another machine.
        price_in: Of a million prompt tokens; None shows no cost.
        price_out: Of a million completion tokens.
    """

    api: Literal["completions", "chat"] = "completions"
    top: int = 20
    seed: int = 1
    concurrency: int = 8
    retries: int = 5
    failures: int = 10
    timeout: float = 120.0
    first_wait: float = 0.5
    plain_http: bool = False
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        if self.api not in ("completions", "chat"):
            raise InputError(f"{self.api!r} is not one of completions, chat", where="endpoint api")
        for name, least in (("top", 3), ("concurrency", 1), ("retries", 0), ("failures", 0)):
            if getattr(self, name) < least:
                raise InputError(
                    f"{name} is {getattr(self, name)}; wanted at least {least}", where="endpoint"
                )
        if not self.timeout > 0 or not self.first_wait >= 0:
            raise InputError("a time below 0, or no time to answer", where="endpoint")


class Failed(Exception):
    """A request that got no usable answer.

    Args:
        reason: What was seen and what to do.
        again: Whether it may pass.
        after: Seconds that the server wants to be left alone.
    """

    def __init__(self, reason: str, *, again: bool = True, after: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.again, self.after = reason, again, after


class Key:
    """A key that shows itself to the server alone.

    Args:
        text: The key.
        source: The environment variable that it came from.
    """

    __slots__ = ("_text", "source")

    def __init__(self, text: str, source: str) -> None:
        self._text, self.source = text, source

    def __reduce__(self) -> str:
        raise TypeError("a key does not leave its process; read it again there")

    def sign(self, request: httpx2.Request) -> httpx2.Request:
        """The request with the key in its header."""
        request.headers["Authorization"] = f"Bearer {self._text}"
        return request

    def hidden(self, text: str) -> str:
        """A text that a server sent, without the key in it."""
        return text.replace(self._text, "[key]")


def base_url(text: str) -> str:
    """A checked URL, without a slash at the end.

    >>> base_url("http://127.0.0.1:8000/v1/")
    'http://127.0.0.1:8000/v1'

    Raises:
        InputError: It is none, or holds credentials; these are not repeated in the message.
    """
    where = "endpoint URL"
    try:
        parts = urlsplit(text.strip())
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.username is not None or parts.password is not None:
        raise InputError(
            f"holds a user or a password; take them out, and set the key in {KEYS[0]}", where=where
        )
    if parts.query or parts.fragment:
        raise InputError("holds a '?' or a '#'; wanted it up to the path alone", where=where)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(
            "is no address; wanted for example http://127.0.0.1:8000/v1 or https://HOST/v1",
            where=where,
        )
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def key_for(
    url: str, *, plain_http: bool = False, environment: Mapping[str, str] | None = None
) -> Key | None:
    """The key from the environment, where it may travel to the server.

    Args:
        url: As `base_url` gives it.
        plain_http: Whether it may go to another machine in the clear.
        environment: By default the process's own.

    Returns:
        None where there is no key; an empty TRIAXIAL_API_KEY says so, whatever else is set.

    Raises:
        InputError: The key holds what no header can hold, or would travel in the clear.
    """
    found = os.environ if environment is None else environment
    source = next((name for name in KEYS if name in found), None)
    text = found[source].strip() if source else ""
    if source is None or not text:
        return None
    if not all("!" <= letter <= "~" for letter in text):
        raise InputError("holds blanks or letters that no key has; set it again", where=source)
    parts = urlsplit(url)
    if parts.scheme == "http" and not _loopback(parts.hostname or "") and not plain_http:
        raise InputError(
            f"the key in {source} would go over plain http; use https, or --plain-http where you "
            f"trust the network, or set {KEYS[0]} to nothing where the server wants no key",
            where=url,
        )
    return Key(text, source)


class Wire:
    """A connection pool to one server; threads may share it.

    Args:
        url: As `base_url` gives it.
        options: Timeout and concurrency.
        key: Signs every request; None for servers without keys.
    """

    def __init__(self, url: str, options: EndpointOptions, key: Key | None) -> None:
        import httpx2

        self.url = url
        self._key = key
        self._timeout = options.timeout
        most = options.concurrency
        secure = url.startswith("https:")
        self._client = httpx2.Client(
            auth=key.sign if key else None,
            timeout=httpx2.Timeout(options.timeout, connect=min(options.timeout, _CONNECTING)),
            limits=httpx2.Limits(max_connections=most, max_keepalive_connections=most),
            headers={"Content-Type": "application/json"},
            follow_redirects=False,
            # A proxy of the environment would read what plain http carries; and that has no
            # certificates, which take a moment to load.
            trust_env=secure,
            verify=secure,
        )

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers one request.

        Raises:
            Failed: It did not come, or says that it could not.
        """
        import httpx2

        try:
            # In ASCII, as half a surrogate pair in a text has no UTF-8.
            content = json.dumps(body).encode("ascii")
            with self._client.stream("POST", self.url + path, content=content) as response:
                data = self._read(response)
        except httpx2.ConnectTimeout:
            raise Failed("no connection; is the server up, and the URL right?") from None
        except httpx2.TimeoutException:
            raise Failed(f"no answer within {self._timeout:g} s") from None
        except httpx2.HTTPError as error:
            told = self._said(str(error)) or type(error).__name__
            raise Failed(f"the connection failed ({told}); is the server up?") from None
        if response.status_code != 200:
            raise self._failure(response, data) from None
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            told = self._said(data.decode("utf-8", "replace"))
            raise Failed(f"the answer is not JSON: {told!r}") from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _read(self, response: httpx2.Response) -> bytes:
        """The body, which may neither be endless nor drip for ever."""
        until = time.monotonic() + self._timeout
        data = bytearray()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > _MOST_BYTES:
                raise Failed(f"the answer has more than {_MOST_BYTES >> 20} MiB")
            if time.monotonic() > until:
                raise Failed(f"the answer was not whole within {self._timeout:g} s")
        return bytes(data)

    def _failure(self, response: httpx2.Response, data: bytes) -> Failed:
        status = response.status_code
        words = self._said(_message(data))
        told = f"HTTP {status}" + (f" ({words})" if words else "")
        if status in _PASSING:
            after = _seconds(response.headers.get("Retry-After"))
            if after is not None and after > _PATIENCE:
                return Failed(f"{told}: wants a wait of {after:,.0f} s", again=False)
            return Failed(told, after=after)
        if 300 <= status < 400:
            host = urlsplit(response.headers.get("Location", "")).hostname or "elsewhere"
            hint = f"sends us to {self._said(host)}; pass that server's own URL if you trust it"
        elif status == 401:
            hint = f"the key in {self._key.source} was refused" if self._key else "wants a key"
            hint += f"; set the right one in {KEYS[0]}"
        elif status == 403:
            hint = "the key may not do this; ask for the right, or take another model"
        elif status == 404:
            hint = (
                f"no such model or no such path; {self.url}/models lists the names, and most URLs "
                "end in /v1"
            )
        else:
            hint = "the server does not take the request; see docs/endpoints.md for what it needs"
        return Failed(f"{told}: {hint}", again=False)

    def _said(self, text: str) -> str:
        return said(text, self._key)


def said(text: str, key: Key | None, most: int = 200) -> str:
    """What a server says, fit for one line: without the key, printable, then cut."""
    hidden = key.hidden(text) if key else text
    plain = " ".join("".join(c if c.isprintable() else " " for c in hidden).split())
    return plain if len(plain) <= most else plain[:most] + "…"


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _message(data: bytes) -> str:
    """The words of an error: where OpenAI, vLLM and others put them, else the body."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")
    if isinstance(found, dict):
        inner = found.get("error", found)
        if isinstance(inner, dict):
            inner = inner.get("message") or inner.get("detail") or inner
        return inner if isinstance(inner, str) else json.dumps(inner)
    return json.dumps(found)


def _seconds(text: str | None) -> float | None:
    """`Retry-After` in seconds from now: it holds either these or a date."""
    if text is None:
        return None
    try:
        return max(0.0, float(int(text)))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
