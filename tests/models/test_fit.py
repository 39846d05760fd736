"""The training loop: exact resumption, the same gradient in parts, rates, dropout, errors."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from triaxial.errors import InputError, StoreError
from triaxial.models import fit as module
from triaxial.models import resume
from triaxial.models.base import Hardware
from triaxial.models.dropout import quick_dropout
from triaxial.models.fit import FitOptions, fit, learning_rate, shuffled, split

CPU = Hardware("cpu", "fp32")
ROWS = 22
OPTIONS = FitOptions(epochs=3, learning_rate=1e-2, seed=5, checkpoint_every=2)


class Kill(Exception):
    """Stands for whatever ends a process."""


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for the disk: only a power cut would tell."""
    monkeypatch.setattr(resume, "_sync", lambda path: None)


def network(dropout: float = 0.3) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Embedding(11, 6), nn.Dropout(dropout), nn.Flatten(), nn.Linear(24, 3)
        )


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 11, (ROWS, 4), generator=generator)
    return ids, torch.randint(0, 3, (ROWS,), generator=generator)


def batches(epoch: int, rows: int = 4, parts: int = 2) -> list[list[tuple[float, np.ndarray]]]:
    return [
        [(len(part) / len(batch), part) for part in np.array_split(batch, parts) if len(part)]
        for batch in shuffled([4] * ROWS, rows, seed=5, epoch=epoch)
    ]


def loss(model: nn.Module, part: np.ndarray) -> torch.Tensor:
    ids, gold = data()
    return F.cross_entropy(model(ids[part]), gold[part])


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in model.state_dict().values()]


