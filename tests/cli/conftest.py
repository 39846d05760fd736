"""A small set of pairs and tiny random models: enough for whole runs in a second or two."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from triaxial.cli import _run
from triaxial.models.tiny import tiny_classifier, tiny_masked
from triaxial.worlds import world


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `pairs.csv`, two masked LMs `mlm` and `other`, two models `nli`, `new`."""
    root = tmp_path_factory.mktemp("small")
    made = world(3, sentences=30, training=30, seeds=24)
    with (root / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "premise", "hypothesis", "label"])
        writer.writerows([p.id, p.premise, p.hypothesis, p.label.value] for p in made.seeds)
    tiny_masked(root / "mlm", made.words, seed=1)
    tiny_masked(root / "other", made.words, "roberta", seed=2)
    tiny_classifier(root / "nli", made.words, seed=1)
    tiny_classifier(root / "new", made.words, seed=2)
    return root


@pytest.fixture
def triax(capsys: pytest.CaptureFixture[str]):
    """Call the command line in this process: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = _run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
