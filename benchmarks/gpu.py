"""One GPU: the same numbers as the CPU, and the rate of all three axes, in under six minutes.

Models are made on the spot with random weights in the shapes of real ones (BERT base, the
Transformer-XL preset `small`, and `paper` for its training), data are generated: nothing is read
but this repository. Rates do not depend on what the weights are.

First parity: the same inputs on the CPU and on the device. Log-probabilities in fp32 may differ by
1e-3 nats, and losses and gradients of training by 1e-3 of themselves; in bf16 by .15 nats and 5 %.
A difference above makes the exit code 1, and no rate is printed.

Then rates, the median of the repeats that a part's share of the time allows, after one to warm up:

  replacement  masked queries and pairs of the classifier a second
  composition  training steps a second of one stage with each strategy, batches of 8 items
  time         pieces a second in training, in static evaluation, and in dynamic evaluation

`python benchmarks/gpu.py --out gpu.json` on a machine with CUDA; `--dry-run` is the same on a CPU
with tiny sizes, in under a minute, whose rates mean nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from common import header, table
from transformers.utils import logging

from triaxial.c2gen.grid import TrainOptions
from triaxial.c2gen.strategies import strategy_named
from triaxial.c2gen.streams import Phase
from triaxial.c2gen.train import Material, StageData, material_of, train_stage
from triaxial.models.base import Hardware, hardware
from triaxial.models.causal import CausalLM, load_causal
from triaxial.models.classifier import load_classifier
from triaxial.models.fit import FitOptions, fit
from triaxial.models.masked import Place, Query, load_masked
from triaxial.models.peak import peak_bytes, reset_peak
from triaxial.models.tensors import on_device
from triaxial.models.tiny import tiny_masked
from triaxial.models.transformer_xl import TransformerXL
from triaxial.models.xl_config import PRESETS, XLConfig
from triaxial.temporal.corpus import Document
from triaxial.temporal.dynamic import AdaptOptions, adapt, total_cost
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.segments import Cut, cut_streams
from triaxial.text import words
from triaxial.worlds import compositions, world

STRATEGIES = ("none", "er-res", "er-buff", "er-mir", "agem", "kd")
WAYS = (("all", 1), ("biases", 1), ("output", 1), ("all", 16))
# By precision: nats of a log-probability, and share of a loss or a gradient.
TOLERANCE = {"fp32": (1e-3, 1e-3), "bf16": (0.15, 0.05)}
LIMIT = 330.0  # seconds; what has not begun by then is left out, and said


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large everything is; parity takes a small share of it."""

    width: int = 768
    heads: int = 12
    layers: int = 12
    entries: int = 30_522
    sentences: int = 4_000
    stage: int = 40  # steps
    memory: int = 100
    trained: XLConfig = PRESETS["paper"]
    scored: XLConfig = PRESETS["small"]
    rows: int = 8
    steps: int = 48
    documents: int = 4_000
    adapted: int = 48
    seconds: float = 4.0  # of the repeats of one figure


_XL = XLConfig(600, 16, 2, 1, 32, segment=16, memory_train=16, memory_test=32)
DRY = Sizes(32, 2, 2, 600, 40, 2, 20, _XL, _XL, 4, 4, 60, 16, 0.2)


class Differs(Exception):
    """The device computes something else than the CPU."""


def main(arguments: list[str] | None = None) -> int:
    """Compare, measure, print, write; the exit code."""
    options = _arguments(arguments)
    logging.disable_progress_bar()
    if not options.dry_run and not torch.cuda.is_available():
        print("gpu.py: no CUDA here; --dry-run is the same on the CPU", file=sys.stderr)
        return 2
    device, sizes = ("cpu", DRY) if options.dry_run else ("cuda", Sizes())
    places = [hardware(device, "fp32")]
    if not options.dry_run and torch.cuda.is_bf16_supported(including_emulation=False):
        places.append(hardware(device, "bf16"))
    name = "CPU, dry run" if options.dry_run else torch.cuda.get_device_name()
    title = header(f"gpu: {name}", torch.get_num_threads(), ["torch", "transformers", "numpy"])
    print(title, flush=True)
    bench = Bench(sizes, places, time.perf_counter())
    error = None
    with TemporaryDirectory(dir=options.tmp) as folder:
        try:
            for axis in (replacement, composition, over_time):
                axis(bench, Path(folder))
        except Differs as found:
            error = str(found)
    seconds = time.perf_counter() - bench.began
    print(f"\nparity with the CPU\n{table(('', 'precision', 'differs', 'at most'), bench.parity)}")
    if error is None:
        print(f"\nrates\n{table(('', 'precision', 'a second', '', 'peak MiB'), bench.shown())}")
    print(f"\n{seconds:.0f} s in all" + (f"; {error}" if error else ""))
    if options.out:
        facts = {"title": title, "dry_run": options.dry_run, "seconds": seconds, "error": error}
        about = {"sizes": asdict(sizes), "parity": bench.parity, "rates": bench.rates}
        options.out.write_text(json.dumps(facts | about, indent=1), encoding="utf-8")
    return 1 if error else 0


