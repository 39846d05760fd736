"""What all commands share: help that teaches, a file of options, quiet, and the machine itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from triaxial.cli import _command
from triaxial.store import Store, planned, read_json


def commands(of: Any = None, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Every command by its words."""
    of = of or _command()
    inside = getattr(of, "commands", None)
    if inside is None:
        return {" ".join(path): of}
    found: dict[str, Any] = {}
    for name, one in inside.items():
        found |= commands(one, (*path, name))
    return found


EVERY = commands()


@pytest.mark.parametrize("name", EVERY)
def test_every_command_teaches_and_speaks_json(name: str) -> None:
    command = EVERY[name]
    assert f"triax {name}" in (command.help or ""), "an example"
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options
    assert "Everywhere: --config" in command.epilog
    for parameter in command.params:
        assert parameter.name == "help" or getattr(parameter, "help", None), parameter.name


def test_one_name_for_one_thing() -> None:
    # What these options mean is the same wherever they stand.
    for option in ("--device", "--json", "--overwrite", "--precision", "--token-budget"):
        told = {
            (parameter.name, parameter.help)
            for command in EVERY.values()
            for parameter in command.params
            if option in parameter.opts
        }
        assert len(told) == 1, (option, told)


@pytest.mark.parametrize(
    ("words", "near"),
    [(("merg",), "'merge'"), (("merge", "pla"), "'plan'"), (("runs", "lst"), "'list'")],
)
def test_mistyped_names_get_a_suggestion(words, near, triax) -> None:
    code, _, err = triax(*words)
    assert code == 2
    assert f"Did you mean {near}?" in err


def test_a_file_of_options_and_the_command_line_before_it(small: Path, tmp_path, triax) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f'[merge.plan]\nseeds = "{small}/pairs.csv"\nmlm = ["{small}/mlm", "{small}/other"]\n'
        f'limit = 5\nclasses = ["NOUN", "VERB"]\nstore = "{tmp_path}/store"\njson = true\n'
    )
    code, out, _ = triax("merge", "plan", "--config", file)
    assert code == 0
    plan = json.loads(out)
    assert plan["pairs"] == 5
    assert len(plan["masked_lms"]) == 2
    assert set(plan["slots_by_class"]) <= {"NOUN", "VERB"}
    code, out, _ = triax(f"--config={file}", "merge", "plan", "--limit", 3, "--mlm", small / "mlm")
    plan = json.loads(out)
    assert (plan["pairs"], len(plan["masked_lms"])) == (3, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[merge.plan]\nlimits = 3\n",
            r"\[merge\]: \[plan\]: no option 'limits'; did you mean 'limit'",
        ),
        ("[merge.plans]\n", r"\[merge\]: no command 'plans'; did you mean 'plan'"),
        ("merge = 3\n", r"'merge' is a command; write a table \[merge\]"),
        ("[merge.plan]\nlimit = true\n", r"limit: is true or false; wanted a value"),
        ("[merge.plan.limit]\nx = 1\n", r"limit: is a table; wanted a value"),
        ("[merge\n", r"is not TOML: "),
    ],
)
def test_files_that_say_what_nothing_is_called(text, message, tmp_path, triax) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    code, _, err = triax("merge", "plan", "--config", file)
    assert code == 2
    assert err.startswith(f"triax: {file}: ")
    assert re.search(message, err), err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path, triax) -> None:
    code, _, err = triax("merge", "plan", "--config", tmp_path / "no.toml")
    assert (code, err) == (
        2,
        f"triax: {tmp_path}/no.toml: cannot be read (No such file or directory)\n",
    )
    code, _, err = triax("merge", "plan", "--config")
    assert (code, err) == (2, "triax: --config: wanted a TOML file behind it\n")


def test_quiet_keeps_results_and_drops_notes(small: Path, tmp_path, triax) -> None:
    given = ("merge", "plan", small / "pairs.csv", "--mlm", small / "mlm", "--limit", 3)
    store = ("--store", tmp_path / "store")
    said = triax(*given, *store)[2]
    code, out, err = triax(*given, *store, "--quiet")
    assert (code, err) == (0, "")
    assert "Masked queries" in out
    assert "next:" in said


