"""The options of `triax merge`, and what they mean to the functions behind it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from triaxial.api.merge import GenerateOptions
    from triaxial.api.merge_predict import EvaluateOptions
    from triaxial.execute import Computing

__all__ = ["changes", "evaluating", "generating", "settings"]

Mlm = Annotated[
    list[str],
    typer.Option(
        help="Masked LM, directory or hub id (`id@revision`); repeat for several.",
        rich_help_panel="Models",
    ),
]
Model = Annotated[
    list[str],
    typer.Option(
        help="NLI classifier, directory or hub id; `llm:` before a language model's, `endpoint:` "
        "before a server's; or predictions: `file:LABELS`, `lm-eval:SAMPLES`, `inspect:LOG`. "
        "Repeat for several.",
        rich_help_panel="Models",
    ),
]
ModelLabels = Annotated[
    str | None,
    typer.Option(
        help="The model's columns, where names say nothing: `0=contradiction,…`.",
        rich_help_panel="Models",
    ),
]
PresetName = Annotated[
    Literal["faithful", "safe"],
    typer.Option(
        "--preset",
        help="`faithful` to the paper, or `safe` with stricter filters.",
        rich_help_panel="Variants",
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        help="Word classes: `NOUN,VERB,ADJ`; ADV is possible.", rich_help_panel="Variants"
    ),
]
K = Annotated[
    int | None,
    typer.Option(
        "--k", min=1, help="Suggestions of each masked LM. [200]", rich_help_panel="Variants"
    ),
]
Context = Annotated[
    Literal["sentence", "pair"] | None,
    typer.Option(
        "--context", help="What a masked LM reads. [sentence]", rich_help_panel="Variants"
    ),
]
Strict = Annotated[
    bool | None,
    typer.Option(
        "--strict/--no-strict",
        help="Demand p(r) > p(o), not only p(r) >= p(o).",
        rich_help_panel="Variants",
    ),
]
Across = Annotated[
    Literal["same", "any"] | None,
    typer.Option(
        help="`same` masked LM at every place, or `any` one for each side. [same]",
        rich_help_panel="Variants",
    ),
]
Logical = Annotated[
    bool | None,
    typer.Option(
        "--logical/--no-logical",
        help='Replace "fake", "other", "same" and the like.',
        rich_help_panel="Variants",
    ),
]
Articles = Annotated[
    bool | None,
    typer.Option(
        "--articles/--no-articles", help="Reject what breaks a/an.", rich_help_panel="Variants"
    ),
]
Fine = Annotated[
    bool | None,
    typer.Option(
        "--fine/--no-fine", help="Demand the same number, form, degree.", rich_help_panel="Variants"
    ),
]
SameLemma = Annotated[
    bool | None,
    typer.Option(
        "--reject-same-lemma/--allow-same-lemma",
        help="Reject words of a pair's lemma.",
        rich_help_panel="Variants",
    ),
]
LabelRisk = Annotated[
    Literal["flag", "drop"] | None,
    typer.Option(
        help="What to do where WordNet relates a word of the pair to o or r.",
        rich_help_panel="Variants",
    ),
]
TaggerName = Annotated[
    str, typer.Option(help="`hanta`, or `spacy:NAME_OR_DIRECTORY`.", rich_help_panel="Variants")
]
WordNetDir = Annotated[
    str | None,
    typer.Option(
        help="Directory of WordNet data; by default where the system has it.",
        rich_help_panel="Variants",
    ),
]
MlmPrecision = Annotated[
    Literal["auto", "fp32", "bf16"],
    typer.Option(
        help="Of the masked LMs; fp32, as probabilities are compared.", rich_help_panel="Models"
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        min=1,
        help="Processes for tagging; with --ray local, for all of it.",
        rich_help_panel="Computing",
    ),
]
MinVariants = Annotated[
    int,
    typer.Option(
        min=1,
        help="Variants a draw, and the fewest that a seed must have.",
        rich_help_panel="Scores",
    ),
]
Draws = Annotated[
    int, typer.Option(min=1, help="Draws of each seed's variants.", rich_help_panel="Scores")
]
Seed = Annotated[
    int, typer.Option(help="Seed of the draws and the bootstrap.", rich_help_panel="Scores")
]
Sample = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Score so many seeds, drawn in the shares of their labels.",
        rich_help_panel="Scores",
    ),
]
SampleLike = Annotated[
    str | None,
    typer.Option(
        help="RUN or RUN:MODEL: keep the share of what it has right, too.",
        rich_help_panel="Scores",
    ),
]
RunDir = Annotated[Path, typer.Argument(help="Directory of an earlier call.", show_default=False)]


def changes(context: typer.Context) -> dict[str, Any]:
    """The preset's options that a call changes, by their names in `merge.variants.Preset`."""
    given = context.params
    names = ("k", "strict", "across", "logical", "articles", "fine", "same_lemma", "label_risk")
    found = {name: given.get(name) for name in names}
    found["context"] = given.get("mlm_context")
    found["classes"] = _classes_of(given.get("classes"))
    return found


def generating(
    mlm: list[str],
    preset: Literal["faithful", "safe"],
    tagger: str,
    wordnet: str | None,
    mlm_precision: Literal["auto", "fp32", "bf16"],
    on_bad: Literal["refuse", "drop"],
    changed: dict[str, Any],
) -> GenerateOptions:
    """What a set is made with, as the options say."""
    from triaxial.api.merge import GenerateOptions, with_options
    from triaxial.merge.variants import PRESETS

    chosen = with_options(PRESETS[preset], **changed)
    # The signature says when a preset is not the named one.
    name = preset if chosen == PRESETS[preset] else f"{preset}+"
    return GenerateOptions(tuple(mlm), name, chosen, tagger, wordnet, mlm_precision, on_bad)


def evaluating(
    model: list[str],
    model_labels: str | None,
    precision: Literal["auto", "fp32", "bf16"],
    min_variants: int,
    draws: int,
    seed: int,
    asked: dict[str, Any],
) -> EvaluateOptions:
    """Which models are scored and how, as the options say; `asked` is of `merge_llm.asking`."""
    from triaxial.api.merge_predict import EvaluateOptions
    from triaxial.merge.score import DrawOptions
    from triaxial.nli import parse_map

    labels = parse_map(model_labels) if model_labels else None
    draw = DrawOptions(min_variants, draws, seed)
    return EvaluateOptions(tuple(model), labels, precision, draw, **asked)


def check_sample(sample: int | None, like: str | None) -> None:
    """Refuse a model that a sample is to be like where no sample is wanted."""
    from triaxial.errors import InputError

    if like is not None and sample is None:
        raise InputError("needs a size; pass --sample N", where="--sample-like")


def settings(
    store: Path,
    device: str,
    token_budget: int | None,
    workers: int,
    told: Any,
    ray: str | None = None,
) -> Computing:
    """How the work is done, as the options say."""
    from triaxial.execute import Computing

    return Computing(store, device, token_budget, workers, told, ray)


def _classes_of(text: str | None) -> tuple[str, ...] | None:
    from triaxial.errors import InputError

    if text is None:
        return None
    found = tuple(name.strip().upper() for name in text.split(",") if name.strip())
    known = ("NOUN", "VERB", "ADJ", "ADV")
    wrong = [name for name in found if name not in known]
    if wrong or not found:
        raise InputError(f"{text!r} is not a list of {', '.join(known)}", where="--classes")
    return found
