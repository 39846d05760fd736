"""The time axis in the store: shards that are killed and taken up, what is shared, what decides."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from triaxial.api import temporal_ingest
from triaxial.api.temporal import AnalyseOptions, analyse, fit
from triaxial.api.temporal_adapt import AdaptRequest, adapt
from triaxial.api.temporal_corpus import (
    SplitRules,
    entries_of,
    plant_corpus,
    read_split,
    split_corpus,
    split_series,
)
from triaxial.api.temporal_evaluate import EvaluateOptions, evaluate, read_evaluation
from triaxial.api.temporal_ingest import ReadOptions, ingest
from triaxial.errors import InputError, StoreError
from triaxial.execute import Computing
from triaxial.models.fit import FitOptions
from triaxial.models.xl_config import XLConfig
from triaxial.store import read_json
from triaxial.temporal import stages
from triaxial.temporal.analyses import SummaryOptions
from triaxial.temporal.corpus import CorpusOptions, Document
from triaxial.temporal.planted import PlantOptions
from triaxial.temporal.splits import SplitOptions, make_splits
from triaxial.temporal.stages import open_corpus, tags_of, training_words
from triaxial.temporal.topics import TopicOptions
from triaxial.temporal.train import TrainOptions
from triaxial.temporal.vocabulary import VocabularyOptions
from triaxial.temporal.words import training_counts

PLANT = PlantOptions(documents=240, first="2016-01", months=12, sentences=3, new_words=4)
SPLIT = SplitOptions("2016-10", "2016-12", per_month=5, gap=2, valid_months=2)
SHAPE = XLConfig(
    9, d_model=16, heads=2, layers=1, d_inner=32, segment=16, memory_train=16, memory_test=32
)
TRAIN = TrainOptions(SHAPE, rows=4, validation=0, fit=FitOptions(max_steps=2, learning_rate=0.01))
PIECES = VocabularyOptions(size=512)
ENGLISH = "The old farmer told the {0} children that the {0} river had been {0} all winter."


@dataclass(frozen=True, slots=True)
class World:
    """A planted corpus with a split, a model of the past and its control."""

    root: Path
    corpus: Path
    split: Path
    past: str
    control: str
    computing: Computing


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("world")
    computing = Computing(root / "store", "cpu")
    plant_corpus(root / "planted.jsonl", PLANT)
    ingest([str(root / "planted.jsonl")], root / "corpus", computing=computing)
    split_corpus(root / "corpus", root / "split", SPLIT)
    for setup in ("time-stratified", "control"):
        fit(
            *(root / "corpus", root / "split", root / setup, setup, TRAIN, PIECES, computing),
            precision="fp32",
        )
    models = (str(root / setup) for setup in ("time-stratified", "control"))
    return World(root, root / "corpus", root / "split", *models, computing)


@pytest.fixture
def own(tmp_path: Path) -> Computing:
    """A store of the test's own."""
    return Computing(tmp_path / "store", "cpu")


# Ingest.


