"""Where a model lies and what it is: located, fingerprinted, refused with one line."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import errors as hub

from triaxial.errors import InputError
from triaxial.models import base
from triaxial.models.base import (
    Checkpoint,
    Hardware,
    Work,
    autocast,
    evaluation,
    hardware,
    load_config,
    load_pretrained,
    load_tokenizer,
    locate,
    longest_input,
    split_revision,
)
from triaxial.models.tiny import FAMILIES

Tiny = Callable[..., Path]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def copied(tiny: Tiny, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny("masked"), tmp_path / "model"))


def edit_config(directory: Path, **changes: object) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def fails(directory: Path | str, call: Callable[[Checkpoint], object] = lambda c: c) -> str:
    """The error text, in one line and in no time."""
    start = time.perf_counter()
    with pytest.raises(InputError) as caught:
        call(locate(str(directory)))
    assert time.perf_counter() - start < 2
    text = str(caught.value)
    assert text.startswith(f"{directory}: ")
    assert "\n" not in text
    return text.removeprefix(f"{directory}: ")


def test_work_is_counted() -> None:
    work = Work()
    work.count(2, 10, 12)
    work.count(1, 5, 5)
    assert work.facts() == {"forwards": 2, "rows": 3, "tokens": 15, "padded": 17}


def test_the_digest_is_of_the_content_alone(copied: Path, tmp_path: Path) -> None:
    first = locate(str(copied))
    assert (first.revision, first.path) == ("local", copied)
    assert first.fingerprint == {"digest": first.digest, "revision": "local"}
    elsewhere = Path(shutil.copytree(copied, tmp_path / "elsewhere"))
    (elsewhere / "README.md").write_text("a card")
    (elsewhere / "training.log").write_text("loss")
    edit_config(elsewhere, transformers_version="4.0.0")
    assert locate(str(elsewhere)).digest == first.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda d: edit_config(d, layer_norm_eps=1e-3),
        lambda d: (d / "model.safetensors").write_bytes(b"other"),
        lambda d: (d / "tokenizer.json").write_text("{}"),
        lambda d: (d / "tokenizer_config.json").write_text("{}"),
        lambda d: (d / "vocab.txt").write_text("new"),
    ],
)
def test_the_digest_changes_with(copied: Path, change: Callable[[Path], object]) -> None:
    first = locate(str(copied)).digest
    change(copied)
    assert locate(str(copied)).digest != first


def test_the_home_directory_is_expanded(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(copied.parent))
    assert locate("~/model").path == copied


def test_no_model_there(copied: Path, tmp_path: Path) -> None:
    for missing in (tmp_path / "none", "./none/model", "~/none", "a/b/c"):
        assert fails(missing) == "no such model directory"
    assert fails(copied / "config.json") == "is a file; name a model directory or a hub id"
    (tmp_path / "empty").mkdir()
    assert fails(tmp_path / "empty") == "no config.json: not a model directory"


def test_no_weights(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    assert fails(copied) == "no weights (*.safetensors)"
    (copied / "pytorch_model.bin").write_bytes(b"pickle")
    assert fails(copied) == (
        "no weights (*.safetensors); it holds *.bin only: load and save it once with "
        "save_pretrained"
    )


@pytest.mark.parametrize("text", ['{"a":', "[]", "", "\udcff"])
def test_a_damaged_configuration(copied: Path, text: str) -> None:
    (copied / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert fails(copied) == "its config.json is damaged; fetch it again"


def test_an_architecture_that_is_not_known(copied: Path) -> None:
    edit_config(copied, model_type="foonet")
    text = fails(copied, load_config)
    assert text.startswith("its config.json cannot be used: ")
    assert "`foonet`" in text


def test_code_of_a_repository_is_refused_and_nobody_is_asked(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copied / "code.py").write_text("raise SystemExit('was run')")
    names = ("AutoConfig", "AutoModelForMaskedLM")
    edit_config(copied, model_type="foonet", auto_map={name: "code.Own" for name in names})
    monkeypatch.setattr("builtins.input", lambda _="": pytest.fail("a question was asked"))
    assert "custom code" in fails(copied, load_config)


def test_no_tokenizer_files(copied: Path) -> None:
    # transformers 5 would make one without a single word, and every sentence would be unknown.
    (copied / "tokenizer.json").unlink()
    expected = "no tokenizer files (tokenizer.json); save the tokenizer beside the weights"
    assert fails(copied, load_tokenizer) == expected


@pytest.mark.parametrize("text", ['{"version":', "{}"])
def test_a_damaged_tokenizer(copied: Path, text: str) -> None:
    (copied / "tokenizer.json").write_text(text)
    assert fails(copied, load_tokenizer).startswith("no tokenizer can be loaded: ")


def test_a_slow_tokenizer(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        is_fast = False

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda *_, **__: Slow())
    assert fails(copied, load_tokenizer) == (
        "its tokenizer has no fast version, so words cannot be placed; save one with tokenizers "
        "(tokenizer.json)"
    )


def load(checkpoint: Checkpoint) -> object:
    from transformers import AutoModelForMaskedLM

    return load_pretrained(AutoModelForMaskedLM, checkpoint)


@pytest.mark.parametrize("kept", [0, 4, 5000])
def test_truncated_weights(copied: Path, kept: int) -> None:
    file = copied / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    assert fails(copied, load).startswith("its weights are damaged (")


def test_weights_of_another_shape(copied: Path) -> None:
    edit_config(copied, hidden_size=64)
    text = fails(copied, load)
    assert "weights have another shape than config.json says (bert.embeddings" in text


def test_weights_of_the_head_are_missing(tiny: Tiny) -> None:
    text = fails(tiny("classifier"), load)
    assert "weights are not in the checkpoint (cls.predictions" in text
    assert "it was not trained as BertForMaskedLM; choose another model" in text


def test_an_architecture_without_such_a_head(copied: Path) -> None:
    edit_config(copied, model_type="gpt2")
    assert fails(copied, load).startswith("cannot be loaded: ")


def test_loading_leaves_the_log_level_of_transformers_as_it_was(tiny: Tiny) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    model = load(locate(str(tiny("masked"))))
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_input(tiny: Tiny, family: str) -> None:
    # Tiny models take 128 tokens; RoBERTa's kind sets aside two positions more.
    checkpoint = locate(str(tiny("masked", family)))
    tokenizer = load_tokenizer(checkpoint)
    assert longest_input(load_config(checkpoint), tokenizer) == 128
    tokenizer.model_max_length = int(1e30)
    assert longest_input(load_config(checkpoint), tokenizer) == 128
    tokenizer.model_max_length = 50
    assert longest_input(load_config(checkpoint), tokenizer) == 50


def test_evaluation_mode_goes_back(tiny: Tiny) -> None:
    model = torch.nn.Dropout()
    for training in (True, False):
        model.train(training)
        with evaluation(model):
            assert not model.training
            assert torch.is_inference_mode_enabled()
        assert model.training is training
    model.train()
    with pytest.raises(ZeroDivisionError), evaluation(model):
        raise ZeroDivisionError
    assert model.training


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert hardware("auto", "fp32") == Hardware("cpu", "fp32")
    for device in ("cuda:99", "meta", "hpu", "toaster", ""):
        with pytest.raises(InputError, match=r"^device: cannot compute on .* use cpu, cuda, cuda"):
            hardware(device)
    with pytest.raises(InputError, match=r"^precision: 'fp16' is not one of auto, fp32, bf16$"):
        hardware("cpu", "fp16")


def test_bf16_only_where_it_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_has_bf16", lambda kind: False)
    assert hardware("cpu").precision == "fp32"
    with pytest.raises(InputError, match=r"^precision: bf16 would be emulated on this cpu, slower"):
        hardware("cpu", "bf16")
    monkeypatch.setattr(base, "_has_bf16", lambda kind: True)
    assert hardware("cpu").precision == "bf16"
    assert hardware("cpu", "fp32").precision == "fp32"
    with autocast(hardware("cpu", "bf16")):
        assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == torch.bfloat16
    with autocast(hardware("cpu", "fp32")):
        assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == torch.float32


def test_a_revision_behind_the_name(tmp_path: Path) -> None:
    assert split_revision("org/model") == ("org/model", None)
    assert split_revision("org/model@main") == ("org/model", "main")
    assert split_revision("org/model@") == ("org/model", None)
    odd = tmp_path / "me@work"
    odd.mkdir()
    assert split_revision(str(odd)) == (str(odd), None)


RESPONSE = SimpleNamespace(headers={}, request=None)


OTHER = "; give a local directory or another id"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (hub.GatedRepoError("x", response=RESPONSE), "it is gated: accept its terms on the"),
        (hub.RepositoryNotFoundError("x", response=RESPONSE), "no such directory here and no"),
        (hub.HFValidationError("x"), "no such directory here and no such model on the hub"),
        (hub.RevisionNotFoundError("x", response=RESPONSE), "it has no revision 'v9'"),
        (hub.LocalEntryNotFoundError("x"), "the hub cannot be reached and it is not in the local"),
        (hub.OfflineModeIsEnabled("x"), "the hub cannot be reached and it is not in the local"),
        (ConnectionError("[Errno -2]\nName"), "the hub cannot be reached and it is not in the"),
        (OSError("proxy"), "the hub cannot be reached and it is not in the local cache (OSError)"),
    ],
)
def test_the_hub_says_no(monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str) -> None:
    def download(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(InputError) as caught:
        locate("org/model", "v9")
    assert str(caught.value).startswith(f"org/model: {reason}")
    assert str(caught.value).endswith(OTHER)


@pytest.fixture
def hub_cache(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in the hub's cache as `huggingface_hub` lays it out, and no network."""
    repository = tmp_path / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / COMMIT
    shutil.copytree(tiny("masked"), snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return snapshot


def test_a_model_in_the_hub_cache(hub_cache: Path, tiny: Tiny) -> None:
    found = locate("org/name")
    assert (found.path, found.revision, found.name) == (hub_cache, COMMIT, "org/name")
    assert found.digest == locate(str(tiny("masked"))).digest
    assert locate("org/name", COMMIT) == found
    assert load_tokenizer(found).is_fast


def test_offline_and_not_in_the_cache(hub_cache: Path) -> None:
    assert fails("org/other").startswith("the hub cannot be reached and it is not in the local")
    with pytest.raises(InputError, match=r"^org/name: the hub cannot be reached and it is not in"):
        locate("org/name", "v2")
