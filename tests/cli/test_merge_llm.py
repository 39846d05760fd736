"""`triax merge evaluate` with language models, samples, endpoints, and logs of other harnesses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose

from fake_endpoint import FakeEndpoint
from triaxial.api.merge_files import read_set
from triaxial.cli import _run
from triaxial.cli.merge_llm import prompt
from triaxial.models.choice import load_choice
from triaxial.models.tiny import tiny_causal
from triaxial.nli import LABELS, Pair
from triaxial.prompts import ChoiceOptions, PromptOptions, prefix
from triaxial.worlds import world


@pytest.fixture(scope="session")
def llm(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a set in `set`, a language model in `llm` and other pairs in `dev.jsonl`."""
    root = tmp_path_factory.mktemp("llm")
    made = world(3, sentences=30, training=30, seeds=24)
    shot = Pair("", "", "", LABELS[0])
    asked = [prefix(PromptOptions(style, examples=(shot,))) for style in ("letters", "words")]
    tiny_causal(root / "llm", [*made.words, *asked], hidden=64, longest=700)
    other = world(4, sentences=30, training=30, seeds=24).seeds
    lines = [
        json.dumps({"premise": p.premise, "hypothesis": p.hypothesis, "label": p.label.value})
        for p in other
    ]
    (root / "dev.jsonl").write_text("\n".join(lines) + "\n")
    given = ["merge", "generate", small / "pairs.csv", "--mlm", small / "mlm", "--k", 50]
    given += ["--out", root / "set", "--store", root / "store"]
    assert _run([str(one) for one in given]) == 0
    return root


FEW = ("--min-variants", "5", "--draws", "1")


def evaluate(llm: Path, out: Path, *more: object) -> list[str]:
    given = ["merge", "evaluate", llm / "set", "--out", out, "--store", out.parent / "store"]
    return [str(one) for one in (*given, *FEW, *more)]


def manifest(run: Path) -> dict[str, Any]:
    return json.loads((run / "manifest.json").read_text())["facts"]


def test_a_language_model_is_scored_with_examples_and_found_again(llm, tmp_path, triax) -> None:
    asked = ("--model", f"llm:{llm / 'llm'}", "--shots-from", llm / "dev.jsonl", "--shots", 3)
    code, out, err = triax(*evaluate(llm, tmp_path / "run", *asked))
    assert code == 0, err
    assert "language model forwards" in out
    assert "language model " in out.partition("time: ")[2]
    facts = manifest(tmp_path / "run")["models"]["llm"]
    assert facts["name"] == f"llm:{llm / 'llm'}"
    assert (facts["answers"], facts["examples"], facts["chat"]) == ("letters", "3", "none")
    table = pl.read_parquet(tmp_path / "run" / "predictions.parquet")
    assert (
        table.select(pl.sum_horizontal(pl.col("^log_p.*$").exp())) - 1
    ).to_series().abs().max() < 1e-5
    # The same again is read from the store; another way of asking is not.
    code, out, _ = triax(*evaluate(llm, tmp_path / "again", *asked))
    assert "llm: 0 language model forwards" in out
    again = pl.read_parquet(tmp_path / "again" / "predictions.parquet")
    assert again.equals(table)
    more = ("--answers", "words", "--normalize", "bytes", "--calibrate", "--instruction", "")
    code, out, err = triax(*evaluate(llm, tmp_path / "other", *asked, *more))
    assert code == 0, err
    assert "llm: 0 language model" not in out
    other = pl.read_parquet(tmp_path / "other" / "predictions.parquet")
    assert not other.equals(table)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--shots", 6], "--shots: needs pairs to draw examples from; pass --shots-from SOURCE"),
        (["--shots-split", "dev"], "--shots-split: needs pairs to draw examples from; pass --sh"),
        (
            ["--shots-from", "{dev}", "--shots-split", "a", "--shots-split", "b"],
            "--shots-split: 2 splits for 1 sources; wanted one for all, or one each",
        ),
        (["--shots-from", "{dev}", "--shots", 99], "shots: data set 1 of examples has too few"),
        (["--chat"], "{llm}: its tokenizer has no chat template; ask without one (--no-chat)"),
        (
            ["--concurrency", 3],
            "--concurrency: no model of this call reads it; name one as --model",
        ),
        (["--model", "endpoint:m"], "m: needs the URL of its server; pass --endpoint-url URL"),
        (["--estimate"], "--estimate: is of endpoints; name one as --model endpoint:NAME"),
        (["--sample-like", "run"], "--sample-like: needs a size; pass --sample N"),
        (["--model", "llm:{llm}"], "two models are called '{llm}'; score them in two runs"),
    ],
)
def test_options_that_nothing_reads_or_that_lack_something(
    llm, tmp_path, triax, more, message
) -> None:
    given = [
        str(one).format(dev=llm / "dev.jsonl", llm=llm / "llm") if "{" in str(one) else one
        for one in more
    ]
    call = evaluate(llm, tmp_path / "run", "--model", f"llm:{llm / 'llm'}", *given)
    code, _, err = triax(*call)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("triax: " + message.replace("{llm}", str(llm / "llm")))


