"""What a report says of an analysis of the time axis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triaxial.api.gates import Figure, temporal_figures
from triaxial.api.report_shown import DASH, dated, ends, interval, number, slug
from triaxial.report.figures import Axis, Chart, curves, intervals
from triaxial.report.page import Section, Table, Verdict
from triaxial.store import read_json

__all__ = ["section_of"]

_TOP = 25  # emerging words listed
_METHOD = (
    "A model trained on the past is compared, on the same later documents, with CONTROL: the same "
    "model trained on as many documents of the test's own months. Their ratio of perplexities per "
    "word is what age costs; absolute perplexity differs between months for other reasons.",
    "Every token is scored once; perplexity is per Moses word, so tokenizers compare.",
    "Bands are 95 % bootstraps over documents within bins; slopes are of 100 log(ratio) over "
    "months, with t-intervals over bins.",
    "Source: Lazaridou et al. 2021; its figures are of its own models and corpora.",
)
_LIMITS = (
    "A curve against a unigram control (marked) is no CONTROL model: it removes what the words "
    "alone explain, not what contexts do.",
    "Where sources come and go, composition and drift mix; slopes with matched sources are in "
    "metrics.json.",
)


def section_of(path: Path, name: str, place: str) -> tuple[Section, list[Figure]]:
    """The section of an analysis, and the figures that gates may name.

    Args:
        path: Directory of the analysis.
        name: How it is called.
        place: Name of its place on the page.
    """
    metrics = read_json(path / "metrics.json")
    manifest = read_json(path / "manifest.json")
    found = (
        _curve(metrics, place),
        _slices(metrics, place, "tags"),
        _slice_curves(metrics, place),
        _slices(metrics, place, "topics"),
        _new_words(metrics, place),
        _emerging(metrics, place),
        _change(metrics, place),
        _adapted(metrics, place),
        _claims(metrics, place),
    )
    first, last = metrics["months"]
    facts = [
        ("documents", f"{metrics['documents']:,}"),
        ("words", f"{metrics['words']:,}"),
        ("test", f"{first} to {last}, by {metrics['bin']}"),
        ("trained to", str(metrics["cutoff"])),
        *(
            (
                f"run {run}",
                f"{one['model']} ({one['setup']}, {one['size']}, fingerprint "
                f"{one['fingerprint']}), context {one['context']}, {one['precision']}",
            )
            for run, one in metrics["runs"].items()
        ),
        *dated(manifest),
    ]
    section = Section(
        place,
        f"Time: {name}",
        Verdict("time", name, _sentence(metrics)),
        (_overview(metrics, place), *(block for block in found if block is not None)),
        tuple(
            f"{run}: {one['unknown']:,} unknown pieces; its perplexity is not valid"
            for run, one in metrics["runs"].items()
            if not one["valid"]
        ),
        tuple(metrics["signatures"].values()),
        _METHOD,
        _LIMITS,
        tuple((key, str(value)) for key, value in facts),
    )
    return section, temporal_figures(metrics)


def _sentence(metrics: Mapping[str, Any]) -> str:
    told = []
    for run, found in metrics["curves"].items():
        if metrics["runs"][run]["adaptation"]:
            continue
        drift = metrics["drift"][run]
        slope = found["slope"]
        against = (
            f"CONTROL ({found['control']})"
            if found["control_kind"] == "control"
            else "a unigram control"
        )
        first, last = metrics["months"]
        more = interval(found["overall"]["percent"], "+.1f")
        said = f"{run}, trained to {metrics['cutoff']}, stands {more} % in perplexity against "
        said += f"{against} on {first} to {last}"
        if slope is not None:
            said += f", and the gap moves by {interval(slope, '+.2f')} % a month"
        said += {"yes": ": it drifts", "no": ": no drift is shown"}.get(
            drift["drifts"], f": drift {drift['drifts']}"
        )
        rise = drift["rise"]
        # Without a drift that is shown, months until so much of it would contradict the sentence.
        if drift["drifts"] == "yes" and rise and rise["value"] is not None:
            said += f", {rise['percent']:g} % after {rise['value']:.0f} months"
        told.append(said + ".")
    for row in metrics["differences"]:
        if row["kind"] == "adaptation":
            told.append(
                f"Dynamic evaluation ({row['new']}) changes perplexity by "
                f"{interval(row['overall']['percent'], '+.1f')} %."
            )
    return " ".join(told)


def _overview(metrics: Mapping[str, Any], place: str) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, run in metrics["runs"].items():
        found = metrics["curves"].get(name)
        whole = found["overall"] if found and found["control_kind"] == "control" else None
        mark = "" if not found or whole else " †"
        rows.append(
            (
                name + mark,
                interval(run["perplexity"], ",.2f"),
                number(run["bits_per_byte"]["value"], ".3f"),
                number(run["pieces_per_word"], ".2f"),
                interval(whole["percent"], "+.2f") if whole else DASH,
                interval(found["slope"], "+.3f") if found else DASH,
                DASH if not found or not found["slope"] else f"{found['slope']['p']:.3f}",
            )
        )
    quiet = []
    for row in metrics["paper"]:
        if row["figure"] == "perplexity" and row["corpus"] == "WMT":
            quiet.append(len(rows))
            rows.append((f"paper, WMT, {row['note']}", f"{row['value']:.2f}", *("",) * 5))
    return Table(
        slug(place, "overview"),
        "Perplexity, and what age costs",
        (
            "run",
            "perplexity a word",
            "bits a byte",
            "pieces a word",
            "Δ %",
            "slope, % a month",
            "p",
        ),
        tuple(rows),
        f"{metrics['documents']:,} documents, {metrics['words']:,} words; 95 % intervals. Δ: over "
        "CONTROL. † against a unigram control refit in each month, not a CONTROL model.",
        tuple(quiet),
    )


def _curve(metrics: Mapping[str, Any], place: str) -> Chart | None:
    rows = [
        {
            "run": run,
            "bin": one["bin"],
            "months": one["x"],
            "increase": one["increase"]["value"],
            **ends(one["increase"]),
            "documents": one["documents"],
            "words": one["words"],
        }
        for run, found in metrics["curves"].items()
        for one in found["bins"]
        if one["increase"]["value"] is not None
    ]
    if not rows:
        return None
    least, most = min(r["documents"] for r in rows), max(r["documents"] for r in rows)
    return curves(
        slug(place, "drift"),
        "Increase of perplexity with distance from training",
        f"Across: months after {metrics['cutoff']}, the end of training, one point a "
        f"{metrics['bin']} ({least:,} to {most:,} documents). Up: percent over the control, with "
        "95 % bands over documents.",
        rows,
        Axis("months", f"months after {metrics['cutoff']}"),
        Axis("increase", "perplexity over control, %"),
        series="run",
        zero=True,
        order=list(metrics["runs"]),
    )


def _slices(metrics: Mapping[str, Any], place: str, kind: str) -> Chart | None:
    if not metrics[kind]:
        return None
    rows: list[dict[str, Any]] = []
    for row in metrics[kind]["rows"]:
        label = f"{row['cell']} {' '.join(row.get('top', [])[:4])}".strip()
        for run, found in row["runs"].items():
            figure = found["increase"]
            if figure["value"] is not None:
                rows.append(
                    {"cell": label, "run": run, "increase": figure["value"]}
                    | {**ends(figure), "n": row["n"]}
                )
    if not rows:
        return None
    rows.sort(key=lambda r: -r["increase"])
    what = "part of speech" if kind == "tags" else "topic"
    return intervals(
        slug(place, kind),
        f"What goes stale: by {what}",
        f"Percent of perplexity over the control, with 95 % intervals over documents, the stalest "
        f"first; words of each {what} in the numbers."
        + ("" if kind == "tags" else " Topics are LDA's, learned on training documents alone."),
        rows,
        Axis("cell", "", "N", tuple(dict.fromkeys(str(row["cell"]) for row in rows))),
        Axis("increase", "perplexity over control, %"),
        series="run",
        at=0.0,
        order=list(metrics["runs"]),
    )


def _slice_curves(metrics: Mapping[str, Any], place: str) -> Chart | None:
    """The first run by part of speech and bin, the most frequent nine."""
    if not metrics["tags"] or not metrics["curves"]:
        return None
    run = next(iter(metrics["curves"]))
    whole = metrics["curves"][run]["bins"]
    chosen = sorted(metrics["tags"]["rows"], key=lambda row: -row["n"])[:9]
    rows = [
        {"tag": row["cell"], "run": run, "months": at["x"], "increase": one["value"]} | ends(one)
        for row in chosen
        for at, cell in zip(whole, row["runs"][run]["bins"], strict=True)
        if (one := cell["increase"])["value"] is not None and at["x"] is not None
    ]
    if not rows:
        return None
    return curves(
        slug(place, "tags", "curves"),
        f"By part of speech and {metrics['bin']}: {run}",
        f"The nine most frequent. Across: months after {metrics['cutoff']}; up: percent of "
        "perplexity over the control, with 95 % bands, each on a scale of its own.",
        rows,
        Axis("months", "months"),
        Axis("increase", "%"),
        series="run",
        panels=Axis("tag", "", "N", tuple(row["cell"] for row in chosen)),
        free=True,
        zero=True,
    )


def _new_words(metrics: Mapping[str, Any], place: str) -> Chart | None:
    found = metrics["emerging"]
    if not found:
        return None
    rows = [
        {"words": f"{row['cell']} ({row['n']:,})", "run": run, "perplexity": figure["value"]}
        | {**ends(figure), "n": row["n"]}
        for row in found["cells"]
        for run, figure in row["perplexity"].items()
        if figure["value"] is not None
    ]
    if not rows:
        return None
    return intervals(
        slug(place, "new"),
        "Emerging words against known ones",
        f"{found['words']:,} emerging words with {found['mentions']:,} mentions: at least "
        f"{found['least']} in the test, and unseen in training or {found['ratio']:g} times rarer "
        "there. Perplexity on a logarithmic scale, with 95 % intervals. The paper: 109.73 static, "
        "66.26 with dynamic evaluation.",
        rows,
        Axis("words", "", "N", tuple(dict.fromkeys(str(row["words"]) for row in rows))),
        Axis("perplexity", "perplexity a word"),
        series="run",
        log=True,
        order=list(metrics["runs"]),
    )


def _emerging(metrics: Mapping[str, Any], place: str) -> Table | None:
    found = metrics["emerging"]
    if not found or not found["top"]:
        return None
    runs = list(metrics["runs"])
    return Table(
        slug(place, "emerging"),
        "The most frequent emerging words",
        ("word", "first seen", "mentions", "in training", *(f"perplexity, {run}" for run in runs)),
        tuple(
            (
                word["text"],
                word["month"],
                f"{word['mentions']:,}",
                "unseen" if word["unseen"] else f"{word['training']:,}",
                *(number(word["perplexity"][run], ",.1f") for run in runs),
            )
            for word in found["top"][:_TOP]
        ),
        f"{min(_TOP, len(found['top']))} of {found['words']:,}.",
    )


def _change(metrics: Mapping[str, Any], place: str) -> Chart | None:
    if not metrics["change"]:
        return None
    rows = [
        {"part": part, "run": run, "nats": one["level"]["value"]} | ends(one["level"])
        for run, found in metrics["change"].items()
        for part, one in found["parts"].items()
        if one["level"]["value"] is not None
    ]
    if not rows:
        return None
    return intervals(
        slug(place, "change"),
        "Where the increase comes from",
        "Parts of the increase that add up to 'all', in percent of perplexity (100 times nats a "
        "word), with 95 % intervals over documents.",
        rows,
        Axis("part", "", "N", tuple(dict.fromkeys(str(row["part"]) for row in rows))),
        Axis("nats", "of the increase, % "),
        series="run",
        at=0.0,
        order=list(metrics["runs"]),
    )


def _adapted(metrics: Mapping[str, Any], place: str) -> Table | None:
    """Static against adapted, with the cost."""
    adapted = [run for run, one in metrics["runs"].items() if one["adaptation"]]
    if not adapted:
        return None
    rows = []
    for run, one in metrics["runs"].items():
        gains = [
            row for row in metrics["differences"]
            if row["kind"] == "adaptation" and row["new"] == run
        ]  # fmt: skip
        spent = (metrics["costs"] or {}).get(run) or {}
        seconds = spent.get("seconds") or [None]
        rows.append(
            (
                run,
                one["adaptation"] or "static",
                interval(one["perplexity"], ",.2f"),
                interval(gains[0]["overall"]["percent"], "+.2f") if gains else DASH,
                interval(gains[0]["slope"], "+.3f") if gains else DASH,
                number(spent.get("pieces_per_second"), ",.0f"),
                number(seconds[0], ",.0f"),
                number(spent.get("peak_mib"), ",.0f"),
            )
        )
    return Table(
        slug(place, "adapted"),
        "Static against adapted: gain and cost",
        (
            "run", "adaptation", "perplexity a word", "Δ % to static", "Δ slope, % a month",
            "pieces/s", "seconds", "peak MiB",
        ),
        tuple(rows),
        "Dynamic evaluation learns from what it has just been scored on; its settings were chosen "
        "on validation months. 95 % intervals.",
    )  # fmt: skip


def _claims(metrics: Mapping[str, Any], place: str) -> Table:
    return Table(
        slug(place, "claims"),
        "The paper's claims, on this run",
        ("claim", "here", "difference", "unit", "n", "decided by"),
        tuple(
            (
                claim["text"],
                claim["answer"],
                interval(claim | {"value": claim["difference"]}, "+.2f"),
                claim["unit"] or DASH,
                DASH if claim["n"] is None else f"{claim['n']:,}",
                claim["decided_by"] or DASH,
            )
            for claim in metrics["claims"]
        ),
        "Undecided: the interval holds zero, tests of one claim disagree, or nothing was measured.",
    )
