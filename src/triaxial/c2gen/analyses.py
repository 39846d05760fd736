"""How sure the figures of the composition axis are, and what follows when two runs are compared.

One prediction table in, plain JSON values out. A run is one strategy in one stream, a unit one fold
(test type, solution) and seed of it; `resample` says where intervals come from.

Letters: N rows, U units, M columns, S stages, L stages of learning.

Source: Fu and Frank, TACL 12, 2024, pp. 912-932 (forgetting, functions, orders, learning rates and
memory sizes, pseudo-words, plots of representations).
Choice: units that lack a stage are left out and listed, never averaged in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from triaxial.c2gen.metrics import (
    COLUMNS,
    CONFUSION,
    CONSTANTS,
    FORGETTING,
    METRICS,
    PARTS,
    Rows,
    Target,
    accuracy_matrix,
    baselines,
    forgetting_of,
    macro,
    macro_each,
    macro_f1,
    quadrants,
    rows_of,
    slices_of,
)
from triaxial.c2gen.paper import claims, orders, printed
from triaxial.c2gen.resample import (
    DRAWS,
    EMPTY,
    LEVEL,
    Cell,
    Resampler,
    Statistic,
    compared,
    comparison,
    comparisons,
    figure,
    figures,
    holm,
    last_stage,
)
from triaxial.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "claims",
    "orders",
    "pseudo_against_real",
    "representations",
    "signature",
    "summarize",
    "sweep",
]

Array = npt.NDArray[Any]

_SCORED = COLUMNS[:6]  # n, V, N, V+N, CI, oracle


def summarize(
    table: pl.DataFrame, *, seed: int = 1, target: Target = "paper", version: str = ""
) -> dict[str, Any]:
    """Every figure of every run, with intervals, comparisons and baselines.

    Args:
        table: The prediction table; see `metrics`.
        seed: Of the resamples.
        target: Gold labels of composed pairs: the `paper`'s or the `sound` ones.
        version: Of the package, for the signature.

    Returns:
        `streams`: by stream and strategy `stages`, `stage_names`, `folds`, `seeds`, `after` (by
        stage and part: figures V, N, V+N, CI, oracle, gap = V+N - CI, macro_f1, `types`,
        `functions`, `learned`, `quadrants`), `forgetting` (by part, definition and metric) and
        `matrix` (by part and stage). `baselines` by stream and part, `comparisons`, `incomplete`
        (units that lack a stage, left out), `paper`. A part without rows is null. A figure is
        `value`, `low`, `high` (percent or points), `n` rows, `folds`, `seeds`, `std_folds` (of the
        means over seeds) and `std_seeds` (of the means over folds), null with a single one.

    Raises:
        InputError: The table cannot be read, or no unit has all its stages.
    """
    rows, incomplete = _complete(rows_of(table, target=target))
    resampler = Resampler(seed)
    out: dict[str, Any] = {
        "target": target,
        "seed": seed,
        "draws": DRAWS,
        "level": LEVEL,
        "version": version,
        "streams": {},
        "baselines": {},
        "incomplete": incomplete,
        "paper": printed(),
    }
    runs = _runs(rows)
    for (stream, strategy), run in runs.items():
        if stream not in out["streams"]:
            out["streams"][stream] = {}
            out["baselines"][stream] = _baselines(run, resampler)
        out["streams"][stream][strategy] = _run(run, resampler)
    out["comparisons"] = comparisons(runs, resampler)
    return out


def signature(summary: Mapping[str, Any], stream: str, strategy: str) -> str:
    """The line that makes the main figure of a run comparable, in sacreBLEU's manner."""
    run = summary["streams"][stream][strategy]
    last = run["stages"]
    scored = run["after"][str(last)]["test"]
    main = EMPTY if scored is None else scored["CI"]
    value, low, high = (
        "-" if main[k] is None else f"{main[k]:.1f}" for k in ("value", "low", "high")
    )
    parts = [
        f"CI = {value} [{low}, {high}]",
        f"stream:{stream}",
        f"strategy:{strategy}",
        f"stage:{last}/{last}",
        f"folds:{main['folds']}",
        f"seeds:{main['seeds']}",
        f"n:{main['n']}",
    ]
    parts += [f"target:{summary['target']}"] if summary["target"] != "paper" else []
    parts += [f"v:{summary['version']}"] if summary["version"] else []
    return " | ".join(parts)


