"""Evaluation of MERGE against predicting its draws one after the other.

A classifier is scored on 20 variants of each seed, drawn 10 times: overall, and for each word
class on draws of its own. Three ways, with the same classifier in fp32, to the same figures:
  ours           each distinct pair of all draws once, in length-sorted batches under a token
                 budget; draws, thresholds, bootstrap intervals are array work on the labels
  plain          draw after draw as it comes, batches of 32 padded to the longest of the batch
  plain, sorted  draw after draw too, each in our batches: what of the ratio is batching
                 (overall alone)

Tokenizing is timed in all ways, loading and generating in none. S, SV at every threshold and the
log-probabilities are compared before a ratio is printed. The seeds' own labels are asked once in
every way. The plain ways are long: each of their draws is a repeat, and the sum is what counts.
All ways take turns. How many times fewer pairs there are depends on how many variants a seed has.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from common import header, spread, table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from triaxial.merge.analyses import Group, VariantIndex
    from triaxial.models.classifier import Classifier

Texts = list[tuple[str, str]]
Predict = Callable[["Classifier", Texts], "NDArray[np.float32]"]

PLAIN_BATCH = 32
TARGET = 5
CLOSE = 1e-4  # log-probabilities of one pair in another batch, fp32


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be predicted.

    Args:
        index: Of the set.
        offsets: Where each pair's variants begin.
        seeds: Texts of all pairs of the set.
        variants: Texts of all variants, seed after seed.
        groups: Overall first, then the word classes.
    """

    index: VariantIndex
    offsets: NDArray[np.int64]
    seeds: Texts
    variants: Texts
    groups: list[Group]

    def rows(self, group: Group) -> NDArray[np.int64]:
        """Rows among `variants` that a group draws, shape (S, D, n)."""
        return self.offsets[group.seeds][:, None, None] + group.variants


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures by group (S, then SV at each threshold, percent), and log-probabilities by pair."""

    figures: dict[str, list[float]]
    log_p: dict[tuple[str, str], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One way of evaluation.

    Args:
        outcome: What came out.
        seconds: Of each repeat (ours) or of each draw.
        whole: Seconds of the evaluation: the median repeat, or all draws together.
        work: Pairs, forwards and padded tokens of the evaluation.
    """

    outcome: Outcome
    seconds: list[float]
    whole: float
    work: tuple[int, ...]

    def counts(self) -> list[str]:
        """Pairs, forwards and padded tokens as text."""
        return [f"{count:,}" for count in self.work]


def main() -> None:
    """Generate, evaluate in three ways, compare, print; exit code 1 where figures differ."""
    options = _arguments()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    packages = ["triaxial", "torch", "transformers", "tokenizers", "numpy"]
    print(header("evaluation of draws", options.threads, packages), flush=True)
    with TemporaryDirectory() as store:
        work = _work(options, Path(store))
    from triaxial.models.classifier import load_classifier

    model = load_classifier(options.model, device="cpu", precision="fp32")
    scopes = {"overall": work.groups[:1], "overall and by word class": work.groups}
    for name, groups in scopes.items():
        print(f"{name}: {_counts(work, groups)}")
    print(flush=True)
    model.predict(work.variants[:64])  # warm
    ours, plain = _in_turns(work, scopes, model, options.repeats)
    apart = max(
        _compare(f"{name}, {way}", ours[name].outcome, plain[way][group.name].outcome)
        for name, groups in scopes.items()
        for way in plain
        for group in groups
        if group.name in plain[way]
    )
    print(f"the same S and SV at all thresholds in every way; log-probabilities within {apart:.0e}")
    for name, values in ours["overall and by word class"].outcome.figures.items():
        print(f"  {name}: S {values[0]:.1f}, SV50 {values[10]:.1f}, SV95 {values[19]:.1f}")
    rows = []
    for name, groups in scopes.items():
        own = ours[name]
        rows.append([f"ours, {name}", spread(own.seconds), f"{own.whole:.2f}", *own.counts(), ""])
        for way, measured in plain.items():
            if any(group.name not in measured for group in groups):
                continue
            total = _added([measured[group.name] for group in groups])
            ratio = total.whole / own.whole
            mark = "" if way != "plain" else f" (>= {TARGET})"
            missed = " MISSED" if way == "plain" and ratio < TARGET else ""
            shown = [f"{way}, {name}", spread(total.seconds), f"{total.whole:.2f}"]
            rows.append([*shown, *total.counts(), f"{ratio:.1f}{mark}{missed}"])
    head = [
        "",
        "s a run (ours), a draw: median",
        "s in all",
        "pairs",
        "forwards",
        "padded",
        "ratio",
    ]
    print("\n" + table(head, rows))