def test_options_of_language_models_are_refused_for_a_classifier(
    llm, small, tmp_path, triax
) -> None:
    more = ("--model", small / "nli", "--answers", "words", "--shots", 6)
    code, _, err = triax(*evaluate(llm, tmp_path / "run", *more))
    assert code == 2
    assert err == (
        "triax: --shots, --answers: no model of this call reads it; name one as --model "
        "llm:NAME_OR_DIRECTORY or endpoint:NAME\n"
    )


def test_a_sample_keeps_labels_and_accuracy_and_says_so(llm, small, tmp_path, triax) -> None:
    model = ("--model", small / "nli")
    assert triax(*evaluate(llm, tmp_path / "whole", *model))[0] == 0
    whole = pl.read_parquet(tmp_path / "whole" / "predictions.parquet")
    gold = dict(pl.read_parquet(llm / "set" / "seeds.parquet").select("id", "label").iter_rows())

    def strata(run: Path) -> Counter[tuple[str, bool]]:
        table = pl.read_parquet(run / "predictions.parquet").filter(pl.col("variant") < 0)
        right = {s: label == gold[s] for s, label in table.select("seed", "label").iter_rows()}
        return Counter((gold[seed], told) for seed, told in right.items())

    more = ("--sample", 8, "--sample-like", tmp_path / "whole")
    code, _, err = triax(*evaluate(llm, tmp_path / "part", *model, *more))
    assert code == 0, err
    before, after = strata(tmp_path / "whole"), strata(tmp_path / "part")
    of = before.total()
    assert after.total() == 8
    assert all(abs(after[key] - 8 * count / of) < 1 for key, count in before.items())
    metrics = json.loads((tmp_path / "part" / "metrics.json").read_text())
    assert metrics["seeds"]["kept"] == 8
    (said,) = [text for text in metrics["warnings"] if "sample" in text]
    assert said == (
        f"a sample of 8 of {of} pairs, in the shares of their labels and of what "
        f"{tmp_path / 'whole'} has right: the intervals are those of the sample"
    )
    # A variant's draws are those of the whole set, and the same call gives the same sample.
    both = pl.read_parquet(tmp_path / "part" / "predictions.parquet").drop("model")
    assert both.join(whole.drop("model"), on=both.columns, how="anti").is_empty()
    assert triax(*evaluate(llm, tmp_path / "two", *model, *more))[0] == 0
    assert pl.read_parquet(tmp_path / "two" / "seeds.parquet").equals(
        pl.read_parquet(tmp_path / "part" / "seeds.parquet")
    )
    # A sample cannot tell what another is to be like.
    code, _, err = triax(
        *evaluate(llm, tmp_path / "no", *model, "--sample", 9, "--sample-like", tmp_path / "part")
    )
    assert code == 2
    assert f"{tmp_path / 'part'}: has no prediction for {of - 8} of {of} seeds" in err


def test_a_run_from_seeds_to_scores_is_of_a_sample_too(llm, small, tmp_path, triax) -> None:
    call = ["merge", "run", small / "pairs.csv", "--mlm", small / "mlm", "--k", 50, "--sample", 4]
    call += ["--model", f"llm:{llm / 'llm'}", "--shots-from", llm / "dev.jsonl", "--shots", 3]
    # The set and its store are the fixture's: variants are there already.
    call += [*FEW, "--out", tmp_path / "run", "--store", llm / "store"]
    code, out, err = triax(*call)
    assert code == 0, err
    assert "masked-LM forwards" in out
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["seeds"]["kept"] == 4
    assert any(text.startswith("a sample of 4 of ") for text in metrics["warnings"])
    code, _, err = triax(*call, "--budget", "1m")
    assert code == 2
    assert err == "triax: a budget and a sample are two ways to fewer seeds; give one of them\n"


