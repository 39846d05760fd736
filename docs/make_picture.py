"""Take the README's picture, `docs/report.png`, of the report of `triax demo`.

Run `python docs/make_picture.py DEMO`, DEMO being the `--out` of a demo; needs the `dev` extra and
Chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).resolve().parent / "report.png"
SIZE = {"width": 1000, "height": 812}


def take(report: Path, to: Path) -> None:
    """The first screen of a report."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.screenshot(path=to)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]) / "report.html", PICTURE)
