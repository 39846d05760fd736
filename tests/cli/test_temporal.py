"""`triax temporal` from end to end on a planted corpus and tiny models; every kind of bad input."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from triaxial.models.tiny import tiny_causal

Triax = Callable[..., tuple[int, str, str]]

SHAPE = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}
TEXT = "The minister said that the old farmer had {} the bridge near the river before the winter."
VERBS = ["built", "sold", "bought", "closed", "opened", "burnt", "seen", "crossed", "left", "lost"]


def run(*arguments: object) -> None:
    from triaxial.cli import _run

    assert _run([str(one) for one in arguments]) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planted corpus, its split, models `past` and `control`, and their evaluations."""
    root = tmp_path_factory.mktemp("temporal")
    store = ("--store", root / "store", "--quiet")
    (root / "shape.json").write_text(json.dumps(SHAPE))
    given = ("--documents", 240, "--first", "2016-01", "--months", 12, "--sentences", 3)
    run("temporal", "plant", "--out", root / "planted.jsonl", *given, "--new-words", 4)
    run("temporal", "ingest", root / "planted.jsonl", "--out", root / "corpus", *store)
    months = ("--test-from", "2016-10", "--test-to", "2016-12", "--per-month", 5)
    gap = ("--gap", 2, "--valid-months", 2)
    corpus = ("--corpus", root / "corpus")
    run("temporal", "split", *corpus, *months, *gap, "--out", root / "split", "--quiet")
    both = (*corpus, "--split", root / "split")
    training = ("--model", root / "shape.json", "--max-steps", 2, "--rows", 4, "--window", 32)
    for name, setup in (("past", "time-stratified"), ("control", "control")):
        pieces = ("--pieces", 512, "--validation", 4, "--setup", setup, "--out", root / name)
        run("temporal", "fit", *both, *training, *pieces, *store)
        run("temporal", "evaluate", root / name, *both, "--out", root / f"{name}-test", *store)
    return root


def both(made: Path) -> tuple[object, ...]:
    return ("--corpus", made / "corpus", "--split", made / "split")


def test_ingest_says_what_it_kept_and_left_out(made: Path, tmp_path: Path, triax: Triax) -> None:
    rows = [json.loads(line) for line in (made / "planted.jsonl").read_text().splitlines()[:6]]
    rows[3]["date"] = "2016-02-30"
    rows[4]["text"] = ""
    source = tmp_path / "some.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("temporal", "ingest", source, "--out", tmp_path / "c", "--store", tmp_path / "s")
    code, out, err = triax(*given, "--on-bad", "drop", "--crawled", "2015-01")
    assert code == 0, err
    assert "4 documents, " in out
    assert "dropped: 1 empty text, 1 impossible date" in out
    assert "flagged: 4 dated after the crawl" in out
    assert "next: `triax temporal split" in err
    assert "| 2016-01 | 4 |" in (tmp_path / "c" / "card.md").read_text()
    code, out, _ = triax(*given, "--on-bad", "drop", "--crawled", "2015-01", "--json")
    assert json.loads(out)["dropped"] == {"empty text": 1, "impossible date": 1}


def test_columns_and_other_formats(tmp_path: Path, triax: Triax) -> None:
    table = pl.DataFrame(
        {"key": ["a", "b"], "day": ["2020-01-05", "2020-02-05"], "body": [TEXT, TEXT + " Yes."]}
    )
    table.write_parquet(tmp_path / "t.parquet")
    given = ("temporal", "ingest", tmp_path / "t.parquet", "--store", tmp_path / "s", "--json")
    names = ("--columns", "id=key,date=day,text=body", "--keep-duplicates")
    code, out, err = triax(*given, "--out", tmp_path / "c", *names)
    assert code == 0, err
    assert json.loads(out)["months"] == ["2020-01", "2020-02"]
    code, _, err = triax(*given, "--out", tmp_path / "d", "--columns", "id")
    assert code == 2
    assert "--columns: cannot read 'id'; write id=NAME,date=NAME,text=NAME" in err
    folder = tmp_path / "texts"
    folder.mkdir()
    for month in (1, 2):
        (folder / f"news-2020-0{month}.txt").write_text(TEXT.format(VERBS[month]))
    texts = ("temporal", "ingest", f"text:{folder}", "--pattern", "news-{year}-{month}.txt")
    more = ("--store", tmp_path / "s", "--json", "--keep-duplicates")
    code, out, err = triax(*texts, *more, "--out", tmp_path / "e")
    assert code == 0, err
    assert json.loads(out)["documents"] == 2


