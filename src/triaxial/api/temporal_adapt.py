"""Dynamic evaluation as directories: settings chosen on validation months, then the test in order.

One evaluation directory a parameter set, of the same form as those of static evaluation, with the
settings that were tried and the cost beside the gain. A killed run goes on after the last shard
that it committed, with the weights that it had then.

Choice: learning rates 0.01 to 0.3 for sgd and 0.00001 to 0.0003 for rms, no decay; 500 validation
documents, and 2,000 training documents for the statistics of rms, drawn at random.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from triaxial.api.temporal_evaluate import (
    EVALUATION,
    EvaluateOptions,
    EvaluationSet,
    Subject,
    finished,
    read_evaluation,
    subject_of,
    write_evaluation,
)
from triaxial.errors import InputError, StoreError
from triaxial.execute import Computing, run
from triaxial.stats import generator
from triaxial.store import (
    Stage,
    Store,
    claim_directory,
    digest,
    read_json,
    write_json,
)
from triaxial.temporal.stages import in_order, picked_by_month

if TYPE_CHECKING:
    import polars as pl

    from triaxial.temporal.dynamic import AdaptOptions, Cost
    from triaxial.temporal.updates import Statistics

__all__ = ["RATES", "AdaptRequest", "adapt"]

VERSION = 1
RATES = {"sgd": (0.01, 0.03, 0.1, 0.3), "rms": (1e-5, 3e-5, 1e-4, 3e-4)}
_SHARD = 512  # documents
_STATE, _COSTS, _STATISTICS = "state.safetensors", "costs.json", "statistics.safetensors"


@dataclass(frozen=True, slots=True)
class AdaptRequest:
    """How a model adapts, and what is tried.

    Args:
        parameters: Sets, as in `temporal.parameters`; one evaluation each.
        learning_rate: Taken as it is; by default chosen on validation documents.
        decay: Beside a given learning rate; of the rms rule.
        rates: Learning rates to try; by default `RATES` of the rule.
        decays: Decays to try, of the rms rule.
        rule: `sgd` or `rms`.
        epsilon: Of the rms rule.
        reset: Whether the trained weights come back every month.
        borders: Whether a document remembers those before it.
        streams: Documents that are read side by side and share their updates.
        valid_documents: Most validation documents to choose on.
        statistics_documents: Most training documents for the statistics of the rms rule.
        seed: Of both draws.
    """

    parameters: tuple[str, ...] = ("all",)
    learning_rate: float | None = None
    decay: float = 0.0
    rates: tuple[float, ...] = ()
    decays: tuple[float, ...] = (0.0,)
    rule: Literal["sgd", "rms"] = "sgd"
    epsilon: float | None = None
    reset: Literal["never", "month"] = "never"
    borders: Literal["carry", "reset"] = "reset"
    streams: int = 1
    valid_documents: int = 500
    statistics_documents: int = 2_000
    seed: int = 1


def adapt(
    model: str,
    corpus: str | Path,
    out: str | Path,
    split: str | Path | None = None,
    request: AdaptRequest | None = None,
    options: EvaluateOptions | None = None,
    computing: Computing | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, EvaluationSet]:
    """Evaluate a model that learns from what it was scored on, once for each parameter set.

    Args:
        model: Directory or hub id.
        corpus: Directory of a corpus.
        out: Directory for the directories of the evaluations, one a set and named after it.
        split: Directory of a split; needed to choose a learning rate, and for the rms rule.
        request: How it adapts.
        options: As for static evaluation.
        computing: How the work is done.
        overwrite: Replace evaluations of another call.

    Raises:
        InputError: As for `evaluate`; settings do not fit the model, or it diverges.
        StoreError: A directory cannot be used.
    """
    from triaxial.temporal.dynamic import AdaptOptions
    from triaxial.temporal.parameters import chosen_weights

    request, computing = request or AdaptRequest(), computing or Computing()
    if not request.parameters or len(set(request.parameters)) < len(request.parameters):
        message = f"is {','.join(request.parameters)!r}; name each set once, such as all,biases"
        raise InputError(message, where="--parameters")
    if request.learning_rate is None and request.decay:
        message = "goes with --learning-rate; name decays to choose from with --decays"
        raise InputError(message, where="--decay")
    if request.learning_rate is not None and (request.rates or any(request.decays)):
        message = "is given, so that nothing is chosen; leave out --rates and --decays"
        raise InputError(message, where="--learning-rate")
    if min(request.valid_documents, request.statistics_documents) < 1:
        message = f"{request.valid_documents} and {request.statistics_documents} documents; wanted"
        raise InputError(f"{message} at least 1 of each", where="--valid-documents")
    asked = [
        AdaptOptions(
            0.0 if request.learning_rate is None else request.learning_rate,
            parameters,
            request.rule,
            request.decay,
            request.epsilon,
            request.reset,
            request.borders,
            request.streams,
        )
        for parameters in request.parameters
    ]
    subject = subject_of(model, corpus, split, options or EvaluateOptions(), computing)
    if subject.split is None and (request.learning_rate is None or request.rule == "rms"):
        message = "is not given; name one, or give a --learning-rate and --rule sgd"
        raise InputError(message, where="--split")
    for one in asked:  # a set that the model lacks is refused before anything is computed
        with chosen_weights(subject.model.network, one.parameters):
            pass
    folders = [Path(out) / one.parameters for one in asked]
    for one, folder in zip(asked, folders, strict=True):
        plan = {"request": asdict(replace(request, parameters=(one.parameters,)))}
        about = {"kind": EVALUATION, "version": VERSION, "about": subject.about, **plan}
        claim_directory(folder, EVALUATION, digest(about), replace=overwrite)
    open_ = [both for both in zip(asked, folders, strict=True) if not finished(both[1])]
    if computing.ray is None:
        for one, folder in open_:
            _adapted(subject, one, request, folder, computing)
    elif open_:
        _adapted_on_ray(subject, open_, request, computing)
    return {
        one.parameters: read_evaluation(folder) for one, folder in zip(asked, folders, strict=True)
    }


def _adapted_on_ray(
    subject: Subject,
    open_: Sequence[tuple[AdaptOptions, Path]],
    request: AdaptRequest,
    computing: Computing,
) -> None:
    """Each set as one shard; statistics that sets share are made first, here."""
    if request.rule == "rms":
        for one, _ in open_:
            _statistics(subject, one.parameters, request, computing)
    found = run(
        partial(_adapted_one, subject, request, replace(computing, ray=None, progress=None)),
        open_,
        workers=computing.workers,
        ray=computing.ray,
        gpus=computing.gpus,
        progress=computing.told("parameter sets"),
    )
    for _ in found:
        pass


def _adapted_one(
    subject: Subject,
    request: AdaptRequest,
    computing: Computing,
    both: tuple[AdaptOptions, Path],
) -> None:
    options, folder = both
    _adapted(subject, options, request, folder, computing)


def _adapted(
    subject: Subject,
    options: AdaptOptions,
    request: AdaptRequest,
    out: Path,
    computing: Computing,
) -> None:
    statistics, source = None, ""
    if options.rule == "rms":
        statistics, source = _statistics(subject, options.parameters, request, computing)
    tried: dict[str, Any] = {"tried": [], "edge": False}
    if request.learning_rate is None:
        options, tried = _chosen(subject, options, request, statistics, source, computing)
    words, documents, costs = _run(subject, options, statistics, source, computing)
    cost = _total(costs)
    static = request.learning_rate == 0
    facts = subject.about | {
        "adaptation": "" if static else _label(options),
        "settings": asdict(options),
        "choice": tried,
        "cost": cost,
    }
    write_evaluation(out, words, documents, facts)


def _statistics(
    subject: Subject, parameters: str, request: AdaptRequest, computing: Computing
) -> tuple[Statistics, str]:
    """Statistics of training documents, and the key of their stage; shared by most sets."""
    import polars as pl

    from triaxial.temporal.updates import gradient_statistics, read_statistics, write_statistics

    wanted = "output" if parameters == "output" else "all"
    train = _training(subject)
    ids = _drawn(train, request.statistics_documents, request.seed, "statistics")
    about = {"model": subject.about["fingerprint"], "parameters": wanted}
    inputs = [subject.corpus.key, digest(ids)]
    stage = Store(computing.store).stage("temporal.statistics", VERSION, about, inputs)
    path = stage.path / _STATISTICS
    if not (stage.complete and path.is_file()):
        told, done = computing.told("gradients of training documents"), 0

        def step(more: int) -> None:
            nonlocal done
            done += more
            told(done, len(ids))

        found = gradient_statistics(subject.model, subject.corpus.only(ids), wanted, progress=step)
        write_statistics(path, found)
        stage.write(0, pl.DataFrame({"segments": [found.segments], "documents": [len(ids)]}))
        stage.finish(1)
    return read_statistics(path), stage.key


def _chosen(
    subject: Subject,
    options: AdaptOptions,
    request: AdaptRequest,
    statistics: Statistics | None,
    source: str,
    computing: Computing,
) -> tuple[AdaptOptions, dict[str, Any]]:
    """Learning rate and decay, chosen on validation documents."""
    import polars as pl

    from triaxial.temporal.tuning import Grid, choose

    assert subject.split is not None, "asked for above"
    split = subject.split.named(subject.about["setup"])
    ids = _drawn(split.valid, request.valid_documents, request.seed, "choice")
    if not ids:
        message = "has no validation documents; give a --learning-rate, or split with some"
        raise InputError(message, where=subject.split.place)
    grid = Grid(request.rates or RATES[request.rule], request.decays)
    about = {
        "model": subject.about["fingerprint"],
        "options": asdict(options),
        "grid": asdict(grid),
        "test_from": subject.split.options.test_from,
    }
    inputs = [subject.corpus.key, digest(ids), source]
    stage = Store(computing.store).stage("temporal.choice", VERSION, about, inputs)
    if not stage.complete:
        some = subject.corpus.only(ids)
        documents = list(in_order(some, picked_by_month(some)))
        told, done = computing.told(f"choosing settings for {options.parameters}"), 0
        total = len(documents) * (1 + len(grid.learning_rates) * len(grid.decays))

        def step(more: int) -> None:
            nonlocal done
            done += more
            told(done, total)

        found = choose(
            subject.model,
            documents,
            grid,
            options,
            test_from=subject.split.options.test_from,
            statistics=statistics,
            progress=step,
        )
        stage.write(0, pl.DataFrame([{**row, "seconds": 0.0} for row in found.tried]))
        chosen = {name: getattr(found.options, name) for name in ("learning_rate", "decay")}
        seconds = [row["seconds"] for row in found.tried]
        stage.finish(1, {"chosen": chosen, "edge": found.edge, "seconds": seconds})
    facts = stage.manifest["facts"]
    # JSON knows no infinity: a setting that diverged has no perplexity.
    rows = [
        {n: None if v == float("inf") else v for n, v in row.items()} | {"seconds": seconds}
        for row, seconds in zip(stage.read().to_dicts(), facts["seconds"], strict=True)
    ]
    told_of = {"tried": rows, "edge": facts["edge"], "documents": len(ids)}
    return replace(options, **facts["chosen"]), told_of


def _run(
    subject: Subject,
    options: AdaptOptions,
    statistics: Statistics | None,
    source: str,
    computing: Computing,
) -> tuple[pl.DataFrame, pl.DataFrame, list[Cost]]:
    """Words, documents and the cost of each shard; a run that was killed is taken up."""
    from triaxial.temporal.dynamic import Cost, write_state
    from triaxial.temporal.dynamic import adapt as adapted

    months = picked_by_month(subject.corpus)
    about = {
        "model": subject.about["fingerprint"],
        "options": asdict(options),
        "shard": _SHARD,
    }
    inputs = [digest([[list(one[:4]) for one in months[m]] for m in sorted(months)]), source]
    store = Store(computing.store)
    words = store.stage("temporal.adapted-words", VERSION, about, inputs)
    documents = store.stage("temporal.adapted-documents", VERSION, about, inputs)
    if not (words.complete and documents.complete):
        state, costs = _left(documents)
        total = sum(len(found) for found in months.values())
        told = computing.told(f"adapting {options.parameters}")
        told(0 if state is None else state.documents, total)
        stream = in_order(subject.corpus, months)
        found = adapted(
            subject.model, stream, options, statistics=statistics, state=state, shard=_SHARD
        )
        for shard in found:
            number = len(costs)
            words.write(number, shard.tables.words)
            documents.write(number, shard.tables.documents)
            costs.append(shard.cost)
            # The state last: without it the shard is computed again, to the same bits.
            write_json(documents.path / _COSTS, {"costs": costs})
            write_state(documents.path / _STATE, shard.state)
            told(shard.state.documents, total)
        words.finish(len(costs))
        documents.finish(len(costs), {"costs": [asdict(cost) for cost in costs]})
    for name in (_STATE, _COSTS):
        with contextlib.suppress(OSError):
            (documents.path / name).unlink(missing_ok=True)
    spent = [Cost(**row) for row in documents.manifest["facts"]["costs"]]
    return words.read(), documents.read(), spent


def _left(stage: Stage) -> tuple[Any, list[Cost]]:
    """Where a killed run left off: the state after its last shard, and what the shards cost."""
    from triaxial.temporal.dynamic import Cost, read_state

    path = stage.path / _STATE
    if not path.is_file():
        return None, []
    try:
        state = read_state(path)
        rows = [Cost(**row) for row in read_json(stage.path / _COSTS)["costs"]]
    except (InputError, StoreError, TypeError, KeyError):
        return None, []  # begun anew: what is committed comes out the same
    done, costs = 0, []
    for cost in rows:
        if done == state.documents:
            break
        done += cost.documents
        costs.append(cost)
    return (state, costs) if done == state.documents else (None, [])


def _training(subject: Subject) -> Sequence[str]:
    assert subject.split is not None, "asked for above"
    return subject.split.named(subject.about["setup"]).train


def _drawn(ids: Sequence[str], most: int, seed: int, purpose: str) -> list[str]:
    """Some ids at random, in their order."""
    chosen = generator("temporal.adapt", seed, purpose).permutation(len(ids))[:most]
    return [ids[n] for n in sorted(chosen.tolist())]


def _label(options: AdaptOptions) -> str:
    """What tells adaptations apart: the set, and what is not by default."""
    plain: Mapping[str, Any] = {"reset": "never", "borders": "reset", "streams": 1}
    more = [f"{n}={getattr(options, n)}" for n, v in plain.items() if getattr(options, n) != v]
    return " ".join([options.parameters, *more])


def _total(costs: Sequence[Cost]) -> dict[str, Any]:
    from triaxial.temporal.dynamic import total_cost

    whole = total_cost(costs)
    return {
        "seconds": whole.seconds,
        "pieces": whole.tokens,
        "pieces_per_second": whole.tokens_per_second or None,
        "flops": whole.flops,
        "peak_mib": whole.peak_bytes / 2**20 or None,
        "updates": whole.updates,
        "weights": whole.weights,
        "clipped": whole.clipped,
    }
