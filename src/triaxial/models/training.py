"""What every fine-tuning shares: rows of tokens, their batches, and the directory that is written.

A model appears in its directory only when it is whole (`config.json` comes last), with
`training.json` beside it.  B rows, T tokens.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from triaxial.errors import InputError, StoreError
from triaxial.stats import bootstrap, generator

from .base import Checkpoint, Hardware, longest_input
from .batching import pad
from .distributed import ALONE, Team
from .fit import PART_COST, FitOptions, History, Parts, shuffled, split
from .tensors import on_device

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

__all__ = [
    "CHECKPOINTS",
    "Part",
    "Rows",
    "about_run",
    "batches_of",
    "check",
    "digest",
    "encode",
    "finished",
    "inputs_of",
    "parts_of",
    "publish",
    "ratio_interval",
    "shrink_embeddings",
    "told",
    "used_embeddings",
]

CHECKPOINTS = ".checkpoints"  # in the model's directory, until it is whole
_OURS = (".checkpoints", ".saving-")
_LOG = "training.json"
_DRAWS = 2_000  # of the bootstrap


@dataclass(frozen=True, slots=True)
class Rows:
    """Token ids row by row; `special` marks the tokens that the tokenizer adds."""

    ids: list[list[int]]
    types: list[list[int]] | None
    special: list[list[int]]
    lengths: NDArray[np.int64]
    padding: int
    truncated: int

    def padded(self, rows: NDArray[np.intp], width: int | None = None) -> NDArray[np.int64]:
        """Ids of some rows, shape (B, T), as wide as the longest of them unless told."""
        return pad([self.ids[row] for row in rows], self.padding, width)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a batch that are padded to one width."""

    rows: NDArray[np.intp]
    width: int

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: slice) -> Part:
        """Some of the rows, as wide as all."""
        return Part(self.rows[which], self.width)


def parts_of(lengths: NDArray[np.int64], batches: Sequence[NDArray[np.intp]]) -> list[Part]:
    """Runs of rows, each as wide as its longest."""
    return [Part(rows, int(lengths[rows].max())) for rows in batches]


def encode(
    tokenizer: PreTrainedTokenizerFast,
    source: Checkpoint,
    config: Any,
    first: Sequence[str],
    second: Sequence[str] | None = None,
) -> Rows:
    """Token ids of texts or pairs of texts, cut at what the model takes.

    Raises:
        InputError: The tokenizer has no padding token.
    """
    if tokenizer.pad_token_id is None:
        raise InputError("its tokenizer has no padding token; use an encoder", where=source.name)
    encoded: Any = tokenizer(
        list(first),
        None if second is None else list(second),
        truncation="longest_first",
        max_length=longest_input(config, tokenizer),
        return_attention_mask=False,
        return_special_tokens_mask=True,
    )
    ids = encoded["input_ids"]
    return Rows(
        ids,
        encoded.get("token_type_ids"),
        encoded["special_tokens_mask"],
        np.asarray([len(row) for row in ids]),
        tokenizer.pad_token_id,
        sum(bool(encoding.overflowing) for encoding in encoded.encodings),
    )


def inputs_of(
    rows: Rows, part: NDArray[np.intp], ids: NDArray[np.int64], where: Hardware
) -> dict[str, torch.Tensor]:
    """What the model takes for some rows, given their padded ids: ids, attention mask, types."""
    width = ids.shape[1]
    inputs = {
        "input_ids": ids,  # (B, T)
        "attention_mask": (np.arange(width) < rows.lengths[part][:, None]).astype(np.int64),
    }
    if rows.types is not None:
        inputs["token_type_ids"] = pad([rows.types[row] for row in part], 0, width)
    return {name: on_device(array, where.device) for name, array in inputs.items()}


@contextlib.contextmanager
def used_embeddings(
    model: Any, rows: Rows, tokenizer: PreTrainedTokenizerFast
) -> Iterator[NDArray[np.int64]]:
    """Train with the embeddings of the tokens that occur; yields the new id of each token.

    Half of a small encoder's weights belong to tokens that a data set never uses, and moving their
    gradients and moments, all zero, costs as much as the rest of the update. Padding and marks keep
    their ids, since models tell positions and ends by them.
    """
    new_ids, restore = shrink_embeddings(model, rows.ids, tokenizer)
    try:
        yield new_ids
    finally:
        restore()


def shrink_embeddings(
    model: Any, ids: Sequence[Sequence[int]], tokenizer: PreTrainedTokenizerFast
) -> tuple[NDArray[np.int64], Callable[[], None]]:
    """As `used_embeddings`, of the tokens in `ids`, until the returned function is called."""
    whole = model.get_input_embeddings()
    size = whole.weight.shape[0]
    same = [
        weight
        for _, weight in model.named_parameters(remove_duplicate=False)
        if weight is whole.weight
    ]
    if type(whole) is not torch.nn.Embedding or len(same) != 1:
        return np.arange(size), lambda: None
    marks = [
        getattr(model.config, f"{name}_token_id", None) for name in ("pad", "bos", "eos", "sep")
    ]
    first = max(tokenizer.pad_token_id, *(mark for mark in marks if mark is not None), 0) + 1
    used = np.unique(np.concatenate([np.arange(first), *map(np.asarray, ids)]))
    new_ids = np.zeros(size, dtype=np.int64)
    new_ids[used] = np.arange(len(used))
    index = torch.from_numpy(used)
    weight = whole.weight.detach()[index]  # a copy
    part = torch.nn.Embedding(
        len(used), weight.shape[1], padding_idx=whole.padding_idx, _weight=weight
    )
    model.set_input_embeddings(part)

    def restore() -> None:
        with torch.no_grad():
            whole.weight[index] = part.weight.to(whole.weight.device)
        model.set_input_embeddings(whole)

    return new_ids, restore