def written(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows_of(count: int, prefix: str = "d") -> list[dict[str, Any]]:
    words = ["green", "quiet", "broad", "frozen", "muddy", "silver", "narrow", "old", "dry", "wet"]
    return [
        {"id": f"{prefix}{n}", "date": f"2020-{n % 12 + 1:02d}-03", "text": text, "source": "s"}
        for n in range(count)
        for text in [" ".join(ENGLISH.format(words[(n + k) % 10] + str(n)) for k in range(2))]
    ]


def content(directory: Path) -> dict[str, bytes]:
    """Bytes of every file but the manifest, which tells the time."""
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.name != "manifest.json"}


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A source of several shards with one of each fault, in different shards."""
    monkeypatch.setattr(temporal_ingest, "SHARD_BYTES", 1000)
    rows = rows_of(20)
    french = "Le vieux fermier a dit aux enfants que la rivière était gelée depuis tout l'hiver."
    rows[5] |= {"text": french}
    rows[15] |= {"id": rows[2]["id"]}  # twice, in two shards
    rows[17] |= {"id": rows[5]["id"]}  # as a document that is not kept
    rows[18] |= {"text": rows[1]["text"], "date": "2021-01"}  # a copy, later
    rows[19] |= {"text": " "}
    return written(tmp_path / "mixed.jsonl", rows)


DROP = ReadOptions(CorpusOptions(on_bad="drop"))


def killed_at(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter(range(1000))

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    return wrapped


def test_ingest_after_a_kill_equals_an_uninterrupted_one(
    mixed: str, tmp_path: Path, own: Computing, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = ingest([mixed], tmp_path / "whole", DROP, computing=own)
    assert facts["documents"] == 15
    assert facts["dropped"] == {
        "duplicate id": 2,
        "empty text": 1,
        "language fr": 1,
        "near-duplicate": 1,
    }
    duplicates = pl.read_parquet(tmp_path / "whole" / "duplicates.parquet")
    assert duplicates.rows() == [("d18", "d1", 1.0)]
    assert len(open_corpus(tmp_path / "whole").parts) > 2

    other = replace(own, store=tmp_path / "other")
    real = temporal_ingest._shard_tables
    with monkeypatch.context() as patch:
        patch.setattr(temporal_ingest, "_shard_tables", killed_at(4, real))
        with pytest.raises(KeyboardInterrupt):
            ingest([mixed], tmp_path / "again", DROP, computing=other)
    assert not read_json(tmp_path / "again" / "manifest.json")["complete"]
    with pytest.raises(StoreError, match="is no finished corpus; make it with"):
        open_corpus(tmp_path / "again")
    read: list[Any] = []

    def counted(*args: Any) -> Any:
        read.append(args[2])
        return real(*args)

    monkeypatch.setattr(temporal_ingest, "_shard_tables", counted)
    assert ingest([mixed], tmp_path / "again", DROP, computing=other) == facts
    assert 0 not in {shard.start for shard in read}  # the first shards were there
    assert content(tmp_path / "again") == content(tmp_path / "whole")


def test_an_id_that_stands_twice_is_refused_with_its_row_after_a_resume_too(
    tmp_path: Path, own: Computing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporal_ingest, "SHARD_BYTES", 1000)
    rows = rows_of(20)
    rows[15] |= {"id": "d2"}
    source = written(tmp_path / "twice.jsonl", rows)
    wanted = r"twice\.jsonl:16: the id 'd2' stands in an earlier row"
    for _ in range(2):
        with pytest.raises(InputError, match=wanted):
            ingest([source], tmp_path / "corpus", computing=own)


def test_several_sources_and_a_new_one(
    tmp_path: Path, own: Computing, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = written(tmp_path / "a.jsonl", rows_of(6))
    second = written(tmp_path / "b.jsonl", [*rows_of(4, "e"), rows_of(1)[0] | {"text": ENGLISH}])
    with pytest.raises(InputError, match=r"b\.jsonl: its id 'd0' stands in .*a\.jsonl too; give"):
        ingest([first, second], tmp_path / "refused", computing=own)
    ingest([first], tmp_path / "one", DROP, computing=own)
    read: list[str] = []
    real = temporal_ingest._shard_tables
    monkeypatch.setattr(
        temporal_ingest, "_shard_tables", lambda *args: (read.append(args[0]), real(*args))[1]
    )
    facts = ingest([first, second], tmp_path / "two", DROP, computing=own)
    assert set(read) == {second}  # the first source was read before
    assert facts["dropped"] == {"duplicate id": 1, "near-duplicate": 4}  # e0 to e3 are d0 to d3
    with pytest.raises(InputError, match="is given twice; name it once"):
        ingest([first, first], tmp_path / "three", computing=own)


def test_reading_by_several_processes_changes_nothing(
    mixed: str, tmp_path: Path, own: Computing, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest([mixed], tmp_path / "one", DROP, computing=own)
    asked: list[int] = []

    def run(function: Any, shards: Sequence[Any], *, workers: int, **ray: Any) -> Any:
        asked.append(workers)
        there = pickle.loads(pickle.dumps(function))  # as a process of its own gets it
        return ((n, there(shard)) for n, shard in enumerate(shards))

    monkeypatch.setattr(temporal_ingest.execute, "run", run)
    several = replace(own, store=tmp_path / "several", workers=2)
    ingest([mixed], tmp_path / "two", DROP, computing=several)
    assert asked == [2]
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_nothing_left_is_an_error(tmp_path: Path, own: Computing) -> None:
    source = written(tmp_path / "a.jsonl", rows_of(3))
    german = replace(DROP, language="de")
    with pytest.raises(InputError, match=r"no document is left \(3 language en\)"):
        ingest([source], tmp_path / "corpus", german, computing=own)
    with pytest.raises(InputError, match="language 'xx' is not one of"):
        ingest([source], tmp_path / "corpus", replace(DROP, language="xx"), computing=own)
    with pytest.raises(InputError, match="no source; name at least one"):
        ingest([], tmp_path / "corpus", computing=own)


def test_the_key_of_a_source_holds_what_decides(tmp_path: Path, own: Computing) -> None:
    source = written(tmp_path / "a.jsonl", rows_of(3))

    def key(options: ReadOptions = DROP, computing: Computing = own) -> str:
        return temporal_ingest._source_rows(source, options, computing).stage.key

    first = key()
    assert key(computing=replace(own, workers=3, store=tmp_path / "x")) == first
    others = {
        key(replace(DROP, language=None)),
        key(ReadOptions()),
        key(replace(DROP, corpus=replace(DROP.corpus, crawled="2020-05"))),
    }
    written(tmp_path / "a.jsonl", rows_of(4))
    others.add(key())
    assert len(others | {first}) == 5


def test_a_corpus_is_read_again_and_again(world: World) -> None:
    corpus = open_corpus(world.corpus)
    first = list(corpus)
    assert first == list(corpus)
    assert len(first) == 240
    assert isinstance(first[0], Document)
    ids = [one.id for one in first[3:9]]
    assert [one.id for one in corpus.only(ids)] == ids
    planted = [json.loads(line) for line in (world.root / "planted.jsonl").read_text().splitlines()]
    assert [asdict(one) for one in first] == planted


# Splits and planted corpora.


def test_a_split_is_read_as_it_was_made(world: World) -> None:
    found = read_split(world.split)
    entries = entries_of(open_corpus(world.corpus))
    assert tuple(found.splits.values()) == make_splits(entries, SPLIT)
    assert found.options == SPLIT
    words = {entry.id: entry.words for entry in entries}
    test = [row for row in found.counts if (row.split, row.part) == ("control", "test")]
    assert [(row.bin, row.documents) for row in test] == [
        *(("2016-10", 5), ("2016-11", 5), ("2016-12", 5)),
    ]
    assert sum(row.words for row in test) == sum(words[n] for n in found.named("control").test)
    with pytest.raises(InputError, match="has no split 'past'; choose from time-stratified, con"):
        found.named("past")


def test_a_series_of_gaps_has_one_size_and_one_control(world: World, tmp_path: Path) -> None:
    found = split_series(world.corpus, tmp_path, SPLIT, step=2, times=2)
    assert list(found) == ["gap-002", "gap-004", "gap-006"]
    read = [read_split(tmp_path / name) for name in found]
    assert {len(one.named("time-stratified").train) for one in read} == {60}  # 3 months of 20
    assert len({one.named("control") for one in read}) == 1
    with pytest.raises(InputError, match="0 times 2 months; wanted at least 1 of each"):
        split_series(world.corpus, tmp_path, SPLIT, step=2, times=0)


def test_groups_by_column_and_by_expression(world: World) -> None:
    corpus = open_corpus(world.corpus)
    assert {entry.group for entry in entries_of(corpus, "source")} == {"planted"}
    months = {entry.group for entry in entries_of(corpus, r"date:^(\d{4}-\d\d)")}
    assert months == {f"2016-{n:02d}" for n in range(1, 13)}
    for group, wanted in (
        ("venue", "cannot read 'venue'; it begins with date, source or id"),
        ("id:(", "is no regular expression"),
        ("id:^x", "'^x' is not in the id 'planted-0000000'"),
    ):
        with pytest.raises(
            InputError, match=f"--group: .*{wanted.replace('^', '.').replace('(', '.')}"
        ):
            entries_of(corpus, group)


def test_a_split_of_editions_divides_none(world: World, tmp_path: Path) -> None:
    options = replace(SPLIT, per_month=10, unit="group")
    found = split_corpus(world.corpus, tmp_path / "by-date", options, SplitRules("date"))
    dates = {entry.id: entry.date for entry in entries_of(open_corpus(world.corpus))}
    one = found.named("control")
    test, train = ({dates[name] for name in part} for part in (one.test, one.train))
    assert not test & train


def test_a_planted_file_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "planted.jsonl"
    small = replace(PLANT, documents=12)
    counts = plant_corpus(path, small)
    truth = json.loads((tmp_path / "planted.truth.json").read_text())
    assert truth["options"]["documents"] == counts["documents"] == 12
    assert sum(truth["mentions"].values()) == counts["mentions"]
    plant_corpus(path, small)  # the same again
    with pytest.raises(StoreError, match="holds something else; choose another name"):
        plant_corpus(path, replace(small, seed=2))
    before = path.read_bytes()
    plant_corpus(path, replace(small, seed=2), overwrite=True)
    assert path.read_bytes() != before
    with pytest.raises(InputError, match=r"does not end in \.jsonl"):
        plant_corpus(tmp_path / "planted.json")


# Scores.

FP32 = EvaluateOptions(precision="fp32")


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each call of a model scored."""
    from triaxial.models.causal import CausalLM

    real, calls = CausalLM.score, []

    def score(self: Any, texts: Sequence[str], progress: Any = None) -> Any:
        calls.append(len(texts))
        return real(self, texts, progress)

    monkeypatch.setattr(CausalLM, "score", score)
    return calls


