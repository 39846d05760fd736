"""Streams and folds: the paper's stages, what is held out, and draws that are even and alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.c2gen.compose import Item
from triaxial.c2gen.streams import (
    STREAMS,
    Draw,
    Fold,
    Phase,
    Stream,
    draw_fold,
    offline,
    read_stream,
    stream_named,
    three_stages,
    two_stages,
    validate_fold,
)
from triaxial.c2gen.verbs import FUNCTIONS, TYPES, composed_label, type_of
from triaxial.errors import InputError
from triaxial.nli import LABELS

VERBS = {
    "entailment": ("manage", "begin", "serve"),
    "neutral": ("hope", "wish", "expect"),
    "contradiction": ("forget", "fail", "refuse"),
}
# The table of the specification: test type, ver stage, nat stage.
GOLDEN = {
    1: ((2, 5, 3, 9), (4, 6, 7, 8)),
    2: ((1, 4, 3, 9), (5, 6, 8, 7)),
    3: ((1, 4, 2, 8), (6, 5, 9, 7)),
    4: ((5, 2, 6, 9), (1, 3, 7, 8)),
    5: ((4, 1, 6, 9), (2, 3, 8, 7)),
    6: ((4, 1, 5, 8), (3, 2, 9, 7)),
    7: ((8, 2, 9, 6), (1, 3, 4, 5)),
    8: ((7, 1, 9, 6), (2, 3, 5, 4)),
    9: ((7, 1, 8, 5), (3, 2, 6, 4)),
}


def crossed(seen: int = 9, unseen: int = 3, per_signature: int = 3) -> list[Item]:
    """Every primitive (seen + unseen of a natural label) with every verb: a full grid."""
    items = []
    for natural in LABELS:
        for number in range(seen + unseen):
            part = "seen" if number < seen else "unseen"
            mid, end = f"the {natural[0]}{number} purrs", f"the {natural[0]}{number} hums"
            for veridical in LABELS:
                for verb in VERBS[veridical][:per_signature]:
                    label = composed_label(veridical, natural)
                    pair = f"{natural[0]}{number}"
                    items.append(
                        Item(
                            f"{pair}ab-{verb}", type_of(veridical, natural), verb, pair, "ab",
                            "substitution", part, f"it {verb}s to purr", mid, end,
                            veridical.value, natural.value, label.value, label.value, 0.0,
                        )
                    )  # fmt: skip
    return items


ITEMS = crossed()
SMALL = Draw(per_type=12, probe_per_type=4, unseen_per_type=3)


def flat(fold: Fold) -> set[int]:
    return {row for rows in fold.stages for row in rows}


def gap(values: Iterable[object], among: int) -> int:
    """Largest less smallest count, where `among` different values may occur."""
    counts = Counter(values)
    return max(counts.values()) - (min(counts.values()) if len(counts) == among else 0)


def natural(row: int) -> tuple[str, str]:
    return ITEMS[row].mid_sent, ITEMS[row].sent2


# Streams.


@pytest.mark.parametrize("test_type", TYPES)
def test_the_stages_are_those_of_the_table(test_type: int) -> None:
    ver, nat = GOLDEN[test_type]
    stream = two_stages(test_type, "ver-nat")
    assert [(phase.name, phase.types) for phase in stream.phases] == [("ver", ver), ("nat", nat)]
    assert two_stages(test_type, "nat-ver").phases == stream.phases[::-1]


def test_the_second_solution_swaps_the_other_verb_labels() -> None:
    # Test 1 = (e, e): v1 = c, v2 = n. ver = (e,n) (c,n) (e,c) (n,c), nat = (c,e) (c,c) (n,e) (n,n).
    ver, nat = two_stages(1, "ver-nat", 2).phases
    assert (ver.types, nat.types) == ((2, 8, 3, 6), (7, 9, 4, 5))


@pytest.mark.parametrize("test_type", TYPES)
def test_no_third_solution_exists(test_type: int) -> None:
    # All splits of eight types into four and four in which ver has the test's verb label twice, nat
    # its natural label twice, and each stage has all three labels of both kinds.
    verb, label = TYPES[test_type]
    others = [kind for kind in TYPES if kind != test_type]
    found = set()
    for ver in combinations(others, 4):
        nat = [kind for kind in others if kind not in ver]
        sides = [[TYPES[kind] for kind in stage] for stage in (ver, nat)]
        if (
            [v for v, _ in sides[0]].count(verb) == 2
            and [n for _, n in sides[1]].count(label) == 2
            and len({v for v, _ in sides[0]}) == 3 == len({n for _, n in sides[1]})
            and [n for _, n in sides[0]].count(label) == 0
            and [n for _, n in sides[0]].count(next(n for n in LABELS if n != label)) == 2
        ):
            found.add(frozenset(ver))
    ours = {frozenset(two_stages(test_type, "ver-nat", s).phases[0].types) for s in (1, 2)}
    assert found == ours
    assert len(found) == 2


def test_offline_has_one_stage_of_eight_types() -> None:
    assert offline(4) == Stream("cgen", 4, (Phase("all", (1, 2, 3, 5, 6, 7, 8, 9)),))


def test_functions_from_easy_to_hard_and_back() -> None:
    easy = three_stages(5, "nat-ver/easy-hard", 2)
    assert easy.phases[:2] == two_stages(5, "nat-ver", 2).phases
    assert [(p.name, p.types, p.learns) for p in easy.phases[2:]] == [
        ("f_vn", (4, 6), "composition"),
        ("f_ve", FUNCTIONS["f_ve"], "composition"),
        ("f_vc", FUNCTIONS["f_vc"], "composition"),
    ]
    hard = three_stages(5, "nat-ver/hard-easy", 2)
    assert hard.phases[2:] == easy.phases[:1:-1]
    assert (easy.solution, hard.name) == (2, "nat-ver/hard-easy")


def test_primitives_then_compositions() -> None:
    first, second = three_stages(9, "p|c").phases
    assert first.types == second.types == (1, 2, 3, 4, 5, 6, 7, 8)
    assert (first.learns, second.learns) == ("primitives", "composition")


@pytest.mark.parametrize("name", STREAMS)
def test_every_built_in_name_gives_its_stream_and_its_fold(name: str) -> None:
    stream = stream_named(name, 3, 1)
    assert (stream.name, stream.test_type) == (name, 3)
    fold = draw_fold(ITEMS, stream, SMALL)
    validate_fold(ITEMS, fold)
    assert len(flat(fold)) == 8 * SMALL.per_type


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ver-nut", 1), "no stream 'ver-nut'; wanted a .toml file or cgen, ver-nat, nat-ver, "),
        (("ver-nut", 1), "did you mean 'ver-nat'?"),
        (("cgen", 0), "test type 0 of a built-in stream; wanted one of 1..9"),
        (("nat-ver", 10), "test type 10 of a built-in stream"),
        (("p|c", -1), "test type -1 of a built-in stream"),
        (("ver-nat", 1, 3), "solution 3; wanted 1 or 2"),
    ],
)
def test_names_and_numbers_that_give_no_stream(
    arguments: tuple[str, int, int], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        stream_named(*arguments)
    assert message in str(caught.value)


def test_orders_that_do_not_exist() -> None:
    with pytest.raises(InputError, match="an order of 'nat'; wanted ver-nat or nat-ver"):
        two_stages(1, "nat")
    with pytest.raises(InputError, match="an ordering 'ver-nat'; wanted ver-nat/easy-hard"):
        three_stages(1, "ver-nat")


# Streams of the user's own.

GOOD = """
name = "by verb"
test_type = 6
[[stages]]
name = "first"
types = [1, 2]
verbs = ["manage", "begin"]
[[stages]]
name = "then"
types = [1, 9]
learns = "composition"
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_stream_from_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    stream = read_stream(path)
    assert stream == Stream(
        "by verb",
        6,
        (
            Phase("first", (1, 2), ("manage", "begin")),
            Phase("then", (1, 9), learns="composition"),
        ),
    )
    assert stream_named(path) == stream_named(path, 6, 2) == stream
    with pytest.raises(InputError, match=r"own\.toml: tests type 6, not 5; edit it"):
        stream_named(path, 5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name = ", "name + ", "is not TOML: Expected '=' after a key"),
        ("[[stages]]", "[stages]", "is not TOML"),
        ("name = ", "nmae = ", "the stream: unknown key 'nmae'; wanted name, test_type, stages"),
        ("name = ", "nmae = ", "did you mean 'name'?"),
        ("verbs = ", "verb = ", "stage 1: unknown key 'verb'; wanted name, types, verbs, learns"),
        ('name = "by verb"', "", "the stream has no name"),
        ('name = "first"', 'name = ""', "stage 1 has no name"),
        ('"by verb"', "3", "the stream: name is 3; wanted a name"),
        ('"by verb"', '"cgen"', "the name 'cgen' is built in; choose another"),
        ("test_type = 6", "test_type = true", "test_type is True; wanted one of 1..9"),
        ("test_type = 6", "test_type = 10", "test type 10 is not one of 1..9; leave it out"),
        ("test_type = 6", "test_type = 9", "stage 'then' trains the test type 9; take it out"),
        ("[1, 2]", "[]", "stage 1: types is []; wanted a list such as [1, 2, 3]"),
        ("types = [1, 2]", "", "stage 'first' has no types; wanted a list such as [1, 2, 3]"),
        ("[1, 2]", "[1, 12]", "stage 'first': type 12 is not one of 1..9"),
        ("[1, 2]", '"ver"', "stage 1: types is 'ver'; wanted a list"),
        ("[1, 2]", "[1, 1]", "stage 'first' lists 1 2 times; wanted once"),
        ('["manage", "begin"]', "[]", "stage 1: verbs is []; wanted a list"),
        ('"begin"', '"begins"', "unknown verb 'begins'; wanted manage, "),
        ('"begin"', '"begins"', "did you mean 'begin'?"),
        ('"begin"', '"manage"', "stage 'first' lists manage 2 times"),
        ('"then"', '"first"', "2 stages are named 'first'; rename all but one"),
        ('"composition"', '"compositions"', "stage 'then' learns 'compositions'; wanted both"),
        ('"composition"', '"compositions"', "did you mean 'composition'?"),
    ],
)
def test_faults_of_a_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        read_stream(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"', "has no stages; wanted at least one table [[stages]]"),
        ('name = "x"\nstages = []', "stages is []; wanted tables [[stages]]"),
        ('name = "x"\n[stages]\nname = "y"', "wanted tables [[stages]]"),
        ("\ufeff\x00", "is not TOML"),
    ],
)
def test_files_without_stages(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_stream(write(tmp_path, text))
    assert message in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read \(No such file"):
        stream_named(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(InputError, match=r"bytes\.toml: is not TOML"):
        read_stream(tmp_path / "bytes.toml")


# Folds.


@settings(max_examples=40, deadline=None)
@given(
    test_type=st.integers(1, 9),
    solution=st.sampled_from((1, 2)),
    order=st.sampled_from(("ver-nat", "nat-ver")),
    seed=st.integers(0, 2**31),
    per_type=st.integers(3, 27),
    test_per_type=st.none() | st.integers(1, 9),
)
def test_what_holds_in_every_fold(
    test_type: int,
    solution: int,
    order: str,
    seed: int,
    per_type: int,
    test_per_type: int | None,
) -> None:
    draw = Draw(per_type, test_per_type, 2, 5, seed)
    stream = two_stages(test_type, order, solution)
    fold = draw_fold(ITEMS, stream, draw)
    validate_fold(ITEMS, fold)
    assert fold == draw_fold(ITEMS, stream, draw)

    first, second = fold.stages
    assert len(first) == len(set(first)) == len(second) == len(set(second)) == 4 * per_type
    trained = flat(fold)
    assert len(trained) == 8 * per_type
    other = draw_fold(ITEMS, two_stages(test_type, order[4:] + "-" + order[:3], solution), draw)
    assert other.stages == fold.stages[::-1]
    assert (other.test, other.probe, other.unseen) == (fold.test, fold.probe, fold.unseen)
    assert flat(draw_fold(ITEMS, offline(test_type), draw)) == trained

    for row in trained:
        assert ITEMS[row].type != test_type
        assert ITEMS[row].part == "seen"
    naturals, verbs = {natural(r) for r in trained}, {ITEMS[r].verb for r in trained}
    whole = [r for r, x in enumerate(ITEMS) if x.type == test_type and x.part == "seen"]
    known = [r for r in whole if natural(r) in naturals and ITEMS[r].verb in verbs]
    if test_per_type is None:
        assert fold.test == tuple(known)
    else:
        assert set(fold.test) <= set(known)
        assert len(fold.test) == min(test_per_type, len(known))
    assert fold.dropped.get("test: natural primitive or verb not trained", 0) == len(whole) - len(
        known
    )
    for row in fold.probe:
        assert row not in trained
        assert ITEMS[row].type != test_type
        assert ITEMS[row].part == "seen"
        assert natural(row) in naturals
    for row in fold.unseen:
        assert ITEMS[row].part == "unseen"
        assert natural(row) not in naturals
    assert Counter(ITEMS[row].type for row in fold.unseen) == dict.fromkeys(TYPES, 5)

    # Even over the 9 primitives and over the 3 verbs of each type.
    for kind in TYPES:
        rows = [row for row in trained if ITEMS[row].type == kind]
        if rows:
            assert len(rows) == per_type
            assert gap((natural(row) for row in rows), 9) <= 1
            assert gap((ITEMS[row].verb for row in rows), 3) <= 1


@pytest.mark.parametrize(("primitives", "verbs"), [(9, 3), (8, 3), (7, 2), (4, 2), (2, 3), (6, 1)])
def test_every_size_of_a_draw_is_even(primitives: int, verbs: int) -> None:
    # Common divisors of both counts are where a plain cycle would meet a verb twice.
    items = crossed(primitives, 0, verbs)
    for per_type in range(1, primitives * verbs + 1):
        (rows,) = draw_fold(items, Stream("x", 0, (Phase("a", (5,)),)), Draw(per_type)).stages
        chosen = [items[row] for row in rows]
        assert len(set(rows)) == per_type
        assert gap((x.mid_sent for x in chosen), primitives) <= 1
        assert gap((x.verb for x in chosen), verbs) <= 1


def test_an_uneven_grid_is_covered_as_far_as_it_goes() -> None:
    # Primitive n0 has one verb left, n1 two: a draw of 9 has each of 9 primitives once.
    items = [
        x
        for x in ITEMS
        if not (x.mid_sent == "the n0 purrs" and x.verb in ("wish", "expect"))
        and not (x.mid_sent == "the n1 purrs" and x.verb == "hope")
    ]
    for seed in range(5):
        stream = Stream("x", 0, (Phase("a", (5,)),))
        (rows,) = draw_fold(items, stream, Draw(per_type=9, seed=seed)).stages
        assert len({items[row].mid_sent for row in rows}) == 9
        assert gap((items[row].verb for row in rows), 3) <= 1
        fold = draw_fold(items, stream, Draw(per_type=27, seed=seed))
        assert len(set(fold.stages[0])) == 24
        assert fold.dropped["type 5: 24 of 27 there"] == 3


def test_a_type_is_drawn_alike_in_every_fold_and_a_larger_draw_holds_a_smaller() -> None:
    def of_type(test_type: int, kind: int, **options: int) -> set[int]:
        draw = replace(SMALL, **options)
        return {
            r for r in flat(draw_fold(ITEMS, offline(test_type), draw)) if ITEMS[r].type == kind
        }

    assert of_type(1, 5) == of_type(9, 5)
    assert of_type(1, 5) < of_type(1, 5, per_type=20)
    assert of_type(1, 5) != of_type(1, 5, seed=2)
    # Types differ in their draws: the same cells would say that they share a generator.
    cells = [{(natural(r)[0][5:], ITEMS[r].verb) for r in of_type(1, kind)} for kind in (4, 5, 6)]
    assert cells[0] != cells[1] != cells[2]


def test_a_shared_stage_has_the_same_rows_in_the_same_order() -> None:
    first = draw_fold(ITEMS, two_stages(2, "ver-nat"), SMALL)
    ordered = draw_fold(ITEMS, three_stages(2, "ver-nat/easy-hard"), SMALL)
    assert ordered.stages[:2] == first.stages
    assert list(first.stages[0]) != sorted(first.stages[0])
    kinds = [ITEMS[row].type for row in first.stages[0]]
    assert kinds != sorted(kinds)  # shuffled across types


@pytest.mark.parametrize("name", ["ver-nat/easy-hard", "ver-nat/hard-easy", "p|c"])
def test_compositions_have_the_rows_that_were_learned(name: str) -> None:
    fold = draw_fold(ITEMS, three_stages(7, name), SMALL)
    half = 1 if name == "p|c" else 2
    learned = {row for rows in fold.stages[:half] for row in rows}
    composed = [row for rows in fold.stages[half:] for row in rows]
    assert len(composed) == len(set(composed))
    assert set(composed) == learned
    assert fold.dropped.keys() <= {"test: natural primitive or verb not trained"}


def test_a_stream_of_verbs() -> None:
    early, late = Phase("early", (1, 2), ("manage",)), Phase("late", (2, 1), ("begin", "serve"))
    draw = Draw(per_type=9, probe_per_type=50, unseen_per_type=0)
    fold = draw_fold(ITEMS, Stream("verbs", 0, (early, late)), draw)
    validate_fold(ITEMS, fold)
    assert [{ITEMS[r].verb for r in rows} for rows in fold.stages] == [
        {"manage"},
        {"begin", "serve"},
    ]
    back = draw_fold(ITEMS, Stream("back", 0, (late, early)), draw)
    assert back.stages == fold.stages[::-1]
    # "expect" is left out of the training, so its test items are too.
    only = Stream("only", 5, (early, Phase("neutral", (4, 6, 8), ("hope", "wish", "fail"))))
    fold = draw_fold(ITEMS, only, replace(draw, per_type=100))
    assert fold.dropped["type 1: 9 of 100 there"] == 91
    assert fold.dropped["test: natural primitive or verb not trained"] == 9  # 9 primitives
    assert {ITEMS[row].verb for row in fold.test} == {"hope", "wish"}
    # No type with contradiction is trained, so no natural primitive of type 3 is.
    with pytest.raises(InputError, match="none of 27 seen items of test type 3 has a trained"):
        draw_fold(ITEMS, Stream("x", 3, (early,)), draw)


def test_a_type_trained_twice_has_other_rows_the_second_time() -> None:
    stream = Stream("twice", 0, (Phase("a", (1,)), Phase("b", (1, 4))))
    fold = draw_fold(ITEMS, stream, Draw(per_type=15, probe_per_type=0, unseen_per_type=0))
    validate_fold(ITEMS, fold)
    assert not set(fold.stages[0]) & set(fold.stages[1])
    assert (fold.test, fold.probe, fold.unseen) == ((), (), ())
    assert fold.dropped == {"type 1: 12 of 15 there": 3}  # 27 - 15
    # A composition of verbs that were not trained draws rows of its own.
    stream = Stream(
        "more", 0, (Phase("a", (1,), ("manage",)), Phase("b", (1,), ("serve",), "composition"))
    )
    fold = draw_fold(ITEMS, stream, Draw(per_type=5))
    assert {ITEMS[row].verb for row in fold.stages[1]} == {"serve"}
    assert [len(rows) for rows in fold.stages] == [5, 5]


def test_a_stage_without_items() -> None:
    whole = Stream("x", 0, (Phase("a", (1,)), Phase("b", (1,))))
    with pytest.raises(InputError) as caught:
        draw_fold(ITEMS, whole, Draw(per_type=27))
    assert str(caught.value) == (
        "stream x: stage 'b' has no item of type 1 that is seen and not trained before; build more "
        "items, or take the type out of the stage"
    )
    verbs = Stream("x", 0, (Phase("a", (4,), ("plan", "manage")),))
    with pytest.raises(InputError, match="no item of type 4 and verbs plan, manage that is seen"):
        draw_fold(ITEMS, verbs, Draw())


def test_unseen_items_whose_sentences_are_trained_the_other_way_round_are_left_out() -> None:
    items = [
        replace(x, mid_sent="the e0 hums", sent2="the e0 purrs")
        if x.mid_sent == "the e9 purrs"
        else x
        for x in ITEMS
    ]
    fold = draw_fold(items, offline(1), Draw(per_type=27, unseen_per_type=9))
    assert fold.dropped["unseen: sentences trained as a pair"] == 9  # e9 with 9 verbs
    assert fold.dropped["unseen, type 1: 6 of 9 there"] == 3
    assert all(items[row].mid_sent != "the e0 hums" for row in fold.unseen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_type": 0}, "per_type: 0; wanted 1 or more items of a type"),
        ({"test_per_type": 0}, "test_per_type: 0; wanted 1 or more"),
        ({"probe_per_type": -1}, "probe_per_type: -1; wanted 0 or more"),
        ({"unseen_per_type": -2}, "unseen_per_type: -2; wanted 0 or more"),
    ],
)
def test_numbers_out_of_range(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw_fold(ITEMS, offline(1), Draw(**options))


def test_a_stream_written_by_hand_is_checked() -> None:
    with pytest.raises(InputError, match="stream x: stage 'a' trains the test type 1"):
        draw_fold(ITEMS, Stream("x", 1, (Phase("a", (1, 2)),)), Draw())


# The validator: each fault is planted into a good fold.


def first(**wanted: object) -> int:
    return next(
        row
        for row, item in enumerate(ITEMS)
        if all(getattr(item, name) == value for name, value in wanted.items())
    )


def test_the_validator_sees_each_fault() -> None:
    draw = Draw(per_type=3, test_per_type=3, probe_per_type=2, unseen_per_type=2)
    fold = draw_fold(ITEMS, two_stages(1, "ver-nat"), draw)
    validate_fold(ITEMS, fold)
    ver, nat = fold.stages
    held_out = first(type=1, part="seen")
    new = next(r for r, x in enumerate(ITEMS) if x.type == 1 and x.part == "unseen")
    few = Stream("v", 5, (Phase("a", (4, 2), ("hope", "manage")),))
    verbs = draw_fold(ITEMS, few, replace(draw, per_type=9))
    known = first(type=5, verb="wish", part="seen")
    lacking = Stream("ver-nat", 1, (Phase("ver", (2, 3)), fold.stream.phases[1]))
    flipped = Stream(
        "ver-nat",
        1,
        (Phase("a", (2, 3), (), "primitives"), replace(fold.stream.phases[0], name="nat")),
    )
    twice = Stream("x", 0, (Phase("a", (2,)), Phase("b", (2, 3))))
    of_type = [[r for r in ver if ITEMS[r].type == kind] for kind in (2, 3)]
    overlap = Fold(twice, (tuple(of_type[0]), (*of_type[0], *of_type[1])), (), (), (), {})
    mirrored = [
        replace(x, mid_sent=ITEMS[ver[0]].sent2, sent2=ITEMS[ver[0]].mid_sent)
        if row == fold.unseen[0]
        else x
        for row, x in enumerate(ITEMS)
    ]
    only = tuple(r for r in ver if ITEMS[r].type in (2, 3))
    tagged = Stream("v", 0, (Phase("a", (4,), ("hope",)),))
    cases = [
        (replace(fold, stages=((*ver, held_out), nat)), "has the seen item e0ab-manage of type 1"),
        (replace(fold, stages=((*ver[1:], new), nat)), "has the unseen item"),
        (replace(fold, stages=(ver, ())), "stage 'nat' has no item of type 4"),
        (replace(fold, stages=(ver[1:], nat)), "stage 'ver' has unequal shares of its types"),
        (replace(fold, stages=(ver,)), "1 stages of rows for 2 of the stream"),
        (replace(fold, stages=((*ver, ver[0]), nat)), "stage 'ver' has an item twice"),
        (replace(fold, test=(len(ITEMS),)), "test has rows beyond the 324 items"),
        (replace(fold, test=()), "the test set is empty"),
        (replace(fold, test=(fold.test[0],) * 2), "test has an item twice"),
        (replace(fold, test=(new,)), "its natural primitive or its verb is not trained"),
        (replace(verbs, test=(known,)), "test item n0ab-wish: its natural primitive or its verb"),
        (replace(fold, test=fold.probe), f"test item {ITEMS[fold.probe[0]].id} has type"),
        (replace(fold, probe=(ver[0],)), "probe shares 1 items with the training rows"),
        (replace(fold, probe=fold.test), f"probe item {ITEMS[fold.test[0]].id} has type 1"),
        (replace(fold, unseen=(nat[0],)), "unseen shares 1 items"),
        (replace(fold, unseen=fold.test[:1]), "its sentences are trained as a pair"),
        (replace(fold, stream=lacking, stages=(only, nat)), "veridical_label is only entailment"),
        (
            replace(fold, stream=flipped, stages=(only, ver)),
            "sick_label is only contradiction, neu",
        ),
        (overlap, "stages 'a' and 'b' share 3 items"),
        (Fold(tagged, ((first(type=4, verb="wish"),),), (), (), (), {}), "of verb 'wish'"),
        (replace(fold, stream=replace(fold.stream, test_type=2)), "trains the test type 2"),
    ]
    for broken, message in cases:
        with pytest.raises(InputError) as caught:
            validate_fold(ITEMS, broken)
        assert message in str(caught.value), message
        assert str(caught.value).startswith(f"stream {broken.stream.name}, test type ")
    with pytest.raises(InputError, match="its sentences are trained as a pair"):
        validate_fold(mirrored, fold)