def test_an_endpoint_is_scored_and_asked_nothing_twice(llm, tmp_path, triax) -> None:
    with FakeEndpoint() as server:
        asked = ("--model", "endpoint:fake", "--endpoint-url", server.url, "--sample", 4)
        asked += ("--price-in", 1)
        code, out, err = triax(*evaluate(llm, tmp_path / "run", *asked, "--estimate"))
        assert code == 0, err
        assert out.startswith("fake: ")
        assert " prompts, about " in out
        code, out, err = triax(*evaluate(llm, tmp_path / "run", *asked))
        assert code == 0, err
        assert "fake: " in out
        assert "requests (" in out
        assert "cost 0." in out
        code, out, _ = triax(*evaluate(llm, tmp_path / "again", *asked))
    assert "fake: 0 requests" in out


def items_of(llm: Path, tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "items.jsonl"
    given = ["merge", "export", str(llm / "set"), "--format", "items", "--out", str(path), *FEW]
    assert _run(given) == 0
    return [json.loads(line) for line in path.read_text().splitlines()]


def inspect_log(items: list[dict[str, Any]]) -> dict[str, Any]:
    """A log as Inspect 0.3 writes it: the letters are wrong for every third item."""
    names = ["entailment", "neutral", "contradiction"]
    samples = []
    for number, one in enumerate(items):
        right = names.index(one["label"])
        answer = "ABC"[(right + (number % 3 == 0)) % 3]
        samples.append(
            {
                "id": one["item"],
                "epoch": 1,
                "input": f"{one['premise']} {one['hypothesis']}",
                "choices": names,
                "target": "ABC"[right],
                "messages": [],
                "output": {"model": "m", "choices": [], "completion": f"ANSWER: {answer}"},
                "scores": {"choice": {"value": "C", "answer": answer, "explanation": ""}},
                "metadata": {},
            }
        )
    about = {"task": "merge", "model": "m", "dataset": {}, "config": {}}
    return {"version": 2, "status": "success", "eval": about, "samples": samples}


def test_predictions_of_inspect_are_read_by_item(llm, tmp_path, triax) -> None:
    items = items_of(llm, tmp_path)
    log = inspect_log(items)
    (tmp_path / "log.json").write_text(json.dumps(log))
    with zipfile.ZipFile(tmp_path / "log.eval", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps({"version": 2, "status": "success"}))
        for sample in log["samples"]:
            name = str(sample["id"]).replace("/", "_")
            file.writestr(f"samples/{name}_epoch_1.json", json.dumps(sample))
    for name in ("log.json", "log.eval"):
        run = tmp_path / name.replace(".", "-")
        code, _, err = triax(*evaluate(llm, run, "--model", f"inspect:{tmp_path / name}"))
        assert code == 0, err
        table = pl.read_parquet(run / "predictions.parquet")
        assert [
            label != one["label"] for label, one in zip(table["label"], items, strict=True)
        ] == [number % 3 == 0 for number in range(len(items))]
    # A sample that ended in an error has no scores; an answer may be no letter at all.
    log["samples"][3] |= {"scores": None, "error": {"message": "timeout"}}
    (tmp_path / "log.json").write_text(json.dumps(log))
    call = evaluate(llm, tmp_path / "no", "--model", f"inspect:{tmp_path / 'log.json'}")
    code, _, err = triax(*call)
    assert code == 2
    assert f"1 of {len(items)} items have no label, '{items[3]['item']}' first" in err
    log["samples"][3]["scores"] = {"choice": {"value": "I", "answer": "A, B"}}
    (tmp_path / "log.json").write_text(json.dumps(log))
    assert "the answer 'A, B' to item " in triax(*call)[2]
    log["samples"][3] = log["samples"][2]
    (tmp_path / "log.json").write_text(json.dumps(log))
    assert "stands twice; keep one run with one epoch" in triax(*call)[2]
    log["samples"] = None
    (tmp_path / "log.json").write_text(json.dumps(log))
    assert "is no log of Inspect with samples" in triax(*call)[2]


# As its command line does, but for the index of all its own tasks, which takes most of a minute.
HARNESS = """
import sys
from lm_eval.evaluator import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

model, tasks, include, out = sys.argv[1:]
tracker = EvaluationTracker(output_path=out)
found = simple_evaluate(
    "hf",
    model_args=f"pretrained={model},dtype=float32",
    tasks=tasks.split(","),
    task_manager=TaskManager(include_path=include, include_defaults=False),
    device="cpu",
    batch_size=16,
    bootstrap_iters=0,
    evaluation_tracker=tracker,
)
samples = found.pop("samples")
tracker.save_results_aggregated(results=found, samples=samples)
for task in samples:
    tracker.save_results_samples(task_name=task, samples=samples[task])
"""
TASKS = {
    "zero_letters": ("--answers", "letters"),
    "zero_words": ("--answers", "words", "--instruction", "What of {{this}}?"),
    "few_letters": ("--shots", "3"),
    "few_words": ("--shots", "3", "--answers", "words"),
}


def asked(llm: Path, name: str) -> list[str]:
    shots = ["--shots-from", str(llm / "dev.jsonl")] if name.startswith("few") else []
    return [*TASKS[name], *shots]


@pytest.fixture(scope="session")
def tasks(llm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks for lm-evaluation-harness on three seeds, in every way of asking."""
    root = tmp_path_factory.mktemp("tasks")
    for name in TASKS:
        given = ["merge", "export", llm / "set", "--format", "lm-eval", "--sample", 3, *FEW]
        assert _run([str(one) for one in (*given, *asked(llm, name), "--out", root / name)]) == 0
    return root


def test_a_task_folder_has_everything_in_it(llm, tasks, tmp_path, triax) -> None:
    folder = tasks / "few_words"
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
    parts = {f"merge_few_words{part}.yaml" for part in ("", "_seeds", "_variants")}
    data = {f"data/{part}.jsonl" for part in ("seeds", "variants", "examples")}
    assert names == {*parts, *data, "data.py", "README.md", "manifest.json"}
    seeds = [
        json.loads(line) for line in (folder / "data" / "seeds.jsonl").read_text().splitlines()
    ]
    assert len(seeds) == 3
    assert seeds[0]["choices"] == ["entailment", "neutral", "contradiction"]
    assert seeds[0]["question"].endswith("Answer:")
    assert "include_path" in (folder / "README.md").read_text()
    call = ("merge", "export", llm / "set", "--out", tmp_path / "x", "--answers", "words")
    code, _, err = triax(*call)
    assert (code, err) == (2, "triax: --answers: only --format lm-eval has a prompt\n")


def test_lm_evaluation_harness_gives_the_same_to_the_item(llm, tasks, tmp_path, triax) -> None:
    pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed (extra dev)")
    groups = ",".join(f"merge_{name}" for name in TASKS)
    call = [sys.executable, "-c", HARNESS, str(llm / "llm"), groups, str(tasks), str(tmp_path)]
    ran = subprocess.run(
        call, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    varied = 0
    for name in TASKS:
        logs = tmp_path / name
        logs.mkdir()
        for path in sorted(tmp_path.glob(f"*/samples_merge_{name}_*.jsonl")):
            path.rename(logs / path.name)
        theirs = tmp_path / f"theirs-{name}"
        more = ("--sample", 3, "--model", f"lm-eval:{logs}")
        code, _, err = triax(*evaluate(llm, theirs, *more))
        assert code == 0, err
        ours = tmp_path / f"ours-{name}"
        more = ("--sample", 3, "--model", f"llm:{llm / 'llm'}", *asked(llm, name))
        code, _, err = triax(*evaluate(llm, ours, *more))
        assert code == 0, err
        one, other = (
            pl.read_parquet(run / "predictions.parquet").drop("model") for run in (ours, theirs)
        )
        assert len(one) > 30
        varied += one["label"].n_unique() > 1
        for column in one.columns:
            if column.startswith("log_p"):
                assert (one[column] - other[column]).abs().max() < 1e-4, (name, column)
            else:
                assert one[column].equals(other[column]), (name, column)
        # And before the three are made to sum to one.
        model = load_choice(str(llm / "llm"), options=options_of(llm, name), precision="fp32")
        logged = [
            json.loads(line)
            for path in sorted(logs.iterdir())
            for line in path.read_text().rstrip("\n").split("\n")
        ]
        texts = [(row["doc"]["premise"], row["doc"]["hypothesis"]) for row in logged]
        scores = np.asarray([[float(s) for s, _ in row["filtered_resps"]] for row in logged])
        assert_allclose(model.log_likelihoods(texts), scores, atol=1e-4)
    assert varied >= 2


def options_of(llm: Path, name: str) -> ChoiceOptions:
    given: dict[str, Any] = dict.fromkeys(("shots", "shots_from", "shots_split", "answers"))
    words = asked(llm, name)
    given |= {"instruction": None}
    given |= {k[2:].replace("-", "_"): v for k, v in zip(words[::2], words[1::2], strict=True)}
    given["shots"] = given["shots"] and int(given["shots"])
    given["shots_from"] = given["shots_from"] and [given["shots_from"]]
    return ChoiceOptions(prompt(given, read_set(llm / "set").pairs, 1))