def tables(directory: Path) -> list[bytes]:
    return [(directory / f"{name}.parquet").read_bytes() for name in ("words", "documents")]


def test_an_evaluation_after_a_kill_equals_an_uninterrupted_one(
    world: World, tmp_path: Path, own: Computing, scored: list[int], monkeypatch: Any
) -> None:
    from triaxial.models.causal import CausalLM

    monkeypatch.setattr(stages, "DOCUMENTS_A_SHARD", 2)
    whole = evaluate(world.past, world.corpus, tmp_path / "a", world.split, FP32, own)
    assert scored == [2, 2, 1] * 3
    documents = whole.evaluation.documents
    assert documents["document"].to_list() == list(
        read_split(world.split).named("time-stratified").test
    )
    assert documents["words"].sum() == len(whole.evaluation.words)
    facts = whole.facts
    assert (facts["setup"], facts["size"], facts["tokenizer"]) == ("time-stratified", "16x1", "own")
    assert (facts["context"], facts["precision"], facts["cutoff"]) == (32, "fp32", "2016-07")
    assert facts["cost"]["pieces"] == documents["pieces"].sum()
    assert facts["cost"]["seconds"] > 0

    other = replace(own, store=tmp_path / "other")
    with monkeypatch.context() as patch:
        patch.setattr(CausalLM, "score", killed_at(4, CausalLM.score))
        with pytest.raises(KeyboardInterrupt):
            evaluate(world.past, world.corpus, tmp_path / "b", world.split, FP32, other)
    with pytest.raises(StoreError, match="is no finished evaluation; make it with"):
        read_evaluation(tmp_path / "b")
    scored.clear()
    again = evaluate(world.past, world.corpus, tmp_path / "b", world.split, FP32, other)
    assert scored == [2, 1, 2, 2, 1]  # the first shard of the second month was there
    assert tables(tmp_path / "b") == tables(tmp_path / "a")
    assert again.key == whole.key
    scored.clear()
    evaluate(world.past, world.corpus, tmp_path / "b", world.split, FP32, other)
    evaluate(world.past, world.corpus, tmp_path / "c", world.split, FP32, other)
    assert scored == []


