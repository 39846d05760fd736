"""Dynamic evaluation: scored first, learned from then, and everything else as it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from triaxial.errors import InputError, StoreError
from triaxial.models import peak
from triaxial.models.base import hardware
from triaxial.models.causal import CausalLM, load_causal
from triaxial.models.fit import FitOptions
from triaxial.models.tiny import tiny_causal
from triaxial.models.transformer_xl import TransformerXL
from triaxial.models.xl_config import XLConfig, flops_per_token
from triaxial.temporal.chronology import Chronology
from triaxial.temporal.corpus import Document, month_of
from triaxial.temporal.dynamic import (
    Adapted,
    AdaptOptions,
    adapt,
    read_state,
    total_cost,
    write_state,
)
from triaxial.temporal.parameters import Flops, Weights, chosen_weights, flops_of
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.splits import Split
from triaxial.temporal.train import TrainOptions, train_language_model
from triaxial.temporal.tuning import Grid, choose
from triaxial.temporal.updates import (
    Statistics,
    Updater,
    gradient_statistics,
    read_statistics,
    write_statistics,
)
from triaxial.temporal.vocabulary import VocabularyOptions, train_vocabulary

DOCUMENTS = plant(PlantOptions(documents=96, months=24, sentences=2))[0]
IDS = tuple(document.id for document in DOCUMENTS)
SPLIT = Split("time-stratified", IDS[:40], (), IDS[40:])
LATER = DOCUMENTS[40:]
FEW = LATER[:3]
SEGMENT = 16
SHAPE = XLConfig(
    9, d_model=16, heads=2, layers=2, d_inner=32, segment=SEGMENT, memory_train=16, memory_test=32
)
SGD = AdaptOptions(0.3)
RMS = AdaptOptions(3e-3, rule="rms", decay=0.5)
KINDS = ["xl", "llama"]
Models = Callable[[str], CausalLM]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("models")
    train_vocabulary(DOCUMENTS, SPLIT, root / "vocabulary", VocabularyOptions(size=512))
    fit = FitOptions(max_steps=50, learning_rate=0.01)
    options = TrainOptions(model=SHAPE, rows=8, validation=0, fit=fit)
    train_language_model(
        DOCUMENTS, SPLIT, root / "vocabulary", root / "xl", options, where=hardware("cpu", "fp32")
    )
    words = sorted({word for document in DOCUMENTS for word in document.text.split()})
    tiny_causal(root / "llama", words[:200], hidden=16)
    return {kind: root / kind for kind in KINDS}


@pytest.fixture(scope="module")
def model(directories: dict[str, Path]) -> Models:
    """Models are as they were after every run, which is tested, so that all tests share them."""
    loaded = {kind: fresh(directories[kind]) for kind in KINDS}
    return loaded.__getitem__


@pytest.fixture(scope="module")
def statistics(model: Models) -> dict[str, Statistics]:
    return {kind: gradient_statistics(model(kind), DOCUMENTS[:5]) for kind in KINDS}


def fresh(directory: Path) -> CausalLM:
    windows = {} if directory.name == "xl" else {"window": 2 * SEGMENT, "stride": SEGMENT}
    return load_causal(str(directory), device="cpu", precision="fp32", **windows)


def words_of(shards: Sequence[Adapted] | Iterator[Adapted]) -> pl.DataFrame:
    return pl.concat([found.tables.words for found in shards])


def log_p(lm: CausalLM, documents: Sequence[Document], options: AdaptOptions, **more: Any) -> Any:
    return words_of(adapt(lm, documents, options, **more))["log_p"].to_numpy()


def per_word(
    lm: CausalLM, documents: Sequence[Document], options: AdaptOptions, **more: Any
) -> Any:
    return math.exp(-log_p(lm, documents, options, **more).mean(dtype=np.float64))


def static_of(options: AdaptOptions) -> AdaptOptions:
    return replace(options, learning_rate=0.0)


def naive(lm: CausalLM, documents: Sequence[Document], move: Any = None) -> list[np.ndarray]:
    """Log-probabilities of pieces and ends, step by step; `move(weight, gradient, name)`."""
    network = lm.network.eval()
    out = []
    for ids, _ in lm.encode([document.text for document in documents]):
        row = torch.tensor([[lm.start, *ids.tolist(), lm.end]])
        size, losses, memory, at, begin = row.shape[1] - 1, [], None, 0, 0
        while at < size:
            end = min(begin + (SEGMENT if lm.facts.get("memory") else 2 * SEGMENT), size)
            with torch.set_grad_enabled(move is not None):
                if isinstance(network, TransformerXL):
                    memory = memory or network.start(1, frozen=False)
                    some, memory = network(row[:, at:end], memory, row[:, at + 1 : end + 1])
                    some = some[0]
                else:
                    logits = network(input_ids=row[:, begin:end]).logits[0, at - begin :]
                    wanted = row[0, at + 1 : end + 1]
                    some = torch.nn.functional.cross_entropy(logits, wanted, reduction="none")
            losses.append(some.detach())
            if move is not None:
                named = dict(network.named_parameters())
                gradients = torch.autograd.grad(some.mean(), list(named.values()))
                with torch.no_grad():
                    for (name, weight), gradient in zip(named.items(), gradients, strict=True):
                        weight.copy_(move(weight, gradient, name))
            at, begin = end, begin + SEGMENT
        out.append(-torch.cat(losses).numpy())
    return out


def of_documents(shards: Sequence[Adapted]) -> list[float]:
    """Log-probability of each document, its end included."""
    tables = [found.tables.documents for found in shards]
    return [float(t["log_p"][n]) + float(t["end_log_p"][n]) for t in tables for n in range(len(t))]


# Static.


@pytest.mark.parametrize("kind", KINDS)
def test_learning_rate_0_is_static_bit_for_bit(model: Models, kind: str) -> None:
    lm = model(kind)
    static = words_of(adapt(lm, FEW, static_of(SGD)))
    # The whole way with gradients and updates, each too small to move a weight.
    assert words_of(adapt(lm, FEW, AdaptOptions(1e-30))).equals(static)
    scores = list(adapt(lm, FEW, static_of(SGD)))
    by_hand = naive(lm, FEW)
    np.testing.assert_allclose(of_documents(scores), [s.sum() for s in by_hand], rtol=1e-6)
    scored = lm.score([document.text for document in FEW])
    both = [float(s.log_p.sum() + s.end_log_p) for s in scored]
    np.testing.assert_allclose(of_documents(scores), both, rtol=1e-5)
    assert scores[0].cost.updates == 0


def test_static_scores_of_a_transformer_xl_are_those_of_its_plain_forward(model: Models) -> None:
    lm = model("xl")
    run = next(adapt(lm, FEW[:1], static_of(SGD)))
    (plain,) = naive(lm, FEW[:1])
    assert run.tables.documents["end_log_p"][0] == plain[-1]
    ones = run.tables.words.filter(pl.col("pieces") == 1)
    assert len(ones) > 5
    assert np.isin(ones["log_p"].to_numpy(), plain).all()


# Scored first.


def same_size(lm: CausalLM, text: str) -> str:
    """The text with another word in it, but as many pieces."""
    size = len(lm.encode([text])[0][0])
    words = text.split()
    for at in range(len(words) // 2, len(words)):
        for other in ("music", "markets", "paper", "Paris", "film"):
            changed = " ".join([*words[:at], other, *words[at + 1 :]])
            if changed != text and len(lm.encode([changed])[0][0]) == size:
                return changed
    raise AssertionError("no such word")


@pytest.mark.parametrize("options", [SGD, RMS], ids=["sgd", "rms"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_token_is_scored_by_weights_that_saw_it(
    model: Models, statistics: dict[str, Statistics], kind: str, options: AdaptOptions
) -> None:
    lm = model(kind)
    changed = replace(FEW[1], text=same_size(lm, FEW[1].text))
    one, other = (
        words_of(adapt(lm, documents, options, statistics=statistics[kind]))
        for documents in ((*FEW[:3],), (FEW[0], changed, FEW[2]))
    )
    text = pl.concat([one.select("text"), other.select(other="text")], how="horizontal")
    first = text.with_row_index().filter(pl.col("text") != pl.col("other"))["index"][0]
    document = one["document"].to_numpy()
    assert document[first] == changed.id
    same = (one["log_p"] == other["log_p"]).to_numpy()
    assert same[:first].all()  # also the words before it in its own step
    assert not same[document == FEW[2].id].any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_half_that_repeats_the_first_gains_and_the_first_does_not(
    model: Models, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    lm = model(kind)
    half = SEGMENT if kind == "xl" else 2 * SEGMENT  # the first step
    pieces = np.random.default_rng(1).integers(10, 200, half).astype(np.int32)
    ids = np.concatenate([pieces, pieces])
    offsets = np.asarray([[2 * n, 2 * n + 1] for n in range(len(ids))], dtype=np.int32)
    monkeypatch.setattr(lm, "encode", lambda texts: [(ids, offsets)])
    document = [Document("a", "2020-01", " ".join("x" * len(ids)), "made")]
    static, learned = (log_p(lm, document, options) for options in (static_of(SGD), SGD))
    assert (learned[:half] == static[:half]).all()
    assert learned[half:].mean() > static[half:].mean() + 0.1


def test_a_step_is_scored_once_and_then_learned_from(
    model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []

    def spied(what: str, function: Any) -> Any:
        def spy(*arguments: Any, **named: Any) -> Any:
            events.append(what)
            return function(*arguments, **named)

        return spy

    monkeypatch.setattr(TransformerXL, "_read", spied("read", TransformerXL._read))
    monkeypatch.setattr(Updater, "step", spied("update", Updater.step))
    lm = model("xl")
    cost = total_cost(found.cost for found in adapt(lm, FEW, SGD, shard=2))
    sizes = [len(ids) + 1 for ids, _ in lm.encode([document.text for document in FEW])]
    assert events == ["read", "update"] * sum(-(-size // SEGMENT) for size in sizes)
    assert (cost.documents, cost.tokens) == (len(FEW), sum(sizes))
    assert cost.updates == len(events) // 2
    assert cost.seconds > 0 < cost.tokens_per_second
    assert total_cost([]).tokens_per_second == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_host_reads_no_number_between_updates(model: Models, kind: str) -> None:
    # But for one that transformers reads itself in every forward, to look for packed rows.
    from torch.utils._python_dispatch import TorchDispatchMode

    class Waits(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(
            self, function: Any, types: Any, arguments: Any = (), named: Any = None
        ) -> Any:
            # What makes the host wait: a number, or a size that hangs on numbers.
            if function.overloadpacket in (
                torch.ops.aten._local_scalar_dense,
                torch.ops.aten.nonzero,
                torch.ops.aten.masked_select,
            ):
                self.count += 1
            return function(*arguments, **(named or {}))

    counts, updates = [], []
    for documents in (FEW[:1], FEW):
        shards = adapt(model(kind), documents, replace(SGD, streams=2))
        with Waits() as waits:
            torch.ones(1).item()
            updates.append(next(shards).cost.updates)
        counts.append(waits.count)
    own = updates[1] - updates[0] if kind == "llama" else 0
    assert updates[0] > 2
    assert 0 < counts[0] < 9 + (updates[0] if own else 0)
    assert counts[1] <= counts[0] + own


# Rules.


def test_the_rms_rule_by_hand_and_in_the_convention_of_sums() -> None:
    start, gradients = [1.0, -2.0], [[0.5, 0.1], [-0.2, 0.3]]
    squares, segments, rate, decay, epsilon = [0.04, 0.25], 7, 0.01, 0.4, 0.001
    named = {"a": torch.tensor(start[:1]), "b": torch.tensor(start[1:])}
    found = Weights(named, {name: weight.clone() for name, weight in named.items()})
    ss = {name: torch.tensor([s]) for name, s in zip(named, squares, strict=True)}
    rule = Updater(found, "rms", rate, decay, epsilon, Statistics(ss, segments, 1, "", "", "all"))
    sums, w = [s * segments for s in squares], list(start)
    for step, gradient in enumerate(gradients):
        for n in range(2):
            root, g = math.sqrt(squares[n]), gradient[n]
            new = w[n] - rate * g / (root + epsilon) + decay * root * (start[n] - w[n])
            # Krause sums: lr · √N, ε · √N and decay / √N of his are ours.
            root, scale = math.sqrt(sums[n]), math.sqrt(segments)
            his = rate * scale, epsilon * scale, decay / scale
            his_new = w[n] - his[0] * g / (root + his[1]) + his[2] * root * (start[n] - w[n])
            assert new == pytest.approx(his_new, rel=1e-12)
            if step == 0:  # w - w0 is exactly 0
                assert new == w[n] - rate * g / (math.sqrt(squares[n]) + epsilon)
            w[n] = new
        rule.step([torch.tensor([g]) for g in gradient])
        assert [float(x) for x in named.values()] == pytest.approx(w, rel=1e-6)
    assert rule.clipped == 0
    rule.step([None, None])  # decay alone
    assert float(named["a"]) == pytest.approx(w[0] + 0.4 * 0.2 * (start[0] - w[0]), rel=1e-6)


def test_decay_goes_no_further_than_back_and_says_where() -> None:
    named = {"a": torch.full((1000,), 3.0)}
    found = Weights(named, {"a": torch.ones(1000)})
    square = torch.full((1000,), 0.01)
    square[:5] = 16.0
    facts = Statistics({"a": square}, 1, 1, "", "", "all")
    rule = Updater(found, "rms", 0.1, 2.0, None, facts)
    rule.step([None])
    assert rule.clipped == 5
    # 2 · √16 would be 8 times the way, which is 1; 2 · √.01 is a fifth of it.
    assert named["a"][:5].tolist() == [1.0] * 5
    assert float(named["a"][9]) == pytest.approx(3 + 0.2 * (1 - 3))
    message = r"^decay: is 20, which puts 1,000 of 1,000 weights back .*; choose at most 10$"
    with pytest.raises(InputError, match=message):
        Updater(found, "rms", 0.1, 20.0, None, facts)


def test_epsilon_keeps_weights_without_statistics_from_wild_steps() -> None:
    named = {"a": torch.zeros(4)}
    square = torch.tensor([0.0, 4.0, 4.0, 4.0])  # mean root 1.5
    rule = Updater(
        Weights(named, {"a": torch.zeros(4)}), "rms", 0.1, 0, None,
        Statistics({"a": square}, 1, 1, "", "", "all"),
    )  # fmt: skip
    rule.step([torch.ones(4)])
    np.testing.assert_allclose(named["a"].numpy(), [-0.1 / 0.15, *[-0.1 / 2.15] * 3], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["sgd", "rms"])
def test_adapting_is_a_plain_loop(
    directories: dict[str, Path],
    model: Models,
    statistics: dict[str, Statistics],
    kind: str,
    name: str,
) -> None:
    options = SGD if name == "sgd" else replace(RMS, epsilon=0.01)
    lm = fresh(directories[kind])
    first = {n: w.detach().clone() for n, w in lm.network.named_parameters()}

    def move(w: torch.Tensor, g: torch.Tensor, name: str) -> torch.Tensor:
        if options.rule == "sgd":
            return w - options.learning_rate * g
        root = statistics[kind].squares[name].sqrt()
        back = (options.decay * root).clamp(max=1) * (first[name] - w)
        return w - options.learning_rate * g / (root + 0.01) + back

    wanted = [said.sum() for said in naive(lm, FEW, move)]
    found = of_documents(list(adapt(model(kind), FEW, options, statistics=statistics[kind])))
    np.testing.assert_allclose(found, wanted, rtol=2e-4)
    static = of_documents(list(adapt(model(kind), FEW, static_of(options))))
    assert abs(np.asarray(found) - static).max() > 0.5


# Statistics.


def test_statistics_are_means_over_segments_and_are_read_as_written(
    directories: dict[str, Path], statistics: dict[str, Statistics], tmp_path: Path
) -> None:
    lm = fresh(directories["xl"])
    sums: dict[str, torch.Tensor] = {}
    steps = []

    def add(w: torch.Tensor, g: torch.Tensor, name: str) -> torch.Tensor:
        sums[name] = sums.get(name, torch.zeros_like(w)) + g**2
        steps.append(name)
        return w.detach()

    naive(lm, DOCUMENTS[:5], add)
    found = statistics["xl"]
    assert found.segments == len(steps) / len(sums) > 15
    assert (found.documents, found.latest) == (5, DOCUMENTS[4].date)
    for name, square in found.squares.items():
        torch.testing.assert_close(square, sums[name] / found.segments, rtol=1e-3, atol=1e-9)
    path = tmp_path / "new" / "statistics.safetensors"
    write_statistics(path, found)
    again = read_statistics(path)
    assert replace(again, squares={}) == replace(found, squares={})
    assert all(torch.equal(again.squares[n], s) for n, s in found.squares.items())
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"holds no statistics \(another or damaged\); make it"):
        read_statistics(path)
    with pytest.raises(InputError, match=r"holds no state \(no such file\)"):
        read_state(tmp_path / "nothing")
    with pytest.raises(
        StoreError, match=r"cannot be written .*; make room or choose another place"
    ):
        write_statistics(path / "below", found)


# Parameters.


def moves(kind: str, parameters: str) -> Callable[[str], bool]:
    head, layer = ("embedding", "layers.1") if kind == "xl" else ("embed_tokens", "layers.1")
    return {
        "all": lambda name: True,
        "embeddings": lambda name: head in name or name.startswith("lm_head"),
        "output": lambda name: name.startswith(
            ("embedding", "output_bias") if kind == "xl" else "lm_head"
        ),
        "biases": lambda name: name.endswith("bias"),
        "lora-2": lambda name: False,
        "last-1": lambda name: layer in name,
    }[parameters]


SETS = ["all", "embeddings", "output", "biases", "lora-2", "last-1"]


@pytest.mark.parametrize("parameters", SETS)
@pytest.mark.parametrize("kind", KINDS)
def test_only_the_chosen_parameters_move(
    model: Models, statistics: dict[str, Statistics], kind: str, parameters: str
) -> None:
    lm = model(kind)
    if (kind, parameters) == ("llama", "biases"):
        with pytest.raises(
            InputError, match=r"^parameters: is 'biases', of which this model has n"
        ):
            next(adapt(lm, FEW, replace(SGD, parameters=parameters)))
        return
    network = lm.network
    before = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    shards = adapt(lm, FEW, replace(SGD, parameters=parameters), shard=1)
    found = next(shards)
    wanted = moves(kind, parameters)
    for name, weight in network.named_parameters():
        assert torch.equal(weight, before[name]) != wanted(name), name
        assert weight.requires_grad == wanted(name)
        assert weight.grad is None
    names = {name.removeprefix("weights.") for name in found.state.tensors}
    if parameters == "lora-2":
        assert names
        assert all(name.endswith(("lora_down", "lora_up")) for name in names)
        assert all(bool(tensor.any()) for tensor in found.state.tensors.values())
    else:
        assert names == {name for name in before if wanted(name)}
        assert found.cost.weights == sum(before[name].numel() for name in names)
    shards.close()
    assert all(torch.equal(weight, before[n]) for n, weight in network.named_parameters())
    assert all(weight.requires_grad for weight in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())
    learned = log_p(lm, FEW, replace(SGD, parameters=parameters))
    assert (learned != log_p(lm, FEW, static_of(SGD))).any()


def test_gradients_of_frozen_weights_are_not_computed(model: Models) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    lm = model("xl")
    network = lm.network
    ids = torch.randint(10, 300, (1, 256))
    layers = 2.0 * sum(w.numel() for w in network.layers.parameters() if w.ndim > 1)
    counted, saved = {}, {}
    for parameters in ("all", "embeddings", "biases", "output", "last-1"):
        size = 0

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal size
            size += tensor.numel()
            return tensor

        with (
            chosen_weights(network, parameters) as weights,
            FlopCounterMode(display=False) as counter,
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            mean, _, _ = network.loss(ids[:, :-1], ids[:, 1:])
            torch.autograd.grad(mean, weights.values)
        kinds = counter.get_flop_counts()["Global"]
        # Attention is batched products; all else is plain ones.
        plain = sum(n for kind, n in kinds.items() if "bmm" not in str(kind))
        counted[parameters], saved[parameters] = plain / 255, size
    # Layers: forward, gradients passed on, gradients of weights. Biases lack the last.
    assert counted["all"] - counted["biases"] == pytest.approx(layers, rel=0.01)
    assert counted["embeddings"] - counted["biases"] < layers / 2
    assert counted["all"] - counted["output"] > 1.7 * layers
    assert saved["output"] < saved["last-1"] < saved["biases"] < saved["all"]


def test_counted_flops(model: Models) -> None:
    lm = model("xl")
    network = lm.network
    config = network.config
    score, train = flops_per_token(config, 32)
    pairs = 32 + (SEGMENT + 1) / 2
    assert flops_of(network, None).of(1, pairs, 1) == score
    assert flops_of(network, "all").of(1, pairs, 1) == train
    assert flops_of(network, "last-2").token == flops_of(network, "all").token
    paper = TransformerXL(replace(config, d_model=256, layers=8, d_inner=1024), seed=None)
    every, biases = (flops_of(paper, parameters) for parameters in ("all", "biases"))
    assert biases.token / every.token == pytest.approx(2 / 3)
    assert biases.pair == every.pair
    static, output = flops_of(network, None), flops_of(network, "output")
    assert output == Flops(static.token, static.pair, 2 * static.target)
    # 20 targets in segments of 16 and 4: a token sees itself and all before it, at most 32.
    text = FEW[0].text
    ((ids, _),) = lm.encode([text])
    found = next(adapt(lm, [FEW[0]], static_of(SGD))).cost
    size = len(ids) + 1
    seen = [min(at // SEGMENT * SEGMENT, 32) + at % SEGMENT + 1 for at in range(size)]
    assert found.flops == pytest.approx(static.of(size, sum(seen), size))
    # Each linear of d x o has adapters of rank r, 6 r (d + o) FLOPs.
    lora = flops_of(network, "lora-3").token - flops_of(network, "biases").token
    assert lora == 6 * 3 * 2 * (3 * 32 + 48 + 2 * 48)


# Order, resets, streams.


def test_month_resets_bring_the_trained_weights_back(model: Models) -> None:
    lm = model("xl")
    documents = LATER[:9]
    months = [month_of(document.date) for document in documents]
    assert len(set(months)) > 2
    new = [n for n, month in enumerate(months) if n == 0 or month != months[n - 1]]
    assert len(new) < len(documents)
    monthly = replace(SGD, reset="month")
    runs = [words_of(adapt(lm, documents, o)) for o in (static_of(SGD), monthly, SGD)]
    for n, document in enumerate(documents):
        static, reset, never = (
            run.filter(pl.col("document") == document.id)["log_p"][0] for run in runs
        )
        assert (reset == static) == (n in new), n
        assert (never == static) == (n == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_streams_share_updates_and_shards_change_nothing(model: Models, kind: str) -> None:
    lm = model(kind)
    documents = LATER[:6]
    three = replace(SGD, streams=3, reset="month")
    whole = list(adapt(lm, documents, three))
    parts = list(adapt(lm, documents, three, shard=1))
    assert (len(whole), len(parts) > 2) == (1, True)
    assert words_of(parts).equals(words_of(whole))
    assert whole[0].tables.documents["document"].to_list() == [d.id for d in documents]
    one = total_cost(found.cost for found in adapt(lm, documents, replace(three, streams=1)))
    shared = total_cost(found.cost for found in parts)
    assert (shared.tokens, shared.flops) == (one.tokens, pytest.approx(one.flops))
    assert shared.updates < one.updates * 0.8
    # Side by side and padded, static scores are those of each alone.
    np.testing.assert_allclose(
        log_p(lm, documents, static_of(three)), log_p(lm, documents, static_of(SGD)), atol=1e-4
    )
    # The first three learn from each other's first step.
    apart = log_p(lm, documents[:3], replace(SGD, reset="never", streams=1))
    together = log_p(lm, documents[:3], replace(SGD, streams=3))
    assert (apart != together).any()


def test_a_document_remembers_those_before_it_only_where_asked(model: Models) -> None:
    # transformer-xl #25.
    lm = model("xl")
    static = static_of(SGD)
    apart, carried = (
        words_of(adapt(lm, FEW[:3], replace(static, borders=borders), shard=1))
        for borders in ("reset", "carry")
    )
    one = apart.filter(pl.col("document") == FEW[1].id)
    assert one.equals(words_of(adapt(lm, FEW[1:2], static)))
    changed = (apart["log_p"] != carried["log_p"]).to_numpy()
    first = (apart["document"] == FEW[0].id).to_numpy()
    assert not changed[first].any()
    assert changed[~first].any()


def test_empty_documents_are_scored_and_cost_their_end(
    model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = model("xl")
    documents = [replace(FEW[0], text=""), FEW[1], replace(FEW[2], text="")]
    for streams in (1, 3):
        (found,) = adapt(lm, documents, replace(SGD, streams=streams))
        assert found.tables.documents["words"].to_list()[::2] == [0, 0]
        assert found.tables.documents["end_log_p"].null_count() == 0
    monkeypatch.setattr(lm, "end", None)
    (found,) = adapt(lm, documents, SGD)
    assert found.tables.documents["end_log_p"].null_count() == 3
    assert found.cost.tokens == len(lm.encode([FEW[1].text])[0][0])
    (found,) = adapt(lm, documents[:1], SGD)
    assert found.cost.updates == 0


# Resume.


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("xl", {}),
        ("xl", {"rule": "rms", "learning_rate": 3e-3, "decay": 0.5, "borders": "carry"}),
        ("xl", {"parameters": "lora", "reset": "month"}),
        ("llama", {"streams": 2, "parameters": "embeddings", "reset": "month"}),
    ],
    ids=["sgd", "rms-carry", "lora-month", "llama-streams"],
)
def test_a_killed_run_ends_like_an_undisturbed_one(
    directories: dict[str, Path],
    model: Models,
    statistics: dict[str, Statistics],
    tmp_path: Path,
    kind: str,
    changes: dict[str, Any],
) -> None:
    options = replace(SGD, **changes)
    more = {"statistics": statistics[kind], "shard": 2}
    documents = LATER[:6]
    whole = list(adapt(model(kind), documents, options, **more))
    found = []
    path = tmp_path / "state.safetensors"
    for shard in adapt(model(kind), iter(documents), options, **more):
        found.append(shard)
        write_state(path, shard.state)
        if len(found) == 2:
            break
    lm = fresh(directories[kind])  # another process
    found += adapt(lm, iter(documents), options, state=read_state(path), **more)
    assert words_of(found).equals(words_of(whole))
    last = found[-1].state
    assert all(torch.equal(last.tensors[n], t) for n, t in whole[-1].state.tensors.items())
    assert replace(last, tensors={}) == replace(whole[-1].state, tensors={})
    assert list(adapt(lm, documents, options, state=last, **more)) == []


def test_a_state_is_for_the_same_run_and_documents(model: Models) -> None:
    lm = model("xl")
    state = next(adapt(lm, FEW, SGD, shard=2)).state
    with pytest.raises(InputError, match=r"^state: is of another model, or of other options"):
        adapt(lm, FEW, replace(SGD, learning_rate=0.2), state=state)
    message = r"^state: is of other documents; give the same ones from the first on"
    for others in ((FEW[0], *FEW[2:]), FEW[:1], (replace(FEW[0], text="x"), *FEW[1:])):
        with pytest.raises(InputError, match=message):
            next(adapt(lm, others, SGD, state=state))


# It learns, and is tuned honestly.


@pytest.mark.parametrize("parameters", ["all", "embeddings", "output", "biases", "lora"])
def test_adapting_helps_on_a_drifting_stream(
    model: Models, statistics: dict[str, Statistics], parameters: str
) -> None:
    lm = model("xl")
    options = replace(SGD, parameters=parameters, streams=4)
    static = per_word(lm, LATER[:32], static_of(options))
    assert per_word(lm, LATER[:32], options) < static * 0.99
    if parameters == "all":
        rms = replace(RMS, streams=4)
        assert per_word(lm, LATER[:32], rms, statistics=statistics["xl"]) < static * 0.99


def test_settings_are_chosen_on_validation_months_alone(
    model: Models, statistics: dict[str, Statistics]
) -> None:
    lm = model("xl")
    valid = LATER[:3]
    test = LATER[8].date[:7]
    options = replace(RMS, parameters="biases")
    told: list[int] = []
    grid = Grid((1e-3, 1e30, 1e-2), (0.0, 0.5))
    found = choose(
        lm, valid, grid, options, test_from=test, statistics=statistics["xl"], progress=told.append
    )
    assert [(row["learning_rate"], row["decay"]) for row in found.tried] == [
        (0, 0), (1e-3, 0), (1e-3, 0.5), (1e30, 0), (1e30, 0.5), (1e-2, 0), (1e-2, 0.5),
    ]  # fmt: skip
    figures = [row["per_word"] for row in found.tried]
    assert figures[3] == math.inf
    assert figures[0] == pytest.approx(per_word(lm, valid, static_of(options)))
    best = found.tried[int(np.argmin(figures))]
    assert found.options == replace(
        options, learning_rate=best["learning_rate"], decay=best["decay"]
    )
    assert best["learning_rate"] > 0
    assert found.edge == (best["learning_rate"] == 1e-3 or len({0.0, 0.5}) == 2)
    assert sum(told) >= 5 * len(valid)
    # Nothing is better than static: static it is.
    worse = choose(lm, valid, Grid((50.0,)), SGD, test_from=test)
    assert worse.options == static_of(SGD)
    assert not worse.edge
    message = rf"^validation: '{LATER[8].id}' is of {LATER[8].date}, in the test months from"
    with pytest.raises(InputError, match=message):
        choose(lm, LATER[:12], grid, SGD, test_from=test)
    with pytest.raises(InputError, match=r"^validation: no document with words; give documents of"):
        choose(lm, [], Grid((0.1,)), SGD, test_from=test)
    with pytest.raises(InputError, match=r"^grid: has no learning rate above 0 or no decay"):
        choose(lm, valid, Grid((0.0,)), SGD, test_from=test)


# Bad input.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"parameters": "norms"},
            r"^parameters: is 'norms'; it must be one of all, embeddings, ou",
        ),
        ({"parameters": "last-0"}, r"^parameters: is 'last-0'"),
        ({"rule": "adam"}, r"^rule: is 'adam'; it must be one of sgd, rms"),
        ({"learning_rate": -1.0}, r"^learning_rate: is -1.0; it must be 0 or more"),
        ({"learning_rate": math.nan}, r"^learning_rate: is nan"),
        ({"decay": 0.1}, r"^decay: is 0.1; it must be 0, or more for rms"),
        ({"rule": "rms", "decay": -1.0}, r"^decay: is -1.0"),
        ({"epsilon": 0.1}, r"^epsilon: is 0.1; it must be above 0, and for rms alone"),
        ({"reset": "year"}, r"^reset: is 'year'; it must be one of never, month"),
        ({"borders": "no"}, r"^borders: is 'no'; it must be one of carry, reset"),
        ({"streams": 0}, r"^streams: is 0; it must be at least 1"),
        ({"streams": 2, "borders": "carry"}, r"^borders: is 'carry', but documents side by side"),
        ({"rule": "rms", "parameters": "lora"}, r"^rule: is 'rms', but half of an adapter has no"),
    ],
)
def test_options_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SGD, **changes)


def test_what_does_not_fit(model: Models, statistics: dict[str, Statistics]) -> None:
    xl, llama = model("xl"), model("llama")
    facts = statistics["xl"]

    def refused(message: str, lm: CausalLM = xl, documents: Any = FEW, **changes: Any) -> None:
        more = {n: changes.pop(n) for n in ("statistics", "shard") if n in changes}
        with pytest.raises(InputError, match=message):
            next(adapt(lm, documents, replace(SGD, **changes), **more))

    refused(r"^shard: is 0; it must be at least 1", shard=0)
    refused(r"^parameters: is 'last-3'; this model has 2 layers", parameters="last-3")
    refused(r"^borders: is 'carry', and this model has no memory", llama, borders="carry")
    refused(
        r"^learning_rate: the loss is not finite with a learning rate of 1e\+30", learning_rate=1e30
    )
    order = rf"^documents: '{FEW[0].id}' of {FEW[0].date} comes after '{FEW[1].id}' of .*; sort the"
    refused(order, documents=[FEW[1], FEW[0]])
    refused(rf"^documents: '{FEW[0].id}' .* comes after", documents=[FEW[0], FEW[0]])
    refused(r"^statistics: the rms rule needs the squared gradients of training", rule="rms")
    refused(
        r"^decay: is 1e\+09, which puts .* choose at most", rule="rms", decay=1e9, statistics=facts
    )
    refused(r"^statistics: are of another model; make", llama, rule="rms", statistics=facts)
    fewer = replace(facts, squares={}, parameters="biases")
    refused(
        r"^statistics: are of the parameters 'biases', wanted 'all'", rule="rms", statistics=fewer
    )
    refused(
        r"^statistics: are of the parameters 'all', wanted 'output'",
        rule="rms", statistics=facts, parameters="output",
    )  # fmt: skip
    broken = replace(facts, squares=facts.squares | {"output_bias": torch.ones(3)})
    refused(r"^statistics: output_bias is of shape \(3,\), wanted", rule="rms", statistics=broken)
    with pytest.raises(InputError, match=r"^statistics: no document to read; give training"):
        gradient_statistics(xl, [])
    with pytest.raises(InputError, match=r"^parameters: adapters have no statistics before"):
        gradient_statistics(xl, FEW, "lora")


def test_a_date_of_a_month_stands_before_its_days() -> None:
    dates = ["2020-01", "2020-01-01", "2020-01-01", "2020-02"]
    documents = [Document(str(n), date, "", "") for n, date in enumerate(dates)]
    shards = list(Chronology(documents).shards(2, 2, by_month=True))
    assert [[[d.id for d in some] for some in shard] for shard in shards] == [
        [["0", "1"]], [["2"], ["3"]],
    ]  # fmt: skip


def test_layers_that_cannot_be_found() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "vocab_size": 9}
    network = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, **sizes))
    network.config.num_hidden_layers = 3
    with pytest.raises(InputError, match=r"^model: the layers of a LlamaForCausalLM cannot be f"):
        flops_of(network, "all")


def test_peak_memory_is_told(model: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    assert next(adapt(model("xl"), FEW[:1], SGD)).cost.peak_bytes > 2**26
    monkeypatch.setattr(peak, "Path", lambda _: Path("/no/such/file"))
    assert next(adapt(model("xl"), FEW[:1], SGD)).cost.peak_bytes == 0
