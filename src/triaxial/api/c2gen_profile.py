"""A profile that gains facts: learned stage by stage, judged after each, and what was forgotten.

Nothing here trains: the profile is a stream of stages like any other, so that the first stage is
shared by all strategies, a killed call goes on, and a finished one is found again.

Choice: a memory holds a third of the lines of the first stage where nothing else is said; of the
smallest sets the paper's 100 would be all.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from triaxial.c2gen.compose import Item
from triaxial.c2gen.grid import Grid, TrainOptions
from triaxial.c2gen.persona import PROFILE, Fact, Persona, check_facts, fact_of, persona_of
from triaxial.c2gen.stages import Computing, jobs_of, predictions_of, run_jobs
from triaxial.c2gen.units import Unit
from triaxial.errors import InputError
from triaxial.nli import LABELS
from triaxial.nli_rows import MEND, BadRowError, Columns, file_source
from triaxial.stats import bootstrap, generator
from triaxial.store import (
    Store,
    claim_directory,
    digest,
    finish_directory,
    table_of,
    write_json,
    write_jsonl,
    write_table,
)

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["TRAIN", "WHAT", "profile", "read_profile"]

VERSION = 1  # bumped by hand whenever the same facts give other items
KIND = "c2gen.profile"
TRAIN = TrainOptions(epochs=5, learning_rate=1e-4, batch_size=8)
"""How a stage of facts is learned: far fewer items than in the paper, hence more of each."""

WHAT: Mapping[str, str] = {
    "learned": "lines that were trained",
    "held out": "compositions of trained lines and facts",
    "new words": "utterances that were not trained",
    "bare facts": "the fact without a verb",
}
"""What is judged; the last by the head N, all others by CI."""

_PARTS = {"test": "learned", "probe": "held out", "unseen": "new words"}
_SHOWN = 9  # utterances of the excerpt, a third of them not forgotten

Array = "NDArray[Any]"


def profile(
    encoder: str,
    computing: Computing,
    *,
    file: str | Path | None = None,
    strategies: Sequence[str] = ("none", "er-res", "kd"),
    train: TrainOptions = TRAIN,
    memory: int | None = None,
    seed: int = 1,
    out: Path | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Learn a profile stage by stage under each strategy, and judge all of it after each stage.

    Args:
        encoder: Directory or hub id of an encoder, or of a decoder.
        computing: Store, device, workers.
        file: A profile as `read_profile` reads it; by default the one of `persona.PROFILE`.
        strategies: Names of `strategies.STRATEGIES`; differences are to the first.
        train: How a stage is trained.
        memory: Lines kept of earlier stages; by default a third of the first stage.
        seed: Of heads, order, dropout and replay.
        out: Receives items.jsonl, predictions.parquet, profile.json and a manifest.
        overwrite: Replace the profile of another call there.

    Returns:
        `rows`, one for each strategy, kind of judgement (`WHAT`) and stage whose facts are judged
        (0 = the profile so far), with percent right after each stage, what was `forgotten` since
        it was learned (points) and the `gain` over the first strategy, each with an interval from
        resampled facts; `baselines` likewise; `excerpt`, utterances with the answers after each
        stage; and what it was computed from.

    Raises:
        InputError: File, encoder or an option cannot be used, or training diverges.
        StoreError: The store or `out` cannot be written.
    """
    from triaxial.c2gen.strategies import strategy_named

    persona = persona_of(PROFILE if file is None else read_profile(file))
    names = tuple(dict.fromkeys(strategies))
    lines = len(persona.fold.stages[0])
    memory = max(1, lines // 3) if memory is None else memory
    grid = Grid(
        encoder,
        folds=(0,),
        streams=(persona.fold.stream.name,),
        strategies=names,
        seeds=(seed,),
        train=train,
        settings={"memory": memory},
    )
    units = [Unit(persona.fold, strategy_named(name, grid.settings), seed) for name in names]
    items = Store(computing.store).stage(KIND, VERSION, {}, [digest(persona.items)]).path
    path = str(items / "items.jsonl")
    write_jsonl(path, table_of(persona.items, Item))
    chains = jobs_of(units, path, grid, computing)
    if out is not None:
        key = digest([KIND, [chain[-1].stage.key for chain in chains.values()]])
        claim_directory(out, KIND, key, replace=overwrite)
    run_jobs(chains, computing)
    predictions, costs = predictions_of(chains, units, persona.items)
    answers = _answers(predictions, persona, names)
    found = {
        "schema": 1,
        "facts": len(persona.facts),
        "stages": len(persona.fold.stages),
        "items": {_PARTS[part]: len(getattr(persona.fold, part)) for part in _PARTS},
        "strategies": list(names),
        "memory": memory,
        "seed": seed,
        "train": asdict(train),
        "seconds": costs.filter(~costs["shared"] | (costs["strategy"] == names[0]))["seconds"].sum(),
        "rows": _rows(answers, persona, names),
        "baselines": _baselines(persona),
        "excerpt": _excerpt(answers, persona, names),
    }
    if out is not None:
        write_jsonl(out / "items.jsonl", table_of(persona.items, Item))
        write_table(out / "predictions.parquet", predictions)
        write_json(out / "profile.json", found)
        finish_directory(out, {"profile": "built in" if file is None else Path(file).name})
    return found


def read_profile(path: str | Path) -> list[Fact]:
    """Facts from a TOML file with tables `[[facts]]`, or a JSON-lines file with one fact a row.

    Keys of a fact: `stage`, `fact`, `entailment`, `neutral`, `contradiction`, and `verbs` where
    they are not those of `persona.VERBS_OF_A_FACT`; see `docs/profile.md`.

    Raises:
        InputError: The file or a fact cannot be used.
    """
    path = Path(path).expanduser()
    if path.suffix not in (".toml", ".jsonl"):
        raise InputError("is neither .toml nor .jsonl; write the facts as one of them", where=path)
    rows = _toml_rows(path) if path.suffix == ".toml" else _jsonl_rows(path)
    facts = [fact_of(row, where) for where, row in rows]
    check_facts(facts, str(path))
    return facts


def _toml_rows(path: Path) -> list[tuple[str, Mapping[str, object]]]:
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); check the path", where=path) from None
    except ValueError as error:
        raise InputError(f"is not TOML: {error}; mend that place", where=path) from None
    rows = table.get("facts")
    if set(table) != {"facts"} or not isinstance(rows, list) or not all(map(_is_table, rows)):
        seen = ", ".join(map(repr, table)) or "nothing"
        raise InputError(f"holds {seen}; wanted tables [[facts]] alone", where=path)
    return [(f"{path}: fact {number}", row) for number, row in enumerate(rows, 1)]


