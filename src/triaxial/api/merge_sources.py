"""The models that a set of MERGE variants can be scored with, by what stands before their name.

`NAME` is an NLI classifier, `llm:NAME` a causal language model, both directories or hub ids with
`@revision` where wanted; `endpoint:NAME` is a model behind an OpenAI-compatible server.
`file:PATH`, `lm-eval:PATH` and `inspect:PATH` are predictions that are there already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from triaxial.api.merge_imports import Imported, inspect_labels, lm_eval_labels
from triaxial.errors import InputError
from triaxial.execute import Computing
from triaxial.merge.score import DrawOptions
from triaxial.merge.stages import NliSource
from triaxial.models.endpoint_wire import EndpointOptions
from triaxial.nli import read_labels
from triaxial.prompts import ChoiceOptions

if TYPE_CHECKING:
    from triaxial.models.base import NliModel

__all__ = [
    "EvaluateOptions",
    "asks_with_prompts",
    "fingerprint_of",
    "imported",
    "plain_name",
    "source_of",
    "works_here",
]

# Pairs of a language model that are kept at a time: minutes of work on a slow machine.
_PROMPTS_A_SHARD = 512
_READ: dict[str, Callable[[Path], dict[str, Imported]]] = {
    "file": lambda path: {item: Imported(label) for item, label in read_labels(path).items()},
    "lm-eval": lm_eval_labels,
    "inspect": inspect_labels,
}


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """Which models are scored, and on how many draws.

    Args:
        models: Names as described above, or objects that predict (`models.base.NliModel`: a name,
            a fingerprint, `predict(pairs)`).
        model_labels: Of classifiers, column or name to label. With one model it outranks the
            checkpoint's own names; with several it is for those whose names say nothing.
        precision: Of the models on this machine.
        draw: See `merge.score.DrawOptions`.
        choice: How language models are asked.
        url: Of the server that `endpoint:` models are behind.
        endpoint: How it is asked; `choice.chat` decides for its chat interface.
    """

    models: tuple[str | NliModel, ...]
    model_labels: Mapping[str, str] | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    draw: DrawOptions = field(default_factory=DrawOptions)
    choice: ChoiceOptions = field(default_factory=ChoiceOptions)
    url: str | None = None
    endpoint: EndpointOptions = field(default_factory=EndpointOptions)


def plain_name(name: str | NliModel) -> str:
    """A model's name without what stands before it."""
    if not isinstance(name, str):
        return name.name
    kind, _, rest = name.partition(":")
    return rest if rest and kind in (*_READ, "llm", "endpoint") else name


def asks_with_prompts(name: str) -> bool:
    """Whether a model is a language model, here or behind a server."""
    return name.startswith(("llm:", "endpoint:"))


def imported(name: str) -> dict[str, Imported] | None:
    """What stands in a file of predictions, by item; `None` for a model.

    Raises:
        InputError: The file cannot be used.
    """
    kind, _, path = name.partition(":")
    return _READ[kind](Path(path)) if kind in _READ and path else None


def works_here(name: str | NliModel) -> bool:
    """Whether a model computes on machines of ours: no server, no file, no object of the caller."""
    return isinstance(name, str) and name.partition(":")[0] not in (*_READ, "endpoint")


def source_of(name: str, options: EvaluateOptions, settings: Computing) -> NliSource:
    """A model by its name, not loaded yet.

    Raises:
        InputError: No such model, or it cannot be asked as the options say.
    """
    kind, _, rest = name.partition(":")
    if kind == "llm" and rest:
        return _language_model(rest, options, settings)
    if kind == "endpoint":
        return _endpoint(rest, options, settings)
    return _classifier(name, options, settings)


def fingerprint_of(
    name: str | NliModel, options: EvaluateOptions, settings: Computing
) -> dict[str, str]:
    """All that decides what a model, or a file of predictions, says."""
    if not isinstance(name, str):
        return dict(name.fingerprint)
    kind, _, path = name.partition(":")
    if kind in _READ and path:
        from triaxial.store import file_digest

        files = sorted(Path(path).glob("*.jsonl")) if Path(path).is_dir() else [Path(path)]
        return {kind: ",".join(file_digest(file) for file in files)}
    return dict(source_of(name, options, settings).fingerprint)


def _classifier(name: str, options: EvaluateOptions, settings: Computing) -> NliSource:
    from triaxial.models.base import split_revision
    from triaxial.models.classifier import fingerprint_of, load_classifier

    place, revision = split_revision(name)
    labels = _labels_for(name, options)

    def load() -> NliModel:
        return load_classifier(
            place,
            revision=revision,
            model_labels=labels,
            device=settings.device,
            precision=options.precision,
            token_budget=settings.token_budget,
        )

    fingerprint = fingerprint_of(
        name, model_labels=labels, precision=options.precision, device=settings.device
    )
    return NliSource(place, "classifier", fingerprint, load)


def _labels_for(name: str, options: EvaluateOptions) -> Mapping[str, str] | None:
    """The user's label map where it is meant for this classifier."""
    if options.model_labels is None or len(options.models) == 1:
        return options.model_labels
    from triaxial.models.classifier import names_say

    return None if names_say(name) else options.model_labels


def _language_model(name: str, options: EvaluateOptions, settings: Computing) -> NliSource:
    from triaxial.models.base import split_revision
    from triaxial.models.choice import fingerprint_of, load_choice

    place, revision = split_revision(name)
    how: dict[str, Any] = {
        "revision": revision,
        "device": settings.device,
        "precision": options.precision,
    }

    def load() -> NliModel:
        budget = settings.token_budget
        return load_choice(place, options=options.choice, token_budget=budget, **how)

    fingerprint = fingerprint_of(place, options.choice, **how)
    return NliSource(place, "language model", fingerprint, load, _PROMPTS_A_SHARD)


def _endpoint(name: str, options: EvaluateOptions, settings: Computing) -> NliSource:
    from triaxial.api.endpoint_cache import answers_in
    from triaxial.models.endpoint import load_endpoint

    choice, url = options.choice, options.url
    if url is None:
        raise InputError("needs the URL of its server; pass --endpoint-url URL", where=name)
    if choice.normalize != "none" or choice.calibrate:
        raise InputError(
            "an endpoint knows neither --normalize nor --calibrate; leave them out", where=name
        )
    # It asks nothing yet, and says early what cannot be asked, or where the key may not go.
    checked = load_endpoint(name, url, choice.prompt, options.endpoint)

    def load() -> NliModel:
        kept = answers_in(settings.store, checked.fingerprint)
        return load_endpoint(name, url, choice.prompt, options.endpoint, kept)

    return NliSource(name, "endpoint", checked.fingerprint, load, _PROMPTS_A_SHARD)
