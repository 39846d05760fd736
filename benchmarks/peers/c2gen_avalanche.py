"""Continual training of composed inference with Avalanche: `python c2gen_avalanche.py SPEC OUT`.

Its own strategy, `Naive`, with its own plugins: `ReplayPlugin` over `ReservoirSamplingBuffer`, and
`AGEMPlugin`. Around them as good a model as its loaders allow: all pairs tokenized once into
tensors, a batch cut to its longest pair, and one encoder call for the three pairs of an item.
SPEC and OUT are those of `c2gen_plain.py`; the strategies here are none, er-res and agem.

A step is timed from `before_training_iteration` to `after_training_iteration`: what its data
loaders do lies outside, and is in the seconds of the whole. So is tokenizing.

Choice: its own defaults where the plain way has no say; the optimizer's state is reset in each
stage, as there. MIR is left out: `MIRPlugin` wants one label an item and drops from its memory the
labels of the last batch, which with three labels leaves little or nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import torch

# The registry's torchvision is built for CUDA. Beside torch for the CPU its operators do not load,
# and its import fails for want of the names of two, which nothing here calls.
for _name in ("nms", "qnms"):
    torch.library.define(
        f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    )

from avalanche.benchmarks import benchmark_from_datasets  # noqa: E402
from avalanche.benchmarks.utils import AvalancheDataset  # noqa: E402
from avalanche.training.plugins import (  # noqa: E402
    AGEMPlugin,
    ReplayPlugin,
    SupervisedPlugin,
)
from avalanche.training.storage_policy import ReservoirSamplingBuffer  # noqa: E402
from avalanche.training.supervised import Naive  # noqa: E402
from c2gen_plain import (  # noqa: E402
    LONGEST,
    PAIRS,
    TEST_BATCH,
    Head,
    Item,
    Run,
    Spec,
    accuracy,
    item_losses,
    main,
    targets,
)
from torch import Tensor, nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402
from transformers import AutoModel, AutoTokenizer  # noqa: E402

STRATEGIES = ("none", "er-res", "agem")


class Composer(nn.Module):
    """An encoder and a head for each of V, N and CI, over all pairs of a batch at once.

    Args:
        encoder: Directory of an encoder.
        features: Names of the encoder's inputs, the attention mask among them.
    """

    def __init__(self, encoder: str, features: Sequence[str]) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(encoder, dtype=torch.float32)
        self.heads = nn.ModuleList(Head(self.encoder.config) for _ in PAIRS)
        self.features = features

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the three heads side by side, shape (B, 9).

        Args:
            inputs: Shape (B, 3, features, tokens).
        """
        inputs = inputs.flatten(0, 1)  # (B * 3, features, tokens)
        mask = inputs[:, self.features.index("attention_mask")]
        inputs = inputs[:, :, : int(mask.sum(dim=1).max())]
        named = {name: inputs[:, n] for n, name in enumerate(self.features)}
        first = self.encoder(**named).last_hidden_state[:, 0]
        first = first.unflatten(0, (-1, len(PAIRS)))  # (B, 3, hidden)
        return torch.cat([head(first[:, n]) for n, head in enumerate(self.heads)], dim=1)


class Update(SupervisedPlugin[Any]):
    """What the plain way does around the optimizer: a rate that falls in each stage, clipping.

    Its `LRSchedulerPlugin` is not used: it starts every stage but the first without warm-up.
    """

    def __init__(self, spec: Spec, steps: Sequence[int]) -> None:
        super().__init__()
        self._spec = spec
        self._steps = steps

    def before_update(self, strategy: Any, **_: Any) -> None:
        """After the plugins that change gradients, before the optimizer."""
        total = self._steps[strategy.clock.train_exp_counter]
        step = strategy.clock.train_exp_iterations
        warmup = round(self._spec.warmup * total)
        share = step / warmup if step < warmup else (total - step) / (total - warmup)
        for group in strategy.optimizer.param_groups:
            group["lr"] = share * self._spec.learning_rate
        torch.nn.utils.clip_grad_norm_(strategy.model.parameters(), self._spec.clip_norm)


