"""The data of the composition axis, from SICK: natural primitives by verbs give composed items.

SICK's licence (CC BY-NC-SA) keeps its sentences out of this project: a copy of it is read here.
Reading is in `sick` and `items`; build offers their names as its own.

Source: Fu and Frank, TACL 12, 2024 (2,130 natural primitives, e 747, n 693, c 690; 21 verbs).
Choice: both directions of a pair are candidates, each with its own directed label; pairs where only
one direction contradicts are dropped, a known artefact of SICK's annotation.
Choice: at most two primitives share a premise (the paper does not say): one would do, but then a
premise would tell its natural label without any hypothesis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from triaxial.c2gen.compose import (
    RELATIONS,
    Aspect,
    Clause,
    Item,
    clause_of,
    composed,
    exhaustive,
    hypothesis_of,
    middle,
    negates,
    relation_of,
)
from triaxial.c2gen.items import PARTS, check_items, read_items, validate_items
from triaxial.c2gen.sick import DirectedPair, read_sick
from triaxial.c2gen.verbs import TYPES, VERBS, Verb, composed_label, sound_label, type_of
from triaxial.errors import InputError
from triaxial.models.tagger import Tagger
from triaxial.nli import LABELS, Label
from triaxial.stats import generator
from triaxial.text import words

__all__ = [
    "BuildOptions",
    "Built",
    "DirectedPair",
    "Primitive",
    "build",
    "check_items",
    "data_card",
    "read_items",
    "read_sick",
    "validate_items",
]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What is built.

    Args:
        aspect: Whether complements and middle sentences are in the simple present.
        per_premise: Primitives that may share a premise, at least 1.
        seen: How many primitives to draw with label e, n, c. Source: the paper.
        unseen: The same for primitives whose sentences nothing seen is connected with, at most.
        seed: Of the draws.
    """

    aspect: Aspect = "simple"
    per_premise: int = 2
    seen: tuple[int, int, int] = (747, 693, 690)
    unseen: tuple[int, int, int] = (75, 70, 70)
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Primitive:
    """A natural inference: S (`mid_sent`) against S' (`sent2`).

    Args:
        id: "1043ab".
        pair_id: Of the source.
        direction: "ab" or "ba".
        relation: How S' differs from S.
        part: "seen" or "unseen".
        premise: S as in the source.
        hypothesis: S' as in the source.
        mid_sent: S as it is used.
        sent2: S' as it is used.
        label: S against S'.
        backward: S' against S.
        exhaustive: Whether one of the two must hold.
        kept: Why the hypothesis stays as in the source; "" where its tense was changed.
        group: Number of its premise group: primitives that share a sentence, directly or not.
    """

    id: str
    pair_id: str
    direction: str
    relation: str
    part: str
    premise: str
    hypothesis: str
    mid_sent: str
    sent2: str
    label: str
    backward: str
    exhaustive: bool
    kept: str
    group: int


@dataclass(frozen=True, slots=True)
class Built:
    """What `build` made.

    Args:
        items: Every primitive with every verb, seen primitives first.
        primitives: Those drawn, in the order of the source.
        counts: The funnel: how many were read, dropped and why, left, drawn.
        options: What was asked.
    """

    items: tuple[Item, ...]
    primitives: tuple[Primitive, ...]
    counts: dict[str, int] = field(default_factory=dict)
    options: BuildOptions = field(default_factory=BuildOptions)


