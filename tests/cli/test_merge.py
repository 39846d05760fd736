"""`triax merge` from end to end on tiny models: tables, resume, gates, bad input."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from triaxial import store
from triaxial.cli import _run

TABLES = ("seeds", "variants", "funnel", "predictions")


def arguments(small: Path, tmp: Path, out: str = "run", *more: object) -> list[str]:
    given = ["merge", "run", small / "pairs.csv", "--mlm", small / "mlm", "--model", small / "nli"]
    # An untrained masked LM finds half of all words likelier: few suggestions keep the set small.
    given += ["--k", 50, "--out", tmp / out, "--store", tmp / "store"]
    return [str(a) for a in (*given, *more)]


def digests(directory: Path) -> dict[str, str]:
    files = [*(f"{name}.parquet" for name in TABLES), "metrics.json"]
    return {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in files}


@pytest.fixture(scope="session")
def finished(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a complete run in `run` and its store."""
    tmp = tmp_path_factory.mktemp("finished")
    assert _run(arguments(small, tmp, "run", "--model", small / "new")) == 0
    return tmp


def test_run_prints_the_funnel_the_scores_and_where_the_time_went(small, tmp_path, triax) -> None:
    code, out, _ = triax(*arguments(small, tmp_path))
    assert code == 0
    for text in ("less_likely", "not_a_word", "word_class", "S, SV and MC", "always neutral"):
        assert text in out
    assert "SV95 = " in out
    assert "| n:20 | draws:10 | seeds:" in out
    assert "masked-LM forwards" in out
    assert "time: tagging" in out
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    scored = metrics["models"]["nli"]["all"]["all"]
    assert len(scored["sv"]) == 20
    assert scored["seed_accuracy"]["low"] <= scored["seed_accuracy"]["value"]
    neutral = metrics["baselines"]["always neutral"]["all"]["all"]
    assert {sv["value"] for sv in neutral["sv"]} == {neutral["seed_accuracy"]["value"]}


def test_two_runs_give_identical_tables_and_the_second_preset_asks_nothing(
    small, tmp_path, triax
) -> None:
    assert triax(*arguments(small, tmp_path, "one"))[0] == 0
    other_store = ["--store", tmp_path / "elsewhere"]
    assert triax(*arguments(small, tmp_path, "two"), *other_store)[0] == 0
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    code, out, _ = triax(*arguments(small, tmp_path, "safe", "--preset", "safe"))
    assert code == 0
    assert "mlm: 0 masked-LM forwards" in out


def test_score_from_tables_alone_equals_the_run(finished, triax) -> None:
    before = json.loads((finished / "run" / "metrics.json").read_text())
    code, out, _ = triax("merge", "score", finished / "run", "--json")
    assert code == 0
    assert json.loads(out) == before


def test_scoring_loads_no_torch(finished) -> None:
    script = (
        "import sys; from triaxial.cli import _run; code = _run(sys.argv[1:]);"
        "print([m for m in ('torch', 'transformers') if m in sys.modules], code)"
    )
    call = [sys.executable, "-c", script, "merge", "score", str(finished / "run"), "--json"]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"


@pytest.mark.parametrize("moment", [0.15, 0.5, 0.8])
def test_killed_and_called_again_gives_the_same_tables(finished, small, tmp_path, moment) -> None:
    """`kill -9` at some moment of the work, then the same command."""
    both = arguments(small, tmp_path, "run", "--model", small / "new")
    call = [sys.executable, "-c", "import sys; from triaxial.cli import main; main()", *both]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        call, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    # Moments of the work, not of the clock: so many files in the store of a whole run's number.
    whole = sum(1 for path in (finished / "store").rglob("*.parquet"))
    while process.poll() is None:
        if sum(1 for path in (tmp_path / "store").rglob("*.parquet")) >= moment * whole:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    process.wait()
    assert _run(both) == 0
    assert digests(tmp_path / "run") == digests(finished / "run")


def test_interrupted_says_so_and_keeps_what_is_done(small, tmp_path, triax, monkeypatch) -> None:
    from triaxial.models import classifier

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(classifier.Classifier, "predict", interrupt)
        code, _, err = triax(*arguments(small, tmp_path))
    assert code == 130
    assert "interrupted" in err
    code, out, _ = triax(*arguments(small, tmp_path))
    assert code == 0
    assert "mlm: 0 masked-LM forwards" in out


