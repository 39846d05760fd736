"""Dynamic evaluation: time and memory by what moves, and the share of what is possible.

The latest documents of a file of dated documents (JSONL, CSV or Parquet, as `triax temporal` reads
them) are adapted to in the order of time by a Transformer-XL of a preset, with a vocabulary learned
from them and random weights: neither changes what a token costs.

  static       no gradients
  output       the output layer alone, the tied embedding in that use
  biases, lora, last-1, embeddings, all

All ways read the same documents step by step and take turns, in an order that moves on by one from
repeat to repeat. The learning rate is so small that no score changes: before a figure is printed
the scores of all ways are compared, and every parameter set does the whole of its work. Memory is
the peak of a process in which one way alone has run. CPU time, with tokenization and tables, stands
beside the clock's for machines that are shared.

The floor is the least FLOPs that a way needs (counted, see `parameters.Flops`) at the rate of a
plain matrix product, measured in the same run: the share reached is floor over time. Keys and
values of the memory, projected again because weights change, are work above the floor.

Targets: biases at most .7 of the time of all (their floors: .67 and more); output 1.2 to 1.5 times
static.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from common import header, spread, table

WAYS = ("static", "output", "biases", "lora", "last-1", "embeddings", "all")
RATE = 1e-12  # of learning: far below the last digit of any weight


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one way: its cost, CPU seconds with tokenization and tables, scores."""

    cost: Any
    processor: float
    log_p: np.ndarray


def main() -> None:
    """Prepare, run every way in turn, compare, print; exit code 1 where two ways disagree."""
    options = _arguments()
    torch.set_num_threads(options.threads)
    if options.way:
        model, documents = _load(Path(options.directory))
        print(json.dumps(run(options.way, model, documents, options.rule).cost.peak_bytes))
        return
    packages = ["triaxial", "torch", "transformers", "numpy"]
    print(header("dynamic evaluation", options.threads, packages), flush=True)
    with TemporaryDirectory(dir=options.tmp) as folder:
        pieces = prepare(options, Path(folder))
        model, documents = _load(Path(folder))
        print(
            f"{len(documents)} documents of {options.documents_file}, {pieces:,} pieces in the "
            f"vocabulary, preset {options.preset}, rule {options.rule}",
            flush=True,
        )
        from triaxial.models.base import measured_rate

        runs: dict[str, list[Run]] = {way: [] for way in WAYS}
        rates = []
        for way in WAYS:  # warm
            run(way, model, documents[:2], options.rule)
        for repeat in range(options.repeats):
            rates.append(measured_rate(model.where))
            first = repeat % len(WAYS)
            for way in (*WAYS[first:], *WAYS[:first]):
                runs[way].append(run(way, model, documents, options.rule))
                _compare(way, runs[way][-1], runs[WAYS[0]] or runs[way])
            print(f"repeat {repeat + 1} of {options.repeats}", flush=True)
        peaks = {way: _peak(way, folder, options) for way in WAYS} if options.memory else {}
    _report(runs, rates, peaks)
    if options.repeats < 5:
        print("\nfewer than 5 repeats: no figure to be quoted")


def prepare(options: argparse.Namespace, folder: Path) -> int:
    """Write documents and model; the number of pieces."""
    from triaxial.models.causal import own_tokenizer
    from triaxial.models.transformer_xl import PRESETS, TransformerXL
    from triaxial.temporal.corpus import read_documents
    from triaxial.temporal.splits import Split
    from triaxial.temporal.vocabulary import VocabularyOptions, train_vocabulary

    every = sorted(read_documents(options.documents_file).documents, key=lambda d: (d.date, d.id))
    learned = every[-options.learned :]
    some = every[-options.documents :]
    split = Split("benchmark", tuple(document.id for document in learned), (), ())
    size = VocabularyOptions(size=options.pieces)
    train_vocabulary(learned, split, folder / "model", size)
    pieces = len(own_tokenizer(folder / "model", "model"))
    TransformerXL(replace(PRESETS[options.preset], vocab_size=pieces)).save(folder / "model")
    rows = [[d.id, d.date, d.text, d.source] for d in some]
    (folder / "documents.json").write_text(json.dumps(rows))
    return pieces


