"""Transformer-XL: the paper's equations position by position, memory of both kinds, streams."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from triaxial.models import resume
from triaxial.models.base import Hardware
from triaxial.models.fit import FitOptions, fit
from triaxial.models.transformer_xl import (
    TransformerXL,
    XLConfig,
)

V = 13
CONFIG = XLConfig(
    V, d_model=8, heads=2, layers=2, d_inner=12, dropout=0.0, memory_train=5, memory_test=64
)
CPU = Hardware("cpu", "fp32")


def model(config: XLConfig = CONFIG, **changes: Any) -> TransformerXL:
    """A small model whose weights are large enough for every term to count."""
    made = TransformerXL(replace(config, **changes))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.3)
    return made.eval()


def text(rows: int, tokens: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, V, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def close(one: torch.Tensor, other: torch.Tensor, within: float = 1e-5) -> None:
    assert one.shape == other.shape
    difference = (one - other).abs().max().item()
    assert difference <= within  # torch.testing would load for seconds


def read(xl: TransformerXL, ids: torch.Tensor, cuts: Sequence[int], **kind: bool) -> torch.Tensor:
    """Losses of a text read in segments that end at `cuts`; the first piece has none."""
    with torch.no_grad():
        memory, found = xl.start(len(ids), **{"frozen": True, **kind}), []
        for start, end in itertools.pairwise((0, *cuts)):
            losses, memory = xl(ids[:, start:end], memory, ids[:, start + 1 : end + 1])
            found.append(losses)
    return torch.cat(found, 1)


def reference(
    xl: TransformerXL, ids: list[int], memory: list[list[torch.Tensor]]
) -> tuple[torch.Tensor, list[list[torch.Tensor]]]:
    """Log-probabilities after each piece of one row, and each layer's inputs over it.

    Straight from the paper: the four terms (a) to (d) of section 3.3 for every query and key, one
    after the other; memory is a list of layer inputs for each layer, of which nothing is masked.
    """
    config, width = xl.config, xl.config.d_model
    size = width // config.heads

    def sinusoid(distance: int) -> torch.Tensor:
        distance = min(distance, config.clamp or distance)
        rates = [distance / 10_000 ** (2 * k / width) for k in range(width // 2)]
        return torch.tensor([math.sin(r) for r in rates] + [math.cos(r) for r in rates])

    hidden = [xl.embedding.weight[piece] * width**0.5 for piece in ids]
    kept = []
    for layer, before in zip(xl.layers, memory, strict=True):
        assert isinstance(layer, nn.Module)
        w: Any = layer
        inputs = [state.detach() for state in before] + hidden
        kept.append(inputs)
        seen = [w.attention_norm(x) for x in inputs] if config.norm == "pre" else inputs
        out = []
        for i, residual in enumerate(hidden):
            at = len(before) + i
            parts = []
            for head in range(config.heads):
                rows = slice(head * size, (head + 1) * size)
                values = slice(width + rows.start, width + rows.stop)
                q = w.query.weight[rows] @ seen[at]
                u, v = w.content_bias[rows], w.distance_bias[rows]
                scores = []
                for j in range(at + 1):
                    k = w.key_value.weight[rows] @ seen[j]
                    r = w.distance.weight[rows] @ sinusoid(at - j)
                    scores.append((q @ k + q @ r + u @ k + v @ r) / size**0.5)
                shares = torch.stack(scores).softmax(0)
                parts.append(
                    sum(
                        share * (w.key_value.weight[values] @ x)
                        for share, x in zip(shares, seen[: at + 1], strict=True)
                    )
                )
            x = residual + w.mixed.weight @ torch.cat(parts)  # type: ignore[arg-type]
            x = x if config.norm == "pre" else w.attention_norm(x)
            y = w.inner_norm(x) if config.norm == "pre" else x
            x = x + w.outer(torch.relu(w.inner(y)))
            out.append(x if config.norm == "pre" else w.inner_norm(x))
        hidden = out
    weight = xl.embedding.weight if xl.output is None else xl.output.weight
    assert xl.output_bias is not None
    logits = torch.stack([weight @ xl.last_norm(x) + xl.output_bias for x in hidden])
    return logits.log_softmax(-1), kept


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "post", "tied": False}, {"clamp": 3}, {"memory_test": 4}],
    ids=["pre", "post-untied", "clamped", "short"],
)
def test_parity_with_the_equations(changes: dict[str, Any]) -> None:
    xl = model(**changes)
    ids, limit = text(2, 9, seed=1), xl.config.memory_test
    wanted, memory = [], [[[] for _ in xl.layers] for _ in ids]
    for start, end in ((0, 4), (4, 5), (5, 8)):
        losses = []
        for row, line in enumerate(ids.tolist()):
            log_p, kept = reference(xl, line[start:end], memory[row])
            memory[row] = [states[-limit:] for states in kept]
            losses.append(-log_p[range(end - start), line[start + 1 : end + 1]])
        wanted.append(torch.stack(losses))
    for frozen in (True, False):
        close(read(xl, ids, [4, 5, 8], frozen=frozen), torch.cat(wanted, 1).detach())
    # The gradient of the third segment alone: memory passes none on.
    before = xl(ids[:, 4:5], xl(ids[:, :4])[1])[1]
    loss, _, _ = xl.loss(ids[:, 5:8], ids[:, 6:9], before)
    ours = torch.autograd.grad(loss, list(xl.parameters()), retain_graph=True)
    theirs = torch.autograd.grad(wanted[-1].mean(), list(xl.parameters()))
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, 1e-4)
    losses, _ = xl(ids[:, 5:8], before, ids[:, 6:9])
    for one, other in zip(
        torch.autograd.grad(losses.mean(), list(xl.parameters())), ours, strict=True
    ):
        close(one, other, 1e-6)


@given(
    rows=st.integers(1, 3),
    parts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    frozen=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_any_segments_are_one_pass_where_memory_is_long_enough(
    rows: int, parts: list[int], frozen: bool
) -> None:
    xl, ids = model(), text(rows, sum(parts) + 1)
    found = read(xl, ids, list(itertools.accumulate(parts)), frozen=frozen)
    assert found.shape == (rows, sum(parts))  # every piece once, but the first of all
    close(found, read(xl, ids, [sum(parts)]))


def test_memory_is_cut_at_its_length() -> None:
    ids = text(2, 13)
    whole = read(model(), ids, [6, 12])
    short = read(model(memory_test=3), ids, [6, 12])
    none = read(model(memory_test=0), ids, [6, 12])
    assert torch.equal(whole[:, :6], short[:, :6])  # the first segment has no memory to lack
    assert (whole - short)[:, 6:].abs().min() > 1e-4
    assert (short - none)[:, 6:].abs().min() > 1e-4
    close(none[:, 6:], read(model(), ids[:, 6:], [6]))
    xl = model(memory_test=3)
    _, memory = xl(ids)
    assert [tuple(states.shape) for states in memory.states] == [(2, 3, 8)] * 2
    xl.train()
    _, memory = xl(ids, memory)
    assert [tuple(states.shape) for states in memory.states] == [(2, 5, 8)] * 2
    assert not any(states.requires_grad for states in memory.states)


def test_a_frozen_memory_projects_each_state_once(monkeypatch: pytest.MonkeyPatch) -> None:
    xl, ids, seen = model(), text(2, 13), []
    for layer in xl.layers:
        for name in ("key_value", "distance"):
            getattr(layer, name).register_forward_hook(
                lambda _, inputs, out, name=name: seen.append((name, inputs[0].shape[-2]))
            )
    with torch.no_grad():
        _, memory = xl(ids[:, :8])
        _, memory = xl(ids[:, 8:10], memory)
        seen.clear()
        known = replace(memory, states=tuple(states[:, :6] for states in memory.states))
        _, after = xl(ids[:, 10:12], known)
    # Two new states a layer, none of the memory; distances of 8 + 1 were known from 10 + 1.
    assert seen == [("key_value", 2)] * 2
    assert after.distances[0].shape[1] == 11  # and still are
    with pytest.raises(AssertionError, match="frozen memory have no gradients"):
        xl(ids, memory)


def test_open_memory_gives_the_same_bits_with_and_without_gradients() -> None:
    xl, ids = model(), text(2, 13)
    found = []
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            _, memory = xl(ids[:, :6], xl.start(2, frozen=False))
            losses, memory = xl(ids[:, 6:12], memory, ids[:, 7:])
            mean, again, _ = xl.loss(
                ids[:, 6:12], ids[:, 7:], xl(ids[:, :6], xl.start(2, frozen=False))[1]
            )
            found.append((losses.detach(), again, mean.detach(), *memory.states))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert torch.equal(found[0][0], found[0][1])


@pytest.mark.parametrize("frozen", [True, False])
def test_nothing_leaks_over_a_reset(frozen: bool) -> None:
    xl, ids = model(), text(3, 11)
    reset = torch.tensor([False, True, False])
    with torch.no_grad():
        _, memory = xl(ids[:, :5], xl.start(3, frozen=frozen))
        before = [states.clone() for states in memory.states]
        for states in memory.states:
            states[1] = 1e6  # whatever it was
        losses, memory = xl(ids[:, 5:7], memory, ids[:, 6:8], reset=reset)
        more, _ = xl(ids[:, 7:10], memory, ids[:, 8:])
    assert memory.valid.tolist() == [7, 2, 7]
    found = torch.cat([losses, more], 1)
    close(found[1:2], read(xl, ids[1:2, 5:], [2, 5]))
    close(found[::2], read(xl, ids[::2], [5, 10])[:, 5:])
    assert before[0].shape[1] == 5


@given(
    lengths=st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=3),
    frozen=st.booleans(),
    memory_test=st.sampled_from([0, 3, 64]),
)
@settings(max_examples=15, deadline=None)
def test_padding_and_other_rows_change_nothing(
    lengths: list[list[int]], frozen: bool, memory_test: int
) -> None:
    # Each row goes on by its own number of pieces a segment; the rest of a segment is padding.
    xl = model(memory_test=memory_test)
    ids = text(len(lengths), 13)
    at = [0] * len(lengths)
    found: list[list[float]] = [[] for _ in lengths]
    with torch.no_grad():
        memory = xl.start(len(lengths), frozen=frozen)
        for turn in range(3):
            part, targets = torch.full((2, len(lengths), 4), V - 1)
            targets[:] = -100
            for row, line in enumerate(lengths):
                size = line[turn]
                part[row, :size] = ids[row, at[row] : at[row] + size]
                targets[row, :size] = ids[row, at[row] + 1 : at[row] + size + 1]
                at[row] += size
            real = torch.tensor([line[turn] for line in lengths])
            losses, memory = xl(part, memory, targets, lengths=real)
            for row, size in enumerate(real.tolist()):
                found[row] += losses[row, :size].tolist()
                assert not losses[row, size:].any()
    assert memory.valid.tolist() == [min(sum(line), memory_test) for line in lengths]
    for row, line in enumerate(lengths):
        cuts = [end for end, size in zip(itertools.accumulate(line), line, strict=True) if size]
        if cuts:
            alone = read(xl, ids[row : row + 1], cuts)
            assert found[row] == pytest.approx(alone[0].tolist(), abs=1e-4)


class Blind(TorchDispatchMode):
    """Refuses every operation whose result the host would have to wait for."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        looks = ("_local_scalar_dense", "nonzero", "masked_select", "equal.", "_unique")
        if any(look in str(func) for look in looks):
            raise RuntimeError(f"the host looks at a value: {func}")
        return func(*args, **(kwargs or {}))