def test_of_a_corpus_that_grew_only_what_is_new_is_scored(
    world: World, tmp_path: Path, own: Computing, scored: list[int]
) -> None:
    lines = (world.root / "planted.jsonl").read_text().splitlines(keepends=True)
    sizes = []
    for name, count in (("old", 220), ("new", 240)):
        (tmp_path / "planted.jsonl").write_text("".join(lines[:count]))
        ingest([str(tmp_path / "planted.jsonl")], tmp_path / name, computing=own)
        found = evaluate(world.past, tmp_path / name, tmp_path / f"e-{name}", None, FP32, own)
        sizes.append(len(found.evaluation.documents))
    assert sizes == [80, 100]  # after July, four and five months of 20
    assert scored == [20] * 5


def test_a_model_is_put_to_nothing_that_it_may_have_seen(
    world: World, tmp_path: Path, own: Computing, monkeypatch: Any
) -> None:
    def error(model: str, split: Path | None, options: EvaluateOptions = FP32) -> str:
        with pytest.raises((InputError, StoreError)) as caught:
            evaluate(model, world.corpus, tmp_path / "e", split, options, own)
        return str(caught.value)

    early = replace(SPLIT, test_from="2016-07", test_to="2016-08", gap=1, valid_months=1)
    split_corpus(world.corpus, tmp_path / "early", early)
    assert "its tokenizer was trained on" in error(world.past, tmp_path / "early")
    foreign = tmp_path / "foreign"
    shutil.copytree(world.past, foreign)
    facts = json.loads((foreign / "training.json").read_text())
    (foreign / "training.json").write_text(json.dumps(facts | {"foreign_vocabulary": True}))
    wanted = "but its training ended with 2016-07; choose a split that begins later"
    assert wanted in error(str(foreign), tmp_path / "early")
    (foreign / "training.json").unlink()
    assert "state the month with --cutoff YYYY-MM" in error(str(foreign), world.split)
    stated = replace(FP32, cutoff="2016-07")
    assert (
        len(
            evaluate(
                str(foreign), world.corpus, tmp_path / "x", None, stated, own
            ).evaluation.documents
        )
        == 100
    )
    assert "no document after 2016-12" in error(str(foreign), None, replace(FP32, cutoff="2016-12"))
    assert "'2016-7' is not a month" in error(world.past, None, replace(FP32, cutoff="2016-7"))
    assert "states 2016-01, but it was" in error(world.past, None, replace(FP32, cutoff="2016-01"))
    assert "--valid: needs a split" in error(world.past, None, replace(FP32, valid=True))
    control = replace(FP32, setup="control")
    assert "--cutoff: is not given, nor a split" in error(str(foreign), None, control)
    other = tmp_path / "corpus"
    source = written(tmp_path / "a.jsonl", rows_of(3))
    ingest([source], other, computing=own)
    with pytest.raises(InputError, match="was made from another corpus than"):
        evaluate(world.past, other, tmp_path / "e", world.split, FP32, own)


