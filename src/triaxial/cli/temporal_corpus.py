"""`triax temporal plant`, `ingest` and `split`: the data of the time axis."""

from __future__ import annotations

from pathlib import Path

from triaxial.cli import options
from triaxial.cli import temporal_options as own
from triaxial.cli.console import note, out, print_json, progress
from triaxial.errors import InputError

__all__ = ["ingest", "plant", "split"]


def plant(
    out_file: own.PlantOut,
    documents: own.PlantDocuments = 20_000,
    first: own.PlantFirst = "2010-01",
    months: own.PlantMonths = 96,
    sentences: own.PlantSentences = 6,
    drift: own.PlantDrift = 0.15,
    topic_drift: own.PlantTopics = 0.1,
    new_words: own.PlantNew = 24,
    new_share: own.PlantShare = 0.3,
    stationary: own.PlantStationary = False,
    seed: own.Seed = 1,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Generate dated documents whose language changes at a known rate, or not at all.

    Example: `triax temporal plant --out planted.jsonl --documents 5000`
    """
    from triaxial.api.temporal_corpus import plant_corpus
    from triaxial.temporal.planted import PlantOptions

    asked = PlantOptions(
        documents,
        first,
        months,
        sentences,
        drift,
        topic_drift,
        new_words,
        new_share,
        stationary,
        seed,
    )
    found = plant_corpus(out_file, asked, overwrite=overwrite)
    if as_json:
        print_json(found)
        return
    out().print(
        f"{found['documents']:,} documents of {found['months']} months in {found['file']}; "
        f"{found['new_words']} new words, {found['mentions']:,} mentions; what was planted is in "
        f"{found['truth']}",
        markup=False,
        soft_wrap=True,
    )
    note(f"next: `triax temporal ingest {out_file} --out corpus`")


def ingest(
    sources: own.Sources,
    out_dir: own.Out,
    columns: own.Columns = None,
    hub_split: own.HubSplit = None,
    pattern: own.Pattern = None,
    on_bad: own.OnBad = "refuse",
    crawled: own.Crawled = None,
    language: own.Language = "en",
    keep_duplicates: own.KeepDuplicates = False,
    threshold: own.Threshold = 0.8,
    shingle: own.Shingle = 5,
    seed: own.Seed = 1,
    store: options.StoreDir = Path(".triaxial"),
    workers: own.Workers = 1,
    ray: options.Ray = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Read dated documents into a corpus: dates checked, one language, no near-duplicates.

    Example: `triax temporal ingest news.jsonl.gz --out corpus --on-bad drop`
    """
    from triaxial.api.temporal_ingest import ReadOptions
    from triaxial.api.temporal_ingest import ingest as read
    from triaxial.execute import Computing
    from triaxial.temporal.corpus import CorpusOptions
    from triaxial.temporal.dedup import DedupOptions

    named = own.pairs(columns, "--columns", "id=NAME,date=NAME,text=NAME,source=NAME")
    reading = ReadOptions(
        CorpusOptions(named, hub_split, pattern, on_bad, crawled),
        None if language == "any" else language,
    )
    dedup = DedupOptions(threshold=threshold, shingle=shingle, seed=seed)
    with progress() as told:
        computing = Computing(store, workers=workers, progress=told, ray=ray)
        facts = read(
            sources,
            out_dir,
            reading,
            dedup,
            computing,
            duplicates=keep_duplicates,
            overwrite=overwrite,
        )
    if as_json:
        print_json(facts)
        return
    from triaxial.cli.temporal_show import print_corpus

    print_corpus(out(), facts)
    note(f"by month: {out_dir / 'card.md'}; next: `triax temporal split --corpus {out_dir} …`")


def split(
    corpus: own.CorpusDir,
    out_dir: own.Out,
    test_from: own.TestFrom,
    test_to: own.TestTo,
    per_month: own.PerMonth = 1000,
    bin_: own.BinOption = "month",
    gap: own.Gap = 3,
    valid_months: own.ValidMonths = 3,
    size: own.Size = None,
    size_in: own.SizeIn = "documents",
    valid: own.Valid = None,
    group: own.Group = None,
    shift: own.Shift = 0,
    gap_series: own.GapSeries = None,
    no_control: own.NoControl = False,
    no_near_duplicates: own.NoNearDuplicates = False,
    allow_empty: own.AllowEmpty = False,
    seed: own.Seed = 1,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Split a corpus into TIME-STRATIFIED and CONTROL, and look for every leak.

    Example: `triax temporal split --corpus corpus --test-from 2018-01 --test-to 2019-12 --out two`
    """
    from triaxial.api.temporal_corpus import SplitRules, split_corpus, split_series
    from triaxial.execute import Computing
    from triaxial.temporal.dedup import DedupOptions
    from triaxial.temporal.splits import SplitOptions, shifted

    asked = SplitOptions(
        test_from,
        test_to,
        per_month or None,
        gap,
        valid_months,
        size,
        size_in,
        valid,
        bin_,
        "group" if group else "document",
        seed,
    )
    if shift:
        asked = shifted(asked, shift)
    rules = SplitRules(
        group, not no_control, not no_near_duplicates, allow_empty, DedupOptions(seed=seed)
    )
    with progress() as told:
        computing = Computing(progress=told)
        if gap_series is None:
            made = split_corpus(
                corpus, out_dir, asked, rules, computing=computing, overwrite=overwrite
            )
            found = {"": made}
        else:
            step, times = _series(gap_series)
            found = split_series(
                corpus,
                out_dir,
                asked,
                rules,
                step=step,
                times=times,
                computing=computing,
                overwrite=overwrite,
            )
    if as_json:
        from dataclasses import asdict

        told_of = {
            name: {
                "directory": one.place,
                "options": asdict(one.options),
                "empty": list(one.empty),
                "counts": [asdict(row) for row in one.counts],
            }
            for name, one in found.items()
        }
        print_json(told_of[""] if gap_series is None else told_of)
        return
    from triaxial.cli.temporal_show import print_splits

    for name, one in found.items():
        if name:
            out().print(name, style="bold", markup=False)
        print_splits(out(), one.counts, one.empty)
    first = next(iter(found.values())).place
    note(f"no leak; next: `triax temporal fit --corpus {corpus} --split {first} --out model`")


def _series(text: str) -> tuple[int, int]:
    step, sign, times = text.partition("x")
    if not (sign and step.isdecimal() and times.isdecimal()):
        message = f"cannot read {text!r}; write MONTHSxTIMES, such as 6x11"
        raise InputError(message, where="--gap-series")
    return int(step), int(times)
