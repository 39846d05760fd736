"""Scoring documents with a causal LM against lm-evaluation-harness's rolling log-likelihood.

A random Llama of about 5 million parameters and 8,192 pieces is made on the spot, with a byte-BPE
vocabulary of the same documents: speed does not ask what was learned, and the totals must agree
all the more. Both sides score the same documents with the same tokenizer, start mark and window in
fp32 on the CPU:
  ours, tables   a log-probability for every Moses word of every document, as tables
  ours           the pieces alone
  lm-eval, B     lm-evaluation-harness 0.4.13 in an environment of its own, a local JSONL task,
                 batches of B; B = 1 is its default

Tokenizing is timed on every side, loading on none. Documents longer than the window are left out
(the sides cut them differently) and counted. The sides take turns; the log-likelihoods of every
document must agree to 1e-3 before a ratio is printed. The claim is the ratio of `ours, tables` to
the fastest of lm-eval's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from common import header, spread, table
from peers.client import Spec, interpreter

if TYPE_CHECKING:
    from triaxial.models.causal import CausalLM
    from triaxial.temporal.corpus import Document

TARGET = 3
CLOSE = 1e-3  # nats a document
ROUNDING = 1e-6  # of a total, which the peer sums up in fp32
PEER = Spec(
    "lm-evaluation-harness",
    "lm-eval",
    "temporal_lm_eval.py",
    ("lm-eval[hf]==0.4.13", "transformers==5.24.0"),
    "document",
    TARGET,
)


def main() -> None:
    """Make the model, take turns, compare, print; exit code 1 where totals differ."""
    options = _arguments()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    packages = ["triaxial", "torch", "transformers", "tokenizers", "polars"]
    print(header("scoring documents", options.threads, packages), flush=True)
    python = interpreter(PEER, options.cache)
    with TemporaryDirectory() as name:
        folder = Path(name)
        documents = list(islice(_documents(options.documents), options.n))
        _write_model(folder / "model", documents, options)
        from triaxial.models.causal import load_causal

        model = load_causal(
            str(folder / "model"), device="cpu", precision="fp32", window=options.window
        )
        lengths = [len(ids) for ids, _ in model.encode([d.text for d in documents])]
        fit = [d for d, n in zip(documents, lengths, strict=True) if n < options.window]
        pieces = sum(n for n in lengths if n < options.window)
        parameters = sum(p.numel() for p in model.network.parameters())
        print(
            f"{len(fit):,} documents, {pieces:,} pieces ({len(documents) - len(fit)} documents "
            f"longer than the window of {options.window} left out); {parameters / 1e6:.1f} M "
            "parameters",
            flush=True,
        )
        peer = _Peer(python, folder, fit, options)
        print(f"lm-eval's environment: {peer.versions}", flush=True)
        ours, theirs = _in_turns(model, fit, peer, options)
        peer.close()
    _report(ours, theirs, pieces)


class _Side:
    """One way of scoring: seconds of each repeat, totals by document, forwards, padded tokens."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.totals: list[float] = []
        self.forwards = self.padded = 0