def test_split_prints_counts_and_writes_series(made: Path, tmp_path: Path, triax: Triax) -> None:
    given = ("temporal", "split", "--corpus", made / "corpus", "--per-month", 5, "--gap", 2)
    months = ("--valid-months", 2, "--test-from", "2017-10", "--test-to", "2017-12", "--shift", 1)
    code, out, err = triax(*given, *months, "--out", tmp_path / "a")
    assert code == 0, err
    assert "test documents of a bin: 5 to 5" in out
    assert "no leak; next: `triax temporal fit" in err
    code, out, _ = triax(*given, *months, "--out", tmp_path / "b", "--gap-series", "2x2", "--json")
    assert code == 0
    found = json.loads(out)
    assert [found[name]["options"]["gap"] for name in found] == [2, 4, 6]
    code, _, err = triax(*given, *months, "--out", tmp_path / "b", "--gap-series", "2")
    assert code == 2
    assert "--gap-series: cannot read '2'; write MONTHSxTIMES, such as 6x11" in err
    code, out, _ = triax(
        *("temporal", "split", "--corpus", made / "corpus", "--per-month", 0, "--no-control"),
        *("--test-from", "2016-10", "--test-to", "2016-12", "--out", tmp_path / "c", "--json"),
    )
    assert code == 0
    assert {row["split"] for row in json.loads(out)["counts"]} == {"time-stratified"}


def test_fit_goes_on_and_says_what_it_did(made: Path, triax: Triax) -> None:
    given = ("--model", made / "shape.json", "--max-steps", 2, "--rows", 4, "--window", 32)
    more = ("--pieces", 512, "--validation", 4, "--store", made / "store", "--out", made / "past")
    code, out, err = triax("temporal", "fit", *both(made), *given, *more)
    assert code == 0, err
    assert "trained on 140 documents to 2016-07" in out
    assert "nats a piece on 4 validation documents" in out
    assert "next: `triax temporal evaluate" in err
    foreign = ("--foreign-vocabulary", made / "control")
    code, _, err = triax("temporal", "fit", *both(made), *given, *more, *foreign)
    assert code == 2
    assert "--foreign-vocabulary: is given, so that none is learned; leave out --kind" in err


def test_evaluate_prints_perplexity_by_bin(made: Path, triax: Triax) -> None:
    given = ("temporal", "evaluate", made / "past", *both(made), "--out", made / "past-test")
    code, out, err = triax(*given, "--store", made / "store", "--bin", "quarter")
    assert code == 0, err
    rows = [line.split()[0] for line in out.splitlines()]
    assert rows == ["bin", "2016-Q4", "all"]
    assert "next: `triax temporal analyse" in err
    code, out, _ = triax(*given, "--store", made / "store", "--json")
    found = json.loads(out)
    assert [row["bin"] for row in found["bins"]] == ["2016-10", "2016-11", "2016-12", "all"]
    assert found["setup"] == "time-stratified"
    assert found["context"] == 32  # a window of 64 less a stride of 32
    assert found["bins"][-1]["per_word"]["low"] < found["bins"][-1]["per_word"]["value"]