def test_validation_documents_are_scored_when_asked(
    world: World, tmp_path: Path, own: Computing
) -> None:
    valid = replace(FP32, valid=True)
    found = evaluate(world.past, world.corpus, tmp_path / "v", world.split, valid, own)
    assert found.facts["part"] == "valid"
    assert set(found.evaluation.documents["document"]) == set(
        read_split(world.split).named("time-stratified").valid
    )


# Dynamic evaluation.

REQUEST = AdaptRequest(learning_rate=0.1)


def test_adapting_after_a_kill_equals_an_uninterrupted_run(
    world: World, tmp_path: Path, own: Computing, monkeypatch: Any
) -> None:
    from triaxial.api import temporal_adapt
    from triaxial.temporal import dynamic

    monkeypatch.setattr(temporal_adapt, "_SHARD", 4)
    given = (world.split, REQUEST, FP32)
    whole = adapt(world.past, world.corpus, tmp_path / "a", *given, own)["all"]
    assert whole.evaluation.adaptation == "all"
    assert whole.facts["cost"]["updates"] > 0
    other = replace(own, store=tmp_path / "other")
    with monkeypatch.context() as patch:
        patch.setattr(dynamic, "write_state", killed_at(2, dynamic.write_state))
        with pytest.raises(KeyboardInterrupt):
            adapt(world.past, world.corpus, tmp_path / "b", *given, other)
    read: list[int] = []
    real = dynamic.document_tables

    def counted(documents: Sequence[Document], scores: Any) -> Any:
        read.append(len(documents))
        return real(documents, scores)

    monkeypatch.setattr(dynamic, "document_tables", counted)
    again = adapt(world.past, world.corpus, tmp_path / "b", *given, other)["all"]
    assert read == [4, 3]  # of 15: 8 have a state, the third shard was written without one
    assert tables(tmp_path / "b" / "all") == tables(tmp_path / "a" / "all")
    assert again.facts["cost"]["updates"] == whole.facts["cost"]["updates"]
    adapt(world.past, world.corpus, tmp_path / "b", *given, other)
    assert read == [4, 3]


