"""The whole summary of a set of evaluations on one test set, as plain values.

Runs are told apart by what they are (trained on the past or CONTROL, size, adaptation, tokenizer),
not by their names, and compared accordingly: each with the static CONTROL of its own size; the
adapted with the static one; sizes with the first; the control's tokenizer with the own one.

Source: Lazaridou et al. 2021.
Choice: an adapted run is read against the *static* CONTROL of its size, as the plain one is.
Choice: where no CONTROL of the size is given, against the unigram control, and named so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from triaxial.errors import InputError
from triaxial.temporal import resample
from triaxial.temporal.change import change
from triaxial.temporal.corpus import Bin, month_name, month_of
from triaxial.temporal.curves import (
    bits_per_byte,
    curve,
    matched_trend,
    overall,
    slope_difference,
)
from triaxial.temporal.drift import Costs, cost_curve, drift
from triaxial.temporal.emerging import (
    emerging_codes,
    emerging_figures,
    emerging_words,
    occurrences,
)
from triaxial.temporal.paper import claims, printed
from triaxial.temporal.resample import Bins, Ledger, Resampler, bins_of, figure, ledger_of
from triaxial.temporal.slices import (
    FUNCTION,
    OPEN,
    Runs,
    cell_contrast,
    fragmentation,
    slices,
    tag_codes,
    topic_codes,
)
from triaxial.temporal.splits import CONTROL
from triaxial.temporal.terms import term_frequency
from triaxial.temporal.words import (
    UNIGRAM,
    Evaluation,
    Scored,
    counts_by_month,
    score_together,
    unigram_control,
)

if TYPE_CHECKING:
    import polars as pl

__all__ = ["SCHEMA", "SummaryOptions", "claims", "signature", "summarize"]

Array = npt.NDArray[Any]

SCHEMA = "triaxial.temporal.summary/1"


@dataclass(frozen=True, slots=True)
class SummaryOptions:
    """How evaluations are summarized.

    Args:
        bin: Width of the curves' bins.
        cutoff: Last month of training, "YYYY-MM": x = 0 of the curves; by default the first month
            of the test.
        least: Mentions of an emerging word. Source: 50.
        ratio: How many times less likely in training it is. Source: 5.
        match: Whether slopes are also given with the same mix of sources in every bin.
        reference: Bins that set the level of the drift alarm.
        terms: Words whose frequency is followed.
        seed: Of resamples, permutations and simulations.
    """

    bin: Bin = "month"
    cutoff: str | None = None
    least: int = 50
    ratio: float = 5.0
    match: bool = True
    reference: int = 6
    terms: tuple[str, ...] = ()
    seed: int = 1


def summarize(
    evaluations: Mapping[str, Evaluation],
    options: SummaryOptions | None = None,
    *,
    training: pl.DataFrame | None = None,
    topics: Sequence[Sequence[str]] = (),
    costs: Mapping[str, Mapping[str, Any]] | None = None,
    remedies: Costs | None = None,
    version: str = "",
) -> dict[str, Any]:
    """Every figure of the time axis that the evaluations allow.

    Args:
        evaluations: By run name; all on the same test documents.
        options: See `SummaryOptions`.
        training: Counts of the training words (`month`, `text`, `count`; months are needed for
            terms alone); without it no word can be called new.
        topics: Words that describe each topic, by its number.
        costs: By run `seconds` (a list of repeats) and whatever else was measured.
        remedies: What staleness, retraining and adapting cost; without it no cost curve.
        version: Of the package, for the signature.

    Returns:
        `schema`, `version`, `seed`, `draws`, `level`, `bin`, `cutoff`, `documents`, `words`,
        `months` (first, last), `runs`, `curves` (by run that is not a CONTROL: `control`,
        `control_kind`, `overall`, `bins`, `slope`, `matched`), `differences`, `tags`, `topics`,
        `emerging`, `occurrences`, `tokenizer`, `change`, `terms`, `drift`, `costs`, `remedies`,
        `paper`, `claims`. What was not measured is null; an empty bin has nulls.

    Raises:
        InputError: The evaluations do not fit together, or no run is other than a CONTROL.
    """
    options = options or SummaryOptions()
    scored = score_together(evaluations)
    runs = _controls(evaluations)
    if UNIGRAM in runs.values():
        scored = unigram_control(scored)
    origin = None if options.cutoff is None else _cutoff(options.cutoff)
    bins = bins_of(scored, options.bin, origin)
    resampler = Resampler(scored.months, options.seed)
    values = {name: scored.log_p(name) for name in scored.names}
    ledger = ledger_of(scored, bins, resampler, values)
    months = scored.months
    out: dict[str, Any] = {
        "schema": SCHEMA,
        "version": version,
        "seed": options.seed,
        "draws": resampler.draws,
        "level": resample.LEVEL,
        "bin": options.bin,
        "cutoff": options.cutoff,
        "documents": len(scored.documents),
        "words": len(scored.words),
        "months": [month_name(int(months.min())), month_name(int(months.max()))],
        "runs": {name: _run(name, e, scored, ledger, resampler) for name, e in evaluations.items()},
    }
    out["curves"] = {
        name: {"control": control}
        | {"control_kind": "unigram" if control == UNIGRAM else "control"}
        | {"overall": overall(ledger, name, control)}
        | curve(ledger, name, control)
        | {"matched": _matched(scored, bins, name, control, options)}
        for name, control in runs.items()
    }
    out["differences"] = _differences(evaluations, runs, ledger)
    out |= _sliced(scored, bins, resampler, runs, topics)
    new = None
    words = None
    if training is not None:
        counts = counts_by_month(scored)
        words = emerging_words(counts, training, least=options.least, ratio=options.ratio)
        new = emerging_codes(scored, words)
    out["emerging"] = (
        None
        if words is None or new is None
        else {"least": options.least, "ratio": options.ratio}
        | emerging_figures(scored, bins, resampler, runs, words, new)
    )
    out["occurrences"] = _occurrences(evaluations, scored, bins, resampler, new)
    again = _retokenized(evaluations)
    out["tokenizer"] = [
        fragmentation(scored, bins, resampler, old, fresh)
        for old, fresh in _tokenizers(evaluations, runs, again)
    ]
    out["change"] = {
        name: change(scored, bins, resampler, name, control, new=new, retokenized=again.get(name))
        for name, control in runs.items()
        if evaluations[name].tokenizer == "own"
    }
    out["terms"] = _terms(scored, training, options)
    out["drift"] = {
        name: drift(found, reference=options.reference, seed=options.seed)
        for name, found in out["curves"].items()
    }
    out["costs"] = None if costs is None else {k: dict(v) for k, v in costs.items()}
    out["remedies"] = None if remedies is None else _remedies(remedies, out)
    out["paper"] = printed()
    out["claims"] = claims(out)
    return out


def signature(summary: Mapping[str, Any], name: str) -> str:
    """The line that makes a run's main figure comparable, in sacreBLEU's manner."""
    run = summary["runs"][name]
    found = summary["curves"].get(name)
    # The level of a unigram control says nothing of age; the trend against it does.
    if found is None or found["control_kind"] == "unigram":
        main = f"PPL = {_interval(run['perplexity'], '.2f')}"
    else:
        main = f"Δ% = {_interval(found['overall']['percent'], '+.2f')}"
    if found is not None:
        slope = found["slope"]
        main += f" slope = {'-' if slope is None else _interval(slope, '+.3f')} %/month"
    parts = [main, f"run:{name}", f"model:{run['model']}"]
    parts += [f"control:{found['control']}"] if found else []
    parts += [f"adapt:{run['adaptation']}"] if run["adaptation"] else []
    parts += [f"context:{run['context']}"]
    parts += [f"precision:{run['precision']}"] if run["precision"] else []
    first, last = summary["months"]
    parts += [f"months:{first}..{last}", f"bin:{summary['bin']}", f"n:{summary['words']}"]
    parts += [] if run["valid"] else ["INVALID:unknown"]
    parts += [f"v:{summary['version']}"] if summary["version"] else []
    return " | ".join(parts)


def _controls(evaluations: Mapping[str, Evaluation]) -> dict[str, str]:
    """The control of each run that is not one itself."""
    controls: dict[str, str] = {}
    for name, evaluation in evaluations.items():
        if evaluation.setup == CONTROL and not evaluation.adaptation:
            if evaluation.size in controls:
                raise InputError(
                    f"{controls[evaluation.size]!r} and {name!r} are both the control of size "
                    f"{evaluation.size!r}; wanted one: leave one out or give them sizes"
                )
            controls[evaluation.size] = name
    runs = {
        name: controls.get(evaluation.size, UNIGRAM)
        for name, evaluation in evaluations.items()
        if evaluation.setup != CONTROL
    }
    if not runs:
        raise InputError(
            "all runs are controls; wanted at least one model trained on the past: score one"
        )
    return runs


def _run(
    name: str, evaluation: Evaluation, scored: Scored, ledger: Ledger, resampler: Resampler
) -> dict[str, Any]:
    """What a run is, and its figures on the whole test."""
    value, drawn = ledger.whole().mean(name)
    bits, by_bin = bits_per_byte(scored, ledger, name, resampler)
    low = figure(-value[0], -drawn[:, 0])
    unknown = int(evaluation.documents["unknown"].sum())
    pieces = int(evaluation.documents["pieces"].sum())
    fields = ("model", "fingerprint", "setup", "size", "adaptation", "tokenizer", "context")
    return {
        **{field: getattr(evaluation, field) for field in (*fields, "precision")},
        "perplexity": {k: None if v is None else float(np.exp(v)) for k, v in low.items()},
        "bits_per_byte": bits | {"bins": by_bin},
        "words": len(scored.words),
        "pieces": pieces,
        "pieces_per_word": float(scored.pieces(name).astype(np.int64).sum() / len(scored.words)),
        "unknown": unknown,
        # An unknown piece stands for any text, so that its probability means nothing.
        "valid": unknown == 0,
    }


def _matched(
    scored: Scored, bins: Bins, name: str, control: str, options: SummaryOptions
) -> dict[str, Any] | None:
    if not options.match or scored.documents["source"].n_unique() < 2:
        return None
    return matched_trend(scored, bins, name, control, seed=options.seed)


def _differences(
    evaluations: Mapping[str, Evaluation], runs: Runs, ledger: Ledger
) -> list[dict[str, Any]]:
    """Runs that differ in one thing: adapted and static, sizes, tokenizers."""
    plain = {
        evaluations[name].size: name
        for name in reversed(tuple(runs))
        if not evaluations[name].adaptation and evaluations[name].tokenizer == "own"
    }
    pairs: list[tuple[Literal["adaptation", "size", "tokenizer"], str, str]] = []
    sizes = [size for size in dict.fromkeys(e.size for e in evaluations.values()) if size in plain]
    for name in runs:
        evaluation, base = evaluations[name], plain.get(evaluations[name].size)
        if base is None:
            continue
        if evaluation.adaptation and evaluation.tokenizer == "own":
            pairs.append(("adaptation", name, base))
        elif evaluation.tokenizer == "control" and not evaluation.adaptation:
            pairs.append(("tokenizer", name, base))
        elif name == base and evaluation.size != sizes[0]:
            pairs.append(("size", name, plain[sizes[0]]))
    return [
        {"kind": kind, "new": new, "base": base}
        | {"overall": overall(ledger, new, base)}
        | {"slope": slope_difference(ledger, (new, runs[new]), (base, runs[base]))}
        for kind, new, base in pairs
    ]


def _sliced(
    scored: Scored, bins: Bins, resampler: Resampler, runs: Runs, described: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Figures by tag and by topic, each null where the words have none."""
    out: dict[str, Any] = {"tags": None, "topics": None}
    if "tag" in scored.words.columns:
        codes, cells = tag_codes(scored)
        rows, ledger = slices(scored, bins, resampler, runs, codes, cells)
        open_, function = ([c for c in cells if c in kind] for kind in (OPEN, FUNCTION))
        names = [c for c in cells if c == "PROPN"]
        out["tags"] = {"rows": rows, "contrasts": {}}
        for run in runs.items():
            out["tags"]["contrasts"][run[0]] = {
                **{
                    f"PROPN - {other}": cell_contrast(ledger, run, names, [other])
                    for other in open_
                    if other != "PROPN"
                },
                "half of all - function words": cell_contrast(
                    ledger, run, cells, function, factor=0.5
                ),
                "open classes - function words": cell_contrast(ledger, run, open_, function),
            }
    if "topic" in scored.documents.columns:
        codes, cells = topic_codes(scored)
        rows, _ = slices(scored, bins, resampler, runs, codes, cells)
        for row in rows:
            number = int(row["cell"])
            row["top"] = list(described[number]) if number < len(described) else []
        out["topics"] = {"rows": rows}
    return out