def test_nothing_is_asked_of_the_device() -> None:
    xl = model(dropout=0.1, attn_dropout=0.1).train()
    xl.open_streams(2)
    ids, reset = text(2, 7), torch.tensor([False, True])
    with Blind():
        with pytest.raises(RuntimeError, match="looks at a value"):
            ids.sum().item()
        for _ in range(2):
            xl.stream_loss(ids[:, :-1], ids[:, 1:], reset).backward()  # type: ignore[no-untyped-call]
        xl.eval()
        with torch.no_grad():
            _, memory = xl(ids)
            losses, _ = xl(ids, memory, ids, reset=reset, lengths=reset.long())
    assert losses.shape == (2, 7)


def test_bf16_reads_alike_and_scores_in_fp32() -> None:
    xl, ids = model(), text(2, 13)
    exact = read(xl, ids, [6, 12])
    for frozen in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = read(xl, ids, [6, 12], frozen=frozen)
        assert found.dtype == torch.float32
        assert not torch.equal(found, exact)
        close(found, exact, 0.25)
    kinds = []
    hook = xl.layers[0].query.register_forward_hook(lambda *a: kinds.append(a[2].dtype))  # type: ignore[union-attr]
    xl.train()
    xl.open_streams(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = xl.stream_loss(ids[:, :6], ids[:, 1:7])
        value = value + xl.stream_loss(ids[:, 6:12], ids[:, 7:])
    value.backward()
    hook.remove()
    assert kinds == [torch.bfloat16] * 2
    assert all(
        weight.grad is not None and weight.grad.isfinite().all() for weight in xl.parameters()
    )
    assert value.item() / 2 == pytest.approx(exact.mean().item(), abs=0.1)


def streams(epoch: int, parts: int = 1) -> list[list[tuple[float, Any]]]:
    """Four streams of 24 pieces in segments of 4: 6 steps an epoch, each begun anew."""
    ids = text(4, 25, seed=epoch)
    rows = torch.arange(4).chunk(parts)
    return [
        [(1 / parts, (ids[r, s : s + 5], int(r[0]), start == 0)) for r in rows]
        for start, s in enumerate(range(0, 24, 4))
    ]


def stream_loss(xl: nn.Module, part: tuple[torch.Tensor, int, bool]) -> torch.Tensor:
    assert isinstance(xl, TransformerXL)
    ids, first, begins = part
    reset = torch.full((len(ids),), begins)
    return xl.stream_loss(ids[:, :-1], ids[:, 1:], reset, first=first)


def trained(options: FitOptions, parts: int = 1, **rest: Any) -> tuple[TransformerXL, Any]:
    xl = TransformerXL(replace(CONFIG, dropout=0.2, attn_dropout=0.1))
    xl.open_streams(4)
    return xl, fit(xl, lambda e: streams(e, parts), stream_loss, options, CPU, **rest)


OPTIONS = FitOptions(epochs=2, learning_rate=1e-2, checkpoint_every=2)


class Kill(Exception):
    """Stands for whatever ends a process."""


@pytest.mark.parametrize("killed", [3, 8])
def test_a_killed_training_ends_bit_for_bit_like_an_undisturbed_one(
    killed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "_sync", lambda path: None)

    def kill(done: int) -> None:
        if done == killed:
            raise Kill

    whole, undisturbed = trained(OPTIONS)
    with pytest.raises(Kill):
        trained(OPTIONS, checkpoint=tmp_path, after_step=kill)
    resumed, history = trained(OPTIONS, checkpoint=tmp_path)
    # Taken up within an epoch, where the memory of the streams counts.
    assert history.resumed_at == (killed - 1) // 2 * 2
    assert history.losses == undisturbed.losses
    left = dict(whole.named_parameters()) | dict(whole.named_buffers())
    right = dict(resumed.named_parameters()) | dict(resumed.named_buffers())
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert left["stream_valid"].tolist() == [5] * 4


def test_streams_remember_what_a_memory_would() -> None:
    xl = model().train()
    xl.open_streams(4)
    memory = xl.start(4, frozen=False)
    for step, [(_, (ids, _, _))] in enumerate(streams(0)):
        wanted, _, memory = xl.loss(ids[:, :-1], ids[:, 1:], memory)
        assert torch.equal(memory.valid, torch.tensor([min(4 * step + 4, 5)] * 4))
        close(xl.stream_loss(ids[:, :-1], ids[:, 1:]), wanted)
    for layer, states in enumerate(memory.states):
        close(xl.stream_states[layer], states)
    assert "stream_states" not in xl.state_dict()
    xl.open_streams(0)
    assert xl.stream_states.numel() == 0
    with pytest.raises(AssertionError, match="streams are for training"):
        xl.eval().stream_loss(ids, ids)


def test_groups_of_streams_are_parts_of_a_batch() -> None:
    found = []
    for parts in (1, 2):
        xl = TransformerXL(CONFIG)
        xl.open_streams(4)
        fit(xl, lambda e, n=parts: streams(e, n), stream_loss, FitOptions(max_steps=6), CPU)
        found.append([*xl.parameters(), xl.stream_states])
    for one, other in zip(*found, strict=True):
        close(one, other)


def test_it_learns_what_only_memory_can_tell() -> None:
    # Three random pieces over and over: in segments of 2 the one to repeat is in memory alone.
    config = XLConfig(5, d_model=16, heads=2, layers=1, d_inner=16, dropout=0)

    def batches(epoch: int) -> list[list[tuple[float, torch.Tensor]]]:
        ids = text(32, 3, seed=epoch).remainder(5).repeat(1, 4)
        return [[(1.0, ids[:, at : at + 3])] for at in range(0, 8, 2)]

    def loss(xl: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        assert isinstance(xl, TransformerXL)
        return xl.stream_loss(ids[:, :-1], ids[:, 1:])

    ends = []
    for memory in (4, 0):
        xl = TransformerXL(replace(config, memory_train=memory))
        xl.open_streams(32)
        options = FitOptions(max_steps=60, learning_rate=2e-2, schedule="constant")
        losses = fit(xl, batches, loss, options, CPU).losses
        ends.append(sum(losses[-3:]) / 3)  # the last three segments of the last text
    assert ends[0] < 0.7 < 1.4 < ends[1]  # guessing costs log 5 = 1.61


def test_weights_come_from_the_seed_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = TransformerXL(CONFIG), TransformerXL(CONFIG), TransformerXL(CONFIG, seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name])
        drawn = weight.ndim > 1 or "content" in name or "distance_bias" in name
        assert torch.equal(weight, other.state_dict()[name]) == (not drawn)
    # 13 x 8 numbers: the standard error of their spread is .02 / sqrt(208) = .0014; four of them.
    assert one.embedding.weight.std().item() == pytest.approx(0.02, abs=0.0056)
    assert one.layers[0].inner_norm.weight.tolist() == [1] * 8  # type: ignore[union-attr]
    assert one.output_bias is not None
    assert not one.output_bias.any()


def test_an_adaptive_softmax_is_that_of_torch() -> None:
    xl = model(d_model=16, tied=False, cutoffs=(4, 8))
    ids, targets = text(2, 6), text(2, 6, seed=1)
    targets[0, 1] = -100
    hidden, _ = xl(ids)
    assert xl.adaptive is not None
    log_p = xl.adaptive.log_prob(hidden.flatten(0, 1))
    wanted = F.nll_loss(log_p, targets.flatten(), reduction="none").view(2, 6)
    losses, _ = xl(ids, None, targets)
    close(losses, wanted)
    mean, again, _ = xl.loss(ids, targets)
    close(again, wanted.detach())
    close(mean, wanted.sum() / 11)
    for one, other in zip(
        torch.autograd.grad(mean, list(xl.parameters()), retain_graph=True),
        torch.autograd.grad(wanted.sum() / 11, list(xl.parameters())),
        strict=True,
    ):
        close(one, other, 1e-5)
