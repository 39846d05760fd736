"""`triax c2gen` from end to end on a tiny encoder: plan, run, score, analyse, bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from triaxial.c2gen.compose import Item
from triaxial.models.tiny import tiny_masked
from triaxial.store import table_of, write_jsonl
from triaxial.worlds import compositions


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `items.jsonl` and the encoder `encoder`."""
    root = tmp_path_factory.mktemp("composed")
    nouns = ("dog", "cat", "man", "girl", "boy", "cook")
    items = compositions(nouns, ("run", "sleep", "sing", "swim"))
    texts = (text for item in items for text in (item.sent1, item.mid_sent, item.sent2))
    words = {word for text in texts for word in text.split()}
    write_jsonl(root / "items.jsonl", table_of(items, Item))
    tiny_masked(root / "encoder", sorted(words), hidden=16)
    return root


def arguments(composed: Path, tmp: Path, *more: object) -> list[object]:
    return [
        *("c2gen", "run", composed, "--encoder", composed / "encoder", "--folds", "1,5"),
        *("--streams", "cgen,ver-nat", "--strategies", "none,er-res", "--seeds", "1"),
        *("--per-type", 8, "--test-per-type", 10, "--probe", 2, "--unseen", 0, "--epochs", 1),
        *("--memory", 12, "--learning-rate", "1e-3", "--store", tmp / "store", *more),
    ]


