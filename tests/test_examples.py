"""The examples run as they stand, at their tiny size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, str(path), "--tiny"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
    page = Path(found.stdout.strip().splitlines()[-1])
    assert page.is_relative_to(tmp_path)
    assert "<h1>" in page.read_text(encoding="utf-8")


def test_there_is_one_for_each_axis() -> None:
    assert [path.stem for path in EXAMPLES] == ["composition", "replacement", "time_axis"]
