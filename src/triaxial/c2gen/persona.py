"""A profile that gains facts over time, as stages of composed items: a small self-written set.

A fact is a sentence in the first person ("I play the piano."), with utterances that follow from it,
say nothing about it, or deny it. A line of the profile says something of the fact through a verb:
"I manage to play the piano.", "I refuse to play the piano." So a line, its fact and an utterance
are an `Item`, whose label follows from the verb and the utterance by the rule of composition, and
the facts of a stage are a stage of training. The first utterance of each label is trained on, any
other only judged.

Source: C²Gen NLI, section 9, names a dialogue agent's profile as a use; it gives no data.
Choice: an utterance is judged against the line that it is about; to find that line is not tested.
Choice: all of ours that follow are paraphrases and all that deny are plain denials, so that the
paper's label is that of logic too: who refuses to play the piano may still make music.
Choice: each utterance goes untrained with one verb of each signature, by turns: its line is trained
with other utterances and it with other verbs, and what the two make together is held out. No
utterance gives its label away, as it is trained with two signatures or more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from triaxial.c2gen.compose import Item, relation_of
from triaxial.c2gen.streams import Fold, Phase, Stream
from triaxial.c2gen.verbs import VERBS, Verb, composed_label, type_of, verb_of
from triaxial.errors import InputError
from triaxial.nli import LABELS, Label
from triaxial.text import words

__all__ = ["PROFILE", "VERBS_OF_A_FACT", "Fact", "Persona", "check_facts", "fact_of", "persona_of"]

VERBS_OF_A_FACT = ("manage", "start", "hope", "plan", "refuse", "fail")
"""The verbs of a fact that names none: two of each signature."""

_SUBJECT = re.compile(r"I (?P<verb>[a-z]+)(?P<rest>(?:\W.*)?)")
_NO_BASE = "can cannot could may might must shall should will would was were had did"
_DENIED = re.compile(r"\b(?:not|never|no|cannot)\b|n['\u2019]t\b", re.IGNORECASE)
_LEMMAS = tuple(verb.lemma for verb in VERBS)
_KEYS = ("stage", "fact", "verbs", *(label.value for label in LABELS))


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact, what is said of it through verbs, and what is uttered about it.

    Args:
        stage: In which the profile gains it, 1-based.
        text: "I play the piano.": "I" and a verb in the simple present.
        verbs: Lemmas, of two signatures or more.
        entailment: Utterances that follow; the first is trained on. So with the other two.
        neutral: Utterances that it leaves open.
        contradiction: Utterances that deny it.
    """

    stage: int
    text: str
    verbs: tuple[str, ...]
    entailment: tuple[str, ...]
    neutral: tuple[str, ...]
    contradiction: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Persona:
    """Facts as what is trained and judged.

    Args:
        facts: In the order of their stages.
        items: A line and an utterance each.
        owner: Index of each item's fact.
        fold: Its stages of training; `test` are the trained items, to be judged again; `probe` are
            held-out compositions of trained primitives; `unseen` are utterances never trained.
    """

    facts: tuple[Fact, ...]
    items: tuple[Item, ...]
    owner: tuple[int, ...]
    fold: Fold


def _fact(
    stage: int,
    text: str,
    verbs: str,
    entailment: tuple[str, ...],
    neutral: tuple[str, ...],
    contradiction: tuple[str, ...],
) -> Fact:
    return Fact(stage, text, tuple(verbs.split()), entailment, neutral, contradiction)


