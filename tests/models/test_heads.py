"""Three heads over one encoder: the loss in parts, poolings, every family, adapters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from triaxial.errors import InputError
from triaxial.models.base import Hardware
from triaxial.models.heads import LoraOptions, Terms, fingerprint_of, load_learner
from triaxial.models.tiny import FAMILIES, tiny_causal

CPU = Hardware("cpu", "fp32")
PAIRS = [
    ("A man sleeps", "A man is happy"),
    ("A man sleeps on a big red sleeps", "A man sleeps"),
    ("The dog", "The dogs"),
    ("A child runs", "A child runs on an old apple"),
    ("Bob sleeps", "A man sleeps on an old red apple"),
    ("An apple", "A child smiling"),
]
HEADS = [0, 1, 2, 0, 1, 2]
Tiny = Callable[..., Path]


def terms(learner: Any, pull: float = 0.0) -> Terms:
    count = len(PAIRS)
    return Terms(
        np.arange(count)[::-1].copy(),
        np.arange(count) % 3,
        np.linspace(0.1, 0.6, count, dtype=np.float32),
        np.full(count, pull, dtype=np.float32),
        np.full((count, 3), 0.5, dtype=np.float32),
    )


def plain_logits(learner: Any, pair: int) -> torch.Tensor:
    """One pair alone, through the encoder's own interface."""
    ids = torch.tensor([learner.new_ids[learner.rows.ids[pair]].tolist()])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if learner.rows.types is not None:
        inputs["token_type_ids"] = torch.tensor([learner.rows.types[pair]])
    hidden = learner.model.encoder(**inputs).last_hidden_state[0]
    vector = {"first": hidden[0], "last": hidden[-1], "mean": hidden.mean(dim=0)}[
        learner.model.pooling
    ]
    return learner.model.heads[HEADS[pair]](vector)


@pytest.mark.parametrize("pooling", ["first", "mean", "last"])
def test_the_loss_is_the_sum_of_its_terms(pooling: str, tiny: Tiny) -> None:
    learner = load_learner(str(tiny("masked")), PAIRS, HEADS, CPU, pooling=pooling)
    learner.restart(3)
    learner.model.eval()
    all_terms = terms(learner, pull=0.25)
    want = torch.zeros(())
    for n, pair in enumerate(all_terms.pair):
        logits = plain_logits(learner, int(pair))
        want = want + F.cross_entropy(logits[None], torch.tensor([n % 3])) * all_terms.weight[n]
        want = want + 0.25 * ((logits - 0.5) ** 2).mean()
    found = sum(
        share * learner.loss(learner.model, part) for share, part in learner.parts(all_terms)
    )
    assert float(found.detach()) == pytest.approx(float(want.detach()), abs=1e-5)
    logits = learner.logits(np.asarray([4, 1, 4]))
    assert np.allclose(logits[0], plain_logits(learner, 4).detach().numpy(), atol=1e-5)
    assert np.array_equal(logits[0], logits[2])
    weights = Terms(*(getattr(all_terms, n) for n in ("pair", "label", "weight", "pull", "target")))
    each = learner.losses(weights)
    assert each[0] == pytest.approx(
        float(F.cross_entropy(plain_logits(learner, 5)[None], torch.tensor([0])).detach()), abs=1e-5
    )
    assert learner.vectors(np.asarray([0])).shape == (1, 32)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_encoders_learns(family: str, tiny: Tiny) -> None:
    learner = load_learner(str(tiny("masked", family)), PAIRS, HEADS, CPU)
    learner.restart(1)
    learner.model.eval()
    before = float(learner.loss(learner.model, terms(learner)).detach())
    weights = [w for w in learner.model.parameters() if w.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=5e-3)
    for _ in range(5):
        learner.backward(terms(learner))
        optimizer.step()
        optimizer.zero_grad()
    assert float(learner.loss(learner.model, terms(learner)).detach()) < before
    learner.restart(1)
    again = float(learner.loss(learner.model, terms(learner)).detach())
    assert again == pytest.approx(before, abs=1e-6)


