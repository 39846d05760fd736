"""Causal LMs: every token once, the same numbers as a naive loop, whatever the batch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from triaxial.errors import InputError
from triaxial.models import causal_readers
from triaxial.models.causal import CausalLM, DocumentScore, load_causal
from triaxial.models.causal_readers import Output, window_spans
from triaxial.models.tiny import tiny_causal
from triaxial.models.transformer_xl import TransformerXL, XLConfig
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.splits import Split
from triaxial.temporal.vocabulary import VocabularyOptions, train_vocabulary

TEXT = "A man is playing a guitar in the park . The dogs sleep , café naïve !"
TEXTS = [
    "A man is playing a guitar in the park.",
    "",
    "The",
    "The dogs sleep, the dogs sleep, and a man sleeps in a naïve café near the old park!",
    "x",
    "A cafe\u0301 ☃☃ 男人 in the park.\n\nThe end",
    "The dogs sleep.",
]
LONGEST = 128
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "max_position_embeddings": LONGEST, "initializer_range": 0.2}
LLAMA = {"model_type": "llama", **SIZES, **HEADS}


def tokenizer_of(kind: str, directory: Path) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if kind == "unigram":
        documents = plant(PlantOptions(documents=96))[0]
        split = Split("s", tuple(document.id for document in documents), (), ())
        # Its alphabet is ASCII: all else becomes bytes.
        train_vocabulary(documents, split, directory, VocabularyOptions(size=512))
        return PreTrainedTokenizerFast.from_pretrained(directory)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted({*TEXT.lower().split(), *"abcdehnxs"})]
    pieces += [f"##{letter}" for letter in "abcdefghilmnoprst"]
    model = models.WordPiece({p: n for n, p in enumerate(dict.fromkeys(pieces))}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = {"unk_token": "[UNK]", "cls_token": "[CLS]", "pad_token": "[PAD]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **marks)


def write(directory: Path, kind: str, config: dict[str, Any]) -> Path:
    """A random model of an architecture with a tokenizer of a kind."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    tokenizer = tokenizer_of(kind, directory)
    marks = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    settled = AutoConfig.for_model(**config, vocab_size=len(tokenizer), pad_token_id=None, **marks)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(settled)
    logging.disable_progress_bar()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


Make = Callable[[str], Path]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Directory of a model by name."""
    torch.set_num_threads(1)
    gpt = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": LONGEST}
    gemma = {**SIZES, **HEADS, "model_type": "gemma2", "final_logit_softcapping": 2.0}
    gemma |= {"num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8}
    opt = {**HEADS, "model_type": "opt", "hidden_size": 16, "ffn_dim": 32, "word_embed_proj_dim": 8}
    kinds = {
        "wordpiece": ("wordpiece", {**gpt, "initializer_range": 0.2}),
        "unigram": ("unigram", LLAMA),
        "capped": ("unigram", gemma),
        "projected": ("unigram", {**opt, "num_hidden_layers": 1, "init_std": 0.2}),
        "transformed": ("wordpiece", {"model_type": "bert", **SIZES, **HEADS, "is_decoder": True}),
        "looks_ahead": ("wordpiece", {"model_type": "bert", **SIZES, **HEADS}),
    }
    done: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in done:
            directory = tmp_path_factory.mktemp(name)
            if name == "bpe":
                tiny_causal(directory, TEXT.split(), hidden=16)
            elif name == "xl":
                tokenizer = tokenizer_of("unigram", directory)
                TransformerXL(xl_config(len(tokenizer))).save(directory)
            else:
                write(directory, *kinds[name])
            done[name] = directory
        return done[name]

    return make


def xl_config(size: int, **changes: Any) -> XLConfig:
    shape = {"d_model": 16, "heads": 2, "layers": 2, "d_inner": 32}
    return XLConfig(
        size, **{**shape, "segment": 8, "memory_train": 8, "memory_test": 256, **changes}
    )


def load(directory: Path, **options: Any) -> CausalLM:
    if "wordpiece" in directory.name or "transformed" in directory.name:
        options.setdefault("separator", "[CLS]")
    return load_causal(str(directory), device="cpu", precision="fp32", **options)


def naive(lm: CausalLM, text: str, window: int = LONGEST, stride: int = 1) -> list[np.ndarray]:
    """One text alone with all logits: log-probabilities of its pieces, and of the end."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(lm.checkpoint.path).eval()
    tokens = lm.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    row = [lm.start, *tokens, *([] if lm.end is None else [lm.end])]
    out: list[float] = []
    begin = 0
    while len(out) < len(row) - 1:
        part = row[begin : begin + window]
        with torch.no_grad():
            log_p = model(torch.tensor([part])).logits[0].log_softmax(-1)
        for at in range(len(out), min(begin + window, len(row) - 1)):
            out.append(float(log_p[at - begin, row[at + 1]]))
        begin += stride
    return [np.asarray(out[: len(tokens)]), np.asarray(out[len(tokens) :])]


