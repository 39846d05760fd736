"""Strategies: what is replayed, projected, matched and held; on a tiny model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.c2gen.beyond import Der, Ewc, WeightAverage
from triaxial.c2gen.compose import Item
from triaxial.c2gen.hooks import At, Finetuning
from triaxial.c2gen.memory import drawn, reservoir
from triaxial.c2gen.strategies import (
    STRATEGIES,
    AGem,
    ErBuff,
    ErMir,
    ErRes,
    Kd,
    projected,
    strategy_named,
)
from triaxial.c2gen.train import Material, material_of
from triaxial.errors import InputError
from triaxial.models.base import Hardware

CPU = Hardware("cpu", "fp32")
Rows = Callable[..., np.ndarray]


@pytest.fixture(scope="module")
def material(items: list[Item], tiny_encoder: str) -> Material:
    return material_of(items, range(len(items)), tiny_encoder, CPU)


@pytest.fixture
def at(material: Material, rows_of_types: Rows) -> At:
    """The second stage: types 4 and 6 after 2 and 5."""
    material.learner.restart(1)
    return At(
        learner=material.learner,
        pairs=material.pairs,
        labels=material.labels,
        trained=np.ones((len(material.pairs), 3), dtype=bool),
        kinds=material.kinds,
        number=1,
        earlier=(rows_of_types(2, 5),),
        current=rows_of_types(4, 6),
        batch_size=8,
        learning_rate=1e-2,
        seed=1,
        carried={},
        state={},
    )


def weights_of(at: At) -> list[torch.nn.Parameter]:
    return [w for w in at.learner.model.parameters() if w.requires_grad]


def gradient(at: At, strategy: Finetuning, step: int, items: np.ndarray) -> torch.Tensor:
    """The gradient that a step leaves, in evaluation mode (no dropout), as one vector."""
    weights = weights_of(at)
    for weight in weights:
        weight.grad = None
    at.learner.model.eval()
    at.learner.backward(strategy.terms(at, step, items))
    strategy.adjust(at, step, items, weights)
    flat = [torch.zeros_like(w).flatten() if w.grad is None else w.grad.flatten() for w in weights]
    for weight in weights:
        weight.grad = None
    return torch.cat(flat)


def plain_loss(at: At, items: np.ndarray) -> torch.Tensor:
    """Mean over items of the three cross-entropies, written plainly, in evaluation mode."""
    at.learner.model.eval()
    total = torch.zeros(())
    for item in items:
        for head in range(3):
            pair = at.pairs[[item], head]
            logits = at.learner._logits(at.learner.model, pair)
            total = total + F.cross_entropy(logits, torch.from_numpy(at.labels[[item], head]))
    return total / len(items)


def plain_gradient(at: At, items: np.ndarray) -> torch.Tensor:
    found = torch.autograd.grad(plain_loss(at, items), weights_of(at), allow_unused=True)
    flat = [
        torch.zeros_like(w).flatten() if g is None else g.flatten()
        for w, g in zip(weights_of(at), found, strict=True)
    ]
    return torch.cat(flat)


def test_the_nine_way_loss_is_the_sum_of_both_primitive_losses() -> None:
    # CE9 over (i, j) -> v_i + n_j: the normalizer factorizes.
    generator = torch.Generator().manual_seed(0)
    v, n = torch.randn(2, 50, 3, generator=generator, dtype=torch.float64)
    gold_v, gold_n = torch.randint(0, 3, (2, 50), generator=generator)
    nine = (v[:, :, None] + n[:, None, :]).reshape(50, 9)
    whole = F.cross_entropy(nine, 3 * gold_v + gold_n)
    parts = F.cross_entropy(v, gold_v) + F.cross_entropy(n, gold_n)
    assert whole == pytest.approx(float(parts), abs=1e-12)


def test_a_plain_step_is_the_mean_of_the_three_losses(at: At) -> None:
    items = at.current[:5]
    found = gradient(at, Finetuning(), 0, items)
    assert torch.allclose(found, plain_gradient(at, items), atol=1e-5)


@pytest.mark.parametrize("kind", [ErRes, ErBuff])
def test_replay_is_one_mean_over_batch_and_memory(kind: Any, at: At) -> None:
    strategy = kind(memory=20)
    items = at.current[:5]
    replayed = strategy.replayed(at, 3)
    assert len(replayed) == at.batch_size  # avalanche #833: exactly b + k rows
    joined = np.concatenate([items, replayed])
    assert len(strategy.terms(at, 3, items)) == 3 * len(joined)
    assert torch.allclose(gradient(at, strategy, 3, items), plain_gradient(at, joined), atol=1e-5)


@pytest.mark.parametrize("kind", [ErRes, ErBuff, ErMir])
@pytest.mark.parametrize("scope", ["previous_stage", "stream"])
def test_nothing_outside_the_memory_is_ever_replayed(kind: Any, scope: str, at: At) -> None:
    options = {"mir_pool": 15} if kind is ErMir else {}
    strategy = kind(memory=20, memory_scope=scope, **options)
    past = set(at.earlier[0].tolist())
    seen: set[int] = set()
    for step in range(40):
        rows = strategy.candidates(at, step) if kind is ErMir else strategy.replayed(at, step)
        held = strategy.held(at, step)
        assert set(rows.tolist()) <= set(held.rows.tolist())
        assert len(held) == 20
        came = set(at.current[: step * at.batch_size].tolist()) if scope == "stream" else set()
        assert set(held.rows.tolist()) <= past | came
        seen |= set(rows.tolist())
    assert bool(seen & set(at.current.tolist())) == (scope == "stream")


def test_two_steps_take_turns(at: At) -> None:
    strategy = ErRes(memory=20, replay_mode="two_step")
    items = at.current[:5]
    assert torch.allclose(gradient(at, strategy, 0, items), plain_gradient(at, items), atol=1e-5)
    rows = strategy.replayed(at, 1)
    assert len(rows) == at.batch_size
    found = gradient(at, strategy, 1, items[:0])
    assert torch.allclose(found, plain_gradient(at, rows), atol=1e-5)


def test_mir_takes_what_the_batch_would_harm_most(at: At) -> None:
    strategy = ErMir(memory=30, replay_batch=4, mir_pool=12)
    items, step = at.current[:6], 2
    pool = strategy.candidates(at, step)
    assert len(pool) == 12 > 4
    # The reference: a step of plain gradient descent on the batch's mean, in a copy.
    before = np.asarray([float(plain_loss(at, np.asarray([row])).detach()) for row in pool])
    kept = at.learner.weights()
    flat = plain_gradient(at, items)
    with torch.no_grad():
        place = 0
        for weight in weights_of(at):
            weight -= at.learning_rate * flat[place : place + weight.numel()].view_as(weight)
            place += weight.numel()
    after = np.asarray([float(plain_loss(at, np.asarray([row])).detach()) for row in pool])
    at.learner.load(kept)
    chosen = pool[np.argsort(-(after - before), kind="stable")[:4]]
    joined = np.concatenate([items, chosen])
    found = gradient(at, strategy, step, items)
    assert torch.allclose(found, plain_gradient(at, joined), atol=1e-5)
    now = at.learner.weights()
    assert all(torch.equal(kept[name], now[name]) for name in kept)  # nothing of the step is left


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.booleans())
def test_agem_algebra(seed: int, missing: bool) -> None:
    # CL-Gym #4: g stays where g·r >= 0; else g' = g - (g·r / r·r) r, so that g'·r = 0.
    random = torch.Generator().manual_seed(seed)
    shapes = [(3, 4), (4,), (2, 2)]
    g = [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
    r = [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
    if missing:
        g[1] = torch.zeros_like(g[1])
    plain_g, plain_r = (torch.cat([part.flatten() for part in side]) for side in (g, r))
    dot = float(plain_g @ plain_r)
    given_g: list[torch.Tensor | None] = [part.clone() for part in g]
    if missing:
        given_g[1] = None  # a head unused in this stage (avalanche PR #791)
    found = projected(given_g, r)
    flat = torch.cat(
        [torch.zeros(4) if part is None else part.flatten() for part in found]
    ).double()
    if dot >= 0:
        assert torch.equal(flat, plain_g)
    else:
        assert torch.allclose(flat, plain_g - dot / (plain_r @ plain_r) * plain_r)
        assert float(flat @ plain_r) == pytest.approx(0, abs=1e-9)


def test_agem_at_a_reference_of_zero_or_none() -> None:
    g = [torch.tensor([1.0, -2.0]), None]
    assert torch.equal(projected(g, [torch.zeros(2), None])[0], torch.tensor([1.0, -2.0]))
    assert projected([None, None], [torch.ones(2), None]) == [None, None]
    assert projected(g, [None, torch.ones(1)])[0] is g[0]


def test_agem_uses_the_memory_gradient(at: At) -> None:
    strategy = AGem(memory=20)
    items = at.current[:6]
    for step in range(6):
        rows = drawn(reservoir(at.earlier, 20, at.seed), 8, at.seed, at.number, step)
        g, r = plain_gradient(at, items), plain_gradient(at, rows)
        dot = float(g @ r)
        want = g if dot >= 0 else g - dot / (r @ r) * r
        assert torch.allclose(gradient(at, strategy, step, items), want, atol=1e-4)


def test_distillation_is_zero_at_the_border(at: At) -> None:
    strategy = Kd(memory=20, kd_weight=3.0)
    at = replace(at, state=strategy.start(at))
    items = at.current[:6]
    terms = strategy.terms(at, 0, items)
    pulled = terms.take(np.flatnonzero(terms.pull > 0))
    assert len(pulled) == 3 * at.batch_size
    at.learner.model.eval()
    assert float(at.learner.loss(at.learner.model, pulled).detach()) == pytest.approx(0, abs=1e-9)
    # Away from it: the weight times the mean squared distance over items, heads and classes.
    with torch.no_grad():
        at.learner.model.heads[2][4].bias += 0.5  # type: ignore[index, union-attr]
    found = float(at.learner.loss(at.learner.model, pulled).detach())
    assert found == pytest.approx(3.0 * 0.25 / 3, abs=1e-5)
    assert strategy.terms(at, 0, items).weight.max() == pytest.approx(1 / 6)


def test_the_teacher_does_not_move_within_a_stage(at: At) -> None:
    strategy = Kd(memory=20)
    at = replace(at, state=strategy.start(at))
    before = strategy.terms(at, 5, at.current[:4])
    with torch.no_grad():
        for weight in weights_of(at):
            weight += 0.1
    after = strategy.terms(at, 5, at.current[:4])
    assert np.array_equal(before.target, after.target)


def test_der_keeps_the_logits_that_rows_entered_with(at: At, rows_of_types: Rows) -> None:
    strategy = Der(memory=10)
    first = strategy.start(at)
    with torch.no_grad():
        for weight in weights_of(at):
            weight += 0.05
    later = replace(
        at, number=2, earlier=(*at.earlier, at.current), current=rows_of_types(7), carried=first
    )
    second = strategy.start(later)
    old = {int(row): n for n, row in enumerate(first["items"])}
    both = [row for row in second["items"].tolist() if row in old]
    new = [row for row in second["items"].tolist() if row not in old]
    assert both
    assert new
    for n, row in enumerate(second["items"].tolist()):
        now = at.logits(np.asarray([row]))[0]
        want = first["logits"][old[row]].numpy() if row in old else now
        assert np.allclose(second["logits"][n], want, atol=1e-5)
    # One term a pair: matching and replaying a row costs one forward.
    at = replace(at, state=first)
    terms = strategy.terms(at, 0, at.current[:5])
    assert len(terms) == len(set(terms.pair.tolist()))
    assert terms.pull.sum() == pytest.approx(0.5, abs=1e-6)
    assert terms.weight.sum() == pytest.approx(3 * 1.0 + 3 * 0.5, abs=1e-5)


def test_ewc_pulls_back_by_the_fisher_information(at: At) -> None:
    strategy = Ewc(ewc_weight=10.0, fisher_items=3)
    state = strategy.start(at)
    at = replace(at, state=state)
    items = at.current[:4]
    # At the border the penalty has no gradient.
    assert torch.allclose(gradient(at, strategy, 0, items), plain_gradient(at, items), atol=1e-5)
    name, weight = next(
        (n, w) for n, w in at.learner.model.named_parameters() if n.startswith("heads.2.1.weight")
    )
    with torch.no_grad():
        weight += 0.1
    place = [id(w) for w in weights_of(at)].index(id(weight))
    start = sum(w.numel() for w in weights_of(at)[:place])
    pulled = gradient(at, strategy, 0, items) - plain_gradient(at, items)
    mine = pulled[start : start + weight.numel()].view_as(weight)
    assert torch.allclose(mine, 10.0 * state[f"fisher.{name}"] * 0.1, atol=1e-5)
    assert float(pulled.abs().sum()) == pytest.approx(float(mine.abs().sum()), rel=1e-3)
    # The Fisher information of three items by hand: the mean of squared gradients.
    assert float(sum(v.sum() for n, v in state.items() if n.startswith("fisher."))) > 0


def test_fisher_is_the_mean_of_squared_gradients(at: At) -> None:
    strategy = Ewc(fisher_items=2)
    with_one_row = replace(at, earlier=(at.earlier[0][:2],))
    state = strategy.start(with_one_row)
    squares = [plain_gradient(at, np.asarray([row])) ** 2 for row in at.earlier[0][:2]]
    names = [n for n, w in at.learner.model.named_parameters() if w.requires_grad]
    found = torch.cat([state[f"fisher.{name}"].flatten() for name in names])
    assert torch.allclose(found, (squares[0] + squares[1]) / 2, atol=1e-6)


def test_averaging_ends_between_before_and_after(at: At) -> None:
    strategy = WeightAverage(average_weight=0.25)
    before = at.learner.weights()
    at = replace(at, state=strategy.start(at))
    with torch.no_grad():
        for weight in weights_of(at):
            weight += 0.4
    strategy.finish(at)
    after = at.learner.weights()
    assert all(torch.allclose(after[n], before[n] + 0.1, atol=1e-6) for n in before)
    moved = at.learner.weights()
    first = replace(at, earlier=())
    WeightAverage().finish(replace(first, state=WeightAverage().start(first)))
    assert all(torch.equal(moved[n], w) for n, w in at.learner.weights().items())


def test_scoring_leaves_the_training_mode_alone(at: At) -> None:
    strategy = ErMir(memory=20, mir_pool=10, replay_batch=4)
    at.learner.model.train()
    at.learner.backward(strategy.terms(at, 0, at.current[:4]))
    strategy.adjust(at, 0, at.current[:4], weights_of(at))
    Kd(memory=20).start(at)
    assert all(module.training for module in at.learner.model.modules())


def test_every_strategy_has_its_name_and_defaults() -> None:
    assert [name for name, kind in STRATEGIES.items() if kind.name != name] == []
    for name in STRATEGIES:
        assert strategy_named(name, {"memory": 7, "nonsense": 1}).memory_size() in (0, 7)


@pytest.mark.parametrize(
    ("name", "settings", "wanted"),
    [
        ("er", {}, "'er' is no strategy; choose from none, er-res"),
        ("er-res", {"memory": 0}, "er-res: memory: is 0; it must be at least 1"),
        ("er-res", {"replay_batch": -1}, "replay_batch: is -1; it must be 0 or more"),
        ("er-buff", {"replay_mode": "both"}, "er-buff: replay_mode: is 'both'; it must be one of"),
        ("er-res", {"memory_scope": "all"}, "memory_scope: is 'all'; it must be one of"),
        ("er-mir", {"replay_mode": "two_step"}, "it must be concat, for its virtual step"),
        ("er-mir", {"replay_batch": 9, "mir_pool": 9}, "it must be above the replay batch (9)"),
        ("agem", {"memory": 0}, "agem: memory"),
        ("kd", {"kd_weight": 0.0}, "kd: kd_weight: is 0.0; it must be above 0"),
        ("der", {"der_alpha": 0.0}, "der: der_alpha"),
        ("der", {"der_beta": -1.0}, "der: der_beta"),
        ("ewc", {"ewc_weight": 0.0}, "ewc: ewc_weight"),
        ("ewc", {"fisher_items": 0}, "ewc: fisher_items"),
        ("average", {"average_weight": 0.0}, "average: average_weight: is 0.0"),
    ],
)
def test_wrong_settings(name: str, settings: dict[str, Any], wanted: str) -> None:
    with pytest.raises(InputError) as error:
        strategy_named(name, settings)
    assert wanted in str(error.value)
