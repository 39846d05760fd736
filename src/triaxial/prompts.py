"""NLI as a multiple choice for language models: instruction, solved examples, question, answers.

A prompt is a *prefix* that all pairs share (instruction and examples), the *question* of one pair
and three possible *answers*. What asks a model, on this machine or over HTTP, and what writes a
task for another harness take all three from here, so that they ask the same.

Source: MERGE, LLMs (multiple choice on logits; six examples from one data set, or three from each
of two).
Choice: the wording, as the paper's is not public; labels as even as they can be among examples, in
random order; no example shares its premise with a seed or with another example.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .errors import InputError
from .nli import LABELS, Label, Pair
from .stats import generator

__all__ = [
    "INSTRUCTION",
    "ChoiceOptions",
    "Message",
    "PromptOptions",
    "answers",
    "few_shot",
    "messages",
    "prefix",
    "question",
]

INSTRUCTION = "Decide what the premise says about the hypothesis."
_LETTERS = ("A", "B", "C")
_BETWEEN = "\n\n"
Message = dict[Literal["role", "content"], str]


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How a pair is put to a language model.

    Args:
        style: `letters` lists the labels as A, B, C and asks for the letter; `words` asks for the
            label itself.
        instruction: Said once, before everything.
        examples: Solved pairs, in order; none is zero-shot.
    """

    style: Literal["letters", "words"] = "letters"
    instruction: str = INSTRUCTION
    examples: tuple[Pair, ...] = ()


@dataclass(frozen=True, slots=True)
class ChoiceOptions:
    """How a language model on this machine chooses among the answers to a prompt.

    Args:
        prompt: What is asked.
        chat: Whether the prompt is put through the tokenizer's chat template.
        normalize: What the log-likelihood of an answer is divided by: nothing, the number of its
            tokens, or of its UTF-8 bytes without the blank before it. lm-evaluation-harness calls
            the last acc_bytes, and acc_norm too, as our answers have as many characters as bytes.
        calibrate: Divide the probabilities by those that the answers have for pairs without
            content (contextual calibration, Zhao et al. 2021).
    """

    prompt: PromptOptions = field(default_factory=PromptOptions)
    chat: bool = False
    normalize: Literal["none", "tokens", "bytes"] = "none"
    calibrate: bool = False


def prefix(options: PromptOptions) -> str:
    r"""What all pairs share: the instruction and the solved examples, up to the first own word.

    >>> prefix(PromptOptions(instruction="Decide."))
    'Decide.\n\n'
    """
    solved = [
        f"{question(options, one.premise, one.hypothesis)} {_answer(options, one.label)}"
        for one in options.examples
    ]
    return "".join(f"{part}{_BETWEEN}" for part in (options.instruction, *solved) if part)


def question(options: PromptOptions, premise: str, hypothesis: str) -> str:
    """What is asked of one pair; an answer follows after one blank.

    >>> print(question(PromptOptions(), "A man sings.", "Somebody sings."))
    Premise: A man sings.
    Hypothesis: Somebody sings.
    A. entailment
    B. neutral
    C. contradiction
    Answer:
    """
    listed = (
        [f"{letter}. {label.value}" for letter, label in zip(_LETTERS, LABELS, strict=True)]
        if options.style == "letters"
        else ["Label: one of " + ", ".join(label.value for label in LABELS)]
    )
    return "\n".join([f"Premise: {premise}", f"Hypothesis: {hypothesis}", *listed, "Answer:"])


def answers(options: PromptOptions) -> tuple[str, str, str]:
    """The answers in the order of `LABELS`, without the blank before them.

    >>> answers(PromptOptions(style="words"))
    ('entailment', 'neutral', 'contradiction')
    """
    first, second, third = (_answer(options, label) for label in LABELS)
    return first, second, third


def messages(options: PromptOptions, premise: str, hypothesis: str) -> list[Message]:
    """The same as a conversation: instruction, examples as turns, and the question last.

    Args:
        options: See `PromptOptions`; an empty instruction makes no system message.
        premise: Of the pair.
        hypothesis: Of the pair.
    """
    found: list[Message] = []
    if options.instruction:
        found.append({"role": "system", "content": options.instruction})
    for one in options.examples:
        asked = question(options, one.premise, one.hypothesis)
        found.append({"role": "user", "content": asked})
        found.append({"role": "assistant", "content": _answer(options, one.label)})
    found.append({"role": "user", "content": question(options, premise, hypothesis)})
    return found


def few_shot(
    sets: Sequence[Sequence[Pair]], shots: int, *, seeds: Iterable[Pair], seed: int
) -> tuple[Pair, ...]:
    """Draw the solved examples.

    Args:
        sets: Pairs of each data set that examples come from; each gives its equal share.
        shots: How many in all; a multiple of the number of sets.
        seeds: Pairs that are tested: none of their premises is shown.
        seed: Of the draw.

    Raises:
        InputError: The shots cannot be divided, or a set has too few fit pairs of a label.
    """
    if shots < 1 or not sets or shots % len(sets):
        raise InputError(
            f"{shots} examples from {len(sets)} data sets; wanted as many from each", where="shots"
        )
    taken = {_plain(pair.premise) for pair in seeds}
    rng = generator("prompts.few_shot", seed)
    # Labels go round over all sets, from a random start, so that no label always has the most.
    first = int(rng.integers(len(LABELS)))
    wanted = [LABELS[(first + n) % len(LABELS)] for n in range(shots)]
    found: list[Pair] = []
    for number, pairs in enumerate(sets):
        order = rng.permutation(len(pairs))
        for label in wanted[number :: len(sets)]:
            one = next(
                (
                    p
                    for i in order
                    if (p := pairs[i]).label is label and _plain(p.premise) not in taken
                ),
                None,
            )
            if one is None:
                raise InputError(
                    f"data set {number + 1} of examples has too few pairs with the label {label} "
                    "whose premise is not among the seeds",
                    where="shots",
                )
            taken.add(_plain(one.premise))
            found.append(one)
    return tuple(found[i] for i in rng.permutation(len(found)))


def _answer(options: PromptOptions, label: Label) -> str:
    return _LETTERS[LABELS.index(label)] if options.style == "letters" else label.value


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold().strip()
