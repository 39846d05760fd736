"""MERGE as functions: generate, evaluate, score, run.

A set is a directory with the tables `seeds`, `variants` and `funnel`; a run is a set with
`predictions` and `metrics.json`. Everything that is shown is computed from these files.

Source: MERGE (arXiv 2510.24295); see `docs/choices.md` for what the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from triaxial import __version__
from triaxial.api.merge_files import (
    RUN,
    VariantSet,
    check_directory,
    labels_by_variant,
    write_run,
)
from triaxial.errors import InputError
from triaxial.merge.analyses import (
    Group,
    Predictions,
    VariantIndex,
    groups_of,
    score_model,
    trivial,
)
from triaxial.merge.filters import variant_texts
from triaxial.merge.gate import signature
from triaxial.merge.lexicon import WordNet, find_wordnet
from triaxial.merge.score import GRID, DrawOptions, Scores
from triaxial.merge.stages import (
    Clock,
    Settings,
    labels_of,
    masked_sources,
    predict,
    refuse_marks,
    seeds_of,
    variants,
)
from triaxial.merge.variants import PRESETS, Preset
from triaxial.nli import LABELS, Pair, Reading, read_labels
from triaxial.store import claim_directory, digest, file_digest

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "EvaluateOptions",
    "GenerateOptions",
    "evaluate",
    "generate",
    "item_rows",
    "run",
    "run_key",
    "score",
    "with_options",
    "without_marks",
]

_Precision = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """What a set of variants is made with.

    Args:
        mlm: Masked LMs, directories or hub ids, `@revision` behind an id where wanted.
        preset_name: Shown in the signature; `faithful`, `safe`, with "+" behind it if changed.
        preset: See `merge.variants.Preset`.
        tagger: `hanta` or `spacy:NAME_OR_DIRECTORY`.
        wordnet: Directory of WordNet data; by default where the system keeps it.
        mlm_precision: Of the masked LMs. Choice: fp32, as probabilities are compared.
        on_bad: Whether a seed that contains a mask token is refused or dropped with a count.
    """

    mlm: tuple[str, ...]
    preset_name: str = "faithful"
    preset: Preset = PRESETS["faithful"]
    tagger: str = "hanta"
    wordnet: str | None = None
    mlm_precision: _Precision = "fp32"
    on_bad: Literal["refuse", "drop"] = "refuse"


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """Which models are scored, and on how many draws.

    Args:
        models: Directories or hub ids of NLI classifiers, or `file:PATH` of predictions.
        model_labels: Column or name to label. With one model it outranks the checkpoint's own
            names; with several it is for those whose names say nothing.
        precision: Of the classifiers.
        draw: See `merge.score.DrawOptions`.
    """

    models: tuple[str, ...]
    model_labels: Mapping[str, str] | None = None
    precision: _Precision = "auto"
    draw: DrawOptions = field(default_factory=DrawOptions)


def generate(reading: Reading, options: GenerateOptions, settings: Settings) -> VariantSet:
    """The variants of all seeds.

    Raises:
        InputError: A model, the tagger or a seed cannot be used.
    """
    if not options.mlm:
        raise InputError("no masked LM given; pass at least one --mlm NAME_OR_DIRECTORY")
    clock = Clock()
    precision, k = options.mlm_precision, options.preset.propose.k
    sources = masked_sources(options.mlm, precision, k, settings)
    pairs, dropped = without_marks(reading, sources, options.on_bad)
    wordnet_at = find_wordnet(options.wordnet)
    wordnet = None if wordnet_at is None else WordNet(wordnet_at)
    seeds, sentences = seeds_of(pairs, options.tagger, settings, clock)
    replacements, funnel, key = variants(
        seeds, sentences, sources, options.preset, options.tagger, wordnet, settings, clock
    )
    facts = {
        "data": {"source": reading.source, "digest": reading.digest, "dropped": dropped},
        "preset": options.preset_name,
        "options": asdict(options.preset),
        "mlm": {
            source.label: {"name": name, **source.fingerprint}
            for source, name in zip(sources, options.mlm, strict=True)
        },
        "mlm_precision": precision,
        "tagger": options.tagger,
        "wordnet": None if wordnet is None else wordnet.digest,
    }
    work = {
        "seconds": clock.seconds,
        "masked_lm": {source.label: source.work for source in sources},
    }
    return VariantSet(key, pairs, replacements, funnel, facts, work)


def evaluate(
    made: VariantSet, options: EvaluateOptions, settings: Settings
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
    plain = [name.removeprefix("file:") for name in options.models]
    for name, label in zip(options.models, labels_of(plain), strict=True):
        if name.startswith("file:"):
            frame = _read_predictions(Path(name.removeprefix("file:")), items)
            facts[label] = {"name": name, **_fingerprint(name, options, settings)}
            work[label] = {}
        else:
            frame, facts[label], work[label] = _predicted(name, items, options, settings, clock)
        frames.append(frame.select(pl.lit(label).alias("model"), pl.all()))
    table = pl.concat(frames)
    return table, {"models": facts, "work": {"classifier": work, "seconds": clock.seconds}}


def score(
    made: VariantSet, predictions: pl.DataFrame, draw: DrawOptions, models: Mapping[str, Any]
) -> dict[str, Any]:
    """All figures of a run as plain values: what `metrics.json` holds."""
    index, offsets = made.index(), made.offsets()
    groups = groups_of(index, draw)
    kept = next((group for group in groups if group.kind == "all"), None)
    every = [labels_by_variant(made, predictions, name, offsets) for name in models]
    result: dict[str, Any] = {
        "schema": 1,
        "version": __version__,
        "set": made.key,
        "preset": made.facts["preset"],
        "data": made.facts["data"],
        "mlm": list(made.facts["mlm"]),
        "draw": asdict(draw),
        "grid": list(GRID),
        "seeds": {
            "pairs": len(made.pairs),
            "with_variants": made.replacements["seed"].n_unique(),
            "kept": 0 if kept is None else len(kept.seeds),
            "by_class": {g.name: len(g.seeds) for g in groups if g.kind == "class"},
        },
        "variants": {
            "all": len(made.replacements),
            "by_class": dict(sorted(made.replacements.group_by("pos").len().iter_rows())),
            "label_risk": None
            if made.facts["wordnet"] is None
            else int((made.replacements["label_risk"] != "").sum()),
        },
        "models": {},
        "baselines": {},
        "warnings": [],
    }
    if kept is None:
        result["warnings"].append(
            f"no seed has {draw.n} variants: see the funnel; more masked LMs, a larger --k or a "
            "smaller --min-variants give more"
        )
        return result
    for one in every:
        scored = score_model(index, groups, one, seed=draw.seed)
        result["models"][one.model] = _plain(scored)
        result["warnings"] += _probe(one, index, kept)
        overall = scored["all"]["all"]
        result["models"][one.model]["signature"] = signature(
            made.facts["preset"], len(made.facts["mlm"]), draw, overall, __version__
        )
    for one in trivial(index, offsets):
        result["baselines"][one.model] = _plain(score_model(index, groups, one, seed=draw.seed))
    return result


def run_key(made_key: str, options: EvaluateOptions, settings: Settings) -> str:
    """What names a run: its set, its models and its draws."""
    models = [_fingerprint(name, options, settings) for name in options.models]
    return digest({"set": made_key, "models": models, "draw": asdict(options.draw)})


def run(
    reading: Reading,
    generating: GenerateOptions,
    evaluating: EvaluateOptions,
    settings: Settings,
    out: Path,
    *,
    overwrite: bool = False,
) -> tuple[VariantSet, dict[str, Any], dict[str, Any]]:
    """From seeds to scores, into one directory; returns the set, the metrics and the facts.

    Called again after an interruption it goes on where it stopped.
    """
    check_directory(out)
    made = generate(reading, generating, settings)
    key = run_key(made.key, evaluating, settings)
    claim_directory(out, RUN, key, replace=overwrite)
    predictions, facts = evaluate(made, evaluating, settings)
    metrics = score(made, predictions, evaluating.draw, facts["models"])
    write_run(out, made, predictions, metrics, facts, key)
    return made, metrics, facts


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


def with_options(preset: Preset, **changes: Any) -> Preset:
    """A preset with some of its options changed; `None` leaves one as it is."""
    parts = {}
    for name in ("targets", "propose", "filters"):
        part = getattr(preset, name)
        mine = {k: v for k, v in changes.items() if v is not None and hasattr(part, k)}
        parts[name] = replace(part, **mine)
    return Preset(**parts)


def without_marks(
    reading: Reading, sources: Sequence[Any], on_bad: str
) -> tuple[tuple[Pair, ...], dict[str, int]]:
    """Pairs without marks of a masked LM's tokenizer, and the rows dropped so far, by reason.

    Raises:
        InputError: There are such pairs, and bad ones are to be refused.
    """
    marked = refuse_marks(reading.pairs, sources)
    dropped = dict(reading.dropped)
    if marked and on_bad == "refuse":
        raise InputError(
            f"pair {marked[0].id!r} contains a mask token or another mark of a masked LM "
            f"({len(marked)} in all); remove it from the text or pass --on-bad drop",
            where=reading.source,
        )
    if marked:
        dropped["mask token in the text"] = len(marked)
    refused = {pair.id for pair in marked}
    return tuple(pair for pair in reading.pairs if pair.id not in refused), dropped


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
    name: str, items: _Items, options: EvaluateOptions, settings: Settings, clock: Clock
) -> tuple[pl.DataFrame, dict[str, Any], dict[str, int]]:
    import polars as pl

    place = {pair: n for n, pair in enumerate(dict.fromkeys(items.texts))}
    log_p, fingerprint, work = predict(
        list(place),
        name,
        model_labels=_labels_for(name, options),
        precision=options.precision,
        settings=settings,
        clock=clock,
    )
    rows = log_p[[place[pair] for pair in items.texts]]
    labels = [LABELS[i].value for i in rows.argmax(axis=1)]
    frame = _frame(items, labels).with_columns(
        pl.Series(f"log_p_{label.value}", rows[:, n], dtype=pl.Float32)
        for n, label in enumerate(LABELS)
    )
    return frame, {"name": name, **fingerprint}, work


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


def _fingerprint(name: str, options: EvaluateOptions, settings: Settings) -> dict[str, str]:
    if name.startswith("file:"):
        return {"file": file_digest(name.removeprefix("file:"))}
    from triaxial.models.classifier import fingerprint_of

    return fingerprint_of(
        name,
        model_labels=_labels_for(name, options),
        precision=options.precision,
        device=settings.device,
    )


def _probe(one: Predictions, index: VariantIndex, kept: Group) -> list[str]:
    """A warning when a model does worse than chance on the seeds: its labels may be swapped."""
    from scipy.special import bdtr  # the binomial's distribution; scipy.stats takes 2 s to import

    gold = np.asarray([LABELS.index(index.pairs[i].label) for i in kept.seeds])
    right = int((one.seeds[kept.seeds] == gold).sum())
    if bdtr(right, len(gold), 1 / len(LABELS)) >= 0.01:
        return []
    return [
        f"{one.model}: {right} of {len(gold)} seeds right, below chance; are its labels in another "
        "order? pass --model-labels"
    ]


def _plain(scored: Mapping[str, Mapping[str, Scores]]) -> dict[str, Any]:
    return {kind: {n: s.plain() for n, s in row.items()} for kind, row in scored.items()}