def _work(options: argparse.Namespace, store: Path) -> Work:
    """The first eligible seeds with their variants, generated into a store that is thrown away."""
    from triaxial.api.merge import GenerateOptions, generate
    from triaxial.api.merge_show import variant_rows
    from triaxial.execute import Computing
    from triaxial.merge.analyses import VariantIndex, groups_of
    from triaxial.merge.score import DrawOptions
    from triaxial.merge.variants import PRESETS
    from triaxial.nli import read_pairs

    reading = read_pairs(f"sick:{options.data}", split="TEST", limit=options.pairs)
    making = GenerateOptions(
        (options.mlm,), preset_name=options.preset, preset=PRESETS[options.preset]
    )
    start = time.perf_counter()
    made = generate(reading, making, Computing(store, device="cpu"))
    spent = time.perf_counter() - start
    index = made.index()
    eligible = [p for p in made.pairs if len(index.classes.get(p.id, ())) >= DrawOptions().n]
    pairs = tuple(eligible[: options.seeds])
    by_seed: dict[str, Texts] = {pair.id: [] for pair in pairs}
    columns = ("seed", "premise", "hypothesis")
    for seed, premise, hypothesis in variant_rows(made).select(columns).iter_rows():
        if seed in by_seed:
            by_seed[seed].append((premise, hypothesis))
    smaller = VariantIndex(
        pairs,
        {seed: index.classes[seed] for seed in by_seed},
        {seed: index.sources[seed] for seed in by_seed},
    )
    sizes = [len(by_seed[pair.id]) for pair in pairs]
    groups = [g for g in groups_of(smaller, DrawOptions()) if g.kind in ("all", "class")]
    print(
        f"set: {len(reading.pairs)} pairs of TEST, preset {options.preset}, made in {spent:.0f} s; "
        f"{len(eligible)} have 20 variants; the first {len(pairs)} of these are the seeds, "
        f"with {min(sizes)}-{max(sizes)} variants (median {median(sizes):.0f})"
    )
    return Work(
        smaller,
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        [(pair.premise, pair.hypothesis) for pair in pairs],
        [text for pair in pairs for text in by_seed[pair.id]],
        groups,
    )


def _in_turns(
    work: Work, scopes: dict[str, list[Group]], model: Classifier, repeats: int
) -> tuple[dict[str, Measured], dict[str, dict[str, Measured]]]:
    """All ways side by side, so that a machine that slows down slows down each of them."""
    draws = work.groups[0].variants.shape[1]
    running = {
        way: {g.name: _one_by_one(work, g, model, predict) for g in work.groups[:most]}
        for way, (predict, most) in _PLAIN_WAYS.items()
    }
    plain: dict[str, dict[str, Measured]] = {way: {} for way in running}
    ours: dict[str, list[Measured]] = {name: [] for name in scopes}
    for turn in range(draws):
        for name, groups in scopes.items():
            while len(ours[name]) * draws < (turn + 1) * repeats:
                ours[name].append(_ours(work, groups, model))
        for way, by_group in running.items():
            for name, steps in by_group.items():
                plain[way][name] = next(steps)
    return {name: _median(measured) for name, measured in ours.items()}, plain


def _median(repeats: Sequence[Measured]) -> Measured:
    """Repeats of one way that does all draws at once."""
    seconds = [one.whole for one in repeats]
    return Measured(repeats[0].outcome, seconds, median(seconds), repeats[0].work)


def _added(parts: Sequence[Measured]) -> Measured:
    """Groups together: draw by draw, and in all."""
    return Measured(
        parts[0].outcome,
        np.sum([part.seconds for part in parts], axis=0).tolist(),
        sum(part.whole for part in parts),
        tuple(map(sum, zip(*(part.work for part in parts), strict=True))),
    )


def _ours(work: Work, groups: Sequence[Group], model: Classifier) -> Measured:
    """As `api.merge.evaluate` and `score` do it, without the store."""
    from triaxial.merge.analyses import Predictions, score_model

    before, start = _work_of(model), time.perf_counter()
    wanted = np.unique(np.concatenate([work.rows(group).ravel() for group in groups]))
    asked = work.seeds + [work.variants[row] for row in wanted]
    distinct = list(dict.fromkeys(asked))
    values = model.predict(distinct)
    log_p = dict(zip(distinct, values, strict=True))
    labels = np.stack([log_p[pair] for pair in asked]).argmax(axis=1).astype(np.int8)
    variants = np.full(len(work.variants), -1, dtype=np.int8)
    variants[wanted] = labels[len(work.seeds) :]
    predictions = Predictions("model", labels[: len(work.seeds)], variants, work.offsets)
    scored = score_model(work.index, groups, predictions, seed=1)
    figures = {
        name: [one.seed_accuracy.value, *(sv.value for sv in one.sv)]
        for row in scored.values()
        for name, one in row.items()
    }
    spent = time.perf_counter() - start
    return Measured(Outcome(figures, log_p), [spent], spent, _since(model, before))


