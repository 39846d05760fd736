"""Tiny models for the tests of the adapters, made once a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from triaxial.models.tiny import tiny_classifier, tiny_masked

TEXT = (
    'A man is playing a guitar in the park ( " the dog a The Dogs piano Man cats red big sleeps '
    "Bob café naïve runs on an old apple - ' ) . , child smiling . 男人 NASA The In Red"
)

Tiny = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """`tiny("masked" | "classifier", family, cased=…, …)`: the directory of a tiny model."""
    import torch

    # Models this small run slower on several threads, and far slower on busy cores.
    torch.set_num_threads(1)

    @cache
    def make(kind: str, family: str = "bert", **options: object) -> Path:
        write = tiny_masked if kind == "masked" else tiny_classifier
        where = tmp_path_factory.mktemp(f"{kind}-{family}")
        return write(where, TEXT.split(), family, **options)

    return make