def batches_of(
    lengths: NDArray[np.int64], batch_size: int, options: FitOptions, where: Hardware
) -> Callable[[int], list[Parts[Part]]]:
    """For `fit`: the batches of an epoch, random samples in parts of similar length."""
    cost = PART_COST[torch.device(where.device).type]

    def epoch_batches(epoch: int) -> list[Parts[Part]]:
        return [
            [
                (len(part) / len(batch), part)
                for part in parts_of(lengths, split(lengths, batch, cost))
            ]
            for batch in shuffled(lengths, batch_size, seed=options.seed, epoch=epoch)
        ]

    return epoch_batches


def check(rows: Sequence[object], what: str, batch_size: int) -> None:
    """Refuse to train on nothing, or in batches of none."""
    if not rows:
        raise InputError(f"no {what} to train on; give at least one")
    if batch_size < 1:
        raise InputError(f"is {batch_size}; it must be at least 1", where="batch_size")


def digest(value: object) -> str:
    """SHA-256 of plain data."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def about_run(
    kind: str,
    source: Checkpoint,
    data: str,
    held_out: str,
    options: FitOptions,
    batch_size: int,
    where: Hardware,
    mask_share: float | None = None,
) -> dict[str, Any]:
    """What a run computes, in plain data, with the digest `run` over all that decides it."""
    what: dict[str, Any] = {
        "kind": kind,
        "model": source.fingerprint,
        "data": data,
        "held_out_data": held_out,
        "options": asdict(options),
        "batch_size": batch_size,
        "precision": where.precision,
    }
    if mask_share is not None:
        what["mask_share"] = mask_share
    decides = what | {"options": {**what["options"], "checkpoint_every": None}}
    return {"run": digest(decides), "name": source.name, "device": where.device, **what}


def finished(out: Path, run: str) -> dict[str, Any] | None:
    """The report of this very run when it is finished; None when it is still to be done.

    Raises:
        StoreError: There is something else.
    """
    if out.exists() and not out.is_dir():
        raise StoreError("is a file, wanted a directory; choose another name", where=out)
    found: dict[str, Any] = {}
    if (out / _LOG).is_file():
        with contextlib.suppress(ValueError):
            found = json.loads((out / _LOG).read_text(encoding="utf-8"))
    if found.get("run") == run:
        # Without its configuration it was killed while it was moved into place.
        return found if (out / "config.json").is_file() else None
    others = [path.name for path in out.glob("*") if not path.name.startswith(_OURS)]
    if others:
        what = "another model" if found or "config.json" in others else f"{min(others)!r}"
        raise StoreError(f"holds {what}; choose an empty or a new directory", where=out)
    return None


def told(history: History, per_epoch: int) -> dict[str, Any]:
    """The history of a training, for its log."""
    losses = history.losses
    epochs = [losses[at : at + per_epoch] for at in range(0, len(losses), per_epoch)]
    return {
        "steps": len(losses),
        "epoch_losses": [sum(part) / len(part) for part in epochs],
        "losses": list(losses),
    }


def ratio_interval(
    units: NDArray[Any], clusters: NDArray[np.integer] | None = None
) -> dict[str, float]:
    """Ratio of the sums of two columns, shape (N, 2), with its bootstrap interval."""
    found = bootstrap(
        units,
        lambda sums: sums[..., 0] / sums[..., 1],
        clusters=clusters,
        draws=_DRAWS,
        rng=generator("finetune.interval"),
    )
    return asdict(found)


def publish(
    out: Path,
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    facts: dict[str, Any],
    measure: Callable[[Path], dict[str, Any]],
    team: Team = ALONE,
) -> dict[str, Any]:
    """Save beside, measure what was saved, then move it into place.

    The first process of a team does; the others return the facts without what is measured.
    """
    if not team.first:
        return facts
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    temporary = out / f".saving-{os.getpid()}"
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model.to("cpu").save_pretrained(temporary)
        tokenizer.save_pretrained(str(temporary))
        facts = facts | measure(temporary)
        (temporary / _LOG).write_text(json.dumps(facts, indent=1), encoding="utf-8")
        # The log first, which says whose the rest is; then the rest; the configuration last.
        order = {_LOG: 0, "config.json": 2}
        for path in sorted(temporary.iterdir(), key=lambda path: order.get(path.name, 1)):
            os.replace(path, out / path.name)
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        raise StoreError(
            f"the model cannot be written ({error}); the checkpoint is kept: make room and call "
            "again",
            where=out,
        ) from None
    finally:
        for left in out.glob(".saving-*"):  # those of killed runs too
            shutil.rmtree(left, ignore_errors=True)
        if bars:
            logging.enable_progress_bar()
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    return facts