PROFILE: tuple[Fact, ...] = (
    # Work and home, by what I do and what I hope for.
    _fact(
        1,
        "I work as a nurse.",
        "manage start get hope plan want",
        ("Nursing is my job.", "I am employed as a nurse."),
        ("I live close to a hospital.", "I do not own a car."),
        ("Nursing is not my job.", "I do not work as a nurse."),
    ),
    _fact(
        1,
        "I walk my dog every morning.",
        "manage begin get want intend try",
        ("My dog gets a walk from me each morning.", "Every morning I take my dog for a walk."),
        ("My dog is afraid of thunder.", "My dog does not like cats."),
        ("My dog gets no walk from me on some mornings.", "I do not walk my dog every morning."),
    ),
    _fact(
        1,
        "I share a flat with my brother.",
        "begin start get hope expect wish",
        ("My brother and I live in one flat.", "My brother lives in the same flat as me."),
        ("My brother is older than me.", "My brother does not cook."),
        ("My brother and I do not live in one flat.", "I share no flat with my brother."),
    ),
    _fact(
        1,
        "I cook dinner for my family.",
        "manage start get want plan try",
        ("I make my family's dinner.", "The dinner of my family is cooked by me."),
        ("My family likes spicy food.", "My family does not eat late."),
        ("I do not make my family's dinner.", "I cook no dinner for my family."),
    ),
    _fact(
        1,
        "I save money for a house.",
        "manage begin start hope intend try",
        ("I put money aside for a house.", "I am saving up for a house."),
        ("Houses are expensive in my town.", "I do not like big houses."),
        ("I put no money aside for a house.", "I do not save money for a house."),
    ),
    _fact(
        1,
        "I grow tomatoes on my balcony.",
        "manage begin start try plan wish",
        ("My balcony is where I grow tomatoes.", "I raise tomatoes on the balcony."),
        ("My balcony faces south.", "I do not eat salad."),
        ("My balcony is not where I grow tomatoes.", "I grow no tomatoes on my balcony."),
    ),
    # Free time, by what I hope for and what I refuse.
    _fact(
        2,
        "I play the piano.",
        "hope want wish refuse decline fail",
        ("The piano is an instrument that I play.", "I am someone who plays the piano."),
        ("There is a piano in our hall.", "My neighbour does not like music."),
        ("The piano is not an instrument that I play.", "I do not play the piano."),
    ),
    _fact(
        2,
        "I sing in a choir.",
        "want wish expect decline refuse fail",
        ("I am a singer in a choir.", "I am one of the voices of a choir."),
        ("A choir meets next door on Mondays.", "My teacher does not sing."),
        ("I am not a singer in a choir.", "I do not sing in a choir."),
    ),
    _fact(
        2,
        "I swim in the lake at dawn.",
        "plan intend try fail forget refuse",
        ("At dawn I go for a swim in the lake.", "The lake is where I swim at dawn."),
        ("The lake is cold in spring.", "The lake has no island."),
        ("At dawn I do not go for a swim in the lake.", "I do not swim in the lake at dawn."),
    ),
    _fact(
        2,
        "I learn Italian.",
        "hope try plan fail refuse decline",
        ("Italian is a language that I am learning.", "I study Italian."),
        ("My grandmother came from Rome.", "I have no time to travel."),
        ("Italian is not a language that I am learning.", "I do not learn Italian."),
    ),
    _fact(
        2,
        "I read novels in bed.",
        "want wish intend forget decline fail",
        ("My bed is where I read novels.", "I read novels when I lie in bed."),
        ("My bed stands by the window.", "I do not like short poems."),
        ("My bed is not where I read novels.", "I read no novels in bed."),
    ),
    _fact(
        2,
        "I take photos of birds.",
        "try plan expect fail forget refuse",
        ("Birds are what I photograph.", "I take pictures of birds."),
        ("Many birds visit our garden.", "My camera is not new."),
        ("Birds are not what I photograph.", "I take no photos of birds."),
    ),
    # This year, by what I refuse and what I do.
    _fact(
        3,
        "I train for a marathon.",
        "decline fail refuse begin manage dare",
        ("I am preparing for a marathon.", "I do my training for a marathon."),
        ("A marathon comes through our town.", "My knee does not hurt."),
        ("I am not preparing for a marathon.", "I do not train for a marathon."),
    ),
    _fact(
        3,
        "I eat meat on Sundays.",
        "refuse decline fail get start begin",
        ("On Sundays I have meat.", "My Sunday food includes meat."),
        ("My uncle is a butcher.", "I do not like fish."),
        ("On Sundays I have no meat.", "I do not eat meat on Sundays."),
    ),
    _fact(
        3,
        "I call my mother every week.",
        "forget fail refuse manage get begin",
        ("My mother gets a call from me each week.", "Every week I phone my mother."),
        ("My mother lives by the sea.", "My mother does not own a computer."),
        ("My mother gets no call from me in some weeks.", "I do not call my mother every week."),
    ),
    _fact(
        3,
        "I drive to the office.",
        "refuse decline fail dare begin get",
        ("I go to the office by car.", "I take the car to the office."),
        ("The office is on the third floor.", "The office has no garden."),
        ("I do not go to the office by car.", "I do not drive to the office."),
    ),
    _fact(
        3,
        "I pay my rent on time.",
        "forget fail refuse manage start begin",
        ("I pay the rent when it is due.", "I am punctual with my rent."),
        ("My rent went up in May.", "My landlord is not from here."),
        ("I do not pay the rent when it is due.", "I am not punctual with my rent."),
    ),
    _fact(
        3,
        "I teach children to paint.",
        "decline refuse fail get begin start",
        ("Children learn to paint from me.", "I give children painting lessons."),
        ("My daughter likes bright colours.", "I do not sell pictures."),
        ("Children do not learn to paint from me.", "I give children no painting lessons."),
    ),
)
"""Eighteen facts in three stages, six verbs each; every stage lacks the verbs of one signature."""