def _occurrences(
    evaluations: Mapping[str, Evaluation],
    scored: Scored,
    bins: Bins,
    resampler: Resampler,
    new: Array | None,
) -> dict[str, Any]:
    contexts = {name: evaluation.context for name, evaluation in evaluations.items()}
    found = None if new is None or not new.any() else new == 1
    return {
        "contexts": contexts,
        "all": occurrences(scored, bins, resampler, contexts),
        "emerging": None
        if found is None
        else occurrences(scored, bins, resampler, contexts, found),
    }


def _retokenized(evaluations: Mapping[str, Evaluation]) -> dict[str, str]:
    """By static run: the run of the same size with the control's tokenizer."""
    other = {
        e.size: name
        for name, e in evaluations.items()
        if e.tokenizer == "control" and e.setup != CONTROL and not e.adaptation
    }
    return {
        name: other[e.size]
        for name, e in evaluations.items()
        if e.size in other and e.setup != CONTROL and not e.adaptation and e.tokenizer == "own"
    }


def _tokenizers(
    evaluations: Mapping[str, Evaluation], runs: Runs, again: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Pairs whose tokenizers are compared: the same weights if they can be, else the control."""
    return [
        (name, again.get(name, control))
        for name, control in runs.items()
        if not evaluations[name].adaptation
        and evaluations[name].tokenizer == "own"
        and again.get(name, control) != UNIGRAM
    ]


def _terms(
    scored: Scored, training: pl.DataFrame | None, options: SummaryOptions
) -> list[dict[str, Any]] | None:
    import polars as pl

    if not options.terms:
        return None
    counts = counts_by_month(scored)
    if training is not None and "month" in training.columns:
        past = training.select(pl.col("month").cast(pl.Int64), "text", pl.col("count").cast(int))
        counts = pl.concat([past, counts])
    return term_frequency(counts, options.terms, options.bin)


def _remedies(costs: Costs, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The cost curve of each static model; with each adapted one where there is any."""
    out = {}
    for row in summary["differences"]:
        base = summary["curves"][row["base"]]["slope"]
        if row["kind"] == "adaptation" and base and row["slope"]:
            # How much lower adapting is at x = 0, and the slope it leaves.
            steep = base["value"] + row["slope"]["value"]
            out[row["new"]] = cost_curve(costs, base["value"], steep, row["slope"]["at_zero"])
    compared = {row["base"] for row in summary["differences"] if row["kind"] == "adaptation"}
    for name, found in summary["curves"].items():
        run = summary["runs"][name]
        if found["slope"] and not run["adaptation"] and name not in compared:
            out[name] = cost_curve(costs, found["slope"]["value"])
    return out


def _cutoff(cutoff: str) -> int:
    import re

    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", cutoff):
        raise InputError(f"{cutoff!r} is not a month; wanted YYYY-MM", where="--cutoff")
    return month_of(cutoff)


def _interval(found: Mapping[str, Any], form: str) -> str:
    value, low, high = (
        "-" if found[k] is None else format(found[k], form) for k in ("value", "low", "high")
    )
    return f"{value} [{low}, {high}]"
