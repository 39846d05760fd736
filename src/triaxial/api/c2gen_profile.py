"""A profile that gains facts: learned stage by stage, judged after each, and what was forgotten.

Nothing here trains: the profile is a stream of stages like any other, so that the first stage is
shared by all strategies, a killed call goes on, and a finished one is found again.

Choice: a memory holds a third of the lines of the first stage where nothing else is said; of the
smallest sets the paper's 100 would be all.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from triaxial.c2gen.compose import Item
from triaxial.c2gen.grid import Grid, TrainOptions
from triaxial.c2gen.persona import PROFILE, Fact, Persona, check_facts, fact_of, persona_of
from triaxial.c2gen.stages import jobs_of, predictions_of, run_jobs
from triaxial.c2gen.units import Unit
from triaxial.errors import InputError
from triaxial.execute import Computing
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
    "held out": "lines whose verb and utterance were trained apart",
    "new words": "utterances that were not trained",
    "bare facts": "trained utterances against the fact without a verb",
}
"""What is judged; the last by the head N, the others by CI."""

_LOST, _KEPT = 6, 3  # utterances of the excerpt


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
        `rows`, one for each kind of judgement (`WHAT`), stage whose facts are judged (0 = the
        profile so far) and strategy: percent right after each stage, points `forgotten` since it
        was learned, points of `gain` over the first strategy at the end, each with n and an
        interval from resampled facts; `baselines` likewise; `excerpt`, utterances with the answers
        after each stage; and what it was computed with.

    Raises:
        InputError: File, encoder or an option cannot be used, or training diverges.
        StoreError: The store or `out` cannot be written.
    """
    from triaxial.c2gen.strategies import strategy_named

    persona = persona_of(PROFILE if file is None else read_profile(file))
    names = tuple(dict.fromkeys(strategies))
    if not names:
        raise InputError("nothing is chosen; give at least one", where="--strategies")
    size = max(1, len(persona.fold.stages[0]) // 3) if memory is None else memory
    grid = Grid(
        encoder,
        folds=(0,),
        streams=(persona.fold.stream.name,),
        strategies=names,
        seeds=(seed,),
        train=train,
        settings={"memory": size},
    )
    remedies = [strategy_named(name, grid.settings) for name in names]
    if memory is not None and not any(remedy.memory_size() for remedy in remedies):
        chosen = ", ".join(names)
        raise InputError(f"no chosen strategy ({chosen}) has one; leave it out", where="--memory")
    units = [Unit(persona.fold, remedy, seed) for remedy in remedies]
    # Workers read the items again: a file of the store, under a name that says what is in it.
    kept = Store(computing.store).stage(KIND, VERSION, {}, [digest(persona.items)])
    path = str(kept.path / "items.jsonl")
    write_jsonl(path, table_of(persona.items, Item))
    chains = jobs_of(units, path, grid, computing)
    if out is not None:
        key = digest([KIND, [chain[-1].stage.key for chain in chains.values()]])
        claim_directory(out, KIND, key, replace=overwrite)
    run_jobs(chains, computing)
    predictions, _ = predictions_of(chains, units, persona.items)
    judged = _judged(predictions, persona, names)
    jobs = {job.stage.key: job for chain in chains.values() for job in chain}
    found = {
        "schema": 1,
        "facts": len(persona.facts),
        "stages": len(persona.fold.stages),
        "trained": [len(rows) for rows in persona.fold.stages],
        "strategies": list(names),
        "memory": max(remedy.memory_size() for remedy in remedies),
        "seed": seed,
        "train": asdict(train),
        "seconds": sum(job.stage.manifest["facts"]["seconds"] for job in jobs.values()),
        "rows": [row for what, mine in judged.items() for row in _rows(what, mine)],
        "baselines": [row for what, mine in judged.items() for row in _baselines(what, mine)],
        "excerpt": _excerpt(judged["learned"], persona),
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
class _Judged:
    """What was judged, and what was answered.

    Args:
        rows: Items, shape (N,).
        owner: Their facts, shape (N,).
        since: Stage that learned the fact, 0-based, shape (N,).
        gold: Index in `LABELS`, shape (N,).
        simple: By name, what an answer without a model would be, shape (N,).
        said: By strategy, the answers after each stage, shape (stages, N).
    """

    rows: NDArray[np.intp]
    owner: NDArray[np.intp]
    since: NDArray[np.intp]
    gold: NDArray[np.intp]
    simple: dict[str, NDArray[np.intp]]
    said: dict[str, NDArray[np.intp]]

    def right(self, strategy: str) -> NDArray[np.intp]:
        """Whether each answer is right, 0 or 1, shape (stages, N)."""
        return np.asarray(self.said[strategy] == self.gold, dtype=np.intp)

    def scopes(self, after: int) -> dict[int, NDArray[np.bool_]]:
        """By stage of the facts, 1-based, and 0 = all that is known after a stage: which rows."""
        stages = np.unique(self.since).tolist()
        return {stage + 1: self.since == stage for stage in stages} | {0: self.since <= after}


def _judged(table: pl.DataFrame, persona: Persona, names: Sequence[str]) -> dict[str, _Judged]:
    """Answers by kind of judgement, from the table of predictions."""
    import polars as pl

    fold, items = persona.fold, persona.items
    index = {label.value: number for number, label in enumerate(LABELS)}
    labels = ((i.veridical_label, i.sick_label, i.label) for i in items)
    gold = np.asarray([[index[label] for label in each] for each in labels])  # (items, V N CI)
    place = {item.id: row for row, item in enumerate(items)}
    said = {name: np.zeros((len(fold.stages), len(items), 3), dtype=np.intp) for name in names}
    for (name,), frame in table.group_by("strategy"):
        at = frame["stage"].to_numpy() - 1, [place[item] for item in frame["item"]]
        for head, column in enumerate("vnc"):
            scores = frame.select(pl.col(f"^{column}[0-2]$")).to_numpy()
            said[str(name)][(*at, head)] = scores.argmax(axis=1)
    once = {items[row].pair_id: row for row in (*fold.probe, *fold.test)}
    parts = zip(WHAT, (fold.test, fold.probe, fold.unseen, tuple(once.values())), strict=True)
    owner = np.asarray(persona.owner)
    since = np.asarray([fact.stage - 1 for fact in persona.facts])[owner]
    found = {}
    for what, part in parts:
        if not part:
            continue
        rows = np.sort(np.asarray(part, dtype=np.intp))
        head = 1 if what == "bare facts" else 2
        simple = {"always neutral": np.ones(len(rows), dtype=np.intp)}
        if head == 2:
            simple |= {"V-only": gold[rows, 0], "N-only": gold[rows, 1]}
        answers = {name: every[:, rows, head] for name, every in said.items()}
        found[what] = _Judged(rows, owner[rows], since[rows], gold[rows, head], simple, answers)
    return found


def _rows(what: str, judged: _Judged) -> list[dict[str, Any]]:
    """Figures of every strategy, by the stage of the facts; the first strategy is the base."""
    names = list(judged.said)
    base = judged.right(names[0])
    last = len(base) - 1
    learned_last = judged.since == last
    out = []
    for facts in judged.scopes(last):
        for name in names:
            right = judged.right(name)
            then = right[judged.since, np.arange(len(judged.since))]
            mine = judged.scopes(last)[facts]
            older = mine & ~learned_last
            out.append(
                {
                    "what": what,
                    "facts": facts,
                    "strategy": name,
                    "after": {
                        str(s + 1): _figure(judged, right[s], judged.scopes(s)[facts])
                        for s in range(last + 1)
                    },
                    "forgotten": _figure(judged, then - right[last], older),
                    "gain": _figure(judged, right[last] - base[last], mine & (name != names[0])),
                }
            )
    return out


def _baselines(what: str, judged: _Judged) -> list[dict[str, Any]]:
    """The same of answers that need no model."""
    stages = len(next(iter(judged.said.values())))
    return [
        {
            "what": what,
            "facts": facts,
            "strategy": name,
            "after": {
                str(s + 1): _figure(judged, answer == judged.gold, judged.scopes(s)[facts])
                for s in range(stages)
            },
        }
        for facts in judged.scopes(0)
        for name, answer in judged.simple.items()
    ]


def _figure(
    judged: _Judged, values: NDArray[np.integer] | NDArray[np.bool_], which: NDArray[np.bool_]
) -> dict[str, Any] | None:
    """The mean of some values in percent, with an interval from resampled facts.

    One fact alone has no interval; `None` where nothing is left.
    """
    if not which.any():
        return None
    count = int(which.sum())
    mine = np.column_stack([np.ones(count, dtype=np.intp), values[which].astype(np.intp)])
    owner = judged.owner[which]
    found = bootstrap(
        mine,
        lambda sums: 100 * sums[..., 1] / sums[..., 0],
        clusters=owner,
        rng=generator("c2gen.profile.bootstrap"),
    )
    facts = len(np.unique(owner))
    low, high = (found.low, found.high) if facts > 1 else (None, None)
    return {"value": found.value, "low": low, "high": high, "n": count, "facts": facts}


def _excerpt(judged: _Judged, persona: Persona) -> dict[str, Any]:
    """Trained lines of earlier facts: some that the first strategy had right and lost, some others.

    Each fact is shown once before any is shown again, and the labels take turns.

    Returns:
        `strategies` (the first, and er-res or the second), `lost` of `of` lines, and `lines`.
    """
    names = list(judged.said)
    shown = [names[0], *(["er-res"] if "er-res" in names[1:] else names[1:2])]
    right = judged.right(names[0])
    there = np.arange(len(judged.rows))
    older = judged.since < len(right) - 1
    had = right[judged.since, there].astype(bool)
    lost = older & had & ~right[-1].astype(bool)
    picked = [
        *_spread(judged, there[lost], _LOST),
        *_spread(judged, there[older & ~lost], _KEPT),
    ]
    lines = []
    for at in picked:
        item, fact = persona.items[judged.rows[at]], persona.facts[judged.owner[at]]
        lines.append(
            {
                "line": item.sent1,
                "fact": fact.text,
                "facts": fact.stage,
                "utterance": item.sent2,
                "gold": item.label,
                "lost": bool(lost[at]),
                "answers": {
                    name: [LABELS[n].value for n in judged.said[name][:, at]] for name in shown
                },
            }
        )
    return {"strategies": shown, "lost": int(lost.sum()), "of": int(older.sum()), "lines": lines}


def _spread(judged: _Judged, places: NDArray[np.intp], count: int) -> list[int]:
    """Some places, spread over facts and labels."""
    order = generator("c2gen.profile.excerpt").permutation(len(places))
    left: list[int] = places[order].tolist()
    owner, gold = judged.owner.tolist(), judged.gold.tolist()
    facts: Counter[int] = Counter()
    labels: Counter[int] = Counter()
    picked: list[int] = []
    while left and len(picked) < count:
        best = min(left, key=lambda at: (facts[owner[at]], labels[gold[at]]))
        left.remove(best)
        facts[owner[best]] += 1
        labels[gold[best]] += 1
        picked.append(best)
    return sorted(picked)
