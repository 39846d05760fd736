"""The rating sheet there and back, agreement and ceiling by hand."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from triaxial.errors import InputError
from triaxial.merge.ratings import PAPER_GOOD_SHARE, Item, ceiling, rate, read_sheet, sheet
from triaxial.merge.score import GRID
from triaxial.stats import Interval

ITEMS = [
    Item("1#0", "A man, a plan", 'He said "no, no"', "neutral", "A dog, a plan", 'said ""'),
    Item("1#1", "line\nbreak", "semi;colon", "neutral", "tab\there", "é 猫"),
    Item("x#y#2", "p", "h", "entailment", "p2", "h2"),
]
GIVEN = [("5", "4"), ("1", "2"), ("3", "5")]
EXPECTED = {"1#0": (5, 4), "1#1": (1, 2), "x#y#2": (3, 5)}


def filled(text: str, given: list[tuple[str, str]]) -> list[list[str]]:
    rows = list(csv.reader(io.StringIO(text, newline="")))
    return [rows[0], *([*row[:-2], *marks] for row, marks in zip(rows[1:], given, strict=True))]


def write(path: Path, rows: list[list[str]], encoding: str = "utf-8", **dialect: object) -> Path:
    out = io.StringIO()
    csv.writer(out, **dialect).writerows(rows)
    path.write_bytes(out.getvalue().encode(encoding))
    return path


def test_the_sheet() -> None:
    rows = list(csv.DictReader(io.StringIO(sheet(ITEMS), newline="")))
    assert [row["item"] for row in rows] == ["1#0", "1#1", "x#y#2"]
    assert rows[0]["seed hypothesis"] == 'He said "no, no"'
    assert rows[1]["seed premise"] == "line\nbreak"
    assert {(row["F"], row["R"]) for row in rows} == {("", "")}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_round_trip_as_spreadsheets_write_it(
    tmp_path: Path, delimiter: str, encoding: str, quoting: int
) -> None:
    rows = filled(sheet(ITEMS), GIVEN)
    path = write(tmp_path / "s.csv", rows, encoding, delimiter=delimiter, quoting=quoting)
    assert read_sheet(path) == EXPECTED


def test_rows_left_empty_are_skipped_and_columns_may_move(tmp_path: Path) -> None:
    rows = filled(sheet(ITEMS), [("5", "4"), ("", " "), (" 3", "5 ")])
    assert read_sheet(write(tmp_path / "s.csv", rows)) == {"1#0": (5, 4), "x#y#2": (3, 5)}
    moved = [[row[6], row[0], row[7], "note"] for row in rows]
    assert read_sheet(write(tmp_path / "t.csv", moved)) == {"1#0": (5, 4), "x#y#2": (3, 5)}


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (("6", "1"), "F = '6', R = '1'; both are whole numbers from 1 to 5"),
        (("5", ""), "F = '5', R = ''; both are whole numbers from 1 to 5"),
        (("", "3"), "F = '', R = '3'; both are whole numbers from 1 to 5"),
        (("good", "5"), "F = 'good', R = '5'; both are whole numbers from 1 to 5"),
        (("4.5", "5"), "F = '4.5', R = '5'; both are whole numbers from 1 to 5"),
    ],
)
def test_a_rating_that_is_none(tmp_path: Path, marks: tuple[str, str], message: str) -> None:
    path = write(tmp_path / "s.csv", filled(sheet(ITEMS), [("5", "4"), marks, ("1", "1")]))
    with pytest.raises(InputError) as caught:
        read_sheet(path)
    assert str(caught.value) == f"{path}:2: {message}"


def test_an_item_twice_or_none(tmp_path: Path) -> None:
    rows = filled(sheet(ITEMS), GIVEN)
    path = write(tmp_path / "s.csv", [*rows, rows[1]])
    with pytest.raises(InputError, match=r"s\.csv:4: item '1#0' is rated twice"):
        read_sheet(path)
    path = write(tmp_path / "s.csv", [*rows, ["", *rows[1][1:]]])
    with pytest.raises(InputError, match=r"s\.csv:4: has ratings but no item; keep the column"):
        read_sheet(path)


def test_files_that_are_no_sheets(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: no such rating sheet"):
        read_sheet(tmp_path / "none.csv")
    with pytest.raises(InputError, match="is a directory; name the filled sheet in it"):
        read_sheet(tmp_path)
    path = tmp_path / "s.csv"
    for text, missing in (("", "F"), ("item,F\n1,5\n", "R"), ("a|b\n", "F")):
        path.write_text(text)
        expected = rf"s\.csv: has no column '{missing}'; fill the sheet that `rate export` wrote"
        with pytest.raises(InputError, match=expected):
            read_sheet(path)
    path.write_bytes("item,F,R\né,5,5\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"s\.csv: is not UTF-8; save the sheet as CSV in UTF-8"):
        read_sheet(path)
    path.write_text(sheet(ITEMS))
    with pytest.raises(InputError, match=r"s\.csv: no row has ratings; fill the columns F and R"):
        read_sheet(path)


def test_good_is_nine_of_ten() -> None:
    found = rate([{"1#0": (5, 4), "2#0": (4, 4), "3#0": (5, 5), "4#0": (4, 5)}], 20)
    assert (found.items, found.raters) == (4, 1)
    assert found.good.value == 75
    assert (found.fluency, found.relation) == (4.5, 4.5)
    assert (found.kappa_fluency, found.kappa_relation) == (None, None)


def test_several_raters_are_averaged_over_common_items() -> None:
    # 1#0: (5+4 + 4+5) / 2 = 9, good; 2#0: (9 + 8) / 2 = 8.5, not; 3#0 by one rater alone.
    one = {"1#0": (5, 4), "2#0": (5, 4), "3#0": (1, 1)}
    found = rate([one, {"1#0": (4, 5), "2#0": (4, 4)}], 20)
    assert (found.items, found.raters, found.good.value) == (2, 2, 50)


def test_kappa_by_hand() -> None:
    # F: 5 5 4 3 and 5 4 4 3. Squared distances 0 1 0 0: mean 1/4. By chance, each F of the one
    # with each of the other: twice (0+1+1+4), then (1+0+0+1), (4+1+1+0): 20/16.
    # kappa = 1 - (1/4) / (20/16) = .8
    one = {f"{n}#0": (f, 5) for n, f in enumerate((5, 5, 4, 3))}
    other = {f"{n}#0": (f, 5) for n, f in enumerate((5, 4, 4, 3))}
    found = rate([one, other], 20)
    assert found.kappa_fluency == pytest.approx(0.8)
    assert found.kappa_relation == 1  # nobody ever varies
    # Three raters: the mean over pairs, .8, 1 and .8.
    three = rate([one, other, one], 20)
    assert three.kappa_fluency == pytest.approx((0.8 + 1 + 0.8) / 3)


def test_no_item_in_common() -> None:
    with pytest.raises(InputError, match=r"^the rating sheets have no item in common; are they of"):
        rate([{"1#0": (5, 5)}, {"2#0": (5, 5)}], 20)


def test_the_good_share_is_clustered_by_seed() -> None:
    marks = [(5, 5)] * 8 + [(1, 1)] * 8
    apart = rate([{f"{n}#0": mark for n, mark in enumerate(marks * 5)}], 20).good
    together = rate([{f"{n // 8}#{n % 8}": mark for n, mark in enumerate(marks * 5)}], 20).good
    assert apart.value == together.value == 50
    assert together.high - together.low > 2 * (apart.high - apart.low)


def test_the_ceiling_by_hand() -> None:
    found = dict(zip(GRID, ceiling(Interval(95.0, 90.0, 100.0), 20), strict=True))
    # All 20 good: .95^20 = .3585; 19 or more: + 20 * .05 * .95^19 = .3774; 1 or more: ~ 1.
    assert found[100].value == pytest.approx(100 * 0.95**20)
    assert found[100].value == pytest.approx(35.85, abs=0.01)
    assert found[95].value == pytest.approx(100 * (0.95**20 + 20 * 0.05 * 0.95**19))
    assert found[95].value == pytest.approx(73.58, abs=0.01)
    assert found[5].value == pytest.approx(100 * (1 - 0.05**20))
    assert (found[100].low, found[100].high) == (pytest.approx(100 * 0.9**20), 100)
    assert all(interval.value == 100 for interval in ceiling(Interval(100.0, 100.0, 100.0), 20))
    assert all(interval.value == 0 for interval in ceiling(Interval(0.0, 0.0, 0.0), 20))
    # n = 7 at 50 %: 4 or more of 7, as 3/7 < 50 %; with p = .5 that is 64 / 128.
    odd = dict(zip(GRID, ceiling(Interval(50.0, 50.0, 50.0), 7), strict=True))
    assert odd[50].value == pytest.approx(50)


def test_the_papers_shares_are_those_of_the_paper() -> None:
    assert PAPER_GOOD_SHARE == {"MNLI-m": 100, "MNLI-mm": 98, "SNLI": 91}


def test_ratings_are_plain_values() -> None:
    plain = rate([{"1#0": (5, 5), "2#1": (4, 4)}], 20).plain()
    assert plain["good"]["value"] == 50
    assert len(plain["ceiling"]) == 20
