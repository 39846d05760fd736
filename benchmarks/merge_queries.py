"""Masked queries of MERGE against the packages that ask the same of the same model.

What is asked: every occurrence of every shared word on both sides of the first pairs of SICK's
test part, the 200 likeliest entries for each. The *raw* list is what the pairs hold, duplicates
too; the *distinct* list holds each masked sentence with its hidden word once. We are given the raw
list (sentences that differ in nothing share a forward) and, apart, the distinct one.

The peers are the installed packages themselves, each in its own process and its own environment
(made under --cache with pip where it is not there):
  hf          the fill-mask pipeline of transformers, one query after the other (our environment)
  nlpaug      nlpaug 1.1.11, its Bert.predict in batches of 32
  textattack  textattack 0.3.11, WordSwapMaskedLM(method="bae"), padded to 512 (its default), 128

Tokenizing the sentences is timed on both sides, loading a model on none. Slow peers are timed on
random parts of the list that take --seconds each, and figures are per query. Before anything is
timed, every query that will be is checked: the same top-200 and probabilities within 1e-5, theirs
from their model's logits in float64, as a float32 softmax over a vocabulary is off by more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from common import header, spread, table
from peers.client import PEERS, Found, Peer, Spec, interpreter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from triaxial.models.masked import MaskedLM, Place, Query

# Entries whose log-probabilities differ by less may stand in either order: fp32 in another batch.
TIE = 2e-4
MOST = 1e-5  # difference of probabilities


@dataclass(slots=True)
class Timed:
    """One line of the table: seconds and counts of each repeat, per query."""

    name: str
    target: float | None
    part: str
    ms: list[float] = field(default_factory=list)
    forwards: list[float] = field(default_factory=list)
    padded: list[float] = field(default_factory=list)

    def add(self, queries: int, seconds: float, forwards: float, padded: float) -> None:
        """One repeat."""
        self.ms.append(1000 * seconds / queries)
        self.forwards.append(forwards / queries)
        self.padded.append(padded / queries)


@dataclass(slots=True)
class Contest:
    """A peer that runs, asked in one way, and the parts of the list that it is timed on."""

    peer: Peer
    way: str
    parts: list[list[int]]
    line: Timed


def main() -> None:
    """Check, time, print; exit code 1 where a peer's answers differ from ours."""
    options = _arguments()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    packages = ["triaxial", "torch", "transformers", "tokenizers", "numpy"]
    print(header("masked queries", options.threads, packages), flush=True)
    places, pair_of = _places(options.data, options.pairs)
    from triaxial.models.masked import load_masked

    model = load_masked(options.mlm, device="cpu", precision="fp32")
    asked = list(zip(places, pair_of, model.queries(places), strict=True))
    kept = [(place, pair, q) for place, pair, q in asked if not isinstance(q, str)]
    places = [place for place, _, _ in kept]
    queries = [query for _, _, query in kept]
    first = {query.key: row for row, query in reversed(list(enumerate(queries)))}
    distinct = sorted(first.values())
    print(
        f"queries: {len(queries)} raw, {len(distinct)} distinct "
        f"({len({q.ids for q in queries})} distinct masked sentences) of {options.pairs} pairs; "
        f"{len(asked) - len(kept)} words are no single token; top-{options.k}",
        flush=True,
    )
    ours = model.fill(queries, options.k)
    p = np.exp(ours.log_p.astype(np.float64))
    job = {
        "model": str(Path(options.mlm).resolve()),
        "queries": [(place.text, place.start, place.end) for place in places],
        "k": options.k,
        "threads": options.threads,
    }
    rng = np.random.default_rng(options.seed)
    contests = []
    for spec in PEERS:
        if spec.package not in options.peers:
            continue
        peer = Peer(spec, interpreter(spec, options.cache), options.cache, job)
        print(f"\n{spec.name}: {', '.join(f'{n} {v}' for n, v in peer.versions.items())}")
        units = _units(spec, [pair for _, pair, _ in kept], places, peer.usable)
        parts = _parts(peer, units, options.repeats, options.seconds, rng)
        rows = sorted({row for part in parts for row in part})
        _check(peer, rows, queries, ours.ids, p)
        for way in spec.ways:
            name = spec.name if way == spec.ways[0] else f"{spec.name}, {way} lengths"
            what = f"{options.repeats} x {len(parts[0])}"
            line = Timed(name, spec.target if way == spec.ways[0] else None, what)
            contests.append(Contest(peer, way, parts, line))
    lines = _time(model, places, distinct, contests, options.repeats, options.k)
    if options.repeats < 5:
        print("\nfewer than 5 repeats: no figure to be quoted")
    print("\n" + _report(*lines, [contest.line for contest in contests]))
    for peer in {id(c.peer): c.peer for c in contests}.values():
        peer.close()


