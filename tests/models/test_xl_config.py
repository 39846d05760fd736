"""Shapes of Transformer-XL: sizes, costs and what cannot be; models in directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from triaxial.errors import InputError, StoreError
from triaxial.models.transformer_xl import (
    PRESETS,
    TransformerXL,
    XLConfig,
    count_parameters,
    flops_per_token,
    load_transformer_xl,
)

CONFIG = XLConfig(13, d_model=8, heads=2, layers=2, d_inner=12)


@pytest.mark.parametrize(
    "config",
    [
        *PRESETS.values(),
        replace(CONFIG, norm="post", tied=False),
        replace(CONFIG, d_model=64, tied=False, cutoffs=(3, 7), heads=1),
    ],
)
def test_parameters_are_counted_without_building(config: XLConfig) -> None:
    built = TransformerXL(config, seed=None)
    assert count_parameters(config) == sum(weight.numel() for weight in built.parameters())


def test_presets_have_the_sizes_of_the_papers() -> None:
    sizes = {name: count_parameters(config) for name, config in PRESETS.items()}
    assert sizes["paper"] == pytest.approx(287e6, rel=0.01)
    assert sizes["paper-large"] == pytest.approx(448e6, rel=0.01)
    assert 1e6 < sizes["tiny"] < 2e6
    assert 1e6 < count_parameters(replace(PRESETS["tiny"], vocab_size=4096)) < 2e6
    # By hand: 5 matrices of 128 x 128, 2 of 128 x 512, u, v, 512 + 128 biases and 2 norms a layer;
    # 8,192 x 128 embeddings and 8,192 biases of the output; a last norm.
    layer = 5 * 128**2 + 2 * 128 * 512 + 2 * 128 + 512 + 128 + 4 * 128
    assert sizes["tiny"] == 4 * layer + 8192 * 129 + 2 * 128


def test_flops_by_hand() -> None:
    # Weights 2 * (5 * 8 * 8 + 2 * 8 * 12) = 1,024, output 13 * 8 = 104; context 10 and 64.5,
    # the mean of 1..128; three products of 8 in 2 layers: 2 * 3 * 2 * 8 * 74.5 = 7,152.
    assert flops_per_token(CONFIG, 10) == (2 * 1024 + 2 * 104 + 7152, 3 * 9408)
    adaptive = replace(CONFIG, tied=False, cutoffs=(5,))
    assert flops_per_token(adaptive, 10)[0] == 2 * 1024 + 2 * 8 * 6 + 7152
    # The spec's range for the paper's model.
    paper = PRESETS["paper"]
    assert 0.73e9 < flops_per_token(paper, paper.memory_test)[0] < 0.81e9


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("vocab_size", 1, "a whole number from 2"),
        ("layers", 0, "a whole number from 1"),
        ("memory_test", -1, "a whole number from 0"),
        ("segment", 1.5, "a whole number from 1"),
        ("d_model", 9, "even and a multiple of 2 heads"),
        ("heads", 3, "even and a multiple of 3 heads"),
        ("dropout", 1.0, "a share from 0"),
        ("attn_dropout", -0.1, "a share from 0"),
        ("clamp", 0, "a whole number from 1, or None"),
        ("norm", "both", "one of post, pre"),
        ("cutoffs", (5, 5), "rising, between 0 and vocab_size"),
        ("cutoffs", (13,), "rising, between 0 and vocab_size"),
        ("cutoffs", (3, 5), "rising, .* fewer for a narrow model"),  # 8 / 4 ** 2 is below 1
        ("tied", True, "False beside cutoffs; set tied=False"),
    ],
)
def test_shapes_that_cannot_be(name: str, value: object, rule: str) -> None:
    changes = {name: value, **({"cutoffs": (3,)} if name == "tied" else {})}
    where = "d_model" if name == "heads" else name
    with pytest.raises(InputError, match=f"{where}: is .*; it must be {rule}"):
        replace(CONFIG, **changes)


@pytest.mark.parametrize("changes", [{}, {"d_model": 16, "tied": False, "cutoffs": (4, 8)}])
def test_a_saved_model_comes_back(changes: dict[str, Any], tmp_path: Path) -> None:
    xl = TransformerXL(replace(CONFIG, **changes), seed=7).eval()
    xl.open_streams(3)
    (tmp_path / "tokenizer.json").write_text("{}")  # put there by others
    xl.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }
    back = load_transformer_xl(tmp_path)
    assert (back.config, back.training) == (xl.config, False)
    with torch.no_grad():
        ids = torch.arange(13)[None]
        assert torch.equal(back(ids, None, ids)[0], xl(ids, None, ids)[0])
    assert all(weight.requires_grad for weight in back.parameters())


def damage(directory: Path, **changes: Any) -> None:
    file = directory / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in config.items() if value != "gone"}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: (d / "config.json").unlink(), "no config.json: not a model directory"),
        (lambda d: (d / "config.json").write_text("[1"), "config.json: is damaged; save"),
        (lambda d: (d / "config.json").write_text("[]"), "config.json: is damaged; save"),
        (
            lambda d: damage(d, model_type="gpt2"),
            "is of 'gpt2', not of a .*; name another",
        ),
        (lambda d: damage(d, heads="gone"), "'heads' is missing; use the version of triaxial"),
        (lambda d: damage(d, mood=1), "'mood' is unknown; use the version of triaxial"),
        (lambda d: damage(d, heads=3), "d_model: is 8; it must be even .*; save the model again"),
        (lambda d: damage(d, dropout="x"), "config.json: .*; save the model again"),
        (lambda d: (d / "model.safetensors").unlink(), "no weights .*; save the model again"),
        (lambda d: (d / "model.safetensors").write_bytes(b"x"), "model.safetensors: is damaged"),
        (lambda d: damage(d, layers=1), r"layers.1.* is \(8,\), wanted no such weight"),
        (lambda d: damage(d, layers=3), "layers.2.* is missing, wanted .8,. by config.json"),
        (lambda d: damage(d, d_inner=6), r"inner.bias is \(12,\), wanted \(6,\) by config.json"),
    ],
)
def test_a_directory_that_is_no_model(
    spoil: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    TransformerXL(CONFIG).save(tmp_path)
    spoil(tmp_path)
    with pytest.raises(InputError, match=message):
        load_transformer_xl(tmp_path)


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/model: the model cannot be written .*make room"):
        TransformerXL(CONFIG).save(tmp_path / "file" / "model")