def test_adapt_and_analyse(made: Path, tmp_path: Path, triax: Triax) -> None:
    given = ("temporal", "adapt", made / "past", *both(made), "--store", made / "store")
    more = ("--parameters", "all,biases", "--rates", "0.01", "--valid-documents", 4)
    code, _, err = triax(*given, *more, "--out", tmp_path / "no")
    assert code == 2  # a Llama has no biases
    assert "biases" in err
    assert not (tmp_path / "no").exists()  # before anything was computed
    code, out, err = triax(*given, *more[2:], "--parameters", "all", "--out", tmp_path / "dyn")
    assert code == 0, err
    assert "all: learning rate 0.01, decay 0: perplexity" in out
    assert "updates of" in out
    runs = [f"past={made / 'past-test'}", f"control={made / 'control-test'}"]
    figures = ("--topics", 3, "--least", 2, "--terms", "minister,bank", "--out", tmp_path / "an")
    costs = ("--retrain-cost", 10, "--stale-cost", 1, "--store", made / "store")
    code, out, err = triax(
        *("temporal", "analyse", *runs, f"dyn={tmp_path / 'dyn' / 'all'}", *both(made)),
        *(*figures, *costs),
    )
    assert code == 0, err
    for text in ("Increase over the control", "part of speech", "topic", "emerging words", "Drift"):
        assert text in out
    assert "Retrain or adapt" in out
    assert "| run:dyn | model:past | control:control | adapt:all |" in out
    metrics = json.loads((tmp_path / "an" / "metrics.json").read_text())
    assert list(metrics["runs"]) == ["past", "control", "dyn"]
    assert [row["term"] for row in metrics["terms"]] == ["minister", "bank"]
    assert {row["kind"] for row in metrics["differences"]} == {"adaptation"}


def test_analyse_without_a_corpus_and_a_control(made: Path, tmp_path: Path, triax: Triax) -> None:
    given = ("temporal", "analyse", made / "past-test", "--tagger", "none", "--store", tmp_path)
    code, out, _ = triax(*given, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["curves"]["past-test"]["control_kind"] == "unigram"
    assert found["emerging"] is None
    assert not list(tmp_path.iterdir())
    for more, wanted in (
        (("--terms", "a,,b"), "--terms: cannot read 'a,,b'; write words with commas"),
        (("--retrain-cost", 1), "--retrain-cost, --stale-cost: give both, in one unit"),
        (("--cutoff", "2016"), "--cutoff: '2016' is not a month; wanted YYYY-MM"),
        ((f"past-test={made / 'past-test'}",), "the name 'past-test' is empty or taken"),
        ((tmp_path,), "is no finished evaluation; make it with `triax temporal evaluate`"),
    ):
        code, _, err = triax(*given, *more)
        assert code == 2
        assert wanted in err
        assert len(err.strip().splitlines()) == 1


def test_any_causal_lm_with_a_stated_cutoff(made: Path, tmp_path: Path, triax: Triax) -> None:
    model = tiny_causal(tmp_path / "lm", [TEXT], hidden=8, layers=1)
    given = ("temporal", "evaluate", model, "--corpus", made / "corpus", "--store", tmp_path / "s")
    code, _, err = triax(*given, "--out", tmp_path / "e")
    assert code == 2
    assert "state the month with --cutoff YYYY-MM" in err
    windows = ("--window", 32, "--stride", 8)
    code, out, err = triax(*given, "--out", tmp_path / "e", "--cutoff", "2016-11", *windows)
    assert code == 0, err
    assert "2016-12 " in out
    facts = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    assert (facts["context"], facts["cutoff"], facts["size"]) == (24, "2016-11", "8x1")

    # The tokenizer loses its start mark.
    bare = tmp_path / "bare"
    shutil.copytree(model, bare)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (bare / name).exists():
            config = json.loads((bare / name).read_text())
            config.pop("bos_token", None)
            (bare / name).write_text(json.dumps(config))
    given = ("temporal", "evaluate", bare, *given[3:], "--cutoff", "2016-11")
    code, _, err = triax(*given, "--out", tmp_path / "f")
    assert code == 2
    assert "its tokenizer has no start mark (BOS), so the first token" in err
    assert len(err.strip().splitlines()) == 1
    code, _, err = triax(*given, "--out", tmp_path / "f", "--separator", "</s>")
    assert code == 0, err


GOOD = {"id": "a", "date": "2020-01-05", "text": TEXT}


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "data", "wanted"),
    [
        ("x.jsonl", lines(GOOD, {**GOOD, "id": "b", "date": None}), "x.jsonl:2: the date is miss"),
        ("x.jsonl", lines({**GOOD, "date": "2021-02-30"}), "x.jsonl:1: there is no such date as"),
        ("x.jsonl", lines({**GOOD, "date": "05/01/2021"}), "x.jsonl:1: the date '05/01/2021' is"),
        ("x.jsonl", lines({**GOOD, "text": " "}), "x.jsonl:1: the text is empty"),
        ("x.jsonl", lines(GOOD, GOOD), "x.jsonl:2: the id 'a' stands in an earlier row"),
        ("x.jsonl", lines(GOOD).replace(b"river", b"\xff\xfe"), "0xff, is not UTF-8; save the"),
        ("x.jsonl.gz", gzip.compress(lines(*[GOOD] * 50))[:-20], "cannot be read after "),
        ("x.jsonl", b"", "x.jsonl: no document is left (there are no rows)"),
        ("x.pdf", b"", "the name does not say the format; write FORMAT:"),
    ],
)
def test_bad_sources_are_one_line(
    name: str, data: bytes, wanted: str, tmp_path: Path, triax: Triax
) -> None:
    (tmp_path / name).write_bytes(data)
    code, out, err = triax(
        *("temporal", "ingest", tmp_path / name, "--out", tmp_path / "c"),
        *("--store", tmp_path / "s"),
    )
    assert (code, out) == (2, "")
    assert wanted in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("months", "more", "wanted"),
    [
        (("2016-10", "2018-01"), (), "the corpus is of 2016-01 to 2016-12; wanted a test to"),
        (("2016-10", "2016-13"), (), "are not two months in order; write them as 2018-01"),
        (("2016-10", "2016-12"), ("--group", "venue"), "--group: cannot read 'venue'"),
        (("2016-10", "2016-12"), ("--per-month", 20), "is left for CONTROL"),
    ],
)
def test_bad_splits_are_one_line(
    months: tuple[str, str], more: tuple[object, ...], wanted: str, made: Path, triax: Triax
) -> None:
    given = ("temporal", "split", "--corpus", made / "corpus", "--per-month", 5)
    period = ("--test-from", months[0], "--test-to", months[1])
    code, _, err = triax(*given, *period, *more, "--out", made / "no-split")
    assert code == 2
    assert wanted in err
    assert len(err.strip().splitlines()) == 1
    assert not (made / "no-split").exists()


