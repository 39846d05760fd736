"""What a report says of a run of C²Gen NLI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from triaxial.api.gates import Figure, c2gen_figures
from triaxial.api.report_shown import DASH, dated, ends, interval, number, slug
from triaxial.report.figures import Axis, Chart, heat_map, intervals, parts, scatter
from triaxial.report.page import Section, Table, Verdict
from triaxial.store import read_json

__all__ = ["section_of"]

_TYPES = tuple(str(n) for n in range(1, 10))
_QUADRANTS = {
    "P+ CI+": "parts right, composition right",
    "P+ CI-": "parts right, composition wrong",
    "P- CI+": "a part wrong, composition right",
    "P- CI-": "a part wrong, composition wrong",
}
_PARTS = {
    "test": "held-out types",
    "probe": "untrained items of trained types",
    "unseen": "unseen primitives",
}
_METHOD = (
    "A composed item joins a veridical verb (V: does 'refuses to sing' say 'sings'?) and a natural "
    "inference from SICK (N); CI is the label of both together. Nine types are the labels of V by "
    "those of N; one is held out from training, and tested.",
    "Streams train all at once (cgen), veridical before natural inference (ver-nat) or the reverse "
    "(nat-ver); strategies keep what an earlier stage taught.",
    "Intervals are 95 % bootstraps over folds, seeds and premises; differences are paired on "
    "items, with Holm's correction.",
    "Source: Fu and Frank, TACL 12, 2024; its figures are of RoBERTa-large on the authors' data.",
)
_LIMITS = (
    "Always neutral is right in five of the nine types; V-only and N-only predict CI from one part "
    "alone. Read every CI against them.",
    "Labels of compositions follow the paper's rule; `triax c2gen score --target sound` scores by "
    "logic instead.",
)


def section_of(path: Path, name: str, place: str) -> tuple[Section, list[Figure]]:
    """The section of a run, and the figures that gates may name.

    Args:
        path: Directory of the run.
        name: How it is called.
        place: Name of its place on the page.
    """
    metrics = read_json(path / "metrics.json")
    manifest = read_json(path / "manifest.json")
    charts = (
        _by_type(metrics, place),
        _quadrants(metrics, place),
        _forgetting(metrics, place),
        _cost(metrics, place),
    )
    blocks: list[Table | Chart] = [_overview(metrics, place)]
    blocks += [chart for chart in charts if chart is not None]
    blocks.append(_claims(metrics, place))
    grid = manifest["facts"]["grid"]
    facts = [
        ("encoder", grid["encoder"]),
        ("items", f"{manifest['facts']['data']['file']}, {manifest['facts']['data']['digest']}"),
        ("folds", ", ".join(map(str, grid["folds"]))),
        ("seeds", ", ".join(map(str, grid["seeds"]))),
        ("items drawn", _told(grid["draw"])),
        ("training", _told(grid["train"])),
        ("settings", _told(grid["settings"])),
        *dated(manifest),
    ]
    section = Section(
        place,
        f"Composition: {name}",
        Verdict("composition", name, _sentence(metrics)),
        tuple(blocks),
        tuple(
            f"left out: {one['stream']} {one['strategy']}, type {one['test_type']}, seed "
            f"{one['seed']}: stages {one['there']} of {one['stages']} are there"
            for one in metrics["incomplete"]
        ),
        tuple(line for found in metrics["signatures"].values() for line in found.values()),
        _METHOD,
        _LIMITS,
        tuple((key, str(value)) for key, value in facts),
    )
    return section, c2gen_figures(metrics)


def _sentence(metrics: Mapping[str, Any]) -> str:
    """The best run on held-out compositions, what its parts are worth, and what is forgotten."""
    best = max(
        (
            (scored["CI"]["value"], stream, strategy, scored)
            for stream, strategy, run in _runs(metrics)
            if (scored := _last(run, "test")) is not None
        ),
        key=lambda one: (one[0], one[3]["V+N"]["value"]),
        default=None,
    )
    told = []
    if best is not None:
        _, stream, strategy, scored = best
        neutral = metrics["baselines"][stream]["test"]["always neutral"]["value"]
        told.append(
            f"At best ({strategy} on {stream}) {interval(scored['CI'])} % of held-out compositions "
            f"are right, with both parts right on {interval(scored['V+N'])} %; always neutral: "
            f"{neutral:.1f} %."
        )
    for stream, runs in metrics["streams"].items():
        if "none" not in runs:
            continue
        part, metric = _where_forgotten(runs["none"])
        lost = runs["none"]["forgetting"][part] if part else None
        if lost is None:
            continue
        kept = [
            (run["forgetting"][part]["forget"][metric]["value"], strategy)
            for strategy, run in runs.items()
            if strategy != "none" and run["forgetting"][part] is not None
        ]
        kept = [one for one in kept if one[0] is not None]
        least = min(kept, default=None)
        told.append(
            f"On {stream}, {interval(lost['forget'][metric])} % of {metric} is forgotten without a "
            "remedy" + (f", {least[0]:.1f} % with {least[1]}." if least else ".")
        )
    return " ".join(told)


def _where_forgotten(run: Mapping[str, Any]) -> tuple[str, str]:
    """Part and metric in which most is forgotten: what a stage before the last had taught."""
    found = [
        (figure["value"], part, metric)
        for part in ("probe", "test")
        if run["forgetting"].get(part) is not None
        for metric in ("V", "N", "CI")
        if (figure := run["forgetting"][part]["forget"][metric])["value"] is not None
    ]
    _, part, metric = max(found, default=(0.0, "", ""))
    return part, metric


def _overview(metrics: Mapping[str, Any], place: str) -> Table:
    rows: list[tuple[str, ...]] = []
    quiet: list[int] = []
    blank = ("",) * 3
    for stream, runs in metrics["streams"].items():
        for strategy, run in runs.items():
            scored = _last(run, "test")
            if scored is None:
                continue
            cells = (interval(scored[key]) for key in ("V", "N", "V+N", "CI"))
            oracle = number(scored["oracle"]["value"])
            rows.append((f"{stream}, {strategy}", *cells, oracle, f"{scored['CI']['n']:,}"))
        for name, one in (metrics["baselines"][stream]["test"] or {}).items():
            quiet.append(len(rows))
            label = f" ({one['label']})" if "label" in one else ""
            rows.append((f"{stream}, {name}{label}", *blank, interval(one), "", f"{one['n']:,}"))
        for label, told in _printed(metrics, stream):
            quiet.append(len(rows))
            shown = (told.get(key, "") for key in ("V", "N", "V+N", "CI"))
            rows.append((f"{stream}, {label}", *shown, "", ""))
    return Table(
        slug(place, "overview"),
        "Held-out types after the last stage",
        ("run", "V", "N", "V+N", "CI", "oracle", "n"),
        tuple(rows),
        "Percent right, with 95 % intervals. V+N: both parts right. CI: the composition right. "
        "Oracle: the rule applied to the model's own V and N. † derived from the paper's drops.",
        tuple(quiet),
    )


def _printed(metrics: Mapping[str, Any], stream: str) -> Iterator[tuple[str, dict[str, str]]]:
    found: dict[str, dict[str, str]] = {}
    for row in metrics["paper"]:
        if row["stream"] == stream:
            mark = "†" if row["derived"] else ""
            label = f"paper, {row['strategy']} ({row['model']})"
            found.setdefault(label, {})[row["metric"]] = f"{row['value']:.1f}{mark}"
    for label, cells in found.items():
        if any(key in cells for key in ("V", "N", "V+N", "CI")):
            yield label, cells


def _by_type(metrics: Mapping[str, Any], place: str) -> Chart | None:
    rows: list[dict[str, Any]] = []
    streams = set()
    for stream, strategy, run in _runs(metrics):
        for stage in map(str, range(1, run["stages"] + 1)):
            shared = stage == "1" and run["stages"] > 1
            if shared and stream in streams:
                continue  # the first stage is the same for all strategies
            streams.add(stream)
            name = f"after {stage} ({run['stage_names'][stage]})"
            for kind in _TYPES:
                part, figure = _figure_of_type(run["after"][stage], kind)
                if figure is None:
                    continue
                rows.append(
                    {
                        "run": f"{stream}, {name}" if shared else f"{stream}, {strategy}, {name}",
                        "type": kind,
                        "CI": figure["value"],
                        **ends(figure),
                        "n": figure["n"],
                        "items": _PARTS[part],
                    }
                )
    if not rows:
        return None
    least, most = min(row["n"] for row in rows), max(row["n"] for row in rows)
    which = " and ".join(dict.fromkeys(str(row["items"]) for row in rows))
    return heat_map(
        slug(place, "types"),
        "Compositions by type, stage by stage",
        "Across: the nine types, 1 to 9 (label of V by label of N: entailment, neutral, "
        "contradiction). Down: runs after each stage. Percent of compositions right, on "
        f"{which}; n {least:,} to {most:,} a cell, intervals in the numbers.",
        rows,
        Axis("type", "type", "O", _TYPES),
        Axis("run", "", "N", tuple(dict.fromkeys(str(row["run"]) for row in rows))),
        Axis("CI", "CI, %", domain=(0, 100)),
    )


def _figure_of_type(after: Mapping[str, Any], kind: str) -> tuple[str, Mapping[str, Any] | None]:
    """On items of trained types where they were judged, else on held-out ones."""
    for part in ("probe", "test"):
        scored = after.get(part)
        if scored is not None and kind in scored["types"]:
            figure = scored["types"][kind]["CI"]
            if figure["value"] is not None:
                return part, figure
    return "", None


def _quadrants(metrics: Mapping[str, Any], place: str) -> Chart | None:
    rows: list[dict[str, Any]] = []
    for stream, strategy, run in _runs(metrics):
        scored = _last(run, "test")
        if scored is None:
            continue
        for key, title in _QUADRANTS.items():
            count = scored["quadrants"]["all"][key]
            rows.append({"run": f"{stream}, {strategy}", "quadrant": title, "items": count})
    if not rows:
        return None
    total = sum(row["items"] for row in rows[:4])
    return parts(
        slug(place, "quadrants"),
        "Parts against compositions on held-out types",
        f"After the last stage, n {total:,} items a run. 'Parts right, composition wrong' is what "
        "the axis looks for: the model knows V and N, and does not put them together.",
        rows,
        Axis("run", "", "N", tuple(dict.fromkeys(str(row["run"]) for row in rows))),
        Axis("items", "share of items"),
        Axis("quadrant", "", "N", tuple(_QUADRANTS.values())),
        share=True,
    )


def _forgetting(metrics: Mapping[str, Any], place: str) -> Chart | None:
    rows: list[dict[str, Any]] = []
    part = next(
        (p for p in ("probe", "test") if any(r["forgetting"][p] for *_, r in _runs(metrics))), ""
    )
    for stream, strategy, run in _runs(metrics):
        found = run["forgetting"].get(part)
        if found is None:
            continue
        for metric in ("V", "N", "CI"):
            figure = found["forget"][metric]
            if figure["value"] is not None and figure["value"] > -100:
                rows.append(
                    {"run": f"{stream}, {strategy}", "of": metric, "forgotten": figure["value"]}
                    | {**ends(figure), "n": figure["n"]}
                )
    if not rows:
        return None
    return intervals(
        slug(place, "forgetting"),
        "What later stages make a model forget",
        f"(accuracy after the first stage - after the last) / after the first, percent, on "
        f"{_PARTS[part]}, with 95 % intervals; below zero, what later stages taught. n in the "
        "numbers.",
        rows,
        Axis("run", "", "N", tuple(dict.fromkeys(str(row["run"]) for row in rows))),
        Axis("forgotten", "forgotten, %", domain=(-100, 100)),
        series="of",
        at=0.0,
    )


def _cost(metrics: Mapping[str, Any], place: str) -> Chart | None:
    rows: list[dict[str, Any]] = []
    for stream, strategy, run in _runs(metrics):
        scored = _last(run, "test")
        spent = metrics["costs"].get(stream, {}).get(strategy)
        if scored is None or spent is None or run["stages"] == 1:
            continue
        figure = scored["V+N"]
        rows.append(
            {
                "strategy": strategy,
                "stream": stream,
                "seconds": spent["seconds"],
                "V+N": figure["value"],
                **ends(figure),
                "CI": scored["CI"]["value"],
                "n": figure["n"],
                "steps": spent["steps"],
                "tokens_per_second": spent["tokens_per_second"],
                "peak_mib": spent["peak_mib"],
            }
        )
    if not rows:
        return None
    longest = max(float(row["seconds"]) for row in rows)
    return scatter(
        slug(place, "cost"),
        "What each strategy costs and keeps",
        "Across: seconds of training after the first stage, mean over folds and seeds. Up: percent "
        "of held-out items with both parts right after the last stage, with 95 % intervals; one "
        "point a stream. Steps, tokens a second and peak memory are in the numbers.",
        rows,
        Axis("seconds", "seconds after the first stage", domain=(0, 1.05 * longest)),
        Axis("V+N", "V and N right, %", domain=(0, 100)),
        series="strategy",
    )


def _claims(metrics: Mapping[str, Any], place: str) -> Table:
    return Table(
        slug(place, "claims"),
        "The paper's claims, on this run",
        ("claim", "here", "difference of CI, points", "n", "decided by"),
        tuple(
            (
                claim["text"],
                claim["answer"],
                interval(claim | {"value": claim["difference"]}, "+.1f"),
                DASH if claim["n"] is None else f"{claim['n']:,}",
                claim["decided_by"] or DASH,
            )
            for claim in metrics["claims"]
        ),
        "Undecided: the interval holds zero, or tests of one claim disagree.",
    )


def _runs(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for stream, runs in metrics["streams"].items():
        for strategy, run in runs.items():
            yield stream, strategy, run


def _last(run: Mapping[str, Any], part: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = run["after"][str(run["stages"])][part]
    return found


def _told(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
