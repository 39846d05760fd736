"""`triax nli train` and `triax mlm train` from the command line, on tiny models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture
def quick(small: Path, tmp_path: Path) -> list[object]:
    return ["--out", tmp_path / "model", "--epochs", 1, "--device", "cpu", "--limit", 8]


def test_train_a_classifier(small, tmp_path, triax, quick) -> None:
    call = ["nli", "train", small / "pairs.csv", "--encoder", small / "mlm", *quick]
    code, out, err = triax(*call, "--eval", small / "pairs.csv")
    assert (code, err) == (0, "")
    assert "model: trained on 8 pairs in 1 steps, mean loss of the epochs " in out
    assert " held-out pairs; always '" in out
    assert f"next: triax merge run {small}/pairs.csv --model {tmp_path}/model --mlm" in out
    # The same command again: the same words, nothing trained.
    assert triax(*call, "--eval", small / "pairs.csv") == (0, out, "")
    # Another one into the same directory is refused.
    code, out, err = triax(*call, "--seed", 2)
    assert (code, out) == (2, "")
    assert err.endswith("model: holds another model; choose an empty or a new directory\n")


def test_train_a_masked_model(small, tmp_path, triax, quick) -> None:
    (tmp_path / "a.txt").write_text("A man runs.\n\nA dog runs.\r\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"sentence": "A cat runs."}\n', encoding="utf-8")
    (tmp_path / "held.txt").write_text("A dog runs.\nA bird runs.\n", encoding="utf-8")
    call = ["mlm", "train", tmp_path / "a.txt", tmp_path / "b.jsonl", "--column", "sentence"]
    call += ["--model", small / "mlm", "--eval", tmp_path / "held.txt", *quick]
    code, out, err = triax(*call)
    assert code == 0
    assert err == "left out 1 texts that are held out\n"
    assert "trained on 2 texts in 1 steps" in out
    assert "nats a masked token on 2 held-out texts; before " in out
    assert f"next: triax merge run DATA --mlm {tmp_path}/model" in out
    code, out, _ = triax("mlm", "train", small / "pairs.csv", "--model", small / "mlm", *quick[2:],
                         "--out", tmp_path / "pairs", "--json")  # fmt: skip
    assert code == 0
    assert json.loads(out)["rows"] == 8


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", b'{"text": "a"}\n{"a": 1}\n', "x.jsonl:2: no text under 'text' (there: a); "),
        ("x.jsonl", b"[]\n", "x.jsonl:1: no text under 'text' (there: no object); pass --column"),
        ("x.jsonl", b'{"text": "a"}\n{\n', "x.jsonl:2: is not JSON ("),
        ("x.txt", b"a\n\xff\n", "x.txt:2: is not UTF-8 at byte 0 of the line; convert the file"),
        ("x.txt", None, "x.txt: cannot be read (No such file or directory); check the name"),
        ("x.txt", b"\n", "no texts to train on; give at least one"),
    ],
)
def test_bad_texts(name, content, message, small, tmp_path, triax, quick) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    code, out, err = triax("mlm", "train", tmp_path / name, "--model", small / "mlm", *quick)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "model").exists()
