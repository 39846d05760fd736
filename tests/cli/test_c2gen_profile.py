"""`triax c2gen profile` from end to end on a tiny encoder: tables, JSON, files, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from triaxial.c2gen.persona import persona_of
from triaxial.models import resume

Triax = Callable[..., tuple[int, str, str]]

FACTS = """
[[facts]]
stage = 1
fact = "I play the piano."
verbs = ["manage", "refuse"]
entailment = ["The piano is an instrument that I play.", "I am someone who plays the piano."]
neutral = "There is a piano in our hall."
contradiction = "I do not play the piano."

[[facts]]
stage = 2
fact = "I learn Italian."
verbs = ["hope", "manage"]
entailment = "I study Italian."
neutral = "My grandmother came from Rome."
contradiction = "I do not study Italian."

[[facts]]
stage = 3
fact = "I am at home."
entailment = "Home is where I am."
neutral = ["My home is small.", "It is late."]
contradiction = "I am not at home."
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("facts") / "mine.toml"
    path.write_text(FACTS, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, facts: Path) -> Path:
    import torch

    from triaxial.api.c2gen_profile import read_profile
    from triaxial.models.tiny import tiny_masked

    torch.set_num_threads(1)
    items = persona_of(read_profile(facts)).items
    texts = [text for item in items for text in (item.sent1, item.sent2)]
    return tiny_masked(tmp_path_factory.mktemp("encoder"), texts, hidden=16, layers=1)


@pytest.fixture
def arguments(
    encoder: Path, facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[object]:
    monkeypatch.setattr(resume, "_sync", lambda path: None)
    given = ["c2gen", "profile", "--encoder", encoder, "--profile", facts, "--epochs", 2]
    return [*given, "--batch-size", 3, "--learning-rate", 5e-3, "--store", tmp_path / "store"]


def test_tables_say_what_was_learned_and_forgotten(triax: Triax, arguments: list[object]) -> None:
    code, out, _ = triax(*arguments, "--strategies", "none,er-res")
    assert code == 0
    for text in (
        "3 facts in 3 stages, 6 + 6 + 9 lines trained; memory of 2 lines",
        "learned: lines that were trained",
        "held out: lines whose verb and utterance were trained apart",
        "new words: utterances that were not trained",
        "bare facts: trained utterances against the fact without a verb",
        *("after S1", "after S2", "forgotten", "Δ none"),
        *("of stage 1", "of stage 2", "of stage 3", "profile so far"),
        *("always neutral", "V-only", "N-only"),
        "Trained lines of earlier facts",
        "(…): before these facts were learned",
    ):
        assert text in out, text
    # The second stage's facts are judged before they are learned, in brackets.
    after = next(line for line in out.splitlines() if "of stage 2" in line)
    assert after.split()[4].startswith("(")
    # No fact of the second stage has a second utterance.
    new = out.split("new words:")[1].split("bare facts:")[0]
    assert "of stage 2" not in new


def test_json_files_and_a_second_call(
    triax: Triax, arguments: list[object], tmp_path: Path
) -> None:
    more = ["--strategies", "kd", "--memory", 2, "--out", tmp_path / "run", "--json"]
    code, out, err = triax(*arguments, *more)
    assert code == 0
    assert "docs/profile.md" in err
    found = json.loads(out)
    assert (found["strategies"], found["memory"], found["seed"]) == (["kd"], 2, 1)
    assert found["train"]["epochs"] == 2
    assert {row["gain"] for row in found["rows"]} == {None}
    # One fact a stage: nothing to resample.
    assert found["rows"][0]["after"]["1"]["low"] is None
    assert json.loads((tmp_path / "run" / "profile.json").read_text(encoding="utf-8")) == found
    table = pl.read_parquet(tmp_path / "run" / "predictions.parquet")
    # Two facts with two verbs each, one with six: 2 (4 + 3) + 6 * 4 items, after three stages.
    assert len(table) == 3 * 38
    assert len((tmp_path / "run" / "items.jsonl").read_text(encoding="utf-8").splitlines()) == 38
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["complete"], manifest["kind"]) == (True, "c2gen.profile")
    # Called again, all is found; with other options the directory is not taken.
    assert triax(*arguments, *more)[1] == out
    code, _, err = triax(*arguments, *more, "--seed", 2)
    assert code == 2
    assert "holds another run" in err
    assert triax(*arguments, *more, "--seed", 2, "--overwrite")[0] == 0


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--strategies", "none,"), "'' is no strategy"),
        (("--strategies", "none", "--memory", "1"), "--memory: no chosen strategy (none) has one"),
        (("--memory", "7"), "a memory of 7 rows is larger than stage 'facts 1' with 6"),
        (("--batch-size", "7"), "stage 'facts 1': has 6 items, fewer than a batch of 7"),
        (("--profile", "nowhere.toml"), "nowhere.toml: cannot be read"),
        (("--encoder", "/nowhere"), "/nowhere: no such model directory"),
    ],
)
def test_bad_input_is_one_line(
    triax: Triax, arguments: list[object], options: tuple[str, str], wanted: str
) -> None:
    code, out, err = triax(*arguments, *options)
    assert (code, out) == (2, "")
    assert wanted in err
    assert len(err.splitlines()) == 1


def test_the_encoder_is_not_guessed(triax: Triax) -> None:
    code, _, err = triax("c2gen", "profile")
    assert code == 2
    assert "--encoder" in err