def same(one: Sequence[DocumentScore], other: Sequence[DocumentScore]) -> None:
    for a, b in zip(one, other, strict=True):
        assert a.ids.tolist() == b.ids.tolist()
        assert a.offsets.tolist() == b.offsets.tolist()
        assert_allclose(a.log_p, b.log_p, atol=1e-4)
        assert (a.end_log_p is None) == (b.end_log_p is None)
        if a.end_log_p is not None:
            assert a.end_log_p == pytest.approx(b.end_log_p, abs=1e-4)


# Every token once.


@pytest.mark.parametrize("budget", [16, 4096])
@pytest.mark.parametrize(
    "name", ["bpe", "unigram", "wordpiece", "capped", "projected", "transformed"]
)
def test_scores_are_those_of_each_document_alone(made: Make, name: str, budget: int) -> None:
    lm = load(made(name), token_budget=budget)
    scores = lm.score(TEXTS)
    for text, score in zip(TEXTS, scores, strict=True):
        log_p, end = naive(lm, text)
        assert len(score.ids) == len(score.log_p) == len(score.offsets) == len(log_p)
        assert_allclose(score.log_p, log_p, atol=1e-4)
        assert score.end_log_p == pytest.approx(float(end[0]), abs=1e-4)
    if budget > 1000:  # one batch: padded, but nothing of the padding is scored
        assert lm.work.forwards == 1
        assert lm.work.padded > lm.work.tokens == sum(len(s.ids) + 1 for s in scores)


@pytest.mark.parametrize(("window", "stride"), [(8, 8), (8, 3), (5, 1)])
def test_windows_score_each_token_once_with_the_context_they_state(
    made: Make, window: int, stride: int
) -> None:
    lm = load(made("bpe"), window=window, stride=stride)
    assert (lm.facts["window"], lm.facts["stride"]) == (window, stride)
    for text, score in zip(TEXTS, lm.score(TEXTS), strict=True):
        log_p, end = naive(lm, text, window, stride)
        assert_allclose(score.log_p, log_p, atol=1e-4)
        assert score.end_log_p == pytest.approx(float(end[0]), abs=1e-4)


def test_the_window_matters_to_long_documents_alone_and_enters_the_fingerprint(made: Make) -> None:
    # lm-evaluation-harness #2467: perplexity depends on a window that nobody stated.
    whole, short = load(made("bpe")), load(made("bpe"), window=8)
    assert whole.fingerprint != short.fingerprint
    assert (short.fingerprint["window"], short.fingerprint["stride"]) == ("8", "4")
    text = TEXTS[0]
    pieces = len(whole.score([text])[0].ids)
    for window in (pieces, pieces + 1, pieces + 2):  # exactly the window, or less
        exact = load(made("bpe"), window=window, stride=window)
        assert_allclose(exact.score([text])[0].log_p, whole.score([text])[0].log_p, atol=1e-4)
    assert abs(short.score([text])[0].log_p[-1] - whole.score([text])[0].log_p[-1]) > 1e-3


@given(st.integers(0, 60), st.integers(1, 20), st.data())
def test_spans_hold_every_target_once(targets: int, window: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, window))
    seen: list[int] = []
    for begin, end, first in window_spans(targets, window, stride):
        assert begin <= first < end <= min(begin + window, targets)
        assert begin == 0 or first - begin >= window - stride
        seen += range(first, end)
    assert seen == list(range(targets))