def persona_of(facts: Sequence[Fact]) -> Persona:
    """Items, stages of training and what is held out; facts must have passed `check_facts`."""
    ordered = sorted(facts, key=lambda fact: fact.stage)
    items: list[Item] = []
    owner: list[int] = []
    stages: dict[int, list[int]] = {fact.stage: [] for fact in ordered}
    probe: list[int] = []
    unseen: list[int] = []
    for number, fact in enumerate(ordered):
        for place, label in enumerate(LABELS):
            held_out = _held_out(fact, place + number)
            for wording, utterance in enumerate(getattr(fact, label.value)):
                name = f"{number + 1}{label.value[0]}{wording + 1}"
                for verb in _verbs(fact):
                    if wording:
                        unseen.append(len(items))
                    elif verb in held_out:
                        probe.append(len(items))
                    else:
                        stages[fact.stage].append(len(items))
                    items.append(_item(fact, verb, label, utterance, name, new=wording > 0))
                    owner.append(number)
    phases = tuple(
        Phase(f"facts {stage}", tuple(sorted({items[row].type for row in rows})))
        for stage, rows in stages.items()
    )
    fold = Fold(
        Stream("profile", 0, phases),
        tuple(tuple(rows) for rows in stages.values()),
        tuple(row for rows in stages.values() for row in rows),
        tuple(probe),
        tuple(unseen),
        {},
    )
    return Persona(tuple(ordered), tuple(items), tuple(owner), fold)


def fact_of(row: Mapping[str, object], where: str) -> Fact:
    """A fact from a table of a user's file.

    Args:
        row: `stage`, `fact`, `verbs` (optional), and `entailment`, `neutral`, `contradiction`: an
            utterance or a list of them each.
        where: Its place in the file.

    Raises:
        InputError: A key is missing, unknown or of the wrong kind, the sentence cannot be embedded,
            a verb is unknown, or all verbs have one signature.
    """
    for key in row:
        if key not in _KEYS:
            raise InputError(f"unknown key {key!r}; wanted {_names(key, _KEYS)}", where=where)
    stage, text = row.get("stage"), row.get("fact")
    if type(stage) is not int or stage < 1:
        raise InputError(f"stage is {stage!r}; wanted a whole number from 1", where=where)
    if not isinstance(text, str):
        raise InputError(f"fact is {text!r}; wanted a sentence in quotes", where=where)
    verbs = _texts(row.get("verbs", list(VERBS_OF_A_FACT)), "verbs", where)
    said = (_texts(row.get(label.value), label.value, where) for label in LABELS)
    fact = Fact(stage, text.strip(), verbs, *said)
    for fault in _faults(fact):
        raise InputError(fault, where=where)
    return fact


