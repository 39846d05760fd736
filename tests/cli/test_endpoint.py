"""`triax merge evaluate` with models behind a server: troubles, keys, estimates, options."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import polars as pl
import pytest

from fake_endpoint import FakeEndpoint, Trouble
from triaxial.cli import _run
from triaxial.errors import InputError

MARKER = "sk-MARKER-8c1f5e"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch) -> None:
    for name in ("TRIAXIAL_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def made(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small set."""
    root = tmp_path_factory.mktemp("made")
    given = ["merge", "generate", small / "pairs.csv", "--mlm", small / "mlm", "--k", 50]
    given += ["--limit", 6, "--out", root / "set", "--store", root / "store"]
    assert _run([str(one) for one in given]) == 0
    return root / "set"


def evaluate(made: Path, tmp: Path, out: str, url: str, *more: object) -> list[str]:
    given = ["merge", "evaluate", made, "--model", "endpoint:fake", "--endpoint-url", url]
    given += ["--out", tmp / out, "--store", tmp / "store", "--min-variants", 5, "--draws", 2]
    return [str(one) for one in (*given, *more)]


def test_a_troubled_run_ends_as_a_calm_one_and_the_key_is_nowhere(
    made, tmp_path, triax, monkeypatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", MARKER)
    said = []
    with FakeEndpoint(key=MARKER) as server:
        code, out, err = triax(*evaluate(made, tmp_path, "calm", server.url))
        assert code == 0, err
        assert set(server.authorizations) == {f"Bearer {MARKER}"}
        said += [out, err]
    with FakeEndpoint(Trouble(failing=0.1, malformed=0.05), key=MARKER) as server:
        more = ("--retries", 9, "--concurrency", 3, "--price-in", 1000)
        code, out, err = triax(*evaluate(made, tmp_path, "troubled", server.url, *more))
        assert code == 0, err
        assert server.most_at_once <= 3
        assert "fake: " in out
        assert f"{server.requests:,} requests (" in out
        assert ", cost " in out
        said += [out, err]
        runs = [
            pl.read_parquet(tmp_path / name / "predictions.parquet")
            for name in ("calm", "troubled")
        ]
        assert runs[0].equals(runs[1])
        # A key that the server does not know, which it repeats in its message.
        monkeypatch.setenv("TRIAXIAL_API_KEY", f"{MARKER}-wrong")
        other = evaluate(made, tmp_path, "no", server.url, "--seed", 2, "--instruction", "Say.")
        code, out, err = triax(*other)
        assert (code, err.count("\n")) == (2, 1)
        assert err.startswith(f"triax: {server.url}: no answer to ")
        assert "provided: Bearer [key]): the key in TRIAXIAL_API_KEY was refused" in err
        said += [out, err]
        with pytest.raises(InputError) as seen:
            _run([*other, "--debug"])
        told = traceback.TracebackException.from_exception(seen.value, capture_locals=True)
        said += told.format()
    said += [file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file()]
    assert sum('"listed"' in text for text in said) == 2, "the journals were looked at"
    assert not [text for text in said if MARKER in text]


def test_an_estimate_asks_nothing(made, tmp_path, triax) -> None:
    with FakeEndpoint() as server:
        more = ("--price-in", 2, "--price-out", 8)
        call = evaluate(made, tmp_path, "run", server.url, *more)
        code, out, err = triax(*call, "--estimate", "--json")
        assert code == 0, err
        assert server.requests == 0
        (planned,) = json.loads(out)
        assert not (tmp_path / "run").exists()
        code, out, _ = triax(*call, "--estimate")
        assert out.startswith(f"fake: {planned['items']:,} prompts, about ")
        assert triax(*call)[0] == 0
        assert server.requests == planned["items"] > 5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--endpoint-url", "http://me:secret@host/v1"], "endpoint URL: holds a user or a pass"),
        (["--endpoint-url", "http://gpu1.invalid/v1"], "the key in OPENAI_API_KEY would go over"),
        (["--chat", "--answers", "words"], "endpoint: chat gives log-probabilities of the first"),
        (["--timeout", "0"], "endpoint: a time below 0, or no time to answer"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything(
    made, tmp_path, triax, monkeypatch, more, message
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", MARKER)
    call = evaluate(made, tmp_path, "run", "http://127.0.0.1:9/v1", *more)
    code, _, err = triax(*call)
    assert code == 2
    assert err.count("\n") == 1
    assert message in err
    assert MARKER not in err
    assert "secret" not in err


def test_a_whole_run_says_it_before_the_work_on_variants(small, tmp_path, triax) -> None:
    given = ("merge", "run", small / "pairs.csv", "--mlm", small / "mlm", "--out", tmp_path / "run")
    given += ("--store", tmp_path / "store", "--model", "endpoint:fake")
    code, _, err = triax(*given, "--endpoint-url", "http://me:secret@host/v1")
    assert (code, "holds a user or a password" in err) == (2, True)
    assert not (tmp_path / "store").exists()


def test_options_reach_the_server(made, tmp_path, triax) -> None:
    with FakeEndpoint() as server:
        more = ("--chat", "--top-logprobs", 7, "--plain-http", "--timeout", 9, "--sample", 2)
        code, _, err = triax(*evaluate(made, tmp_path, "run", server.url, *more))
        assert code == 0, err
        assert {body["top_logprobs"] for body in server.bodies} == {7}