def test_a_full_disk_is_one_line_and_nothing_is_lost(small, tmp_path, triax, monkeypatch) -> None:
    real = os.write
    left = [200_000]

    def write(handle: int, data: memoryview) -> int:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        code, _, err = triax(*arguments(small, tmp_path))
    assert code == 2
    assert "no space left" in err
    assert err.strip().count("\n") == 0
    assert not list(tmp_path.rglob("*.tmp"))
    assert triax(*arguments(small, tmp_path))[0] == 0


def test_an_out_directory_that_holds_something_else_is_refused(small, tmp_path, triax) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("mine")
    code, _, err = triax(*arguments(small, tmp_path))
    assert code == 2
    assert "not ours" in err
    assert not (tmp_path / "store").exists(), "refused before any work"
    assert (tmp_path / "run" / "thesis.tex").read_text() == "mine"


def test_another_run_in_out_is_refused_unless_overwritten(small, tmp_path, triax) -> None:
    assert triax(*arguments(small, tmp_path))[0] == 0
    code, _, err = triax(*arguments(small, tmp_path, "run", "--seed", 2))
    assert code == 2
    assert "holds another run" in err
    assert triax(*arguments(small, tmp_path, "run", "--seed", 2, "--overwrite"))[0] == 0


def test_gates(finished, triax) -> None:
    run = finished / "run"
    assert triax("merge", "score", run, "--fail-if", "SV5 > 100")[0] == 0
    code, _, err = triax("merge", "score", run, "--fail-if", "SV5 <= 100")
    assert code == 1
    assert "gate 'SV5 <= 100' failed: nli" in err
    for text in ("SV95 < 0.7", "SV94 < 70", "accuracy < 70", "SV95 < seventy"):
        code, _, err = triax("merge", "score", run, "--fail-if", text)
        assert code == 2, text
        assert err.startswith("triax: --fail-if: ")
    code, _, err = triax("merge", "score", run, "--fail-if", "ADV:SV95 < 70")
    assert (code, "has no SV95 of 'ADV'; it has them of" in err) == (2, True)


def test_compare_pairs_the_same_variants(finished, small, tmp_path, triax) -> None:
    run = finished / "run"
    code, out, _ = triax("merge", "compare", f"{run}:nli", f"{run}:nli", "--json")
    figures = json.loads(out)["figures"]
    assert code == 0
    assert {row["verdict"] for row in figures} == {"undecided"}
    assert all(row["difference"]["value"] == 0 for row in figures)
    code, out, err = triax("merge", "compare", f"{run}:nli", f"{run}:new", "--metric", "S")
    assert "smallest visible" in out
    assert code in (0, 1)
    assert triax("merge", "compare", run, run)[2].endswith("name one as RUN:MODEL\n")
    assert triax(*arguments(small, tmp_path, "draws", "--seed", 5))[0] == 0
    code, _, err = triax("merge", "compare", f"{run}:nli", tmp_path / "draws")
    assert (code, "not of the same variants and draws" in err) == (2, True)


def test_show_tells_every_fate_of_a_seed(finished, triax) -> None:
    code, out, _ = triax("merge", "show", finished / "run", "s1", "--store", finished / "store")
    assert code == 0
    assert "gold: neutral" in out
    assert "not_everywhere" in out
    assert "in_pair" in out
    code, _, err = triax("merge", "show", finished / "run", "none", "--store", finished / "store")
    assert (code, "no seed 'none'" in err) == (2, True)


def test_show_without_the_store_still_shows_the_seed(finished, tmp_path, triax) -> None:
    code, out, err = triax("merge", "show", finished / "run", "s1", "--store", tmp_path / "none")
    assert code == 0
    assert "gold: neutral" in out
    assert "name the store of the run with --store" in err


def test_words_says_what_each_model_fails_on(finished, triax) -> None:
    code, out, err = triax("merge", "words", finished / "run", "--least", 1, "--top", 2)
    assert code == 0
    assert "Words put in" in out
    assert "next: `triax merge show " in err
    found = json.loads(triax("merge", "words", finished / "run", "--least", 1, "--json")[1])
    for each in found.values():
        lows = [one["lost"]["low"] for one in each["in"]]
        assert lows == sorted(lows, reverse=True)
    code, _, err = triax("merge", "words", finished / "run", "--model", "nobody")
    assert (code, "'nobody' is not one of" in err) == (2, True)