def test_a_month_without_test_documents(tmp_path: Path, triax: Triax) -> None:
    rows = [
        {"id": f"{month}-{n}", "date": f"2020-{month:02d}-05", "text": f"{month} {n} " + verb}
        for month in (1, 2, 3, 4, 5, 6, 9, 10, 12)
        for n in range(10)
        for verb in [TEXT.format(f"{VERBS[n]} {VERBS[month % 10]} and {n * 17 + month}")]
    ]
    (tmp_path / "x.jsonl").write_bytes(lines(*rows))
    source = ("temporal", "ingest", tmp_path / "x.jsonl", "--out", tmp_path / "c")
    code, _, err = triax(*source, "--store", tmp_path / "s", "--keep-duplicates")
    assert code == 0, err
    given = ("temporal", "split", "--corpus", tmp_path / "c", "--test-from", "2020-10")
    more = ("--test-to", "2020-12", "--per-month", 3, "--gap", 1, "--valid-months", 1)
    given = (*given, *more, "--no-near-duplicates", "--out", tmp_path / "d")
    code, _, err = triax(*given)
    assert code == 2
    assert "no test document in 2020-11; move the test period or widen --bin" in err
    assert len(err.strip().splitlines()) == 1
    code, out, err = triax(*given, "--allow-empty")
    assert code == 0, err
    assert "without test documents: 2020-11" in out


