"""Primitives and items from a small file in SICK's form, with sentences of our own."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import typer

from triaxial.api.c2gen_data import build_data, read_data, validate_data
from triaxial.c2gen.build import (
    BuildOptions,
    Built,
    DirectedPair,
    build,
    check_items,
    data_card,
    read_items,
    read_sick,
    validate_items,
)
from triaxial.c2gen.verbs import VERBS, composed_label
from triaxial.cli.c2gen_build import build as build_command
from triaxial.cli.c2gen_build import validate as validate_command
from triaxial.errors import InputError, StoreError, TriaxialError
from triaxial.models.tagger import load_tagger
from triaxial.nli import LABELS, Label

E, N, C = LABELS
HEADER = ["pair_ID", "sentence_A", "sentence_B", "entailment_label"]
HEADER += ["entailment_AB", "entailment_BA"]
SAID = {E: "entails", N: "neutral", C: "contradicts"}
SMALL = BuildOptions(seen=(6, 6, 6), unseen=(2, 2, 2))


def pairs_of_our_own() -> list[DirectedPair]:
    """Per actor and deed: one-way entailment, neutral, contradiction; groups of four sentences."""
    pairs = []
    deeds = [("mending", "a net"), ("painting", "a door"), ("carrying", "a sack")]
    for actor in ("A nurse", "A pilot", "Two sailors", "The farmer", "A goat"):
        be = "are" if actor.startswith("Two") else "is"
        for verb, thing in deeds:
            s = f"{actor} {be} slowly {verb} {thing}"
            found = [
                (f"{actor} {be} {verb} {thing}", E, N),
                (f"{actor} {be} slowly {verb} a {thing[2:]} in a hall", N, E),
                (f"{actor} {be} not slowly {verb} {thing}", C, C),
            ]
            for other, ab, ba in found:
                pairs.append(DirectedPair(str(len(pairs) + 1), s, other, ab, ab, ba))
    return pairs


def row(pair: DirectedPair) -> str:
    labels = [f"A_{SAID[pair.ab]}_B", f"B_{SAID[pair.ba]}_A"]
    return "\t".join([pair.id, pair.a, pair.b, pair.gold.value.upper(), *labels])


def written(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(["\t".join(HEADER), *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def built() -> Built:
    return build(pairs_of_our_own(), SMALL, load_tagger())


def test_read_sick_gives_both_directions(tmp_path: Path) -> None:
    pairs = pairs_of_our_own()
    read, digest = read_sick(written(tmp_path / "s.txt", [row(pair) for pair in pairs]))
    assert read == pairs
    assert len(digest) == 64


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({3: "MAYBE"}, ":1: entailment_label 'MAYBE' is not one of ENTAILMENT"),
        ({4: "A_maybe_B"}, ":1: entailment_AB 'A_maybe_B' is not one of A_entails_B"),
        ({5: "A_neutral_B"}, ":1: entailment_BA 'A_neutral_B' is not one of B_entails_A"),
        ({1: " "}, ":1: sentence_A is empty"),
    ],
)
def test_read_sick_says_what_is_wrong(tmp_path: Path, changed, wanted: str) -> None:
    fields = row(pairs_of_our_own()[0]).split("\t")
    path = written(tmp_path / "s.txt", ["\t".join(changed.get(i, f) for i, f in enumerate(fields))])
    with pytest.raises(InputError) as caught:
        read_sick(path)
    assert wanted in str(caught.value)


def test_read_sick_wants_its_columns_fields_and_rows(tmp_path: Path) -> None:
    path = tmp_path / "s.txt"
    path.write_text("pair_ID\tsentence_A\n1\tA nurse is humming\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"column 'sentence_B' is missing, there are pair_ID"):
        read_sick(path)
    with pytest.raises(InputError, match=r"s.txt:1: 1 fields, but the header has 6; mend the row$"):
        read_sick(written(path, ["1"]))
    with pytest.raises(InputError, match="holds no pair"):
        read_sick(written(path, []))


def test_items_are_primitives_by_verbs_with_the_papers_labels(built: Built) -> None:
    assert len(built.items) == 21 * len(built.primitives) == 21 * (18 + 6)
    for part, wanted in (("seen", 6), ("unseen", 2)):
        mine = [p.label for p in built.primitives if p.part == part]
        assert [mine.count(label) for label in LABELS] == [wanted] * 3
    assert validate_items(built.items, "x") == []
    by_id = {primitive.id: primitive for primitive in built.primitives}
    for item in built.items:
        primitive = by_id[f"{item.pair_id}{item.direction}"]
        assert (item.mid_sent, item.sent2) == (primitive.mid_sent, primitive.sent2)
        assert item.label == composed_label(Label(item.veridical_label), Label(primitive.label))
        if item.type == 7:  # sound only where S' entails S
            assert (item.sound == C) == (primitive.backward == E)
        if item.type == 9:  # the only contradictions here are negations
            assert item.sound == E


def test_sentences_by_hand() -> None:
    pairs = [DirectedPair("7", "A nurse is humming a song", "A woman is humming a song", E, E, N)]
    made = build(pairs, BuildOptions(seen=(1, 1, 0), unseen=(0, 0, 0)), load_tagger())
    item = made.items[0]
    assert (item.id, item.type, item.relation) == ("7ab-manage", 1, "substitution")
    assert (item.sent1, item.mid_sent, item.sent2) == (
        "A nurse manages to hum a song",
        "A nurse hums a song",
        "A woman hums a song",
    )
    back = made.items[21]
    assert (back.id, back.sent1, back.sent2) == (
        "7ba-manage",
        "A woman manages to hum a song",
        "A nurse hums a song",
    )
    refused = next(i for i in made.items if i.id == "7ab-refuse")
    assert (refused.label, refused.sound) == (C, N)
    other = next(i for i in made.items if i.id == "7ba-refuse")  # no woman hums: no nurse does
    assert (other.label, other.sound) == (N, C)


def test_progressive_aspect() -> None:
    pairs = [DirectedPair("7", "A nurse is humming", "A nurse is not humming", C, C, C)]
    options = BuildOptions(aspect="progressive", seen=(0, 0, 1), unseen=(0, 0, 0))
    item = build(pairs, options, load_tagger()).items[0]
    assert item.sent1 == "A nurse manages to be humming"
    assert (item.mid_sent, item.sent2) == (pairs[0].a, pairs[0].b)


def test_unseen_primitives_share_no_group_with_seen_ones(built: Built) -> None:
    groups = {part: {p.group for p in built.primitives if p.part == part} for part in SMALLEST}
    texts = {
        part: {t for p in built.primitives if p.part == part for t in (p.mid_sent, p.sent2)}
        for part in SMALLEST
    }
    assert not groups["seen"] & groups["unseen"]
    assert not texts["seen"] & texts["unseen"]


SMALLEST = ("seen", "unseen")


def test_at_most_so_many_a_premise_and_seeds_differ(built: Built) -> None:
    tagger = load_tagger()
    one = build(pairs_of_our_own(), replace(SMALL, per_premise=1), tagger)
    mids = [p.mid_sent for p in one.primitives]
    assert len(mids) == len(set(mids))
    assert build(pairs_of_our_own(), SMALL, tagger) == built
    assert build(pairs_of_our_own(), replace(SMALL, seed=2), tagger).items != built.items


def test_what_cannot_be_used_is_dropped_and_counted() -> None:
    s, other = "A nurse is humming", "A woman is humming"
    pairs = [
        DirectedPair("1", s, other, E, E, N),
        DirectedPair("2", s, other, E, E, N),  # the same again
        DirectedPair("3", s, "A nurse is singing", N, C, N),  # one-sided
        DirectedPair("4", s, "A nurse is singing", N, E, N),  # gold against directed
        DirectedPair("5", s, "There is no nurse humming", C, C, C),
        DirectedPair("6", "A nurse isn't humming", "A nurse is not humming", E, E, E),
        DirectedPair("7", "A nurse is humming a song", "A nurse is humming a tune", N, N, N),
        DirectedPair("8", "A nurse is humming a song", "A nurse is humming a tune", E, E, E),
        DirectedPair("9", s, "A nurse is humming", E, E, E),
    ]
    counts = build(pairs, BuildOptions(seen=(1, 1, 1), unseen=(9, 9, 9)), load_tagger()).counts
    assert counts["pairs dropped: one-sided contradiction"] == 1
    assert counts["pairs dropped: gold label is not the directed one"] == 1
    assert counts["premise dropped: negation"] == 3
    assert counts["primitive dropped: duplicate"] == 2
    assert counts["primitive dropped: two labels"] == 4
    assert counts["primitive dropped: S is S'"] == 2
    assert counts["candidates"] == 3


def test_counts_that_cannot_be_reached() -> None:
    with pytest.raises(InputError, match=r"only 15 contradiction primitives of 99 .* 15 cand"):
        build(pairs_of_our_own(), BuildOptions(seen=(1, 1, 99), unseen=(0, 0, 0)), load_tagger())
    with pytest.raises(InputError, match="--per-premise: 0 is less than 1"):
        build(pairs_of_our_own(), replace(SMALL, per_premise=0), load_tagger())


def test_card_tells_counts_licence_and_ratings(built: Built) -> None:
    card = data_card(built)
    assert "| seen | 6 | 6 | 6 | 18 |" in card
    assert "| 7 | contradiction | entailment | 30 |" in card  # 6 primitives by 5 verbs
    assert "| manage | entailment | 1.78 | 24 |" in card
    assert "CC BY-NC-SA" in card
    assert "| (S' holds a negation) | 0 | 0 | 8 |" in card


def test_items_survive_the_file(built: Built, tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps(asdict(item)) + "\n" for item in built.items), "utf-8")
    assert read_items(path) == list(built.items)


THEIRS = {
    "sent1": "Two nurses refuse to hum a song",
    "mid_sent": "Two nurses hum a song",
    "sent2": "Two women hum a song",
    "verdical_label": "negative",
    "sick_label": "e",
    "label": "Contradiction",
}


def read_one(tmp_path: Path, **changes: object):
    path = tmp_path / "theirs.jsonl"
    fields = {key: value for key, value in {**THEIRS, **changes}.items() if value is not None}
    path.write_text(json.dumps(fields) + "\n", encoding="utf-8")
    (item,) = read_items(path)
    return item


def test_the_authors_rows_are_read_in_both_spellings(tmp_path: Path) -> None:
    item = read_one(tmp_path)
    assert (item.verb, item.type, item.label, item.sound) == ("refuse", 7, C, C)
    assert (item.relation, item.part, item.direction) == ("substitution", "seen", "ab")
    assert item.id == f"{item.pair_id}ab-refuse"
    assert item.agreement == pytest.approx(-1.6111)
    assert read_one(tmp_path, verdical_label=None, veridical_label="contradiction") == item
    assert validate_items([item], "x") == []
    pseudo = read_one(tmp_path, sent1="Two nurses qneopl to hum a song")
    assert (pseudo.verb, validate_items([pseudo], "x")) == ("refuse", [])


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"label": 2}, ":1: label is 2, wanted one of entailment, e, neutral"),
        ({"label": "maybe"}, ":1: label is 'maybe', wanted one of"),
        ({"sick_label": "positive"}, ":1: sick_label is 'positive', wanted one of"),
        ({"verdical_label": None}, ":1: veridical_label is missing, wanted one of"),
        ({"sent2": None}, ":1: sent2 is missing, wanted text"),
        ({"mid_sent": 3}, ":1: mid_sent is 3, wanted text"),
        ({"type": "7"}, ":1: type is '7', wanted 1..9"),
        ({"agreement": "high"}, ":1: agreement is 'high', wanted -2..2"),
        ({"sent1": "Two nurses love to hum"}, ":1: none of the 21 verbs stands before 'to'"),
    ],
)
def test_rows_that_cannot_be_read(tmp_path: Path, changes, wanted: str) -> None:
    with pytest.raises(InputError) as caught:
        read_one(tmp_path, **changes)
    assert wanted in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(InputError, match="holds no item"):
        read_items(path)
    path.write_text("{\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"x.jsonl:1: invalid JSON.*; mend the row$"):
        read_items(path)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"label": "entailment"}, "label entailment, but the rule says contradiction"),
        ({"type": 8}, "type 8, but the labels say 7"),
        ({"sick_label": "maybe"}, "sick_label 'maybe' is no label"),
        ({"sent2": " "}, "sent2 is empty"),
        ({"verb": "love"}, "the verb 'love' is not one of the 21"),
        ({"verb": "manage"}, "veridical_label contradiction, but manage is entailment"),
        ({"sent1": "Two nurses refuse a song"}, "sent1 does not hold 'refuses' or 'refuse'"),
        ({"mid_sent": "Two cooks hum"}, "do not begin with the same subject"),
        ({"direction": "up"}, "direction 'up' is neither ab nor ba"),
        ({"part": "test"}, "part 'test' is neither seen nor unseen"),
        ({"relation": "odd"}, "relation 'odd' is not one of substitution"),
    ],
)
def test_faults(tmp_path: Path, changes, fault: str) -> None:
    found = validate_items([replace(read_one(tmp_path), **changes)], "f.jsonl")
    assert any(line.startswith("f.jsonl:1: ") and fault in line for line in found), found


def test_faults_between_rows(tmp_path: Path) -> None:
    item = read_one(tmp_path)
    second = replace(item, sick_label="neutral", label="neutral", type=8, part="unseen")
    faults = validate_items([item, second], "f")
    assert [line.partition(": ")[2] for line in faults] == [
        f"the id {item.id!r} is that of row 1 already",
        "sick_label neutral, but entailment for the same pair, row 1",
        "part unseen, but seen for the same pair, row 1",
    ]
    with pytest.raises(InputError, match=r"^f:2: the id .* \(3 faults in all\); mend the file"):
        check_items([item, second], "f")
    check_items([item], "f")


def test_data_directory_is_the_same_again(tmp_path: Path) -> None:
    sick = written(tmp_path / "s.txt", [row(pair) for pair in pairs_of_our_own()])
    told: list[tuple[str, int, int]] = []
    made = build_data(sick, tmp_path / "d", SMALL, progress=lambda *step: told.append(step))
    names = ("items.jsonl", "primitives.jsonl", "card.md")
    first = {name: (tmp_path / "d" / name).read_bytes() for name in names}
    assert read_data(tmp_path / "d") == list(made.built.items)
    assert told[-1] == ("writing", 4, 4)
    build_data(sick, tmp_path / "d", SMALL)
    assert {name: (tmp_path / "d" / name).read_bytes() for name in names} == first
    manifest = json.loads((tmp_path / "d" / "manifest.json").read_text("utf-8"))
    facts = manifest["facts"]
    assert manifest["complete"]
    assert sorted(manifest["files"]) == sorted(names)
    assert facts["source"]["sha256"] == read_sick(sick)[1]
    assert set(facts["primitives"][0]) >= {"pair_id", "direction", "relation", "label", "part"}
    with pytest.raises(StoreError, match="holds another run"):
        build_data(sick, tmp_path / "d", replace(SMALL, seed=2))
    other = build_data(sick, tmp_path / "d", replace(SMALL, seed=2), pseudo="all", overwrite=True)
    words = json.loads((tmp_path / "d" / "pseudo.json").read_text("utf-8"))
    assert words["verbs"]["manage"] == "blicke"
    assert other.pseudo is not None
    assert read_data(tmp_path / "d") == list(other.pseudo.items)
    found = validate_data(tmp_path / "d")
    assert (found["items"], found["verbs"], found["faults"]) == (504, len(VERBS), [])
    with pytest.raises(InputError, match=r"holds no items\.jsonl"):
        read_data(tmp_path)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()
    app.command("build")(build_command)
    app.command("validate")(validate_command)
    sick = written(tmp_path / "s.txt", [row(pair) for pair in pairs_of_our_own()])

    def call(*arguments: object) -> str:
        app([str(a) for a in arguments], standalone_mode=False)
        return capsys.readouterr().out

    few = ("--counts", "6,6,6", "--unseen", "2,2,2")
    shown = call("build", "--sick", sick, "--out", tmp_path / "d", *few, "--pseudo", "verbs")
    assert "504 items of 24 natural primitives" in shown
    assert "invented words: 21 verbs, 0 pairs" in shown
    facts = json.loads(
        call("build", "--sick", sick, "--out", tmp_path / "e", *few, "--seed", 3, "--json")
    )
    assert facts["options"]["seed"] == 3
    assert "504 items, 21 of 21 verbs" in call("validate", tmp_path / "d")
    assert json.loads(call("validate", tmp_path / "d", "--json"))["faults"] == []
    with pytest.raises(TriaxialError, match="--counts: cannot read '6,6'; write three counts"):
        call("build", "--sick", sick, "--out", tmp_path / "f", "--counts", "6,6")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps({**THEIRS, "label": "e"}) + "\n", encoding="utf-8")
    with pytest.raises(TriaxialError, match="1 fault;"):
        call("validate", bad)
    assert "bad.jsonl:1: label entailment, but the rule says" in capsys.readouterr().out