def test_show_and_funnel_agree(small, tmp_path, triax) -> None:
    """The candidates of `show`, over all seeds, are those that the funnel counts."""
    from triaxial.api.merge_files import read_set
    from triaxial.api.merge_show import rejected
    from triaxial.execute import Computing

    assert triax(*arguments(small, tmp_path, "run", "--limit", 5))[0] == 0
    made = read_set(tmp_path / "run")
    counts: dict[str, int] = {}
    for pair in made.pairs:
        for row in rejected(made, pair.id, Computing(store=tmp_path / "store", device="cpu")):
            if row["fate"] != "not_a_word":  # shown as one number
                counts[row["fate"]] = counts.get(row["fate"], 0) + len(row["candidates"])
    funnel = made.funnel.filter(
        (pl.col("unit") == "suggestion")
        | ((pl.col("unit") == "variant") & (pl.col("mlm") == "all"))
    ).filter(~pl.col("fate").is_in(["kept", "validated", "not_a_word"]))
    assert counts == dict(funnel.group_by("fate").agg(pl.col("count").sum()).iter_rows())


def test_several_masked_lms_have_provenance_and_are_compared_on_the_same_seeds(
    small, tmp_path, triax
) -> None:
    code, _, _ = triax(
        *arguments(small, tmp_path, "run", "--mlm", small / "other", "--min-variants", 5)
    )
    assert code == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    by_source = metrics["models"]["nli"]["source"]
    assert set(by_source) == {"mlm", "other"}
    assert by_source["mlm"]["seeds"] == by_source["other"]["seeds"]
    variants = store.read_table(tmp_path / "run" / "variants.parquet")
    assert set(variants["sources"].explode()) == {"mlm", "other"}


def test_predictions_from_a_file(finished, tmp_path, triax) -> None:
    run = finished / "run"
    items = tmp_path / "items.jsonl"
    assert triax("merge", "export", run, "--format", "items", "--out", items)[0] == 0
    rows = [json.loads(line) for line in items.read_text().splitlines()]
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        "".join(json.dumps({"item": r["item"], "label": r["label"]}) + "\n" for r in rows)
    )
    call = ["merge", "evaluate", run, "--model", f"file:{labels}", "--out", tmp_path / "oracle"]
    code, out, _ = triax(*call, "--json", "--store", finished / "store")
    assert code == 0
    scored = json.loads(out)["models"]["labels.jsonl"]["all"]["all"]
    assert scored["seed_accuracy"]["value"] == 100.0
    assert {sv["value"] for sv in scored["sv"]} == {100.0}
    labels.write_text("".join(labels.read_text().splitlines(keepends=True)[:-1]))
    code, _, err = triax(*call[:-1], tmp_path / "fewer", "--store", finished / "store")
    assert (code, "1 of" in err, "have no label" in err) == (2, True, True)


def test_export_as_jsonl_and_as_a_data_set_folder(finished, tmp_path, triax) -> None:
    from datasets import load_dataset

    assert triax("merge", "export", finished / "run", "--out", tmp_path / "v.jsonl")[0] == 0
    first = json.loads((tmp_path / "v.jsonl").read_text().splitlines()[0])
    assert first["replacement"] in first["premise"].lower()
    folder = tmp_path / "folder"
    assert triax("merge", "export", finished / "run", "--format", "hf", "--out", folder)[0] == 0
    variants = load_dataset(str(folder), "variants", split="train", cache_dir=str(tmp_path / "c"))
    assert len(variants) == len(store.read_table(finished / "run" / "variants.parquet"))
    assert "MERGE variants of" in (folder / "README.md").read_text()
    code, _, err = triax("merge", "export", finished / "run", "--out", tmp_path / "v.jsonl")
    assert (code, "is there already" in err) == (2, True)


def test_rating_sheet_there_and_back(finished, tmp_path, triax) -> None:
    import csv

    sheet, run = tmp_path / "sheet.csv", finished / "run"
    assert triax("merge", "rate", "export", run, "--sample", 10, "--out", sheet)[0] == 0
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert len({row["item"].rpartition("#")[0] for row in rows}) == 10, "a seed once"
    for row in rows:
        row["F"], row["R"] = "5", "4"
    rows[0]["R"] = "1"
    with sheet.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    code, out, _ = triax("merge", "rate", "import", run, sheet)
    assert code == 0
    assert "good (F + R >= 9) 90.0 %" in out
    assert "MNLI-m 100 %" in out
    assert "ceiling" in triax("merge", "score", run)[1]


