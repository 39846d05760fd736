"""Fixtures for every test: the directory of real data and models, where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Tiny models gain nothing from threads, and lose much where cores are shared; also in subprocesses.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shared",
        default=str(Path(__file__).resolve().parents[2] / "shared"),
        help="directory of real data and models; tests that read it skip where it is absent",
    )


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest) -> Path:
    """The directory of real data and models, or a skip with the reason."""
    directory = Path(request.config.getoption("--shared"))
    if not (directory / "data").is_dir():
        pytest.skip(f"no real data at {directory}; pass --shared DIR")
    return directory
