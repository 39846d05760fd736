"""The options of language models in `triax merge`, and what they mean to the functions behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from triaxial.errors import InputError

if TYPE_CHECKING:
    from triaxial.nli import Pair
    from triaxial.prompts import PromptOptions

__all__ = ["asking", "prompt", "prompt_for"]

_PANEL = "Language models"
_SHOTS = 6  # Source: MERGE, LLMs
_PROMPT = ("shots", "shots_from", "shots_split", "answers", "instruction")
_CHOICE = ("chat", "normalize", "calibrate")
# Options of an endpoint, and what `EndpointOptions` calls them.
_ENDPOINT = {
    "concurrency": "concurrency",
    "top_logprobs": "top",
    "retries": "retries",
    "timeout": "timeout",
    "plain_http": "plain_http",
    "price_in": "price_in",
    "price_out": "price_out",
}

Shots = Annotated[
    int | None,
    typer.Option(min=1, help="Solved examples in all. [6]", rich_help_panel=_PANEL),
]
ShotsFrom = Annotated[
    list[str] | None,
    typer.Option(
        help="Pairs that examples are drawn from, named as the seeds are; repeat for equal shares.",
        rich_help_panel=_PANEL,
    ),
]
ShotsSplit = Annotated[
    list[str] | None,
    typer.Option(help="Split of --shots-from: one for all, or one each.", rich_help_panel=_PANEL),
]
Answers = Annotated[
    Literal["letters", "words"] | None,
    typer.Option(help="The answers: A, B, C, or the labels. [letters]", rich_help_panel=_PANEL),
]
Instruction = Annotated[
    str | None,
    typer.Option(help="What is said before everything; may be empty.", rich_help_panel=_PANEL),
]
Chat = Annotated[
    bool | None,
    typer.Option(
        "--chat/--no-chat", help="Ask through the chat template. [no]", rich_help_panel=_PANEL
    ),
]
Normalize = Annotated[
    Literal["none", "tokens", "bytes"] | None,
    typer.Option(
        help="Length that an answer's log-likelihood is divided by. [none]", rich_help_panel=_PANEL
    ),
]
Calibrate = Annotated[
    bool | None,
    typer.Option(
        "--calibrate/--no-calibrate",
        help="Divide by the probabilities for pairs without content. [no]",
        rich_help_panel=_PANEL,
    ),
]
EndpointUrl = Annotated[
    str | None,
    typer.Option(
        help="Server of `endpoint:` models, such as http://127.0.0.1:8000/v1; the key is read from "
        "TRIAXIAL_API_KEY.",
        rich_help_panel=_PANEL,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(min=1, help="Requests at a time to an endpoint. [8]", rich_help_panel=_PANEL),
]
TopLogprobs = Annotated[
    int | None,
    typer.Option(
        min=3,
        help="First tokens that an endpoint lists; OpenAI's completions give 5. [20]",
        rich_help_panel=_PANEL,
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        min=0, help="Further tries of a request whose failure may pass. [5]", rich_help_panel=_PANEL
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds for an endpoint's answer. [120]", rich_help_panel=_PANEL),
]
PlainHttp = Annotated[
    bool | None,
    typer.Option(
        "--plain-http/--no-plain-http",
        help="Send a key over plain http to another machine. [no]",
        rich_help_panel=_PANEL,
    ),
]
Estimate = Annotated[
    bool,
    typer.Option(
        "--estimate",
        help="Print what endpoints would be asked, and its cost; ask nothing.",
        rich_help_panel=_PANEL,
    ),
]
PriceIn = Annotated[
    float | None,
    typer.Option(min=0, help="Of a million prompt tokens; shows the cost.", rich_help_panel=_PANEL),
]
PriceOut = Annotated[
    float | None,
    typer.Option(min=0, help="Of a million tokens of answers.", rich_help_panel=_PANEL),
]


def asking(
    given: dict[str, Any], models: Sequence[str], seeds: Sequence[Pair], seed: int
) -> dict[str, Any]:
    """How language models are asked: fields of `EvaluateOptions`.

    Args:
        given: The options of a call, by name.
        models: Its models.
        seeds: The pairs that are tested.
        seed: Of the draw of examples.

    Raises:
        InputError: Options without a model that they are for, or that do not go together.
    """
    from triaxial.models.endpoint_wire import EndpointOptions
    from triaxial.prompts import ChoiceOptions

    here = any(model.startswith("llm:") for model in models)
    server = any(model.startswith("endpoint:") for model in models)
    if not here and not server:
        names = (*_PROMPT, *_CHOICE, "endpoint_url", *_ENDPOINT)
        _refuse(given, names, "llm:NAME_OR_DIRECTORY or endpoint:NAME")
        return {}
    if not here:
        _refuse(given, ("normalize", "calibrate"), "llm:NAME_OR_DIRECTORY")
    if not server:
        _refuse(given, ("endpoint_url", *_ENDPOINT), "endpoint:NAME")
    chat = bool(given["chat"])
    choice = ChoiceOptions(
        prompt(given, seeds, seed), chat, given["normalize"] or "none", bool(given["calibrate"])
    )
    how = {field: given[name] for name, field in _ENDPOINT.items() if given[name] is not None}
    endpoint = EndpointOptions(api="chat" if chat else "completions", **how)
    return {"choice": choice, "url": given["endpoint_url"], "endpoint": endpoint}


def prompt_for(
    wanted: bool, given: dict[str, Any], seeds: Sequence[Pair], seed: int
) -> PromptOptions | None:
    """The prompt of an export, where its form has one.

    Raises:
        InputError: As of `prompt`; or the form has none and options describe one.
    """
    if wanted:
        return prompt(given, seeds, seed)
    useless = _given(given, _PROMPT)
    if useless:
        raise InputError(f"{', '.join(useless)}: only --format lm-eval has a prompt")
    return None


def prompt(given: dict[str, Any], seeds: Sequence[Pair], seed: int) -> PromptOptions:
    """The prompt that the options of a call describe, with its examples drawn.

    Raises:
        InputError: Examples without a place to draw them from, or that cannot be drawn.
    """
    from triaxial.nli import read_pairs
    from triaxial.prompts import INSTRUCTION, PromptOptions, few_shot

    sources: list[str] = list(given["shots_from"] or [])
    splits: list[str | None] = list(given["shots_split"] or [None])
    if not sources and (given["shots"] is not None or given["shots_split"]):
        name = "--shots" if given["shots"] is not None else "--shots-split"
        raise InputError("needs pairs to draw examples from; pass --shots-from SOURCE", where=name)
    if len(splits) not in (1, max(len(sources), 1)):
        raise InputError(
            f"{len(splits)} splits for {len(sources)} sources; wanted one for all, or one each",
            where="--shots-split",
        )
    if len(splits) < len(sources):
        splits *= len(sources)
    examples: tuple[Pair, ...] = ()
    if sources:
        sets = [
            read_pairs(source, split=split, on_bad="drop").pairs
            for source, split in zip(sources, splits, strict=True)
        ]
        examples = few_shot(sets, given["shots"] or _SHOTS, seeds=seeds, seed=seed)
    said = given["instruction"]
    return PromptOptions(
        given["answers"] or "letters", INSTRUCTION if said is None else said, examples
    )


def _refuse(given: dict[str, Any], names: Sequence[str], wanted: str) -> None:
    """Refuse options that nothing of the call would read."""
    useless = _given(given, names)
    if useless:
        raise InputError(
            f"{', '.join(useless)}: no model of this call reads it; name one as --model {wanted}"
        )


def _given(given: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Which options a call gives, as they are written."""
    there = [name for name in names if given[name] not in (None, [], ())]
    return [f"--{name.replace('_', '-')}" for name in there]
