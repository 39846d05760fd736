"""Models on a set of MERGE variants: what they are asked, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from triaxial.api.merge_files import VariantSet
from triaxial.errors import InputError
from triaxial.execute import Computing
from triaxial.merge.analyses import groups_of
from triaxial.merge.filters import variant_texts
from triaxial.merge.score import DrawOptions
from triaxial.merge.stages import Clock, labels_of, predict
from triaxial.nli import LABELS, read_labels
from triaxial.store import digest, file_digest

if TYPE_CHECKING:
    import polars as pl

    from triaxial.models.base import NliModel

__all__ = ["EvaluateOptions", "evaluate", "item_rows", "run_key"]


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """Which models are scored, and on how many draws.

    Args:
        models: Directories or hub ids of NLI classifiers, `file:PATH` of predictions, or objects
            that predict (`models.base.NliModel`: a name, a fingerprint, `predict(pairs)`).
        model_labels: Column or name to label. With one model it outranks the checkpoint's own
            names; with several it is for those whose names say nothing.
        precision: Of the classifiers.
        draw: See `merge.score.DrawOptions`.
    """

    models: tuple[str | NliModel, ...]
    model_labels: Mapping[str, str] | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    draw: DrawOptions = field(default_factory=DrawOptions)


def evaluate(
    made: VariantSet, options: EvaluateOptions, settings: Computing
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The predictions of every model on the seeds and drawn variants, and what is known of them.

    Only variants that some draw holds are predicted, each distinct pair once.

    Returns:
        A table with the columns model, seed, variant (-1 for the seed itself), label and three
        log-probabilities (null for predictions from a file); and facts by model.
    """
    import polars as pl

    if not options.models:
        raise InputError("no model given; pass at least one --model NAME_OR_DIRECTORY")
    items = _items(made, options.draw)
    clock = Clock()
    frames = []
    facts: dict[str, Any] = {}
    work: dict[str, Any] = {}
    plain = [m.removeprefix("file:") if isinstance(m, str) else m.name for m in options.models]
    for name, label in zip(options.models, labels_of(plain), strict=True):
        if not isinstance(name, str):
            with clock.time("classifier"):
                frame = _predicted_frame(items, name.predict)
            facts[label] = {"name": name.name, **name.fingerprint}
            work[label] = {}
        elif name.startswith("file:"):
            frame = _read_predictions(Path(name.removeprefix("file:")), items)
            facts[label] = {"name": name, **_fingerprint(name, options, settings)}
            work[label] = {}
        else:
            frame, facts[label], work[label] = _predicted(name, items, options, settings, clock)
        frames.append(frame.select(pl.lit(label).alias("model"), pl.all()))
    table = pl.concat(frames)
    return table, {"models": facts, "work": {"classifier": work, "seconds": clock.seconds}}


def run_key(made_key: str, options: EvaluateOptions, settings: Computing) -> str:
    """What names a run: its set, its models and its draws."""
    models = [_fingerprint(name, options, settings) for name in options.models]
    return digest({"set": made_key, "models": models, "draw": asdict(options.draw)})


def item_rows(made: VariantSet, draw: DrawOptions) -> pl.DataFrame:
    """What a model is asked: columns item ("seed" or "seed#variant"), premise, hypothesis, label.

    Label them with any program and pass the file as `file:PATH`.
    """
    import polars as pl

    items = _items(made, draw)
    gold = {pair.id: pair.label.value for pair in made.pairs}
    return pl.DataFrame(
        {
            "item": items.names(),
            "premise": [premise for premise, _ in items.texts],
            "hypothesis": [hypothesis for _, hypothesis in items.texts],
            "label": [gold[seed] for seed in items.seeds],
        }
    )


@dataclass(frozen=True, slots=True)
class _Items:
    """Seeds and variants to be predicted: ids, numbers (-1: the seed itself) and texts."""

    seeds: list[str]
    variants: list[int]
    texts: list[tuple[str, str]]

    def names(self) -> list[str]:
        """The name of each item in files."""
        both = zip(self.seeds, self.variants, strict=True)
        return [seed if variant < 0 else f"{seed}#{variant}" for seed, variant in both]


