"""Models on a set of MERGE variants: what they are asked, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from triaxial.api.merge_files import VariantSet
from triaxial.api.merge_imports import Imported
from triaxial.api.merge_sources import (
    EvaluateOptions,
    fingerprint_of,
    imported,
    plain_name,
    source_of,
    works_here,
)
from triaxial.errors import InputError
from triaxial.execute import Computing, run
from triaxial.merge.analyses import groups_of
from triaxial.merge.filters import variant_texts
from triaxial.merge.score import DrawOptions
from triaxial.merge.stages import Clock, NliSource, labels_of, predict
from triaxial.nli import LABELS
from triaxial.store import digest

if TYPE_CHECKING:
    import polars as pl

__all__ = ["EvaluateOptions", "estimated", "evaluate", "item_rows", "run_key"]


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
    labels = labels_of([plain_name(model) for model in options.models])
    if len(set(labels)) < len(labels):
        twice = max(labels, key=labels.count)
        raise InputError(f"two models are called {twice!r}; score them in two runs")
    elsewhere = {} if settings.ray is None else _on_ray(items, options, settings, clock)
    for name, label in zip(options.models, labels, strict=True):
        work[label] = {}
        told: dict[str, Any] = {"name": name if isinstance(name, str) else name.name}
        if not isinstance(name, str):
            with clock.time("classifier"):
                frame = _predicted_frame(items, name.predict)
            told |= name.fingerprint
        elif (found := imported(name)) is not None:
            frame = _imported_frame(found, items, name)
            told |= fingerprint_of(name, options, settings)
        else:
            source = source_of(name, options, settings)

            def asked(
                pairs: Sequence[tuple[str, str]], source: NliSource = source, label: str = label
            ) -> np.ndarray[Any, np.dtype[np.float32]]:
                log_p, work[label] = predict(pairs, source, settings=settings, clock=clock)
                return log_p

            frame = _predicted_frame(items, asked)
            work[label] |= elsewhere.get(name, {})
            told |= source.fingerprint
        facts[label] = told
        frames.append(frame.select(pl.lit(label).alias("model"), pl.all()))
    table = pl.concat(frames)
    return table, {"models": facts, "work": {"models": work, "seconds": clock.seconds}}


def run_key(made_key: str, options: EvaluateOptions, settings: Computing) -> str:
    """What names a run: its set, its models and its draws."""
    models = [fingerprint_of(name, options, settings) for name in options.models]
    return digest({"set": made_key, "models": models, "draw": asdict(options.draw)})


def estimated(made: VariantSet, options: EvaluateOptions) -> list[dict[str, Any]]:
    """What the endpoints among the models would be asked, before any cache; nothing is asked.

    Returns:
        By model: items, prompt_tokens, completion_tokens (estimates), cost (None without prices).

    Raises:
        InputError: No model is an endpoint.
    """
    from triaxial.models.endpoint import estimate

    names = [m for m in options.models if isinstance(m, str) and m.startswith("endpoint:")]
    if not names:
        raise InputError("is of endpoints; name one as --model endpoint:NAME", where="--estimate")
    texts = _items(made, options.draw).texts
    found = estimate(texts, options.choice.prompt, options.endpoint)
    return [{"model": plain_name(name), **found} for name in names]


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


def _on_ray(
    items: _Items, options: EvaluateOptions, settings: Computing, clock: Clock
) -> dict[str, dict[str, Any]]:
    """Every model as one shard, its predictions into the cache; by name, the work that it was."""
    names = [name for name in options.models if isinstance(name, str) and works_here(name)]
    plain = tuple(name if isinstance(name, str) else name.name for name in options.models)
    told = settings.told("models on Ray")
    with clock.time("models on Ray"):
        found = run(
            partial(
                _cached,
                list(dict.fromkeys(items.texts)),
                replace(options, models=plain),
                replace(settings, ray=None, progress=None),
            ),
            names,
            workers=settings.workers,
            ray=settings.ray,
            gpus=settings.gpus,
            progress=told,
        )
        return {names[at]: work for at, work in found}


def _cached(
    pairs: Sequence[tuple[str, str]], options: EvaluateOptions, settings: Computing, name: str
) -> dict[str, Any]:
    _, work = predict(pairs, source_of(name, options, settings), settings=settings, clock=Clock())
    return work


def _imported_frame(found: Mapping[str, Imported], items: _Items, name: str) -> pl.DataFrame:
    """Predictions that stand in a file, for all items; those of other items are left alone."""
    import polars as pl

    where = name.partition(":")[2]
    wanted = items.names()
    missing = [item for item in wanted if item not in found]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(wanted)} items have no label, {missing[0]!r} first; "
            "label every row that `triax merge export --format items` (or lm-eval) writes, with "
            "the same --min-variants, --draws and --seed",
            where=where,
        )
    rows = [found[item] for item in wanted]
    other = [
        item
        for item, row, texts in zip(wanted, rows, items.texts, strict=True)
        if row.texts not in (None, texts)
    ]
    if other:
        raise InputError(
            f"{len(other)} of {len(wanted)} items have other texts than here, {other[0]!r} first; "
            "is it of another set?",
            where=where,
        )
    return _frame(items, [row.label.value for row in rows]).with_columns(
        pl.Series(f"log_p_{label.value}", [row.log_p and row.log_p[n] for row in rows], pl.Float32)
        for n, label in enumerate(LABELS)
    )


def _frame(items: _Items, labels: Sequence[str]) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(
        {"seed": items.seeds, "variant": items.variants, "label": list(labels)},
        schema={"seed": pl.String(), "variant": pl.Int32(), "label": pl.String()},
    )