def _places(data: str, pairs: int) -> tuple[list[Place], list[int]]:
    """The words to be masked, as the product finds them, and the number of the pair of each."""
    from triaxial.merge.propose import occurrence_texts
    from triaxial.merge.targets import tagged_seeds
    from triaxial.merge.variants import PRESETS, slots_of
    from triaxial.models.masked import Place
    from triaxial.models.tagger import load_tagger
    from triaxial.nli import read_pairs

    preset = PRESETS["faithful"]
    reading = read_pairs(f"sick:{data}", split="TEST", limit=pairs)
    seeds = tagged_seeds(reading.pairs, load_tagger())
    slots, _ = slots_of(seeds, preset.targets)
    found = [
        (Place(*text), number)
        for number, (seed, mine) in enumerate(zip(seeds, slots, strict=True))
        for slot in mine
        for text in occurrence_texts(seed, slot, preset.propose)
    ]
    return [place for place, _ in found], [number for _, number in found]


def _units(
    spec: Spec, pair_of: Sequence[int], places: Sequence[Place], usable: Sequence[bool]
) -> list[list[int]]:
    """The list in the pieces that a random part is made of."""
    rows = [row for row in range(len(places)) if usable[row]]
    left_out = len(places) - len(rows)
    if left_out:
        print(f"  {left_out} queries left out: it cuts their text into other words")
    if spec.unit == "query":
        return [[row] for row in rows]
    if spec.unit == "chunk":
        return [rows[at : at + 32] for at in range(0, len(rows), 32)]
    sentences: dict[tuple[int, str], list[int]] = {}
    for row in rows:
        sentences.setdefault((pair_of[row], places[row].text), []).append(row)
    return list(sentences.values())


def _parts(
    peer: Peer, units: list[list[int]], repeats: int, seconds: float, rng: np.random.Generator
) -> list[list[int]]:
    """Random parts of the list that take so many seconds each, or the whole list."""
    way = peer.spec.ways[0]
    some = [row for i in rng.permutation(len(units))[:4] for row in units[i]]
    peer.time(some, way)
    rate = peer.time(some, way)["seconds"] / len(some)
    per_unit = rate * sum(map(len, units)) / len(units)
    size = min(int(np.ceil(1.1 * seconds / per_unit)), len(units))
    return [
        [row for i in sorted(rng.permutation(len(units))[:size]) for row in units[i]]
        for _ in range(repeats)
    ]


def _check(
    peer: Peer,
    rows: list[int],
    queries: Sequence[Query],
    ids: NDArray[np.int32],
    p: NDArray[np.float64],
) -> None:
    """Compare with our answers; where a peer pads wrongly, its last way must agree."""
    *spoilt, right = peer.spec.ways
    for way in spoilt:
        found = _differences(ids[rows], p[rows], peer.check(rows, way))
        print(
            f"  in batches as they come it attends to its own padding: {len(found)} of "
            f"{len(rows)} queries get other entries or probabilities; checked on equal lengths"
        )
    theirs = peer.check(rows, right)
    found = _differences(ids[rows], p[rows], theirs)
    if found:
        at, what = next(iter(found.items()))
        row = rows[at]
        sys.exit(
            f"PARITY FAILED: {peer.spec.name}: {len(found)} of {len(rows)} queries differ; "
            f"query {row} (entry {queries[row].target} hidden at {queries[row].position}): {what}"
        )
    swapped = int((ids[rows] != theirs.ids).any(axis=1).sum())
    most = float(np.abs(p[rows] - np.sort(theirs.p, axis=1)[:, ::-1]).max())
    rounded = float(np.abs(theirs.own - theirs.p).max())
    own = "" if np.isnan(rounded) else f"; its own float32 softmax is off by up to {rounded:.1e}"
    print(
        f"  the same on all {len(rows)} queries to be timed: top-{ids.shape[1]} ids "
        f"({swapped} with ties in another order), |dp| <= {most:.1e}{own}",
        flush=True,
    )


