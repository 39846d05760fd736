"""Drawings: every number of the rows is in them, what is missing is not drawn as zero."""

from __future__ import annotations

import re

import pytest

from triaxial.report.figures import Axis, Chart, curves, heat_map, intervals, parts, scatter

NAMES = ("a model", "another")
POINTS = [
    {"series": name, "class": c, "value": v + n, "low": v - 1.0, "high": v + 5.0, "n": 10}
    for n, name in enumerate(NAMES)
    for c, v in (("NOUN", 80.0), ("VERB", 60.0))
]


def texts(chart: Chart) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg)


def test_intervals_name_categories_and_series() -> None:
    chart = intervals(
        "n", "t", "c", POINTS, Axis("class", "", "N"), Axis("value", "SV95, %", domain=(0, 100))
    )
    assert {"NOUN", "VERB", "SV95, %", *NAMES} <= set(texts(chart))
    assert chart.columns == ("series", "class", "value", "low", "high", "n")
    assert len(chart.rows) == 4
    # A point for each row, of two shapes, beside those of the legend.
    assert chart.svg.count("var(--series-1)") > chart.svg.count("var(--series-3)") == 0


def test_one_series_needs_no_legend() -> None:
    chart = intervals("n", "t", "c", POINTS[:2], Axis("class", "", "N"), Axis("value", "%"))
    assert "a model" not in texts(chart)


def test_a_missing_point_breaks_the_line() -> None:
    def path(values: list[float | None]) -> str:
        rows = [{"series": "m", "x": n, "y": v, "low": v, "high": v} for n, v in enumerate(values)]
        chart = curves("n", "t", "c", rows, Axis("x", "x"), Axis("y", "y", domain=(0, 100)))
        return max(re.findall(r' d="([^"]*)"', chart.svg), key=lambda d: d.count("M"))

    assert path([10.0, 20.0, 30.0, 40.0]).count("M") < path([10.0, 20.0, None, 40.0]).count("M")


def test_panels_are_named() -> None:
    rows = [
        {"series": "m", "x": x, "y": 5.0, "low": 4.0, "high": 6.0, "tag": tag}
        for x in (1, 2)
        for tag in ("NOUN (7)", "VERB (3)")
    ]
    chart = curves(
        "n", "t", "c", rows, Axis("x", "x"), Axis("y", "y"), panels=Axis("tag", "", "N"), zero=True
    )
    assert {"NOUN (7)", "VERB (3)"} <= set(texts(chart))


def test_cells_hold_their_numbers() -> None:
    rows = [{"run": "r", "type": str(n), "CI": 10.0 * n} for n in range(1, 4)]
    chart = heat_map("n", "t", "c", rows, Axis("type", "type", "O"), Axis("run", "", "N"),
                     Axis("CI", "CI, %", domain=(0, 100)))  # fmt: skip
    assert {"10", "20", "30", "r"} <= set(texts(chart))


def test_parts_keep_their_order() -> None:
    rows = [{"run": "r", "part": part, "items": n} for part, n in (("right", 3), ("wrong", 1))]
    chart = parts("n", "t", "c", rows, Axis("run", "", "N"), Axis("items", "items"),
                  Axis("part", "", "N", ("wrong", "right")), share=True)  # fmt: skip
    found = [text for text in texts(chart) if text in ("right", "wrong")]
    assert found == ["wrong", "right"]
    assert "_rank" not in chart.columns


@pytest.mark.parametrize("series", ["<b>", "a & b", '"quoted"'])
def test_names_are_escaped(series: str) -> None:
    rows = [{"series": name, "x": 1.0, "y": 2.0, "low": 1.0, "high": 3.0} for name in (series, "m")]
    chart = scatter("n", series, "c", rows, Axis("x", "x"), Axis("y", "y"))
    assert "<b>" not in chart.svg
    assert not re.search(r"&(?!(?:\w+|#\d+);)", chart.svg)
