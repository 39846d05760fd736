"""One seed in full, sheets for raters, sets for other programs: what people and tools read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triaxial.api.merge_files import RATINGS, VariantSet, read_run, read_set
from triaxial.errors import InputError
from triaxial.execute import Computing
from triaxial.merge.failing import all_words, failing_words
from triaxial.merge.filters import (
    KEPT,
    FilterOptions,
    Proposal,
    judge,
    variant_texts,
)
from triaxial.merge.lexicon import WordNet, find_wordnet
from triaxial.merge.propose import REASONS, ProposeOptions
from triaxial.merge.queries import judge_slots
from triaxial.merge.ratings import Item, Ratings, rate, read_sheet, sheet
from triaxial.merge.stages import masked_sources
from triaxial.merge.targets import TargetOptions, tagged_seeds
from triaxial.merge.variants import Preset, slots_of
from triaxial.models.tagger import load_tagger
from triaxial.nli import Pair
from triaxial.stats import generator
from triaxial.store import (
    claim_directory,
    digest,
    finish_directory,
    write_bytes_atomic,
    write_json,
    write_jsonl,
    write_table,
)

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "SeedView",
    "export",
    "import_ratings",
    "preset_of",
    "rating_sheet",
    "rejected",
    "seed_view",
    "variant_rows",
    "words_of_run",
]


@dataclass(frozen=True, slots=True)
class SeedView:
    """A seed, its variants and what the models say of them.

    Args:
        pair: The seed.
        seed_labels: Label of the seed by model.
        variants: Number, word, class, replacement, premise, hypothesis, sources, gain in
            log-probability (the least over places and sources), label risk, label by model (absent
            where the variant was not drawn).
    """

    pair: Pair
    seed_labels: Mapping[str, str]
    variants: list[dict[str, Any]]


def seed_view(made: VariantSet, predictions: pl.DataFrame | None, seed: str) -> SeedView:
    """What a run holds of one seed.

    Raises:
        InputError: The set has no such seed.
    """
    import polars as pl

    pair = next((pair for pair in made.pairs if pair.id == seed), None)
    if pair is None:
        raise InputError(
            f"no seed {seed!r} in this set of {len(made.pairs)}; ids are those of the input file",
            where="show",
        )
    labels: dict[int, dict[str, str]] = {}
    if predictions is not None:
        mine = predictions.filter(pl.col("seed") == seed)
        for model, variant, label in mine.select("model", "variant", "label").iter_rows():
            labels.setdefault(variant, {})[model] = label
    rows = []
    for row in made.replacements.filter(pl.col("seed") == seed).iter_rows(named=True):
        spans = row["premise_spans"], row["hypothesis_spans"]
        premise, hypothesis = variant_texts(pair, row["replacement"], *spans)
        gains = [
            r - o
            for score in row["scores"]
            if score["mlm"] in row["sources"]
            for o, r in zip(score["log_p_word"], score["log_p_replacement"], strict=True)
            if r is not None
        ]
        plain = {k: row[k] for k in ("variant", "word", "pos", "replacement", "sources")}
        texts = {"premise": premise, "hypothesis": hypothesis, "gain": min(gains, default=None)}
        more = {"label_risk": row["label_risk"], "labels": labels.get(row["variant"], {})}
        rows.append({**plain, **texts, **more})
    return SeedView(pair, labels.get(-1, {}), rows)


def rejected(made: VariantSet, seed: str, settings: Computing) -> list[dict[str, Any]]:
    """What became of every candidate of a seed that is no variant, from the store alone.

    The masked LMs' answers are read from the cache; no model is loaded.

    Returns:
        Rows with word, class, masked LM ("all" for what several validate), fate and candidates,
        likeliest first; a slot that a masked LM cannot be asked has no candidates.
    """
    preset = preset_of(made)
    names = tuple(entry["name"] for entry in made.facts["mlm"].values())
    precision = made.facts["mlm_precision"]
    sources = masked_sources(names, precision, preset.propose.k, settings)
    pair = next(pair for pair in made.pairs if pair.id == seed)
    tagger = load_tagger(made.facts["tagger"])
    seeds = tagged_seeds([pair], tagger)
    slots, _ = slots_of(seeds, preset.targets)
    at = find_wordnet() if made.facts["wordnet"] else None
    wordnet = None if at is None else WordNet(at)
    rows: list[dict[str, Any]] = []

    def add(word: str, pos: str, mlm: str, fate: str, candidates: list[str]) -> None:
        row = {"word": word, "pos": pos, "mlm": mlm, "fate": fate, "candidates": candidates}
        rows.append(row)

    for one in judge_slots(seeds, slots, sources, preset.propose):
        word, pos = one.slot.word, one.slot.pos
        for mlm, fate in one.fates.items():
            if fate != "asked":
                add(word, pos, mlm, fate, [])
        for mlm, found in one.by_mlm.items():
            order = found.log_p.max(axis=1).argsort()[::-1]
            for reason, name in enumerate(REASONS):
                words = [found.words[i] for i in order if found.reasons[i] == reason]
                if words:
                    add(word, pos, mlm, name, words)
            if found.not_words:
                add(word, pos, mlm, "not_a_word", [f"({found.not_words} entries)"])
        proposals = [Proposal(one.seed, one.slot, w, by) for w, by in one.accepted.items()]
        verdicts = judge(proposals, tagger, preset.filters, wordnet)
        fates: dict[str, list[str]] = {}
        for proposal, (verdict, _) in zip(proposals, verdicts, strict=True):
            if verdict != KEPT:
                fates.setdefault(verdict, []).append(proposal.word)
        for fate, words in fates.items():
            add(word, pos, "all", fate, words)
    return rows


def words_of_run(directory: Path, *, least: int = 3) -> dict[str, dict[str, Any]]:
    """Which words the models of a run fail on; see `merge.failing`.

    Args:
        directory: Of the run.
        least: Premises that a word must have.

    Returns:
        By model: `all`, the variants of rightly labelled seeds and how many are wrong (`None`
        where no seed is right); the words put `in` and taken `out`, the surest first; and under
        `rarer` how many failing words of each side stand with fewer premises.
    """
    made, predictions, _, models = read_run(directory)
    found: dict[str, dict[str, Any]] = {}
    for model in models:
        found[model] = {"all": all_words(made.pairs, predictions, model), "rarer": {}}
        for side in ("in", "out"):
            words = failing_words(made.pairs, made.replacements, predictions, model, side, least=1)
            found[model][side] = [one.plain() for one in words if one.premises >= least]
            rarer = sum(one.premises < least and bool(one.example) for one in words)
            found[model]["rarer"][side] = rarer
    return found


def preset_of(made: VariantSet) -> Preset:
    """The options that a set was made with."""
    options = made.facts["options"]
    targets = dict(options["targets"])
    targets["classes"] = tuple(targets["classes"])
    return Preset(
        TargetOptions(**targets),
        ProposeOptions(**options["propose"]),
        FilterOptions(**options["filters"]),
    )


def variant_rows(made: VariantSet) -> pl.DataFrame:
    """The variants with their texts and labels, for people and for export."""
    import polars as pl

    by_id = {pair.id: pair for pair in made.pairs}
    columns = ("seed", "replacement", "premise_spans", "hypothesis_spans")
    texts = []
    for seed, word, premise, hypothesis in made.replacements.select(columns).iter_rows():
        pair = by_id[seed]
        texts.append((*variant_texts(pair, word, premise, hypothesis), pair.label.value))
    schema = {name: pl.String() for name in ("premise", "hypothesis", "label")}
    frame = pl.DataFrame(texts, schema=schema, orient="row")
    return pl.concat([made.replacements, frame], how="horizontal")


def rating_sheet(made: VariantSet, sample: int, seed: int, out: Path) -> int:
    """Write a CSV sheet of variants to be rated, drawn at random; how many they are.

    At most one variant a seed while there are seeds enough, so that the good share is not that of
    a few seeds.

    Raises:
        InputError: The set has no variants, or the file is there already.
    """
    if out.exists():
        raise InputError("is there already; choose another name or remove it", where=out)
    if not len(made.replacements):
        raise InputError("the set has no variants to rate; see its funnel")
    rng = generator("merge.rate", seed)
    order = rng.permutation(len(made.replacements))
    seeds = made.replacements["seed"].to_list()
    turn: Counter[str] = Counter()
    rounds: list[tuple[int, int, int]] = []
    for row in order.tolist():
        rounds.append((turn[seeds[row]], len(rounds), row))
        turn[seeds[row]] += 1
    chosen = [row for _, _, row in sorted(rounds)[:sample]]
    pairs = {pair.id: pair for pair in made.pairs}
    items = []
    for row in chosen:
        entry = made.replacements.row(row, named=True)
        pair = pairs[entry["seed"]]
        spans = entry["premise_spans"], entry["hypothesis_spans"]
        texts = variant_texts(pair, entry["replacement"], *spans)
        name = f"{pair.id}#{entry['variant']}"
        items.append(Item(name, pair.premise, pair.hypothesis, pair.label.value, *texts))
    # The mark tells spreadsheet programs that the file is UTF-8.
    write_bytes_atomic(out, sheet(items).encode("utf-8-sig"))
    return len(items)


def import_ratings(directory: Path, sheets: Sequence[Path], n: int) -> Ratings:
    """Read raters' sheets and keep their summary beside the set, as `ratings.json`.

    Raises:
        InputError: A sheet cannot be read, or rates what the set does not have.
    """
    made = read_set(directory)
    sizes = dict(made.replacements.group_by("seed").len().iter_rows())
    rated = []
    for path in sheets:
        marks = read_sheet(path)
        for item in marks:
            seed, _, number = item.rpartition("#")
            if not number.isdecimal() or int(number) >= sizes.get(seed, 0):
                message = f"item {item!r} is not in {directory}; is it the sheet of another set?"
                raise InputError(message, where=path)
        rated.append(marks)
    found = rate(rated, n)
    write_json(directory / RATINGS, {"schema": 1, "set": made.key, "n": n, **found.plain()})
    return found


def export(made: VariantSet, items: pl.DataFrame, form: str, out: Path) -> list[Path]:
    """Write a set for other programs.

    Args:
        made: The set.
        items: What a model is asked (columns item, premise, hypothesis, label), for `items`.
        form: `jsonl` (one file of variants), `items` (one file of what a model is to label) or
            `hf` (a Hugging Face data set folder with its card).
        out: File, or directory for `hf`.

    Returns:
        The files written.

    Raises:
        InputError: Unknown form, or a file of that name is there.
    """
    if form == "hf":
        return _export_folder(made, out)
    if form not in ("jsonl", "items"):
        raise InputError(f"{form!r} is not one of jsonl, items, hf", where="--format")
    if out.exists():
        raise InputError("is there already; choose another name or remove it", where=out)
    write_jsonl(out, variant_rows(made) if form == "jsonl" else items)
    return [out]


def _export_folder(made: VariantSet, out: Path) -> list[Path]:
    import polars as pl

    claim_directory(out, "merge.dataset", digest({"set": made.key}))
    (out / "data").mkdir(exist_ok=True)
    seeds = pl.DataFrame(
        {
            "id": [pair.id for pair in made.pairs],
            "premise": [pair.premise for pair in made.pairs],
            "hypothesis": [pair.hypothesis for pair in made.pairs],
            "label": [pair.label.value for pair in made.pairs],
        }
    )
    files = {"data/seeds.parquet": seeds, "data/variants.parquet": variant_rows(made)}
    for name, frame in files.items():
        write_table(out / name, frame)
    write_bytes_atomic(out / "README.md", _card(made).encode())
    finish_directory(out, {"set": made.key})
    return [out / name for name in (*files, "README.md")]


def _card(made: VariantSet) -> str:
    counts = dict(sorted(made.replacements.group_by("pos").len().iter_rows()))
    by_class = "\n".join(f"| {pos} | {count} |" for pos, count in counts.items())
    mlms = "\n".join(
        f"- `{name}` (revision {entry['revision']}, digest {entry['digest'][:12]})"
        for name, entry in made.facts["mlm"].items()
    )
    dropped = made.facts["data"]["dropped"] or "none"
    return f"""---
configs:
- config_name: variants
  data_files: data/variants.parquet
  default: true
- config_name: seeds
  data_files: data/seeds.parquet
task_categories:
- text-classification
task_ids:
- natural-language-inference
tags:
- merge
- triaxial
---
# MERGE variants of {made.facts["data"]["source"]}

Minimal variants of NLI pairs: one word that premise and hypothesis share is replaced, in both, by
a word that a masked language model finds at least as likely. The gold label is that of the seed.

- {len(made.pairs)} seeds, {len(made.replacements)} variants of
  {made.replacements["seed"].n_unique()} of them; preset *{made.facts["preset"]}*
- tagger `{made.facts["tagger"]}`; rows dropped on reading: {dropped}
- set key `{made.key}`

| class | variants |
|---|---|
{by_class}

Masked language models:
{mlms}

The texts derive from the source data, whose licence holds for them. Labels are inherited, not
annotated: rate a sample before you rely on them.

Method: MERGE, arXiv 2510.24295.
"""