class Bench:
    """What was found so far, and where it is found."""

    def __init__(self, sizes: Sizes, places: Sequence[Hardware], began: float) -> None:
        self.sizes, self.places, self.began = sizes, places, began
        self.parity: list[tuple[str, str, str, str]] = []
        self.rates: list[dict[str, Any]] = []

    def same(self, what: str, where: Hardware, here: Any, there: Any, *, nats: bool) -> None:
        """Compare the CPU's numbers with the device's, as nats or as shares."""
        one, other = (np.asarray(x, dtype=np.float64) for x in (here, there))
        away = np.abs(one - other) if nats else np.abs(one - other) / np.maximum(np.abs(one), 1e-6)
        most, found = TOLERANCE[where.precision][0 if nats else 1], float(away.max())
        self.parity.append((what, where.precision, f"{found:.1e}", f"{most:g}"))
        if not found <= most:  # also where it is no number
            raise Differs(f"{what} in {where.precision} differs by {found:.2g}, allowed {most:g}")

    def rate(
        self,
        what: str,
        unit: str,
        where: Hardware,
        work: Callable[[], float],
        *,
        once: bool = False,
    ) -> None:
        """Measure `work`, which returns how much it did; once where it warms up by itself."""
        row: dict[str, Any] = {"what": what, "unit": unit, "precision": where.precision}
        if time.perf_counter() - self.began > LIMIT:
            self.rates.append(row | {"rate": None, "reason": "no time"})
            return
        reset_peak(where.device)
        try:
            found = self._repeated(where, work, once)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            self.rates.append(row | {"rate": None, "reason": "no memory"})
            return
        peak = peak_bytes(where.device)
        self.rates.append(
            row
            | {"rate": median(found), "low": min(found), "high": max(found), "repeats": len(found)}
            | {"peak_mib": None if peak is None else round(peak / 2**20)}
        )

    def _repeated(self, where: Hardware, work: Callable[[], float], once: bool) -> list[float]:
        found: list[float] = []
        if not once:
            work()
        start = time.perf_counter()
        while not found or (not once and time.perf_counter() - start < self.sizes.seconds):
            _wait(where)
            at = time.perf_counter()
            done = work()
            _wait(where)
            # What warms up by itself says its rate.
            found.append(done if once else done / (time.perf_counter() - at))
        return found

    def shown(self) -> list[tuple[str, ...]]:
        """Rows of the table of rates."""
        return [
            (
                row["what"],
                row["precision"],
                f"{row['rate']:,.1f}" if row["rate"] is not None else row["reason"],
                row["unit"],
                str(row.get("peak_mib") or ""),
            )
            for row in self.rates
        ]


def replacement(bench: Bench, folder: Path) -> None:
    """Masked queries, and pairs of the classifier."""
    sizes = bench.sizes
    made = world(1, sentences=sizes.sentences, training=sizes.sentences, seeds=30)
    encoder, classifier = _encoders(folder, made.words, sizes)
    pairs = list(dict.fromkeys((pair.premise, pair.hypothesis) for pair in made.training))
    places = [
        Place(pair.premise, word.start, word.end, pair.hypothesis)
        for pair in made.training
        for word in words(pair.premise)
    ]
    few = slice(0, 64)
    here = load_masked(str(encoder), device="cpu", precision="fp32")
    queries = [query for query in here.queries(places) if isinstance(query, Query)]
    wanted = here.fill(queries[few]).log_p_target
    judged = load_classifier(str(classifier), device="cpu", precision="fp32").predict(pairs[few])
    for where in bench.places:
        options: Any = {"device": where.device, "precision": where.precision}
        masked = load_masked(str(encoder), **options)
        found = masked.fill(queries[few]).log_p_target
        bench.same("masked LM, log p of the word", where, wanted, found, nats=True)
        bench.rate("masked queries", "queries", where, lambda m=masked: _count(m.fill(queries).ids))
        model = load_classifier(str(classifier), **options)
        bench.same("classifier, log p", where, judged, model.predict(pairs[few]), nats=True)
        bench.rate("classifier", "pairs", where, lambda m=model: _count(m.predict(pairs)))


