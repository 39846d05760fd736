"""`triax merge evaluate` with language models, samples, endpoints, and logs of other harnesses."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fake_endpoint import FakeEndpoint
from triaxial.cli import _run
from triaxial.models.tiny import tiny_causal
from triaxial.nli import LABELS, Pair
from triaxial.prompts import PromptOptions, prefix
from triaxial.worlds import world


@pytest.fixture(scope="session")
def llm(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a set in `set`, a language model in `llm` and other pairs in `dev.jsonl`."""
    root = tmp_path_factory.mktemp("llm")
    made = world(3, sentences=30, training=30, seeds=24)
    shot = Pair("", "", "", LABELS[0])
    asked = [prefix(PromptOptions(style, examples=(shot,))) for style in ("letters", "words")]
    tiny_causal(root / "llm", [*made.words, *asked], longest=700)
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