def _items(made: VariantSet, draw: DrawOptions) -> _Items:
    index, offsets = made.index(), made.offsets()
    wanted = np.zeros(len(made.replacements), dtype=bool)
    seeds: set[int] = set()
    for group in groups_of(index, draw):
        seeds.update(group.seeds.tolist())
        wanted[(offsets[group.seeds][:, None, None] + group.variants).ravel()] = True
    words = made.replacements["replacement"].to_list()
    spans = [made.replacements[f"{side}_spans"] for side in ("premise", "hypothesis")]
    items = _Items([], [], [])
    for position in sorted(seeds):
        pair = made.pairs[position]
        items.seeds.append(pair.id)
        items.variants.append(-1)
        items.texts.append((pair.premise, pair.hypothesis))
        for row in range(offsets[position], offsets[position + 1]):
            if wanted[row]:
                items.seeds.append(pair.id)
                items.variants.append(int(row - offsets[position]))
                both = [side[row].to_list() for side in spans]
                items.texts.append(variant_texts(pair, words[row], *both))
    return items


def _predicted(
    name: str, items: _Items, options: EvaluateOptions, settings: Computing, clock: Clock
) -> tuple[pl.DataFrame, dict[str, Any], dict[str, int]]:
    found: dict[str, Any] = {}

    def asked(pairs: Sequence[tuple[str, str]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        log_p, found["fingerprint"], found["work"] = predict(
            pairs,
            name,
            model_labels=_labels_for(name, options),
            precision=options.precision,
            settings=settings,
            clock=clock,
        )
        return log_p

    frame = _predicted_frame(items, asked)
    return frame, {"name": name, **found["fingerprint"]}, found["work"]


def _predicted_frame(
    items: _Items,
    predict: Callable[[Sequence[tuple[str, str]]], np.ndarray[Any, np.dtype[np.float32]]],
) -> pl.DataFrame:
    """Labels and log-probabilities of all items; each distinct pair is asked once."""
    import polars as pl

    place = {pair: n for n, pair in enumerate(dict.fromkeys(items.texts))}
    log_p = np.asarray(predict(list(place)), dtype=np.float32)
    if log_p.shape != (len(place), len(LABELS)):
        raise InputError(
            f"predict gave an array of shape {log_p.shape}; wanted ({len(place)}, {len(LABELS)})"
        )
    rows = log_p[[place[pair] for pair in items.texts]]
    labels = [LABELS[i].value for i in rows.argmax(axis=1)]
    return _frame(items, labels).with_columns(
        pl.Series(f"log_p_{label.value}", rows[:, n], dtype=pl.Float32)
        for n, label in enumerate(LABELS)
    )


def _read_predictions(path: Path, items: _Items) -> pl.DataFrame:
    """Labels from a file of rows `item`, `label`; see `export` for the items."""
    import polars as pl

    found = read_labels(path)
    wanted = items.names()
    missing = [item for item in wanted if item not in found]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(wanted)} items have no label, {missing[0]!r} first; "
            "label every row that `triax merge export --format items` writes",
            where=path,
        )
    nulls = [pl.lit(None, dtype=pl.Float32).alias(f"log_p_{label.value}") for label in LABELS]
    return _frame(items, [found[item].value for item in wanted]).with_columns(nulls)


def _frame(items: _Items, labels: Sequence[str]) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(
        {"seed": items.seeds, "variant": items.variants, "label": list(labels)},
        schema={"seed": pl.String(), "variant": pl.Int32(), "label": pl.String()},
    )


def _labels_for(name: str, options: EvaluateOptions) -> Mapping[str, str] | None:
    """The user's label map where it is meant for this model."""
    if options.model_labels is None or len(options.models) == 1:
        return options.model_labels
    from triaxial.models.classifier import names_say

    return None if names_say(name) else options.model_labels


def _fingerprint(
    name: str | NliModel, options: EvaluateOptions, settings: Computing
) -> dict[str, str]:
    if not isinstance(name, str):
        return dict(name.fingerprint)
    if name.startswith("file:"):
        return {"file": file_digest(name.removeprefix("file:"))}
    from triaxial.models.classifier import fingerprint_of

    return fingerprint_of(
        name,
        model_labels=_labels_for(name, options),
        precision=options.precision,
        device=settings.device,
    )