class _Peer:
    """The peer's script in its own process."""

    def __init__(
        self, python: str, folder: Path, documents: Sequence[Document], options: argparse.Namespace
    ) -> None:
        source, job = folder / "documents.jsonl", folder / "job.json"
        with source.open("w", encoding="utf-8") as stream:
            stream.writelines(json.dumps({"text": d.text}) + "\n" for d in documents)
        told = {"model": str(folder / "model"), "folder": str(folder), "documents": str(source)}
        job.write_text(json.dumps({**told, "window": options.window, "threads": options.threads}))
        self._log = (folder / "log").open("w+")
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [python, str(Path(__file__).parent / "peers" / PEER.script), str(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={
                **kept,
                "HF_HUB_OFFLINE": "1",
                "HF_HOME": str(folder / "hf"),
                "OMP_NUM_THREADS": str(options.threads),
            },
        )
        started = self._reply()
        assert started["threads"] == options.threads, "both sides run on as many threads"
        self.versions = ", ".join(f"{n} {version}" for n, version in started["versions"].items())

    def run(self, batch: int) -> dict[str, Any]:
        """One evaluation."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"batch": batch}) + "\n")
        self._process.stdin.flush()
        return self._reply()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            sys.exit(f"{PEER.name} ended:\n{self._log.read()[-3000:]}")
        return json.loads(line)  # type: ignore[no-any-return]


def _in_turns(
    model: CausalLM, documents: Sequence[Document], peer: _Peer, options: argparse.Namespace
) -> tuple[dict[str, _Side], dict[str, _Side]]:
    from triaxial.temporal.perplexity import evaluate

    texts = [document.text for document in documents]
    ours = {name: _Side() for name in ("ours, tables", "ours")}
    theirs = {f"lm-eval, {batch}": _Side() for batch in options.batches}
    model.score(texts[:32])  # warm
    for _ in range(options.repeats):
        before = model.work.facts()
        side, start = ours["ours, tables"], perf_counter()
        parts = list(evaluate(model, documents))
        side.seconds.append(perf_counter() - start)
        after = model.work.facts()
        side.forwards, side.padded = (after[n] - before[n] for n in ("forwards", "padded"))
        side.totals = [x for part in parts for x in part.documents["log_p"]]
        side, start = ours["ours"], perf_counter()
        scores = model.score(texts)
        side.seconds.append(perf_counter() - start)
        side.forwards, side.padded = (
            model.work.facts()[n] - after[n] for n in after if n in ("forwards", "padded")
        )
        side.totals = [float(score.log_p.sum(dtype=float)) for score in scores]
        for batch, side in zip(options.batches, theirs.values(), strict=True):
            found = peer.run(batch)
            side.seconds.append(found["seconds"])
            side.totals, side.forwards, side.padded = (
                found[name] for name in ("totals", "forwards", "padded")
            )
    return ours, theirs


def _report(ours: dict[str, _Side], theirs: dict[str, _Side], pieces: int) -> None:
    reference = ours["ours"].totals
    apart = 0.0
    for name, side in (*ours.items(), *theirs.items()):
        gaps = [abs(a - b) for a, b in zip(side.totals, reference, strict=True)]
        apart = max(apart, *gaps)
        over = [gap - ROUNDING * abs(b) for gap, b in zip(gaps, reference, strict=True)]
        if max(over) > CLOSE:
            worst = over.index(max(over))
            sys.exit(f"{name}: document {worst} has {side.totals[worst]}, not {reference[worst]}")
    print(f"the same log-likelihood of every document on every side, within {apart:.0e} nats")
    base = median(ours["ours, tables"].seconds)
    fastest = min(median(side.seconds) for side in theirs.values())
    rows = []
    for name, side in (*ours.items(), *theirs.items()):
        middle = median(side.seconds)
        ratio = f"{middle / base:.2f}" if name in theirs else ""
        if name in theirs and middle == fastest:
            ratio += f" (>= {TARGET})" + (" MISSED" if middle / base < TARGET else "")
        counts = [f"{side.forwards:,}", f"{side.padded:,}"]
        rows.append([name, spread(side.seconds), f"{pieces / middle:,.0f}", *counts, ratio])
    print(table(["", "s: median", "tokens/s", "forwards", "padded tokens", "ratio"], rows))


def _documents(path: Path) -> Iterator[Document]:
    from triaxial.temporal.corpus import Document

    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as stream
    ):
        for number, line in enumerate(stream):
            row = json.loads(line)
            # One line, no outer blanks: the peer's template would strip them.
            text = " ".join(row["text"].split())
            yield Document(str(number), row["date"], text, row.get("source", ""))


def _write_model(
    directory: Path, documents: Sequence[Document], options: argparse.Namespace
) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    from triaxial.temporal.splits import Split
    from triaxial.temporal.vocabulary import VocabularyOptions, train_vocabulary

    split = Split("all", tuple(document.id for document in documents), (), ())
    train_vocabulary(
        documents, split, directory, VocabularyOptions(kind="bpe", size=options.pieces)
    )
    config = LlamaConfig(
        vocab_size=options.pieces,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=5,
        num_attention_heads=6,
        max_position_embeddings=options.window,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
    torch.manual_seed(1)
    logging.disable_progress_bar()
    LlamaForCausalLM(config).save_pretrained(directory)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents", type=Path, help="JSONL with text and date, .gz or plain")
    parser.add_argument("--n", type=int, default=2000, help="documents, from the first on")
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--pieces", type=int, default=8192)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32], help="of lm-eval")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("~/.cache/triaxial-peers"),
        help="where the environment is made (~/.cache/triaxial-peers, 2 GB)",
    )
    options = parser.parse_args()
    options.cache = options.cache.expanduser().resolve()
    return options


if __name__ == "__main__":
    main()
