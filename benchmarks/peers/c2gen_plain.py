"""Continual training of composed inference the plain way: `python c2gen_plain.py SPEC OUT`.

What an able researcher writes in a day along the authors' code, without its errors: three encoder
calls an item, every pair padded to 128 tokens and tokenized when its batch comes, torch's AdamW
with its loop over the parameters, fp32, and for every strategy a run of its own over both stages.
A replay batch joins the current one in a single step; MIR steps a copy of the model and scores in
eval mode; A-GEM flattens its gradients and projects; KD asks a frozen copy of the model in every
step. All memories are filled from the first stage when it is over.

Timed are both stages and the memory, not loading and not the test. SPEC and OUT are JSON files:
    SPEC  encoder, stages (two lists of items), test, strategies, and the numbers of `Spec`
    OUT   strategies: name -> seconds, s1_step_seconds, step_seconds (of the second stage), losses
          (of every step of both stages), accuracy (percent of the test, by V, N, V+N, CI);
          versions

Choice: a new optimizer in each stage. MIR's virtual step is plain gradient descent at the
learning rate of the moment, as in its paper. A memory batch is drawn without replacement.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer, get_linear_schedule_with_warmup

__all__ = [
    "PAIRS",
    "Head",
    "Run",
    "Spec",
    "accuracy",
    "item_losses",
    "main",
    "targets",
]

Item = Mapping[str, Any]

LABELS = ("entailment", "neutral", "contradiction")
# The texts and the label of V, N and CI, in the order of the heads.
PAIRS = (
    ("sent1", "mid_sent", "veridical_label"),
    ("mid_sent", "sent2", "sick_label"),
    ("sent1", "sent2", "label"),
)
LONGEST = 128  # tokens
TEST_BATCH = 32


@dataclass(frozen=True, slots=True)
class Spec:
    """What is asked for.

    Args:
        encoder: Directory of an encoder.
        stages: Items of the first and of the second stage.
        test: Items that are scored after the second stage.
        strategies: Names of strategies, each of which is run from the start.
        memory: Items that are kept of the first stage.
        replay_batch: Items of a memory batch.
        batch_size: Items of a batch.
        epochs: Of each stage.
        learning_rate: Falls linearly to 0 in each stage.
        weight_decay: Of all weights.
        warmup: Share of a stage's steps in which the rate rises.
        clip_norm: Longest gradient.
        seed: Of everything that is drawn.
        threads: Of torch.
        mir_pool: Items among which MIR looks.
        kd_weight: Of the distance from the teacher's logits.
    """

    encoder: str
    stages: Sequence[Sequence[Item]]
    test: Sequence[Item]
    strategies: Sequence[str]
    memory: int
    replay_batch: int
    batch_size: int
    epochs: int
    learning_rate: float
    weight_decay: float
    warmup: float
    clip_norm: float
    seed: int
    threads: int
    mir_pool: int
    kd_weight: float


@dataclass(frozen=True, slots=True)
class Run:
    """One strategy's run over both stages; times in seconds."""

    seconds: float
    s1_step_seconds: list[float]
    step_seconds: list[float]
    losses: list[float]
    accuracy: dict[str, float]