def sweep(
    table_by_setting: Mapping[str, pl.DataFrame], *, seed: int = 1, target: Target = "paper"
) -> list[dict[str, Any]]:
    """Runs at several settings (a learning rate, a memory size) on the held-out types.

    Args:
        table_by_setting: Prediction tables by setting; the first one is the base.
        seed: Of the resamples.
        target: As for `summarize`.

    Returns:
        One row a setting and run: `setting`, `stream`, `strategy`, the figures V, N, V+N, CI after
        the last stage, `forgetting` by definition and metric, `difference` of CI to the first
        setting on the same items (null there and where the base lacks the run), `p` and `p_holm`
        over the whole sweep.
    """
    resampler = Resampler(seed)
    bases: dict[tuple[str, str], Rows] = {}
    out: list[dict[str, Any]] = []
    for number, (setting, table) in enumerate(table_by_setting.items()):
        rows, _ = _complete(rows_of(table, target=target, where=str(setting)))
        for key, run in _runs(rows).items():
            tested = run.only(part="test")
            row: dict[str, Any] = {"setting": setting, "stream": key[0], "strategy": key[1]}
            row |= {"difference": None, "p": None, "p_holm": None}
            row |= _metrics(last_stage(tested), resampler)
            row["forgetting"] = _forgetting(tested, resampler)
            if number == 0:
                bases[key] = tested
            elif key in bases:
                found = compared(last_stage(bases[key]), last_stage(tested), resampler).get(
                    "CI", {}
                )
                row |= {name: found.get(name) for name in ("difference", "p")}
            out.append(row)
    holm(out)
    return out


def pseudo_against_real(
    real: pl.DataFrame, pseudo: pl.DataFrame, *, seed: int = 1, target: Target = "paper"
) -> list[dict[str, Any]]:
    """Runs on invented words against the same runs on real ones, on the items of both.

    A pretrained model may know the words; what it has lost with invented ones is what it knew.

    Returns:
        As the comparisons of `summarize`, of kind `pseudo`; base = real, new = pseudo.

    Raises:
        InputError: The tables share no run, or a run that they share no item.
    """
    resampler = Resampler(seed)
    sides = [
        _runs(_complete(rows_of(table, target=target, where=where))[0])
        for table, where in ((real, "real"), (pseudo, "pseudo"))
    ]
    shared = [key for key in sides[0] if key in sides[1]]
    if not shared:
        raise InputError(
            "real and pseudo predictions share no stream and strategy; run both on the same plan"
        )
    out = []
    for key in shared:
        base, new = (last_stage(side[key].only(part="test")) for side in sides)
        rows = comparison("pseudo", key, key, compared(base, new, resampler))
        if not rows:
            raise InputError(
                f"{key[0]} {key[1]}: real and pseudo predictions share no test item; make the "
                "pseudo items from the real ones, with the same ids, folds and seeds"
            )
        out += rows
    holm(out)
    return out


