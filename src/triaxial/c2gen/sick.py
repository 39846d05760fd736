"""SICK with both directed labels, as it is distributed.

Source: Marelli et al., LREC 2014; the columns `entailment_AB` and `entailment_BA`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from triaxial.errors import InputError
from triaxial.nli import LABELS, Label
from triaxial.nli_rows import Columns, file_source, whole_rows

__all__ = ["DirectedPair", "read_sick"]

_DIRECTED = {"entails": LABELS[0], "neutral": LABELS[1], "contradicts": LABELS[2]}
_GOLD = {label.value.upper(): label for label in LABELS}
_SICK = ("pair_ID", "sentence_A", "sentence_B", "entailment_label", "entailment_AB")
_SICK_COLUMNS = (*_SICK, "entailment_BA")


@dataclass(frozen=True, slots=True)
class DirectedPair:
    """A pair of SICK with the label of either direction."""

    id: str
    a: str
    b: str
    gold: Label
    ab: Label
    ba: Label


def read_sick(path: str | Path) -> tuple[list[DirectedPair], str]:
    """The pairs of a SICK file with both directed labels, and the digest of the file.

    Raises:
        InputError: The file or a row cannot be used; the text says where and why.
    """
    read = file_source(Path(path), "tsv", Columns((), "pair_ID"))
    pairs = []
    for where, row in whole_rows(read, path):
        if missing := [name for name in _SICK_COLUMNS if name not in row]:
            raise InputError(
                f"the column {missing[0]!r} is missing, there are {', '.join(row)}; give "
                "SICK.txt as distributed, with the directed labels",
                where=path,
            )
        pairs.append(_pair({name: str(row[name]) for name in _SICK_COLUMNS}, where))
    if not pairs:
        raise InputError("holds no pair; check the file", where=path)
    return pairs, read.digest


def _pair(row: Mapping[str, str], where: str) -> DirectedPair:
    for name in ("pair_ID", "sentence_A", "sentence_B"):
        if not row[name].strip():
            raise InputError(f"{name} is empty; mend the row", where=where)
    gold = _GOLD.get(row["entailment_label"].upper())
    if gold is None:
        raise InputError(
            f"entailment_label {row['entailment_label']!r} is not one of {', '.join(_GOLD)}; mend "
            "the row",
            where=where,
        )
    directed = []
    for one, two in ("AB", "BA"):
        value = row[f"entailment_{one}{two}"]
        start, _, rest = value.partition("_")
        said, _, end = rest.partition("_")
        if (start, end) != (one, two) or said not in _DIRECTED:
            wanted = ", ".join(f"{one}_{name}_{two}" for name in _DIRECTED)
            message = f"entailment_{one}{two} {value!r} is not one of {wanted}; mend the row"
            raise InputError(message, where=where)
        directed.append(_DIRECTED[said])
    return DirectedPair(row["pair_ID"], row["sentence_A"], row["sentence_B"], gold, *directed)
