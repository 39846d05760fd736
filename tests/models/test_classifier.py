"""Classifiers: labels by name, padding, truncation, duplicates, refusals."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from triaxial.errors import InputError
from triaxial.models import base
from triaxial.models.classifier import Classifier, fingerprint_of, label_columns, load_classifier
from triaxial.models.tiny import FAMILIES
from triaxial.nli import LABELS

Tiny = Callable[..., Path]
COMMIT = "fedcba9876543210fedcba9876543210fedcba98"
PAIRS = [
    ("A man is playing a guitar in the park.", "A man is playing."),
    ("The dog sleeps", "The old dog sleeps on an apple ( red )"),
    ("Dogs", "cats"),
    ("The dog sleeps", "A man is playing."),
    ("A man is playing a guitar in the park.", "The dog sleeps, a child, an old red piano."),
]


@pytest.fixture
def copied(tiny: Tiny, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny("classifier"), tmp_path / "model"))


def relabel(directory: Path, *names: str) -> str:
    file = directory / "config.json"
    config = json.loads(file.read_text())
    config["id2label"] = {str(n): name for n, name in enumerate(names)}
    config["label2id"] = {name: n for n, name in enumerate(names)}
    file.write_text(json.dumps(config))
    return str(directory)


def load(name: Path | str, **options: Any) -> Classifier:
    return load_classifier(str(name), device="cpu", precision="fp32", **options)


def naive(model: Classifier, pairs: list[tuple[str, str]]) -> np.ndarray:
    """One pair at a time through transformers, in the model's own order of labels."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    path = model.checkpoint.path
    whole = AutoModelForSequenceClassification.from_pretrained(path).eval()
    tokenizer = AutoTokenizer.from_pretrained(path)
    with torch.no_grad():
        logits = [whole(**tokenizer(*pair, return_tensors="pt")).logits[0] for pair in pairs]
    return torch.log_softmax(torch.stack(logits), dim=-1).numpy()


# Labels.


@pytest.mark.parametrize(
    "names", [*itertools.permutations(["Entailment", "NEUTRAL", "contradiction"])]
)
def test_label_order_by_name(names: tuple[str, ...]) -> None:
    columns = label_columns(dict(enumerate(names)))
    assert [names[column].lower() for column in columns] == list(LABELS)


@pytest.mark.parametrize(
    "names",
    [
        ("contradict", "entail", "neutral"),
        ("CONTRADICTS", "ENTAILS", "NEUTRAL"),
        (" contradicted ", "entailed", "Neutral "),
    ],
)
def test_other_spellings(names: tuple[str, ...]) -> None:
    assert label_columns(dict(enumerate(names))) == [1, 2, 0]


def test_the_order_reaches_the_predictions(copied: Path) -> None:
    straight = load(relabel(copied, "entailment", "neutral", "contradiction")).predict(PAIRS)
    turned = load(relabel(copied, "CONTRADICTION", "Entailment", "neutral"))
    assert turned.columns == [1, 2, 0]
    np.testing.assert_array_equal(turned.predict(PAIRS), straight[:, [1, 2, 0]])


REFUSED = (
    "model: its labels ({}) are not entailment, neutral and contradiction; if it is a three-way "
    "NLI model, pass --model-labels 0=entailment,1=neutral,2=contradiction in its own order"
)


@pytest.mark.parametrize(
    "names",
    [
        ("LABEL_0", "LABEL_1", "LABEL_2"),
        ("entailment", "not_entailment"),
        ("entailment", "neutral"),
        ("entailment", "neutral", "contradiction", "hidden"),
        ("entailment", "neutral", "neutral"),
        ("entailment", "neutral", "no contradiction"),
        ("a", "b", "c"),
    ],
)
def test_labels_that_say_nothing(names: tuple[str, ...]) -> None:
    seen = ", ".join(f"{n}={name}" for n, name in enumerate(names))
    with pytest.raises(InputError) as caught:
        label_columns(dict(enumerate(names)))
    assert str(caught.value) == REFUSED.format(seen)


def test_a_map_by_column_or_by_name() -> None:
    blank = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    by_column = {"0": "contradiction", "1": "entailment", "2": "neutral"}
    assert label_columns(blank, by_column) == [1, 2, 0]
    by_name = {f"LABEL_{n}": label for n, label in by_column.items()}
    assert label_columns(blank, by_name) == [1, 2, 0]
    # The map outranks the names, for a checkpoint whose names lie.
    names = dict(enumerate(LABELS))
    assert label_columns(names, {"0": "contradiction", "2": "entailment"}) == [2, 1, 0]
    with pytest.raises(InputError, match="are not entailment, neutral and contradiction"):
        label_columns(blank, {"0": "contradiction", "1": "entailment"})
    with pytest.raises(InputError, match="are not entailment, neutral and contradiction"):
        label_columns(blank, {"0": "neutral", "1": "entailment", "2": "neutral"})


def test_a_map_reaches_the_predictions(copied: Path) -> None:
    straight = load(copied).predict(PAIRS)
    blank = relabel(copied, "LABEL_0", "LABEL_1", "LABEL_2")
    with pytest.raises(InputError, match=r"LABEL_0, 1=LABEL_1.* pass --model-labels 0=entailment"):
        load(blank)
    given = {"0": "contradiction", "1": "entailment", "2": "neutral"}
    model = load(blank, model_labels=given)
    np.testing.assert_array_equal(model.predict(PAIRS), straight[:, [1, 2, 0]])
    fingerprint = fingerprint_of(blank, model_labels=given, precision="fp32", device="cpu")
    assert fingerprint == model.fingerprint
    assert fingerprint["columns"] == "1,2,0"


