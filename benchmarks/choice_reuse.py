"""Multiple choice with a six-shot prompt: the examples read once against read for every question.

A random decoder of GPT-2's shape (12 layers; width and vocabulary smaller, so that a slow machine
is done in two minutes) chooses among three answers to NLI pairs, in fp32, by three ways:
  reuse    ours: the common beginning once, questions in batches behind its keys and values
  whole    the same code without reuse: every prompt whole, all one-token answers from one forward
  harness  lm-evaluation-harness's `loglikelihood` in batches of 8, where it is installed

Letters are answers of one token, words of several. Tokenizing is timed in all ways. Log-likelihoods
are compared before a ratio is printed, and must agree to 1e-4. The ways take turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from common import header, spread, table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from triaxial.models.choice import ChoiceModel

TARGET = 3
CLOSE = 1e-4
HARNESS_BATCH = 8
Pairs = list[tuple[str, str]]
Way = Callable[[Pairs], "NDArray[np.float32]"]


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=16, help="pairs that are asked")
    parser.add_argument("--shots", type=int, default=6, help="solved examples")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each way")
    parser.add_argument("--width", type=int, default=256, help="hidden size")
    parser.add_argument("--layers", type=int, default=12, help="depth")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    asked = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    torch.set_num_threads(asked.threads)
    packages = ["torch", "transformers", "numpy"]
    if importlib.util.find_spec("lm_eval"):
        packages.append("lm_eval")
    print(
        header("Multiple choice with examples: read once, or every time", asked.threads, packages)
    )
    failed = False
    with TemporaryDirectory() as folder:
        pairs, sets = material(Path(folder), asked.pairs, asked.width, asked.layers)
        for style in ("letters", "words"):
            ratio = measure(Path(folder), style, asked.shots, pairs, sets, asked.repeats)
            failed |= ratio < TARGET
    if failed:
        sys.exit(f"reuse is less than {TARGET} x as fast as none")


def material(folder: Path, count: int, width: int, layers: int) -> tuple[Pairs, Any]:
    """Write the model; pairs to be asked, and pairs that examples are drawn from."""
    import torch
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging

    from triaxial.models.tiny import tiny_causal
    from triaxial.prompts import PromptOptions, prefix, question
    from triaxial.worlds import world

    made, other = (world(seed, sentences=30, training=30, seeds=300) for seed in (3, 4))
    pairs = list(dict.fromkeys((pair.premise, pair.hypothesis) for pair in made.seeds))
    wording = [prefix(PromptOptions())]
    wording += [question(PromptOptions(style), "", "") for style in ("letters", "words")]
    # Half of the labels' letters, so that they are several tokens, as in real vocabularies.
    wording = [
        text.replace("entailment", "entail").replace("contradiction", "contra") for text in wording
    ]
    tiny_causal(folder, [*made.words, *other.words, *wording], longest=1024)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = GPT2Config(
        vocab_size=8_192,
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        n_positions=1024,
        initializer_range=0.1,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(1)
    logging.disable_progress_bar()
    GPT2LMHeadModel(config).save_pretrained(folder)
    return pairs[:count], other.seeds


def measure(folder: Path, style: Any, shots: int, pairs: Pairs, source: Any, repeats: int) -> float:
    """Time the ways on one kind of answers; how many times faster reuse is than none."""
    from triaxial.models.choice import load_choice
    from triaxial.nli import LABELS, Pair
    from triaxial.prompts import ChoiceOptions, PromptOptions, few_shot

    seeds = [Pair(str(n), *pair, LABELS[0]) for n, pair in enumerate(pairs)]
    examples = few_shot([source], shots, seeds=seeds, seed=1)
    options = ChoiceOptions(PromptOptions(style, examples=examples))
    given = {"options": options, "device": "cpu", "precision": "fp32"}
    models: dict[str, ChoiceModel] = {
        "reuse": load_choice(str(folder), **given),
        "whole": load_choice(str(folder), **given, reuse=False),
    }
    ways: dict[str, Way] = {name: model.log_likelihoods for name, model in models.items()}
    if importlib.util.find_spec("lm_eval"):
        ways["harness"] = harness(folder, options)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, Any] = {}
    for model in models.values():
        model.work.tokens = model.work.padded = 0
    for _ in range(repeats):
        for name, way in ways.items():
            begun = time.perf_counter()
            found[name] = way(pairs)
            seconds[name].append(time.perf_counter() - begun)
    apart = {name: float(abs(found[name] - found["reuse"]).max()) for name in ways}
    if max(apart.values()) >= CLOSE:
        sys.exit(f"log-likelihoods differ: {apart}")
    rows = []
    for name in ways:
        work = models[name].work if name in models else None
        tokens = "" if work is None else f"{work.padded // repeats / len(pairs):,.1f}"
        ratio = median(seconds[name]) / median(seconds["reuse"])
        rows.append([name, spread(seconds[name]), tokens, f"{ratio:.2f}", f"{apart[name]:.1e}"])
    prompt = len(models["reuse"]._questions(pairs[:1])[0].context)
    print(
        f"\n{style}: {len(pairs)} pairs, {shots} examples, {prompt:,} tokens in the first prompt; "
        f"{repeats} turns\n"
    )
    head = ["way", "seconds", "tokens a pair", "times reuse", "largest difference"]
    print(table(head, rows))
    return median(seconds["whole"]) / median(seconds["reuse"])


def harness(folder: Path, options: Any) -> Way:
    """`loglikelihood` of lm-evaluation-harness on the same prompts and answers."""
    import logging

    import numpy as np
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from triaxial.prompts import answers, prefix, question

    logging.disable(logging.WARNING)
    model = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=HARNESS_BATCH)

    def scores(pairs: Pairs) -> NDArray[np.float32]:
        requests = [
            Instance(
                request_type="loglikelihood",
                doc={},
                arguments=(
                    prefix(options.prompt) + question(options.prompt, *pair),
                    f" {answer}",
                ),
                idx=n,
            )
            for pair in pairs
            for n, answer in enumerate(answers(options.prompt))
        ]
        told = model.loglikelihood(requests, disable_tqdm=True)
        return np.asarray([score for score, _ in told], dtype=np.float32).reshape(-1, 3)

    return scores


if __name__ == "__main__":
    main()
