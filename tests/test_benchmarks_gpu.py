"""The dry run of the benchmark for GPUs: every part of it works on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu.py"


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def test_the_dry_run_measures_all_axes(tmp_path: Path) -> None:
    done = call("--dry-run", "--out", tmp_path / "gpu.json", "--tmp", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["error"] is None
    assert {row["unit"] for row in found["rates"]} == {"queries", "pairs", "steps", "pieces"}
    assert all(row["rate"] > 0 for row in found["rates"])
    assert [float(row[2]) for row in found["parity"]] == [0.0] * 7  # the CPU with itself
    assert "a stage with er-mir" in done.stdout


def test_without_a_gpu_it_says_so() -> None:
    if not torch.cuda.is_available():
        done = call()
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.endswith("gpu.py: no CUDA here; --dry-run is the same on the CPU\n")