class Clock(SupervisedPlugin[Any]):
    """Seconds and losses of all steps; first of all plugins, so that it starts before them."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.losses: list[float] = []
        self._start = 0.0

    def before_training_iteration(self, strategy: Any, **_: Any) -> None:
        """The batch is there."""
        self._start = time.perf_counter()

    def after_training_iteration(self, strategy: Any, **_: Any) -> None:
        """The optimizer has stepped."""
        self.losses.append(strategy.loss.item())
        self.seconds.append(time.perf_counter() - self._start)


def criterion(logits: Tensor, gold: Tensor) -> Tensor:
    """Mean over a batch of the three cross entropies, added."""
    return item_losses(logits, gold).mean()


def tensors(tokenizer: Any, items: Sequence[Item]) -> tuple[list[str], Tensor]:
    """Names of the encoder's inputs, and these for all pairs: (items, 3, features, tokens)."""
    encoded = tokenizer(
        [item[first] for item in items for first, *_ in PAIRS],
        [item[second] for item in items for _, second, _ in PAIRS],
        padding=True,
        truncation=True,
        max_length=LONGEST,
        padding_side="right",
        return_tensors="pt",
    )
    stacked = torch.stack(list(encoded.values()), dim=1)
    return list(encoded), stacked.unflatten(0, (-1, len(PAIRS)))


def plugins(spec: Spec, strategy: str) -> list[SupervisedPlugin[Any]]:
    """What Avalanche adds to `Naive` for a strategy."""
    if strategy == "er-res":
        return [
            ReplayPlugin(
                mem_size=spec.memory,
                batch_size=spec.batch_size,
                batch_size_mem=spec.replay_batch,
                storage_policy=ReservoirSamplingBuffer(spec.memory),
            )
        ]
    if strategy == "agem":
        return [AGEMPlugin(patterns_per_experience=spec.memory, sample_size=spec.replay_batch)]
    return []


def run(spec: Spec, strategy: str) -> Run:
    """Train both stages with a strategy, and test."""
    random.seed(spec.seed)
    torch.manual_seed(spec.seed)
    tokenizer = AutoTokenizer.from_pretrained(spec.encoder)
    features, _ = tensors(tokenizer, spec.test[:1])
    model = Composer(spec.encoder, features)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay
    )
    steps = [spec.epochs * -(-len(stage) // spec.batch_size) for stage in spec.stages]
    clock = Clock()
    learner = Naive(
        model=model,
        optimizer=optimizer,
        criterion=criterion,
        train_mb_size=spec.batch_size,
        train_epochs=spec.epochs,
        plugins=[clock, *plugins(spec, strategy), Update(spec, steps)],
        evaluator=None,
    )
    start = time.perf_counter()
    # In one call, so that a batch may hold items of both stages: all are padded to one length.
    every = tensors(tokenizer, [item for stage in spec.stages for item in stage])[1]
    inputs = every.split([len(stage) for stage in spec.stages])
    datasets = [
        AvalancheDataset([TensorDataset(part, targets(stage))])
        for part, stage in zip(inputs, spec.stages, strict=True)
    ]
    for experience in benchmark_from_datasets(train=datasets).train_stream:
        learner.train(experience, reset_optimizer_state=True)
    seconds = time.perf_counter() - start
    assert len(clock.losses) == sum(steps), "replay must not change the number of steps"
    first, second = clock.seconds[: steps[0]], clock.seconds[steps[0] :]
    return Run(seconds, first, second, clock.losses, test(model, tokenizer, spec.test))


@torch.no_grad()
def test(model: Composer, tokenizer: Any, items: Sequence[Item]) -> dict[str, float]:
    """Accuracy on the test items."""
    model.eval()
    inputs = tensors(tokenizer, items)[1]
    logits = torch.cat([model(batch) for batch in inputs.split(TEST_BATCH)])
    return accuracy(logits, targets(items))


if __name__ == "__main__":
    main(run, STRATEGIES, ("avalanche-lib", "torch", "transformers", "tokenizers"))