def check_facts(facts: Sequence[Fact], where: str) -> None:
    """Refuse a profile that cannot be learned stage by stage.

    Raises:
        InputError: A fact stands there twice, there is one stage alone, or one is left out.
    """
    stages = sorted({fact.stage for fact in facts})
    if len(stages) < 2:
        seen = "one stage" if stages else "no fact"
        fault = f"holds {seen}; wanted facts of two stages or more, so that some are older"
        raise InputError(fault, where=where)
    if stages != list(range(1, len(stages) + 1)):
        seen = ", ".join(map(str, stages))
        raise InputError(f"has the stages {seen}; wanted 1, 2, 3 without a gap", where=where)
    known: set[str] = set()
    for fact in facts:
        if fact.text in known:
            raise InputError(f"has the fact {fact.text!r} twice; wanted it once", where=where)
        known.add(fact.text)


def _verbs(fact: Fact) -> list[Verb]:
    return [verb for lemma in fact.verbs if (verb := verb_of(lemma))]


def _held_out(fact: Fact, turn: int) -> list[Verb]:
    """The verb of each signature whose turn it is, where the fact has several of it."""
    verbs = _verbs(fact)
    groups = [[v for v in verbs if v.signature == label] for label in LABELS]
    return [group[turn % len(group)] for group in groups if len(group) > 1]


def _complement(text: str) -> str:
    """What stands after "to": "I am at home." gives "be at home."."""
    found = _SUBJECT.fullmatch(text)
    assert found, "an unchecked fact"
    return ("be" if found["verb"] == "am" else found["verb"]) + found["rest"]


def _item(fact: Fact, verb: Verb, natural: Label, utterance: str, name: str, *, new: bool) -> Item:
    label = composed_label(verb.signature, natural)
    sides = ([word.text for word in words(text)] for text in (fact.text, utterance))
    return Item(
        id=f"{name}ab-{verb.lemma}",
        type=type_of(verb.signature, natural),
        verb=verb.lemma,
        pair_id=name,
        direction="ab",
        relation=relation_of(*sides),
        part="unseen" if new else "seen",
        sent1=f"I {verb.lemma} to {_complement(fact.text)}",
        mid_sent=fact.text,
        sent2=utterance,
        veridical_label=verb.signature.value,
        sick_label=natural.value,
        label=label.value,
        sound=label.value,
        agreement=verb.agreement,
    )


def _faults(fact: Fact) -> Iterator[str]:
    found = _SUBJECT.fullmatch(fact.text)
    wanted = "wanted 'I' and a verb in the simple present, such as 'I play the piano.'"
    if not found or found["verb"] in _NO_BASE.split():
        yield f"cannot embed the fact {fact.text!r}; {wanted}"
    elif _DENIED.search(fact.text):
        yield f"the fact {fact.text!r} is negated; {wanted}; verbs such as refuse deny it"
    for lemma in fact.verbs:
        if verb_of(lemma) is None:
            yield f"unknown verb {lemma!r}; wanted {_names(lemma, _LEMMAS)}"
    if len(signatures := {verb.signature for verb in _verbs(fact)}) < 2:
        yield (
            f"its verbs are all {min(signatures)}; wanted verbs of two signatures or more, so that "
            "the verb counts, such as manage (entailment) and refuse (contradiction)"
        )
    known: dict[str, str] = {}
    for kind, texts in (
        ("verbs", fact.verbs),
        *((label.value, getattr(fact, label.value)) for label in LABELS),
    ):
        for text in texts:
            if text in known:
                yield f"{text!r} stands under {known[text]} and under {kind}; wanted it once"
            known[text] = kind


def _texts(value: object, name: str, where: str) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    found = tuple(text.strip() for text in values if isinstance(text, str))
    if len(found) < len(values) or not all(found) or not found:
        what = "a list of verbs" if name == "verbs" else "an utterance, or a list of them"
        raise InputError(f"{name} is {value!r}; wanted {what}", where=where)
    return found


def _names(seen: str, names: Sequence[str]) -> str:
    near = get_close_matches(seen, names, 1)
    return ", ".join(names) + (f"; did you mean {near[0]!r}?" if near else "")
