"""Chunked cross-entropy: the plain loss and its gradients, without the logits of all tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from triaxial.models.cross_entropy import IGNORED, mean_loss, token_losses

Problem = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]


def problem(tokens: int, entries: int = 9, *, bias: bool = True, spread: float = 1.0) -> Problem:
    generator = torch.Generator().manual_seed(tokens)
    hidden = torch.randn(tokens, 4, generator=generator).mul_(spread).requires_grad_()
    weight = torch.randn(entries, 4, generator=generator).requires_grad_()
    added = torch.randn(entries, generator=generator).requires_grad_() if bias else None
    targets = torch.randint(0, entries, (tokens,), generator=generator)
    targets[1::4] = IGNORED
    return hidden, weight, added, targets


def gradients(problem: Problem, loss: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    inputs = [part for part in problem[:3] if part is not None]
    return list(torch.autograd.grad(loss(*problem), inputs))


def close(one: torch.Tensor, other: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    assert one.dtype == other.dtype
    assert torch.allclose(one, other, rtol, atol)  # torch.testing would load for seconds


def plain(hidden: torch.Tensor, weight: torch.Tensor, bias: Any, targets: Any) -> torch.Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias), targets, reduction="none")


@given(
    tokens=st.integers(2, 12),
    chunk=st.integers(1, 14),
    bias=st.booleans(),
    spread=st.sampled_from([1.0, 300.0]),
)
@settings(max_examples=10, deadline=None)
def test_losses_and_gradients_are_the_plain_ones(
    tokens: int, chunk: int, bias: bool, spread: float
) -> None:
    given_ = problem(tokens, bias=bias, spread=spread)
    wanted = plain(*given_)
    close(token_losses(*given_, chunk=chunk), wanted)
    mean, losses = mean_loss(*given_, chunk=chunk)
    close(losses, wanted)
    close(mean, F.cross_entropy(F.linear(*given_[:3]), given_[3]))
    weights = torch.linspace(-1, 2, tokens)  # an own weight for every token
    pairs = [
        (
            gradients(given_, lambda *a: (token_losses(*a, chunk=chunk) * weights).sum()),
            gradients(given_, lambda *a: (plain(*a) * weights).sum()),
        ),
        (
            gradients(given_, lambda *a: 3 * mean_loss(*a, chunk=chunk)[0]),
            gradients(given_, lambda *a: 3 * plain(*a).sum() / (a[3] != IGNORED).sum()),
        ),
    ]
    for ours, theirs in pairs:
        for one, other in zip(ours, theirs, strict=True):
            close(one, other, rtol=1e-4, atol=1e-4)


def test_by_hand() -> None:
    # Logits (1, 0) and (0, 1), targets 0 and 0: log(1 + 1/e) = .313262 and log(1 + e) = 1.313262.
    hidden, weight = torch.eye(2, requires_grad=True), torch.eye(2)
    mean, losses = mean_loss(hidden, weight, None, torch.tensor([0, 0]), chunk=1)
    assert losses.tolist() == pytest.approx([0.313262, 1.313262], abs=1e-6)
    assert mean.item() == pytest.approx(0.813262, abs=1e-6)
    mean.backward()  # type: ignore[no-untyped-call]
    # p = (.731059, .268941), less the target, over two tokens.
    assert hidden.grad is not None
    assert hidden.grad[0].tolist() == pytest.approx([-0.134471, 0.134471], abs=1e-6)


class Largest(TorchDispatchMode):
    """The most numbers in any tensor that any operation made, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        made = out if isinstance(out, tuple | list) else [out]
        sizes = [tensor.numel() for tensor in made if isinstance(tensor, torch.Tensor)]
        self.numbers = max(self.numbers, *sizes, 0)
        return out


def test_the_logits_of_all_tokens_never_exist() -> None:
    given_ = problem(40, entries=50)
    found = {}
    with torch.autograd.set_multithreading_enabled(False):  # so that backward is watched, too
        for name, loss in {
            "plain": lambda *a: plain(*a).sum(),
            "tokens": lambda *a: token_losses(*a, chunk=8).sum(),
            "mean": lambda *a: mean_loss(*a, chunk=8)[0],
        }.items():
            with Largest() as largest:
                gradients(given_, loss)
            found[name] = largest.numbers
    # 40 x 50 logits, against chunks of 8 x 50; the weight's gradient has 50 x 4.
    assert found == {"plain": 2000, "tokens": 400, "mean": 400}


def test_gradients_that_nobody_asks_for_are_not_made() -> None:
    hidden, weight, bias, targets = problem(6)
    assert bias is not None
    for loss in (lambda *a: token_losses(*a).sum(), lambda *a: mean_loss(*a)[0]):
        whole = gradients((hidden, weight, bias, targets), loss)
        with Largest() as largest:
            value = loss(hidden.detach(), weight.detach(), bias, targets)
            [alone] = torch.autograd.grad(value, [bias])
        close(alone, whole[2])
        assert largest.numbers == 6 * 9  # the logits; no (9, 4) of the weight is summed
        assert value.grad_fn is not None


def test_without_a_target_that_counts() -> None:
    hidden, weight, bias, _ = problem(5)
    targets = torch.full((5,), IGNORED)
    mean, losses = mean_loss(hidden, weight, bias, targets)
    assert (mean.item(), losses.tolist()) == (0, [0] * 5)
    zero = gradients((hidden, weight, bias, targets), lambda *a: mean_loss(*a)[0])
    assert not any(part.any() for part in zero)
    mean, losses = mean_loss(hidden[:0], weight, bias, targets[:0])
    assert (mean.item(), len(losses)) == (0, 0)


def test_without_gradients_the_mean_is_the_same() -> None:
    given_ = problem(7)
    with torch.no_grad():
        mean, losses = mean_loss(*given_, chunk=3)
    again, once_more = mean_loss(*given_, chunk=3)
    assert torch.equal(losses, once_more)
    close(mean, again.detach())


def test_precision_is_what_was_asked_for() -> None:
    given_ = problem(9, entries=300)
    exact = token_losses(*given_)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(token_losses(*given_), exact)  # autocast has no say
    for loss in (
        lambda: token_losses(*given_, dtype=torch.bfloat16),
        lambda: mean_loss(*given_, dtype=torch.bfloat16)[1],
    ):
        rounded = loss()
        assert rounded.dtype == torch.float32
        assert not torch.equal(rounded, exact)
        close(rounded, exact, rtol=0, atol=0.05)
    for one, other in zip(
        gradients(given_, lambda *a: mean_loss(*a, dtype=torch.bfloat16)[0]),
        gradients(given_, lambda *a: mean_loss(*a)[0]),
        strict=True,
    ):
        assert one.dtype == torch.float32
        close(one, other, rtol=0.1, atol=0.01)


def test_in_fp64_gradients_are_those_of_finite_differences() -> None:
    hidden, weight, bias, targets = problem(5, entries=4)
    assert bias is not None
    inputs = [part.detach().double().requires_grad_() for part in (hidden, weight, bias)]
    for loss in (token_losses, lambda *a, chunk: mean_loss(*a, chunk=chunk)[0]):
        assert torch.autograd.gradcheck(lambda *a, f=loss: f(*a, targets, chunk=2), inputs)
