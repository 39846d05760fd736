"""The documentation keeps up with the code."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_page_of_choices_is_not_behind_the_docstrings() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "make_choices.py"))
    page = (ROOT / "docs" / "choices.md").read_text(encoding="utf-8")
    assert page == script["page"](), "run `python docs/make_choices.py`"
    # The faithful preset's guesses are all there.
    for word in ("`strict`", "`across`", "`context`", "`logical`", "`fine`", "`label_risk`"):
        assert word in page