@pytest.mark.parametrize("budget", [8, 4096])
@pytest.mark.parametrize("memory", [4, 256])
def test_a_transformer_xl_carries_its_memory_through_a_document_and_not_beyond(
    made: Make, memory: int, budget: int
) -> None:
    lm = load(made("xl"), memory=memory, token_budget=budget)
    model = TransformerXL(xl_config(len(lm.tokenizer), memory_test=memory)).eval()
    scores = lm.score(TEXTS)
    for score in scores:
        row = torch.tensor([[lm.start, *score.ids.tolist(), lm.end]])
        losses, state = [], model.start(1, frozen=False)
        step = 8 if memory == 4 else row.shape[1]  # all at once where all is remembered
        for at in range(0, row.shape[1] - 1, step):
            part = slice(at, min(at + step, row.shape[1] - 1))
            after = slice(part.start + 1, part.stop + 1)
            with torch.no_grad():
                some, state = model(row[:, part], state, row[:, after])
            losses.append(some[0])
        wanted = -torch.cat(losses).numpy()
        assert_allclose([*score.log_p, score.end_log_p], wanted, atol=1e-4)
    same(lm.score(TEXTS[::-1])[::-1], scores)  # transformer-xl #25
    assert isinstance(lm.network, TransformerXL)
    assert lm.facts["memory"] == memory
    assert lm.facts["segment"] == 8


