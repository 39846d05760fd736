"""The rules by which dynamic evaluation moves weights, and the statistics that one of them needs.

With g the gradient of a segment's mean loss and w₀ the trained weights:

- `sgd`: w ← w - lr·g
- `rms`: w ← w - lr·g / (√ss + ε) + decay·√ss·(w₀ - w), ss the mean of g² over training segments.

Krause's code sums g² over N segments in place of the mean: with the mean, take his lr and ε times
1/√N and his decay times √N. His code of 2018 also divides √ss, in the decay alone, by its mean over
all weights.

Source: Krause et al. 2018, "Dynamic Evaluation of Neural Sequence Models"; Krause et al. 2019,
"Dynamic Evaluation of Transformer Language Models".
Choice: decay·√ss is clipped at 1, all the way back, and the weights where that happens are counted;
a decay that does it to more than 1 % of them is refused.
Choice: ε is a tenth of the mean √ss over the set, so that pieces without training segments, whose
ss is 0, take no wild steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from triaxial.errors import InputError
from triaxial.models.causal import CausalLM
from triaxial.models.tensors import write_tensors
from triaxial.temporal.corpus import Document
from triaxial.temporal.parameters import Weights, check_parameters, chosen_weights
from triaxial.temporal.steps import gradients_of, rounds_of, rows_of, steps_of

__all__ = [
    "RULES",
    "Rule",
    "Statistics",
    "Updater",
    "gradient_statistics",
    "header_of",
    "read_statistics",
    "read_tensors",
    "write_statistics",
]

Rule = Literal["sgd", "rms"]
RULES = ("sgd", "rms")
_SHARD = 512  # documents at a time
_MOST_CLIPPED = 0.01  # share of the weights
_SMALL = 0.1  # of the mean root: the default epsilon
_FACTS = "triaxial"


@dataclass(frozen=True, slots=True)
class Statistics:
    """Squared gradients of training segments; see `dynamic.gradient_statistics`.

    Args:
        squares: By parameter the mean of g² over segments, on the host.
        segments: How many.
        documents: From how many.
        latest: Date of the latest of them.
        model: Digest of the weights that they are of.
        parameters: The set.
    """

    squares: dict[str, torch.Tensor]
    segments: int
    documents: int
    latest: str
    model: str
    parameters: str


class Updater:
    """A rule, ready for some weights.

    Args:
        weights: They move.
        rule: `sgd` or `rms`.
        learning_rate: 0 or more.
        decay: Of the rms rule.
        epsilon: Of the rms rule; None for a tenth of the mean √ss.
        statistics: Of the rms rule.

    Raises:
        InputError: The statistics are missing or of other weights, or the decay is too large.
    """

    def __init__(
        self,
        weights: Weights,
        rule: Rule,
        learning_rate: float,
        decay: float = 0.0,
        epsilon: float | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        self._values = weights.values
        self._trained = list(weights.trained.values())
        self._rate = learning_rate
        self._scales: list[torch.Tensor] | None = None
        self._pulls: list[torch.Tensor] | None = None
        self.clipped = 0
        """Weights that go all the way back at every update."""
        if rule == "sgd":
            return
        roots = [square.sqrt() for square in _squares_of(weights, statistics)]
        if epsilon is None:
            epsilon = _SMALL * float(sum(root.sum(dtype=torch.float64) for root in roots))
            epsilon = max(epsilon / weights.size, 1e-30)
        self._scales = [learning_rate / (root + epsilon) for root in roots]
        if decay:
            self.clipped = sum(int((root * decay > 1).sum()) for root in roots)
            if self.clipped > _MOST_CLIPPED * weights.size:
                self._refuse(roots, decay, weights.size)
            self._pulls = [(root * decay).clamp_(max=1) for root in roots]

    @torch.no_grad()
    def step(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Move the weights; None is a gradient of 0."""
        if self._pulls is not None:
            torch._foreach_lerp_(self._values, self._trained, self._pulls)
        there = [n for n, gradient in enumerate(gradients) if gradient is not None]
        if not there:
            return
        values = [self._values[n] for n in there]
        found = [gradient for gradient in gradients if gradient is not None]
        if self._scales is None:
            torch._foreach_add_(values, found, alpha=-self._rate)
        else:
            scales = [self._scales[n] for n in there]
            torch._foreach_addcmul_(values, found, scales, value=-1)

    def _refuse(self, roots: Sequence[torch.Tensor], decay: float, size: int) -> None:
        joined = torch.cat([root.flatten() for root in roots])
        allowed = joined.kthvalue(size - int(_MOST_CLIPPED * size)).values
        raise InputError(
            f"is {decay:g}, which puts {self.clipped:,} of {size:,} weights back to the trained "
            f"ones at every update; choose at most {1 / float(allowed):.2g}",
            where="decay",
        )