def test_plan_counts_before_any_model_is_loaded(small, tmp_path, triax, monkeypatch) -> None:
    from triaxial.models import base

    monkeypatch.setattr(base, "load_pretrained", lambda *_: pytest.fail("a model was loaded"))
    call = ["merge", "plan", small / "pairs.csv", "--mlm", small / "mlm", "--json"]
    code, out, _ = triax(*call, "--store", tmp_path / "store")
    assert code == 0
    (row,) = json.loads(out)["masked_lms"]
    # Each pair: adjective, person, verb, thing, all on both sides; some sentences are shared.
    assert row["queries"] == 24 * 4 * 2
    assert 0 < row["distinct"] <= row["queries"]
    assert row["cached"] == 0
    assert row["tokens"] > row["distinct"]


def bad(name: str, text: str | bytes) -> object:
    return pytest.param(text, id=name)


HEADER = "id,premise,hypothesis,label\n"
GOOD = "1,A man sings.,A man sings.,entailment\n"


@pytest.mark.parametrize(
    ("content", "more", "wanted"),
    [
        ("id,p,hypothesis,label\n" + GOOD, [], "premise"),
        (
            HEADER + "1,A man sings.,A man sings.,maybe\n",
            [],
            "pass --label-map maybe=LABEL for each",
        ),
        (HEADER + "1,A man sings.,  ,neutral\n", [], "the hypothesis is empty"),
        (HEADER + GOOD + GOOD, [], "the id '1' is that of row 1"),
        (HEADER + "1,A [MASK] sings.,A man sings.,neutral\n", [], "contains a mask token"),
        (HEADER + GOOD, ["--split", "test"], "--split"),
        ("", [], "pairs.csv"),
    ],
)
def test_bad_rows_are_one_clear_line(small, tmp_path, triax, content, more, wanted) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(content, encoding="utf-8")
    call = arguments(small, tmp_path, "run", *more)
    code, _, err = triax(*[str(path) if a.endswith("pairs.csv") else a for a in call])
    assert code == 2
    assert wanted in err
    assert "pairs.csv" in err or "--split" in err
    assert err.strip().count("\n") == 0


def test_bad_rows_are_dropped_with_a_count_when_asked(small, tmp_path, triax) -> None:
    path = tmp_path / "pairs.csv"
    rows = [GOOD, "2,A [MASK] sings.,A man sings.,neutral\n", "3,A man sings.,,neutral\n"]
    path.write_text(HEADER + "".join(rows) + "4,A man sings.,A man runs.,-\n", encoding="utf-8")
    call = ["merge", "generate", path, "--mlm", small / "mlm", "--out", tmp_path / "set"]
    code, out, _ = triax(*call, "--on-bad", "drop", "--store", tmp_path / "store")
    assert code == 0
    for reason in ("mask token in the text", "empty hypothesis", "no gold label"):
        assert f"'{reason}': 1" in out


def test_other_bad_input_is_one_clear_line(small, tmp_path, triax) -> None:
    broken = tmp_path / "cut.parquet"
    pl.DataFrame({"premise": ["a"], "hypothesis": ["b"], "label": ["neutral"]}).write_parquet(
        broken
    )
    broken.write_bytes(broken.read_bytes()[:-20])
    (tmp_path / "no-weights").mkdir()
    (tmp_path / "no-weights" / "config.json").write_text("{}")
    pairs = small / "pairs.csv"
    mlm, model, empty = small / "mlm", small / "nli", tmp_path / "no-weights"
    cases = [
        ((broken, mlm, model), "cut.parquet"),
        ((tmp_path / "none.csv", mlm, model), "none.csv"),
        ((pairs, empty, model), "no weights"),
        ((pairs, mlm, empty), "no weights"),
        ((pairs, tmp_path / "nowhere", model), "no such model directory"),
        ((pairs, model, model), "not trained as"),
    ]
    for number, ((source, first, second), wanted) in enumerate(cases):
        call = ["merge", "run", source, "--mlm", first, "--model", second]
        where = ["--out", tmp_path / f"out{number}", "--store", tmp_path / "store"]
        code, _, err = triax(*call, *where)
        assert (code, wanted in err) == (2, True), err
        assert err.strip().count("\n") == 0
    for option, value in (("--device", "tpu"), ("--tagger", "brill"), ("--classes", "PROPN")):
        code, _, err = triax(*arguments(small, tmp_path, "o", option, value))
        assert code == 2
        assert "Traceback" not in err