@pytest.fixture(scope="session")
def finished(composed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from triaxial.cli import _run

    tmp = tmp_path_factory.mktemp("c2gen")
    given = arguments(composed, tmp, "--out", tmp / "run", "--vectors", 6)
    assert _run([str(a) for a in given]) == 0
    return tmp


def test_plan_counts_without_training(composed, tmp_path, triax) -> None:
    code, out, err = triax(*arguments(composed, tmp_path, "--plan"))
    assert code == 0
    # Two folds: CGen, one shared first stage, two second stages each.
    assert "6 units, 8 stages of training (0 done; 10 without sharing); about" in out
    assert "all, shared" in out
    assert "next: the same command without --plan" in err
    assert not (tmp_path / "store").exists()
    code, out, _ = triax(*arguments(composed, tmp_path, "--plan", "--json"))
    found = json.loads(out)
    steps = {(r["stream"], r["stage"], r["strategy"]): r["steps"] for r in found["rows"]}
    # 64 items in batches of 8, and 32; two folds each.
    assert steps["cgen", 1, "none"] == 16
    assert steps["ver-nat", 2, "er-res"] == 8
    rows = {(r["stage"], r["strategy"]): r["tokens"] for r in found["rows"]}
    assert rows[2, "er-res"] == pytest.approx(2 * rows[2, "none"], rel=0.01)


def test_run_prints_and_keeps_the_figures(finished, composed, triax) -> None:
    code, out, err = triax(
        *arguments(composed, finished, "--out", finished / "run", "--vectors", 6)
    )
    assert code == 0
    for text in ("always neutral", "V-only", "N-only", "oracle", "paper none", "er-res", "Claims"):
        assert text in out
    assert "| stream:ver-nat | strategy:er-res | stage:2/2 | folds:2 | seeds:1 | n:" in out
    assert "next: `triax report" in err
    table = pl.read_parquet(finished / "run" / "predictions.parquet")
    assert set(table["strategy"]) == {"none", "er-res"}
    costs = pl.read_parquet(finished / "run" / "costs.parquet")
    assert costs.filter(pl.col("shared"))["stage"].unique().to_list() == [1]
    metrics = json.loads((finished / "run" / "metrics.json").read_text())
    assert metrics["schema"] == 1
    cost = metrics["costs"]["ver-nat"]
    assert cost["none"]["steps"] == cost["er-res"]["steps"] == 4
    assert {claim["claim"] for claim in metrics["claims"]} >= {"continual", "order", "replay"}
    manifest = json.loads((finished / "run" / "manifest.json").read_text())
    assert manifest["kind"] == "c2gen.run"
    assert manifest["facts"]["grid"]["train"]["learning_rate"] == 1e-3


def test_score_reads_tables_alone(finished, triax, tmp_path) -> None:
    shutil.copytree(finished / "run", tmp_path / "run")
    code, out, _ = triax("c2gen", "score", tmp_path / "run", "--json")
    assert code == 0
    assert json.loads(out) == json.loads((finished / "run" / "metrics.json").read_text())
    code, out, _ = triax("c2gen", "score", tmp_path / "run", "--target", "sound")
    assert code == 0
    assert "sound labels" in out
    code, _, err = triax("c2gen", "score", tmp_path)
    assert code == 2
    assert "is no finished run of `triax c2gen run`; name its --out directory" in err


def test_analyse_one_run_and_a_sweep(finished, composed, triax, tmp_path) -> None:
    code, out, _ = triax("c2gen", "analyse", finished / "run", "--json", "--method", "pca")
    assert code == 0
    found = json.loads(out)
    assert {row["stream"] for row in found["orders"]} == {"cgen", "ver-nat"}
    # cgen once; ver-nat with two strategies after two stages.
    assert len(found["representations"]) == 5
    assert {len(row["coordinates"]) for row in found["representations"]} == {12}
    code, out, _ = triax("c2gen", "analyse", finished / "run", "--method", "pca")
    assert code == 0
    assert "silhouette" in out

    given = arguments(composed, finished, "--out", tmp_path / "more", "--memory", 20)
    assert triax(*given)[0] == 0
    code, out, _ = triax("c2gen", "analyse", finished / "run", tmp_path / "more", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["setting"] == "memory"
    assert {row["setting"] for row in found["sweep"]} == {"memory=12", "memory=20"}
    code, _, err = triax("c2gen", "analyse", finished / "run", finished / "run")
    assert code == 2
    assert "the runs do not differ; wanted one setting that differs" in err


def test_pseudo_words_against_real_ones(finished, composed, triax, tmp_path) -> None:
    from triaxial.c2gen.items import read_items
    from triaxial.c2gen.pseudo import pseudo_items

    data = tmp_path / "pseudo"
    data.mkdir()
    made = pseudo_items(read_items(composed / "items.jsonl"), verbs=True, nouns=False, seed=1)
    write_jsonl(data / "items.jsonl", table_of(made.items, Item))
    shutil.copytree(composed / "encoder", data / "encoder")
    assert triax(*arguments(data, tmp_path, "--out", tmp_path / "run"))[0] == 0
    code, out, _ = triax("c2gen", "analyse", finished / "run", tmp_path / "run", "--json")
    assert code == 0
    assert json.loads(out)["pseudo"]


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (("--folds", "9-1"), "--folds: cannot read '9-1'; write `1,5,9` or `1-9`"),
        (("--folds", "0"), "0"),
        (("--seeds", "a"), "--seeds: cannot read 'a'"),
        (("--strategies", "none,mir"), "--strategies: 'mir' is no strategy; choose from none,"),
        (("--strategies", "none,"), "--strategies: cannot read 'none,'"),
        (("--streams", "nat"), "nat"),
        (("--memory", "33"), "memory of 33 rows is larger than stage 'ver' with 32"),
        (("--batch-size", "33"), "has 32 items, fewer than a batch of 33"),
        (("--kd-weight", "2"), "kd_weight: no chosen strategy (none, er-res) has it"),
        (("--learning-rate", "0"), "learning_rate: is 0.0; it must be above 0"),
        ((), "--out: is not given; name a directory, or pass --plan"),
    ],
)
def test_bad_options_are_one_line(more, wanted, composed, tmp_path, triax) -> None:
    given = arguments(composed, tmp_path, *more)
    if more:
        given += ["--out", tmp_path / "run"]
    code, _, err = triax(*given)
    assert code == 2
    assert wanted in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_bad_data_is_one_line(composed, tmp_path, triax) -> None:
    lines = (composed / "items.jsonl").read_text().splitlines()
    row = json.loads(lines[3])
    row["label"] = "neutral" if row["label"] != "neutral" else "entailment"
    bad = tmp_path / "bad.jsonl"
    bad.write_text("\n".join([*lines[:3], json.dumps(row), *lines[4:]]) + "\n")
    code, _, err = triax(
        *arguments(bad, tmp_path, "--out", tmp_path / "run")[:2],
        bad,
        *arguments(composed, tmp_path, "--out", tmp_path / "run")[3:],
    )
    assert code == 2
    assert "bad.jsonl:4: " in err
    assert len(err.strip().splitlines()) == 1
    code, _, err = triax("c2gen", "run", tmp_path, "--encoder", "x", "--plan")
    assert code == 2
    assert "holds no items.jsonl; make it with `triax c2gen build`" in err
    # Only the first type: every other stage is empty.
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(line for line in lines if json.loads(line)["type"] == 1) + "\n")
    code, _, err = triax("c2gen", "run", few, "--encoder", composed / "encoder", "--plan")
    assert code == 2
    assert "has no item of type" in err


