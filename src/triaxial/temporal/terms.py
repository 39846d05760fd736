"""Terms over time: how often they are said, and among which words.

Source: Lazaridou et al. 2021 (relative frequency per month of chosen terms); Levy, Goldberg and
Dagan, TACL 3, 2015 (PPMI with smoothed contexts, exponent .75); Monroe, Colaresi and Quinn,
Political Analysis 16, 2008 (log-odds with an informative prior, as a z-score).
Choice: neighbours are words with a letter, of the open classes where words are tagged, in a window
that does not leave the document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from triaxial.errors import InputError
from triaxial.temporal.corpus import Bin, bin_of, month_name
from triaxial.temporal.resample import Bins
from triaxial.temporal.slices import OPEN
from triaxial.temporal.words import Scored

if TYPE_CHECKING:
    import polars as pl

__all__ = ["neighbours", "term_frequency"]

SMOOTHING = 0.75
MILLION = 1e6


def term_frequency(
    counts: pl.DataFrame, terms: Sequence[str], kind: Bin = "month"
) -> list[dict[str, Any]]:
    """How often terms are said, bin by bin.

    Args:
        counts: `month`, `text`, `count`, of training, test or both.
        terms: Words as they are written; one that never occurs has zeros.
        kind: Width of a bin.

    Returns:
        A row a term: `term`, `mentions` and `bins`, each `bin`, `count` and `per_million` words;
        both null where a bin has no words at all.

    Raises:
        InputError: No counts, or no terms.
    """
    import polars as pl

    if not len(counts) or not terms:
        raise InputError(
            f"{len(counts)} counts and {len(terms)} terms; wanted some of both: name a term"
        )
    first, last = (int(v) for v in counts["month"].sort().gather([0, -1]))
    of = {month: bin_of(month_name(month), kind) for month in range(first, last + 1)}
    labels = list(dict.fromkeys(of.values()))
    months = pl.DataFrame({"month": list(of), "bin": list(of.values())})
    binned = counts.with_columns(pl.col("month").cast(pl.Int64)).join(months, on="month")
    size = dict(binned.group_by("bin").agg(pl.col("count").sum()).iter_rows())
    chosen = binned.filter(pl.col("text").is_in(list(terms)))
    found = {
        (text, label): n
        for text, label, n in chosen.group_by("text", "bin").agg(pl.col("count").sum()).iter_rows()
    }
    out: list[dict[str, Any]] = []
    for term in dict.fromkeys(terms):
        rows: list[dict[str, Any]] = []
        for label in labels:
            n = found.get((term, label), 0) if size.get(label) else None
            share = None if n is None else MILLION * n / size[label]
            rows.append({"bin": label, "count": n, "per_million": share})
        out.append({"term": term, "mentions": sum(r["count"] or 0 for r in rows), "bins": rows})
    return out


def neighbours(
    scored: Scored, bins: Bins, term: str, *, window: int = 5, least: int = 5, top: int = 10
) -> list[dict[str, Any]]:
    """The words around a term in each bin, and those that set the bin apart from the others.

    Args:
        scored: The test set.
        bins: Its bins.
        term: A word as it is written.
        window: Words on either side.
        least: Times that a neighbour must stand by the term, over all bins.
        top: Neighbours named for each bin.

    Returns:
        A row a bin: `bin`, `mentions` (null where the bin has no words), `near`: the neighbours of
        highest PPMI (`text`, `count`, `ppmi` in bits) and `changed`: those of highest z of the
        log-odds against the other bins (`text`, `count`, `log_odds`, `z`).

    Raises:
        InputError: The term does not occur, or the window is below 1.
    """
    import polars as pl

    if window < 1:
        raise InputError(f"a window of {window} words; wanted at least 1")
    text, doc = scored.words["text"], scored.doc
    rows = np.flatnonzero((text == term).to_numpy())
    if not len(rows):
        raise InputError(f"the test words hold no {term!r}; wanted a word as it is written there")
    fit = text.str.contains(r"\p{L}") & (text != term)
    if "tag" in scored.words.columns:
        fit &= scored.words["tag"].is_in(list(OPEN))
    proper = fit.to_numpy()
    near = []
    for step in (*range(-window, 0), *range(1, window + 1)):
        at = rows + step
        at_place = np.clip(at, 0, len(doc) - 1)
        good = (at == at_place) & (doc[at_place] == doc[rows]) & proper[at_place]
        near.append(at_place[good])
    by = np.concatenate(near)
    around = pl.DataFrame({"text": text.gather(by), "bin": bins.of[doc[by]]})
    pairs = around.group_by("text", "bin").agg(n=pl.len().cast(pl.Float64))
    pairs = pairs.with_columns(all_bins=pl.col("n").sum().over("text"))
    pairs = pairs.filter(pl.col("all_bins") >= least)
    # How often a neighbour stands in the bin at all, whatever it stands by.
    fitting = pl.DataFrame({"text": text, "bin": bins.of[doc]}).filter(fit)
    base = fitting.group_by("text", "bin").agg(c=pl.len().cast(pl.Float64) ** SMOOTHING)
    base = base.with_columns(share=pl.col("c") / pl.col("c").sum().over("bin"))
    mine = pl.col("n").sum().over("bin")
    total = float(pairs["n"].sum())
    rest, others = pl.col("all_bins") - pl.col("n"), total - mine
    prior = pl.col("all_bins")  # the word's counts over all bins, as many words as the bin has
    weight = prior / total * mine
    # One word more on either side, so that a single neighbour is not all there is.
    log_odds = ((pl.col("n") + weight) / (2 * mine + 1 - pl.col("n") - weight)).log() - (
        (rest + weight) / (others + mine + 1 - rest - weight)
    ).log()
    scores = (
        pairs.join(base, on=["text", "bin"])
        .with_columns(
            ppmi=pl.max_horizontal(0.0, (pl.col("n") / mine / pl.col("share")).log(2)),
            log_odds=log_odds,
            spread=(1 / (pl.col("n") + weight) + 1 / (rest + weight)).sqrt(),
        )
        .with_columns(z=pl.col("log_odds") / pl.col("spread"))
    )
    mentions = np.bincount(bins.of[doc[rows]], minlength=len(bins.labels))
    out = []
    for b, label in enumerate(bins.labels):
        here = scores.filter(pl.col("bin") == b)
        ranked = here.sort("ppmi", "n", "text", descending=[True, True, False]).head(top)
        moved = here.filter(pl.col("z") > 0).sort("z", "text", descending=[True, False]).head(top)
        count = pl.col("n").cast(pl.Int64).alias("count")
        out.append(
            {
                "bin": label,
                "mentions": int(mentions[b]) if bins.words[b] else None,
                "near": ranked.select("text", count, "ppmi").to_dicts(),
                "changed": moved.select("text", count, "log_odds", "z").to_dicts(),
            }
        )
    return out