def representations(
    vectors: Array, labels: Sequence[str], *, method: str = "tsne", seed: int = 1
) -> dict[str, Any]:
    """Encoder vectors on a plane, and how well the labels part them.

    Args:
        vectors: Shape (N, D), N >= 4.
        labels: Label of each vector: at least two, fewer than N.
        method: `tsne` or `pca`.
        seed: Of t-SNE.

    Returns:
        `coordinates` (N pairs), `labels`, `method`, and `silhouette`: -1..1, mean over vectors, by
        `space` (cosine) and `plane` (Euclidean), in `all` and by label.

    Raises:
        InputError: Too few vectors or labels, or a value that is not finite.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from sklearn.metrics import silhouette_samples

    points = np.asarray(vectors, dtype=np.float64)
    names = np.asarray([str(label) for label in labels])
    count, kinds = len(points), sorted(set(names.tolist()))
    if points.ndim != 2 or len(names) != count or not 2 <= len(kinds) < count or count < 4:
        raise InputError(
            f"vectors of shape {points.shape} with {len(names)} labels of {len(kinds)} kinds; "
            "wanted at least 4 rows, a label each, of 2 kinds or more and fewer than rows"
        )
    if not np.isfinite(points).all():
        raise InputError("a vector holds NaN or infinity; take the vectors from a sound checkpoint")
    if method == "tsne":
        # Source: scikit-learn's default of 30, which must stay below N.
        mapper: Any = TSNE(perplexity=min(30.0, (count - 1) / 3), init="pca", random_state=seed)
    elif method == "pca":
        mapper = PCA(n_components=2, svd_solver="full")
    else:
        raise InputError(f"method {method!r}; wanted 'tsne' or 'pca'")
    plane = np.asarray(mapper.fit_transform(points), dtype=np.float64)
    widths = {
        "space": silhouette_samples(points, names, metric="cosine"),
        "plane": silhouette_samples(plane, names),
    }
    return {
        "method": method,
        "coordinates": plane.tolist(),
        "labels": names.tolist(),
        "silhouette": {
            place: {"all": float(width.mean())}
            | {kind: float(width[names == kind].mean()) for kind in kinds}
            for place, width in widths.items()
        },
    }


def _run(rows: Rows, resampler: Resampler) -> dict[str, Any]:
    """All figures of one run."""
    stages = int(rows.stages.max())
    parts = {part: rows.only(part=part) for part in PARTS}
    folds = np.unique(rows.units[np.unique(rows.unit), :2], axis=0)
    names = {
        str(s): str(rows.words["stage_name"][rows.stage == s][0]) for s in range(1, stages + 1)
    }
    return {
        "stages": stages,
        "stage_names": names,
        "folds": folds.tolist(),
        "seeds": np.unique(rows.units[np.unique(rows.unit), 2]).tolist(),
        "after": {
            str(stage): {
                part: _part(there.only(stage=stage), resampler) for part, there in parts.items()
            }
            for stage in range(1, stages + 1)
        },
        "forgetting": {part: _forgetting(there, resampler) for part, there in parts.items()},
        "matrix": {
            part: {str(stage): row for stage, row in accuracy_matrix(there).items()} or None
            for part, there in parts.items()
        },
    }


def _part(rows: Rows, resampler: Resampler) -> dict[str, Any] | None:
    """Figures of one run after one stage on one part."""
    if not len(rows.unit):
        return None
    groups = np.unique(rows.group)
    cell = resampler.cell(rows, rows.values, groups)
    out: dict[str, Any] = _each(cell, _SCORED[1:])
    out["gap"] = figure(cell, lambda s, w: macro(s, w, "V+N") - macro(s, w, "CI"))
    out["macro_f1"] = figure(cell, _pooled_f1, by_fold=False)
    out |= {"types": {}, "functions": {}, "learned": {}}
    for (kind, name), mask in slices_of(rows).items():
        chosen = rows.pick(mask)
        small = resampler.cell(chosen, chosen.values[:, : len(_SCORED)], groups)
        out[kind][name] = _each(small, _SCORED[1:])
    out["quadrants"] = quadrants(rows)
    return out


def _metrics(rows: Rows, resampler: Resampler) -> dict[str, Any]:
    """V, N, V+N and CI of rows of one run and stage."""
    if not len(rows.unit):
        return {name: dict(EMPTY) for name in METRICS}
    cell = resampler.cell(rows, rows.values, np.unique(rows.group))
    return _each(cell, METRICS)


def _baselines(rows: Rows, resampler: Resampler) -> dict[str, Any]:
    """Baselines by part; they depend on the items alone."""
    out: dict[str, Any] = {}
    for part in PARTS:
        there = last_stage(rows.only(part=part))
        if not len(there.unit):
            out[part] = None
            continue
        cell = resampler.cell(there, there.values, np.unique(there.group))
        best = baselines(there)["majority_label"]
        out[part] = {
            "always neutral": figure(cell, _macro(*CONSTANTS["neutral"]), share=True),
            "majority": figure(cell, _macro(*CONSTANTS[best]), share=True) | {"label": best},
            "V-only": figure(cell, _macro("V-only"), share=True),
            "N-only": figure(cell, _macro("N-only"), share=True),
        }
    return out


def _forgetting(rows: Rows, resampler: Resampler) -> dict[str, dict[str, Any]] | None:
    """The three definitions for each metric, or `None` without rows or a second stage."""
    stages, learned = (tuple(np.unique(c).tolist()) for c in (rows.stage, rows.learned))
    if len(stages) < 2:
        return None
    # One block of columns for each stage and stage of learning, which all share the draws.
    wide = len(_SCORED)
    values = np.zeros((len(rows.unit), len(stages), len(learned), wide), np.int64)
    at = (np.searchsorted(stages, rows.stage), np.searchsorted(learned, rows.learned))
    values[(np.arange(len(rows.unit)), *at)] = rows.values[:, :wide]
    cell = resampler.cell(rows, values.reshape(len(rows.unit), -1), np.unique(rows.group))

    def definitions(sums: Array, weights: Array) -> Array:
        blocks = sums.reshape(*sums.shape[:-1], len(stages), len(learned), wide)
        blocks = np.moveaxis(blocks, -4, -2)  # (..., S, L, U, columns)
        matrix = macro_each(blocks, weights[..., None, None, :], METRICS, _SCORED)
        found = forgetting_of(np.moveaxis(matrix, -1, -3), stages, learned)
        return np.concatenate([found[name] for name in FORGETTING], axis=-1)  # (..., 3 * 4)

    last = int((rows.stage == stages[-1]).sum())  # a row is counted once, not at every stage
    found = [f | {"n": last} if f["n"] else f for f in figures(cell, definitions)]
    in_order = iter(found)
    return {name: {metric: next(in_order) for metric in METRICS} for name in FORGETTING}


def _complete(rows: Rows) -> tuple[Rows, list[dict[str, Any]]]:
    """Rows of units with all their stages, and the units that were left out."""
    keep = np.ones(len(rows.unit), dtype=bool)
    left = []
    for (stream, strategy), places in _places(rows).items():
        for unit in np.unique(rows.unit[places]).tolist():
            mine = places[rows.unit[places] == unit]
            there = np.unique(rows.stage[mine]).tolist()
            stages = int(rows.stages[mine].max())
            if there != list(range(1, stages + 1)):
                keep[mine] = False
                names = ("test_type", "solution", "seed")
                left.append(
                    {"stream": stream, "strategy": strategy}
                    | dict(zip(names, rows.units[unit].tolist(), strict=True))
                    | {"stages": stages, "there": there}
                )
    if not keep.any():
        raise InputError(
            f"none of {len(left)} units has predictions of all its stages; finish the runs first",
            where="predictions",
        )
    return rows.pick(keep), left


def _runs(rows: Rows) -> dict[tuple[str, str], Rows]:
    return {key: rows.pick(places) for key, places in _places(rows).items()}


def _places(rows: Rows) -> dict[tuple[str, str], Array]:
    """Rows of each run, in the order of the table."""
    keys = list(zip(rows.words["stream"], rows.words["strategy"], strict=True))
    known = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    codes = np.asarray([known[key] for key in keys], dtype=np.int64)
    return {(str(a), str(b)): np.flatnonzero(codes == code) for (a, b), code in known.items()}


def _each(cell: Cell, names: tuple[str, ...]) -> dict[str, Any]:
    """The figure of each column."""
    found = figures(
        cell, lambda sums, weights: macro_each(sums, weights, names, _SCORED), share=True
    )
    return dict(zip(names, found, strict=True))


def _macro(*hits: str) -> Statistic:
    return lambda sums, weights: macro(sums, weights, *hits)


def _pooled_f1(sums: Array, weights: Array) -> Array:
    counts = (sums[..., -len(CONFUSION) :] * weights[..., None]).sum(axis=-2)
    return macro_f1(counts.reshape(*counts.shape[:-1], 3, 3))
