"""Numbers to SVG, through Vega-Lite: curves with bands, figures with intervals, heat maps, parts.

Colours are those of the page (`--series-1` and on, `currentColor`), so that a drawing follows its
light or dark mode; series differ in dash and shape too, for those who see colours differently. The
palette is Okabe and Ito's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import altair as alt

__all__ = ["Axis", "Chart", "Value", "curves", "heat_map", "intervals", "parts", "scatter"]

Value: TypeAlias = str | int | float | None
Rows: TypeAlias = Sequence[Mapping[str, Value]]

_IDS = re.compile(r'(?<![-\w])id="|url\(#|href="#')
# Roles of its parts: the drawing is one image with a name, and its numbers stand in a table.
_ROLES = re.compile(r' (?:role|aria-\w+)="[^"]*"')
_WIDTH, _SMALL = 520, 170
_SERIES = tuple(f"var(--series-{n})" for n in range(1, 9))
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [3, 5], [1, 3], [12, 2])
_SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "stroke",
    "wedge",
)
_PARTS = tuple(f"var(--part-{n})" for n in range(1, 9))


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing and the numbers in it.

    Args:
        name: Of its file and its place on the page; unique in a report.
        title: What it shows.
        caption: Axes and units in words, n, and what the bands or bars are.
        svg: The drawing.
        columns: Names of the numbers.
        rows: The numbers, unrounded.
    """

    name: str
    title: str
    caption: str
    svg: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """A column of the rows, and how it is named.

    Args:
        column: Its name in the rows.
        title: Name and unit on the drawing.
        kind: Q a number, O an ordered name, N a name.
        order: Of names; by default as they come.
        domain: Least and greatest of a number; by default what the rows hold.
    """

    column: str
    title: str
    kind: Literal["Q", "O", "N"] = "Q"
    order: tuple[str, ...] | None = None
    domain: tuple[float, float] | None = None


def curves(
    name: str,
    title: str,
    caption: str,
    rows: Rows,
    x: Axis,
    y: Axis,
    *,
    series: str = "series",
    low: str = "low",
    high: str = "high",
    level: str | None = None,
    marked: str | None = None,
    panels: Axis | None = None,
    free: bool = False,
    zero: bool = False,
    order: Sequence[str] = (),
) -> Chart:
    """Lines over x with a band between `low` and `high`, one a series.

    Args:
        name: Of the chart.
        title: Of the chart.
        caption: Of the chart.
        rows: One a point; a missing y breaks the line.
        x: Across.
        y: Up.
        series: Column that tells lines apart.
        low: Column of the band's lower edge.
        high: Column of its upper edge.
        level: Column of a level of each series, drawn as a thin dashed line.
        marked: Column that is true at points to be marked.
        panels: Column that divides the drawing into small ones.
        free: Whether each of these has a scale of its own.
        zero: Whether a line stands at y = 0.
        order: Of the series, where other drawings have them too: one colour for one thing.
    """
    import altair as alt

    names = _seen(rows, series, order)
    scale = alt.Scale(domain=_domain(y), zero=False)
    across = _channel(alt.X, x)
    colour = _colour(series, names)
    dash = alt.StrokeDash(f"{series}:N", scale=_styles(names, _DASHES), title=None)
    base = alt.Chart().encode(x=across)
    up = alt.Y(f"{y.column}:Q", title=y.title, scale=scale)
    layers = [
        base.mark_area(opacity=0.18, clip=True).encode(
            y=alt.Y(f"{low}:Q", title=y.title, scale=scale), y2=f"{high}:Q", color=colour
        ),
        base.mark_line(strokeWidth=2, clip=True).encode(y=up, color=colour, strokeDash=dash),
        base.mark_point(filled=True, size=18, clip=True).encode(y=up, color=colour),
    ]
    if level is not None:
        layers.append(
            base.mark_line(strokeWidth=1, strokeDash=[2, 3], clip=True).encode(
                y=alt.Y(f"{level}:Q", title=y.title, scale=scale), color=colour
            )
        )
    if marked is not None:
        layers.append(
            base.transform_filter(alt.datum[marked])
            .mark_point(size=140, shape="diamond", strokeWidth=2)
            .encode(y=up, color=colour)
        )
    if zero:
        layers.append(
            alt.Chart(alt.Data(values=[{"zero": 0}]))
            .mark_rule(color="currentColor", opacity=0.5)
            .encode(y=alt.Y("zero:Q", title=y.title))
        )
    return _drawn(name, title, caption, rows, alt.layer(*layers), panels, free=free)