def _one_by_one(
    work: Work, group: Group, model: Classifier, predict: Predict
) -> Iterator[Measured]:
    """One group draw after draw; its seeds are asked once, with the first draw.

    Yields what was measured so far, after each draw.
    """
    from triaxial.nli import LABELS

    done: tuple[int, ...] = (0, 0, 0)
    gold = np.asarray([LABELS.index(work.index.pairs[seed].label) for seed in group.seeds])
    log_p: dict[tuple[str, str], NDArray[np.float32]] = {}
    seconds, shares = [], []
    accuracy = 0.0
    for draw in range(group.variants.shape[1]):
        before, start = _work_of(model), time.perf_counter()
        if draw == 0:
            texts = [work.seeds[seed] for seed in group.seeds]
            values = predict(model, texts)
            accuracy = 100 * float((values.argmax(axis=1) == gold).mean())
            log_p.update(zip(texts, values, strict=True))
        texts = [work.variants[row] for row in work.rows(group)[:, draw].ravel()]
        values = predict(model, texts)
        hits = (values.argmax(axis=1).reshape(len(gold), -1) == gold[:, None]).sum(axis=1)
        n = group.variants.shape[2]
        shares.append([float((100 * hits >= ct * n).mean()) for ct in range(5, 101, 5)])
        seconds.append(time.perf_counter() - start)
        done = tuple(map(sum, zip(done, _since(model, before), strict=True)))
        log_p.update(zip(texts, values, strict=True))
        curve = (100 * np.mean(shares, axis=0)).tolist()
        outcome = Outcome({group.name: [accuracy, *curve]}, log_p)
        yield Measured(outcome, seconds, sum(seconds), done)


def _plain_predict(model: Classifier, pairs: Texts) -> NDArray[np.float32]:
    """The loop of every tutorial: batches of 32 in the given order, padded to the longest."""
    import torch

    out = []
    with torch.inference_mode():
        for at in range(0, len(pairs), PLAIN_BATCH):
            batch = pairs[at : at + PLAIN_BATCH]
            inputs = model.tokenizer(
                [premise for premise, _ in batch],
                [hypothesis for _, hypothesis in batch],
                padding=True,
                truncation=True,
                return_tensors="pt",
            )
            mask = inputs["attention_mask"]
            model.work.count(len(batch), int(mask.sum()), mask.numel())
            logits = model.model(**inputs).logits
            out.append(torch.log_softmax(logits, dim=-1)[:, model.columns])
    return torch.cat(out).numpy()


# How they predict, and of how many groups: what batching brings is shown on the overall draws.
_PLAIN_WAYS: dict[str, tuple[Predict, int | None]] = {
    "plain": (_plain_predict, None),
    "plain, sorted": (lambda model, texts: model.predict(texts), 1),
}


def _compare(where: str, ours: Outcome, theirs: Outcome) -> float:
    """Greatest difference of log-probabilities; ends the script where a figure differs."""
    most = max(
        float(np.abs(ours.log_p[pair] - values).max()) for pair, values in theirs.log_p.items()
    )
    if most > CLOSE:
        sys.exit(f"PARITY FAILED: {where}: log-probabilities of a pair differ by {most:.1e}")
    for name, values in theirs.figures.items():
        if not np.allclose(values, ours.figures[name], rtol=0, atol=1e-9):
            sys.exit(f"PARITY FAILED: {where}: {name}: ours {ours.figures[name]}, plain {values}")
    return most


def _counts(work: Work, groups: Sequence[Group]) -> str:
    drawn = sum(group.variants.size for group in groups)
    rows = np.unique(np.concatenate([work.rows(group).ravel() for group in groups]))
    pairs = {work.variants[row] for row in rows}.union(work.seeds)
    by_group = ", ".join(f"{len(group.seeds)} {group.name}" for group in groups)
    return (
        f"seeds {by_group}; {drawn:,} drawn pairs, {len(pairs):,} distinct with the seeds "
        f"({drawn / len(pairs):.1f} times fewer)"
    )


def _work_of(model: Classifier) -> tuple[int, int, int]:
    return model.work.rows, model.work.forwards, model.work.padded


def _since(model: Classifier, before: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(now - then for now, then in zip(_work_of(model), before, strict=True))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="SICK.txt")
    parser.add_argument("--mlm", required=True, help="directory of a masked LM, for the variants")
    parser.add_argument("--model", required=True, help="directory of an NLI classifier")
    parser.add_argument("--pairs", type=int, default=100, help="first pairs of TEST (100)")
    parser.add_argument("--seeds", type=int, default=16, help="most eligible seeds (16)")
    parser.add_argument("--preset", default="faithful", choices=("faithful", "safe"))
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="torch threads (all cores)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="of ours, at least 5 (5)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
