"""LLMs as NLI models: the same log-likelihoods as one plain forward for every answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from triaxial.errors import InputError
from triaxial.models import choice_scores
from triaxial.models.choice import ChoiceModel, fingerprint_of, load_choice
from triaxial.models.choice_scores import common_start
from triaxial.models.tiny import tiny_causal
from triaxial.nli import LABELS, Pair
from triaxial.prompts import ChoiceOptions, PromptOptions, answers, messages, prefix, question

LONGEST = 400
PAIRS = [
    ("A man is playing a guitar in the park.", "A man plays."),
    ("The dogs sleep.", "The dogs are not asleep."),
    ("A man is playing a guitar.", "Nobody sleeps in a naïve café near the old park!"),
    ("The dogs sleep.", "The dogs sleep."),
    ("", "x"),
]
SHOTS = tuple(
    Pair(f"e{n}", f"The {thing} sleeps in the park.", f"A {thing} sleeps.", label)
    for n, (thing, label) in enumerate(zip(("dog", "man", "cat"), LABELS, strict=True))
)
CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>\n{% endif %}"
)
# Enough of the words whole that prompts stay short; "contradiction" and the rest fall into bytes.
WORDS = [*prefix(PromptOptions(examples=SHOTS)).split(), *PAIRS[0][0].split(), "entailment"]
WORDS = [word for word in WORDS if "contra" not in word]
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": LONGEST},
    # Windows shorter than the examples; in gemma2 every other layer has one, and logits are capped.
    "mistral": {**SIZES, "num_key_value_heads": 1, "intermediate_size": 32, "sliding_window": 9},
    "gemma2": {**SIZES, "num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8}
    | {"intermediate_size": 32, "sliding_window": 9, "final_logit_softcapping": 2.0},
    "bloom": {"hidden_size": 16, "n_layer": 2, "n_head": 2},
    "mamba": {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
    "bert": {**SIZES, "intermediate_size": 32},
}
Make = Callable[[str], Path]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Directory of a random model by architecture; all with the tokenizer of `tiny_causal`."""
    torch.set_num_threads(1)
    llama = tiny_causal(tmp_path_factory.mktemp("llama"), WORDS, hidden=16, longest=LONGEST)
    done = {"llama": llama}

    def make(kind: str) -> Path:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        if kind not in done:
            directory = tmp_path_factory.mktemp(kind)
            tokenizer = AutoTokenizer.from_pretrained(llama)
            if kind == "gpt2":  # GPT-2 puts no start mark
                tokenizer.backend_tokenizer.post_processor = None
            more: dict[str, Any] = {"vocab_size": len(tokenizer), "pad_token_id": None}
            more |= {"max_position_embeddings": LONGEST} if "hidden_size" in KINDS[kind] else {}
            config = AutoConfig.for_model(kind, initializer_range=0.2, **KINDS[kind] | more)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(1)
                AutoModelForCausalLM.from_config(config).save_pretrained(directory)
            tokenizer.save_pretrained(directory)
            done[kind] = directory
        return done[kind]

    return make


def load(directory: Path, options: ChoiceOptions | None = None, **given: Any) -> ChoiceModel:
    return load_choice(str(directory), options=options, device="cpu", precision="fp32", **given)


def asked(style: Any, *, shots: bool = True, **more: Any) -> ChoiceOptions:
    return ChoiceOptions(PromptOptions(style, examples=SHOTS if shots else ()), **more)