def test_a_set_without_variants_is_a_warning_with_the_funnel(small, tmp_path, triax) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(HEADER + "1,It rains.,He and she.,neutral\n", encoding="utf-8")
    call = arguments(small, tmp_path, "run")
    code, out, err = triax(*[str(path) if a.endswith("pairs.csv") else a for a in call])
    assert code == 0
    assert "WARNING: no seed has 20 variants" in out
    assert "no variant at all" in err


def test_a_fault_of_ours_says_so(small, tmp_path, triax, monkeypatch) -> None:
    from triaxial.merge import stages

    monkeypatch.setattr(stages, "slots_of", lambda *_: 1 / 0)
    code, _, err = triax(*arguments(small, tmp_path))
    assert code == 3
    assert err.startswith("triax: a fault of ours: ZeroDivisionError")


def test_version_and_help(triax) -> None:
    assert triax("--version")[1].startswith("triax 0.")
    for command in ("plan", "generate", "evaluate", "score", "run", "show", "compare", "export"):
        code, out, _ = triax("merge", command, "--help")
        assert code == 0
        assert f"triax merge {command} " in out


def test_any_object_that_predicts_is_a_model(finished) -> None:
    import numpy as np

    from triaxial.api.merge import score
    from triaxial.api.merge_files import read_set
    from triaxial.api.merge_predict import EvaluateOptions, evaluate
    from triaxial.errors import InputError
    from triaxial.execute import Computing

    class Always:
        """Says entailment, and counts what it is asked."""

        name, fingerprint = "always", {"version": "1"}
        asked = 0

        def predict(self, pairs):
            self.asked += len(pairs)
            assert len(set(pairs)) == len(pairs), "each distinct pair once"
            return np.tile(np.log([0.8, 0.1, 0.1]), (len(pairs), 1))

    made, model = read_set(finished / "run"), Always()
    options = EvaluateOptions(models=(model,))
    predictions, facts = evaluate(made, options, Computing())
    metrics = score(made, predictions, options.draw, facts["models"])
    own = metrics["models"]["always"]["all"]["all"]
    assert own["sv"] == metrics["baselines"]["always entailment"]["all"]["all"]["sv"]
    assert 0 < model.asked <= len(predictions)
    model.predict = lambda pairs: np.zeros((len(pairs), 2))
    with pytest.raises(InputError, match=r"predict gave an array of shape \(\d+, 2\)"):
        evaluate(made, options, Computing())


def test_a_budget_takes_a_sample_and_says_so(
    small: Path, tmp_path: Path, triax, monkeypatch
) -> None:
    from triaxial.api import merge

    monkeypatch.setattr(merge, "_PILOT", 6)
    # As if a seed took a quarter of a second: six are measured, and few more fit into two seconds.
    monkeypatch.setattr(
        merge, "fitting", lambda budget, spent, each, whole, least: min(whole, least + 3)
    )
    given = arguments(small, tmp_path, "run", "--budget", "2s", "--json")
    code, out, _ = triax(*given)
    assert code == 0
    metrics = json.loads(out)
    assert metrics["data"]["sample"] == {"pairs": 9, "of": 24, "budget": 2.0}
    assert metrics["seeds"]["pairs"] == 9
    (warning,) = [w for w in metrics["warnings"] if "sample" in w]
    assert warning.startswith(
        "a sample of 9 of 24 pairs, in the shares of their labels, to fit 2 s"
    )
    labels = pl.read_parquet(tmp_path / "run" / "seeds.parquet")["label"].value_counts()
    assert set(labels["count"]) == {3}, "three labels in equal shares"
    # Decided once: a faster machine takes the same sample, and the run is found finished.
    monkeypatch.setattr(merge, "fitting", lambda *_: 24)
    assert json.loads(triax(*given)[1])["seeds"]["pairs"] == 9
    # Scored again, the run still says that it is of a sample.
    assert warning in json.loads(triax("merge", "score", tmp_path / "run", "--json")[1])["warnings"]


def test_a_budget_that_holds_all_is_the_whole_run(small: Path, tmp_path: Path, triax) -> None:
    whole = arguments(small, tmp_path, "whole", "--limit", 12, "--json")
    budgeted = arguments(small, tmp_path, "budgeted", "--limit", 12, "--json", "--budget", "2h")
    one, other = (json.loads(triax(*given)[1]) for given in (whole, budgeted))
    assert other["data"].pop("sample") == {"pairs": 12, "of": 12, "budget": 7200.0}
    assert one == other
