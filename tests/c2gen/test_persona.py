"""A profile that gains facts: the set, files of one's own, what is learned and forgotten."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triaxial.api.c2gen_profile import WHAT, profile, read_profile
from triaxial.c2gen.grid import TrainOptions
from triaxial.c2gen.items import validate_items
from triaxial.c2gen.persona import PROFILE, VERBS_OF_A_FACT, Fact, check_facts, persona_of
from triaxial.c2gen.verbs import TYPES, VERBS
from triaxial.errors import InputError
from triaxial.execute import Computing
from triaxial.models import resume
from triaxial.nli import LABELS

GOOD: dict[str, Any] = {
    "stage": 1,
    "fact": "I play the piano.",
    "entailment": "The piano is an instrument that I play.",
    "neutral": ["There is a piano in our hall.", "My neighbour is deaf."],
    "contradiction": "I do not play the piano.",
}
OTHER = {**GOOD, "stage": 2, "fact": "I am at home.", "entailment": "Home is where I am."}


def planted() -> list[Fact]:
    """Three facts of each of two stages: said to hold in the first, said not to in the second."""
    verbs = {1: ("manage", "start", "begin", "hope"), 2: ("refuse", "fail", "decline", "hope")}
    facts = [f for stage in verbs for f in [f for f in PROFILE if f.stage == stage][:3]]
    names = [label.value for label in LABELS]
    return [
        replace(fact, verbs=verbs[fact.stage], **{name: getattr(fact, name)[:1] for name in names})
        for fact in facts
    ]


def write(path: Path, *rows: dict[str, Any]) -> Path:
    """A .jsonl file of rows, or a .toml one: strings, numbers and lists read alike in both."""
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        lines = ([f"{key} = {json.dumps(value)}" for key, value in row.items()] for row in rows)
        text = "".join("[[facts]]\n" + "\n".join(mine) + "\n" for mine in lines)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    import torch

    from triaxial.models.tiny import tiny_masked

    torch.set_num_threads(1)
    items = persona_of(planted()).items
    texts = [text for item in items for text in (item.sent1, item.mid_sent, item.sent2)]
    return str(tiny_masked(tmp_path_factory.mktemp("persona"), texts, layers=1))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        {"stage": f.stage, "fact": f.text, "verbs": list(f.verbs)}
        | {label.value: list(getattr(f, label.value)) for label in LABELS}
        for f in planted()
    ]
    return write(tmp_path_factory.mktemp("profile") / "small.jsonl", *rows)


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "_sync", lambda path: None)


def test_our_profile_is_sound_data() -> None:
    persona = persona_of(PROFILE)
    check_facts(persona.facts, "ours")
    assert validate_items(persona.items, "ours") == []
    assert Counter(fact.stage for fact in PROFILE) == {1: 6, 2: 6, 3: 6}
    # 18 facts by six verbs by two utterances of three labels; each of the nine types as often.
    assert Counter(item.type for item in persona.items) == dict.fromkeys(TYPES, 72)
    # Each stage: 6 facts by 3 utterances by two of the three verbs of two signatures.
    assert [len(rows) for rows in persona.fold.stages] == [72, 72, 72]
    assert len(persona.fold.probe) == 108
    # The constant answer has two thirds of a stage where neutral verbs are, else one third.
    neutral = [
        sum(persona.items[row].label == "neutral" for row in rows) for rows in persona.fold.stages
    ]
    assert neutral == [48, 48, 24]
    # No word alone gives the label away: all three have denials.
    for label in LABELS:
        utterances = [text for fact in PROFILE for text in getattr(fact, label.value)]
        denied = sum(" not " in text or " no " in text for text in utterances)
        assert denied >= (0 if label == LABELS[0] else 15), label


def test_the_rule_of_ours_is_logic() -> None:
    # Utterances that follow are paraphrases, so that a negative verb denies them, and one that
    # denies the fact follows from it.
    persona = persona_of(PROFILE)
    line = {(i.sent1, i.sent2): i for i in persona.items}
    for verb, text, label in (
        ("hope", "Nursing is my job.", "neutral"),
        ("manage", "Nursing is my job.", "entailment"),
        ("manage", "Nursing is not my job.", "contradiction"),
        ("manage", "I live close to a hospital.", "neutral"),
    ):
        assert line[f"I {verb} to work as a nurse.", text].label == label
    refused = line["I refuse to play the piano.", "I do not play the piano."]
    assert (refused.label, refused.sound, refused.type, refused.part) == (
        "entailment",
        "entailment",
        9,
        "unseen",
    )
    same = line["I refuse to play the piano.", "The piano is an instrument that I play."]
    assert same.label == "contradiction"


def test_what_is_held_out_was_trained_apart() -> None:
    persona = persona_of(PROFILE)
    items, fold = persona.items, persona.fold
    trained = [items[row] for rows in fold.stages for row in rows]
    lines, naturals = {i.sent1 for i in trained}, {(i.mid_sent, i.sent2) for i in trained}
    composed = {(i.sent1, i.sent2) for i in trained}
    for item in (items[row] for row in fold.probe):
        assert item.sent1 in lines
        assert (item.mid_sent, item.sent2) in naturals
        assert (item.sent1, item.sent2) not in composed
    # An utterance does not give its label away: what follows or denies is trained with two.
    labels: dict[tuple[str, str], set[str]] = {}
    for item in trained:
        labels.setdefault((item.sent2, item.sick_label), set()).add(item.label)
    assert {len(found) for (_, natural), found in labels.items() if natural != "neutral"} == {2}
    utterances = {item.sent2 for item in trained}
    assert not utterances & {items[row].sent2 for row in fold.unseen}
    everything = (*fold.test, *fold.probe, *fold.unseen)
    assert sorted(everything) == list(range(len(items)))


def test_be_is_embedded_and_the_default_verbs_have_all_signatures(tmp_path: Path) -> None:
    facts = read_profile(write(tmp_path / "mine.jsonl", GOOD, OTHER))
    assert facts[1].verbs == VERBS_OF_A_FACT
    signatures = Counter(v.signature for v in VERBS if v.lemma in VERBS_OF_A_FACT)
    assert set(signatures.values()) == {2}
    assert "I refuse to be at home." in {item.sent1 for item in persona_of(facts).items}


def test_toml_and_jsonl_say_the_same(tmp_path: Path) -> None:
    one = read_profile(write(tmp_path / "a.toml", GOOD, OTHER))
    assert one == read_profile(write(tmp_path / "a.jsonl", GOOD, OTHER))
    assert one[0].neutral == ("There is a piano in our hall.", "My neighbour is deaf.")


def test_the_order_of_a_file_is_not_that_of_the_stages(tmp_path: Path) -> None:
    persona = persona_of(read_profile(write(tmp_path / "a.toml", OTHER, GOOD)))
    assert [fact.stage for fact in persona.facts] == [1, 2]
    assert {persona.owner[row] for row in persona.fold.stages[0]} == {0}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"mood": "good"}, "unknown key 'mood'; wanted stage, fact, verbs, entailment"),
        ({"stage": "1"}, "stage is '1'; wanted a whole number from 1"),
        ({"fact": 3}, "fact is 3; wanted a sentence in quotes"),
        ({"neutral": []}, "neutral is []; wanted an utterance, or a list of them"),
        ({"neutral": None}, "neutral is None; wanted an utterance"),
        ({"verbs": [1]}, "verbs is [1]; wanted a list of verbs"),
        ({"fact": "She sings."}, "cannot embed the fact 'She sings.'; wanted 'I' and a verb"),
        ({"fact": "I can sing."}, "cannot embed the fact 'I can sing.'"),
        ({"fact": "I don't sing."}, "is negated; wanted 'I' and a verb"),
        ({"fact": "I do not sing."}, "is negated; wanted 'I' and a verb"),
        ({"verbs": ["manage", "refuze"]}, "unknown verb 'refuze'; wanted manage, begin"),
        ({"verbs": ["manage", "refuze"]}, "did you mean 'refuse'?"),
        ({"verbs": ["manage", "begin"]}, "its verbs are all entailment; wanted verbs of two"),
        ({"verbs": ["manage", "refuse", "manage"]}, "'manage' stands under verbs and under verbs"),
        (
            {"neutral": GOOD["contradiction"]},
            "'I do not play the piano.' stands under neutral and under contradiction",
        ),
    ],
)
def test_a_bad_fact_is_named_with_its_place(
    change: dict[str, Any], wanted: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "mine.jsonl", OTHER, GOOD | change)
    with pytest.raises(InputError) as error:
        read_profile(file)
    assert str(error.value).startswith(f"{file}:2: ")
    assert wanted in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.txt", "", "is neither .toml nor .jsonl"),
        ("a.toml", "[[facts]", "is not TOML"),
        ("a.toml", "fact = 'I sing.'", "holds 'fact'; wanted tables [[facts]] alone"),
        ("a.toml", "", "holds nothing; wanted tables [[facts]]"),
        ("a.toml", "[[facts]]\nstage = 0", ": fact 1: stage is 0"),
        ("a.jsonl", "", "holds no fact; wanted facts of two stages or more"),
        ("a.jsonl", "{'stage': 1}", ":1: invalid JSON"),
        ("a.jsonl", json.dumps(GOOD), "holds one stage; wanted facts of two stages"),
        (
            "a.jsonl",
            json.dumps(GOOD) + "\n" + json.dumps(OTHER | {"stage": 3}),
            "has the stages 1, 3; wanted 1, 2, 3 without a gap",
        ),
        (
            "a.jsonl",
            json.dumps(GOOD) + "\n" + json.dumps(GOOD | {"stage": 2}),
            "has the fact 'I play the piano.' twice",
        ),
    ],
)
def test_a_bad_file_is_named(name: str, text: str, wanted: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_profile(file)
    assert wanted in str(error.value)
    assert str(error.value).startswith(str(file))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("no.toml", "no.jsonl"):
        with pytest.raises(InputError, match=f"{name}: "):
            read_profile(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"strategies": ()}, "--strategies: nothing is chosen"),
        ({"strategies": ("nine",)}, "'nine' is no strategy"),
        ({"strategies": ("none",), "memory": 4}, "--memory: no chosen strategy (none) has one"),
        ({"memory": 28}, "a memory of 28 rows is larger than stage 'facts 1' with 27"),
    ],
)
def test_bad_options_are_refused_before_any_training(
    options: dict[str, Any], wanted: str, encoder: str, small: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        profile(encoder, Computing(tmp_path), file=small, **options)
    assert wanted in str(error.value)
    assert not list(tmp_path.glob("c2gen.stage-*"))


@pytest.mark.usefixtures("quick_disk")
def test_older_facts_are_forgotten_and_a_memory_keeps_them(
    encoder: str, small: Path, tmp_path: Path
) -> None:
    # Planted: what holds in the first stage does not in the second. Without a remedy older lines
    # are judged by the newer verbs; a memory keeps two thirds of them.
    train = TrainOptions(epochs=12, learning_rate=5e-3, batch_size=6)
    lost: dict[str, list[float]] = {"none": [], "er-res": []}
    for seed in (1, 2):
        found = profile(
            encoder,
            Computing(tmp_path),
            file=small,
            strategies=("none", "er-res"),
            train=train,
            memory=18,
            seed=seed,
        )
        for row in found["rows"]:
            if (row["what"], row["facts"]) == ("learned", 1):
                assert row["after"]["1"]["value"] > 80  # learned before it is forgotten
                lost[row["strategy"]].append(row["forgotten"]["value"])
    assert sum(lost["none"]) / 2 >= sum(lost["er-res"]) / 2 + 10, lost
    _check_the_figures(found)


def _check_the_figures(found: dict[str, Any]) -> None:
    """Of one profile, what its parts say of each other."""
    rows = {(r["what"], r["facts"], r["strategy"]): r for r in found["rows"]}
    assert {what for what, _, _ in rows} == set(WHAT) - {"new words"}  # it has none
    for what in ("learned", "held out", "bare facts"):
        for strategy in ("none", "er-res"):
            one, two, so_far = (rows[what, facts, strategy] for facts in (1, 2, 0))
            # The profile so far: after stage 1 its facts, then both stages'.
            assert so_far["after"]["1"] == one["after"]["1"]
            n = so_far["after"]["2"]["n"]
            assert n == one["after"]["2"]["n"] + two["after"]["2"]["n"]
            right = sum(r["after"]["2"]["value"] * r["after"]["2"]["n"] for r in (one, two))
            assert so_far["after"]["2"]["value"] == pytest.approx(right / n)
            # Only older facts can have been forgotten.
            lost = one["after"]["1"]["value"] - one["after"]["2"]["value"]
            assert one["forgotten"]["value"] == pytest.approx(lost)
            assert so_far["forgotten"] == one["forgotten"]
            assert two["forgotten"] is None
            figure = one["after"]["1"]
            assert figure["low"] <= figure["value"] <= figure["high"]
        base, kept = rows[what, 1, "none"], rows[what, 1, "er-res"]
        assert base["gain"] is None
        gain = kept["after"]["2"]["value"] - base["after"]["2"]["value"]
        assert kept["gain"]["value"] == pytest.approx(gain)
        # All strategies share the first stage.
        assert base["after"]["1"] == kept["after"]["1"]
    simple = {(r["what"], r["facts"], r["strategy"]): r["after"] for r in found["baselines"]}
    # Stage 1: 9 utterances by two verbs that affirm and one that leaves open, a third of them of
    # each natural label. Neutral: 9 + 6; the verb's own label: 9 + 6; the utterance's: 3 + 18.
    assert simple["learned", 1, "always neutral"]["2"]["value"] == pytest.approx(1500 / 27)
    assert simple["learned", 1, "V-only"]["1"]["value"] == pytest.approx(1500 / 27)
    assert simple["learned", 1, "N-only"]["1"]["value"] == pytest.approx(2100 / 27)
    assert simple["bare facts", 0, "always neutral"]["2"]["value"] == pytest.approx(100 / 3)
    assert ("bare facts", 0, "N-only") not in simple
    _check_the_excerpt(found)


def _check_the_excerpt(found: dict[str, Any]) -> None:
    excerpt = found["excerpt"]
    assert excerpt["strategies"] == ["none", "er-res"]
    assert excerpt["of"] == 27
    assert 0 < excerpt["lost"] <= 27
    assert 3 < len(excerpt["lines"]) <= 9
    for line in excerpt["lines"]:
        first, last = line["answers"]["none"]
        assert line["facts"] == 1
        assert line["lost"] == (first == line["gold"] != last)
    assert any(line["lost"] for line in excerpt["lines"])
