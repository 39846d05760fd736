"""MERGE as functions: generate, evaluate, score, run.

A set is a directory with the tables `seeds`, `variants` and `funnel`; a run is a set with
`predictions` and `metrics.json`. Everything that is shown is computed from these files.

Source: MERGE (arXiv 2510.24295); see `docs/choices.md` for what the paper leaves open.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from triaxial import __version__
from triaxial.api.budget import decided, fitting, stratified
from triaxial.api.merge_files import (
    RUN,
    VariantSet,
    both_works,
    check_directory,
    labels_by_variant,
    write_run,
)
from triaxial.api.merge_predict import EvaluateOptions, evaluate, run_key
from triaxial.api.merge_sample import sampled
from triaxial.api.merge_sources import fingerprint_of
from triaxial.errors import InputError
from triaxial.execute import Computing
from triaxial.merge.analyses import (
    Group,
    Predictions,
    VariantIndex,
    groups_of,
    score_model,
    trivial,
)
from triaxial.merge.lexicon import WordNet, find_wordnet
from triaxial.merge.score import GRID, DrawOptions, Scores, signature
from triaxial.merge.stages import Clock, masked_sources, refuse_marks, seeds_of, variants
from triaxial.merge.variants import PRESETS, Preset
from triaxial.nli import LABELS, Pair, Reading
from triaxial.store import claim_directory, digest

if TYPE_CHECKING:
    import polars as pl


__all__ = [
    "GenerateOptions",
    "generate",
    "run",
    "score",
    "with_options",
    "without_marks",
]

_PILOT = 40  # seeds whose cost is measured
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


def generate(reading: Reading, options: GenerateOptions, settings: Computing) -> VariantSet:
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
    sample = made.facts["data"].get("sample")
    if sample is not None and sample["pairs"] < sample["of"]:
        why = f", to fit {sample['budget']:g} s" if "budget" in sample else ""
        if sample.get("like"):
            why = f" and of what {sample['like']} has right"
        result["warnings"].append(
            f"a sample of {sample['pairs']:,} of {sample['of']:,} pairs, in the shares of their "
            f"labels{why}: the intervals are those of the sample"
        )
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


def run(
    reading: Reading,
    generating: GenerateOptions,
    evaluating: EvaluateOptions,
    settings: Computing,
    out: Path,
    *,
    overwrite: bool = False,
    budget: float | None = None,
    sample: int | None = None,
    like: str | None = None,
) -> tuple[VariantSet, dict[str, Any], dict[str, Any]]:
    """From seeds to scores, into one directory; returns the set, the metrics and the facts.

    Called again after an interruption it goes on where it stopped.

    Args:
        reading: The seeds.
        generating: How variants are made.
        evaluating: Which models are scored.
        settings: How the work is done.
        out: Directory for the run.
        overwrite: Replace the run of another call.
        budget: Seconds that the whole may take: as many seeds are drawn, in the shares of their
            labels, as a few of them show to fit. `None` for all.
        sample: Seeds that models are scored on, see `merge_sample.sampled`; `None` for all.
        like: A run whose accuracy the sample keeps.
    """
    check_directory(out)
    if budget is not None and sample is not None:
        raise InputError("a budget and a sample are two ways to fewer seeds; give one of them")
    for model in evaluating.models:  # what cannot be used is said before the work on variants
        fingerprint_of(model, evaluating, settings)
    fits = None
    if budget is not None:
        reading, fits = _fitting(reading, generating, evaluating, settings, budget)
    made = generate(reading, generating, settings)
    if fits is not None:
        made.facts["data"]["sample"] = fits
    if sample is not None:
        made = sampled(made, sample, evaluating.draw, like)
    key = run_key(made.key, evaluating, settings)
    claim_directory(out, RUN, key, replace=overwrite)
    predictions, facts = evaluate(made, evaluating, settings)
    metrics = score(made, predictions, evaluating.draw, facts["models"])
    write_run(out, made, predictions, metrics, facts, key)
    return made, metrics, facts


def _fitting(
    reading: Reading,
    generating: GenerateOptions,
    evaluating: EvaluateOptions,
    settings: Computing,
    budget: float,
) -> tuple[Reading, dict[str, Any]]:
    """The seeds that fit, and how many they are of how many.

    What the first few cost tells what one costs; their work lies in the store and is not lost.
    """
    order = stratified([pair.label.value for pair in reading.pairs], evaluating.draw.seed)

    def first(count: int) -> Reading:
        chosen = sorted(order[:count])
        pairs = tuple(reading.pairs[n] for n in chosen)
        return replace(reading, pairs=pairs, digest=digest([reading.digest, "first", count]))

    def decide() -> dict[str, Any]:
        begun = time.monotonic()
        few = min(_PILOT, len(order))
        made = generate(first(few), generating, settings)
        _, facts = evaluate(made, evaluating, settings)
        each = sum(both_works(made.work, facts["work"])["seconds"].values()) / few
        spent = time.monotonic() - begun
        return {"pairs": fitting(budget, spent, each, len(order), few)}

    about = {
        "budget": budget,
        "generating": asdict(generating),
        "evaluating": asdict(evaluating),
    }
    count = decided("merge", about, [reading.digest], settings, decide)["pairs"]
    told = {"pairs": count, "of": len(order), "budget": budget}
    return (reading if count == len(order) else first(count)), told


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
