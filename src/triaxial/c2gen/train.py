"""One stage of training: a learner, the items of the stage, a strategy; and what it then predicts.

Source: C²Gen NLI, "model" and "training": L = L_prim + L_ci over one shared encoder. The authors'
nine-way loss over V-logit + N-logit factorizes into CE_V + CE_N, which is what is used.
Choice: three epochs (the paper does not say); with `primitive_supervision` = stage an item teaches
only the primitive that its own stage is about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file

from triaxial.c2gen.compose import Item
from triaxial.c2gen.grid import TrainOptions
from triaxial.c2gen.hooks import HEADS, At, Finetuning
from triaxial.c2gen.streams import Phase
from triaxial.errors import InputError, StoreError
from triaxial.models.base import Hardware
from triaxial.models.fit import Parts, fit, shuffled
from triaxial.models.heads import Learner, LoraOptions, Terms, load_learner
from triaxial.models.peak import peak_bytes, reset_peak
from triaxial.nli import LABELS
from triaxial.stats import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Material",
    "StageData",
    "Trained",
    "check_stage",
    "load_tensors",
    "material_of",
    "predict",
    "steps_of",
    "train_stage",
]


@dataclass(frozen=True, slots=True)
class Material:
    """Items as what a learner knows: their pairs, labels and types.

    Args:
        learner: Holds the distinct pairs.
        pairs: Pair of each item and head (V, N, CI), shape (items, 3); -1 for items left out.
        labels: Gold labels, shape (items, 3).
        kinds: Types, 1..9, shape (items,).
    """

    learner: Learner
    pairs: NDArray[np.intp]
    labels: NDArray[np.intp]
    kinds: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class StageData:
    """What a stage trains on, after what.

    Args:
        number: Of the stage, 0-based.
        phases: Of all stages up to this one.
        items: Rows of the same stages.
    """

    number: int
    phases: tuple[Phase, ...]
    items: tuple[NDArray[np.intp], ...]


@dataclass(frozen=True, slots=True)
class Trained:
    """What a stage leaves beside the weights in the learner.

    Args:
        losses: Of every step, what was minimized before any adjustment.
        carried: What the strategy remembers, for the next stage.
        moments: State of the optimizer, where it is kept.
        facts: Steps, tokens, seconds; `resumed_at` steps were done by an earlier call.
    """

    losses: tuple[float, ...]
    carried: dict[str, torch.Tensor]
    moments: dict[str, torch.Tensor]
    facts: dict[str, Any]


def material_of(
    items: Sequence[Item],
    needed: Sequence[int],
    encoder: str,
    where: Hardware,
    *,
    pooling: Literal["auto", "first", "mean", "last"] = "auto",
    lora: LoraOptions | None = None,
    token_budget: int | None = None,
) -> Material:
    """A model over the pairs of some items; each distinct pair is tokenized once.

    Args:
        items: All items of the data; the embeddings of their tokens are trained.
        needed: Rows of those that will be trained on or judged.
        encoder: Directory or hub id of an encoder, or of a decoder.
        where: Device and precision.
        pooling: Which vector the heads read.
        lora: Adapters in place of the encoder's own weights.
        token_budget: Padded tokens of a batch in evaluation.
    """
    place: dict[tuple[int, str, str], int] = {}
    pairs = np.full((len(items), HEADS), -1, dtype=np.intp)
    for row in needed:
        item = items[row]
        sides = ((item.sent1, item.mid_sent), (item.mid_sent, item.sent2), (item.sent1, item.sent2))
        for head, (first, second) in enumerate(sides):
            pairs[row, head] = place.setdefault((head, first, second), len(place))
    index = {label.value: n for n, label in enumerate(LABELS)}
    labels = np.asarray(
        [[index[i.veridical_label], index[i.sick_label], index[i.label]] for i in items],
        dtype=np.intp,
    ).reshape(len(items), HEADS)
    learner = load_learner(
        encoder,
        [(first, second) for _, first, second in place],
        [head for head, _, _ in place],
        where,
        pooling=pooling,
        lora=lora,
        token_budget=token_budget,
        vocabulary=sorted({s for i in items for s in (i.sent1, i.mid_sent, i.sent2)}),
    )
    return Material(
        learner, pairs, labels, np.asarray([item.type for item in items], dtype=np.intp)
    )


def train_stage(
    material: Material,
    data: StageData,
    strategy: Finetuning,
    options: TrainOptions,
    seed: int,
    *,
    carried: Mapping[str, torch.Tensor] | None = None,
    moments: Mapping[str, torch.Tensor] | None = None,
    checkpoint: Path | None = None,
    run: str = "",
    progress: Callable[[int, int, float], None] | None = None,
) -> Trained:
    """Train the learner, which holds the weights of the stage before, on one more stage.

    Args:
        material: The learner and its items.
        data: Items of this stage and of those before.
        strategy: What goes into a step, beside the batch.
        options: How to train.
        seed: Of order, dropout and replay.
        carried: What the strategy carried out of the stage before.
        moments: State of the optimizer from there, where it is kept.
        checkpoint: Directory; a run found there is taken up.
        run: Digest of all that decides the result.
        progress: Called with steps done, steps in all and the latest loss.

    Raises:
        InputError: The loss is not finite; memory or batch do not fit the stages.
    """
    check_stage(data, strategy, options)
    learner = material.learner
    rows = data.items[data.number]
    order_seed = _derived(seed, data.number)

    def batches(epoch: int) -> list[NDArray[np.intp]]:
        cut = shuffled(range(len(rows)), options.batch_size, seed=order_seed, epoch=epoch)
        return [rows[batch] for batch in cut]

    def first_epoch(number: int) -> NDArray[np.intp]:
        mine = data.items[number]
        cut = shuffled(range(len(mine)), options.batch_size, seed=_derived(seed, number), epoch=0)
        return mine[np.concatenate(cut)]

    at = At(
        learner=learner,
        pairs=material.pairs,
        labels=material.labels,
        trained=_trained_heads(data, len(material.pairs), options),
        kinds=material.kinds,
        number=data.number,
        earlier=tuple(first_epoch(number) for number in range(data.number)),
        current=first_epoch(data.number),
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        seed=seed,
        carried=carried or {},
        state={},
    )
    reset_peak(learner.where.device)
    began = time.perf_counter()
    tokens = learner.work.tokens
    state = strategy.start(at)
    at = replace(at, state=state)
    turns = _turns(strategy, data.number)
    current: dict[int, list[NDArray[np.intp]]] = {}

    def items_of(epoch: int) -> list[NDArray[np.intp]]:
        if epoch not in current:
            current.clear()
            nothing = rows[:0]  # a step of replay alone
            current[epoch] = [
                batch if turn == 0 else nothing for batch in batches(epoch) for turn in range(turns)
            ]
        return current[epoch]

    per_epoch = len(items_of(0))

    def epoch_batches(epoch: int) -> list[Parts[Terms]]:
        return [
            learner.parts(strategy.terms(at, epoch * per_epoch + n, items))
            for n, items in enumerate(items_of(epoch))
        ]

    def adjust(step: int, weights: Sequence[torch.nn.Parameter]) -> None:
        strategy.adjust(at, step, items_of(step // per_epoch)[step % per_epoch], weights)

    kept: dict[str, torch.Tensor] | None = None
    if options.optimizer_on_stage == "keep":
        kept = dict(moments or {})
    history = fit(
        learner.model,
        epoch_batches,
        learner.loss,
        options.fit(order_seed),
        learner.where,
        checkpoint=checkpoint,
        run=run,
        adjust=adjust,
        moments=kept,
        progress=progress,
    )
    strategy.finish(at)
    peak = peak_bytes(learner.where.device)
    facts = {
        "steps": len(history.losses),
        "resumed_at": history.resumed_at,
        "tokens": learner.work.tokens - tokens,
        "seconds": time.perf_counter() - began,
        "items": len(rows),
        "peak_mib": None if peak is None else peak / 2**20,
    }
    return Trained(history.losses, dict(state), kept or {}, facts)


def predict(material: Material, items: NDArray[np.intp]) -> NDArray[np.float32]:
    """Log-probabilities of the heads V, N and CI, shape (items, 3, 3); each pair once."""
    found = material.learner.log_p(material.pairs[items].ravel())
    return found.reshape(len(items), HEADS, 3).astype(np.float32)


def steps_of(items: int, number: int, strategy: Finetuning, options: TrainOptions) -> int:
    """Updates of a stage."""
    return options.epochs * -(-items // options.batch_size) * _turns(strategy, number)


def check_stage(data: StageData, strategy: Finetuning, options: TrainOptions) -> None:
    """Refuse what cannot be meant: a memory or a batch larger than a stage.

    Raises:
        InputError: One of these.
    """
    name = data.phases[data.number].name
    size = len(data.items[data.number])
    if not size:
        raise InputError("has no items; draw more, or take it out", where=f"stage {name!r}")
    if options.batch_size > size:
        raise InputError(
            f"has {size} items, fewer than a batch of {options.batch_size}; lower --batch-size or "
            "draw more",
            where=f"stage {name!r}",
        )
    if data.number and (memory := strategy.memory_size()) > len(data.items[0]):
        raise InputError(
            f"a memory of {memory} rows is larger than stage {data.phases[0].name!r} with "
            f"{len(data.items[0])}: it would hold everything; lower --memory or draw more",
            where=strategy.name,
        )


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """What `save_tensors` wrote.

    Raises:
        StoreError: It cannot be read.
    """
    try:
        return load_file(path)
    except Exception as error:  # safetensors has an error type of its own
        message = f"cannot be read ({error}); remove its directory and call again"
        raise StoreError(message, where=path) from None


def _turns(strategy: Finetuning, number: int) -> int:
    two = getattr(strategy, "replay_mode", "concat") == "two_step"
    return 2 if two and (number or strategy.alters_first_stage()) else 1


def _trained_heads(data: StageData, count: int, options: TrainOptions) -> NDArray[np.bool_]:
    trained = np.zeros((count, HEADS), dtype=bool)
    for phase, rows in zip(data.phases, data.items, strict=True):
        heads = {"both": (1, 1, 1), "primitives": (1, 1, 0), "composition": (0, 0, 1)}[phase.learns]
        if options.primitive_supervision == "stage" and phase.learns == "both":
            heads = {"ver": (1, 0, 1), "nat": (0, 1, 1)}.get(phase.name, heads)
        trained[rows] = heads
    return trained


def _derived(seed: int, number: int) -> int:
    return int(generator("c2gen.stage", seed, number).integers(1 << 31))
