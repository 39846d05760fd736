"""NLI classifiers: any Hugging Face sequence classifier with three named labels.

Checkpoints disagree about the order of their labels, and some say only LABEL_0: the order is read
from `id2label` by name, and where the names say nothing a map is demanded.  A silent mistake here
turns 85 % accuracy into 7 %.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from triaxial.errors import InputError
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
from triaxial.models.batching import TOKEN_BUDGET, length_batches, pad, with_backoff
from triaxial.models.tensors import on_device
from triaxial.nli import LABELS, Label

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Classifier", "fingerprint_of", "label_columns", "load_classifier", "names_say"]

_NAMES = {
    Label.ENTAILMENT: re.compile(r"entail(ment|s|ed)?", re.I),
    Label.NEUTRAL: re.compile(r"neutral", re.I),
    Label.CONTRADICTION: re.compile(r"contradict(ion|s|ed)?", re.I),
}


def label_columns(
    id2label: Mapping[int, str], given: Mapping[str, str] | None = None, *, where: str = "model"
) -> list[int]:
    """The output column of each label, in the order of `LABELS`.

    Args:
        id2label: Column to name, from the model's configuration.
        given: Column (as text) or name to label, where the user says so; it outranks the names.
        where: Named in the error.

    Raises:
        InputError: The names do not say which is which, there are not three labels, or the user's
            map names a column that is not there.
    """
    given = dict(given or {})
    names = ", ".join(f"{column}={name}" for column, name in id2label.items())
    known = {str(column) for column in id2label} | set(id2label.values())
    if strange := [key for key in given if key not in known]:
        raise InputError(
            f"--model-labels names {strange[0]!r}, but its labels are {names}", where=where
        )
    told = {
        column: given.get(str(column), given.get(name, name)) for column, name in id2label.items()
    }
    columns = _columns_by_name(told)
    if columns is None:
        raise InputError(
            f"its labels ({names}) are not entailment, neutral and contradiction; if it is a "
            "three-way NLI model, pass --model-labels 0=entailment,1=neutral,2=contradiction in "
            "its own order",
            where=where,
        )
    return columns


def names_say(name: str) -> bool:
    """Whether a model's own label names tell entailment, neutral and contradiction apart."""
    place, revision = split_revision(name)
    return _columns_by_name(load_config(locate(place, revision)).id2label) is not None


def fingerprint_of(
    name: str,
    *,
    model_labels: Mapping[str, str] | None,
    precision: Literal["auto", "fp32", "bf16"],
    device: str,
) -> dict[str, str]:
    """What decides a classifier's numbers, without reading its weights into memory."""
    place, revision = split_revision(name)
    checkpoint = locate(place, revision)
    config = load_config(checkpoint)
    columns = label_columns(config.id2label, model_labels, where=place)
    return _fingerprint(checkpoint, hardware(device, precision), columns)


def _columns_by_name(names: Mapping[int, str]) -> list[int] | None:
    columns: dict[Label, int] = {}
    for column, name in names.items():
        label = next((label for label in LABELS if _NAMES[label].fullmatch(name.strip())), None)
        if label is not None and label not in columns:
            columns[label] = int(column)
    if len(names) != len(LABELS) or len(columns) != len(LABELS):
        return None
    return [columns[label] for label in LABELS]