def plainly(directory: Path, options: ChoiceOptions, pairs: Any) -> np.ndarray[Any, Any]:
    """One forward for each answer, as lm-evaluation-harness tokenizes: the naive version."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    out = []
    for premise, hypothesis in pairs:
        prompt, gap = prefix(options.prompt) + question(options.prompt, premise, hypothesis), " "
        if options.chat:
            told = messages(options.prompt, premise, hypothesis)
            gap = ""
            prompt = tokenizer.apply_chat_template(told, tokenize=False, add_generation_prompt=True)
        special = {"add_special_tokens": not prompt.startswith("<s>")}
        context = tokenizer(prompt.rstrip(), **special)["input_ids"]
        for answer in answers(options.prompt):
            whole = tokenizer(prompt + gap + answer, **special)["input_ids"]
            row = context + whole[len(context) :]
            with torch.inference_mode():
                log_p = model(torch.tensor([row[:-1]]), use_cache=False).logits[0].log_softmax(-1)
            tail = range(len(context), len(row))
            out.append(sum(float(log_p[at - 1, row[at]]) for at in tail))
    return np.asarray(out).reshape(-1, 3)


@pytest.mark.parametrize("style", ["letters", "words"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "gemma2", "bloom", "mamba"])
def test_log_likelihoods_are_those_of_plain_forwards(made: Make, kind: str, style: str) -> None:
    options = asked(style)
    wanted = plainly(made(kind), options, PAIRS)
    model = load(made(kind), options)
    assert_allclose(model.log_likelihoods(PAIRS), wanted, atol=1e-4)
    # The second call finds keys and values unharmed, and other pairs share another beginning.
    assert_allclose(model.log_likelihoods(PAIRS[:1]), wanted[:1], atol=1e-4)
    assert_allclose(model.log_likelihoods(PAIRS), wanted, atol=1e-4)
    assert model.facts["reuse"] == (kind != "mamba")
    # One question at a time, and without reuse.
    small = load(made(kind), options, token_budget=16, reuse=False)
    assert_allclose(small.log_likelihoods(PAIRS), wanted, atol=1e-4)
    assert not small.facts["reuse"]


@pytest.mark.parametrize("style", ["letters", "words"])
def test_the_examples_are_read_once(made: Make, style: str) -> None:
    model = load(made("llama"), asked(style))
    whole = load(made("llama"), asked(style), reuse=False)
    model.predict(PAIRS)
    whole.predict(PAIRS)
    questions = model._questions(PAIRS)
    shared = common_start([one.context for one in questions])
    rest = sum(len(one.context) - shared for one in questions)
    tails = sum(len(answer) - 1 for one in questions for answer in one.answers)
    assert shared > 100
    assert model.work.tokens == shared + rest + tails
    assert whole.work.tokens > 5 * shared
    # Batches that are too large for their keys and values are cut.
    assert model._scorer._key_bytes == 2 * 2 * 16 * 4  # keys, values; layers; width; fp32


def test_keys_that_do_not_fit_are_held_for_fewer_rows(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(made("llama"), asked("letters"))
    wanted = model.predict(PAIRS)
    before = model.work.forwards
    monkeypatch.setitem(choice_scores._MOST_KEYS, "cpu", 1)
    assert_allclose(model.predict(PAIRS), wanted, atol=1e-5)
    assert model.work.forwards == before + 1 + len(PAIRS)


def test_memory_that_runs_out_changes_nothing(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for reuse in (True, False):
        model = load(made("llama"), asked("words"), reuse=reuse, token_budget=10_000)
        wanted = model.log_likelihoods(PAIRS)
        read = model._scorer._read

        def tight(rows: Any, *more: Any, read: Any = read) -> Any:
            if len(rows) > 1:
                raise torch.OutOfMemoryError
            return read(rows, *more)

        monkeypatch.setattr(model._scorer, "_read", tight)
        assert_allclose(model.log_likelihoods(PAIRS), wanted, atol=1e-5)


def test_probabilities_by_hand(made: Make) -> None:
    options = asked("words", shots=False)
    raw = plainly(made("llama"), options, PAIRS)
    plain = load(made("llama"), options).predict(PAIRS)
    assert_allclose(np.exp(plain).sum(1), 1, atol=1e-5)
    assert_allclose(plain, log_softmax(raw), atol=1e-4)
    by_bytes = load(made("llama"), replace(options, normalize="bytes")).predict(PAIRS)
    # entailment, neutral, contradiction have 10, 7 and 13 letters
    assert_allclose(by_bytes, log_softmax(raw / [10, 7, 13]), atol=1e-4)
    by_tokens = load(made("llama"), replace(options, normalize="tokens"))
    sizes = [len(answer) for answer in by_tokens._questions(PAIRS)[0].answers]
    assert len(set(sizes)) > 1
    assert_allclose(by_tokens.predict(PAIRS), log_softmax(raw / sizes), atol=1e-4)
    calibrated = load(made("llama"), replace(options, calibrate=True)).predict(PAIRS)
    free = plainly(made("llama"), options, [("N/A", "N/A"), ("[MASK]", "[MASK]"), ("", "")])
    bias = np.exp(log_softmax(free)).mean(0)
    ratio = np.exp(log_softmax(raw)) / bias
    assert_allclose(np.exp(calibrated), ratio / ratio.sum(1, keepdims=True), atol=1e-4)


def log_softmax(scores: Any) -> Any:
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))


def test_each_distinct_pair_is_computed_once_and_told(made: Make) -> None:
    for reuse in (True, False):
        model = load(made("llama"), asked("words"), reuse=reuse)
        told: list[int] = []
        twice = model.predict([*PAIRS, *PAIRS[::-1]], told.append)
        assert_allclose(twice[: len(PAIRS)], twice[: len(PAIRS) - 1 : -1])
        assert sum(told) == len(PAIRS)
    assert model.predict([]).shape == (0, 3)


def test_a_chat_begins_with_one_start_mark_and_answers_without_a_blank(
    made: Make, tmp_path: Path
) -> None:
    directory = chatting(made("llama"), tmp_path / "chat", CHAT)
    for style in ("letters", "words"):
        options = asked(style, chat=True)
        model = load(directory, options)
        contexts = [one.context for one in model._questions(PAIRS)]
        bos = model._asker.tokenizer.bos_token_id
        assert all(row.count(bos) == 1 and row[0] == bos for row in contexts)
        wanted = plainly(directory, options, PAIRS)
        assert_allclose(model.log_likelihoods(PAIRS), wanted, atol=1e-4)
    assert not np.allclose(wanted, plainly(directory, asked("words"), PAIRS))


def chatting(source: Path, directory: Path, template: str) -> Path:
    shutil.copytree(source, directory)
    (directory / "chat_template.jinja").write_text(template)
    return directory


def test_a_fingerprint_holds_what_decides_the_numbers(made: Make, tmp_path: Path) -> None:
    base = asked("letters")
    chat = chatting(made("llama"), tmp_path / "chat", CHAT)
    other = chatting(made("llama"), tmp_path / "other", CHAT + " ")
    flipped = PromptOptions("letters", examples=SHOTS[::-1])
    models = [
        (made("llama"), base),
        (made("gpt2"), base),
        (made("llama"), asked("words")),
        (made("llama"), asked("letters", shots=False)),
        (made("llama"), ChoiceOptions(flipped)),
        (made("llama"), ChoiceOptions(replace(base.prompt, instruction="Decide."))),
        (made("llama"), replace(base, normalize="tokens")),
        (made("llama"), replace(base, normalize="bytes")),
        (made("llama"), replace(base, calibrate=True)),
        (chat, replace(base, chat=True)),
        (other, replace(base, chat=True)),
    ]
    prints = [
        fingerprint_of(str(path), options, precision="fp32", device="cpu")
        for path, options in models
    ]
    assert len({str(sorted(one.items())) for one in prints}) == len(models)
    assert all(isinstance(value, str) for one in prints for value in one.values())
    assert load(made("llama"), base).fingerprint == prints[0]
    assert prints[0]["bos"] == "once"
    assert prints[1]["bos"] == "none"


def test_prompts_that_are_too_long_are_refused_and_counted(made: Make) -> None:
    model = load(made("llama"), asked("letters"))
    long = ("word " * LONGEST, "A man sleeps.")
    with pytest.raises(InputError) as error:
        model.predict([*PAIRS, long, (long[0], "x")])
    assert str(error.value).startswith(
        f"{model.name}: 2 of 7 prompts are longer than the 400 tokens that it takes, the first of "
    )
    assert "'word word" in str(error.value)
    assert str(error.value).endswith("show fewer or shorter examples")


def test_models_and_options_that_cannot_be_used(made: Make, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"its tokenizer has no chat template; ask without one"):
        load(made("llama"), asked("letters", chat=True))
    with pytest.raises(InputError, match=r"its predictions change with later tokens"):
        load(made("bert"))
    refusing = "{{ raise_exception('System role not supported') }}"
    directory = chatting(made("llama"), tmp_path / "chat", refusing)
    with pytest.raises(InputError, match=r"refuses the prompt \(System role not supported\); an"):
        load(directory, asked("letters", chat=True))


def test_what_rows_have_in_common() -> None:
    assert common_start([]) == 0
    assert common_start([[1, 2, 3]]) == 2  # one is left over
    assert common_start([[1, 2, 3], [1, 2, 3]]) == 2
    assert common_start([[1, 2, 3], [1, 2], [1, 5, 0]]) == 1
    assert common_start([[1], [1, 2]]) == 0