def test_settings_are_chosen_on_validation_months_and_sets_run_in_one_call(
    world: World, tmp_path: Path, own: Computing
) -> None:
    request = AdaptRequest(("all", "biases"), rates=(0.1,), valid_documents=4)
    found = adapt(world.past, world.corpus, tmp_path, world.split, request, FP32, own)
    assert list(found) == ["all", "biases"]
    for name, one in found.items():
        tried = one.facts["choice"]["tried"]
        assert [row["learning_rate"] for row in tried] == [0.0, 0.1]
        best = min(tried, key=lambda row: row["per_word"])
        assert one.facts["settings"]["learning_rate"] == best["learning_rate"]
        assert one.facts["adaptation"] == name
    weights = [one.facts["cost"]["weights"] for one in found.values()]
    assert weights[0] > weights[1] > 0


def test_a_learning_rate_of_nothing_is_static(world: World, tmp_path: Path, own: Computing) -> None:
    request = AdaptRequest(learning_rate=0.0)
    still = adapt(world.past, world.corpus, tmp_path / "a", world.split, request, FP32, own)["all"]
    static = evaluate(world.past, world.corpus, tmp_path / "b", world.split, FP32, own)
    assert still.evaluation.adaptation == ""
    ours, theirs = still.evaluation.words["log_p"], static.evaluation.words["log_p"]
    assert (ours - theirs).abs().max() < 1e-4
    assert still.facts["cost"]["updates"] == 0


def test_statistics_are_of_training_documents_and_shared(
    world: World, tmp_path: Path, own: Computing
) -> None:
    request = AdaptRequest(("all", "biases"), 1e-4, rule="rms", statistics_documents=5)
    found = adapt(world.past, world.corpus, tmp_path, world.split, request, FP32, own)
    assert len(list(own.store.glob("temporal.statistics-*"))) == 1
    assert {one.facts["settings"]["rule"] for one in found.values()} == {"rms"}


@pytest.mark.parametrize(
    ("request_", "split", "wanted"),
    [
        (AdaptRequest(), False, "--split: is not given; name one, or give a --learning-rate"),
        (replace(REQUEST, rule="rms"), False, "--split: is not given"),
        (AdaptRequest(decay=0.1), True, "--decay: goes with --learning-rate"),
        (replace(REQUEST, rates=(0.1,)), True, "--learning-rate: is given, so that nothing is"),
        (AdaptRequest(("all", "all")), True, "--parameters: is 'all,all'; name each set once"),
        (AdaptRequest(("heads",)), True, "parameters: is 'heads'; it must be one of all"),
        (AdaptRequest(valid_documents=0), True, "--valid-documents: 0 and 2000 documents; wanted"),
    ],
)
def test_bad_requests_are_refused(
    request_: AdaptRequest, split: bool, wanted: str, world: World, tmp_path: Path, own: Computing
) -> None:
    with pytest.raises(InputError) as caught:
        adapt(
            *(world.past, world.corpus, tmp_path, world.split if split else None),
            *(request_, FP32, own),
        )
    assert wanted in str(caught.value)


# What the analyses join.


@pytest.fixture(scope="module")
def evaluated(world: World) -> dict[str, Path]:
    found = {"past": world.root / "e-past", "control": world.root / "e-control"}
    for name, out in found.items():
        evaluate(getattr(world, name), world.corpus, out, world.split, FP32, world.computing)
    return found


ANALYSE = AnalyseOptions(SummaryOptions(least=2), topics=TopicOptions(3, least=2))


