"""Strategies beyond the paper: DER++, elastic weight consolidation, weight averaging.

Source: Buzzega et al. 2020 (DER++); Kirkpatrick et al. 2017 (EWC); Wortsman et al. 2022 (weight
averaging).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from triaxial.c2gen.hooks import At, Finetuning, Rehearsal, check_setting, kept, matched, merged
from triaxial.c2gen.memory import Memory, drawn
from triaxial.models.heads import Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Der", "Ewc", "WeightAverage"]


@dataclass(frozen=True, slots=True)
class Der(Rehearsal):
    """Dark experience replay (DER++): memory rows keep the logits that they entered with.

    Args:
        memory: Rows kept, in a reservoir.
        replay_batch: Rows replayed in a step; 0 for as many as the batch has.
        der_alpha: Weight of the mean squared distance to those logits.
        der_beta: Weight of the cross-entropy on the same rows.
    """

    name: ClassVar[str] = "der"
    der_alpha: float = 0.5
    der_beta: float = 0.5

    def __post_init__(self) -> None:
        Rehearsal.__post_init__(self)
        check_setting(self, "der_alpha", self.der_alpha > 0, "above 0")
        check_setting(self, "der_beta", self.der_beta >= 0, "0 or more")

    def start(self, at: At) -> dict[str, torch.Tensor]:
        """Logits of what entered in the last stage; of older rows those that they came with."""
        held = self.held(at, 0)
        if not len(held):
            return {}
        logits = at.logits(held.rows)
        if at.carried:
            old = {int(row): n for n, row in enumerate(at.carried["items"])}
            for n, row in enumerate(held.rows):
                if int(row) in old:
                    logits[n] = at.carried["logits"][old[int(row)]].numpy()
        return kept(held.rows, logits)

    def terms(self, at: At, step: int, items: NDArray[np.intp]) -> Terms:
        """The batch's loss, the distance to the old logits, and the memory's own loss."""
        terms = at.learn(items, 1 / len(items))
        if not at.state:
            return terms
        rows, logits = matched(at, self.replay_batch, step)
        parts = [terms, at.match(rows, logits, self.der_alpha)]
        if self.der_beta:
            parts.append(at.learn(rows, self.der_beta / len(rows)))
        return merged(Terms.join(parts))


@dataclass(frozen=True, slots=True)
class Ewc(Finetuning):
    """Elastic weight consolidation: weights that mattered before are held where they were.

    Args:
        ewc_weight: Of the penalty, half the Fisher-weighted squared distance.
        fisher_items: Items of a stage from which the Fisher information is estimated.
    """

    name: ClassVar[str] = "ewc"
    ewc_weight: float = 100.0
    fisher_items: int = 100

    def __post_init__(self) -> None:
        check_setting(self, "ewc_weight", self.ewc_weight > 0, "above 0")
        check_setting(self, "fisher_items", self.fisher_items >= 1, "at least 1")

    def start(self, at: At) -> dict[str, torch.Tensor]:
        """The diagonal of the empirical Fisher information, summed over the stages so far.

        Choice: gold labels, item by item, in evaluation mode; one sum and the last weights stand
        for all stages (online EWC without decay).
        """
        if not at.earlier:
            return {}
        trained = [(n, w) for n, w in at.learner.model.named_parameters() if w.requires_grad]
        sums = [torch.zeros_like(weight) for _, weight in trained]
        items = drawn(Memory(at.earlier[-1], at.earlier[-1]), self.fisher_items, at.seed, "fisher")
        at.learner.model.eval()
        for item in items:
            at.learner.backward(at.learn(np.asarray([item]), 1.0))
            for total, (_, weight) in zip(sums, trained, strict=True):
                if weight.grad is not None:
                    total.addcmul_(weight.grad, weight.grad, value=1 / len(items))
                weight.grad = None
        state = {}
        for total, (name, weight) in zip(sums, trained, strict=True):
            if at.carried:
                total += at.carried[f"fisher.{name}"].to(total.device)
            state[f"fisher.{name}"] = total
            state[f"weight.{name}"] = weight.detach().clone()
        return state

    def adjust(
        self,
        at: At,
        step: int,
        items: NDArray[np.intp],
        weights: Sequence[torch.nn.Parameter],
    ) -> None:
        """Add the penalty's gradient."""
        if not at.state:
            return
        with torch.no_grad():
            for name, weight in at.learner.model.named_parameters():
                if weight.grad is None:
                    continue
                moved = weight - at.state[f"weight.{name}"]
                weight.grad.addcmul_(at.state[f"fisher.{name}"], moved, value=self.ewc_weight)


@dataclass(frozen=True, slots=True)
class WeightAverage(Finetuning):
    """After a stage the weights are a mean of those before and after it.

    Args:
        average_weight: Of the weights after the stage, above 0, at most 1.
    """

    name: ClassVar[str] = "average"
    average_weight: float = 0.5

    def __post_init__(self) -> None:
        rule = "above 0 and at most 1"
        check_setting(self, "average_weight", 0 < self.average_weight <= 1, rule)

    def start(self, at: At) -> dict[str, torch.Tensor]:
        """The weights before a stage, but for the first."""
        return at.learner.weights() if at.earlier else {}

    def finish(self, at: At) -> None:
        """Average, after every stage but the first."""
        with torch.no_grad():
            for name, weight in at.learner.model.named_parameters():
                if name in at.state:
                    weight.lerp_(at.state[name].to(weight.device), 1 - self.average_weight)
