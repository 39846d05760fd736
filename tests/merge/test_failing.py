"""Which words a model fails on: counted by hand on a few predictions."""

from __future__ import annotations

import polars as pl
import pytest

from triaxial.merge.failing import all_words, failing_words
from triaxial.nli import LABELS, Pair
from triaxial.stats import wilson

E, N, C = (label.value for label in LABELS)
PAIRS = [
    Pair("a", "A dog runs.", "A dog moves.", LABELS[0]),
    Pair("b", "A dog barks.", "A dog is loud.", LABELS[0]),
    Pair("b2", "A dog barks.", "A dog is old.", LABELS[1]),
    Pair("wrong", "A dog sits.", "A dog stands.", LABELS[2]),
]
# seed, word out, word in, the model's label
VARIANTS = [
    ("a", "dog", "Cat", N),
    ("a", "dog", "fox", E),
    ("b", "dog", "cat", N),
    ("b2", "dog", "cat", E),
    ("b2", "dog", "fox", N),
    ("wrong", "dog", "cat", E),
    ("wrong", "dog", "fox", C),
]


def tables() -> tuple[pl.DataFrame, pl.DataFrame]:
    numbers: dict[str, int] = {}
    replacements, predictions = [], []
    for seed, word, replacement, label in VARIANTS:
        number = numbers[seed] = numbers.get(seed, -1) + 1
        replacements.append((seed, number, "NOUN", word, replacement))
        predictions.append(("m", seed, number, label))
        predictions.append(("other", seed, number, E))
    for seed, label in (("a", E), ("b", E), ("b2", N), ("wrong", E)):
        predictions += [("m", seed, -1, label), ("other", seed, -1, C)]
    return (
        pl.DataFrame(
            replacements, schema=["seed", "variant", "pos", "word", "replacement"], orient="row"
        ),
        pl.DataFrame(
            predictions,
            schema={"model": str, "seed": str, "variant": pl.Int32, "label": str},
            orient="row",
        ),
    )


def test_words_put_in_are_counted_on_rightly_labelled_seeds() -> None:
    replacements, predictions = tables()
    found = failing_words(PAIRS, replacements, predictions, "m", "in", least=2)
    cat, fox = found
    # Of `cat` (a, b, b2) all three are lost; of `fox` (a, b2) none; the seed `wrong` is left out.
    assert (cat.word, cat.pos, cat.variants, cat.premises) == ("cat", "NOUN", 3, 2)
    assert (cat.lost.value, cat.taken_for, cat.example) == (100, N, "a#0")
    assert cat.lost.low == pytest.approx(100 * wilson(1, 2).low)
    assert (fox.word, fox.variants, fox.lost.value, fox.example) == ("fox", 2, 0, "")
    assert failing_words(PAIRS, replacements, predictions, "m", "in", least=3) == []


def test_words_taken_out_and_the_share_of_all() -> None:
    replacements, predictions = tables()
    (dog,) = failing_words(PAIRS, replacements, predictions, "m", "out", least=2)
    assert (dog.word, dog.variants, dog.lost.value) == ("dog", 5, pytest.approx(60))
    whole = all_words(PAIRS, predictions, "m")
    assert whole is not None
    assert (whole["wrong"], whole["variants"], whole["premises"]) == (3, 5, 2)
    assert whole["lost"]["value"] == pytest.approx(60)
    # A model that is right on one seed alone, and one that is right on none.
    assert all_words(PAIRS, predictions, "other") is not None
    assert all_words(PAIRS[:3], predictions, "other") is None


def test_wilson_against_values_of_the_textbook_formula() -> None:
    from scipy.stats import binomtest

    for k, n in ((0, 5), (3, 7), (10, 10)):
        known = binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k / n, n).low == pytest.approx(known.low, abs=1e-12)
        assert wilson(k / n, n).high == pytest.approx(known.high, abs=1e-12)