def composition(bench: Bench, folder: Path) -> None:
    """One stage of training with each strategy."""
    sizes, options = bench.sizes, TrainOptions(epochs=1)
    items = compositions()
    rng = np.random.default_rng(1)
    count = options.batch_size * sizes.stage
    rows = rng.permutation(np.resize(np.arange(len(items)), 2 * max(count, sizes.memory)))
    stages = tuple(np.unique(rows[half::2])[: max(count, sizes.memory)] for half in (0, 1))
    data = StageData(1, (Phase("ver", ()), Phase("nat", ())), stages)

    def material(where: Hardware) -> Material:
        needed = sorted({int(row) for stage in stages for row in stage})
        made = material_of(items, needed, str(folder / "encoder"), where)
        made.learner.restart(1)
        return made

    wanted = _judged(material(Hardware("cpu", "fp32")), stages[1][:8])
    for where in bench.places:
        mine = material(where)
        losses, length = _judged(mine, stages[1][:8])
        bench.same("composition, loss of a pair", where, wanted[0], losses, nats=True)
        bench.same("composition, length of the gradient", where, wanted[1], length, nats=False)
        for name in STRATEGIES:

            def stage(name: str = name, mine: Material = mine) -> float:
                mine.learner.restart(1)
                strategy = strategy_named(name, {"memory": sizes.memory, "mir_pool": 16})
                return train_stage(mine, data, strategy, options, 1).facts["steps"]

            bench.rate(f"a stage with {name}", "steps", where, stage)


def over_time(bench: Bench, folder: Path) -> None:
    """Training, static and dynamic evaluation of a Transformer-XL."""
    sizes = bench.sizes
    documents = plant(PlantOptions(documents=sizes.documents))[0]
    latest = sorted(documents, key=lambda one: (one.date, one.id))[-sizes.adapted :]
    texts = [document.text for document in documents]
    place = _language_model(folder / "xl", texts, sizes.scored)
    here = load_causal(str(place), device="cpu", precision="fp32")
    ids = [encoded[0] for encoded in here.encode(texts)]
    wanted = np.concatenate([score.log_p for score in here.score(texts[:8])])
    small = replace(sizes.scored, dropout=0.0, attn_dropout=0.0)
    learned = _trained(small, ids, Hardware("cpu", "fp32"), 4, 4)[0]
    adapted = _adapted(here, latest[:4], "all", 1)[0]
    for where in bench.places:
        model = load_causal(str(place), device=where.device, precision=where.precision)
        found = np.concatenate([score.log_p for score in model.score(texts[:8])])
        bench.same("Transformer-XL, log p of a piece", where, wanted, found, nats=True)
        losses = _trained(small, ids, where, 4, 4)[0]
        bench.same("Transformer-XL, losses of training", where, learned, losses, nats=False)
        moved = _adapted(model, latest[:4], "all", 1)[0]
        bench.same("dynamic evaluation, log p of a document", where, adapted, moved, nats=False)
        bench.rate(
            "training",
            "pieces",
            where,
            lambda w=where: _trained(sizes.trained, ids, w, sizes.rows, sizes.steps)[1],
            once=True,
        )
        bench.rate("static evaluation", "pieces", where, lambda m=model: _scored(m, texts))
        for parameters, streams in WAYS:
            bench.rate(
                f"dynamic evaluation, {parameters}" + (f", {streams} streams" * (streams > 1)),
                "pieces",
                where,
                lambda m=model, p=parameters, s=streams: _adapted(m, latest, p, s)[1],
            )


def _encoders(folder: Path, vocabulary: Sequence[str], sizes: Sizes) -> tuple[Path, Path]:
    """An encoder with a masked LM's head, and one with a classifier's."""
    import transformers

    from triaxial.nli import LABELS

    auto: Any = transformers
    places = folder / "encoder", folder / "classifier"
    for place, head in zip(places, ("MaskedLM", "SequenceClassification"), strict=True):
        tiny_masked(place, vocabulary, "bert")
        config = auto.AutoConfig.from_pretrained(place)
        config.hidden_size, config.num_attention_heads = sizes.width, sizes.heads
        config.num_hidden_layers, config.intermediate_size = sizes.layers, 4 * sizes.width
        config.vocab_size = max(sizes.entries, config.vocab_size)
        config.initializer_range = 0.02
        if head != "MaskedLM":
            config.id2label = {n: str(label) for n, label in enumerate(LABELS)}
        torch.manual_seed(1)
        getattr(auto, f"AutoModelFor{head}").from_config(config).save_pretrained(place)
    return places


