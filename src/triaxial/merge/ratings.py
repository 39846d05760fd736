"""The manual check: fluency and kept relation, agreement of raters, and the ceiling they imply.

Source: MERGE, manual check (fluency F 1-5, relation kept R 1-5, good when F + R >= 9; good shares
of 100 % on MNLI-m, 98 % on MNLI-mm, 91 % on SNLI).
Choice: with several raters, F + R is the mean over them; agreement is a quadratically weighted
kappa.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from triaxial.errors import InputError
from triaxial.merge.score import GRID
from triaxial.stats import Interval, bootstrap, generator

__all__ = ["PAPER_GOOD_SHARE", "Item", "Ratings", "ceiling", "rate", "read_sheet", "sheet"]

PAPER_GOOD_SHARE = {"MNLI-m": 100, "MNLI-mm": 98, "SNLI": 91}
"""Source: MERGE, manual check; percent of variants with F + R >= 9."""

_COLUMNS = (
    "item",
    "seed premise",
    "seed hypothesis",
    "label",
    "variant premise",
    "variant hypothesis",
    "F",
    "R",
)


@dataclass(frozen=True, slots=True)
class Item:
    """One variant to be rated; `item` is "seed id#variant number"."""

    item: str
    seed_premise: str
    seed_hypothesis: str
    label: str
    premise: str
    hypothesis: str


@dataclass(frozen=True, slots=True)
class Ratings:
    """What the raters say of a sample of variants.

    Args:
        items: Number of rated variants.
        raters: Number of raters.
        good: Share of variants with a mean F + R >= 9, percent, clustered by seed.
        fluency: Mean F.
        relation: Mean R.
        kappa_fluency: Mean over pairs of raters; `None` with one rater.
        kappa_relation: The same for R.
        ceiling: SV that a perfect model reaches at each CT of the grid, percent.
    """

    items: int
    raters: int
    good: Interval
    fluency: float
    relation: float
    kappa_fluency: float | None
    kappa_relation: float | None
    ceiling: tuple[Interval, ...]

    def plain(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def sheet(items: Sequence[Item]) -> str:
    """A CSV sheet with empty columns F and R, for any spreadsheet program."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(_COLUMNS)
    for item in items:
        writer.writerow([*asdict(item).values(), "", ""])
    return out.getvalue()


def read_sheet(path: str | Path) -> dict[str, tuple[int, int]]:
    """F and R by item from a filled sheet; rows left empty are skipped.

    Raises:
        InputError: Not such a sheet, an item twice, a rating that is not 1 to 5, none at all.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError("no such rating sheet", where=path) from None
    except IsADirectoryError:
        raise InputError("is a directory; name the filled sheet in it", where=path) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8; save the sheet as CSV in UTF-8", where=path) from None
    # Not csv.Sniffer: on a header without quotes it concludes that a doubled quote is no quote.
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    missing = {"item", "F", "R"}.difference(reader.fieldnames or ())
    if missing:
        raise InputError(
            f"has no column {sorted(missing)[0]!r}; fill the sheet that `rate export` wrote",
            where=path,
        )
    found: dict[str, tuple[int, int]] = {}
    for number, row in enumerate(reader, start=1):
        given = [(row[name] or "").strip() for name in ("F", "R")]
        if not any(given):
            continue
        if any(value not in ("1", "2", "3", "4", "5") for value in given):
            raise InputError(
                f"F = {given[0]!r}, R = {given[1]!r}; both are whole numbers from 1 to 5",
                where=f"{path}:{number}",
            )
        if not row["item"]:
            raise InputError(
                "has ratings but no item; keep the column item", where=f"{path}:{number}"
            )
        if row["item"] in found:
            raise InputError(f"item {row['item']!r} is rated twice", where=f"{path}:{number}")
        found[row["item"]] = int(given[0]), int(given[1])
    if not found:
        raise InputError("no row has ratings; fill the columns F and R", where=path)
    return found


def rate(sheets: Sequence[Mapping[str, tuple[int, int]]], n: int, *, seed: int = 1) -> Ratings:
    """Good share, agreement and ceiling from the raters' sheets.

    Only items that every rater rated count.

    Args:
        sheets: F and R by item, a rater each.
        n: Variants a draw, for the ceiling.
        seed: Of the bootstrap.

    Raises:
        InputError: The sheets have no item in common.
    """
    items = sorted(set.intersection(*(set(rated) for rated in sheets)))
    if not items:
        raise InputError("the rating sheets have no item in common; are they of one sample?")
    marks = np.asarray([[rated[item] for item in items] for rated in sheets])  # (raters, items, 2)
    total = marks.sum(axis=(0, 2))  # exact: compared as sums, not as means
    good = total >= 9 * len(sheets)
    seeds = np.unique([item.rpartition("#")[0] for item in items], return_inverse=True)[1]
    units = np.column_stack([np.ones(len(items), dtype=np.int64), good])
    share = bootstrap(
        units,
        lambda sums: 100 * sums[..., 1] / sums[..., 0],
        clusters=seeds,
        rng=generator("merge.ratings", seed),
    )
    return Ratings(
        items=len(items),
        raters=len(sheets),
        good=share,
        fluency=float(marks[:, :, 0].mean()),
        relation=float(marks[:, :, 1].mean()),
        kappa_fluency=_kappa(marks[:, :, 0]),
        kappa_relation=_kappa(marks[:, :, 1]),
        ceiling=ceiling(share, n),
    )


def ceiling(good: Interval, n: int) -> tuple[Interval, ...]:
    """SV of a model that is right on every good variant and on no other, at each CT.

    Choice: bad variants fall on seeds independently, so that the number of good ones among n is
    binomial; the ends of the interval are those of the good share.
    """
    from scipy.special import bdtrc

    needed = [-(-ct * n // 100) for ct in GRID]  # the fewest hits with 100 * hits >= CT * n

    def reached(percent: float) -> list[float]:
        return [100 * float(bdtrc(k - 1, n, percent / 100)) for k in needed]

    curves = (reached(good.value), reached(good.low), reached(good.high))
    return tuple(Interval(*values) for values in zip(*curves, strict=True))


def _kappa(marks: np.ndarray[Any, Any]) -> float | None:
    from sklearn.metrics import cohen_kappa_score

    if len(marks) < 2:
        return None
    pairs = []
    for one, other in combinations(marks, 2):
        if (one == other).all():
            pairs.append(1.0)  # the formula divides by zero when nobody ever varies
        else:
            weights = "quadratic"
            pairs.append(
                float(cohen_kappa_score(one, other, weights=weights, labels=[1, 2, 3, 4, 5]))
            )
    return float(np.mean(pairs))