def test_tags_topics_and_counts_are_made_once_for_all_models(
    world: World, evaluated: dict[str, Path], tmp_path: Path, own: Computing
) -> None:
    given = (world.corpus, world.split, ANALYSE, own)
    metrics = analyse(evaluated, *given, out=tmp_path / "out")
    assert read_json(tmp_path / "out" / "metrics.json") == metrics
    made = sorted(path.name.split("-")[0] for path in own.store.iterdir())
    assert made == ["temporal.counts", "temporal.tags", "temporal.topics"]
    assert metrics["cutoff"] == "2016-07"
    assert {row["cell"] for row in metrics["tags"]["rows"]} >= {"NOUN", "VERB", "PROPN"}
    assert all(row["top"] for row in metrics["topics"]["rows"])
    assert metrics["emerging"]["least"] == 2
    assert metrics["costs"]["past"]["seconds"][0] > 0
    assert "run:past | model:time-stratified | control:control" in metrics["signatures"]["past"]
    times = {path: path.stat().st_mtime_ns for path in own.store.rglob("*.parquet")}
    analyse({"control": evaluated["control"], "past": evaluated["past"]}, *given)
    assert {path: path.stat().st_mtime_ns for path in own.store.rglob("*.parquet")} == times


def test_counts_of_training_are_those_of_the_whole(world: World, own: Computing) -> None:
    corpus, split = open_corpus(world.corpus), read_split(world.split).named("time-stratified")
    ids = set(split.train)
    wanted = training_counts(one for one in corpus if one.id in ids)
    assert training_words(corpus, split, own).equals(wanted)


def test_words_are_tagged_by_sentences_within_documents(own: Computing, monkeypatch: Any) -> None:
    said: list[list[str]] = []
    real = stages._tagged

    def spied(tagger: str, sentences: Sequence[Sequence[str]]) -> pl.DataFrame:
        said.extend(list(one) for one in sentences)
        return real(tagger, sentences)

    monkeypatch.setattr(stages, "_tagged", spied)
    texts = ["Dogs", "bark", ".", "Cats", "sleep", "Birds", "sing", "!"] + ["word"] * 65
    table = pl.DataFrame({"document": ["a"] * 5 + ["b"] * 68, "text": texts})
    tags = tags_of(table, "hanta", own)
    assert len(tags) == 73
    assert tags[2] == "PUNCT"
    assert said == [
        *(["Dogs", "bark", "."], ["Cats", "sleep"], ["Birds", "sing", "!"]),
        *(["word"] * 64, ["word"]),
    ]
    said.clear()
    assert tags_of(table, "hanta", own).equals(tags)
    assert said == []


def test_names_of_runs_and_half_given_options(
    world: World, evaluated: dict[str, Path], own: Computing
) -> None:
    plain = AnalyseOptions(tagger=None)
    found = analyse([*evaluated.values()], options=plain, computing=own)
    assert list(found["runs"]) == ["e-past", "e-control"]
    assert (found["tags"], found["topics"], found["emerging"]) == (None, None, None)
    with pytest.raises(InputError, match="--split: is not given; corpus and split go together"):
        analyse([*evaluated.values()], world.corpus, options=plain, computing=own)
    with pytest.raises(InputError, match="--corpus: is not given"):
        analyse([*evaluated.values()], None, world.split, plain, own)
    with pytest.raises(StoreError, match=r"is named as .*; give names of your own"):
        analyse([evaluated["past"], evaluated["past"]], options=plain, computing=own)
    with pytest.raises(InputError, match="no evaluation; name at least one directory"):
        analyse([], options=plain, computing=own)


def test_a_vocabulary_is_shared_and_a_foreign_one_is_named(
    world: World, tmp_path: Path, evaluated: dict[str, Path]
) -> None:
    assert len(list(world.computing.store.glob("temporal.vocabulary-*"))) == 2  # one a setup
    out = tmp_path / "old"
    facts = fit(
        *(world.corpus, world.split, out, "time-stratified", TRAIN, None, world.computing),
        foreign_vocabulary=world.control,
        precision="fp32",
    )
    assert facts["foreign_vocabulary"]
    found = evaluate(str(out), world.corpus, tmp_path / "e", world.split, FP32, world.computing)
    assert found.evaluation.tokenizer == "control"
    metrics = analyse(
        {**evaluated, "old": tmp_path / "e"},
        options=AnalyseOptions(tagger=None),
        computing=world.computing,
    )
    assert [row["kind"] for row in metrics["differences"]] == ["tokenizer"]
