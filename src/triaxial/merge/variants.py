"""The variants of seeds: all conditions applied in turn, and the funnel of what they reject.

Source: MERGE, conditions (i) to (iv).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from triaxial.merge.filters import (
    KEPT,
    FilterOptions,
    Proposal,
    Replacement,
    Score,
    counted,
    judge,
    replacement_of,
)
from triaxial.merge.lexicon import WordNet
from triaxial.merge.propose import REASONS, ProposeOptions
from triaxial.merge.queries import Judged, MaskedSource, judge_slots
from triaxial.merge.targets import Seed, Slot, TargetOptions, shared_slots
from triaxial.models.tagger import Tagger

__all__ = ["PRESETS", "Fate", "FunnelRow", "Preset", "slots_of", "variants_of"]

Fate = tuple[str, str, str, str]
"""Unit, masked LM, class, fate: see `FunnelRow`."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Everything that decides which variants a set of pairs has.

    *faithful* is what the paper says, *safe* what a careful engineer would ship.
    """

    targets: TargetOptions = field(default_factory=TargetOptions)
    propose: ProposeOptions = field(default_factory=ProposeOptions)
    filters: FilterOptions = field(default_factory=FilterOptions)


PRESETS = {
    "faithful": Preset(),
    "safe": Preset(
        targets=TargetOptions(logical=False),
        filters=FilterOptions(fine=True, same_lemma=True, label_risk="drop"),
    ),
}


@dataclass(frozen=True, slots=True)
class FunnelRow:
    """How many things of a kind met a fate.

    Args:
        unit: `word` (shared words), `slot` (words asked of a masked LM), `suggestion` (entries
            that a masked LM suggests) or `variant` (words that it validates).
        mlm: A masked LM; "all" where several count once, "" where none is concerned.
        pos: Word class; "" where it is not known.
        fate: Reason of rejection, or what it became.
        count: How many.
    """

    unit: str
    mlm: str
    pos: str
    fate: str
    count: int


def slots_of(
    seeds: Sequence[Seed], options: TargetOptions
) -> tuple[list[list[Slot]], Counter[Fate]]:
    """The slots of each seed, and the funnel of shared words."""
    slots = []
    funnel: Counter[Fate] = Counter()
    for seed in seeds:
        mine, skipped = shared_slots(seed, options)
        slots.append(mine)
        for reason, count in skipped.items():
            funnel["word", "", "", reason] += count
        for slot in mine:
            funnel["word", "", slot.pos, "slot"] += 1
    return slots, funnel


def variants_of(
    seeds: Sequence[Seed],
    slots: Sequence[Sequence[Slot]],
    sources: Sequence[MaskedSource],
    preset: Preset,
    tagger: Tagger,
    wordnet: WordNet | None = None,
) -> tuple[list[Replacement], Counter[Fate]]:
    """Replacements of seeds, numbered within each seed, and the counts of every fate."""
    funnel: Counter[Fate] = Counter()
    judged = judge_slots(seeds, slots, sources, preset.propose)
    proposals, origin = [], []
    for one in judged:
        for label, fate in one.fates.items():
            funnel["slot", label, one.slot.pos, fate] += 1
        for label, found in one.by_mlm.items():
            vouched = sum(label in by for by in one.accepted.values())
            funnel["suggestion", label, one.slot.pos, "not_a_word"] += found.not_words
            refused = [w not in one.accepted or label not in one.accepted[w] for w in found.words]
            reasons = found.reasons[refused]
            for reason, name in enumerate(REASONS):
                count = int((reasons == reason).sum())
                if count:
                    funnel["suggestion", label, one.slot.pos, name] += count
            funnel["suggestion", label, one.slot.pos, "validated"] += vouched
        for word, by in one.accepted.items():
            proposals.append(Proposal(one.seed, one.slot, word, by))
            origin.append(one)
    verdicts = judge(proposals, tagger, preset.filters, wordnet)
    for (label, pos, verdict), count in counted(proposals, verdicts).items():
        funnel["variant", label, pos, verdict] += count
    kept: list[Replacement] = []
    number: Counter[str] = Counter()
    for proposal, one, (verdict, risk) in zip(proposals, origin, verdicts, strict=True):
        if verdict == KEPT:
            seed = proposal.slot.seed
            kept.append(replacement_of(proposal, number[seed], _scores(one, proposal.word), risk))
            number[seed] += 1
    return kept, funnel


def _scores(judged: Judged, word: str) -> Iterator[Score]:
    for label, found in judged.by_mlm.items():
        if word in found.words:
            row = found.words.index(word)
            there = found.rank[row] > 0
            yield Score(
                label,
                judged.own[label],
                tuple(
                    float(p) if t else None for p, t in zip(found.log_p[row], there, strict=True)
                ),
                tuple(int(r) if r else None for r in found.rank[row]),
            )