def test_an_encoder_without_a_fast_tokenizer(composed, tmp_path, triax) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(composed / "encoder", bare)
    for path in bare.iterdir():
        if "token" in path.name or path.name == "vocab.txt":
            path.unlink()
    given = [bare if a == composed / "encoder" else a for a in arguments(composed, tmp_path)]
    code, _, err = triax(*given, "--out", tmp_path / "run")
    assert code == 2
    assert "no tokenizer files (tokenizer.json); save the tokenizer beside the weights" in err


def test_another_run_in_the_same_directory_is_refused(finished, composed, triax) -> None:
    given = arguments(composed, finished, "--out", finished / "run", "--epochs", 2)
    code, _, err = triax(*given)
    assert code == 2
    assert "--overwrite" in err or "another" in err
    manifest = json.loads((finished / "run" / "manifest.json").read_text())
    assert manifest["facts"]["grid"]["train"]["epochs"] == 1


def test_a_budget_shrinks_every_part_alike(composed, tmp_path, triax, monkeypatch) -> None:
    from triaxial.api import c2gen_plan

    real = c2gen_plan.plan

    def slow(data, grid, computing):
        found = real(data, grid, computing)
        # As if every item of a type took a second of training.
        return {**found, "rows": [{**found["rows"][0], "seconds": float(grid.draw.per_type)}]}

    monkeypatch.setattr(c2gen_plan, "plan", slow)
    given = arguments(composed, tmp_path, "--out", tmp_path / "run", "--budget", "7s")
    code, _, err = triax(*given)
    assert code == 0
    # .75 of 7 s: 5 items of the 8 asked; the test's 10 become 6.
    assert "budget 7s: 5 items a type in training, 6 in the test" in err
    facts = json.loads((tmp_path / "run" / "manifest.json").read_text())["facts"]
    assert facts["grid"]["draw"]["per_type"] == 5
    code, _, err = triax(*arguments(composed, tmp_path, "--out", tmp_path / "r", "--budget", "2s"))
    assert code == 2
    assert "--budget: 2 s hold 1 items a type, fewer than 4; give more time, or fewer" in err


def test_a_gate_decides_the_exit_code(finished: Path, triax) -> None:
    assert triax("c2gen", "score", finished / "run", "--fail-if", "CI < 0")[0] == 0
    code, _, err = triax("c2gen", "score", finished / "run", "--fail-if", "er-res:CI <= 100")
    assert code == 1
    assert "gate 'er-res:CI <= 100' failed: ver-nat er-res: CI = " in err
    code, _, err = triax("c2gen", "score", finished / "run", "--fail-if", "F1 < 3")
    assert (code, err.count("\n")) == (2, 1)
