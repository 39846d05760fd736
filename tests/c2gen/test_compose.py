"""Clauses taken apart and put together: sentences of our own, tagged by the default tagger."""

from __future__ import annotations

import pytest

from triaxial.c2gen.compose import (
    Clause,
    clause_of,
    composed,
    exhaustive,
    hypothesis_of,
    middle,
    relation_of,
)
from triaxial.c2gen.verbs import verb_of
from triaxial.models.tagger import load_tagger
from triaxial.text import words


def parsed(sentence: str) -> Clause | str:
    tokens = words(sentence)
    (tags,) = load_tagger().tag([[token.text for token in tokens]])
    return clause_of(sentence, tokens, tags)


def changed(sentence: str) -> tuple[str, str]:
    tokens = words(sentence)
    (tags,) = load_tagger().tag([[token.text for token in tokens]])
    return hypothesis_of(sentence, tokens, tags)


@pytest.mark.parametrize(
    ("sentence", "sent1", "mid"),
    [
        ("A nurse is humming a song", "A nurse tries to hum a song", "A nurse hums a song"),
        ("Two nurses are humming", "Two nurses try to hum", "Two nurses hum"),
        (
            "An old farmer in boots is slowly crossing the road .",
            "An old farmer in boots tries to slowly cross the road .",
            "An old farmer in boots slowly crosses the road .",
        ),
        ("A pilot is lying on grass", "A pilot tries to lie on grass", "A pilot lies on grass"),
        ("The cats are dying", "The cats try to die", "The cats die"),
        ("A boy is having tea", "A boy tries to have tea", "A boy has tea"),
        ("A goat is going home", "A goat tries to go home", "A goat goes home"),
        (
            "A waiter is singing and dancing",
            "A waiter tries to sing and dance",
            "A waiter sings and dances",
        ),
        (
            "The kids are running, jumping and shouting in a barn",
            "The kids try to run, jump and shout in a barn",
            "The kids run, jump and shout in a barn",
        ),
        (
            "A man wearing a vest is painting a door",
            "A man wearing a vest tries to paint a door",
            "A man wearing a vest paints a door",
        ),
        # "is" inside another word, and a verb that is a part of a later word, stay as they are.
        (
            "A dentist is getting vegetables",
            "A dentist tries to get vegetables",
            "A dentist gets vegetables",
        ),
        (
            "A man and a woman are watching a running horse",
            "A man and a woman try to watch a running horse",
            "A man and a woman watch a running horse",
        ),
        (
            "A group of sailors is mending a net",
            "A group of sailors tries to mend a net",
            "A group of sailors mends a net",
        ),
        (
            "A black and white goat is eating hay",
            "A black and white goat tries to eat hay",
            "A black and white goat eats hay",
        ),
        ("People are skiing  fast", "People try to ski  fast", "People ski  fast"),
        (
            "A girl is sitting on a wall, looking at the sea",
            "A girl tries to sit on a wall, looking at the sea",
            "A girl sits on a wall, looking at the sea",
        ),
    ],
)
def test_composed_and_middle(sentence: str, sent1: str, mid: str) -> None:
    clause = parsed(sentence)
    assert isinstance(clause, Clause), clause
    verb = verb_of("try")
    assert verb
    assert (composed(clause, verb), middle(clause)) == (sent1, mid)


def test_progressive_aspect_keeps_the_sentence() -> None:
    clause = parsed("A waiter is slowly singing and dancing")
    verb = verb_of("manage")
    assert isinstance(clause, Clause)
    assert verb
    told = "A waiter manages to be slowly singing and dancing"
    assert composed(clause, verb, "progressive") == told
    assert middle(clause, "progressive") == clause.text


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("A nurse hums a song", "no finite be"),
        ("Is singing", "no subject"),
        ("A nurse is", "no verb"),
        ("A nurse is humming and a cook is listening", "several finite be"),
        ("A nurse is not humming", "negation"),
        ("A nurse isn't humming", "negation"),
        ("Nobody is humming", "negation"),
        ("There is no nurse humming", "negation"),
        ("There is a nurse humming", "existential"),
        ("The nurse who wears a cap is humming", "relative clause in the subject"),
        ("The nurse who is wearing a cap is humming", "several finite be"),
        ("A bottle is being licked by a goat", "passive"),
        ("A nurse is being a hero", "copula"),
        ("A goat is getting washed by a nurse", "passive"),
        ("A bottle is licked by a goat", "no verb in -ing"),
        ("A nurse is tall", "no verb in -ing"),
        ("A nurse is interesting", "no verb in -ing"),
        ("A nurse is in a hall", "no verb in -ing"),
        ("A bottle is rolling down a hill", "inanimate subject"),
        ("A pile of bottles is rolling down a hill", "inanimate subject"),
        ("A man and a bottle are rolling down a hill", "inanimate subject"),
        ("It is raining", "inanimate subject"),
        ("Skiing is exciting", "no verb in -ing"),
        ("Few nurses are humming", "quantifier"),
        ("In a hall a nurse is humming", "unusual subject"),
        ("A nurse is humming and wears a cap", "several clauses"),
        ("A nurse is watching a man standing and singing", "unsure coordination"),
    ],
)
def test_what_is_refused(sentence: str, reason: str) -> None:
    assert parsed(sentence) == reason


