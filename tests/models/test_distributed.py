"""Training in two processes over loopback: the same updates as in one, a kill, and one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from triaxial.cli import _run_shared
from triaxial.errors import InputError
from triaxial.models import distributed, dropout
from triaxial.models.base import Hardware
from triaxial.models.distributed import ALONE, Division, OwnRows, Team, joined, portions
from triaxial.models.finetune import train_classifier, train_masked
from triaxial.models.fit import FitOptions
from triaxial.models.tiny import tiny_masked
from triaxial.models.xl_config import XLConfig
from triaxial.nli import LABELS, Pair
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.splits import Split
from triaxial.temporal.train import TrainOptions, train_language_model
from triaxial.temporal.vocabulary import VocabularyOptions, train_vocabulary

CPU = Hardware("cpu", "fp32")
STEPS = FitOptions(max_steps=5, learning_rate=0.01, checkpoint_every=2)
PAIRS = [
    Pair(f"{n}", f"A dog {'very ' * (n % 4)}runs .", f"The dog {end} .", LABELS[n % 3])
    for n, end in enumerate(["moves", "eats", "sleeps today"] * 5)
]
WORDS = [text for pair in PAIRS for text in (pair.premise, pair.hypothesis)]
# Dropout where it is drawn for all: it must not depend on the division either.
SHAPE = XLConfig(
    9, 16, 2, 1, 32, segment=16, memory_train=16, memory_test=32, dropout=0.2, attn_dropout=0.2
)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}
DOCUMENTS = plant(PlantOptions(documents=96))[0]
IDS = tuple(document.id for document in DOCUMENTS)
SPLIT = Split("time-stratified", IDS[:40], IDS[40:50], IDS[60:])


def language_model(root: Path, out: str, model: Any, rows: int, **more: Any) -> Any:
    options = TrainOptions(model, rows, validation=0, fit=STEPS)
    return train_language_model(
        DOCUMENTS, SPLIT, root / "vocabulary", root / out, options, where=CPU, **more
    )


def all_trainings(root: Path, name: str, **more: Any) -> None:
    """Every training that may be divided; rows and batches that 2 does not divide, where it may."""
    encoder = str(root / "encoder")
    language_model(root, f"{name}-xl", SHAPE, 4, **more)
    language_model(root, f"{name}-windows", str(root / "llama.json"), 3, **more)
    train_classifier(
        encoder, PAIRS, root / f"{name}-classifier", STEPS, batch_size=5, where=CPU, **more
    )
    train_masked(encoder, WORDS, root / f"{name}-masked", STEPS, batch_size=5, where=CPU, **more)


def main(root: Path, *, dies: bool) -> None:
    """What a process started by torchrun does."""
    torch.set_num_threads(1)
    with joined("cpu") as (team, device):
        assert (team.size, device) == (2, "cpu")

        def kill(done: int, *_: Any) -> None:
            if dies and done == 3 and not team.first:  # a checkpoint at 2
                os.kill(os.getpid(), 9)

        language_model(root, "killed", SHAPE, 4, team=team, progress=kill)
        all_trainings(root, "two", team=team)


def torchrun(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*command, "--nproc-per-node=2", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        | {"GLOO_SOCKET_IFNAME": "lo"},
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("distributed")
    (directory / "vocabulary").mkdir()
    train_vocabulary(DOCUMENTS, SPLIT, directory / "vocabulary", VocabularyOptions(size=512))
    tiny_masked(directory / "encoder", WORDS, seed=4)
    config = directory / "encoder" / "config.json"
    changed = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    config.write_text(json.dumps(json.loads(config.read_text()) | changed))
    (directory / "llama.json").write_text(json.dumps(LLAMA))
    return directory


@pytest.fixture(scope="module")
def trained(root: Path) -> Path:
    all_trainings(root, "one")
    killed = torchrun(__file__, root, "dies")
    assert killed.returncode
    assert (root / "killed" / ".checkpoints" / "step-00000002").is_dir(), killed.stderr
    # Another number of processes may go on as well.
    shutil.copytree(root / "killed", root / "alone")
    language_model(root, "alone", SHAPE, 4)
    done = torchrun(__file__, root)
    assert done.returncode == 0, done.stderr
    return root


@pytest.mark.parametrize("kind", ["xl", "windows", "classifier", "masked"])
def test_two_processes_do_what_one_does(kind: str, trained: Path) -> None:
    losses, weights = [], []
    for name in ("one", "two"):
        facts = json.loads((trained / f"{name}-{kind}" / "training.json").read_text())
        losses.append(facts["history"]["losses"])
        weights.append(load_file(trained / f"{name}-{kind}" / "model.safetensors"))
    assert len(losses[0]) == 5
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=1e-5)
    one, two = weights
    assert one.keys() == two.keys()
    for name in one:
        # The gradient of a key's bias is 0 but for rounding, and Adam makes full steps of that.
        if not name.endswith("key.bias"):
            np.testing.assert_allclose(one[name], two[name], rtol=0, atol=1e-5, err_msg=name)


def test_a_killed_training_of_two_ends_bit_for_bit_like_an_undisturbed_one(trained: Path) -> None:
    files = [trained / name / "model.safetensors" for name in ("killed", "two-xl")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert not (trained / "killed" / ".checkpoints").exists()


def test_one_process_goes_on_where_two_were_killed(trained: Path) -> None:
    found = [
        json.loads((trained / name / "training.json").read_text())["history"]["losses"]
        for name in ("one-xl", "alone")
    ]
    np.testing.assert_allclose(*found, rtol=0, atol=1e-5)


def test_an_error_of_all_is_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "none.csv"
    more = ("--encoder", tmp_path, "--out", tmp_path / "out", "--device", "cpu")
    done = torchrun("-m", "triaxial", "nli", "train", missing, *more)
    lines = [line for line in done.stderr.splitlines() if line.startswith("triax:")]
    assert done.returncode
    assert len(lines) == 1, done.stderr
    assert str(missing) in lines[0]
    assert done.stdout == ""


def test_rows_of_a_team() -> None:
    assert [Team(rank, 3).rows(8) for rank in range(3)] == [
        OwnRows(0, 2, 8),
        OwnRows(2, 3, 8),
        OwnRows(5, 3, 8),
    ]
    assert Team(0, 2).rows(1).count == 0  # the other has it


def test_portions_are_weighted_by_what_counts_in_them() -> None:
    def take(part: list[int], some: slice) -> tuple[float, list[int]]:
        return sum(part[some]) / sum(part), part[some]

    parts = [(0.75, [1, 2, 3]), (0.25, [4])]
    division = Division(len, take)
    assert list(portions(parts, ALONE, division)) == [(*part, None) for part in parts]
    # One row and two; the part of one row belongs to the second.
    assert list(portions(parts, Team(0, 2), division)) == [(0.125, [1], OwnRows(0, 1, 3))]
    found = list(portions(parts, Team(1, 2), division))
    assert [(share, part) for share, part, _ in found] == [(0.625, [2, 3]), (0.25, [4])]


def test_dropout_does_not_depend_on_the_division() -> None:
    layer, rows = nn.Dropout(0.5), torch.randn(5, 3, 7)
    query = torch.randn(5, 2, 3, 4)

    def dropped(own: OwnRows | None) -> tuple[torch.Tensor, ...]:
        some = slice(None) if own is None else own.slice
        part = query[some]
        with torch.random.fork_rng(), dropout.quick_dropout(torch.device("cpu"), own):
            torch.manual_seed(0)
            shared = layer(torch.ones(6, 6))  # what all processes have
            attended = F.scaled_dot_product_attention(part, part, part, dropout_p=0.5)
            return layer(rows[some]), attended, shared, torch.rand(1)

    whole = dropped(None)
    halves = [dropped(Team(rank, 2).rows(5)) for rank in range(2)]
    for number in (0, 1):
        assert torch.equal(torch.cat([half[number] for half in halves]), whole[number])
    for number in (2, 3):  # and the generator is where it was
        assert all(torch.equal(half[number], whole[number]) for half in halves)


def started(monkeypatch: pytest.MonkeyPatch, rank: int = 1) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))


def test_alone_without_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")  # some other launcher's
    with joined("cpu") as found:
        assert found == (ALONE, "cpu")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda:1", "is 'cuda:1', which several processes cannot share; use cuda"),
        ("mps", "is 'mps', which several processes cannot share"),
        ("cuda", "1 GPUs for process 2 on this machine; start at most as many"),
    ],
)
def test_devices_that_cannot_be_shared(
    device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(monkeypatch)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match=message), joined(device):
        pass


def test_streams_divide_evenly(root: Path) -> None:
    with pytest.raises(InputError, match="rows: is 3, and 2 processes have as many streams each"):
        language_model(root, "odd", SHAPE, 3, team=Team(0, 2))


def test_a_dead_fellow_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_GRACE", 0.0)
    with (
        pytest.raises(distributed.TriaxialError, match="another process of this training cannot"),
        distributed._fellows(),
    ):
        raise RuntimeError("Connection closed by peer\nand more")


def test_other_commands_run_in_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run_shared(["merge", "run", "pairs.csv"], first=True) == 2
    said = capsys.readouterr()
    assert said.err.startswith("triax: this command runs in one process; torchrun is for temporal")
    assert said.out == ""


if __name__ == "__main__":
    main(Path(sys.argv[1]), dies="dies" in sys.argv)
