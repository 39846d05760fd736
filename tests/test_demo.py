"""The demo, at a size for tests: three axes, one report, what was planted beside what was seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triaxial.demo import DemoOptions, run_demo
from triaxial.report.page import Report
from triaxial.temporal.planted import PlantOptions

SMALL = DemoOptions(
    sentences=200,
    pairs=120,
    seeds=18,
    masked_epochs=2,
    classifier_epochs=1,
    per_type=8,
    composed_epochs=1,
    plant=PlantOptions(documents=288, months=24, sentences=3, drift=0.4, new_words=6),
    test_months=8,
    language_epochs=1,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report, dict]:
    directory = tmp_path_factory.mktemp("demo")
    seen: dict[str, tuple[int, int]] = {}

    def told(what: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        seen[what] = (done, total)

    report, metrics = run_demo(directory, told, SMALL)
    assert seen["axes"] == (3, 3)
    return directory, report, metrics


def test_the_three_axes_are_there(made) -> None:
    directory, report, metrics = made
    assert list(metrics) == ["replacement", "composition", "time"]
    assert [s.verdict.axis for s in report.sections] == list(metrics)
    for section in report.sections:
        assert section.verdict.sentence
        assert section.signatures
        assert len(section.blocks) >= 4
    assert len(report.planted) == 3
    page = (directory / "report.html").read_text(encoding="utf-8")
    for planted, measured in report.planted:
        assert planted.split(". ")[1][:20] in page
        assert measured[:20] in page
    assert len(page) < 5_000_000
    plain = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    assert len(plain["sections"]) == 3


def test_every_chart_has_numbers_and_every_name_its_place(made) -> None:
    _, report, _ = made
    names = [block.name for section in report.sections for block in section.blocks]
    assert len(set(names)) == len(names)
    for section in report.sections:
        for block in section.blocks:
            assert getattr(block, "rows", None) or getattr(block, "cases", None), block.title


def test_baselines_and_the_papers_stand_beside(made) -> None:
    _, report, _ = made
    replacement, composition, time = (
        next(block for block in section.blocks if block.name.endswith("overview"))
        for section in report.sections
    )
    assert [row[0] for row in replacement.rows][1:] == [
        "always entailment", "always neutral", "always contradiction",
    ]  # fmt: skip
    assert {"ver-nat, V-only", "ver-nat, always neutral (neutral)"} & {
        row[0] for row in composition.rows
    }
    assert any(row[0].startswith("ver-nat, paper, er-res") for row in composition.rows)
    assert any(row[0].startswith("paper, WMT") for row in time.rows)
    assert all(table.quiet for table in (replacement, composition, time))