def test_near_duplicates_of_test_documents_are_found(tmp_path: Path, triax: Triax) -> None:
    rows = [
        {"id": f"{month}-{n}", "date": f"2020-{month:02d}-05", "text": f"{text} {text[::-1]}"}
        for month in range(1, 13)
        for n in range(10)
        for text in [TEXT.format(f"{VERBS[n]} {n * 31 + month * 7} {VERBS[month % 10]}")]
    ]
    copy = rows[5]["text"]
    rows = [{**row, "text": copy if row["date"][:7] == "2020-12" else row["text"]} for row in rows]
    (tmp_path / "x.jsonl").write_bytes(lines(*rows))
    source = ("temporal", "ingest", tmp_path / "x.jsonl", "--out", tmp_path / "c")
    keep = ("--keep-duplicates", "--language", "any")
    code, _, err = triax(*source, "--store", tmp_path / "s", *keep)
    assert code == 0, err
    given = ("temporal", "split", "--corpus", tmp_path / "c", "--test-from", "2020-12")
    more = ("--test-to", "2020-12", "--per-month", 3, "--gap", 1, "--valid-months", 1)
    code, _, err = triax(*given, *more, "--out", tmp_path / "d")
    assert code == 2
    assert "is a copy of" in err
    code, _, err = triax(*given, *more, "--out", tmp_path / "d", "--no-near-duplicates")
    assert code == 0, err


def test_directories_of_another_kind_are_refused(made: Path, tmp_path: Path, triax: Triax) -> None:
    fit = ("temporal", "fit", "--out", tmp_path / "m")
    code, _, err = triax(*fit, "--corpus", made / "split", "--split", made / "split")
    assert code == 2
    assert "is no finished corpus; make it with `triax temporal ingest`" in err
    code, _, err = triax(*fit, "--corpus", made / "corpus", "--split", made / "corpus")
    assert code == 2
    assert "is no finished split; make it with `triax temporal split`" in err
    given = ("temporal", "ingest", made / "planted.jsonl", "--store", tmp_path / "s")
    code, _, err = triax(*given, "--out", made / "split")
    assert code == 2
    assert "holds a run of kind 'temporal.split'; choose an empty or a new directory" in err


def test_plant_tells_what_it_planted(tmp_path: Path, triax: Triax) -> None:
    given = ("temporal", "plant", "--out", tmp_path / "p.jsonl", "--documents", 12, "--months", 3)
    code, out, err = triax(*given, "--stationary", "--new-words", 2)
    assert code == 0, err
    assert "12 documents of 3 months" in out
    assert "next: `triax temporal ingest" in err
    truth = json.loads((tmp_path / "p.truth.json").read_text())
    assert set(truth["new"].values()) == {"2010-01"}  # all there from the first month on
    code, out, _ = triax(*given, "--stationary", "--new-words", 2, "--json")
    assert json.loads(out)["documents"] == 12
    code, _, err = triax(*given, "--new-share", "2")
    assert code == 2
    assert "wanted 0 to 1000, and a share in 0..1" in err


def test_a_budget_samples_the_months_and_all_models_alike(
    made: Path, tmp_path: Path, triax: Triax, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triaxial.api import temporal_evaluate

    monkeypatch.setattr(temporal_evaluate, "_PILOT", 3)
    fits = iter((6, 9))
    monkeypatch.setattr(temporal_evaluate, "fitting", lambda *_: next(fits))
    chosen = []
    for name in ("past", "control"):
        given = ("temporal", "evaluate", made / name, *both(made), "--out", tmp_path / name)
        code, _, err = triax(*given, "--store", tmp_path / "store", "--budget", "5m")
        assert code == 0
        assert "WARNING: a sample of 6 of 15 documents, to fit 5m" in err
        chosen.append(pl.read_parquet(tmp_path / name / "documents.parquet")["document"].to_list())
    # The second model takes what the first decided: they compare on the same documents.
    assert chosen[0] == chosen[1]
    months = [json.loads(line) for line in (made / "planted.jsonl").read_text().splitlines()]
    of = {row["id"]: row["date"][:7] for row in months}
    assert sorted(of[name] for name in chosen[0]) == sorted(["2016-10", "2016-11", "2016-12"] * 2)
