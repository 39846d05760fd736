"""Streams of training stages, and the rows of one fold: what is trained when, what is held out.

A stream names stages, each with types of composed instances, verbs and what is learned there; one
type is the test set. A fold is a stream with rows drawn for it. Each type has its own generator, so
its rows are the same in every fold and in every order of stages.

Source: Fu and Frank, TACL 12, 2024: nine folds; CGen; C2Gen, ver->nat and nat->ver; S3.
Choice: which rows are drawn, and in which order they are trained, is ours.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, combinations, islice
from math import gcd
from operator import attrgetter
from pathlib import Path
from typing import Any

from numpy.random import Generator

from triaxial.c2gen.compose import Item
from triaxial.c2gen.verbs import FUNCTIONS, TYPES, VERBS, type_of
from triaxial.errors import InputError
from triaxial.nli import LABELS
from triaxial.stats import generator

__all__ = [
    "STREAMS",
    "Draw",
    "Fold",
    "Phase",
    "Stream",
    "draw_fold",
    "offline",
    "read_stream",
    "stream_named",
    "three_stages",
    "two_stages",
    "validate_fold",
]

_ORDERS = ("ver-nat", "nat-ver")
_S3 = tuple(f"{order}/{level}" for order in _ORDERS for level in ("easy-hard", "hard-easy"))
STREAMS = ("cgen", *_ORDERS, *_S3, "p|c")
"""The streams that need no file."""

_EASY_HARD = ("f_vn", "f_ve", "f_vc")  # Source: 85.74, 35.76 and 18.51 % right
_LEARNS = ("both", "primitives", "composition")
_LEAST = {"per_type": 1, "test_per_type": 1, "probe_per_type": 0, "unseen_per_type": 0}
_LEMMAS = tuple(verb.lemma for verb in VERBS)
_Cells = Iterable[list[int]]  # rows by natural primitive
_Group = defaultdict[tuple[str, str], list[int]]
_natural: Callable[[Item], tuple[str, str]] = attrgetter("mid_sent", "sent2")

_Keys = dict[str, tuple[type, bool, str]]
# Keys of a stream's file: type of one value, whether they are a list, and what to write.
_STAGE: _Keys = {
    "name": (str, False, 'a name, such as "first"'),
    "types": (int, True, "a list such as [1, 2, 3]"),
    "verbs": (str, True, 'a list such as ["manage"]'),
    "learns": (str, False, f"one of {', '.join(_LEARNS)}"),
}
_FILE: _Keys = {
    "name": _STAGE["name"],
    "test_type": (int, False, "one of 1..9"),
    "stages": (dict, True, "tables [[stages]]"),
}


@dataclass(frozen=True, slots=True)
class Phase:
    """One stage: types of 1..9, verbs (none = all); learns both, primitives or composition."""

    name: str
    types: tuple[int, ...]
    verbs: tuple[str, ...] = ()
    learns: str = "both"


@dataclass(frozen=True, slots=True)
class Stream:
    """Stages in the order of training; `test_type` 0 = none is held out (custom streams only)."""

    name: str
    test_type: int
    phases: tuple[Phase, ...]
    solution: int = 1


@dataclass(frozen=True, slots=True)
class Draw:
    """How many items are drawn.

    Args:
        per_type: Training items of each type of a stage, >= 1. Source: 3,200 a stage of four.
        test_per_type: Test items at most, >= 1; `None` = all. Choice: the paper does not say.
        probe_per_type: Untrained items of each trained type, >= 0. Choice: ours.
        unseen_per_type: Items of each type with unseen primitives, >= 0. Choice: ours.
        seed: Of the generators.
    """

    per_type: int = 800
    test_per_type: int | None = None
    probe_per_type: int = 50
    unseen_per_type: int = 50
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Fold:
    """Indices into the list of items: stages as trained, the other sets sorted."""

    stream: Stream
    stages: tuple[tuple[int, ...], ...]
    test: tuple[int, ...]
    probe: tuple[int, ...]
    unseen: tuple[int, ...]
    dropped: dict[str, int]  # rows left out or missing, by reason


def stream_named(name: str, test_type: int = 0, solution: int = 1) -> Stream:
    """A stream of `STREAMS`, or the one that a `.toml` file describes.

    Args:
        name: The name, or the path of a file.
        test_type: 1..9; for a file its own test type, or 0 = what the file says.
        solution: 1 or 2. "cgen", "p|c" and files have nothing to swap: theirs stays 1.
    """
    if name.endswith(".toml"):
        stream = read_stream(name)
        if test_type in (0, stream.test_type):
            return stream
        raise InputError(f"tests type {stream.test_type}, not {test_type}; edit it", where=name)
    if name not in STREAMS:
        raise InputError(f"no stream {name!r}; wanted a .toml file or {_names(name, STREAMS)}")
    if name == "cgen":
        return offline(test_type)
    return (two_stages if name in _ORDERS else three_stages)(test_type, name, solution)


def offline(test_type: int) -> Stream:
    """CGen: one stage of the eight other types."""
    return Stream("cgen", test_type, (Phase("all", _others(test_type)),))


def two_stages(test_type: int, order: str, solution: int = 1) -> Stream:
    """C2Gen: a stage with the test's verb label, and one with its natural label.

    For the test (v*, n*), other verb labels v1, v2 and other natural labels n1, n2:
    ver = {(v*, n1), (v1, n1), (v*, n2), (v2, n2)}, nat = {(v1, n*), (v1, n2), (v2, n*), (v2, n1)}.
    So ver holds all three verb labels, and nat all three natural ones.

    Args:
        test_type: 1..9.
        order: "ver-nat" or "nat-ver".
        solution: 1; or 2, with v1 and v2 swapped. There is no third.

    Source: the stages for test type 1. Choice: the other eight follow from this rule.
    """
    _others(test_type)
    if order not in _ORDERS:
        raise InputError(f"an order of {order!r}; wanted {' or '.join(_ORDERS)}")
    if solution not in (1, 2):
        raise InputError(f"solution {solution}; wanted 1 or 2, the two splits of a fold")
    verb, natural = TYPES[test_type]
    v1, v2 = [label for label in LABELS if label != verb][:: 1 if solution == 1 else -1]
    n1, n2 = (label for label in LABELS if label != natural)
    ver = (type_of(verb, n1), type_of(v1, n1), type_of(verb, n2), type_of(v2, n2))
    nat = (type_of(v1, natural), type_of(v1, n2), type_of(v2, natural), type_of(v2, n1))
    phases = (Phase("ver", ver), Phase("nat", nat))
    return Stream(order, test_type, phases if order == "ver-nat" else phases[::-1], solution)


def three_stages(test_type: int, name: str, solution: int = 1) -> Stream:
    """S3: compositions alone after what they are made of.

    Args:
        test_type: 1..9.
        name: "ver-nat/easy-hard" and the like: the two stages, then the functions from easy
            (f_vn, f_ve, f_vc) to hard or back. "p|c": primitives, then compositions.
        solution: As for `two_stages`; "p|c" has none.

    Choice: each function is a stage of its own, without the test type; both stages of "p|c" have
    all eight types; and compositions have the rows of the stages before them again.
    """
    if name == "p|c":
        types = _others(test_type)
        return Stream(name, test_type, tuple(Phase(each, types, (), each) for each in _LEARNS[1:]))
    if name not in _S3:
        raise InputError(f"an ordering {name!r}; wanted {_names(name, (*_S3, 'p|c'))}")
    order, level = name.split("/")
    phases = list(two_stages(test_type, order, solution).phases)
    for function in _EASY_HARD if level == "easy-hard" else _EASY_HARD[::-1]:
        types = tuple(kind for kind in FUNCTIONS[function] if kind != test_type)
        phases.append(Phase(function, types, (), "composition"))
    return Stream(name, test_type, tuple(phases), solution)


def read_stream(path: str | Path) -> Stream:
    """A stream of the user's own, from a TOML file.

    Its keys: `name`; `test_type` (1..9, optional); tables `[[stages]]` with `name`, `types`,
    `verbs` (optional) and `learns` (optional). Stages that list verbs make a stream of verbs.
    """
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); check the path", where=path) from None
    except ValueError as error:
        raise InputError(f"is not TOML: {error}; mend that place", where=path) from None
    _demand(_key_faults(table, _FILE, "the stream"), path)
    phases = []
    for number, stage in enumerate(table.get("stages", []), 1):
        _demand(_key_faults(stage, _STAGE, f"stage {number}"), path)
        types, verbs = tuple(stage.get("types", ())), tuple(stage.get("verbs", ()))
        phases.append(Phase(stage["name"], types, verbs, stage.get("learns", "both")))
    if table["name"] in STREAMS:
        raise InputError(f"the name {table['name']!r} is built in; choose another", where=path)
    stream = Stream(table["name"], table.get("test_type", 0), tuple(phases))
    _demand(_stream_faults(stream), path)
    return stream


def draw_fold(items: Sequence[Item], stream: Stream, draw: Draw) -> Fold:
    """The rows of one fold: even over natural primitives and over verbs, none twice in a stage.

    Training takes items of part "seen". A stage that learns "composition" has the rows of its
    types that earlier stages had; any other takes rows that none had. Where there are too few, all
    are taken and the missing ones counted.

    Raises:
        InputError: A stream that cannot be trained, a number out of range, a stage without items
            of one of its types, or no test item whose primitives are trained.

    Choice: a test or probe item has its natural primitive (both sentences) and its verb among the
    training rows, whichever loss they had; an unseen one has sentences untrained as a pair in
    either direction, and may have a new verb where a custom stream leaves verbs out.
    """
    where = f"stream {stream.name}"
    _demand(_stream_faults(stream), where)
    for name, least in _LEAST.items():
        if (value := getattr(draw, name)) is not None and value < least:
            raise InputError(f"{value}; wanted {least} or more items of a type", where=name)
    groups: defaultdict[tuple[str, int], _Group] = defaultdict(lambda: defaultdict(list))
    for row, item in enumerate(items):
        groups[item.part, item.type][_natural(item)].append(row)
    taken: dict[int, dict[int, None]] = {kind: {} for kind in TYPES}  # ordered sets of rows
    dropped: Counter[str] = Counter()

    def drawn(label: str, kind: int, cells: _Cells, most: int, *purpose: str) -> list[int]:
        rng = generator("c2gen.draw", draw.seed, kind, *purpose)
        order = (row for row in _balanced(items, cells, rng) if row not in taken[kind])
        found = list(islice(order, most))
        dropped[f"{label}type {kind}: {len(found)} of {most} there"] += most - len(found)
        return found

    stages = []
    for phase in stream.phases:
        stage: list[int] = []
        for kind in sorted(phase.types):
            earlier, *cells = (
                [row for row in rows if not phase.verbs or items[row].verb in phase.verbs]
                for rows in (taken[kind], *groups["seen", kind].values())
            )
            found = earlier if phase.learns == "composition" else []
            found = found or drawn("", kind, cells, draw.per_type, "train", *sorted(phase.verbs))
            if not found:
                verbs = f" and verbs {', '.join(phase.verbs)}" if phase.verbs else ""
                fault = f"stage {phase.name!r} has no item of type {kind}{verbs} that is seen and"
                fault += " not trained before; build more items, or take the type out of the stage"
                raise InputError(fault, where=where)
            taken[kind].update(dict.fromkeys(found))
            stage += found
        rng = generator("c2gen.order", draw.seed, phase.name, *sorted(phase.types))
        stages.append(tuple(stage[i] for i in rng.permutation(len(stage)).tolist()))
    trained = {row for rows in stages for row in rows}
    naturals, lemmas = {_natural(items[r]) for r in trained}, {items[r].verb for r in trained}
    pairs = {frozenset(natural) for natural in naturals}

    def known(kind: int) -> list[list[int]]:
        cells = (cell for natural, cell in groups["seen", kind].items() if natural in naturals)
        return [[r for r in c if items[r].verb in lemmas and r not in trained] for c in cells]

    cells = known(stream.test_type)
    test = [row for cell in cells for row in cell]
    count = sum(map(len, groups["seen", stream.test_type].values()))
    dropped["test: natural primitive or verb not trained"] += count - len(test)
    if stream.test_type and not test:
        fault = f"none of {count} seen items of test type {stream.test_type} has a trained natural"
        fault += " primitive and a trained verb; raise per_type, or build more items"
        raise InputError(fault, where=where)
    if stream.test_type and draw.test_per_type is not None:
        test = drawn("test, ", stream.test_type, cells, draw.test_per_type, "test")
    probe: list[int] = []
    unseen: list[int] = []
    for kind in TYPES:
        if taken[kind]:
            probe += drawn("probe, ", kind, known(kind), draw.probe_per_type, "probe")
        group = groups["unseen", kind]
        fresh = [cell for natural, cell in group.items() if frozenset(natural) not in pairs]
        left_out = sum(map(len, group.values())) - sum(map(len, fresh))
        dropped["unseen: sentences trained as a pair"] += left_out
        unseen += drawn("unseen, ", kind, fresh, draw.unseen_per_type, "unseen")
    sets = [tuple(sorted(rows)) for rows in (test, probe, unseen)]
    return Fold(stream, tuple(stages), sets[0], sets[1], sets[2], dict(+dropped))  # no zeros


def validate_fold(items: Sequence[Item], fold: Fold) -> None:
    """Raise `InputError` where a fold breaks what a comparison of streams rests on."""
    where = f"stream {fold.stream.name}, test type {fold.stream.test_type}"
    _demand(chain(_stream_faults(fold.stream), _fold_faults(items, fold)), where)


def _balanced(items: Sequence[Item], cells: _Cells, rng: Generator) -> Iterator[int]:
    """Rows in an order whose every beginning is even over primitives and over verbs.

    Each round takes from every primitive the row whose verb was used least. Where each primitive
    meets each verb, counts differ by one at most: place j takes verb j mod K, shifted by one after
    each lcm(P, K) places, so that no primitive meets a verb twice.
    """
    left = [list(cell) for cell in cells if cell]
    verbs = sorted({items[row].verb for cell in left for row in cell})
    ranks = dict(zip(verbs, rng.permutation(len(verbs)).tolist(), strict=True))
    queue = [left[i] for i in rng.permutation(len(left)).tolist()]
    tall, wide = len(queue), len(verbs)
    used = [0] * wide
    turn = 0
    while queue:
        start = turn * tall + turn * gcd(tall, wide) // wide
        for place, free in enumerate(queue, start):
            ranked = enumerate(ranks[items[row].verb] for row in free)
            _, _, at, verb = min((used[v], (v - place) % wide, at, v) for at, v in ranked)
            used[verb] += 1
            yield free.pop(at)
        queue = [free for free in queue if free]
        turn += 1


def _stream_faults(stream: Stream) -> Iterator[str]:
    if stream.test_type != 0 and stream.test_type not in TYPES:
        yield f"test type {stream.test_type} is not one of 1..9; leave it out for none"
    if not stream.phases:
        yield "has no stages; wanted at least one table [[stages]]"
    names = Counter(phase.name for phase in stream.phases)
    for phase in stream.phases:
        stage = f"stage {phase.name!r}"
        if names[phase.name] > 1:
            yield f"{names[phase.name]} stages are named {phase.name!r}; rename all but one"
        if phase.learns not in _LEARNS:
            yield f"{stage} learns {phase.learns!r}; wanted {_names(phase.learns, _LEARNS)}"
        if not phase.types:
            yield f"{stage} has no types; wanted a list such as [1, 2, 3]"
        for verb in phase.verbs:
            if verb not in _LEMMAS:
                yield f"{stage}: unknown verb {verb!r}; wanted {_names(verb, _LEMMAS)}"
        for kind in phase.types:
            if kind not in TYPES:
                yield f"{stage}: type {kind} is not one of 1..9"
            if kind == stream.test_type:
                yield f"{stage} trains the test type {kind}; take it out of the stage"
        for entry, times in Counter((*phase.types, *phase.verbs)).items():
            if times > 1:
                yield f"{stage} lists {entry} {times} times; wanted once"


def _fold_faults(items: Sequence[Item], fold: Fold) -> Iterator[str]:
    stream, trained = fold.stream, {row for rows in fold.stages for row in rows}
    if len(fold.stages) != len(stream.phases):
        yield f"{len(fold.stages)} stages of rows for {len(stream.phases)} of the stream"
    sets = {"test": fold.test, "probe": fold.probe, "unseen": fold.unseen}
    stages = list(zip(stream.phases, fold.stages, strict=True))
    for name, rows in (*((f"stage {p.name!r}", rows) for p, rows in stages), *sets.items()):
        if not all(0 <= row < len(items) for row in rows):
            yield f"{name} has rows beyond the {len(items)} items; draw from the same items"
        if len(set(rows)) < len(rows):
            yield f"{name} has an item twice"
    for phase, rows in stages:
        yield from _stage_faults(fold, phase, [items[row] for row in rows])
    for (one, first), (other, second) in combinations(stages, 2):
        if one.learns == other.learns == "both" and (shared := set(first).intersection(second)):
            yield f"stages {one.name!r} and {other.name!r} share {len(shared)} items"
    if stream.test_type and not fold.test:
        yield "the test set is empty"
    types = {"test": {stream.test_type}, "probe": {items[row].type for row in trained}}
    naturals, verbs = {_natural(items[r]) for r in trained}, {items[r].verb for r in trained}
    pairs = {frozenset(natural) for natural in naturals}
    for name, rows in sets.items():
        if shared := trained.intersection(rows):
            yield f"{name} shares {len(shared)} items with the training rows"
        for item in (items[row] for row in rows):
            if item.type not in types.get(name, TYPES):
                yield f"{name} item {item.id} has type {item.type}"
            if name == "unseen" and frozenset(_natural(item)) in pairs:
                yield f"unseen item {item.id}: its sentences are trained as a pair"
            if name != "unseen" and (_natural(item) not in naturals or item.verb not in verbs):
                yield f"{name} item {item.id}: its natural primitive or its verb is not trained"


def _stage_faults(fold: Fold, phase: Phase, rows: Sequence[Item]) -> Iterator[str]:
    stage = f"stage {phase.name!r}"
    for item in rows:
        if item.type not in phase.types or item.part != "seen":
            yield f"{stage} has the {item.part} item {item.id} of type {item.type}"
        if phase.verbs and item.verb not in phase.verbs:
            yield f"{stage} has item {item.id} of verb {item.verb!r}"
    counts = Counter(item.type for item in rows)
    if missing := set(phase.types).difference(counts):
        yield f"{stage} has no item of type {min(missing)}"
    equal = len(set(counts.values())) < 2 or any(r.startswith("type ") for r in fold.dropped)
    if fold.stream.name in STREAMS and not equal:
        yield f"{stage} has unequal shares of its types: {dict(sorted(counts.items()))}"
    if fold.stream.name in STREAMS and phase.name in ("ver", "nat"):
        column = {"ver": "veridical_label", "nat": "sick_label"}[phase.name]
        if len(seen := sorted({getattr(item, column) for item in rows})) < len(LABELS):
            yield f"{stage}: {column} is only {', '.join(seen)}, wanted all three labels"


def _demand(faults: Iterable[str], where: object) -> None:
    for fault in faults:
        raise InputError(fault, where=where)


def _key_faults(table: dict[str, Any], keys: _Keys, what: str) -> Iterator[str]:
    for key, value in table.items():
        if key not in keys:
            yield f"{what}: unknown key {key!r}; wanted {_names(key, tuple(keys))}"
        kind, several, wanted = keys[key]
        values = value if several and isinstance(value, list) else [value]
        # No key may hold an empty list: no verbs would read as all of them.
        if isinstance(value, list) != several or not values or {type(v) for v in values} != {kind}:
            yield f"{what}: {key} is {value!r}; wanted {wanted}"
    if not table.get("name"):
        yield f"{what} has no name; wanted {keys['name'][2]}"


def _names(seen: str, names: Sequence[str]) -> str:
    near = get_close_matches(seen, names, 1)
    return ", ".join(names) + (f"; did you mean {near[0]!r}?" if near else "")


def _others(test_type: int) -> tuple[int, ...]:
    if test_type not in TYPES:
        raise InputError(f"test type {test_type} of a built-in stream; wanted one of 1..9")
    return tuple(kind for kind in TYPES if kind != test_type)
