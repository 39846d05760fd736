"""Masked LMs: what is a word, what is one token, and the same numbers as a naive loop."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from triaxial.errors import InputError
from triaxial.models import base
from triaxial.models.masked import Fill, MaskedLM, MaskedTokenizer, Place, Query, load_masked
from triaxial.models.tiny import FAMILIES

Tiny = Callable[..., Path]

UNITS = ("start", "spaced", "glued")
# What may stand around a word in each place; the words of the tiny vocabulary alone.
AROUND = {
    "start": [("", ""), ("", "."), ("", " is playing."), ("", "'s dog"), ("", ", a dog")],
    "spaced": [("the ", ""), ("The ", "."), ("A man (a ", ")"), ("a  ", " is"), ("an ", " .")],
    "glued": [("(", ")"), ("the (", " dog)"), ('a "', '" is'), ("red-", "."), ("(The dog)(", ")")],
}
MARKS = re.compile(r"[Ġ▁#\s\[\]<>]|�")
PLACES = [
    ("A man is playing a guitar in the park.", "A man guitar park is playing"),
    ("The dog (a big dog) sleeps.", "The dog big sleeps"),
    ("Dogs sleeps", "Dogs sleeps"),
    ('the "old cats" runs on an apple', "the old cats runs apple"),
]


@pytest.fixture(scope="session")
def made(tiny: Tiny) -> Callable[..., MaskedLM]:
    loaded: dict[Any, MaskedLM] = {}

    def make(family: str = "bert", **options: Any) -> MaskedLM:
        key = (family, *options.items())
        if key not in loaded:
            loaded[key] = load_masked(str(tiny("masked", family, **options)), device="cpu")
        return loaded[key]

    return make


def place(text: str, word: str, **kwargs: Any) -> Place:
    start = re.search(rf"\b{word}\b", text).start()
    return Place(text, start, start + len(word), **kwargs)


def some_queries(lm: MaskedTokenizer) -> list[Query]:
    found = lm.queries([place(text, word) for text, ws in PLACES for word in ws.split()])
    queries = [query for query in found if isinstance(query, Query)]
    assert len(queries) > 12
    return queries


def model_of(lm: MaskedLM) -> Any:
    from transformers import AutoModelForMaskedLM

    return AutoModelForMaskedLM.from_pretrained(lm.checkpoint.path).eval()


def naive(lm: MaskedLM, queries: list[Query]) -> np.ndarray:
    """The full model on one sentence at a time, and a full softmax: shape (Q, V)."""
    model, rows = model_of(lm), []
    for query in queries:
        inputs = {"input_ids": torch.tensor([query.ids])}
        if "token_type_ids" in lm.tokenizer.model_input_names:
            inputs["token_type_ids"] = torch.tensor([query.types])
        with torch.no_grad():
            logits = model(**inputs).logits[0, query.position]
        rows.append(torch.log_softmax(logits, dim=-1).numpy())
    return np.stack(rows)


def same(one: Fill, other: Fill) -> None:
    np.testing.assert_allclose(one.log_p, other.log_p, atol=1e-5)
    np.testing.assert_allclose(one.log_p_target, other.log_p_target, atol=1e-5)
    assert (one.ids == other.ids).mean() > 0.999  # neighbours may tie within 1e-5


def agrees(fill: Fill, reference: np.ndarray, queries: list[Query]) -> None:
    k = fill.ids.shape[1]
    np.testing.assert_allclose(fill.log_p, -np.sort(-reference, axis=1)[:, :k], atol=1e-5)
    at_ids = np.take_along_axis(reference, fill.ids.astype(int), axis=1)
    np.testing.assert_allclose(fill.log_p, at_ids, atol=1e-5)
    own = reference[np.arange(len(queries)), [query.target for query in queries]]
    np.testing.assert_allclose(fill.log_p_target, own, atol=1e-5)


# Words.


@pytest.mark.parametrize("cased", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_form_is_a_word_wherever_it_stands_in_such_a_place(
    made: Callable[..., MaskedLM], family: str, cased: bool
) -> None:
    lm = made(family, cased=cased)
    for unit in UNITS:
        forms = lm.forms(unit)
        assert len(forms) == len(lm.tokenizer)
        assert sum(form is not None and len(form) > 1 for form in forms) > 15
        words = [(entry, form) for entry, form in enumerate(forms) if form is not None]
        for _, form in words:
            assert not MARKS.search(form)
            assert re.fullmatch(r"[^\W\d_]+(-[^\W\d_]+)*", form)
        for before, after in AROUND[unit]:
            places = [
                Place(before + form + after, len(before), len(before) + len(form))
                for _, form in words
            ]
            for (entry, form), query in zip(words, lm.queries(places), strict=True):
                assert isinstance(query, Query), (before, form, after, query)
                assert (query.target, query.unit) == (entry, unit)


def test_a_no_break_space_is_a_blank_or_a_letter(made: Callable[..., MaskedLM]) -> None:
    for family in FAMILIES:
        lm = made(family)
        for blank in "\u00a0\t\n":
            text = f"the{blank}man is"
            (query,) = lm.queries([Place(text, 4, 7)])
            assert isinstance(query, Query)
            assert lm.forms(query.unit)[query.target] == "man"
            if family in ("roberta", "modernbert"):
                assert query.unit == "glued"


@pytest.mark.parametrize("family", FAMILIES)
def test_all_words_of_the_vocabulary_are_found_and_no_piece_is(
    made: Callable[..., MaskedLM], family: str
) -> None:
    lm = made(family)
    for unit in UNITS:
        forms = {form for form in lm.forms(unit) if form}
        assert {"man", "guitar", "playing", "dog", "apple", "sleeps"} <= forms
    tokens = lm.tokenizer.convert_ids_to_tokens(list(range(len(lm.tokenizer))))
    for unit in UNITS:
        for token, form in zip(tokens, lm.forms(unit), strict=True):
            if token.startswith("##") or token in lm.special_tokens:
                assert form is None
            if family in ("roberta", "modernbert"):
                # A word behind a blank is written with its mark, and only there.
                assert form is None or token.startswith("Ġ") == (unit == "spaced")
            if family in ("xlm-roberta", "albert", "deberta-v2"):
                # SentencePiece puts its mark on the first word too.
                assert form is None or token.startswith("▁") == (unit != "glued")


def test_numbers_and_punctuation_are_no_words(made: Callable[..., MaskedLM]) -> None:
    for family in FAMILIES:
        forms = {form for unit in UNITS for form in made(family).forms(unit) if form}
        assert not {form for form in forms if re.search(r"[\d.,()'\"]", form)}


# Targets.


@pytest.mark.parametrize("family", FAMILIES)
def test_the_target_is_one_id_in_its_position(made: Callable[..., MaskedLM], family: str) -> None:
    lm = made(family)
    for text, words in PLACES:
        whole = lm.tokenizer(text)["input_ids"]
        for word in words.split():
            (query,) = lm.queries([place(text, word)])
            assert isinstance(query, Query), (text, word, query)
            assert query.ids.count(lm.tokenizer.mask_token_id) == 1
            assert query.ids[query.position] == lm.tokenizer.mask_token_id
            restored = list(query.ids)
            restored[query.position] = query.target
            assert restored == whole  # everything else is as the tokenizer writes it
            assert lm.tokenizer.decode([query.target]).strip().lower() == word.lower()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_word_that_splits_is_skipped_with_its_reason(
    made: Callable[..., MaskedLM], family: str
) -> None:
    lm = made(family)
    text = "The zebra (zebra) sleeps on the xylophone."
    found = lm.queries([place(text, "zebra"), Place(text, 11, 16), place(text, "xylophone")])
    assert found == ["split"] * 3
    # A span that is no token: part of a word, two words, one with its blank.
    spans = [(0, 2), (4, 8), (0, 9), (3, 9), (18, 24)]
    assert [lm.queries([Place(text, *s)])[0] for s in spans[:4]] == ["split"] * 4
    assert isinstance(lm.queries([Place(text, *spans[4])])[0], Query)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_letter_of_several_bytes_or_behind_a_lone_mark_is_no_token(
    made: Callable[..., MaskedLM], family: str
) -> None:
    # "猫" is three bytes with one place; "男" alone is "▁" and "男" for some, or "Ġ" and bytes.
    lm = made(family)
    for letter in ("猫", "q"):
        text = f"A {letter} is"
        (query,) = lm.queries([Place(text, 2, 3)])
        if isinstance(query, Query):
            ids = lm.tokenizer(text)["input_ids"]
            assert len(ids) == len(lm.tokenizer("A man is")["input_ids"])
        else:
            assert query in ("split", "unknown")
    expected = "split" if family in ("roberta", "modernbert") else "unknown"
    assert lm.queries([Place("A 猫 is", 2, 3)]) == [expected]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_sentence_fits_and_a_longer_one_is_skipped(
    made: Callable[..., MaskedLM], family: str
) -> None:
    lm = made(family)
    base_length = len(lm.tokenizer("A man")["input_ids"])
    fits = "A man" + " red" * (lm.longest - base_length)
    assert len(lm.tokenizer(fits)["input_ids"]) == lm.longest == 128
    (query,) = lm.queries([place(fits, "man")])
    assert np.isfinite(lm.fill([query], 5).log_p).all()
    assert lm.queries([place(fits + " red", "man"), place("A man", "man")])[0] == "too_long"


def test_one_mask_for_each_of_several_occurrences(made: Callable[..., MaskedLM]) -> None:
    lm = made()
    text = "the dog (a big dog)"
    one, other = lm.queries([Place(text, 4, 7), Place(text, 15, 18)])
    mask = lm.tokenizer.mask_token_id
    assert (one.ids.count(mask), other.ids.count(mask)) == (1, 1)
    assert (one.target, one.unit) == (other.target, other.unit)
    assert one.position < other.position
    assert one.key != other.key


def test_keys_name_what_is_asked(made: Callable[..., MaskedLM]) -> None:
    lm = made()
    text = "a man is playing"
    man, again, dog, longer = lm.queries(
        [
            place(text, "man"),
            place(text, "man"),
            place("a dog is playing", "dog"),
            place(text, "man", other="a dog"),
        ]
    )
    assert man.key == again.key
    assert man.ids == dog.ids
    assert len({man.key, dog.key, longer.key}) == 3
    assert len(man.key) == 16


@pytest.mark.parametrize("family", FAMILIES)
def test_the_other_sentence_as_context(made: Callable[..., MaskedLM], family: str) -> None:
    lm = made(family)
    p, h = "A man is playing a guitar", "The dog sleeps"
    in_p, in_h = lm.queries([place(p, "man", other=h), place(h, "dog", other=p, first=False)])
    both = lm.tokenizer(p, h, return_token_type_ids=True)
    for query, word in ((in_p, "man"), (in_h, "dog")):
        restored = list(query.ids)
        restored[query.position] = query.target
        assert restored == both["input_ids"]
        assert list(query.types) == both["token_type_ids"]
        assert lm.tokenizer.decode([query.target]).strip() == word
    if family in ("bert", "electra"):
        assert (in_p.types[in_p.position], in_h.types[in_h.position]) == (0, 1)
    agrees(lm.fill([in_p, in_h], 9), naive(lm, [in_p, in_h]), [in_p, in_h])


def test_the_type_of_a_token_matters(made: Callable[..., MaskedLM]) -> None:
    lm = made()
    (query,) = lm.queries([place("The dog sleeps", "dog", other="A man", first=False)])
    flat = Query(query.ids, (0,) * len(query.ids), query.position, query.target, query.unit)
    fill = lm.fill([query, flat], 5)
    assert abs(fill.log_p[0] - fill.log_p[1]).max() > 1e-3


# Numbers.


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_as_one_sentence_at_a_time(
    made: Callable[..., MaskedLM], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = made(family)
    queries = some_queries(lm)
    reference = naive(lm, queries)
    for budget in (1, 40, 100_000):
        monkeypatch.setattr(lm, "token_budget", budget)
        agrees(lm.fill(queries, 30), reference, queries)


def test_bart(tiny: Tiny, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration

    tokenizer = AutoTokenizer.from_pretrained(tiny("masked", "roberta"))
    config = BartConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=64,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        init_std=0.3,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=None,
    )
    torch.manual_seed(0)
    BartForConditionalGeneration(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    lm = load_masked(str(tmp_path), device="cpu", token_budget=40)
    queries = some_queries(lm)
    agrees(lm.fill(queries, 30), naive(lm, queries), queries)


def test_the_company_of_a_query_changes_nothing(made: Callable[..., MaskedLM]) -> None:
    for family in FAMILIES:
        lm = made(family)
        queries = some_queries(lm)
        together = lm.fill(queries, 10)
        order = np.random.default_rng(0).permutation(len(queries))
        shuffled = lm.fill([queries[i] for i in order], 10)
        same(shuffled, Fill(*(getattr(together, f)[order] for f in Fill.__slots__)))
        alone = lm.fill(queries[3:4], 10)
        same(alone, Fill(*(getattr(together, f)[3:4] for f in Fill.__slots__)))


def test_a_vocabulary_larger_than_the_tokenizer(tiny: Tiny, tmp_path: Path) -> None:
    lm = load_masked(str(tiny("masked")), device="cpu")
    model = model_of(lm)
    model.resize_token_embeddings(len(lm.tokenizer) + 13)
    model.save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    padded = load_masked(str(tmp_path), device="cpu")
    queries = some_queries(padded)
    fill = padded.fill(queries, 10_000)
    assert fill.ids.shape[1] == len(lm.tokenizer) + 13
    assert fill.ids.max() == len(lm.tokenizer) + 12
    agrees(fill, naive(padded, queries), queries)
    assert len(padded.forms("spaced")) == len(lm.tokenizer)


def test_queries_that_differ_in_the_hidden_word_share_a_forward(tiny: Tiny) -> None:
    lm = load_masked(str(tiny("masked")), device="cpu")
    words = ["man", "dog", "guitar"]
    queries = lm.queries([place(f"a {word} is playing", word) for word in words]) * 2
    told: list[int] = []
    fill = lm.fill(queries, 5, told.append)
    assert lm.work.facts() == {"forwards": 1, "rows": 1, "tokens": 6, "padded": 6}
    assert sum(told) == 6
    agrees(fill, naive(lm, queries), queries)
    assert len(set(fill.log_p_target[:3].tolist())) == 3


def test_padding_is_counted(tiny: Tiny) -> None:
    lm = load_masked(str(tiny("masked")), device="cpu")
    texts = ["a man is playing a guitar", "a man"]
    lm.fill(lm.queries([place(text, "man") for text in texts]), 5)
    # [CLS] and [SEP]: 6 + 2 and 2 + 2 tokens, in one batch of width 8.
    assert lm.work.facts() == {"forwards": 1, "rows": 2, "tokens": 12, "padded": 16}


def test_no_queries(made: Callable[..., MaskedLM]) -> None:
    fill = made().fill([], 7)
    assert (fill.ids.shape, fill.log_p.shape, fill.log_p_target.shape) == ((0, 7), (0, 7), (0,))


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPU: not enough memory")],
)
def test_out_of_memory_halves_the_batch(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    lm = load_masked(str(tiny("masked")), device="cpu")
    queries = some_queries(lm)
    whole = lm.fill(queries, 10)
    lm.work.__init__()  # type: ignore[misc]
    forward, tried = lm.model.forward, []

    def small(**inputs: Any) -> Any:
        tried.append(len(inputs["input_ids"]))
        if tried[-1] > 3:
            raise error
        return forward(**inputs)

    monkeypatch.setattr(lm.model, "forward", small)
    halved = lm.fill(queries, 10)
    same(halved, whole)
    assert max(tried) > 3
    assert lm.work.rows == len({(q.ids, q.types) for q in queries})  # failures are no work
    monkeypatch.setattr(lm.model, "forward", lambda **_: (_ for _ in ()).throw(error))
    with pytest.raises(InputError, match="out of memory on a single row"):
        lm.fill(queries, 10)


def test_training_mode_comes_back(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = load_masked(str(tiny("masked")), device="cpu")
    queries = some_queries(lm)
    quiet = lm.fill(queries, 5)
    lm.model.train()
    same(lm.fill(queries, 5), quiet)  # no dropout
    assert lm.model.training
    monkeypatch.setattr(lm.model, "forward", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lm.fill(queries, 5)
    assert lm.model.training


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2", "modernbert"])
def test_bf16_has_an_fp32_head(
    made: Callable[..., MaskedLM], tiny: Tiny, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tiny("masked", family))
    monkeypatch.setattr(base, "_has_bf16", lambda kind: False)
    with pytest.raises(InputError, match=r"^precision: bf16 would be emulated"):
        load_masked(name, device="cpu", precision="bf16")
    monkeypatch.setattr(base, "_has_bf16", lambda kind: True)
    lm = load_masked(name, device="cpu", precision="bf16")
    queries = some_queries(lm)
    exact, near = made(family).fill(queries, 50), lm.fill(queries, 50)
    assert np.abs(near.log_p_target - exact.log_p_target).max() < 0.3
    assert np.abs(near.log_p_target - exact.log_p_target).max() > 0
    # In bf16, 50 logits within a few units would take some twenty values.
    assert min(len(set(row.tolist())) for row in near.log_p) >= 48
    assert near.log_p.dtype == np.float32
    assert lm.fingerprint == {**made(family).fingerprint, "precision": "bf16"}


def test_fp32_is_the_default(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_has_bf16", lambda kind: True)
    assert load_masked(str(tiny("masked")), device="cpu").where.precision == "fp32"


# Refusals.


def test_no_mask_token(tiny: Tiny, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    directory = Path(shutil.copytree(tiny("masked", "modernbert"), tmp_path / "m"))
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(directory)
    with pytest.raises(InputError, match="its tokenizer has no mask token: not a masked LM"):
        load_masked(str(directory), device="cpu")


def test_special_tokens(made: Callable[..., MaskedLM]) -> None:
    assert set(made("bert").special_tokens) == {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    assert {"<s>", "</s>", "<mask>"} <= set(made("roberta").special_tokens)


def test_the_tokenizer_side_reads_no_weights(tiny: Tiny, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(tiny("masked"), tmp_path / "m"))
    (directory / "model.safetensors").write_bytes(b"no weights at all")
    lm = MaskedTokenizer(str(directory))
    assert some_queries(lm)
    with pytest.raises(InputError, match="its weights are damaged"):
        load_masked(str(directory), device="cpu")
