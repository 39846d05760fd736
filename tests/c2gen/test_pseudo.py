"""Invented words: on token boundaries, consistent, in the case of what they replace."""

from __future__ import annotations

import pytest

from triaxial.c2gen.build import BuildOptions, DirectedPair, build, validate_items
from triaxial.c2gen.compose import Item
from triaxial.c2gen.pseudo import pseudo_items
from triaxial.c2gen.verbs import VERBS
from triaxial.errors import InputError
from triaxial.models.tagger import load_tagger
from triaxial.nli import LABELS

E, N, C = LABELS
PAIRS = [
    DirectedPair("1", "A goat is licking a doggy dog", "A goat is licking a doggy pet", E, E, N),
    DirectedPair("2", "An owl is watching a dog", "An animal is watching a dog", E, E, N),
    DirectedPair("3", "A nurse is slicing a pear", "A nurse is catching a pear", N, N, N),
    DirectedPair("4", "Two cooks are slicing a pear", "Two cooks are boiling a pear", C, C, C),
    DirectedPair("5", "A sailor is sitting in a boat", "A sailor is sitting on a boat", N, N, N),
    DirectedPair("6", "A sailor is humming", "A sailor is humming a song", N, N, E),
    DirectedPair("7", "Dogs are using a drum to play", "Pets are using a drum to play", E, E, N),
]


@pytest.fixture(scope="module")
def items() -> tuple[Item, ...]:
    options = BuildOptions(seen=(4, 8, 2), unseen=(0, 0, 0))
    return build(PAIRS, options, load_tagger()).items


def by_id(items: tuple[Item, ...]) -> dict[str, Item]:
    return {item.id: item for item in items}


def test_verbs_alone(items: tuple[Item, ...]) -> None:
    made = pseudo_items(items, nouns=False)
    found = by_id(made.items)
    assert found["1ab-manage"].sent1 == "A goat blickes to lick a doggy dog"
    assert found["4ab-manage"].sent1 == "Two cooks blicke to slice a pear"
    # The verb that embeds, not one that is embedded.
    assert found["7ab-use"].sent1 == "Dogs aol to use a drum to play"
    assert [i.mid_sent for i in made.items] == [i.mid_sent for i in items]
    assert made.verbs == {verb.lemma: verb.pseudo for verb in VERBS}
    assert (made.words, made.pairs, made.instances) == ({}, 0, 0)
    assert validate_items(made.items, "x") == []


def test_deciding_words(items: tuple[Item, ...]) -> None:
    made = pseudo_items(items, verbs=False)
    found, word = by_id(made.items), made.words
    assert sorted(word) == ["animal", "boil", "catch", "dog", "dogs", "owl", "pet", "pets", "slice"]
    # dog-pet, owl-animal, slice-catch, slice-boil, dogs-pets, each in both directions.
    assert (made.pairs, made.instances) == (5, 10)
    one = found["1ab-manage"]
    # "doggy" holds "dog" and stays.
    assert one.sent1 == f"A goat manages to lick a doggy {word['dog']}"
    assert (one.mid_sent, one.sent2) == (
        f"A goat licks a doggy {word['dog']}",
        f"A goat licks a doggy {word['pet']}",
    )
    verb = found["3ab-manage"]
    assert verb.sent1 == f"A nurse manages to {word['slice']} a pear"
    assert verb.mid_sent == f"A nurse {word['slice']}s a pear"
    assert verb.sent2 == f"A nurse {word['catch']}s a pear"
    assert found["4ab-manage"].mid_sent == f"Two cooks {word['slice']} a pear"
    # "in" and "on" are no content words; "dog" stays where it decides nothing.
    assert found["5ab-manage"] == by_id(items)["5ab-manage"]
    assert found["2ab-manage"].mid_sent.endswith("a dog")
    # A capital stays a capital.
    assert found["7ab-manage"].mid_sent.split()[0] == word["dogs"].capitalize()
    assert validate_items(made.items, "x") == []


def test_invented_words_are_new_and_keep_the_article_right(items: tuple[Item, ...]) -> None:
    made = pseudo_items(items, seed=5)
    real = {w for i in items for s in (i.sent1, i.mid_sent, i.sent2) for w in s.lower().split()}
    new = list(made.words.values())
    assert len(set(new)) == len(new)
    for text in new:
        assert not [w for w in real if len(w) > 2 and (w in text or text in w)]
        assert not [w for w in new if w != text and w in text]
    assert all((k[0] in "aeiou") == (w[0] in "aeiou") for k, w in made.words.items())
    assert pseudo_items(items, seed=5) == made
    assert pseudo_items(items, seed=6).words != made.words


def test_labels_ids_and_order_stay(items: tuple[Item, ...]) -> None:
    made = pseudo_items(items)
    kept = [(i.id, i.label, i.sound, i.type, i.verb) for i in items]
    assert [(i.id, i.label, i.sound, i.type, i.verb) for i in made.items] == kept
    assert "blickes" in by_id(made.items)["1ab-manage"].sent1
    assert validate_items(made.items, "x") == []


def test_the_verb_that_embeds_is_no_deciding_word(items: tuple[Item, ...]) -> None:
    pairs = [DirectedPair("1", "A cook is serving a pear", "A cook is hiding a pear", N, N, N)]
    options = BuildOptions(seen=(0, 2, 0), unseen=(0, 0, 0))
    served = by_id(build(pairs, options, load_tagger()).items)
    made = pseudo_items(tuple(served.values()), verbs=False)
    assert by_id(made.items)["1ab-serve"].sent1 == f"A cook serves to {made.words['serve']} a pear"


def test_nothing_to_replace(items: tuple[Item, ...]) -> None:
    with pytest.raises(InputError, match="--pseudo: neither verbs nor nouns"):
        pseudo_items(items, verbs=False, nouns=False)
