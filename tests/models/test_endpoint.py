"""Endpoints against a server on the loopback that fails, lies, drips and forgets."""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_endpoint import (
    LETTERS,
    MALFORMED,
    FakeEndpoint,
    Trouble,
    item_of,
    letters_log_p,
    log_likelihood,
    share,
)
from triaxial.api.endpoint_cache import Journal, answers_in
from triaxial.errors import InputError, StoreError
from triaxial.models import endpoint as module
from triaxial.models.endpoint import Answer, Endpoint, EndpointOptions, estimate, load_endpoint
from triaxial.models.endpoint_wire import Wire, base_url, key_for
from triaxial.prompts import PromptOptions, answers, prefix, question

MARKER = "sk-MARKER-8c1f5e"
PROMPT = PromptOptions()
WORDS = PromptOptions(style="words")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch) -> None:
    for name in ("TRIAXIAL_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def pairs_of(count: int) -> list[tuple[str, str]]:
    return [(f"A man eats {n} apples.", f"Somebody eats {n % 7} pears.") for n in range(count)]


def options(**changed: object) -> EndpointOptions:
    return EndpointOptions(**({"first_wait": 0.0, "timeout": 10.0} | changed))  # type: ignore


def plain(prompt: PromptOptions, pair: tuple[str, str]) -> str:
    return prefix(prompt) + question(prompt, *pair)


def log_softmax(values) -> np.ndarray:
    values = np.asarray(values)
    return values - np.log(np.exp(values).sum())


def by_letters(text: str, top: int = 20) -> np.ndarray:
    """The naive version: both forms of a letter added, half of the least for what is not listed."""
    listed = dict(sorted(letters_log_p(text).items(), key=lambda one: -one[1])[:top])
    sums = [
        sum(math.exp(p) for token, p in listed.items() if token.strip() == letter)
        for letter in LETTERS
    ]
    least = math.exp(min(listed.values()))
    return log_softmax([math.log(value or least / 2) for value in sums])


@pytest.mark.parametrize("chat_form", [False, True], ids=["as OpenAI", "as llama.cpp"])
def test_completions_give_the_letters(chat_form) -> None:
    pairs = pairs_of(30)
    with FakeEndpoint(chat_form=chat_form) as fake:
        model = load_endpoint("fake", fake.url, PROMPT, options())
        found = model.predict([*pairs, pairs[0]])
    texts = [plain(PROMPT, pair) for pair in pairs]
    wanted = np.asarray([by_letters(text) for text in [*texts, texts[0]]])
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert found.dtype == np.float32
    lacking = sum(" C" not in letters_log_p(text) for text in texts)
    assert 0 < lacking < 15
    assert model.work.floored == lacking
    body = fake.bodies[0]
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (1, 0, 1)
    assert body["logprobs"] == 20
    assert fake.authorizations == [None] * 30, "the pair that comes twice is asked once"


def test_chat_gives_the_letters() -> None:
    pairs = pairs_of(10)
    with FakeEndpoint() as fake:
        model = load_endpoint("fake", fake.url, PROMPT, options(api="chat", top=5))
        found = model.predict(pairs)
    texts = [item_of(body) for body in fake.bodies]
    assert [m["role"] for m in fake.bodies[0]["messages"]] == ["system", "user"]
    wanted = {text: by_letters(text, top=5) for text in texts}
    for pair, row in zip(pairs, found, strict=True):
        (text,) = [text for text in texts if pair[0] in text]
        np.testing.assert_allclose(row, wanted[text], atol=1e-6)


@pytest.mark.parametrize("start", ["", "<s>"])
def test_words_give_the_likelihood_of_the_whole_answer(start) -> None:
    pairs = pairs_of(10)
    with FakeEndpoint(start=start) as fake:
        found = load_endpoint("fake", fake.url, WORDS, options()).predict(pairs)
    for pair, row in zip(pairs, found, strict=True):
        text = plain(WORDS, pair)
        sums = [log_likelihood(text, f" {answer}") for answer in answers(WORDS)]
        np.testing.assert_allclose(row, log_softmax(sums), atol=1e-5)
    assert fake.requests == 10, "the three answers go in one request"


@pytest.mark.parametrize("chat_form", [False, True])
def test_a_server_that_does_not_echo_is_no_model_that_guesses(chat_form) -> None:
    # llama.cpp #27174: without an echo every answer scores 0.0, which gives exactly chance.
    with FakeEndpoint(echo=False, chat_form=chat_form) as fake:
        fake.answer = lambda body, path: {  # type: ignore[method-assign]
            "choices": [
                {"logprobs": {"content": []}}
                if chat_form
                else {"logprobs": {"tokens": ["\n"], "token_logprobs": [-0.5]}}
            ]
            * 3
        }
        model = load_endpoint("fake", fake.url, WORDS, options(concurrency=1))
        with pytest.raises(InputError, match=r"does not echo.*ask for letters instead"):
            model.predict(pairs_of(3))
    assert fake.requests == 1


def test_troubled_and_killed_runs_ask_nothing_twice_and_end_as_calm_ones(tmp_path) -> None:
    """The promise: 10 % failures, 5 % malformed, kill -9 in the middle."""
    pairs = pairs_of(300)
    with FakeEndpoint() as fake:
        calm = load_endpoint("fake", fake.url, PROMPT, options()).predict(pairs)
        assert set(fake.asked.values()) == {1}
    code = (
        "import sys, json; from pathlib import Path\n"
        "from triaxial.api.endpoint_cache import Journal\n"
        "from triaxial.models.endpoint import EndpointOptions, load_endpoint\n"
        "from triaxial.prompts import PromptOptions\n"
        "url, folder, pairs = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])\n"
        "model = load_endpoint('fake', url, PromptOptions(), EndpointOptions(first_wait=0.0),\n"
        "                      Journal(folder))\n"
        "print('begun', flush=True)\n"
        "model.predict([tuple(pair) for pair in pairs])\n"
    )
    folder = tmp_path / "answers"
    with FakeEndpoint(Trouble(failing=0.1, malformed=0.05, slow=0.01)) as fake:
        process = subprocess.Popen(
            [sys.executable, "-c", code, fake.url, str(folder), json.dumps(pairs)]
        )
        until = time.monotonic() + 60
        while fake.requests < 120 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(0.1)  # what was under way arrives
        before = dict(fake.asked)
        journal = Journal(folder)
        assert 0 < len(journal) < 300
        model = load_endpoint("fake", fake.url, PROMPT, options(), journal)
        kept = [pair for pair in pairs if journal.get(model._digest_of(pair)) is not None]
        assert len(kept) == len(journal)
        told: list[int] = []
        found = model.predict(pairs, told.append)
        np.testing.assert_array_equal(found, calm)
        assert sum(told) == 300
        for pair in kept:
            text = plain(PROMPT, pair)
            assert fake.asked[text] == before[text], "asked again after it was committed"
        work = model.work
        assert (work.items, work.cached) == (300, len(kept))
        assert work.requests == fake.requests - sum(before.values())
        assert work.retries == work.requests - (300 - len(kept)) > 0
        # Once more, from the disk alone.
        asked = fake.requests
        again = load_endpoint("fake", fake.url, PROMPT, options(), Journal(folder))
        np.testing.assert_array_equal(again.predict(pairs), calm)
        assert fake.requests == asked


def test_an_interrupt_keeps_what_was_under_way(tmp_path) -> None:
    pairs = pairs_of(40)

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with FakeEndpoint(Trouble(slow=0.05)) as fake:
        cache = Journal(tmp_path)
        model = load_endpoint("fake", fake.url, PROMPT, options(concurrency=4), cache)
        with pytest.raises(KeyboardInterrupt):
            model.predict(pairs, interrupt)
        assert len(cache) == fake.requests < 20
        model.predict(pairs)
        assert set(fake.asked.values()) == {1}


@pytest.mark.parametrize("limit", [1, 3])
def test_concurrency_is_kept_and_used(limit) -> None:
    with FakeEndpoint(Trouble(slow=0.05)) as fake:
        load_endpoint("fake", fake.url, PROMPT, options(concurrency=limit)).predict(pairs_of(12))
        assert fake.most_at_once == limit


@pytest.mark.parametrize("trouble", [Trouble(slow=0.4), Trouble(drip=0.01)], ids=["late", "drips"])
def test_slow_answers(trouble) -> None:
    with FakeEndpoint(trouble) as fake:
        model = load_endpoint("fake", fake.url, PROMPT, options(timeout=0.15, retries=1))
        with pytest.raises(InputError, match=r"after 2 tries: .* within 0\.15 s \(1 of 1 items"):
            model.predict(pairs_of(1))
    assert fake.requests == 2


@pytest.mark.parametrize("kind", range(len(MALFORMED)))
@pytest.mark.parametrize("prompt", [PROMPT, WORDS], ids=["letters", "words"])
def test_malformed_answers_are_asked_again_then_told_in_one_line(kind, prompt) -> None:
    with FakeEndpoint(Trouble(malformed=1.0, only=kind)) as fake:
        model = load_endpoint("fake", fake.url, prompt, options(retries=2))
        with pytest.raises(InputError, match=r"'A man eats 0 apples\.'.*after 3 tries: .*") as seen:
            model.predict(pairs_of(1))
        assert fake.requests == 3
        assert "\n" not in str(seen.value)
        assert len(str(seen.value)) < 600
        fake.trouble = Trouble()
        assert model.predict(pairs_of(1)).shape == (1, 3), "the same call goes on"


@pytest.mark.parametrize(
    ("status", "said", "headers", "message"),
    [
        (400, {"error": {"message": "context of 99 tokens"}}, {}, r"HTTP 400 \(context of 99 tok"),
        (401, {"detail": "no"}, {}, r"HTTP 401 \(no\): wants a key; set the .* TRIAXIAL_API_KEY"),
        (403, {}, {}, r"HTTP 403 \(\{\}\): the key may not"),
        (404, "gone", {}, r"no such model or no such path; .*/v1/models lists the names"),
        (422, ["x\x1b[31m\ny"], {}, r"HTTP 422 \(\[\"x\\u001b\[31m\\ny\"\]\): the server does not"),
        (302, {}, {"Location": "http://u:p@evil.example/v1"}, r"sends us to evil\.example; pass"),
        (429, {}, {"Retry-After": "3600"}, r"HTTP 429 \(\{\}\): wants a wait of 3,600 s"),
    ],
)
def test_what_cannot_pass_is_not_asked_again(status, said, headers, message) -> None:
    with FakeEndpoint(status=status, said=said, headers=headers) as fake:
        model = load_endpoint("fake", fake.url, PROMPT, options(concurrency=2))
        with pytest.raises(InputError, match=message) as seen:
            model.predict(pairs_of(30))
        assert "\n" not in str(seen.value)
        assert str(seen.value).startswith(f"{fake.url}: ")
        assert fake.requests <= 4


def test_an_unknown_model_and_a_server_that_is_not_there() -> None:
    with FakeEndpoint() as fake:
        with pytest.raises(InputError, match=r"HTTP 404 \(The model `other` does not exist\.\)"):
            load_endpoint("other", fake.url, PROMPT, options()).predict(pairs_of(1))
        url = fake.url
    with pytest.raises(InputError, match=r"after 2 tries: the connection failed \(.*\); is the se"):
        load_endpoint("fake", url, PROMPT, options(retries=1)).predict(pairs_of(1))


def test_waits_grow_are_the_same_each_time_and_honour_the_server() -> None:
    def waits(**given: object) -> list[float]:
        seen: list[float] = []
        with FakeEndpoint(**given) as fake:  # type: ignore[arg-type]
            chosen = options(first_wait=1.0, retries=7)
            model = Endpoint("fake", fake.url, PROMPT, chosen, {}, sleep=seen.append)
            model.fingerprint = {}
            model._digest_of = lambda pair: "one"  # type: ignore[method-assign]
            with pytest.raises(InputError, match="after 8 tries"):
                model.predict(pairs_of(1))
        return seen

    found = waits(status=503, said="busy")
    # 1, 2, 4, 8, 16, then 30 at most, each between half of it and the whole.
    for wait, longest in zip(found, [1, 2, 4, 8, 16, 30, 30], strict=True):
        assert longest / 2 <= wait <= longest
    assert waits(status=503, said="busy") == found
    told = waits(status=429, said="busy", headers={"Retry-After": "20"})
    assert told == [wait + 20 for wait in found]
    date = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}  # long over
    assert waits(status=429, said="busy", headers=date) == found
    assert waits(status=429, said="busy", headers={"Retry-After": "soon"}) == found