def _differences(ids: NDArray[np.int32], p: NDArray[np.float64], theirs: Found) -> dict[int, str]:
    """What is not the same, by row: an entry, or a probability."""
    if theirs.ids.shape != ids.shape:
        return {0: f"{theirs.ids.shape} entries in place of {ids.shape}"}
    out = {}
    for row in range(len(ids)):
        one = dict(zip(ids[row].tolist(), np.log(p[row]).tolist(), strict=True))
        other = dict(zip(theirs.ids[row].tolist(), np.log(theirs.p[row]).tolist(), strict=True))
        last = min(*one.values(), *other.values())
        for entry in one.keys() | other.keys():
            # An entry that one side lacks may stand at the very end, level with the last.
            mine, their = one.get(entry, last), other.get(entry, last)
            if abs(mine - their) > TIE or abs(np.exp(mine) - np.exp(their)) >= MOST:
                out[row] = f"entry {entry} has p = {np.exp(mine):.7f}, theirs {np.exp(their):.7f}"
                break
    return out


def _time(
    model: MaskedLM,
    places: list[Place],
    distinct: list[int],
    contests: list[Contest],
    repeats: int,
    k: int,
) -> tuple[Timed, Timed]:
    """All in turn, so that a machine that slows down slows down everyone."""
    raw = Timed("triaxial, raw list", None, f"{repeats} x {len(places)}")
    once = Timed("triaxial, distinct list", None, f"{repeats} x {len(distinct)}")
    for repeat in range(repeats):
        for line, asked in ((raw, places), (once, [places[row] for row in distinct])):
            forwards, padded = model.work.forwards, model.work.padded
            start = time.perf_counter()
            model.fill([q for q in model.queries(asked) if not isinstance(q, str)], k)
            seconds = time.perf_counter() - start
            line.add(
                len(asked), seconds, model.work.forwards - forwards, model.work.padded - padded
            )
        for contest in contests:
            part = contest.parts[repeat]
            contest.line.add(len(part), **contest.peer.time(part, contest.way))
    return raw, once


def _report(raw: Timed, once: Timed, peers: Sequence[Timed]) -> str:
    rows = []
    for line in (raw, once, *peers):
        ms = median(line.ms)
        ratios = ["", ""]
        if line not in (raw, once):
            ratio = ms / median(raw.ms)
            wanted = line.target
            mark = "" if wanted is None else f" (>= {wanted:g})"
            missed = " MISSED" if wanted is not None and ratio < wanted else ""
            ratios = [f"{ratio:.1f}{mark}{missed}", f"{ms / median(once.ms):.1f}"]
        rows.append(
            [
                line.name,
                line.part,
                spread(line.ms),
                f"{1000 / ms:,.1f}",
                *ratios,
                f"{median(line.forwards):.4f}",
                f"{median(line.padded):,.1f}",
            ]
        )
    head = [
        "median of repeats (least-greatest)",
        "repeats x queries",
        "ms a query",
        "queries/s",
        "ratio",
        "ratio, no duplicates",
        "forwards a query",
        "padded tokens a query",
    ]
    return (
        table(head, rows)
        + "\nratio: a peer's time a query over ours on the raw list; no duplicates: over ours on "
        "the distinct list.\nA peer has no use for a duplicate: each costs it a query."
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="SICK.txt")
    parser.add_argument("--mlm", required=True, help="directory of a BERT-like masked LM")
    parser.add_argument("--pairs", type=int, default=300, help="first pairs of TEST (300)")
    parser.add_argument("--k", type=int, default=200, help="entries a query (200)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads, everywhere (1)")
    parser.add_argument("--repeats", type=int, default=5, help="at least 5 for a figure (5)")
    parser.add_argument(
        "--seconds", type=float, default=10, help="that a part of the list takes a peer (10)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random parts (1)")
    parser.add_argument(
        "--peers",
        type=lambda text: text.split(","),
        default=["hf", "nlpaug", "textattack"],
        help="hf,nlpaug,textattack",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("~/.cache/triaxial-peers"),
        help="where the environments are made (~/.cache/triaxial-peers, 3 GB)",
    )
    options = parser.parse_args()
    options.cache = options.cache.expanduser().resolve()
    known = {spec.package for spec in PEERS}
    if unknown := set(options.peers) - known:
        parser.error(f"--peers: {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
    return options


if __name__ == "__main__":
    main()
