"""Training on a split: what is seen, what is written, and what a killed run does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from triaxial.errors import InputError, StoreError
from triaxial.models.base import hardware
from triaxial.models.causal import load_causal
from triaxial.models.fit import FitOptions
from triaxial.models.xl_config import XLConfig
from triaxial.temporal.corpus import Document
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.splits import Split
from triaxial.temporal.train import TrainOptions, train_language_model
from triaxial.temporal.vocabulary import VocabularyOptions, read_vocabulary, train_vocabulary

DOCUMENTS = plant(PlantOptions(documents=96))[0]
IDS = tuple(document.id for document in DOCUMENTS)
SPLIT = Split("time-stratified", IDS[:40], IDS[40:50], IDS[60:])
LATEST = DOCUMENTS[39].date[:7]
WHERE = hardware("cpu", "fp32")
SHAPE = XLConfig(
    9, d_model=16, heads=2, layers=1, d_inner=32, segment=16, memory_train=16, memory_test=32
)
STEPS = FitOptions(max_steps=4, learning_rate=0.01, checkpoint_every=2)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("vocabulary")
    train_vocabulary(DOCUMENTS, SPLIT, directory, VocabularyOptions(size=512))
    return directory


@pytest.fixture
def trained(vocabulary: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def train(model: Any = SHAPE, out: str = "model", **changes: Any) -> dict[str, Any]:
        options = {"rows": 4, "fit": STEPS, "validation": 6}
        options |= {n: changes.pop(n) for n in [*changes] if n in TrainOptions.__slots__}
        corpus = changes.pop("corpus", DOCUMENTS)
        split = changes.pop("split", SPLIT)
        where = changes.pop("vocabulary", vocabulary)
        options = TrainOptions(model=model, **options)
        return train_language_model(
            iter(corpus), split, where, tmp_path / out, options, where=WHERE, **changes
        )

    return train


Train = Callable[..., dict[str, Any]]


def config_file(directory: Path, **changes: Any) -> str:
    path = directory / "shape.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    return str(path)


def weights(directory: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(directory / "model.safetensors")


@pytest.mark.parametrize("borders", ["carry", "reset"])
def test_a_transformer_xl_learns_and_its_directory_scores(
    trained: Train, tmp_path: Path, borders: str
) -> None:
    # 40 documents of some 150 pieces at 4 x 16 a step.
    facts = trained(borders=borders, fit=replace(STEPS, max_steps=25))
    losses = facts["history"]["losses"]
    assert np.mean(losses[:3]) == pytest.approx(np.log(512), abs=0.2)
    assert np.mean(losses[-5:]) < 5.3
    lm = load_causal(str(tmp_path / "model"), device="cpu", precision="fp32")
    texts = [document.text for document in DOCUMENTS[:40]]
    # Every piece of every document and its end.
    assert facts["targets"] == sum(len(score.ids) + 1 for score in lm.score(texts))
    assert (facts["padding"] > 0.02) == (borders == "reset")
    found = facts["held_out"]
    assert found["n"] == 6
    assert found["loss"]["value"] < np.log(512) - 1
    assert found["unigram_loss"] > 0
    assert lm.facts["segment"] == facts["width"] == 16
    assert read_vocabulary(tmp_path / "model").digest
    saved = json.loads((tmp_path / "model" / "training.json").read_text())
    assert saved == json.loads(json.dumps(facts))
    assert (saved["cutoff"], saved["split"]) == (LATEST, "time-stratified")
    assert not (tmp_path / "model" / ".checkpoints").exists()


def test_any_causal_model_is_trained_from_its_configuration(trained: Train, tmp_path: Path) -> None:
    facts = trained(config_file(tmp_path), fit=replace(STEPS, max_steps=15))
    assert facts["width"] == 32  # its positions
    assert facts["history"]["losses"][-1] < facts["history"]["losses"][0] - 0.5
    lm = load_causal(str(tmp_path / "model"), device="cpu", precision="fp32")
    assert (lm.start, lm.end) == (1, 1)
    text = DOCUMENTS[0].text
    assert text == lm.tokenizer.decode(lm.score([text])[0].ids)
    assert lm.score([text])[0].log_p.mean() > -np.log(512) + 0.5


def test_an_output_layer_of_its_own_kind(trained: Train, tmp_path: Path) -> None:
    gemma = {"model_type": "gemma2", "num_key_value_heads": 1, "head_dim": 8}
    path = config_file(tmp_path, **gemma, final_logit_softcapping=1.0)
    facts = trained(path, fit=replace(STEPS, max_steps=12))
    # Logits within 1 of 0: no loss below log(1 + 511 / e^2), whatever is learned.
    assert min(facts["history"]["losses"]) > np.log(1 + 511 / np.e**2)
    assert facts["history"]["losses"][-1] < np.log(512) - 0.05


@pytest.mark.parametrize("kind", ["xl", "windows"])
def test_a_killed_run_ends_like_an_undisturbed_one(
    trained: Train, tmp_path: Path, kind: str
) -> None:
    model = SHAPE if kind == "xl" else config_file(tmp_path)
    whole = trained(model, "whole")

    class Killed(Exception):
        pass

    def kill(done: int, *_: Any) -> None:
        if done == 3:  # a checkpoint at 2
            raise Killed

    with pytest.raises(Killed):
        trained(model, "killed", progress=kill)
    assert not (tmp_path / "killed" / "config.json").exists()
    again = trained(model, "killed")
    assert again == whole
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(one[name], other[name]) for name in one)
    # Done: nothing is trained again.
    assert trained(model, "killed", progress=lambda *_: pytest.fail("trained")) == again
    with pytest.raises(StoreError, match="holds another model; choose an empty or a new"):
        trained(model, "killed", rows=2)


def test_the_order_of_the_corpus_changes_nothing(trained: Train, tmp_path: Path) -> None:
    one = trained(out="a")
    assert trained(out="b", corpus=DOCUMENTS[::-1]) == one
    assert torch.equal(*(weights(tmp_path / n)["embedding.weight"] for n in "ab"))


def test_training_sees_its_own_documents_alone(trained: Train) -> None:
    before = trained(out="a")["history"]["losses"]
    tests = [replace(d, text="x") if d.id in SPLIT.test else d for d in DOCUMENTS]
    assert trained(out="b", corpus=tests)["history"]["losses"] == before
    changed = [replace(d, text="x y z") if d.id == IDS[0] else d for d in DOCUMENTS]
    assert trained(out="c", corpus=changed)["history"]["losses"] != before


def test_the_cut_off_is_checked_and_recorded(trained: Train) -> None:
    late = f"{int(LATEST[:4]) + 1}-01"
    assert trained(cutoff=late)["cutoff"] == late
    early = f"{int(LATEST[:4]) - 1}-12"
    with pytest.raises(
        InputError, match=f"document is of {LATEST}, after the cut-off {early}; make the split"
    ):
        trained(out="b", cutoff=early)


def test_a_vocabulary_of_other_documents_is_refused_unless_asked_for(
    trained: Train, tmp_path: Path
) -> None:
    other = replace(SPLIT, name="control", train=IDS[1:41])
    train_vocabulary(DOCUMENTS, other, tmp_path / "other", VocabularyOptions(size=520))
    with pytest.raises(InputError, match="are not the training documents of 'time-stratified'"):
        trained(vocabulary=tmp_path / "other")
    facts = trained(vocabulary=tmp_path / "other", foreign_vocabulary=True)
    assert facts["config"]["vocab_size"] == 520
    assert facts["foreign_vocabulary"]


def test_a_validation_set_may_be_empty(trained: Train) -> None:
    assert trained(validation=0)["held_out"] is None


def test_text_that_looks_like_a_mark_ends_no_document(trained: Train, tmp_path: Path) -> None:
    marked = [replace(DOCUMENTS[0], text="<s> the <s>"), *DOCUMENTS[1:]]
    facts = trained(corpus=marked)
    lm = load_causal(str(tmp_path / "model"), device="cpu")
    scores = lm.score([document.text for document in marked[:40]])
    assert facts["targets"] == sum(len(score.ids) + 1 for score in scores)
    assert not any((score.ids == lm.start).any() for score in scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "^rows: is 0; it must be at least 1"),
        ({"borders": "leak"}, "^borders: is 'leak'; it must be one of carry, reset"),
        ({"window": 0}, "^window: is 0; it must be at least 1"),
        ({"validation": -1}, "^validation: is -1; it must be 0 or more"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainOptions(**options)


def test_what_cannot_be_trained_is_refused(trained: Train, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^time-stratified: 44 of its documents are not in the co"
    ):
        trained(corpus=DOCUMENTS[:2])
    with pytest.raises(InputError, match="stands twice in the corpus; remove one"):
        trained(corpus=[*DOCUMENTS, DOCUMENTS[0]])
    with pytest.raises(InputError, match=r"^s: has no training documents"):
        trained(split=Split("s", (), (), ()), foreign_vocabulary=True)
    with pytest.raises(
        InputError, match=r"^model: '.*shape\.json' is no configuration of a causal"
    ):
        trained(config_file(tmp_path, model_type="no such"))
    with pytest.raises(InputError, match=r"^model: no causal LM can be made from this config"):
        trained(config_file(tmp_path, model_type="vit"))
    with pytest.raises(InputError, match=r"^window: is 33; the model takes 32 pieces"):
        trained(config_file(tmp_path), window=33)
    assert not (tmp_path / "model").exists()


def test_a_tokenizer_without_a_mark(trained: Train, vocabulary: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(vocabulary, tmp_path / "bare")
    path = tmp_path / "bare" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"bos_token": None}))
    with pytest.raises(InputError, match="no mark to stand between documents"):
        trained(vocabulary=tmp_path / "bare")


def test_a_document_dated_by_the_month(trained: Train) -> None:
    corpus = [Document(d.id, d.date[:7], d.text, d.source) for d in DOCUMENTS]
    assert trained(corpus=corpus)["latest"] == LATEST