def build(pairs: Sequence[DirectedPair], options: BuildOptions, tagger: Tagger) -> Built:
    """Compose primitives and items.

    Args:
        pairs: In the order of the source.
        options: What to build.
        tagger: Tags the sentences, each once.

    Raises:
        InputError: An option is out of range, or too few primitives with some label are left.
    """
    if options.per_premise < 1:
        message = f"{options.per_premise} is less than 1; allow a premise one primitive or more"
        raise InputError(message, where="--per-premise")
    counts: Counter[str] = Counter({"pairs read": len(pairs)})
    pairs = _consistent(pairs, counts)
    sentences = list(dict.fromkeys(s for pair in pairs for s in (pair.a, pair.b)))
    tokens = {sentence: words(sentence) for sentence in sentences}
    tagged = tagger.tag([[word.text for word in tokens[s]] for s in sentences])
    tags = dict(zip(sentences, tagged, strict=True))
    clauses = {s: clause_of(s, tokens[s], tags[s]) for s in sentences}
    # S' by sentence: as it is used, and why it stays as it was.
    changed = {s: (s, "progressive") for s in sentences}
    if options.aspect == "simple":
        changed = {s: hypothesis_of(s, tokens[s], tags[s]) for s in sentences}

    candidates: list[Primitive] = []
    for pair in pairs:
        for direction, s, other, label, backward in (
            ("ab", pair.a, pair.b, pair.ab, pair.ba),
            ("ba", pair.b, pair.a, pair.ba, pair.ab),
        ):
            clause = clauses[s]
            if isinstance(clause, str):
                counts[f"premise dropped: {clause}"] += 1
                continue
            candidates.append(
                Primitive(
                    f"{pair.id}{direction}",
                    pair.id,
                    direction,
                    "",
                    "",
                    s,
                    other,
                    middle(clause, options.aspect),
                    changed[other][0],
                    label.value,
                    backward.value,
                    False,
                    changed[other][1],
                    0,
                )
            )
    candidates = _grouped(_distinct(candidates, counts))
    counts["candidates"] = len(candidates)
    for label in LABELS:
        counts[f"candidates {label}"] = sum(p.label == label for p in candidates)
    texts = {s: [word.text for word in tokens[s]] for s in sentences}
    drawn = [
        replace(
            p,
            relation=relation_of(texts[p.premise], texts[p.hypothesis]),
            exhaustive=exhaustive(texts[p.premise], texts[p.hypothesis]),
        )
        for p in _drawn(candidates, options)
    ]
    for primitive in sorted(drawn, key=lambda p: (p.part, LABELS.index(Label(p.label)))):
        counts[f"drawn {primitive.part} {primitive.label}"] += 1
    for primitive in drawn:
        if primitive.kept:
            counts[f"drawn hypothesis as it was: {primitive.kept}"] += 1
    items = [
        _composed_item(primitive, clauses[primitive.premise], verb, options.aspect)
        for part in PARTS
        for primitive in drawn
        if primitive.part == part
        for verb in VERBS
    ]
    return Built(tuple(items), tuple(drawn), dict(counts), options)


def data_card(built: Built) -> str:
    """What the data hold, as Markdown."""
    options, primitives, counts = built.options, built.primitives, built.counts
    parts = {part: [p for p in primitives if p.part == part] for part in PARTS}
    seen = [item for item in built.items if item.part == "seen"]
    types = Counter(item.type for item in seen)
    by = Counter((p.relation, p.label) for p in primitives)
    negated = Counter(p.label for p in primitives if negates(words(p.sent2)))
    sound = Counter(item.type for item in seen if item.sound != item.label)
    lines = [
        "# Composed natural language inference: data card",
        "",
        f"{len(built.items):,} items: {len(primitives):,} primitives by {len(VERBS)} verbs.",
        f"Aspect {options.aspect}; at most {options.per_premise} primitives a premise; seed "
        f"{options.seed}.",
        "",
        "The sentences come from SICK (Marelli et al. 2014), CC BY-NC-SA 3.0: do not publish them "
        "apart from that licence. The verbs' ratings come from Ross and Pavlick (2019).",
        "",
        *_table(
            ["natural primitives", *LABELS, "all"],
            [
                [p, *(sum(x.label == n for x in parts[p]) for n in LABELS), len(parts[p])]
                for p in PARTS
            ],
        ),
        *_table(
            ["type", "veridical", "natural", "items (seen)", "where logic says another label"],
            [[t, v, n, types[t], sound[t]] for t, (v, n) in TYPES.items()],
        ),
        *_table(
            ["relation", *LABELS],
            [[r, *(by[r, n] for n in LABELS)] for r in RELATIONS]
            + [["(S' holds a negation)", *(negated[n] for n in LABELS)]],
        ),
        *_table(
            ["verb", "signature", "mean rating (-2..2)", "items"],
            [
                [
                    v.lemma,
                    v.signature,
                    f"{v.agreement:.2f}",
                    sum(i.verb == v.lemma for i in built.items),
                ]
                for v in VERBS
            ],
        ),
        *_table(["step", "count"], [[step, f"{count:,}"] for step, count in counts.items()]),
    ]
    return "\n".join(lines)


def _consistent(pairs: Sequence[DirectedPair], counts: Counter[str]) -> list[DirectedPair]:
    """Pairs whose two directed labels and gold label agree."""
    kept = []
    against = LABELS[2]
    for pair in pairs:
        if (pair.ab == against) != (pair.ba == against):
            counts["pairs dropped: one-sided contradiction"] += 1
        elif pair.gold != pair.ab:
            counts["pairs dropped: gold label is not the directed one"] += 1
        else:
            kept.append(pair)
    counts["directed pairs"] = 2 * len(kept)
    return kept