def gradient_statistics(
    model: CausalLM,
    documents: Iterable[Document],
    parameters: str = "all",
    *,
    progress: Callable[[int], None] | None = None,
) -> Statistics:
    """Mean squared gradients over the steps of training documents, for the rms rule.

    Those of `all` serve every other set but `output`, as a tied embedding has another gradient
    there.

    Args:
        model: With its trained weights.
        documents: Training documents in any order, each read by itself.
        parameters: The set.
        progress: Told the number of documents done since it was last called.

    Raises:
        InputError: There is nothing to read.
    """
    check_parameters(parameters)
    if parameters.startswith("lora"):
        raise InputError(
            "adapters have no statistics before their first update; choose another set",
            where="parameters",
        )
    steps, stream, latest, count, segments = steps_of(model), iter(documents), "", 0, 0
    with chosen_weights(model.network, parameters) as weights:
        sums = [torch.zeros_like(weight) for weight in weights.values]
        while some := list(islice(stream, _SHARD)):
            rows = [[row.ids] for row in rows_of(model, [document.text for document in some])]
            with torch.enable_grad():
                for found in rounds_of(rows, model.where.device):
                    for step in steps.of(found):
                        _add_squares(sums, gradients_of(step.mean, weights))
                        segments += 1
            count += len(some)
            latest = max(latest, *(document.date for document in some))
            if progress is not None:
                progress(len(some))
    if not segments:
        raise InputError("no document to read; give training documents", where="statistics")
    squares = {n: (s / segments).cpu() for n, s in zip(weights.named, sums, strict=True)}
    for name, square in squares.items():
        if not bool(square.isfinite().all()):
            raise InputError(
                f"the gradients of {name} are not finite; compute in fp32", where="statistics"
            )
    return Statistics(squares, segments, count, latest, model.checkpoint.digest, parameters)


def write_statistics(path: Path, statistics: Statistics) -> None:
    """Save statistics as safetensors.

    Raises:
        StoreError: They cannot be written.
    """
    names = ("segments", "documents", "latest", "model", "parameters")
    facts = {name: getattr(statistics, name) for name in names}
    write_tensors(path, statistics.squares, header_of("statistics", facts))


def read_statistics(path: Path) -> Statistics:
    """Statistics that `write_statistics` saved.

    Raises:
        InputError: There is no such file, or it holds something else.
    """
    squares, facts = read_tensors(path, "statistics")
    return Statistics(squares, **facts)


def header_of(kind: str, facts: Mapping[str, Any]) -> dict[str, str]:
    """Plain facts as the header of a file of tensors, for `read_tensors`."""
    return {_FACTS: json.dumps({"kind": kind, **facts})}


def read_tensors(path: Path, kind: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors and facts of a file with a header of `header_of`.

    Raises:
        InputError: There is no such file, or it holds something else.
    """
    from safetensors import safe_open

    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})[_FACTS])
            if facts.pop("kind") != kind:
                raise KeyError("kind")
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except Exception as error:  # safetensors raises a bare exception type of its own
        known = isinstance(error, OSError | KeyError | ValueError)
        if not known and type(error).__name__ != "SafetensorError":
            raise
        reason = "no such file" if isinstance(error, FileNotFoundError) else "another or damaged"
        raise InputError(f"holds no {kind} ({reason}); make it again", where=path) from None


def _squares_of(weights: Weights, statistics: Statistics | None) -> list[torch.Tensor]:
    """The statistics of the weights, on their device."""
    if statistics is None:
        raise InputError(
            "the rms rule needs the squared gradients of training documents; make them with "
            "gradient_statistics, or choose the rule sgd",
            where="statistics",
        )
    found = []
    for name, weight in weights.named.items():
        square = statistics.squares.get(name)
        if square is None or square.shape != weight.shape:
            seen = "missing" if square is None else f"of shape {tuple(square.shape)}"
            raise InputError(
                f"{name} is {seen}, wanted {tuple(weight.shape)}; make them with this model and "
                "these parameters",
                where="statistics",
            )
        found.append(square.to(weight.device, torch.float32))
    return found


def _add_squares(sums: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
    there = [n for n, gradient in enumerate(gradients) if gradient is not None]
    found = [gradient for gradient in gradients if gradient is not None]
    torch._foreach_addcmul_([sums[n] for n in there], found, found)