def test_heads_are_new_by_seed(tiny: Tiny) -> None:
    learner = load_learner(str(tiny("masked")), PAIRS, HEADS, CPU)
    found = []
    for seed in (1, 2, 1):
        learner.restart(seed)
        found.append(learner.weights())
    name = "heads.0.1.weight"
    assert torch.equal(found[0][name], found[2][name])
    assert not torch.equal(found[0][name], found[1][name])
    assert torch.equal(
        found[0]["encoder.embeddings.position_embeddings.weight"],
        found[1]["encoder.embeddings.position_embeddings.weight"],
    )


def test_a_wider_vocabulary_makes_learners_fit_together(tiny: Tiny) -> None:
    texts = [text for pair in PAIRS for text in pair]
    one = load_learner(str(tiny("masked")), PAIRS[:2], HEADS[:2], CPU, vocabulary=texts)
    two = load_learner(str(tiny("masked")), PAIRS[2:4], [0, 1], CPU, vocabulary=texts)
    one.restart(1)
    two.load(one.weights())
    alone = load_learner(str(tiny("masked")), PAIRS[:2], HEADS[:2], CPU)
    name = "encoder.embeddings.word_embeddings.weight"
    assert len(alone.weights()[name]) < len(one.weights()[name])


def test_a_decoder_with_adapters(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="peft is an extra")
    words = [word for pair in PAIRS for text in pair for word in text.split()]
    model = tiny_causal(tmp_path / "llama", words)
    learner = load_learner(str(model), PAIRS, HEADS, CPU, lora=LoraOptions(rank=2, alpha=4))
    assert learner.model.pooling == "last"
    trained = learner.weights()
    assert all("lora_" in name or name.startswith("heads.") for name in trained)
    assert any("lora_" in name for name in trained)
    learner.restart(1)
    learner.model.eval()
    # Padding on the right changes nothing: pairs of all lengths at once, and alone.
    together = learner.logits(np.arange(len(PAIRS)))
    alone = np.concatenate([learner.logits(np.asarray([n])) for n in range(len(PAIRS))])
    assert np.allclose(together, alone, atol=1e-5)
    frozen = {n: w.clone() for n, w in learner.model.named_parameters() if not w.requires_grad}
    before = float(learner.loss(learner.model, terms(learner)).detach())
    optimizer = torch.optim.Adam([w for w in learner.model.parameters() if w.requires_grad], 1e-2)
    for _ in range(8):
        learner.backward(terms(learner))
        optimizer.step()
        optimizer.zero_grad()
    assert float(learner.loss(learner.model, terms(learner)).detach()) < before
    now = dict(learner.model.named_parameters())
    assert all(torch.equal(w, now[n]) for n, w in frozen.items())
    learner.load(trained)


def test_a_decoder_without_adapters_trains_all_of_it(tmp_path: Path) -> None:
    words = [word for pair in PAIRS for text in pair for word in text.split()]
    learner = load_learner(str(tiny_causal(tmp_path / "llama", words)), PAIRS, HEADS, CPU)
    learner.restart(1)
    learner.backward(terms(learner))
    assert all(w.grad is not None for w in learner.model.parameters() if w.requires_grad)


def test_what_cannot_be_used(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = str(tiny("masked"))
    with pytest.raises(InputError, match="0 pairs and 0 heads; wanted as many, at least one"):
        load_learner(model, [], [], CPU)
    with pytest.raises(InputError, match="rank 0, alpha 1"):
        LoraOptions(rank=0, alpha=1)
    words = [word for pair in PAIRS for text in pair for word in text.split()]
    causal = tiny_causal(tmp_path / "llama", words)
    pytest.importorskip("peft", reason="peft is an extra")
    with pytest.raises(InputError, match=r"lora: no adapters can be put on it: .*nosuch"):
        load_learner(str(causal), PAIRS, HEADS, CPU, lora=LoraOptions(targets="nosuch"))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match="lora: peft is not installed"):
        load_learner(str(causal), PAIRS, HEADS, CPU, lora=LoraOptions())


def test_fingerprint_says_what_decides(tiny: Tiny) -> None:
    model = str(tiny("masked"))
    base = fingerprint_of(model, CPU, "auto", None)
    assert base != fingerprint_of(model, CPU, "mean", None)
    assert base != fingerprint_of(model, Hardware("cpu", "bf16"), "auto", None)
    assert base != fingerprint_of(model, CPU, "auto", LoraOptions())