@pytest.mark.parametrize(
    ("sentence", "wanted"),
    [
        ("A bottle is rolling down a hill", "A bottle rolls down a hill"),
        ("The nurse is not humming and dancing", "The nurse does not hum and dance"),
        ("The nurses aren't humming", "The nurses do not hum"),
        ("Nobody is humming", "Nobody hums"),
        ("A bottle is being licked by a goat", "A bottle is licked by a goat"),
        ("The bottle isn't being licked", "The bottle isn't licked"),
        ("A nurse is humming and is wearing a cap", "A nurse hums and wears a cap"),
        ("A nurse is licking a cup that is empty", "A nurse licks a cup that is empty"),
    ],
)
def test_hypotheses_in_the_simple_present(sentence: str, wanted: str) -> None:
    assert changed(sentence) == (wanted, "")


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("There is no nurse humming", "existential"),
        ("A nurse is humming and a cook is listening", "several finite be"),
        ("A nurse is not humming and is wearing a cap", "several finite be"),
        ("A nurse is being watched and is humming", "several finite be"),
        ("Goats are being washed and singing", "unsure coordination"),
        ("A bottle is slowly being filled", "adverb in a passive"),
        ("A nurse is tall", "no verb in -ing"),
    ],
)
def test_hypotheses_that_stay(sentence: str, reason: str) -> None:
    assert changed(sentence) == (sentence, reason)


@pytest.mark.parametrize(
    ("one", "two", "relation"),
    [
        ("A nurse is humming a song", "A woman is humming a song", "substitution"),
        ("A nurse is humming a song", "The nurse is humming an old song", "insertion-deletion"),
        ("A nurse is humming a song", "A nurse is humming", "insertion-deletion"),
        ("A nurse is humming a song", "A song is being hummed by a nurse", "active-passive"),
        ("A nurse is humming a song", "The nurse isn't humming a song", "negation"),
        ("A nurse is humming a song", "There is no nurse humming a song", "negation"),
        ("A nurse is humming a song", "A goat is licking a bottle", "other"),
        ("A nurse is humming a song", "A nurse is singing a song in a hall", "other"),
    ],
)
def test_relations(one: str, two: str, relation: str) -> None:
    texts = [[word.text for word in words(sentence)] for sentence in (one, two)]
    assert relation_of(*texts) == relation


@pytest.mark.parametrize(
    ("one", "two", "wanted"),
    [
        ("A nurse is humming", "The nurse is not humming", True),
        ("The nurses are humming .", "The nurses aren't humming", True),
        ("A nurse is humming", "There is no nurse humming", True),
        ("Some nurses are humming", "There are no nurses humming", True),
        ("A nurse is humming", "No nurse is humming", True),
        ("Someone is humming", "Nobody is humming", True),
        ("Someone is humming", "There is no one humming", True),
        ("Two nurses are humming", "There are no nurses humming", False),
        ("A tall nurse is humming", "There is no nurse humming", False),
        ("A nurse is humming", "A nurse is not singing", False),
        ("A nurse is humming", "A nurse is sleeping", False),
        ("A nurse is humming", "Nobody is humming", False),
    ],
)
def test_exhaustive(one: str, two: str, wanted: bool) -> None:
    texts = [[word.text for word in words(sentence)] for sentence in (one, two)]
    assert exhaustive(*texts) == wanted