class Classifier:
    """A loaded NLI classifier; see `load_classifier`."""

    def __init__(
        self,
        name: str,
        where: Hardware,
        revision: str | None,
        model_labels: Mapping[str, str] | None,
        token_budget: int | None,
    ) -> None:
        from transformers import AutoModelForSequenceClassification

        self.checkpoint = locate(name, revision)
        self.name = name
        self.where = where
        self.work = Work()
        self.truncated = 0
        config = load_config(self.checkpoint)
        self.columns = label_columns(config.id2label, model_labels, where=name)
        self.fingerprint = _fingerprint(self.checkpoint, where, self.columns)
        self.tokenizer = load_tokenizer(self.checkpoint)
        self.longest = longest_input(config, self.tokenizer)
        self.token_budget = token_budget or TOKEN_BUDGET[torch.device(where.device).type]
        self.model = load_pretrained(AutoModelForSequenceClassification, self.checkpoint)
        self.model.to(where.device).eval()

    def predict(
        self,
        pairs: Sequence[tuple[str, str]],
        progress: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        """Log-probabilities of shape (N, 3), columns in the order of `LABELS`.

        Each distinct pair is computed once. Pairs longer than the model allows are cut at the
        longer side and counted in `truncated`.
        """
        place = {pair: n for n, pair in enumerate(dict.fromkeys(pairs))}
        values = self._predict_distinct(list(place), progress)
        return values[[place[pair] for pair in pairs]]

    def _predict_distinct(
        self, pairs: list[tuple[str, str]], progress: Callable[[int], None] | None
    ) -> NDArray[np.float32]:
        out = torch.zeros((len(pairs), len(LABELS)), device=self.where.device)
        if not pairs:
            return out.cpu().numpy()
        encoded = self.tokenizer(
            [premise for premise, _ in pairs],
            [hypothesis for _, hypothesis in pairs],
            truncation="longest_first",
            max_length=self.longest,
            return_attention_mask=False,
        )
        ids = encoded["input_ids"]
        types = encoded.get("token_type_ids")
        lengths = [len(row) for row in ids]
        self.truncated += sum(bool(e.overflowing) for e in encoded.encodings or ())
        with evaluation(self.model):
            for batch in length_batches(lengths, self.token_budget):
                width = lengths[batch[0]]

                def forward(part: NDArray[np.intp], width: int = width) -> torch.Tensor:
                    kinds = None if types is None else [types[i] for i in part]
                    return self._forward([ids[i] for i in part], kinds, width)

                for part, log_p in with_backoff(forward, batch):
                    out[on_device(part, out.device)] = log_p
                    if progress is not None:
                        progress(len(part))
        return out.cpu().numpy()

    def _forward(
        self, ids: list[list[int]], types: list[list[int]] | None, width: int
    ) -> torch.Tensor:
        device = self.where.device
        lengths = np.asarray([len(row) for row in ids])
        mask = (np.arange(width) < lengths[:, None]).astype(np.int64)
        inputs: dict[str, Any] = {
            "input_ids": pad(ids, self.tokenizer.pad_token_id or 0, width),
            "attention_mask": mask,
        }
        if types is not None:
            inputs["token_type_ids"] = pad(types, 0, width)
        with autocast(self.where):
            sent = {name: on_device(array, device) for name, array in inputs.items()}
            logits = self.model(**sent).logits  # (B, 3)
        self.work.count(len(ids), int(lengths.sum()), mask.size)
        return torch.log_softmax(logits.float(), dim=-1)[:, self.columns]


def load_classifier(
    name: str,
    *,
    revision: str | None = None,
    model_labels: Mapping[str, str] | None = None,
    device: str = "auto",
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    token_budget: int | None = None,
) -> Classifier:
    """Load any three-way NLI classifier from a directory or the hub.

    Args:
        name: Directory or hub id.
        revision: Hub revision.
        model_labels: Column or label name to NLI label, where the model's names say nothing.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        precision: `auto` takes bf16 where the device multiplies it natively, fp32 is parity mode.
        token_budget: Padded tokens of a batch; by default what suits the device.

    Raises:
        InputError: No such model, no weights, labels that cannot be told apart.
    """
    where = hardware(device, precision)
    return Classifier(name, where, revision, model_labels, token_budget)


def _fingerprint(checkpoint: Checkpoint, where: Hardware, columns: Sequence[int]) -> dict[str, str]:
    return {
        **checkpoint.fingerprint,
        "precision": where.precision,
        "columns": ",".join(map(str, columns)),
    }
