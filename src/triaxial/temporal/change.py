"""What the increase over the control is made of, in parts that add up exactly.

For each bin the mean excess a word, log p(control) - log p(model) (= log of the perplexity ratio),
is split in three steps, each "what these words add to the mean of the others":

    all        = known  + new                new = mean of all words - mean of the known ones
    known      = uncut  + cut                cut = mean of the known - mean of those cut alike
    uncut      = contexts + topic mix        contexts = the topics' means at the *same* topic mix
                                             in every bin

so new + tokenizer + topic mix + contexts = excess, in every bin and resample, and by linearity the
parts' slopes add up to the excess's slope and their changes to its change. With the model's weights
under the control's tokenizer as a third run, tokenizer also holds log p(that run) - log p(model),
and the other parts are taken on that run instead.

Letters: B bins, D draws, T topics, P parts.

Source: Lazaridou et al. 2021 for the kinds of parts (.43 of 1.34 the tokenizer's).
Choice: this decomposition, its order, and "cut" = into more pieces than the control's tokenizer
makes; the common topic mix is that of the uncut known words of all bins; a topic that a bin lacks
stands at the bin's mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triaxial.temporal.curves import trend
from triaxial.temporal.resample import Bins, Ledger, Resampler, figure, ledger_of
from triaxial.temporal.slices import cut_codes, topic_codes
from triaxial.temporal.words import Scored

__all__ = ["PARTS", "change", "split"]

Array = npt.NDArray[Any]

PARTS = ("new words", "tokenizer", "topic mix", "known words in new contexts")


def change(
    scored: Scored,
    bins: Bins,
    resampler: Resampler,
    name: str,
    control: str,
    *,
    new: Array | None = None,
    retokenized: str | None = None,
) -> dict[str, Any]:
    """The parts of a model's increase over its control, by bin, as change and as slope.

    Args:
        scored: The test set.
        bins: Its bins.
        resampler: Of its documents.
        name: The model.
        control: Its control.
        new: Whether a word is new, shape (words,); without it nothing is.
        retokenized: The run of the model's weights under the control's tokenizer.

    Returns:
        `parts`: by part (`PARTS`, and "all") `level` (over all bins, 100 · nats a word), `bins`
        (by bin; null where empty), `change` (by bin, less the first bin that is not empty) and
        `slope` (of `curves.trend`); null for a part that could not be measured (no training counts,
        no pieces, no topics), whose share then lies in the contexts. `n`: words.
    """
    has_pieces = f"pieces.{control}" in scored.words.columns
    has_topics = "topic" in scored.documents.columns
    topic, topics = topic_codes(scored) if has_topics else (np.zeros(len(scored.words), int), ())
    if has_topics and (topic < 0).any():  # documents without a topic are one of their own
        topic, topics = np.where(topic < 0, len(topics), topic), (*topics, "none")
    cut = (
        cut_codes(scored, retokenized or name, control) == 1
        if has_pieces
        else np.zeros(len(topic), bool)
    )
    fresh = np.zeros(len(topic), bool) if new is None else new.astype(bool)
    codes = np.where(fresh, 0, np.where(cut, 1, 2 + topic))
    cells = ("new", "cut", *(topics or ("all",)))
    base = retokenized or name
    values = {"excess": scored.log_p(control) - scored.log_p(base)}
    if retokenized:
        values["tokenizer"] = scored.log_p(retokenized) - scored.log_p(name)
    ledger = ledger_of(scored, bins, resampler, values, codes, cells)
    mix = _mix(ledger)
    measured = {
        "new words": new is not None,
        "tokenizer": has_pieces,
        "topic mix": has_topics,
        "known words in new contexts": True,
        "all": True,
    }
    by_bin, drawn = (split(sums, mix) for sums in (ledger.total, ledger.samples))
    whole = ledger.whole()
    # Over all bins, each part is the mean of the bins' parts weighted by words.
    words, some = (sums[..., 0].sum(axis=-1) for sums in (ledger.total, ledger.samples))
    level = _weighted(by_bin, words)
    levels = _weighted(drawn, some)
    full = np.flatnonzero(words > 0)
    parts: dict[str, Any] = {}
    for p, part in enumerate((*PARTS, "all")):
        if not measured[part]:
            parts[part] = None
            continue
        y, ys = by_bin[:, p], drawn[..., p]
        rows = [figure(100 * y[b], 100 * ys[:, b]) for b in range(len(bins.labels))]
        first = full[0]
        moved = [
            figure(100 * (y[b] - y[first]), 100 * (ys[:, b] - ys[:, first]))
            for b in range(len(bins.labels))
        ]
        parts[part] = {
            "level": figure(100 * level[p], 100 * levels[:, p]),
            "bins": rows,
            "change": moved,
            "slope": trend(bins.x, y, words, ys),
        }
    return {"labels": list(bins.labels), "parts": parts, "n": int(whole.total[..., 0].sum())}


def split(sums: Array, mix: Array) -> Array:
    """The parts of the mean excess.

    Args:
        sums: Shape (..., 2 + T, 2 or 3): words, excess and (where measured) the tokenizer's part,
            of new words, known words cut differently, and the others by topic.
        mix: The common mix of topics, shape (T,), adding up to 1.

    Returns:
        Shape (..., P + 1): the parts in the order of `PARTS`, then their sum, the mean excess
        (with the tokenizer's part) a word; NaN without words.
    """
    words, excess = sums[..., 0], sums[..., 1]
    everything = _mean(excess.sum(axis=-1), words.sum(axis=-1))
    known = _mean(excess[..., 1:].sum(axis=-1), words[..., 1:].sum(axis=-1))
    uncut = _mean(excess[..., 2:].sum(axis=-1), words[..., 2:].sum(axis=-1))
    # Without known (uncut) words the step's rest is 0, and all of it belongs to the others.
    known = np.where(words[..., 1:].sum(axis=-1) > 0, known, 0.0)
    uncut = np.where(words[..., 2:].sum(axis=-1) > 0, uncut, 0.0)
    topics = _mean(excess[..., 2:], words[..., 2:])
    topics = np.where(words[..., 2:] > 0, topics, uncut[..., None])
    contexts = topics @ mix
    tokenizer = known - uncut
    if sums.shape[-1] > 2:
        extra = _mean(sums[..., 2].sum(axis=-1), words.sum(axis=-1))
        tokenizer, total = tokenizer + extra, everything + extra
    else:
        total = everything
    parts = np.stack([everything - known, tokenizer, uncut - contexts, contexts, total], axis=-1)
    found: Array = np.where((words.sum(axis=-1) > 0)[..., None], parts, np.nan)
    return found


def _mix(ledger: Ledger) -> Array:
    """Shares of the topics among the uncut known words of all bins, shape (T,)."""
    words = ledger.total[:, 2:, 0].sum(axis=0)
    count = len(words)
    shares: Array = words / words.sum() if words.sum() else np.full(count, 1 / count)
    return shares


def _weighted(parts: Array, words: Array) -> Array:
    """Mean over bins weighted by words: (..., B, P) and (..., B) to (..., P)."""
    known = np.where(words[..., None] > 0, parts, 0.0)
    mean: Array = (known * words[..., None]).sum(axis=-2) / words.sum(axis=-1)[..., None]
    return mean


def _mean(above: Array, below: Array) -> Array:
    found: Array = np.divide(above, below, out=np.zeros(np.shape(above)), where=below > 0)
    return found
