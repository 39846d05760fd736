"""The data of the composition axis from the real SICK, and the ratings from the real table."""

from __future__ import annotations

import csv
import time
from collections import defaultdict
from pathlib import Path

import pytest

from triaxial.c2gen.build import BuildOptions, build, read_sick, validate_items
from triaxial.c2gen.pseudo import pseudo_items
from triaxial.c2gen.verbs import VERBS, composed_label, sound_label
from triaxial.models.tagger import load_tagger
from triaxial.nli import LABELS

E, N, C = LABELS


def test_agreement_is_recomputed_from_the_ratings(shared: Path) -> None:
    path = shared / "data" / "nli" / "verb_veridicality_evaluation.tsv"
    ratings = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["task"] == "to":
                ratings[row["verb"]] += map(float, row["turker_pos_ratings"].split(","))
    for verb in VERBS:
        mean = sum(ratings[verb.lemma]) / len(ratings[verb.lemma])
        assert verb.agreement == pytest.approx(mean, abs=5e-5), verb.lemma


def test_one_way_entailments_are_what_changes_in_type_7(shared: Path) -> None:
    """The specification's check: 1,513 of 4,113 entailing directions."""
    pairs, _ = read_sick(shared / "data" / "nli" / "SICK.txt")
    kept = [pair for pair in pairs if (pair.ab == C) == (pair.ba == C)]
    assert (len(pairs), len(pairs) - len(kept)) == (9840, 611)
    directions = [d for pair in kept for d in ((pair.ab, pair.ba), (pair.ba, pair.ab))]
    entailing = [(f, b) for f, b in directions if f == E]
    changed = [(f, b) for f, b in entailing if sound_label(C, f, b, False) != composed_label(C, f)]
    assert (len(changed), len(entailing)) == (1513, 4113)


def test_the_counts_of_the_paper_are_reached(shared: Path) -> None:
    start = time.perf_counter()
    pairs, _ = read_sick(shared / "data" / "nli" / "SICK.txt")
    built = build(pairs, BuildOptions(), load_tagger())
    assert validate_items(built.items, "built") == []
    assert built.counts["pairs dropped: one-sided contradiction"] == 611
    parts = {
        part: [sum(p.label == n and p.part == part for p in built.primitives) for n in LABELS]
        for part in ("seen", "unseen")
    }
    assert parts == {"seen": [747, 693, 690], "unseen": [75, 70, 70]}
    assert sum(item.part == "seen" for item in built.items) == 44730
    seen, unseen = (
        {t for p in built.primitives if p.part == part for t in (p.premise, p.hypothesis)}
        for part in ("seen", "unseen")
    )
    assert not seen & unseen
    made = pseudo_items(built.items)
    assert validate_items(made.items, "pseudo") == []
    assert made.pairs > 150
    assert time.perf_counter() - start < 60