def intervals(
    name: str,
    title: str,
    caption: str,
    rows: Rows,
    category: Axis,
    value: Axis,
    *,
    series: str = "series",
    low: str = "low",
    high: str = "high",
    at: float | None = None,
    log: bool = False,
    order: Sequence[str] = (),
) -> Chart:
    """Points with intervals, one line a category, series below each other.

    Args:
        name: Of the chart.
        title: Of the chart.
        caption: Of the chart.
        rows: One a point.
        category: Down.
        value: Across.
        series: Column that tells points of a category apart.
        low: Column of the interval's lower end.
        high: Column of its upper end.
        at: A value to be marked by a line.
        log: Whether the values stand on a logarithmic scale.
        order: Of the series, where other drawings have them too: one colour for one thing.
    """
    import altair as alt

    names = _seen(rows, series, order)
    scale = alt.Scale(
        type="log" if log else "linear",
        domain=_domain(value),
        zero=False,
        nice=True,
    )
    colour = _colour(series, names)
    down = _channel(alt.Y, category)
    shift = alt.YOffset(f"{series}:N", sort=names)
    base = alt.Chart().encode(y=down, yOffset=shift, color=colour)
    layers: list[Any] = [
        base.mark_rule(strokeWidth=2).encode(
            x=alt.X(f"{low}:Q", title=value.title, scale=scale), x2=f"{high}:Q"
        ),
        base.mark_point(filled=True, size=55, opacity=1).encode(
            x=alt.X(f"{value.column}:Q", title=value.title, scale=scale),
            shape=_shape(series, names),
        ),
    ]
    if at is not None:
        layers.append(
            alt.Chart(alt.Data(values=[{"at": at}]))
            .mark_rule(color="currentColor", strokeDash=[3, 3], opacity=0.6)
            .encode(x=alt.X("at:Q", title=value.title, scale=scale))
        )
    step = alt.Step(max(20, 12 * len(names) + 8), **{"for": "position"})
    return _drawn(name, title, caption, rows, alt.layer(*layers), None, height=step)


def heat_map(
    name: str, title: str, caption: str, rows: Rows, x: Axis, y: Axis, value: Axis
) -> Chart:
    """Cells coloured by a value, which stands in them."""
    import altair as alt

    least, most = value.domain or (0.0, 100.0)
    base = alt.Chart().encode(x=_channel(alt.X, x, labelAngle=0), y=_channel(alt.Y, y))
    colour = alt.Color(
        f"{value.column}:Q",
        title=value.title,
        scale=alt.Scale(scheme="blues", domain=[least, most]),
    )
    dark = f"datum['{value.column}'] > {least + 0.6 * (most - least)}"
    layers = [
        base.mark_rect(stroke="var(--page)").encode(color=colour),
        base.mark_text(fontSize=11).encode(
            text=alt.Text(f"{value.column}:Q", format=".0f"),
            color=alt.condition(dark, alt.value("#ffffff"), alt.value("#111111")),
        ),
    ]
    return _drawn(name, title, caption, rows, alt.layer(*layers), None, height=alt.Step(24))


def parts(
    name: str,
    title: str,
    caption: str,
    rows: Rows,
    category: Axis,
    value: Axis,
    part: Axis,
    *,
    share: bool = False,
) -> Chart:
    """Stacked bars, one a category; `share` makes them equally long."""
    import altair as alt

    names = list(part.order or _seen(rows, part.column))
    ranked: list[dict[str, Value]] = [
        dict(row) | {"_rank": names.index(str(row[part.column]))} for row in rows
    ]
    chart = (
        alt.Chart()
        .mark_bar(stroke="var(--page)", strokeWidth=0.5)
        .encode(
            y=_channel(alt.Y, category),
            x=alt.X(f"{value.column}:Q", title=value.title, stack="normalize" if share else "zero"),
            color=alt.Color(
                f"{part.column}:N",
                title=part.title,
                sort=names,
                scale=_styles(names, _PARTS),
            ),
            order=alt.Order("_rank:Q"),
        )
    )
    return _drawn(name, title, caption, ranked, chart, None, height=alt.Step(24))


