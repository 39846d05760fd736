"""Fine-tuning on tiny models: it learns, resumes exactly, refuses what cannot be trained."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

from triaxial.errors import InputError, StoreError
from triaxial.models import finetune, finetune_masked, training
from triaxial.models.base import Hardware, load_pretrained, load_tokenizer, locate
from triaxial.models.classifier import load_classifier
from triaxial.models.finetune import train_classifier, train_masked
from triaxial.models.fit import FitOptions
from triaxial.models.tiny import tiny_classifier, tiny_masked
from triaxial.nli import LABELS, Label, Pair
from triaxial.stats import generator

CPU = Hardware("cpu", "fp32")
ANIMALS = ["dog", "cat", "horse", "bird"]
# The hypothesis alone gives the label away: any encoder learns it in a few steps.
ENDS = {Label.ENTAILMENT: "moves", Label.NEUTRAL: "eats", Label.CONTRADICTION: "sleeps today"}
PAIRS = [
    Pair(f"{animal}-{label}", f"A {animal} runs .", f"The {animal} {end} .", label)
    for animal in ANIMALS
    for label, end in ENDS.items()
]
TEXTS = [f"{article} {animal} runs ." for article in ("A", "The") for animal in ANIMALS]
WORDS = [text for pair in PAIRS for text in (pair.premise, pair.hypothesis)]
QUICK = FitOptions(epochs=2, learning_rate=1e-2, checkpoint_every=2)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_masked(tmp_path_factory.mktemp("bert"), [*WORDS, "zebra lion"], seed=4))


@pytest.fixture(autouse=True)
def quick_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_DRAWS", 50)


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return load_file(directory / "model.safetensors")


def same(left: Path, right: Path) -> bool:
    one, other = weights(left), weights(right)
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def interrupt_at(step: int) -> Callable[[int, int, float], None]:
    def progress(done: int, total: int, loss: float) -> None:
        if done == step:
            raise KeyboardInterrupt

    return progress


def train(encoder: str, out: Path, **more: Any) -> dict[str, Any]:
    return train_classifier(
        encoder, PAIRS, out, more.pop("options", QUICK), batch_size=4, where=CPU, **more
    )


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "deberta-v2", "modernbert"])
def test_a_classifier_learns_and_is_an_ordinary_model(family: str, tmp_path: Path) -> None:
    encoder = str(tiny_masked(tmp_path / "encoder", WORDS, family, seed=1))
    options = FitOptions(epochs=12, learning_rate=5e-3)
    facts = train(encoder, tmp_path / "model", options=options, held_out=PAIRS)
    assert facts["held_out"]["n"] == 12
    assert facts["held_out"]["accuracy"]["value"] == 1.0
    assert facts["held_out"]["majority_accuracy"] == pytest.approx(1 / 3)
    assert facts["history"]["epoch_losses"][-1] < 0.7 < facts["history"]["epoch_losses"][0]
    assert facts["labels"] == {"entailment": 4, "neutral": 4, "contradiction": 4}
    assert json.loads((tmp_path / "model/training.json").read_text()) == facts
    assert not list((tmp_path / "model").glob(".*"))
    model = load_classifier(str(tmp_path / "model"), device="cpu")
    assert model.columns == [0, 1, 2]
    assert list(model.model.config.id2label.values()) == list(LABELS)
    found = model.predict([(pair.premise, pair.hypothesis) for pair in PAIRS]).argmax(axis=1)
    assert [LABELS[n] for n in found] == [pair.label for pair in PAIRS]


def test_an_interrupted_training_ends_the_same_and_a_finished_one_is_not_repeated(
    bert: str, tmp_path: Path
) -> None:
    whole = train(bert, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(bert, tmp_path / "model", progress=interrupt_at(5))
    assert not (tmp_path / "model/config.json").exists()  # no model yet
    steps: list[int] = []
    facts = train(bert, tmp_path / "model", progress=lambda done, *_: steps.append(done))
    assert steps == [5, 6]  # from the checkpoint after step 4
    assert facts == whole
    assert same(tmp_path / "model", tmp_path / "whole")
    assert train(bert, tmp_path / "model", progress=interrupt_at(1)) == whole
    # Killed while it was moved into place: it is moved again.
    (tmp_path / "model/config.json").unlink()
    assert train(bert, tmp_path / "model") == whole
    with pytest.raises(StoreError, match="holds another model; choose an empty or a new"):
        train(bert, tmp_path / "model", options=FitOptions(epochs=1))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    with pytest.raises(StoreError, match=r"holds 'notes.txt'; choose an empty or a new"):
        train(bert, tmp_path / "mine")
    with pytest.raises(StoreError, match="is a file, wanted a directory; choose another name"):
        train(bert, tmp_path / "mine/notes.txt")


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_training_used_embeddings_alone_changes_nothing_else(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*WORDS, "zebra lion"]
    encoder = str(tiny_masked(tmp_path / "encoder", words, family, seed=1))
    options = FitOptions(epochs=2, learning_rate=1e-2, weight_decay=0.0)
    train(encoder, tmp_path / "used", options=options)

    @contextlib.contextmanager
    def all_of_them(model: Any, *_: object) -> Iterator[np.ndarray]:
        yield np.arange(model.config.vocab_size)

    monkeypatch.setattr(finetune, "used_embeddings", all_of_them)
    train(encoder, tmp_path / "all", options=options)
    used, whole = weights(tmp_path / "used"), weights(tmp_path / "all")
    for name, tensor in used.items():
        torch.testing.assert_close(tensor, whole[name], rtol=1e-4, atol=1e-5, msg=name)
    # The encoder's own row of a word that does not occur is as it was, to the bit.
    tokenizer = load_tokenizer(locate(encoder))
    [zebra] = tokenizer(" zebra", add_special_tokens=False)["input_ids"]
    before = weights(Path(encoder))
    name = next(name for name in used if name.endswith("word_embeddings.weight"))
    assert torch.equal(used[name][zebra], before[name][zebra])
    assert not torch.equal(used[name], before[name])


def test_a_new_head_comes_from_the_seed_and_an_own_one_is_kept(bert: str, tmp_path: Path) -> None:
    state = torch.get_rng_state()
    heads = [finetune._with_head(locate(bert), seed).classifier.weight for seed in (1, 1, 2)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert torch.equal(torch.get_rng_state(), state)
    own = tiny_classifier(tmp_path / "own", WORDS, seed=7)
    model = load_pretrained(AutoModelForSequenceClassification, locate(str(own)))
    kept = finetune._with_head(locate(str(own)), 1)
    assert torch.equal(kept.classifier.weight, model.classifier.weight)


def test_what_cannot_be_trained(bert: str, tmp_path: Path) -> None:
    out = tmp_path / "model"
    with pytest.raises(InputError, match="no pairs to train on; give at least one"):
        train_classifier(bert, [], out, where=CPU)
    with pytest.raises(InputError, match="batch_size: is 0; it must be at least 1"):
        train_classifier(bert, PAIRS, out, batch_size=0, where=CPU)
    other = tiny_classifier(tmp_path / "other", WORDS, labels=["contradiction", "x", "entailment"])
    with pytest.raises(InputError, match="is a classifier already, over contradiction, x, entail"):
        train(str(other), out)
    with pytest.raises(InputError, match="no texts to train on"):
        train_masked(bert, [], out, where=CPU)
    with pytest.raises(InputError, match=r"mask: is 1.5; it must be a share"):
        train_masked(bert, TEXTS, out, mask_share=1.5, where=CPU)
    with pytest.raises(InputError, match="texts: text 2 has no words; leave it out"):
        train_masked(bert, ["A dog", " "], out, where=CPU)
    broken = tmp_path / "broken"
    tiny_masked(broken, WORDS)
    kept = {k: v for k, v in weights(broken).items() if "layer.1.output" not in k}
    from safetensors.torch import save_file

    save_file(kept, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="4 weights of the encoder are not in the checkpoint"):
        train(str(broken), out)
    (broken / "model.safetensors").write_bytes(b"rubbish")
    with pytest.raises(InputError, match="cannot be loaded"):
        train(str(broken), out)
    assert not out.exists()


def test_repeated_pairs_are_tokenized_once_and_long_ones_cut_and_counted(
    bert: str, tmp_path: Path
) -> None:
    long = Pair("long", "A dog " * 100, "A cat .", Label.NEUTRAL)
    pairs = [*PAIRS, *PAIRS[:3], long]
    facts = train_classifier(
        bert, pairs, tmp_path / "model", FitOptions(max_steps=1), batch_size=4, where=CPU
    )
    assert (facts["rows"], facts["distinct"], facts["truncated"]) == (16, 13, 1)
    assert facts["held_out"] is None


def test_no_room_for_the_model(bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path, *__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training.os, "replace", full)
    with pytest.raises(StoreError, match=r"cannot be written .*No space.* the checkpoint is kept"):
        train(bert, tmp_path / "model")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "model").iterdir()] == [".checkpoints"]
    steps: list[int] = []
    train(bert, tmp_path / "model", progress=lambda done, *_: steps.append(done))
    assert steps == []  # trained already: only saved


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "albert", "modernbert"])
def test_a_masked_model_learns_its_texts(family: str, tmp_path: Path) -> None:
    model = str(tiny_masked(tmp_path / "start", WORDS, family, seed=1))
    facts = train_masked(
        model,
        TEXTS,
        tmp_path / "model",
        FitOptions(epochs=40, learning_rate=1e-2),
        batch_size=4,
        mask_share=0.2,
        held_out=TEXTS,
        where=CPU,
    )
    found = facts["held_out"]
    assert found["loss"]["value"] + 0.8 < found["unigram_loss"] < found["loss_before"]["value"]
    load_pretrained(AutoModelForMaskedLM, locate(str(tmp_path / "model")))
    load_tokenizer(locate(str(tmp_path / "model")))


def test_an_interrupted_masked_training_ends_the_same(bert: str, tmp_path: Path) -> None:
    def call(out: str, progress: Any = None) -> dict[str, Any]:
        return train_masked(
            bert, TEXTS, tmp_path / out, QUICK, batch_size=3, where=CPU, progress=progress
        )

    whole = call("whole")
    with pytest.raises(KeyboardInterrupt):
        call("model", interrupt_at(5))
    assert call("model") == whole
    assert same(tmp_path / "model", tmp_path / "whole")


def test_masks(bert: str) -> None:
    source = locate(bert)
    tokenizer = load_tokenizer(source)
    model = load_pretrained(AutoModelForMaskedLM, source)
    texts = ["A dog runs . " * 20] * 200  # 80 tokens and two marks each
    rows = training.encode(tokenizer, source, model.config, texts)
    masks = finetune_masked._masks(rows, tokenizer, 0.15, generator("test"))
    n = sum(map(len, masks.places))
    # 16,000 tokens; standard errors: sqrt(.15 * .85 / 16000) = .0028, sqrt(.8 * .2 / 2400) = .008.
    assert n / 16_000 == pytest.approx(0.15, abs=0.014)
    hidden = np.concatenate([np.asarray(rows.ids[0])[at] for at in masks.places])
    shown = np.concatenate(masks.shown)
    assert (shown == tokenizer.mask_token_id).mean() == pytest.approx(0.8, abs=0.04)
    assert (shown == hidden).mean() == pytest.approx(0.1, abs=0.03)  # a random one may hit too
    assert not set(shown.tolist()) & (set(tokenizer.all_special_ids) - {tokenizer.mask_token_id})
    assert all(at.min() > 0 and at.max() < 81 for at in masks.places)  # never a mark
    short = training.encode(tokenizer, source, model.config, ["dog"] * 50)
    masks = finetune_masked._masks(short, tokenizer, 0.01, generator("test"))
    assert masks.count(np.arange(50)) == 50  # every text has at least one
    again = finetune_masked._masks(short, tokenizer, 0.01, generator("test"))
    assert all((a == b).all() for a, b in zip(masks.shown, again.shown, strict=True))


def test_the_head_at_masks_gives_the_whole_models_loss(bert: str) -> None:
    source = locate(bert)
    tokenizer, model = load_tokenizer(source), load_pretrained(AutoModelForMaskedLM, source).eval()
    rows = training.encode(tokenizer, source, model.config, TEXTS)
    masks = finetune_masked._masks(rows, tokenizer, 0.3, generator("test"))
    part = np.arange(len(TEXTS))
    ids, labels = rows.padded(part), np.full_like(rows.padded(part), -100)
    for row in part:
        labels[row, masks.places[row]] = ids[row, masks.places[row]]
        ids[row, masks.places[row]] = masks.shown[row]
    inputs = training.inputs_of(rows, part, ids, CPU)
    with torch.inference_mode():
        wanted = model(**inputs, labels=torch.from_numpy(labels)).loss.item()
        head = finetune_masked._HeadAtMasks(model)
        found = head.losses(rows, masks, training.Part(part, ids.shape[1]), CPU)
        head.remove()
        assert model(**inputs).logits.shape[1] == ids.shape[1]  # as it was
    assert found.shape == (masks.count(part),)
    assert math.isclose(found.mean().item(), wanted, rel_tol=1e-5)