def equal(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def stop_at(step: int) -> Callable[[int], None]:
    def stop(done: int) -> None:
        if done == step:
            raise Kill

    return stop


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("killed", [1, 3, 6, 17])
def test_a_killed_run_ends_bit_for_bit_like_an_undisturbed_one(killed: int, tmp_path: Path) -> None:
    # 22 rows in batches of 4: 6 steps an epoch, 18 in all; kills within, at and across epochs.
    whole = network()
    undisturbed = fit(whole, batches, loss, OPTIONS, CPU)
    with pytest.raises(Kill):
        fit(network(), batches, loss, OPTIONS, CPU, checkpoint=tmp_path, after_step=stop_at(killed))
    torch.manual_seed(99)  # what the caller does in between is of no account
    resumed = network(dropout=0.3)
    history = fit(resumed, batches, loss, OPTIONS, CPU, checkpoint=tmp_path)
    assert history.losses == undisturbed.losses
    assert history.resumed_at == (killed - 1) // 2 * 2  # every second step; the last was not kept
    assert equal(weights(resumed), weights(whole))
    # And once more: a finished run is not run again.
    again = network()
    assert fit(again, batches, loss, OPTIONS, CPU, checkpoint=tmp_path).resumed_at == 18
    assert equal(weights(again), weights(whole))


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import time
from pathlib import Path
from test_fit import OPTIONS, CPU, batches, fit, loss, network
fit(network(), batches, loss, OPTIONS, CPU, checkpoint=Path(sys.argv[1]),
    after_step=lambda done: (print(done, flush=True), time.sleep(0.005)))
"""


def test_kill_9_at_a_random_moment(tmp_path: Path) -> None:
    whole = network()
    fit(whole, batches, loss, OPTIONS, CPU)
    code = SCRIPT.format(tests=str(Path(__file__).parent))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()  # the first step is done
        time.sleep(random.uniform(0, 0.3))  # anywhere, within the writing of a checkpoint too
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    resumed = network()
    fit(resumed, batches, loss, OPTIONS, CPU, checkpoint=tmp_path)
    assert equal(weights(resumed), weights(whole))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000018"]


def test_checkpoints_are_safetensors_and_json_alone(tmp_path: Path) -> None:
    fit(network(), batches, loss, OPTIONS, CPU, checkpoint=tmp_path)
    names = {path.name for path in (tmp_path / "step-00000018").iterdir()}
    assert names == {
        "model.safetensors",
        "optimizer.safetensors",
        "state.safetensors",
        "state.json",
    }
    assert json.loads((tmp_path / "step-00000018/state.json").read_text())["step"] == 18


def test_a_checkpoint_cut_short_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = resume.save_file

    def full(tensors: dict[str, torch.Tensor], path: Path) -> None:
        if (tmp_path / "step-00000002").exists():
            raise OSError(28, "No space left on device")
        real(tensors, path)

    monkeypatch.setattr(resume, "save_file", full)
    with pytest.raises(StoreError, match=r"of step 4 cannot be written .*No space.*call again"):
        fit(network(), batches, loss, OPTIONS, CPU, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]
    monkeypatch.undo()
    assert fit(network(), batches, loss, OPTIONS, CPU, checkpoint=tmp_path).resumed_at == 2


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    fit(network(), batches, loss, OPTIONS, CPU, checkpoint=tmp_path, run="a")
    other = FitOptions(epochs=3, learning_rate=2e-2, seed=5, checkpoint_every=2)
    with pytest.raises(InputError, match=r"another run \(learning_rate 0.01, now 0.02\)"):
        fit(network(), batches, loss, other, CPU, checkpoint=tmp_path, run="a")
    with pytest.raises(InputError, match="another run with other data or another model"):
        fit(network(), batches, loss, OPTIONS, CPU, checkpoint=tmp_path, run="b")
    (tmp_path / "step-00000018/model.safetensors").write_bytes(b"rubbish")
    with pytest.raises(StoreError, match=r"cannot be read .*delete it to train from the start"):
        fit(network(), batches, loss, OPTIONS, CPU, checkpoint=tmp_path, run="a")


def test_parts_give_the_gradient_of_the_whole_batch() -> None:
    found = []
    for parts in (1, 3):
        model = network(dropout=0.0)
        fit(model, lambda epoch, n=parts: batches(epoch, 5, n), loss, OPTIONS, CPU)
        found.append(weights(model))
    for one, three in zip(*found, strict=True):
        torch.testing.assert_close(one, three, rtol=1e-4, atol=1e-6)


def test_parity_with_a_plain_loop() -> None:
    options = FitOptions(max_steps=8, learning_rate=1e-2, warmup=0.25, clip_norm=0.5)
    ours, plain = network(0.0), network(0.0)
    history = fit(ours, lambda e: batches(e, parts=1), loss, options, CPU)
    decays = [plain[0].weight, plain[3].weight]  # type: ignore[index]
    optimizer = torch.optim.AdamW(
        [{"params": decays}, {"params": [plain[3].bias], "weight_decay": 0.0}]  # type: ignore[index]
    )
    seen = []
    for step in range(8):
        [(_, part)] = batches(step // 6, parts=1)[step % 6]
        value = loss(plain, part)
        value.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options, step, 8)
        optimizer.step()
        optimizer.zero_grad()
        seen.append(value.item())
    assert history.losses == pytest.approx(seen, abs=1e-5)
    for one, other in zip(weights(ours), weights(plain), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_caller_finds_everything_as_it_was() -> None:
    model = network()
    model.eval()
    model[1].train()  # type: ignore[index, operator]
    before = torch.get_rng_state()
    seen: list[tuple[int, int]] = []
    steps: list[int] = []
    fit(
        model,
        batches,
        lambda m, part: loss(m, part) if m.training else pytest.fail("not in training mode"),
        OPTIONS,
        CPU,
        adjust=lambda step, weights: steps.append(step * len(weights)),
        progress=lambda done, total, value: seen.append((done, total)),
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert (model.training, model[1].training, model[3].training) == (False, True, False)  # type: ignore[index]
    assert seen == [(step, 18) for step in range(1, 19)]
    assert steps == [3 * step for step in range(18)]


def test_adjust_changes_the_gradients() -> None:
    model = network()
    before = weights(model)

    def nothing(_: int, parameters: Sequence[nn.Parameter]) -> None:
        for weight in parameters:
            assert weight.grad is not None
            weight.grad.zero_()

    fit(model, batches, loss, FitOptions(max_steps=3, weight_decay=0.0), CPU, adjust=nothing)
    assert equal(weights(model), before)


@pytest.mark.parametrize("cadence", [1, 16])
def test_a_loss_that_is_no_number_ends_the_run(
    cadence: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module._CADENCE, "cpu", cadence)
    calls = iter(range(100))

    def bad(model: nn.Module, part: np.ndarray) -> torch.Tensor:
        return loss(model, part) * (float("nan") if next(calls) == 6 else 1.0)

    message = r"training: the loss is not finite \(nan\) at step 4; lower the learning rate"
    with pytest.raises(InputError, match=message):
        fit(network(), batches, bad, OPTIONS, CPU, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_a_gradient_that_is_no_number_ends_the_run() -> None:
    def steep(model: nn.Module, part: np.ndarray) -> torch.Tensor:
        return model[3].bias.sum().sub(model[3].bias.sum().detach()).sqrt()  # type: ignore[index, union-attr, operator]

    with pytest.raises(InputError, match=r"the gradient is not finite .* at step 1;"):
        fit(network(), batches, steep, OPTIONS, CPU)


def test_nothing_to_train_on() -> None:
    with pytest.raises(InputError, match="nothing to train on; give at least one batch"):
        fit(network(), lambda _: [], loss, OPTIONS, CPU)


def test_rates_by_hand() -> None:
    options = FitOptions(learning_rate=1.0, warmup=0.2)
    # 10 steps, 2 rising: 1/2, 2/2; then 1 - s/8 for s = 0..7.
    rates = [learning_rate(options, step, 10) for step in range(10)]
    assert rates == [0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    cosine = FitOptions(learning_rate=1.0, warmup=0.0, schedule="cosine")
    assert learning_rate(cosine, 5, 10) == pytest.approx(0.5)
    constant = FitOptions(learning_rate=1.0, warmup=0.0, schedule="constant")
    assert [learning_rate(constant, step, 4) for step in range(4)] == [1.0] * 4


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("epochs", 0, "at least 1"),
        ("max_steps", 0, "at least 1"),
        ("learning_rate", 0.0, "above 0"),
        ("weight_decay", -1.0, "0 or more"),
        ("warmup", 2.0, "a share"),
        ("schedule", "step", "one of linear, cosine, constant"),
        ("clip_norm", 0.0, "above 0"),
        ("checkpoint_every", 0, "at least 1"),
    ],
)
def test_options_out_of_range(name: str, value: object, rule: str) -> None:
    with pytest.raises(InputError, match=f"{name}: is .*; it must be {rule}"):
        FitOptions(**{name: value})  # type: ignore[arg-type]


lengths_of = st.lists(st.integers(1, 60), min_size=1, max_size=70)


@given(lengths=lengths_of, rows=st.integers(1, 9), epoch=st.integers(0, 3), mega=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_an_epoch_holds_every_row_once(
    lengths: list[int], rows: int, epoch: int, mega: int
) -> None:
    found = shuffled(lengths, rows, seed=1, epoch=epoch, megabatch=mega)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    assert len(found) == -(-len(lengths) // rows)
    assert max(map(len, found)) <= rows
    again = shuffled(lengths, rows, seed=1, epoch=epoch, megabatch=mega)
    assert all((a == b).all() for a, b in zip(found, again, strict=True))


def test_megabatches_hold_rows_of_one_length() -> None:
    lengths = np.random.default_rng(0).permutation(np.arange(1, 101))
    for batch in shuffled(lengths, 10, seed=1, epoch=0, megabatch=10):
        assert np.ptp(lengths[batch]) == 9  # sorted all together: 10 neighbouring lengths
    orders = [np.concatenate(shuffled(lengths, 10, seed=1, epoch=epoch)) for epoch in range(2)]
    assert (orders[0] != orders[1]).any()


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=7), cost=st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_parts_are_the_cheapest(lengths: list[int], cost: int) -> None:
    def work(parts: Sequence[Sequence[int]]) -> int:
        return sum(len(part) * max(part) + cost for part in parts)

    parts = split(lengths, np.arange(len(lengths)), cost)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(lengths)))
    # All cuts of the sorted lengths, one bit a gap.
    order = sorted(lengths)
    best = work([order])
    for cuts in range(1 << (len(order) - 1)):
        ends = [n + 1 for n in range(len(order) - 1) if cuts >> n & 1]
        edges = [0, *ends, len(order)]
        best = min(best, work([order[a:b] for a, b in itertools.pairwise(edges)]))
    assert work([[lengths[row] for row in part] for part in parts]) == best


def test_quick_dropout_is_dropout() -> None:
    values = torch.ones(400, 501, requires_grad=True)  # odd: the last draw is cut
    torch.manual_seed(0)
    with quick_dropout(torch.device("cpu")):
        out = F.dropout(values, 0.1)
    kept = out.detach() != 0
    # Share kept .9 with a standard error of sqrt(.9 * .1 / 200400) = .0007: five of them.
    assert kept.float().mean().item() == pytest.approx(0.9, abs=0.0034)
    assert out[kept].unique().tolist() == pytest.approx([1 / 0.9])
    out.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(values.grad, out.detach())  # type: ignore[arg-type]
    # Neighbours are independent: the share of kept pairs is .81 (standard error .0009).
    both = (kept[:, 1:] & kept[:, :-1]).float().mean().item()
    assert both == pytest.approx(0.81, abs=0.0045)
    for share, training, wanted in ((0.1, False, 1.0), (0.0, True, 1.0), (1.0, True, 0.0)):
        with quick_dropout(torch.device("cpu")):
            assert (F.dropout(values, share, training) == wanted).all()


@pytest.mark.parametrize("mask", ["none", "bool", "float"])
def test_quick_attention_is_attention(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from triaxial.models import dropout

    query, key, value = torch.randn(3, 2, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    allowed = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    given_mask = {
        "none": None,
        "bool": allowed,
        "float": torch.zeros(2, 1, 5, 5).masked_fill(~allowed, -1e9),
    }[mask]
    plain = F.scaled_dot_product_attention(query, key, value, given_mask)
    monkeypatch.setattr(dropout, "_dropout", lambda input, p, own: input)
    with quick_dropout(torch.device("cpu")):
        quick = F.scaled_dot_product_attention(query, key, value, given_mask, dropout_p=0.5)
    torch.testing.assert_close(quick, plain)