def scatter(
    name: str,
    title: str,
    caption: str,
    rows: Rows,
    x: Axis,
    y: Axis,
    *,
    series: str = "series",
    low: str = "low",
    high: str = "high",
) -> Chart:
    """Named points with intervals of y: what a thing costs against what it gives."""
    import altair as alt

    names = _seen(rows, series)
    colour = _colour(series, names)
    up = alt.Scale(domain=_domain(y), zero=False)
    base = alt.Chart().encode(x=_channel(alt.X, x), color=colour)
    layers = [
        base.mark_rule(strokeWidth=2).encode(
            y=alt.Y(f"{low}:Q", title=y.title, scale=up), y2=f"{high}:Q"
        ),
        base.mark_point(filled=True, size=80, opacity=1).encode(
            y=alt.Y(f"{y.column}:Q", title=y.title, scale=up),
            shape=_shape(series, names),
        ),
    ]
    return _drawn(name, title, caption, rows, alt.layer(*layers), None)


def _drawn(
    name: str,
    title: str,
    caption: str,
    rows: Rows,
    chart: Any,
    panels: Axis | None,
    height: Any = 260,
    *,
    free: bool = False,
) -> Chart:
    """The chart with its rows, its drawing and a name for those who hear it."""
    import altair as alt
    import vl_convert
    from markupsafe import escape

    columns = tuple(column for column in rows[0] if not column.startswith("_")) if rows else ()
    data = alt.Data(values=[dict(row) for row in rows])
    if panels is None:
        chart = chart.properties(width=_WIDTH, height=height, data=data)
    else:
        small = chart.properties(width=_SMALL, height=120, data=data)
        chart = small.facet(
            facet=alt.Facet(
                f"{panels.column}:N",
                title=None,
                sort=list(panels.order or _seen(rows, panels.column)),
                header=alt.Header(labelColor="currentColor", labelFontWeight="bold"),
            ),
            columns=3,
        )
        if free:
            chart = chart.resolve_scale(y="independent")
    # Many drawings share a page: names inside one must not be those inside another.
    svg = _IDS.sub(
        rf"\g<0>{name}-", _ROLES.sub("", vl_convert.vegalite_to_svg(_themed(chart).to_json()))
    )
    label = escape(f"{title}. {caption}")
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    values = tuple(tuple(row.get(column) for column in columns) for row in rows)
    return Chart(name, title, caption, svg, columns, values)


def _themed(chart: alt.TopLevelMixin) -> Any:
    ink: dict[str, Any] = {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    }
    whole: Any = chart
    return (
        whole.configure(
            background="transparent",
            font="system-ui, sans-serif",
            # Texts are measured in another font than the reader's: room for a wider one.
            padding={"left": 36, "top": 5, "right": 24, "bottom": 5},
        )
        .configure_axis(
            gridColor="currentColor",
            gridOpacity=0.12,
            domainColor="currentColor",
            domainOpacity=0.5,
            tickColor="currentColor",
            tickOpacity=0.5,
            labelLimit=260,
            **ink,
        )
        .configure_legend(
            orient="bottom",
            columns=2,
            labelLimit=320,
            symbolStrokeWidth=2,
            columnPadding=40,
            title=None,
            **ink,
        )
        .configure_view(stroke=None)
    )


def _channel(kind: Any, axis: Axis, **more: Any) -> Any:
    import altair as alt

    shown: dict[str, Any] = {"title": axis.title}
    if more:
        shown["axis"] = alt.Axis(**more)
    if axis.kind == "Q":
        shown["scale"] = alt.Scale(domain=_domain(axis), zero=False, nice=False)
    else:
        shown["sort"] = list(axis.order) if axis.order else None
    return kind(f"{axis.column}:{axis.kind}", **shown)


def _shape(series: str, names: Sequence[str]) -> Any:
    import altair as alt

    return alt.Shape(f"{series}:N", scale=_styles(names, _SHAPES), title=None)


def _styles(names: Sequence[str], styles: Sequence[Any]) -> Any:
    """A style for each name, over again where the names are more."""
    import altair as alt

    return alt.Scale(domain=list(names), range=[styles[n % len(styles)] for n in range(len(names))])


def _domain(axis: Axis) -> Any:
    import altair as alt

    return list(axis.domain) if axis.domain else alt.Undefined


def _colour(series: str, names: Sequence[str]) -> Any:
    import altair as alt

    legend = alt.Undefined if len(names) > 1 else None
    return alt.Color(
        f"{series}:N",
        title=None,
        sort=list(names),
        scale=_styles(names, _SERIES),
        legend=legend,
    )


def _seen(rows: Rows, column: str, order: Sequence[str] = ()) -> list[str]:
    """The names of a column as they come, those of `order` first; no name that is not there."""
    found = dict.fromkeys(str(row[column]) for row in rows)
    return [*(name for name in order if name in found), *(n for n in found if n not in order)]
