"""Every command of the README runs, in its order, on tiny models and data under the same names."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shlex
from pathlib import Path

import pytest

from triaxial.cli import _run
from triaxial.models.tiny import tiny_causal, tiny_classifier, tiny_masked
from triaxial.nli import LABELS, Pair
from triaxial.prompts import PromptOptions, prefix
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.worlds import world

ROOT = Path(__file__).resolve().parents[1]
# What makes a command small: put behind it, or in place of what it says.
SMALL = {
    "merge plan": ["--k", "50"],
    "merge run": ["--k", "50", "--min-variants", "5", "--limit", "20"],
    "merge generate": ["--k", "50", "--limit", "10"],
    "merge export": ["--min-variants", "5", "--draws", "1"],
    "merge evaluate": ["--min-variants", "5", "--draws", "1"],
    "nli train": ["--epochs", "1"],
    "mlm train": ["--epochs", "1"],
    "c2gen build": ["--counts", "6,6,6", "--unseen", "2,2,2"],
    "c2gen run": [
        *("--folds", "5", "--streams", "ver-nat", "--strategies", "none,er-res", "--seeds", "1"),
        *("--per-type", "4", "--test-per-type", "6", "--probe", "2", "--unseen", "0"),
        *("--epochs", "1", "--memory", "8"),
    ],
    "temporal split": ["--per-month", "2"],
    "temporal fit": ["--pieces", "512", "--max-steps", "2", "--rows", "4", "--validation", "4"],
    "temporal adapt": ["--rates", "0.01", "--valid-documents", "4"],
    "temporal analyse": ["--topics", "2"],
    "temporal plant": ["--documents", "200"],
}
INSTEAD = {
    "runs/mine:model-v1": "runs/mine:my-nli-model",
    "runs/mine:model-v2": "runs/mine:my-nli-model",
}


def _sick() -> list[list[str]]:
    """Pairs of our own in SICK's form, enough for six natural primitives a label."""
    header = (
        "pair_ID sentence_A sentence_B entailment_label entailment_AB entailment_BA SemEval_set"
    )
    said = {"ENTAILMENT": "entails", "NEUTRAL": "neutral", "CONTRADICTION": "contradicts"}
    rows = [header.split()]
    for actor in ("A nurse", "A pilot", "Two sailors", "The farmer", "A goat"):
        be = "are" if actor.startswith("Two") else "is"
        for verb, thing in (("mending", "net"), ("painting", "door"), ("carrying", "sack")):
            first = f"{actor} {be} slowly {verb} a {thing}"
            for other, ab, ba in (
                (f"{actor} {be} {verb} a {thing}", "ENTAILMENT", "NEUTRAL"),
                (f"{actor} {be} slowly {verb} a {thing} in a hall", "NEUTRAL", "ENTAILMENT"),
                (f"{actor} {be} not slowly {verb} a {thing}", "CONTRADICTION", "CONTRADICTION"),
            ):
                number = len(rows)
                part = ("TRAIN", "TRAIN", "TRIAL", "TEST")[number % 4]
                marks = [f"A_{said[ab]}_B", f"B_{said[ba]}_A"]
                rows.append([str(number), first, other, ab, *marks, part])
    return rows


SICK = _sick()


def commands() -> list[list[str]]:
    """The `triax` lines of the README's console blocks, in order."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ triax "):
                found.append([INSTEAD.get(w, w) for w in shlex.split(line[2:], comments=True)[1:]])
    return found


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with everything that the README names."""
    root = tmp_path_factory.mktemp("desk")
    made = world(3, sentences=40, training=30, seeds=30)
    with (root / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "a", "b", "gold"])
        writer.writerows(
            [n, p.premise, p.hypothesis, p.label.value] for n, p in enumerate(made.seeds)
        )
    (root / "sentences.txt").write_text("\n".join(made.text) + "\n", encoding="utf-8")
    own = [word for row in SICK for text in row[1:3] for word in str(text).split()]
    words = sorted({*made.words, *own})
    tiny_masked(root / "bert-base-uncased", words, hidden=16)
    tiny_masked(root / "roberta-base", words, "roberta", hidden=16)
    tiny_masked(root / "distilbert-base-uncased", words, "distilbert", hidden=16)
    tiny_masked(root / "sentence-transformers" / "all-MiniLM-L6-v2", words, hidden=16)
    tiny_classifier(root / "my-org" / "my-nli-model", words)
    asked = prefix(PromptOptions(examples=(Pair("", "", "", LABELS[0]),)))
    tiny_causal(root / "my-org" / "my-llm", [*words, *asked.split()], longest=1024)
    with (root / "dev.jsonl").open("w", encoding="utf-8") as file:
        for p in world(4, sentences=40, training=30, seeds=30).seeds:
            row = {"premise": p.premise, "hypothesis": p.hypothesis, "label": p.label.value}
            file.write(json.dumps(row) + "\n")
    lines = ["\t".join(row) for row in SICK]
    (root / "SICK.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    documents, _ = plant(PlantOptions(documents=600, first="2015-01", months=60, sentences=3))
    with gzip.open(root / "news.jsonl.gz", "wt", encoding="utf-8") as file:
        for one in documents:
            told = {"id": one.id, "date": one.date, "text": one.text, "source": one.source}
            file.write(json.dumps(told) + "\n")
    return root


def before(words: list[str], desk: Path) -> None:
    """What a person does between two commands."""
    if words[:2] == ["merge", "evaluate"]:
        items = [json.loads(line) for line in (desk / "items.jsonl").read_text().splitlines()]
        told = [json.dumps({"item": one["item"], "label": "neutral"}) for one in items]
        (desk / "labels.jsonl").write_text("\n".join(told) + "\n")
    if words[:3] == ["merge", "rate", "import"]:
        with (desk / "sheet.csv").open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            row |= {name: "5" for name in row if name in ("F", "R", "fluency", "relation")}
        with (desk / "sheet.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def test_every_command_of_the_readme_runs(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    ran = []
    for words in commands():
        name = " ".join(words[: 3 if words[:2] == ["merge", "rate"] else 2])
        before(words, desk)
        code = _run([*words, *SMALL.get(name, [])])
        said = capsys.readouterr()
        allowed = (0, 1) if "--fail-if" in words else (0,)
        assert code in allowed, (words, said.out[-800:], said.err[-800:])
        ran.append(name)
    # None of the kinds has silently gone from the page.
    assert {"merge run", "c2gen run", "temporal analyse", "nli train"} <= set(ran)
    assert {"report runs/mine", "merge rate import", "merge compare"} <= set(ran)


def test_the_file_of_options_in_the_readme_is_read(desk: Path, monkeypatch) -> None:
    monkeypatch.chdir(desk)
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (desk / "run.toml").write_text(text + 'columns = "premise=a,hypothesis=b,label=gold"\n')
    given = ["merge", "run", "--config", "run.toml", *SMALL["merge run"], "--out", "runs/file"]
    assert _run(given) == 0
    assert (desk / "runs" / "file" / "metrics.json").is_file()
