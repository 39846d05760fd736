"""The 21 verbs, the rules of composition, and the inflection of English verbs."""

from __future__ import annotations

import pytest

from triaxial.c2gen.verbs import (
    FUNCTIONS,
    TYPES,
    VERBS,
    base_of,
    composed_label,
    ing_of,
    sound_label,
    third_of,
    type_of,
    verb_of,
)
from triaxial.nli import LABELS

E, N, C = LABELS


def test_the_verbs_are_those_of_the_paper() -> None:
    assert len(VERBS) == len({v.lemma for v in VERBS}) == len({v.pseudo for v in VERBS}) == 21
    # Positive 8, neutral 8, negative 5.
    assert [sum(v.signature == label for v in VERBS) for label in LABELS] == [8, 8, 5]
    assert all(verb.third == third_of(verb.lemma) for verb in VERBS)
    rounded = {v.lemma: round(v.agreement, 2) for v in VERBS}
    wanted = {"manage": 1.78, "get": 0.44, "wish": 0.96, "appear": 0.87, "remain": -0.67}
    assert {lemma: rounded[lemma] for lemma in wanted} == wanted
    assert verb_of("manage") is VERBS[0]
    assert verb_of("manages") is None


def test_types_and_labels_are_the_table_of_the_paper() -> None:
    labels = {t: composed_label(v, n) for t, (v, n) in TYPES.items()}
    assert labels == {1: E, 2: N, 3: C, 4: N, 5: N, 6: N, 7: C, 8: N, 9: E}
    assert all(type_of(*TYPES[t]) == t for t in range(1, 10))
    assert sorted(t for types in FUNCTIONS.values() for t in types) == list(range(1, 10))


@pytest.mark.parametrize(
    ("veridical", "forward", "backward", "exhaustive", "label"),
    [
        (E, C, C, False, C),  # it happened: the natural label
        (N, E, E, False, N),  # nobody knows whether it happened
        (C, E, N, False, N),  # no dog runs: an animal may run
        (C, E, E, False, C),  # no dog runs: no hound runs
        (C, N, E, False, C),  # no animal runs: no dog runs
        (C, N, N, False, N),
        (C, C, C, False, N),  # it does not run: it may sit, or lie
        (C, C, C, True, E),  # it does not run: "it does not run"
    ],
)
def test_sound_labels(veridical, forward, backward, exhaustive, label) -> None:
    assert sound_label(veridical, forward, backward, exhaustive) == label


REGULAR = """
watch carry go do have play fix kiss push fly study cross buzz wade slice run sit stop hit hug chat
plan stir spar swim beg rub trek jog star put quit squat tap shred lie die tie untie ski dye eye see
free hoe picnic panic mimic frolic ride write hike bike skate wave dance judge charge massage stage
argue pursue glue sing bring hang ring swing bang wrestle sprinkle circle juggle toddle whistle hurl
bowl crawl peel fail roll fall pull miss sniff add egg travel patrol cancel open listen season
sharpen hammer gather visit exhibit target offer operate celebrate communicate participate imitate
create eat beat float treat compete delete measure capture prepare share store ignore explore bore
practice exercise rinse cleanse disperse chase raise close freeze squeeze sneeze waltz graze
purchase erase escape parade explode include decide guide ride combine examine taste paste
baste breathe bathe soothe phone debone postpone invite unite type style quote exchange arrange
lounge lunge plunge challenge box row snow buy enjoy obey echo kayak wakeboard leave move have dive
"""


@pytest.mark.parametrize("lemma", sorted(set(REGULAR.split())))
def test_base_of_undoes_inflection(lemma: str) -> None:
    """One of the forms that a base may have leads back; the spelling with one consonant may not."""
    assert lemma in {base_of(form) for form in ing_of(lemma)}


def test_forms_by_hand() -> None:
    forms = "lying dying dyeing tying skiing running sitting picnicking filing filling hoping"
    bases = "lie die dye tie ski run sit picnic file fill hope"
    assert [base_of(form) for form in forms.split()] == bases.split()
    assert base_of("hopping") == "hop"
    assert [base_of(word) for word in ("king", "string", "thing", "dance", "")] == [None] * 5
    thirds = "watches carries goes does has is plays fixes quizzes buzzes echoes dies sees"
    lemmas = "watch carry go do have be play fix quiz buzz echo die see"
    assert [third_of(lemma) for lemma in lemmas.split()] == thirds.split()