def _is_table(row: object) -> bool:
    return isinstance(row, dict)


def _jsonl_rows(path: Path) -> list[tuple[str, Mapping[str, object]]]:
    found = []
    with closing(file_source(path, "jsonl", Columns((), "stage")).rows) as rows:
        for number, row in enumerate(rows, 1):
            where = f"{path}:{number}"
            if isinstance(row, BadRowError):
                raise InputError(row.message.replace(MEND, "mend the row"), where=where)
            found.append((where, row))
    return found


@dataclass(frozen=True, slots=True)
class _Answers:
    """What was answered, by kind of judgement.

    Args:
        row: Item judged, shape (N,).
        owner: Its fact, shape (N,).
        stage: Of its fact, 0-based, shape (N,).
        gold: Index in `LABELS`, shape (N,).
        said: By strategy: after each stage, shape (stages, N).
    """

    row: NDArray[np.intp]
    owner: NDArray[np.intp]
    stage: NDArray[np.intp]
    gold: NDArray[np.intp]
    said: dict[str, NDArray[np.intp]]

    def right(self, strategy: str) -> NDArray[np.intp]:
        """Whether an answer is right, 0 or 1, shape (stages, N)."""
        return (self.said[strategy] == self.gold).astype(np.intp)


def _answers(table: pl.DataFrame, persona: Persona, names: Sequence[str]) -> dict[str, _Answers]:
    """The answers by kind of judgement, from the table of predictions."""
    import polars as pl

    places = {item.id: row for row, item in enumerate(persona.items)}
    owner = np.asarray(persona.owner)
    stage_of = np.asarray([fact.stage - 1 for fact in persona.facts])
    stages = len(persona.fold.stages)
    # A fact without a verb is one pair, whichever line it stands in.
    first = {item.pair_id: item.id for item in reversed(persona.items)}
    found = {}
    for what in WHAT:
        bare = what == "bare facts"
        parts = ["test"] if bare else [part for part, name in _PARTS.items() if name == what]
        mine = table.filter(pl.col("part").is_in(parts))
        if bare:
            # Of its lines some are held out: the first that is not.
            mine = table.filter(pl.col("part") != "unseen", pl.col("item").is_in(first.values()))
        if mine.is_empty():
            continue
        head, gold = ("n", "gold_n") if bare else ("c", "gold")
        said = {}
        for name in names:
            frame = mine.filter(pl.col("strategy") == name).sort("stage", maintain_order=True)
            scores = frame.select(f"{head}0", f"{head}1", f"{head}2").to_numpy()
            said[name] = scores.argmax(axis=1).reshape(stages, -1)
        one = mine.filter(pl.col("strategy") == names[0], pl.col("stage") == 1)
        row = np.asarray([places[name] for name in one["item"]])
        found[what] = _Answers(
            row, owner[row], stage_of[owner[row]], one[gold].to_numpy().astype(np.intp), said
        )
    return found


def _rows(
    answers: Mapping[str, _Answers], persona: Persona, names: Sequence[str]
) -> list[dict[str, Any]]:
    stages = len(persona.fold.stages)
    out = []
    for what, mine in answers.items():
        for facts in (*range(1, stages + 1), 0):
            for name in names:
                right, base = mine.right(name), mine.right(names[0])
                when = mine.stage
                after = {
                    str(s + 1): _share(mine, right[s], (when <= s) if facts == 0 else when == facts - 1)
                    for s in range(stages)
                }
                old = when < stages - 1 if facts == 0 else when == facts - 1
                older = facts < stages
                then = right[when, np.arange(len(when))]
                out.append(
                    {
                        "what": what,
                        "facts": facts,
                        "strategy": name,
                        "after": after,
                        "forgotten": _difference(mine, then, right[-1], old) if older else None,
                        "gain": None
                        if name == names[0] or not older
                        else _difference(mine, right[-1], base[-1], old),
                    }
                )
    return out


def _baselines(persona: Persona) -> list[dict[str, Any]]:
    """Answers that need no model, on the lines of the whole profile by stage and in all."""
    out = []
    for part, what in _PARTS.items():
        rows = getattr(persona.fold, part)
        for facts in (*range(1, len(persona.fold.stages) + 1), 0):
            mine = [
                persona.items[r]
                for r in rows
                if facts in (0, persona.facts[persona.owner[r]].stage)
            ]
            if mine:
                hits = {
                    "always neutral": [item.label == LABELS[1] for item in mine],
                    "V-only": [item.label == item.veridical_label for item in mine],
                    "N-only": [item.label == item.sick_label for item in mine],
                }
                shares = {name: 100 * sum(hit) / len(hit) for name, hit in hits.items()}
                out.append({"what": what, "facts": facts, "n": len(mine), **shares})
    return out
