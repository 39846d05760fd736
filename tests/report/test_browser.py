"""The page in a real browser: no error, no request, all by keyboard, nothing axe objects to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triaxial.report.figures import Axis, curves, heat_map, intervals, parts
from triaxial.report.page import (
    Browser,
    Case,
    Gate,
    Report,
    Section,
    Sentence,
    Table,
    Variant,
    Verdict,
    as_html,
)

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe_sync = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (Debian: apt install chromium)"),
    # Raised inside Playwright's own event loop when it ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def report() -> Report:
    rows = [
        {"series": name, "x": x, "y": 90.0 - x - 9 * n, "low": 80.0 - x, "high": 95.0 - x}
        for n, name in enumerate(("model <a>", "model b"))
        for x in range(5, 55, 5)
    ]
    rows = [{**row, "S": 85.0} for row in rows]
    cells = [
        {"run": f"run {n}", "type": str(t), "CI": 10.0 * t} for n in (1, 2) for t in range(1, 9)
    ]
    points = [
        {"class": c, **{k: row[k] for k in ("series", "y", "low", "high")}}
        for c, row in zip("NV", (rows[0], rows[10]), strict=True)
    ]
    shares = [{"run": "r", "part": p, "items": n} for p, n in (("right", 30), ("wrong", 10))]
    blocks = (
        Table("t", "Overview", ("model", "S"), (("m", "83.8 [81, 86]"), ("always neutral", "31.9")),
              "percent", (1,)),
        curves("c", "Curves", "n 846", rows, Axis("x", "CT, %"), Axis("y", "SV, %"), level="S"),
        heat_map("h", "Types", "n 20", cells, Axis("type", "type", "O"), Axis("run", "", "N"),
                 Axis("CI", "CI, %", domain=(0, 100))),
        intervals("i", "By class", "n 9", points, Axis("class", "", "N"), Axis("y", "SV95, %")),
        parts("p", "Funnel", "n 40", shares, Axis("run", "", "N"), Axis("items", "items"),
              Axis("part", "", "N"), share=True),
        Browser(
            "b", "Worst seeds", "the worst first",
            tuple(
                Case(f"seed {n}", "entailment; 3 of 20 wrong",
                     (Sentence("premise", f"A man holds box {n}"),),
                     (Variant("man → boy", (Sentence("premise", "A boy holds it", ((2, 5),)),)),))
                for n in range(50)
            ),
        ),
    )  # fmt: skip
    verdicts = (
        Verdict("replacement", "mine", "m is right", (Gate("SV95 < 70", False, "m: SV95 = 61"),)),
        Verdict("composition", "grid", "at best 40 %", (Gate("CI < 10", True, "CI = 40"),)),
        Verdict("time", "drift", "+6.3 %"),
    )
    sections = tuple(
        Section(
            f"run{n}", f"Run {n}", verdict, blocks if not n else (),
            ("a warning",), ("SV95 = 61 | n:20",), ("how",), ("what not",), (("data", "x"),),
        )
        for n, verdict in enumerate(verdicts)
    )  # fmt: skip
    return Report("A report", sections, "0.0", (("planted", "measured"),))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(as_html(report()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, chromium: Any, file: Path) -> Iterator[Any]:
    """The page, opened from disk; what it said and asked for is in `said` and `asked`."""
    context = chromium.new_context(
        color_scheme=request.param, viewport={"width": 1280, "height": 800}
    )
    page = context.new_page()
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(file.as_uri())
    yield page
    context.close()


def test_it_says_nothing_and_asks_for_nothing(page: Any, file: Path) -> None:
    assert page.title() == "A report"
    assert page.said == []
    assert page.asked == [file.as_uri()]


def test_axe_finds_nothing_serious(page: Any) -> None:
    for details in page.query_selector_all("details"):
        details.evaluate("node => node.open = true")
    found = axe_sync.Axe().run(page).response["violations"]
    told = [
        (one["id"], one["impact"], one["nodes"][0]["html"][:120])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert told == []


def test_cases_are_searched_and_unfolded_by_keyboard(page: Any) -> None:
    status = page.locator("#b [role=status]")
    assert status.inner_text() == "20 of 50 shown"
    page.locator("#b-search").press_sequentially("box 4")
    assert status.inner_text() == "11 of 11 shown"  # 4, 40 to 49
    page.locator("#b-search").fill("")
    page.get_by_role("button", name="Show more").press("Enter")
    assert status.inner_text() == "40 of 50 shown"
    summary = page.locator("#b summary").first
    summary.focus()
    summary.press("Enter")
    assert page.locator("#b mark").first.is_visible()


def test_the_first_stop_of_the_keyboard_leads_to_the_figures(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the figures"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_narrow_window_does_not_scroll_sideways(page: Any) -> None:
    page.set_viewport_size({"width": 375, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_numbers_can_be_downloaded(page: Any) -> None:
    with page.expect_download() as waiting:
        page.locator("a[download='c.csv']").click()
    text = Path(waiting.value.path()).read_text(encoding="utf-8-sig")
    assert text.startswith("series,x,y,low,high,S\nmodel <a>,5,85.0,")
    assert page.said == []
