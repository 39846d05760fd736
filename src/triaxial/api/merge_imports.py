"""What a model said elsewhere: sample logs of lm-evaluation-harness, and logs of Inspect.

Both hold the item of each sample (see `merge_predict.item_rows`), which is how predictions find
their seed or variant.

- lm-evaluation-harness, `--log_samples`: one line a sample; the item is `doc.item`, as in the tasks
  that `export` writes, and the label the likeliest of the three answers, in the order of `LABELS`.
- Inspect: `.json`, or `.eval`, a zip of the same; the item is the sample's id, and the label the
  answer that a scorer found: one of the sample's choices by its letter, or the label itself.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from triaxial.errors import InputError
from triaxial.nli import LABELS, Label

__all__ = ["Imported", "inspect_labels", "lm_eval_labels"]

_LETTERS = "ABC"


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file says of one item.

    Args:
        label: The prediction.
        log_p: Log-probabilities of the three labels, where the file has them.
        texts: Premise and hypothesis, where the file has them.
    """

    label: Label
    log_p: tuple[float, ...] | None = None
    texts: tuple[str, str] | None = None


def lm_eval_labels(path: Path) -> dict[str, Imported]:
    """Predictions by item from a sample log, or from all `samples_*.jsonl` of a directory.

    Raises:
        InputError: A line is no sample of a task that `export` wrote, or an item stands twice.
    """
    files = sorted(path.glob("samples_*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise InputError(
            "holds no samples_*.jsonl; run lm_eval with --log_samples and --output_path", where=path
        )
    found: dict[str, Imported] = {}
    for file in files:
        # Not splitlines: a text may hold other characters that end a line.
        for number, line in enumerate(_text(file).rstrip("\n").split("\n"), 1):
            where = f"{file}:{number}"
            try:
                sample = json.loads(line)
                doc = sample["doc"]
                item = str(doc["item"])
                scores = [float(one[0]) for one in sample["filtered_resps"]]
                texts = (str(doc["premise"]), str(doc["hypothesis"]))
            except (ValueError, TypeError, KeyError, IndexError):
                raise InputError(
                    "is no sample of a task that `triax merge export --format lm-eval` wrote",
                    where=where,
                ) from None
            if len(scores) != len(LABELS) or not np.isfinite(scores).all():
                raise InputError(
                    f"item {item!r} has the log-likelihoods {scores}; wanted three", where=where
                )
            log_p = np.asarray(scores) - np.logaddexp.reduce(scores)
            one = Imported(LABELS[int(np.argmax(scores))], tuple(log_p.tolist()), texts)
            _put(found, item, one, where)
    return found


def inspect_labels(path: Path) -> dict[str, Imported]:
    """Predictions by item from a log of Inspect.

    A sample without a score (it ended in an error) has no prediction.

    Raises:
        InputError: The file is no such log, an answer is no label, or an item stands twice.
    """
    found: dict[str, Imported] = {}
    for sample in _inspect_samples(path):
        if not isinstance(sample, dict) or "id" not in sample:
            raise InputError("is no log of Inspect: a sample has no id", where=path)
        item = str(sample["id"])
        answer = _inspect_answer(sample.get("scores"), item, path)
        if answer is not None:
            label = _label_of(answer, sample.get("choices"))
            if label is None:
                raise InputError(
                    f"the answer {answer!r} to item {item!r} is no label, and no letter of one of "
                    "its choices",
                    where=path,
                )
            _put(found, item, Imported(label), path)
    return found


def _put(found: dict[str, Imported], item: str, one: Imported, where: object) -> None:
    if item in found:
        raise InputError(
            f"item {item!r} stands twice; keep one run with one epoch (epochs=1)", where=where
        )
    found[item] = one


def _inspect_samples(path: Path) -> Iterator[Any]:
    if path.suffix == ".eval":
        try:
            with zipfile.ZipFile(path) as file:
                for name in sorted(file.namelist()):
                    if name.startswith("samples/") and name.endswith(".json"):
                        yield json.loads(file.read(name))
        except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError) as error:
            raise InputError(
                f"cannot be read ({error}); write it as JSON with `inspect log convert --to json`",
                where=path,
            ) from None
        return
    try:
        log = json.loads(_text(path))
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=path) from None
    samples = log.get("samples") if isinstance(log, dict) else None
    if not isinstance(samples, list):
        raise InputError(
            "is no log of Inspect with samples; run it with log_samples, and name the .json or "
            ".eval file",
            where=path,
        )
    yield from samples


def _inspect_answer(scores: object, item: str, path: Path) -> str | None:
    """What a scorer took for the answer: `choice`, or the only scorer there is."""
    if not isinstance(scores, Mapping) or not scores:
        return None
    if "choice" not in scores and len(scores) > 1:
        raise InputError(
            f"item {item!r} has the scores {', '.join(scores)} and none of `choice`; score with "
            "one scorer",
            where=path,
        )
    score = scores.get("choice", next(iter(scores.values())))
    answer = score.get("answer") if isinstance(score, Mapping) else None
    return None if answer is None else str(answer).strip()


def _label_of(answer: str, choices: object) -> Label | None:
    """A label from its name, or from a letter and the choices that it is one of."""
    names = {label.value: label for label in LABELS}
    if answer.upper() in _LETTERS and len(answer) == 1:
        listed: Sequence[object] = choices if isinstance(choices, list) else [*names]
        at = _LETTERS.index(answer.upper())
        answer = str(listed[at]) if at < len(listed) else ""
    return names.get(answer.strip().casefold())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", where=path) from None
