"""What a MERGE run would cost, before any weights are read.

The masked queries are counted exactly, the cached ones among them too. Time is an estimate: FLOPs
of the encoder over the rate of a matrix product measured here and now.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from triaxial.api.merge import GenerateOptions, without_marks
from triaxial.execute import Computing
from triaxial.merge.queries import ask
from triaxial.merge.stages import Clock, masked_sources, seeds_of
from triaxial.merge.variants import slots_of
from triaxial.models.base import hardware, measured_rate, token_flops
from triaxial.nli import Reading

__all__ = ["MaskedPlan", "plan"]

# Share of the plain matrix product's rate that an encoder reaches, attention and norms included.
_EFFICIENCY = 0.6


@dataclass(frozen=True, slots=True)
class MaskedPlan:
    """The work of one masked LM.

    Args:
        mlm: Its name.
        queries: Places to be masked, with repetitions.
        distinct: Different ones among them.
        cached: Of these, answered already.
        tokens: Tokens of the others.
        seconds: Estimate for the others on this device.
    """

    mlm: str
    queries: int
    distinct: int
    cached: int
    tokens: int
    seconds: float


def plan(reading: Reading, options: GenerateOptions, settings: Computing) -> dict[str, Any]:
    """Counts and times of `generate`, as plain values."""
    sources = masked_sources(options.mlm, options.mlm_precision, options.preset.propose.k, settings)
    pairs, dropped = without_marks(reading, sources, options.on_bad)
    seeds, _ = seeds_of(pairs, options.tagger, settings, Clock())
    slots, funnel = slots_of(seeds, options.preset.targets)
    rate = measured_rate(hardware(settings.device, options.mlm_precision))
    rows = []
    for source in sources:
        asked = ask(seeds, slots, source, options.preset.propose)
        queries = [query for row in asked for one in row for query in one.queries]
        distinct = {query.key: query for query in queries}
        found, _ = source.cache.lookup(list(distinct))
        missing = [q for q, there in zip(distinct.values(), found, strict=True) if not there]
        tokens = sum(len(query.ids) for query in missing)
        body, head = token_flops(source.tokenizer.config)
        seconds = (tokens * body + len(missing) * head) / (rate * _EFFICIENCY)
        rows.append(
            MaskedPlan(source.label, len(queries), len(distinct), int(found.sum()), tokens, seconds)
        )
    by_class: dict[str, int] = {}
    for mine in slots:
        for slot in mine:
            by_class[slot.pos] = by_class.get(slot.pos, 0) + 1
    return {
        "pairs": len(pairs),
        "dropped": dropped,
        "with_slots": sum(bool(mine) for mine in slots),
        "slots": sum(map(len, slots)),
        "slots_by_class": dict(sorted(by_class.items())),
        "skipped_words": {
            fate: n for (_, _, _, fate), n in sorted(funnel.items()) if fate != "slot"
        },
        "masked_lms": [asdict(row) for row in rows],
        "rate_gflops": rate / 1e9,
    }
