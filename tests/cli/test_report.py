"""`triax report` on real runs of tiny models: texts stand as text, gates decide the exit code."""

from __future__ import annotations

import csv
import html
import json
from pathlib import Path

import pytest

from triaxial.cli import _run

EVIL = "<script>alert(1)</script> & co"


@pytest.fixture(scope="session")
def replaced(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of MERGE on pairs that hold markup."""
    tmp = tmp_path_factory.mktemp("replaced")
    with (small / "pairs.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["premise"] = f"{row['premise']} {EVIL}"
    with (tmp / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    given = ["merge", "run", tmp / "pairs.csv", "--mlm", small / "mlm", "--k", 50]
    given += ["--model", small / "nli", "--model", small / "new", "--store", tmp / "store"]
    assert _run([str(one) for one in (*given, "--out", tmp / "<b>run")]) == 0
    return tmp / "<b>run"


def test_texts_of_the_data_stand_as_text(replaced: Path, tmp_path, triax) -> None:
    out_file = tmp_path / "deep" / "report.html"
    code, out, err = triax("report", replaced, "--out", out_file)
    assert code == 0
    assert out.startswith("replacement, <b>run: nli is right on ")
    assert f"written: {out_file} (" in err
    page = out_file.read_text(encoding="utf-8")
    assert page.count("<script") == 1
    assert html.escape(EVIL) in page
    assert "<mark>" in page
    assert "<b>" not in page
    assert out_file.stat().st_size < 5_000_000


@pytest.mark.parametrize("form", ["md", "json"])
def test_forms_for_machines(form: str, replaced: Path, tmp_path, triax) -> None:
    out_file = tmp_path / f"report.{form}"
    assert triax("report", f"mine={replaced}", "--out", out_file)[0] == 0
    text = out_file.read_text(encoding="utf-8")
    if form == "json":
        (section,) = json.loads(text)["sections"]
        assert section["verdict"]["run"] == "mine"
        titles = {block["title"] for block in section["blocks"]}
        assert {"The worst seeds of nli", "Each model against nli"} <= titles
    else:
        assert "- **replacement**, mine: nli is right on " in text
        assert "| always neutral |" in text


def test_gates_decide_the_exit_code_and_the_report_is_written(replaced, tmp_path, triax) -> None:
    out_file = tmp_path / "report.html"
    given = ("report", replaced, "--out", out_file, "--fail-if")
    code, _, err = triax(*given, "SV95 < 101", "--fail-if", "S < 0")
    assert code == 1
    assert "triax: <b>run: gate 'SV95 < 101' failed: nli: SV95 = " in err
    page = out_file.read_text()
    assert "2 gates, 1 failed." in page
    assert triax(*given, "S < 0")[0] == 0
    code, _, err = triax(*given, "CI < 50")
    assert (code, err) == (2, "triax: --fail-if: the run has no CI\n")


def test_what_is_no_run(replaced: Path, tmp_path, triax) -> None:
    code, _, err = triax("report", tmp_path)
    said = f"triax: {tmp_path}: is no run (no manifest.json); name the --out of a command\n"
    assert (code, err) == (2, said)
    code, _, err = triax("report", replaced, replaced, "--out", tmp_path / "r.html")
    assert (code, err) == (2, f"triax: {replaced}: is given twice; name each run once\n")
    code, _, err = triax("report", f"a={replaced}", f"a={tmp_path}", "--out", tmp_path / "r.html")
    assert code == 2
    assert f"{tmp_path}: is no run" in err
    code, _, err = triax("report", replaced, "--out", tmp_path / "report.pdf")
    assert code == 2
    assert "has no ending that tells its form" in err


def test_results_of_another_schema_are_refused(replaced: Path, tmp_path, triax) -> None:
    import shutil

    other = shutil.copytree(replaced, tmp_path / "later")
    manifest = json.loads((other / "manifest.json").read_text())
    manifest |= {"schema": 9, "versions": {"triaxial": "3.1"}}
    (other / "manifest.json").write_text(json.dumps(manifest))
    said = (
        f"triax: {other}: is of result schema 9, written by triaxial 3.1; this release reads "
        "schema 1: make it again, or read it with that release\n"
    )
    for command in (("report", other), ("merge", "score", other)):
        code, _, err = triax(*command)
        assert (code, err) == (2, said)
    assert triax("merge", "compare", f"{replaced}:nli", f"{other}:nli")[0] == 2