def _language_model(place: Path, texts: Sequence[str], config: XLConfig) -> Path:
    """A Transformer-XL whose vocabulary is the words of the texts, filled up to its size."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = ["<s>", "<unk>", *sorted({word for text in texts for word in text.split()})]
    known = known[: config.vocab_size]
    known += [f"<filler {n}>" for n in range(config.vocab_size - len(known))]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(known)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    make: Any = PreTrainedTokenizerFast
    fast = make(tokenizer_object=tokenizer, bos_token="<s>", eos_token="<s>", unk_token="<unk>")
    TransformerXL(config).save(place)
    fast.save_pretrained(str(place))
    return place


def _trained(
    config: XLConfig, ids: Sequence[np.ndarray], where: Hardware, rows: int, steps: int
) -> tuple[tuple[float, ...], float]:
    """Losses of a training, and its pieces a second after the first report."""
    model = TransformerXL(config)
    model.to(where.device)
    model.open_streams(rows)
    # As many epochs as the steps need; every document once in each.
    size = sum(map(len, ids)) + len(ids)
    texts = list(ids) * -(-(steps + 1) * rows * config.segment // size)
    cuts = cut_streams(texts, 0, rows, config.segment, "carry", np.random.default_rng(1))[:steps]
    reports: list[tuple[int, float]] = []

    def loss(model: Any, cut: Cut) -> torch.Tensor:
        sent = (
            on_device(np.ascontiguousarray(array), where.device, kind)
            for array, kind in ((cut.ids, torch.long), (cut.targets, torch.long), (cut.reset, None))
        )
        return model.stream_loss(*sent)  # type: ignore[no-any-return]

    def told(done: int, _: int, __: float) -> None:
        reports.append((done, time.perf_counter()))

    history = fit(
        model,
        lambda epoch: [[(1.0, cut)] for cut in cuts],
        loss,
        FitOptions(epochs=1, learning_rate=1e-4),
        where,
        progress=told,
    )
    (first, began), (last, ended) = reports[0], reports[-1]
    return history.losses, (last - first) * rows * config.segment / (ended - began)


def _scored(model: CausalLM, texts: Sequence[str]) -> float:
    return float(sum(len(score.log_p) for score in model.score(texts)))


def _adapted(
    model: CausalLM, documents: Sequence[Document], parameters: str, streams: int
) -> tuple[np.ndarray, float]:
    """Log-probabilities of documents that were learned from, and how many targets they had."""
    options = AdaptOptions(1e-3, parameters, streams=streams)
    shards = list(adapt(model, documents, options))
    found = np.concatenate([shard.tables.documents["log_p"].to_numpy() for shard in shards])
    return found, float(total_cost(shard.cost for shard in shards).tokens)


def _judged(material: Material, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Losses of the pairs of some items, and the length of their gradient; without dropout."""
    from triaxial.models.heads import Terms

    learner, pairs = material.learner, material.pairs[rows].ravel()
    ones, none = np.ones(len(pairs), np.float32), np.zeros(len(pairs), np.float32)
    terms = Terms(pairs, material.labels[rows].ravel(), ones, none, np.zeros((len(pairs), 3), "f4"))
    losses = learner.losses(terms)
    with _evaluated(learner.model):
        learner.backward(terms)
        found = [w.grad.norm() for w in learner.model.parameters() if w.grad is not None]
        length = float(torch.stack(found).norm())
        learner.model.zero_grad(set_to_none=True)
    return losses, length


@contextmanager
def _evaluated(model: torch.nn.Module) -> Iterator[None]:
    model.eval()
    yield
    model.train()


def _count(rows: np.ndarray) -> float:
    return float(len(rows))


def _wait(where: Hardware) -> None:
    if where.device.startswith("cuda"):
        torch.cuda.synchronize()


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("--out", type=Path, help="JSON file for all figures")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--tmp", type=Path, help="where the models are made")
    return parser.parse_args(given)


class _Plain(argparse.RawDescriptionHelpFormatter):
    """The docstring as it is."""


if __name__ == "__main__":
    sys.exit(main())