def test_the_doctor_looks_at_everything(tmp_path, triax, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    code, out, _ = triax("doctor", "--store", tmp_path, "--json")
    assert code == 0
    found = {check["name"]: check for check in json.loads(out)}
    assert {"triaxial", "packages", "cpu", "store", "hub", "tagger", "WordNet"} <= set(found)
    rates = r"\d+ threads; fp32 [\d,]+ GFLOP/s, (no bf16|bf16 [\d,]+ GFLOP/s); auto takes "
    assert re.search(rates, found["cpu"]["found"])
    assert found["hub"]["state"] == "note"
    assert "switched off" in found["hub"]["found"]


def test_the_doctor_says_what_is_missing(tmp_path, triax, monkeypatch) -> None:
    from triaxial.api import system

    there = system._version
    monkeypatch.setattr(system, "_version", lambda n: None if n == "polars" else there(n))
    monkeypatch.setattr(system, "_devices", lambda: iter(()))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    code, _, err = triax("doctor", "--store", tmp_path)
    assert code == 1
    assert err == "triax: not everything that is needed is here: packages\n"


def test_a_hub_that_does_not_answer_is_a_note(monkeypatch) -> None:
    from triaxial.api.system import _hub

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    check = _hub(0.5)
    assert check.state == "note"
    assert check.found.startswith("does not answer (")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two whole stages and one that was killed."""
    import polars as pl

    root = tmp_path / "store"
    for number in (1, 2, 3):
        stage = Store(root).stage("test.stage", 1, {"number": number})
        stage.write(0, pl.DataFrame({"x": [number] * number}))
        if number < 3:
            stage.finish(1)
    return root


def test_runs_are_listed_shown_and_removed(store: Path, triax) -> None:
    code, out, _ = triax("runs", "list", "--store", store, "--json")
    listed = json.loads(out)
    assert code == 0
    assert sorted(one["rows"] or 0 for one in listed) == [0, 1, 2]
    assert [one["complete"] for one in listed].count(False) == 1
    two = next(one for one in listed if one["rows"] == 2)
    code, out, _ = triax("runs", "show", two["key"][:8], "--store", store, "--json")
    assert json.loads(out)["manifest"]["params"] == {"number": 2}
    code, out, _ = triax("runs", "rm", two["key"], "--store", store, "--yes")
    assert (code, out.startswith("removed 1, ")) == (0, True)
    assert not Path(two["path"]).exists()
    code, out, _ = triax("runs", "rm", "--incomplete", "--store", store, "--yes", "--json")
    assert len(json.loads(out)["removed"]) == 1
    (left,) = json.loads(triax("runs", "list", "--store", store, "--json")[1])
    assert left["complete"]
    assert "1 in" in triax("runs", "list", "--store", store)[2]


def test_runs_at_work_or_killed_say_how_far_they_are(store: Path, triax) -> None:
    import polars as pl

    stage = Store(store).stage("test.many", 1, {})
    stage.plan(5)
    for number in (0, 3):
        stage.write(number, pl.DataFrame({"x": [number]}))
    names = [path.name for path in store.glob("test.stage-*")]
    with pytest.raises(KeyboardInterrupt), planned(store, "test.grid", names):
        raise KeyboardInterrupt
    code, out, _ = triax("runs", "list", "--incomplete", "--store", store)
    assert code == 0
    assert re.search(r"test\.many +\w+ +2 of 5 shards ", out)
    assert re.search(r"test\.grid +\w+ +2 of 3 stages ", out)
    assert re.search(r"test\.stage +\w+ +unfinished ", out)
    (grid,) = store.glob("test.grid-*")
    code, out, _ = triax("runs", "show", grid.name, "--store", store)
    assert "test.grid, 2 of 3 stages; the command that made it goes on" in out
    assert all(name in out for name in names)
    with planned(store, "test.grid", names):  # called again, and done
        assert grid.exists()
    assert not grid.exists()


def test_runs_that_cannot_be_told(store: Path, triax) -> None:
    code, _, err = triax("runs", "show", "ffff", "--store", store)
    assert (code, err) == (2, f"triax: {store}: 'ffff' is not there; see `triax runs list`\n")
    code, _, err = triax("runs", "rm", "--store", store)
    assert (code, err) == (2, "triax: nothing is named; give keys, --incomplete or --older DAYS\n")
    code, _, err = triax("runs", "list", "--store", store / "no")
    assert (code, err) == (
        2,
        f"triax: {store}/no: is no directory; name a store or a run (--store)\n",
    )


def test_a_cut_manifest_is_unfinished_not_a_crash(store: Path, triax) -> None:
    path = next(store.glob("*/manifest.json"))
    assert read_json(path)
    path.write_text(path.read_text()[:20])
    listed = json.loads(triax("runs", "list", "--store", store, "--json")[1])
    assert [one["complete"] for one in listed].count(False) == 2


def test_removing_asks_first(store: Path, triax, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", __import__("io").StringIO("n\n"))
    code, _, _ = triax("runs", "rm", "--older", 0, "--store", store)
    assert code == 1
    assert len(list(store.iterdir())) == 3