def test_rows_that_are_done_leave_the_batch(made: Make) -> None:
    lm = load(made("xl"), token_budget=4096)
    lm.score([TEXTS[3], TEXTS[0]])
    rows = [len(score.ids) + 1 for score in lm.score([TEXTS[3], TEXTS[0]])]
    assert rows[0] > rows[1] + 8
    assert lm.work.padded == 2 * (rows[0] + -(-rows[1] // 8) * 8)


# Marks.


def test_the_start_mark_comes_once_and_is_not_the_end_mark(made: Make) -> None:
    # lm-evaluation-harness #3333 (twice: its tokenizer adds one itself) and #1586 (EOS for BOS).
    lm = load(made("bpe"))
    assert lm.tokenizer("The")["input_ids"][0] == lm.start == lm.tokenizer.bos_token_id
    assert lm.end == lm.tokenizer.eos_token_id != lm.start
    assert lm.start not in lm.score(["The dogs"])[0].ids


@pytest.mark.parametrize("name", ["bpe", "unigram", "xl"])
def test_text_that_looks_like_a_mark_is_text(made: Make, name: str) -> None:
    lm = load(made(name))
    score = lm.score(["<s>The</s> <unk> <0x41>"])[0]
    assert lm.start not in score.ids
    assert score.unknown == 0
    assert len(score.ids) > 10


def test_a_tokenizer_without_start_mark_needs_a_separator(made: Make) -> None:
    name = str(made("wordpiece"))
    with pytest.raises(InputError, match=r"no start mark \(BOS\).* as separator, such as one of"):
        load_causal(name, device="cpu")
    with pytest.raises(InputError, match=r"no token '<doc>'; name one of its own"):
        load_causal(name, device="cpu", separator="<doc>")
    lm = load_causal(name, device="cpu", separator="[SEP]")
    assert lm.start == lm.end == lm.tokenizer.sep_token_id


def test_a_model_without_an_end_has_no_end_score(made: Make, tmp_path: Path) -> None:
    shutil.copytree(made("bpe"), tmp_path, dirs_exist_ok=True)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token": None}))
    scores = load(tmp_path).score(TEXTS)
    assert {score.end_log_p for score in scores} == {None}
    assert scores[1].log_p.shape == (0,)
    assert scores[1].offsets.shape == (0, 2)
    for one, other in zip(scores, load(made("bpe")).score(TEXTS), strict=True):
        assert_allclose(one.log_p, other.log_p, atol=1e-4)


# Pieces and characters.


def test_unknown_characters_are_counted(made: Make) -> None:
    # llama.cpp #28862: a run of them is one piece, so the number of pieces says nothing.
    lm = load(made("wordpiece"))
    scores = lm.score(["the ☃☃☃☃ dogs 男人", "the dogs"])
    assert [score.unknown for score in scores] == [3, 0]  # 男 and 人 are words to it


@pytest.mark.parametrize("name", ["bpe", "unigram", "xl"])
def test_every_byte_has_its_own_character(made: Make, name: str) -> None:
    text = "the cafe\u0301 ☃男☃x 👩\u200d👧 dogs"
    score = load(made(name)).score([text])[0]
    assert score.unknown == 0
    wide = [(s, e) for s, e in score.offsets.tolist() if not text[s:e].strip().isascii()]
    assert wide
    assert all(len(text[start:end].strip()) == 1 for start, end in wide)
    for at, character in enumerate(text):
        if not character.isascii():
            assert wide.count((at, at + 1)) >= 1
    # Each byte of three is a piece.
    assert sum(text[s:e].strip() == "男" for s, e in score.offsets.tolist()) == 3


def test_offsets_are_characters_of_the_text(made: Make) -> None:
    lm = load(made("bpe"))
    for text, score in zip(TEXTS, lm.score(TEXTS), strict=True):
        covered = {at for start, end in score.offsets.tolist() for at in range(start, end)}
        assert covered == set(range(len(text)))


# How it is computed.


def test_the_output_layer_is_found_whatever_it_is(made: Make) -> None:
    kinds = {"bpe": True, "projected": True, "capped": False, "transformed": False}
    for name, linear in kinds.items():
        reader: Any = load(made(name))._reader
        assert (reader._output.head is not None) == linear, name
        assert reader._output.by_part, name


def test_logits_are_never_held(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    # llama.cpp #28733. A plain output layer is not called at all, another one in small parts.
    lm: Any = load(made("bpe"))
    lm._reader._output.head.register_forward_pre_hook(lambda *_: pytest.fail("all logits"))
    lm.score(TEXTS)
    capped: Any = load(made("capped"))
    wanted = capped.score(TEXTS)
    most: list[int] = []
    capped._reader.model.lm_head.register_forward_hook(lambda *a: most.append(a[2].numel()))
    monkeypatch.setattr(causal_readers, "_MOST_LOGITS", 5 * 512)
    same(capped.score(TEXTS), wanted)
    assert max(most) <= 5 * 512


def test_a_model_that_must_be_run_whole_gives_the_same(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = load(made("capped")).score(TEXTS)
    monkeypatch.setattr(Output, "_works_by_part", lambda _: False)
    same(load(made("capped")).score(TEXTS), wanted)


@pytest.mark.parametrize("name", ["bpe", "xl"])
def test_memory_that_runs_out_changes_nothing(
    made: Make, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm: Any = load(made(name))
    wanted = lm.score(TEXTS)
    read, told = lm._reader._read, []

    def narrow(rows: Any, *rest: Any) -> Any:
        if len(rows) > 2:
            raise MemoryError
        return read(rows, *rest)

    monkeypatch.setattr(lm._reader, "_read", narrow)
    same(lm.score(TEXTS, told.append), wanted)
    assert sum(told) == len(TEXTS)


def test_nothing_to_score(made: Make) -> None:
    for name in ("bpe", "xl"):
        assert load(made(name)).score([]) == []


# What is refused.


def test_a_model_that_looks_ahead_is_refused(made: Make) -> None:
    with pytest.raises(InputError, match="no causal language model as it is configured"):
        load(made("looks_ahead"), separator="[CLS]")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bpe", {"memory": 8}, r"^memory: this model has windows and no memory; pass window"),
        ("bpe", {"window": 129}, r"^window: is 129; .* takes 1 to 128 tokens"),
        ("bpe", {"window": 8, "stride": 9}, r"^stride: is 9; it must be 1 to 8, the window"),
        (
            "xl",
            {"window": 8},
            r"^window, stride: a Transformer-XL has a memory in place of windows",
        ),
    ],
)
def test_options_that_do_not_fit(
    made: Make, name: str, options: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(made(name), **options)


def test_a_tokenizer_of_another_model(made: Make, tmp_path: Path) -> None:
    shutil.copytree(made("xl"), tmp_path, dirs_exist_ok=True)
    TransformerXL(xl_config(100)).save(tmp_path)
    with pytest.raises(InputError, match="pieces up to 511, the model 100 pieces; use the tok"):
        load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="no tokenizer can be loaded"):
        load(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"no tokenizer\.json; save the tokenizer beside"):
        load(tmp_path)