def _distinct(candidates: Sequence[Primitive], counts: Counter[str]) -> list[Primitive]:
    labels: dict[tuple[str, str], set[str]] = {}
    for primitive in candidates:
        labels.setdefault((primitive.mid_sent, primitive.sent2), set()).add(primitive.label)
    kept: dict[tuple[str, str], Primitive] = {}
    for primitive in candidates:
        key = (primitive.mid_sent, primitive.sent2)
        if key[0] == key[1]:
            counts["primitive dropped: S is S'"] += 1
        elif len(labels[key]) > 1:
            counts["primitive dropped: two labels"] += 1
        elif key in kept:
            counts["primitive dropped: duplicate"] += 1
        else:
            kept[key] = primitive
    return list(kept.values())


def _grouped(candidates: Sequence[Primitive]) -> list[Primitive]:
    """Candidates with the numbers of their groups: connected by sentences, by union and find."""
    parent: dict[str, str] = {}

    def root(text: str) -> str:
        while parent.setdefault(text, text) != text:
            parent[text] = text = parent[parent[text]]
        return text

    for primitive in candidates:
        parent[root(primitive.mid_sent)] = root(primitive.sent2)
    numbers: dict[str, int] = {}
    return [
        replace(p, group=numbers.setdefault(root(p.mid_sent), len(numbers))) for p in candidates
    ]


def _drawn(candidates: Sequence[Primitive], options: BuildOptions) -> list[Primitive]:
    """The sample, in the order of the source; whole groups are set aside for what stays unseen."""
    rng = generator("c2gen.build", options.seed, "unseen")
    members: dict[int, list[Primitive]] = {}
    for primitive in candidates:
        members.setdefault(primitive.group, []).append(primitive)
    # A group that holds a tenth of everything would leave too little for the rest.
    small = [g for g, found in members.items() if 10 * len(found) <= len(candidates)]
    left = Counter(dict(zip(LABELS, options.unseen, strict=True)))
    taken: dict[str, str] = {}
    aside: set[int] = set()
    for place in rng.permutation(len(small)):
        group = small[place]
        if not any(left[Label(p.label)] > 0 for p in members[group]):
            continue
        aside.add(group)
        found = [members[group][i] for i in rng.permutation(len(members[group]))]
        for primitive in _capped(found, options.per_premise, left):
            taken[primitive.id] = "unseen"
    rest = [p for p in candidates if p.group not in aside]
    rng = generator("c2gen.build", options.seed, "seen")
    wanted = Counter(dict(zip(LABELS, options.seen, strict=True)))
    there = Counter(p.label for p in rest)
    chosen = _capped([rest[i] for i in rng.permutation(len(rest))], options.per_premise, wanted)
    for label, short in wanted.items():
        if short > 0:
            asked = options.seen[LABELS.index(label)]
            raise InputError(
                f"only {asked - short} {label} primitives of {asked} could be drawn, from "
                f"{there[label]} candidates with at most {options.per_premise} a premise; raise "
                "--per-premise, ask for fewer with --counts, or give more pairs",
            )
    taken |= {primitive.id: "seen" for primitive in chosen}
    return [replace(p, part=taken[p.id]) for p in candidates if p.id in taken]


def _capped(found: Sequence[Primitive], most: int, left: Counter[Label]) -> list[Primitive]:
    """Primitives in the order given, the scarcest label first, at most `most` a premise.

    `left` says how many to take of each label, and is counted down.
    """
    there = Counter(p.label for p in found)
    used: Counter[str] = Counter()
    chosen = []
    for label in sorted(LABELS, key=lambda name: there[name]):
        for primitive in found:
            if primitive.label == label and left[label] > 0 and used[primitive.mid_sent] < most:
                chosen.append(primitive)
                used[primitive.mid_sent] += 1
                left[label] -= 1
    return chosen


def _composed_item(primitive: Primitive, clause: Clause | str, verb: Verb, aspect: Aspect) -> Item:
    assert isinstance(clause, Clause), "only sentences that parse become primitives"
    forward, backward = Label(primitive.label), Label(primitive.backward)
    return Item(
        f"{primitive.id}-{verb.lemma}",
        type_of(verb.signature, forward),
        verb.lemma,
        primitive.pair_id,
        primitive.direction,
        primitive.relation,
        primitive.part,
        composed(clause, verb, aspect),
        primitive.mid_sent,
        primitive.sent2,
        verb.signature.value,
        forward.value,
        composed_label(verb.signature, forward).value,
        sound_label(verb.signature, forward, backward, primitive.exhaustive).value,
        verb.agreement,
    )


def _table(header: Sequence[Any], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [*("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines), ""]