def test_a_two_class_model(tiny: Tiny) -> None:
    name = tiny("classifier", labels=("entailment", "not_entailment"))
    with pytest.raises(InputError, match=r"0=entailment, 1=not_entailment\) are not entailment,"):
        load(name)


# Numbers.


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_as_one_pair_at_a_time(tiny: Tiny, family: str) -> None:
    model = load(tiny("classifier", family))
    found = model.predict(PAIRS)
    assert (found.dtype, found.shape) == (np.float32, (5, 3))
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found, naive(model, PAIRS)[:, model.columns], atol=1e-5)
    for budget in (1, 40):
        model.token_budget = budget
        np.testing.assert_allclose(model.predict(PAIRS[::-1]), found[::-1], atol=1e-5)


def test_premise_and_hypothesis_are_not_the_same(tiny: Tiny) -> None:
    model = load(tiny("classifier"))
    turned = model.predict([(h, p) for p, h in PAIRS])
    assert np.abs(turned - model.predict(PAIRS)).max() > 1e-3


def test_each_distinct_pair_once(tiny: Tiny) -> None:
    model = load(tiny("classifier"))
    told: list[int] = []
    found = model.predict([PAIRS[1], PAIRS[0], PAIRS[1], PAIRS[1]], told.append)
    assert (model.work.rows, sum(told)) == (2, 2)
    assert (found[0] == found[2]).all()
    assert (found[0] == found[3]).all()
    assert (found[0] != found[1]).any()


def test_no_pairs(tiny: Tiny) -> None:
    assert load(tiny("classifier")).predict([]).shape == (0, 3)


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "modernbert"])
def test_long_pairs_are_cut_at_the_longer_side_and_counted(tiny: Tiny, family: str) -> None:
    model = load(tiny("classifier", family))
    short = ("A man", "The dog sleeps")
    marks = len(model.tokenizer(*short)["input_ids"]) - 5
    exact = ("man " * (model.longest - marks - 3) + ".", "The dog")  # the longest that fits
    assert len(model.tokenizer(*exact)["input_ids"]) == model.longest
    model.predict([short, exact])
    assert model.truncated == 0
    long = ("man " * 500, "The dog")
    model.predict([short, long, long, ("A man", "dog " * 500)])
    assert model.truncated == 2
    # What is left of the long side decides; the short side is whole.
    cut = ("man " * (model.longest - marks - 2), "The dog")
    np.testing.assert_allclose(model.predict([long]), model.predict([cut]), atol=1e-5)


def test_out_of_memory_halves_the_batch(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(tiny("classifier"))
    whole, forward = model.predict(PAIRS), model.model.forward

    def small(**inputs: Any) -> Any:
        if len(inputs["input_ids"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(**inputs)

    monkeypatch.setattr(model.model, "forward", small)
    np.testing.assert_allclose(model.predict(PAIRS), whole, atol=1e-6)


def test_training_mode_comes_back(tiny: Tiny) -> None:
    model = load(tiny("classifier"))
    quiet = model.predict(PAIRS)
    model.model.train()
    np.testing.assert_allclose(model.predict(PAIRS), quiet, atol=1e-6)
    assert model.model.training


def test_bf16(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(tiny("classifier"))
    exact = load(name)
    monkeypatch.setattr(base, "_has_bf16", lambda kind: False)
    with pytest.raises(InputError, match="bf16 would be emulated"):
        load_classifier(name, device="cpu", precision="bf16")
    monkeypatch.setattr(base, "_has_bf16", lambda kind: True)
    near = load_classifier(name, device="cpu")  # `auto` takes it
    assert near.fingerprint == {**exact.fingerprint, "precision": "bf16"}
    assert np.abs(near.predict(PAIRS) - exact.predict(PAIRS)).max() < 0.1


# Refusals: the kinds of broken directories are in test_base.


def test_weights_of_the_head_are_missing(tiny: Tiny, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(tiny("masked"), tmp_path / "m"))
    with pytest.raises(
        InputError, match=r"weights are not in the checkpoint \(bert\.pooler|classif"
    ):
        load(relabel(directory, *LABELS))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: shutil.rmtree(d), "no such model directory"),
        (lambda d: (d / "config.json").unlink(), "no config.json: not a model directory"),
        (lambda d: (d / "model.safetensors").unlink(), "no weights (*.safetensors)"),
        (lambda d: (d / "tokenizer.json").unlink(), "no tokenizer files (tokenizer.json)"),
        (lambda d: (d / "model.safetensors").write_bytes(b"x" * 99), "its weights are damaged"),
    ],
)
def test_a_broken_directory(copied: Path, spoil: Callable[[Path], object], message: str) -> None:
    spoil(copied)
    with pytest.raises(InputError) as caught:
        load(copied)
    assert str(caught.value).startswith(f"{copied}: {message}")
    assert "\n" not in str(caught.value)


def test_a_model_in_the_hub_cache(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "models--org--nli"
    shutil.copytree(tiny("classifier"), repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    model = load("org/nli")
    assert model.fingerprint["revision"] == COMMIT
    np.testing.assert_array_equal(model.predict(PAIRS), load(tiny("classifier")).predict(PAIRS))
    for name in ("org/nli", f"org/nli@{COMMIT}"):
        found = fingerprint_of(name, model_labels=None, precision="fp32", device="cpu")
        assert found == model.fingerprint