def test_some_failures_end_the_run_and_what_was_answered_is_kept(tmp_path) -> None:
    pairs = pairs_of(60)
    cache = Journal(tmp_path)
    with FakeEndpoint(Trouble(failing=0.3)) as fake:
        chosen = options(retries=0, failures=4, concurrency=2)
        model = load_endpoint("fake", fake.url, PROMPT, chosen, cache)
        with pytest.raises(InputError, match=r"\(\d+ of 60 items failed; answers are kept"):
            model.predict(pairs)
        assert fake.requests < 40
        assert len(cache) == sum(share("failing", text, 1) >= 0.3 for text in fake.asked)
        # A failed item alone does not stop the others.
        chosen = options(retries=0, failures=60)
        model = load_endpoint("fake", fake.url, PROMPT, chosen, cache)
        with pytest.raises(InputError, match=r"of .* items failed"):
            model.predict(pairs)
        assert min(fake.asked.values()) >= 1
        assert len(fake.asked) == 60


def test_a_fault_of_ours_is_raised_and_nobody_waits(monkeypatch) -> None:
    monkeypatch.setattr(module, "answer_of", lambda *_: 1 // 0)
    with FakeEndpoint() as fake, pytest.raises(ZeroDivisionError):
        load_endpoint("fake", fake.url, PROMPT, options()).predict(pairs_of(5))


def test_newer_models_take_the_limit_under_another_name() -> None:
    with FakeEndpoint(newer=True) as fake:
        model = load_endpoint("fake", fake.url, PROMPT, options(api="chat", concurrency=1))
        model.predict(pairs_of(3))
    limits = [[name for name in body if name.startswith("max")] for body in fake.bodies]
    assert limits == [["max_tokens"], *[["max_completion_tokens"]] * 3]


def test_a_model_that_does_not_answer_is_told() -> None:
    with FakeEndpoint() as fake:
        fake.answer = lambda body, path: {  # type: ignore[method-assign]
            "choices": [{"logprobs": {"top_logprobs": [{"I": -0.1, "As": -3, "a": float("-inf")}]}}]
        }
        model = load_endpoint("fake", fake.url, PROMPT, options(retries=0))
        wanted = r"none of A, B, C is among the 3 likeliest first tokens \('I', 'As', 'a', …\)"
        with pytest.raises(InputError, match=wanted):
            model.predict(pairs_of(1))


def test_costs_are_counted_and_estimated() -> None:
    pairs = pairs_of(20)
    with FakeEndpoint(Trouble(failing=0.2)) as fake:
        chosen = options(price_in=2.0, price_out=10.0)
        model = load_endpoint("fake", fake.url, PROMPT, chosen)
        model.predict([*pairs, *pairs])
    lengths = [len(plain(PROMPT, pair)) for pair in pairs]
    work = model.work
    # The fake server counts four characters a token, each prompt rounded down; failures are free.
    assert work.prompt_tokens == sum(length // 4 for length in lengths)
    assert (work.items, work.completion_tokens, work.uncounted) == (20, 20, 0)
    assert work.cost == pytest.approx((2 * work.prompt_tokens + 10 * 20) / 1e6)
    planned = estimate([*pairs, *pairs], PROMPT, chosen)
    assert (planned["items"], planned["prompt_tokens"]) == (20, math.ceil(sum(lengths) / 4))
    assert planned["cost"] == pytest.approx(work.cost, rel=0.02)
    assert estimate(pairs, PROMPT, options())["cost"] is None
    assert estimate(pairs, WORDS, options())["completion_tokens"] == 60


def test_the_key_shows_nowhere(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRIAXIAL_API_KEY", MARKER)
    seen: list[str] = []
    with FakeEndpoint(key=MARKER) as fake:
        cache = answers_in(tmp_path, {"model": "fake"})
        model = load_endpoint("fake", fake.url, PROMPT, options(), cache)
        model.predict(pairs_of(5))
        assert fake.authorizations == [f"Bearer {MARKER}"] * 5
        with pytest.raises(TypeError, match="does not leave its process"):
            pickle.dumps(model._key)
        seen += [
            repr(model.__dict__),
            str(model.fingerprint),
            repr(Wire(fake.url, options(), model._key).__dict__),
        ]
    # Servers that repeat what they were sent, in every way.
    for status in (400, 401, 404, 500):
        with FakeEndpoint(status=status, said={"error": {"message": f"Bearer {MARKER}?"}}) as fake:
            try:
                load_endpoint("fake", fake.url, PROMPT, options(retries=0)).predict(pairs_of(2))
            except InputError as error:
                told = traceback.TracebackException.from_exception(error, capture_locals=True)
                seen += [str(error), *told.format()]
    assert sum("[key]" in text for text in seen) >= 4
    for listed in ({f"Bearer {MARKER}": -1}, {"A": MARKER}, {"A": [MARKER]}, MARKER):
        with FakeEndpoint() as fake:
            fake.answer = lambda body, path, listed=listed: {  # type: ignore[method-assign]
                "choices": [{"logprobs": {"top_logprobs": [listed]}}]
            }
            with pytest.raises(InputError) as caught:
                load_endpoint("fake", fake.url, PROMPT, options(retries=0)).predict(pairs_of(2))
            seen.append(str(caught.value))
    assert sum("[key]" in text for text in seen[-4:]) == 3
    seen += [file.read_text() for file in tmp_path.rglob("*.jsonl")]
    assert not [text for text in seen if MARKER in text]


@pytest.mark.parametrize(
    ("url", "environment", "wanted"),
    [
        ("https://host/v1", {"TRIAXIAL_API_KEY": "a", "OPENAI_API_KEY": "b"}, "TRIAXIAL_API_KEY"),
        ("https://host/v1", {"OPENAI_API_KEY": "b"}, "OPENAI_API_KEY"),
        ("https://host/v1", {"TRIAXIAL_API_KEY": " ", "OPENAI_API_KEY": "b"}, None),
        ("https://host/v1", {}, None),
        ("http://127.0.0.1:1/v1", {"OPENAI_API_KEY": "b\n"}, "OPENAI_API_KEY"),
        ("http://localhost/v1", {"OPENAI_API_KEY": "b"}, "OPENAI_API_KEY"),
        ("http://[::1]:8000/v1", {"OPENAI_API_KEY": "b"}, "OPENAI_API_KEY"),
    ],
)
def test_where_the_key_comes_from(url, environment, wanted) -> None:
    key = key_for(url, environment=environment)
    assert (key and key.source) == wanted


def test_a_key_that_may_not_travel() -> None:
    environment = {"OPENAI_API_KEY": MARKER}
    with pytest.raises(InputError, match=r"would go over plain http; use https, or --plain-http"):
        key_for("http://gpu1:8000/v1", environment=environment)
    assert key_for("http://gpu1:8000/v1", environment=environment, plain_http=True)
    with pytest.raises(InputError, match=r"OPENAI_API_KEY: holds blanks or letters") as seen:
        key_for("https://host/v1", environment={"OPENAI_API_KEY": f"{MARKER}\n{MARKER}"})
    assert MARKER not in str(seen.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://me:secret@host/v1", "holds a user or a password"),
        ("https://secret@host/v1", "holds a user or a password"),
        ("https://host/v1?key=secret", r"holds a '\?' or a '#'"),
        ("ftp://host/v1", "is no address"),
        ("host:8000/v1", "is no address"),
        ("http://host:secret/v1", "is no address"),
        ("", "is no address"),
    ],
)
def test_urls_that_are_refused(url, message) -> None:
    with pytest.raises(InputError, match=message) as seen:
        base_url(url)
    assert "secret" not in str(seen.value)


def test_the_fingerprint_tells_what_decides_the_answers() -> None:
    def of(prompt: PromptOptions = PROMPT, name: str = "m", **changed: object) -> str:
        return str(load_endpoint(name, "HTTP://Host/v1/", prompt, options(**changed)).fingerprint)

    assert "http://host/v1" in of()
    assert of() == of(concurrency=2, retries=0, price_in=1.0), "how, not what"
    different = [
        of(),
        of(WORDS),
        of(PromptOptions(instruction="Say.")),
        of(name="n"),
        of(api="chat"),
        of(top=5),
        of(seed=2),
    ]
    assert len(set(different)) == len(different)


def test_what_cannot_be_asked() -> None:
    with pytest.raises(InputError, match="no whole word; ask for letters, or for words"):
        load_endpoint("m", "http://host/v1", WORDS, options(api="chat"))
    with pytest.raises(InputError, match="wanted endpoint:MODEL"):
        load_endpoint("", "http://host/v1", PROMPT)
    with pytest.raises(InputError, match="concurrency is 0; wanted at least 1"):
        options(concurrency=0)
    with pytest.raises(InputError, match="'both' is not one of completions, chat"):
        options(api="both")
    with pytest.raises(InputError, match="no time to answer"):
        options(timeout=0.0)


def test_half_a_surrogate_pair_and_no_pairs() -> None:
    with FakeEndpoint() as fake:
        model = load_endpoint("fake", fake.url, PROMPT, options())
        assert model.predict([("A \ud83d.", "B.")]).shape == (1, 3)
        assert model.predict([]).shape == (0, 3)


@given(
    st.lists(st.one_of(st.none(), st.floats(-200, 0)), min_size=3, max_size=3).filter(
        lambda values: any(value is not None for value in values)
    ),
    st.floats(0, 50),
)
def test_a_listed_answer_is_above_one_that_is_not(listed, below) -> None:
    least = min(value for value in listed if value is not None) - below
    one = Answer(tuple(listed), least)
    found = one.log_p()
    assert sum(map(math.exp, found)) == pytest.approx(1)
    assert one.floored == (None in listed)
    for (a, p), (b, q) in itertools.permutations(zip(listed, found, strict=True), 2):
        assert not (a is not None and b is None) or p > q


def test_the_journal_ignores_a_cut_line_and_refuses_a_damaged_one(tmp_path) -> None:
    first, second = Answer((-1.0, None, -0.5), -2.0), Answer((-0.1, -3.0, -9999.0), -9999.0)
    one, other = Journal(tmp_path), Journal(tmp_path)
    one.update({"a": first})
    one.update({})
    other.update({"b": second})
    one.update({"c": first})
    found = Journal(tmp_path)
    assert [found.get(key) for key in "abcd"] == [first, second, first, None]
    path = sorted(tmp_path.iterdir())[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert [Journal(tmp_path).get(key) for key in "abc"] == [first, second, None]
    path.write_bytes(whole.replace(b"-1.0", b"-1.0.", 1))
    with pytest.raises(StoreError, match=re.escape(f"{path}:1: is damaged; remove this line")):
        Journal(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
def test_a_full_disk_is_told_and_nothing_stands_behind_a_cut_line(tmp_path) -> None:
    journal = Journal(tmp_path)
    journal._path = Path("/dev/full")
    with pytest.raises(StoreError, match="no space left"):
        journal.update({"a": Answer((-1.0, -1.0, -1.0), -1.0)})
    assert journal.get("a") is None
    journal.update({"a": Answer((-1.0, -1.0, -1.0), -1.0)})
    assert len(Journal(tmp_path)) == 1