def main(run: Callable[[Spec, str], Run], known: Sequence[str], packages: Sequence[str]) -> None:
    """Read SPEC, run each strategy, write OUT.

    Args:
        run: From a strategy's name to its run.
        known: Names that `run` takes.
        packages: Distributions whose versions are named.
    """
    given = json.loads(Path(sys.argv[1]).read_text())
    spec = Spec(**{field.name: given[field.name] for field in fields(Spec)})
    for strategy in spec.strategies:
        if strategy not in known:
            sys.exit(f"strategy {strategy!r} is not one of {', '.join(known)}")
    if len(spec.stages) != 2:
        sys.exit(f"{len(spec.stages)} stages; give two")
    torch.set_num_threads(spec.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    done = {}
    for strategy in spec.strategies:
        result = run(spec, strategy)
        print(f"{strategy}: {result.seconds:.1f} s, {result.accuracy}", flush=True)
        done[strategy] = {field.name: getattr(result, field.name) for field in fields(Run)}
    versions = {name: metadata.version(name) for name in packages}
    Path(sys.argv[2]).write_text(json.dumps({"strategies": done, "versions": versions}))


class Head(nn.Module):
    """Three classes from a first token: dropout, dense, tanh, dropout, linear."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dropout = nn.Dropout(getattr(config, "hidden_dropout_prob", 0.1))
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.out = nn.Linear(config.hidden_size, len(LABELS))
        for layer in (self.dense, self.out):  # as the heads of transformers
            nn.init.normal_(layer.weight, std=getattr(config, "initializer_range", 0.02))
            nn.init.zeros_(layer.bias)

    def forward(self, first: Tensor) -> Tensor:
        """Logits, shape (B, 3)."""
        hidden = torch.tanh(self.dense(self.dropout(first)))
        return self.out(self.dropout(hidden))


class Composer(nn.Module):
    """An encoder and a head for each of V, N and CI."""

    def __init__(self, encoder: str) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(encoder, dtype=torch.float32)
        self.heads = nn.ModuleList(Head(self.encoder.config) for _ in PAIRS)

    def forward(self, encoded: Sequence[Mapping[str, Tensor]]) -> Tensor:
        """Logits of the three heads side by side, shape (B, 9), from one encoding a head."""
        logits = []
        for head, inputs in zip(self.heads, encoded, strict=True):
            logits.append(head(self.encoder(**inputs).last_hidden_state[:, 0]))
        return torch.cat(logits, dim=1)


def targets(items: Sequence[Item]) -> Tensor:
    """Indices of the labels of V, N and CI, shape (B, 3)."""
    return torch.tensor([[LABELS.index(item[label]) for *_, label in PAIRS] for item in items])


def item_losses(logits: Tensor, gold: Tensor) -> Tensor:
    """Cross entropies of the three heads, added; shape (B,) from (B, 9) and (B, 3)."""
    heads = logits.split(len(LABELS), dim=1)
    return torch.stack(
        [
            functional.cross_entropy(head, gold[:, n], reduction="none")
            for n, head in enumerate(heads)
        ]
    ).sum(dim=0)


def accuracy(logits: Tensor, gold: Tensor) -> dict[str, float]:
    """Percent of items that each head, and both primitive heads, label right."""
    right = logits.view(len(gold), len(PAIRS), len(LABELS)).argmax(dim=2) == gold
    v, n, ci = right.unbind(dim=1)
    shares = {"V": v, "N": n, "V+N": v & n, "CI": ci}
    return {name: 100 * share.double().mean().item() for name, share in shares.items()}


class Learner:
    """A model in training, and a step for each strategy.

    A step takes the current batch, leaves the gradients to be applied and returns the loss.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        torch.manual_seed(spec.seed)
        self.random = random.Random(spec.seed)
        self.tokenizer = AutoTokenizer.from_pretrained(spec.encoder)
        self.model = Composer(spec.encoder)
        self.teacher: Composer | None = None
        self.memory: list[int] = []  # rows of the first stage
        self.optimizer: torch.optim.Optimizer

    def train(self, items: Sequence[Item], step: str) -> tuple[list[float], list[float]]:
        """Train on one stage; returns seconds and losses of its steps."""
        spec = self.spec
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=spec.learning_rate,
            weight_decay=spec.weight_decay,
            foreach=False,
            fused=False,
        )
        total = spec.epochs * -(-len(items) // spec.batch_size)
        schedule = get_linear_schedule_with_warmup(
            self.optimizer, round(spec.warmup * total), total
        )
        take = STEPS[step]
        self.model.train()
        seconds, losses = [], []
        for batch in self._batches(items):
            start = time.perf_counter()
            self.optimizer.zero_grad()
            loss = take(self, batch)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), spec.clip_norm)
            self.optimizer.step()
            schedule.step()
            losses.append(loss.item())
            seconds.append(time.perf_counter() - start)
        return seconds, losses

    def fill_memory(self, items: int, strategy: str) -> None:
        """Choose the rows of a stage to be kept, and keep a teacher where it is needed."""
        size = self.spec.memory
        if strategy == "er-buff":  # a stage's share, which is all of it after one stage
            self.memory = self.random.sample(range(items), min(size, items))
        else:
            for row in range(items):
                if row < size:
                    self.memory.append(row)
                    continue
                place = self.random.randrange(row + 1)
                if place < size:
                    self.memory[place] = row
        if strategy == "kd":
            self.teacher = copy.deepcopy(self.model).eval().requires_grad_(False)

    def plain_step(self, batch: Sequence[Item]) -> Tensor:
        """The loss of the batch."""
        loss = self._losses(self.model, batch).mean()
        loss.backward()
        return loss

    def replay_step(self, batch: Sequence[Item]) -> Tensor:
        """The batch and a memory batch as one."""
        return self.plain_step([*batch, *self._draw(self.spec.replay_batch)])

    def mir_step(self, batch: Sequence[Item]) -> Tensor:
        """The batch and those of a pool whose loss it would raise most, as one."""
        pool = self._draw(self.spec.mir_pool)
        stepped = copy.deepcopy(self.model)
        self._losses(stepped, batch).mean().backward()
        rate = self.optimizer.param_groups[0]["lr"]
        with torch.no_grad():
            for weight in stepped.parameters():
                if weight.grad is not None:
                    weight -= rate * weight.grad
            self.model.eval()
            stepped.eval()
            rise = self._losses(stepped, pool) - self._losses(self.model, pool)
            self.model.train()
        chosen = rise.topk(min(self.spec.replay_batch, len(pool))).indices.tolist()
        return self.plain_step([*batch, *(pool[n] for n in chosen)])

    def agem_step(self, batch: Sequence[Item]) -> Tensor:
        """The gradient of the batch, without what goes against that of a memory batch."""
        self.plain_step(self._draw(self.spec.replay_batch))
        reference = self._gradient()
        self.optimizer.zero_grad()
        loss = self.plain_step(batch)
        current = self._gradient()
        along = torch.dot(current, reference)
        if along < 0:
            projected = current - along / (torch.dot(reference, reference) + 1e-12) * reference
            start = 0
            for weight in self.model.parameters():
                if weight.grad is not None:
                    end = start + weight.numel()
                    weight.grad.copy_(projected[start:end].view_as(weight))
                    start = end
        return loss

    def kd_step(self, batch: Sequence[Item]) -> Tensor:
        """The loss of the batch, and the distance from the teacher on a memory batch."""
        assert self.teacher is not None
        kept = self._encode(self._draw(self.spec.replay_batch))
        with torch.no_grad():
            wanted = self.teacher(kept)
        distance = functional.mse_loss(self.model(kept), wanted)
        loss = self._losses(self.model, batch).mean() + self.spec.kd_weight * distance
        loss.backward()
        return loss

    @torch.no_grad()
    def test(self) -> dict[str, float]:
        """Accuracy on the test items."""
        self.model.eval()
        items = self.spec.test
        logits = [
            self.model(self._encode(items[start : start + TEST_BATCH]))
            for start in range(0, len(items), TEST_BATCH)
        ]
        return accuracy(torch.cat(logits), targets(items))

    def _batches(self, items: Sequence[Item]) -> Iterator[list[Item]]:
        for _ in range(self.spec.epochs):
            order = list(range(len(items)))
            self.random.shuffle(order)
            for start in range(0, len(order), self.spec.batch_size):
                yield [items[row] for row in order[start : start + self.spec.batch_size]]

    def _draw(self, count: int) -> list[Item]:
        rows = self.random.sample(self.memory, min(count, len(self.memory)))
        return [self.spec.stages[0][row] for row in rows]

    def _encode(self, items: Sequence[Item]) -> list[Mapping[str, Tensor]]:
        return [
            self.tokenizer(
                [item[first] for item in items],
                [item[second] for item in items],
                padding="max_length",
                truncation=True,
                max_length=LONGEST,
                return_tensors="pt",
            )
            for first, second, _ in PAIRS
        ]

    def _losses(self, model: Composer, items: Sequence[Item]) -> Tensor:
        return item_losses(model(self._encode(items)), targets(items))

    def _gradient(self) -> Tensor:
        """All gradients as one vector; weights that no loss reaches have none."""
        return torch.cat(
            [weight.grad.flatten() for weight in self.model.parameters() if weight.grad is not None]
        )


STEPS: dict[str, Callable[[Learner, Sequence[Item]], Tensor]] = {
    "none": Learner.plain_step,
    "er-res": Learner.replay_step,
    "er-buff": Learner.replay_step,
    "er-mir": Learner.mir_step,
    "agem": Learner.agem_step,
    "kd": Learner.kd_step,
}


def run(spec: Spec, strategy: str) -> Run:
    """Train both stages with a strategy, and test."""
    learner = Learner(spec)
    first, second = spec.stages
    start = time.perf_counter()
    first_seconds, first_losses = learner.train(first, "none")
    if strategy != "none":
        learner.fill_memory(len(first), strategy)
    second_seconds, second_losses = learner.train(second, strategy)
    seconds = time.perf_counter() - start
    losses = first_losses + second_losses
    return Run(seconds, first_seconds, second_seconds, losses, learner.test())


if __name__ == "__main__":
    main(run, tuple(STEPS), ("torch", "transformers", "tokenizers"))
