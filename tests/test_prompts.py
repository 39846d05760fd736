"""Prompts: what they say, and which examples they show."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.nli import LABELS, Pair
from triaxial.prompts import PromptOptions, answers, few_shot, messages, prefix, question

SHOWN = Pair("x", "A dog runs.", "An animal runs.", LABELS[0])


def pairs(name: str, count: int, *, premise: str = "{name} premise {n}") -> list[Pair]:
    return [
        Pair(f"{name}{n}", premise.format(name=name, n=n), "h", LABELS[n % 3]) for n in range(count)
    ]


def test_a_prompt_is_prefix_question_and_answer() -> None:
    options = PromptOptions("words", "Decide.", (SHOWN,))
    whole = prefix(options) + question(options, "A man sings.", "He is silent.")
    assert whole == (
        "Decide.\n\n"
        "Premise: A dog runs.\nHypothesis: An animal runs.\n"
        "Label: one of entailment, neutral, contradiction\nAnswer: entailment\n\n"
        "Premise: A man sings.\nHypothesis: He is silent.\n"
        "Label: one of entailment, neutral, contradiction\nAnswer:"
    )
    assert answers(PromptOptions()) == ("A", "B", "C")


def test_a_conversation_has_the_examples_as_turns() -> None:
    found = messages(PromptOptions(examples=(SHOWN,)), "A man sings.", "He is silent.")
    assert [one["role"] for one in found] == ["system", "user", "assistant", "user"]
    assert found[2]["content"] == "A"
    assert found[3]["content"] == question(PromptOptions(), "A man sings.", "He is silent.")
    assert messages(PromptOptions(instruction=""), "p", "h")[0]["role"] == "user"


@settings(max_examples=30, deadline=None)
@given(shots=st.sampled_from([2, 4, 6, 12]), sets=st.sampled_from([1, 2]), seed=st.integers(0, 99))
def test_examples_share_no_premise_and_are_even_in_labels_and_sets(
    shots: int, sets: int, seed: int
) -> None:
    sources = [pairs(name, 40) for name in "ab"[:sets]]
    tested = [Pair("s", "A PREMISE 3", "h", LABELS[0]), *sources[0][:9]]
    found = few_shot(sources, shots, seeds=tested, seed=seed)
    premises = [pair.premise.casefold() for pair in found]
    assert len(set(premises)) == len(found) == shots
    assert not set(premises) & {pair.premise.casefold() for pair in tested}
    labels = Counter(pair.label for pair in found)
    assert max(labels.values()) - min(labels[label] for label in LABELS) <= 1
    assert set(Counter(pair.id[0] for pair in found).values()) == {shots // sets}
    assert found == few_shot(sources, shots, seeds=tested, seed=seed)


def test_examples_that_cannot_be_had_are_refused() -> None:
    with pytest.raises(InputError, match="as many from each"):
        few_shot([pairs("a", 9), pairs("b", 9)], 5, seeds=(), seed=1)
    with pytest.raises(InputError, match="too few pairs"):
        few_shot([pairs("a", 9)], 6, seeds=pairs("a", 9), seed=1)
