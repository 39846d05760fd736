"""Fine-tuning: an NLI classifier from any encoder; a masked LM on other texts (`train_masked`).

Both take plain records, train with `fit` and leave an ordinary model directory with `training.json`
in it: what was trained on what, how, and how good it is on held-out data, next to the simplest
baseline.  The same call after a kill goes on from the last checkpoint; after success it returns
what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from triaxial.errors import InputError
from triaxial.models.base import (
    Checkpoint,
    Hardware,
    hardware,
    load_config,
    load_pretrained,
    load_tokenizer,
    locate,
)
from triaxial.models.classifier import load_classifier
from triaxial.models.distributed import ALONE, Division, Team
from triaxial.models.finetune_masked import train_masked
from triaxial.models.fit import FitOptions, fit
from triaxial.models.tensors import on_device
from triaxial.models.training import (
    CHECKPOINTS,
    Part,
    about_run,
    batches_of,
    check,
    digest,
    encode,
    finished,
    inputs_of,
    publish,
    ratio_interval,
    told,
    used_embeddings,
)
from triaxial.nli import LABELS, Pair

__all__ = ["train_classifier", "train_masked"]


def train_classifier(
    encoder: str,
    pairs: Sequence[Pair],
    out: Path,
    options: FitOptions | None = None,
    *,
    batch_size: int = 32,
    held_out: Sequence[Pair] = (),
    where: Hardware | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    team: Team = ALONE,
) -> dict[str, Any]:
    """Train an NLI classifier from an encoder, and save it.

    The classification head is new, from a seeded generator; a checkpoint that is a classifier over
    `nli.LABELS` already is trained on. Only the token embeddings that the data use are trained:
    the others would get no gradient, and are left without weight decay too (Choice).

    Args:
        encoder: Directory or hub id of any encoder that transformers can put a classifier on.
        pairs: What to train on; each distinct pair is tokenized once.
        out: Directory for the model; new, empty, or left by this very call.
        options: How to train.
        batch_size: Pairs of an update.
        held_out: Pairs on which the saved model is measured; without them it is not.
        where: Device and precision; by default what `hardware()` finds.
        progress: As in `fit`.
        team: The processes that share the training; the first saves and measures.

    Returns:
        The content of `training.json`.

    Raises:
        InputError: The encoder cannot be used, there are no pairs, or training diverges.
        StoreError: `out` holds something else, or cannot be written.
    """
    options, where = options or FitOptions(), where or hardware()
    check(pairs, "pairs", batch_size)
    source = locate(encoder)
    gold = [LABELS.index(pair.label) for pair in pairs]
    data = digest([[pair.premise, pair.hypothesis, pair.label] for pair in pairs])
    tests = digest([[pair.premise, pair.hypothesis, pair.label] for pair in held_out])
    about = about_run("classifier", source, data, tests, options, batch_size, where)
    if (done := finished(out, about["run"])) is not None:
        return done
    tokenizer = load_tokenizer(source)
    model = _with_head(source, options.seed)
    texts = list(dict.fromkeys((pair.premise, pair.hypothesis) for pair in pairs))
    place = {text: n for n, text in enumerate(texts)}
    rows = encode(tokenizer, source, model.config, [p for p, _ in texts], [h for _, h in texts])
    which = np.asarray([place[pair.premise, pair.hypothesis] for pair in pairs])
    labels = np.asarray(gold)
    lengths = rows.lengths[which]
    with used_embeddings(model, rows, tokenizer) as new_ids:

        def loss(model: torch.nn.Module, part: Part) -> torch.Tensor:
            mine = which[part.rows]
            inputs = inputs_of(rows, mine, new_ids[rows.padded(mine, part.width)], where)
            logits = model(**inputs).logits  # (B, 3)
            return F.cross_entropy(logits.float(), on_device(labels[part.rows], where.device))

        def take(part: Part, some: slice) -> tuple[float, Part]:
            mine = part.take(some)
            return len(mine) / len(part), mine

        history = fit(
            model,
            batches_of(lengths, batch_size, options, where),
            loss,
            options,
            where,
            checkpoint=out / CHECKPOINTS,
            run=about["run"],
            progress=progress,
            team=team,
            division=Division(len, take),
        )
    counts = Counter(pair.label for pair in pairs)
    facts = about | {
        "rows": len(pairs),
        "distinct": len(texts),
        "labels": {str(label): counts[label] for label in LABELS},
        "truncated": rows.truncated,
        "tokens": int(lengths.sum()),
        "history": told(history, -(-len(pairs) // batch_size)),
    }

    def measure(directory: Path) -> dict[str, Any]:
        return {"held_out": _accuracy(directory, held_out, counts, where) if held_out else None}

    return publish(out, model, tokenizer, facts, measure, team)


def _with_head(source: Checkpoint, seed: int) -> Any:
    """The encoder with a classification head: its own over `LABELS`, or a new one."""
    from transformers import AutoModelForSequenceClassification

    names = {n: str(label) for n, label in enumerate(LABELS)}
    config = load_config(source)
    trained = any("SequenceClassification" in name for name in config.architectures or ())
    if trained and dict(config.id2label) != names:
        raise InputError(
            f"is a classifier already, over {', '.join(config.id2label.values())}; wanted an "
            f"encoder, or a classifier over {', '.join(LABELS)} in this order",
            where=source.name,
        )

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return load_pretrained(
            AutoModelForSequenceClassification,
            source,
            new_head=True,
            id2label=names,
            label2id={name: n for n, name in names.items()},
        )


def _accuracy(
    directory: Path, held_out: Sequence[Pair], counts: Counter[Any], where: Hardware
) -> dict[str, Any]:
    model = load_classifier(str(directory), device=where.device, precision=where.precision)
    found = model.predict([(pair.premise, pair.hypothesis) for pair in held_out]).argmax(axis=1)
    gold = np.asarray([LABELS.index(pair.label) for pair in held_out])
    number = {pair.premise: n for n, pair in enumerate(held_out)}
    premises = np.asarray([number[pair.premise] for pair in held_out])
    units = np.column_stack([found == gold, np.ones_like(gold)])
    majority = max(LABELS, key=lambda label: counts[label])
    return {
        "n": len(held_out),
        # Pairs of one premise are not independent.
        "accuracy": ratio_interval(units, premises),
        "majority": str(majority),
        "majority_accuracy": float(np.mean(gold == LABELS.index(majority))),
        "truncated": model.truncated,
    }
