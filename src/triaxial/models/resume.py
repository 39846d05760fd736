"""What a killed training run needs to go on: its state on disk, and its randomness.

A checkpoint is a directory a step, of which the highest counts.  It is written beside its place and
renamed, so that it is there whole or not at all, and the one before goes only after that.  Weights,
moments of the optimizer, random states and losses are safetensors; the rest is JSON.

Of a training in several processes the first writes the state of all, so that any number of them may
take it up: what each holds of a divided buffer joined, and the random state of each.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from triaxial.errors import InputError, StoreError
from triaxial.models.distributed import ALONE, Team
from triaxial.stats import generator

__all__ = ["moments_of", "own_randomness", "resume_state", "save_state", "set_moments"]

_FORMAT = 1


@contextlib.contextmanager
def own_randomness(device: torch.device, seed: int, team: Team = ALONE) -> Iterator[None]:
    """Seed torch's generators for the time of a training; the caller's state comes back after.

    The host's are alike in all processes, a GPU's differ.
    """
    before = _random_state(device)
    try:
        torch.default_generator.manual_seed(seed)
        if not team.first:
            seed = int(generator("fit.process", seed, team.rank).integers(1 << 31))
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        elif device.type == "mps":
            torch.mps.manual_seed(seed)
        yield
    finally:
        _set_random_state(device, before)


def save_state(
    checkpoint: Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    named: dict[str, torch.nn.Parameter],
    device: torch.device,
    about: dict[str, Any],
    losses: Sequence[float],
    team: Team = ALONE,
    divided: Mapping[str, int] | None = None,
) -> None:
    """Write the state after the last of `losses`, then delete what came before.

    Every process of a team calls it, the first writes. `divided` are the buffers of which each
    holds its own rows, and along which dimension.

    Raises:
        StoreError: It cannot be written; the one before is still there.
    """
    step = len(losses)
    owned, random = dict(_owned(model)), _random_state(device)
    if team.size > 1:
        owned |= {name: team.gather(owned[name], dim) for name, dim in (divided or {}).items()}
        random |= _of_all(random, team)
    if not team.first:
        return
    temporary = checkpoint / f".writing-{os.getpid()}"
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        moments = moments_of(optimizer, named)
        owned = {name: _plain(tensor) for name, tensor in owned.items()}
        random = {name: _plain(state) for name, state in random.items()}
        trace = {"losses": torch.tensor(losses, dtype=torch.float64)}
        save_file(owned, temporary / "model.safetensors")
        save_file(moments, temporary / "optimizer.safetensors")
        save_file(random | trace, temporary / "state.safetensors")
        facts = {"format": _FORMAT, "step": step, "about": about}
        (temporary / "state.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        for path in (*temporary.iterdir(), temporary):
            _sync(path)
        temporary.rename(checkpoint / f"step-{step:08d}")
        _sync(checkpoint)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) or type(error).__name__ == "SafetensorError":
            raise StoreError(
                f"the checkpoint of step {step} cannot be written ({error}); the one before is "
                "kept: make room and call again",
                where=checkpoint,
            ) from None
        raise
    for path in checkpoint.iterdir():  # what came before, and what killed runs left half-written
        if path.name.startswith(("step-", ".writing-")) and path.name != f"step-{step:08d}":
            shutil.rmtree(path, ignore_errors=True)


def resume_state(
    checkpoint: Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    named: dict[str, torch.nn.Parameter],
    device: torch.device,
    about: dict[str, Any],
    team: Team = ALONE,
    divided: Mapping[str, int] | None = None,
) -> list[float]:
    """Put everything back as it was after the last checkpoint; its losses, or [] without one.

    Of a divided buffer, as in `save_state`, each process takes its own rows.

    Raises:
        InputError: It is of another run: other data, model or options.
        StoreError: It cannot be read.
    """
    found = sorted(checkpoint.glob("step-*"))
    if not found:
        return []
    path = found[-1]
    try:
        facts = json.loads((path / "state.json").read_text(encoding="utf-8"))
        if facts["format"] != _FORMAT:
            raise ValueError(f"format {facts['format']}, not {_FORMAT}")
        saved = load_file(path / "model.safetensors")
        moments = load_file(path / "optimizer.safetensors")
        state = load_file(path / "state.safetensors")
    except Exception as error:  # JSON, safetensors and the system each have errors of their own
        raise StoreError(
            f"the checkpoint cannot be read ({error}); delete it to train from the start",
            where=path,
        ) from None
    there = facts["about"]
    owned = _owned(model)
    for name, dim in (divided or {}).items():
        if name in saved:
            own = team.rows(saved[name].shape[dim])
            saved[name] = saved[name].narrow(dim, own.first, own.count)
    differs = [name for name in about if there.get(name) != about[name]]
    if differs or _shapes(saved) != _shapes(owned):
        name = differs[0] if differs else "run"
        what = (
            "with other data or another model"
            if name == "run"
            else f"({name} {there.get(name)!r}, now {about[name]!r})"
        )
        raise InputError(
            f"holds the checkpoint of another run {what}; choose another directory, or delete it "
            "to train from the start",
            where=checkpoint,
        )
    with torch.no_grad():
        for name, tensor in owned.items():
            tensor.copy_(saved[name])
    set_moments(optimizer, named, moments, device)
    _set_random_state(device, _of_one(state, team))
    return [float(value) for value in state["losses"].tolist()]


def moments_of(
    optimizer: torch.optim.Optimizer, named: dict[str, torch.nn.Parameter]
) -> dict[str, torch.Tensor]:
    """The optimizer's state as copies on the host, by name of the parameter and of the part."""
    return {
        f"{name}.{part}": _plain(tensor)
        for name, weight in named.items()
        for part, tensor in optimizer.state[weight].items()
    }


def set_moments(
    optimizer: torch.optim.Optimizer,
    named: dict[str, torch.nn.Parameter],
    moments: dict[str, torch.Tensor],
    device: torch.device,
) -> None:
    """Replace the optimizer's state by what `moments_of` returned."""
    optimizer.state.clear()
    for name, weight in named.items():
        for part in ("step", "exp_avg", "exp_avg_sq"):
            if (moment := moments.get(f"{name}.{part}")) is not None:
                optimizer.state[weight][part] = moment.to(device, copy=True)


def _random_state(device: torch.device) -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        state["mps"] = torch.mps.get_rng_state()
    return state


def _of_all(random: dict[str, torch.Tensor], team: Team) -> dict[str, torch.Tensor]:
    """The random states of the processes after the first, each under its own name."""
    found: dict[str, torch.Tensor] = {}
    for name, state in random.items():
        every = team.gather(state[None])
        found |= {f"{name}.{rank}": every[rank] for rank in range(1, team.size)}
    return found


def _of_one(state: dict[str, torch.Tensor], team: Team) -> dict[str, torch.Tensor]:
    """The random states of a process; one that was not there keeps a GPU's as it was seeded."""
    if team.first:
        return state
    own = {name: state.get(f"{name}.{team.rank}") for name in ("cpu", "cuda")}
    found = {name: one for name, one in own.items() if one is not None}
    return {"cpu": state["cpu"]} | found


def _set_random_state(device: torch.device, state: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state["mps"])


def _owned(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    # Tied weights appear once, under the first of their names.
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _shapes(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    # A copy, as tensors that share memory cannot be saved.
    return tensor.detach().to("cpu", copy=True).contiguous()


def _sync(path: Path) -> None:
    # So that the rename cannot reach the disk before what it names.
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