def run(way: str, model: Any, documents: list[Any], rule: str) -> Run:
    """Adapt to the documents."""
    from triaxial.temporal.dynamic import AdaptOptions, adapt, total_cost
    from triaxial.temporal.updates import gradient_statistics

    parameters = "all" if way == "static" else way
    options = AdaptOptions(0.0 if way == "static" else RATE, parameters=parameters)
    statistics = None
    if rule == "rms" and way not in ("static", "lora"):  # adapters have the plain rule alone
        options = replace(options, rule="rms", decay=1e-6)
        statistics = gradient_statistics(model, documents[:2], parameters)
    started = time.process_time()
    shards = list(adapt(model, documents, options, statistics=statistics))
    processor = time.process_time() - started
    scores = [shard.tables.documents["log_p"].to_numpy() for shard in shards]
    return Run(total_cost(shard.cost for shard in shards), processor, np.concatenate(scores))


def _report(runs: dict[str, list[Run]], rates: list[float], peaks: dict[str, int]) -> None:
    rate = median(rates)
    print(f"\nplain matrix product: {spread([r / 1e9 for r in rates], 1)} GFLOP/s")
    tokens = runs["all"][0].cost.tokens
    print(f"{tokens:,} targets, {runs['all'][0].cost.updates:,} updates\n")
    rows = []
    every = [one.cost.seconds for one in runs["all"]]
    busy = [one.processor for one in runs["all"]]
    for way, found in runs.items():
        seconds = [one.cost.seconds for one in found]
        # Sides of one repeat stand beside each other: the machine was the same.
        ratios = [a / b for a, b in zip(seconds, every, strict=True)]
        least = found[0].cost.flops
        rows.append(
            [
                way,
                f"{found[0].cost.weights:,}" if way != "static" else "0",
                spread([1e6 * s / tokens for s in seconds], 0),
                spread(ratios),
                spread([one.processor / b for one, b in zip(found, busy, strict=True)]),
                f"{least / runs['all'][0].cost.flops:.2f}",
                f"{least / tokens / 1e6:.2f}",
                f"{least / rate / median(seconds):.2f}",
                f"{peaks[way] / 2**20:,.0f}" if peaks else "",
            ]
        )
    head = ["medians (least-greatest)", "weights", "µs a token", "of all", "CPU of all", "floor"]
    print(table([*head, "MFLOP a token", "share of floor", "peak MiB"], rows))
    static = [one.cost.seconds for one in runs["static"]]
    output = [one.cost.seconds for one in runs["output"]]
    print(f"\noutput over static: {spread([a / b for a, b in zip(output, static, strict=True)])}")


def _load(folder: Path) -> tuple[Any, list[Any]]:
    from triaxial.models.causal import load_causal
    from triaxial.temporal.corpus import Document

    rows = json.loads((folder / "documents.json").read_text())
    model = load_causal(str(folder / "model"), device="cpu", precision="fp32")
    return model, [Document(*row) for row in rows]


def _peak(way: str, folder: str, options: argparse.Namespace) -> int:
    command = [sys.executable, __file__, options.documents_file, "--way", way]
    command += ["--directory", folder, "--rule", options.rule, "--threads", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{way} failed:\n{done.stderr}")
    return int(json.loads(done.stdout))


def _compare(way: str, one: Run, others: list[Run]) -> None:
    other = others[0]
    if one.cost.tokens != other.cost.tokens:
        sys.exit(f"{way}: {one.cost.tokens} targets, {WAYS[0]} had {other.cost.tokens}")
    apart = np.abs(one.log_p - other.log_p).max() / np.abs(other.log_p).max()
    if apart > 1e-5:
        sys.exit(f"{way}: scores are {apart:.1g} from those of {WAYS[0]}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents_file", help="dated documents, such as abstracts")
    parser.add_argument("--documents", type=int, default=100, help="the latest so many (100)")
    parser.add_argument("--learned", type=int, default=2_000, help="for the vocabulary (2,000)")
    parser.add_argument("--pieces", type=int, default=4_096, help="of the vocabulary (4,096)")
    parser.add_argument("--preset", default="tiny", choices=["tiny", "small"])
    parser.add_argument("--rule", default="sgd", choices=["sgd", "rms"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-memory", dest="memory", action="store_false")
    parser.add_argument("--tmp", help="directory for the files (the system's own)")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
