"""Composed items from files, and what is wrong with them.

Our rows hold every field of `Item`; the authors' rows hold the three sentences and labels.

Source: Fu and Frank, TACL 12, 2024 (their files spell `verdical_label`, which is read too).
Choice: a row without `sound` takes its label for it; without `relation`, the words decide; without
`pair_id`, a digest of the two natural sentences.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from triaxial.c2gen.compose import RELATIONS, Item, relation_of
from triaxial.c2gen.verbs import (
    NATURAL,
    VERBS,
    VERIDICAL,
    Verb,
    composed_label,
    third_of,
    type_of,
    verb_of,
)
from triaxial.errors import InputError
from triaxial.nli import LABELS, Label
from triaxial.nli_rows import Columns, file_source, whole_rows
from triaxial.text import fold, words

__all__ = ["PARTS", "check_items", "forms_of", "read_items", "validate_items", "verb_places"]

PARTS = ("seen", "unseen")
_BEFORE_TO = re.compile(r"(\w+)\s+to\b", re.IGNORECASE)


def read_items(path: str | Path) -> list[Item]:
    """Composed items from a JSON-lines file, ours or the authors'.

    Args:
        path: Rows with `sent1`, `mid_sent`, `sent2`, `veridical_label` or `verdical_label`,
            `sick_label` and `label`; the rest is derived where it is absent.

    Raises:
        InputError: The file or a row cannot be used. What a row says is not judged here: see
            `check_items`.
    """
    read = file_source(Path(path), "jsonl", Columns((), "id"))
    items = [_read_item(row, where) for where, row in whole_rows(read, path)]
    if not items:
        raise InputError("holds no item; check the file", where=path)
    return items


def validate_items(items: Sequence[Item], where: str) -> list[str]:
    """What is wrong with items, a line a fault, "where:row: …"; empty where all is right."""
    faults: list[str] = []
    rows: dict[str, int] = {}
    natural: dict[tuple[str, str], tuple[str, str, int]] = {}
    for number, item in enumerate(items, 1):
        found = list(_faults(item))
        if item.id in rows:
            found.append(f"the id {item.id!r} is that of row {rows[item.id]} already")
        rows.setdefault(item.id, number)
        key = (item.mid_sent, item.sent2)
        label, part, first = natural.setdefault(key, (item.sick_label, item.part, number))
        if label != item.sick_label:
            found.append(
                f"sick_label {item.sick_label}, but {label} for the same pair, row {first}"
            )
        if part != item.part:
            found.append(f"part {item.part}, but {part} for the same pair, row {first}")
        faults += [f"{where}:{number}: {fault}" for fault in found]
    return faults


def check_items(items: Sequence[Item], where: str) -> None:
    """Refuse items with faults.

    Raises:
        InputError: The first fault, and how many there are.
    """
    if faults := validate_items(items, where):
        place, _, first = faults[0].partition(": ")
        more = f" ({len(faults)} faults in all)" if len(faults) > 1 else ""
        raise InputError(f"{first}{more}; mend the file or build it again", where=place)


def forms_of(verb: Verb) -> tuple[str, str, str, str]:
    """Base form and third person of a verb, and of its pseudo-word."""
    return verb.lemma, verb.third, verb.pseudo, third_of(verb.pseudo)


def verb_places(sent1: str) -> list[tuple[int, int, str]]:
    """Start, end and folded text of every word that stands before a "to"."""
    return [(*found.span(1), fold(found.group(1))) for found in _BEFORE_TO.finditer(sent1)]


def _read_item(row: Mapping[str, object], where: str) -> Item:
    sent1, mid, sent2 = (_text(row, name, where) for name in ("sent1", "mid_sent", "sent2"))
    spelled = "verdical_label" if "verdical_label" in row else "veridical_label"
    veridical = _label(row, spelled, VERIDICAL, where)
    natural = _label(row, "sick_label", NATURAL, where)
    label = _label(row, "label", NATURAL, where)
    lemma = _text(row, "verb", where) if "verb" in row else _lemma(sent1, where)
    verb = verb_of(lemma)
    digest = hashlib.sha256(f"{mid}\0{sent2}".encode()).hexdigest()[:10]
    pair = _text(row, "pair_id", where) if "pair_id" in row else digest
    derived = {
        "direction": "ab",
        "relation": "" if "relation" in row else relation_of(_texts(mid), _texts(sent2)),
        "part": "seen",
        "id": f"{pair}{row.get('direction', 'ab')}-{lemma}",
    }
    texts = {n: _text(row, n, where) if n in row else value for n, value in derived.items()}
    return Item(
        type=_whole(row["type"], where) if "type" in row else type_of(veridical, natural),
        verb=lemma,
        pair_id=pair,
        sent1=sent1,
        mid_sent=mid,
        sent2=sent2,
        veridical_label=veridical.value,
        sick_label=natural.value,
        label=label.value,
        sound=(_label(row, "sound", NATURAL, where) if "sound" in row else label).value,
        agreement=_rating(row, verb, where),
        **texts,
    )


def _text(row: Mapping[str, object], name: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        seen = "missing" if name not in row else f"{value!r}"
        raise InputError(f"{name} is {seen}, wanted text; mend the row", where=where)
    return value


def _label(row: Mapping[str, object], name: str, names: Mapping[str, Label], where: str) -> Label:
    value = row.get(name)
    label = names.get(value.strip().lower()) if isinstance(value, str) else None
    if label is None:
        seen = "missing" if name not in row else f"{value!r}"
        message = f"{name} is {seen}, wanted one of {', '.join(names)}; mend the row"
        raise InputError(message, where=where)
    return label


def _whole(value: object, where: str) -> int:
    if type(value) is not int:
        raise InputError(f"type is {value!r}, wanted 1..9; mend the row", where=where)
    return value


def _rating(row: Mapping[str, object], verb: Verb | None, where: str) -> float:
    value = row.get("agreement", verb.agreement if verb else 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"agreement is {value!r}, wanted -2..2; mend the row", where=where)
    return float(value)


@lru_cache(1 << 14)
def _texts(sentence: str) -> tuple[str, ...]:
    return tuple(word.text for word in words(sentence))


def _lemma(sent1: str, where: str) -> str:
    """The verb of the first "to" that has one of the 21 before it."""
    for _, _, word in verb_places(sent1):
        if word in _BY_FORM:
            return _BY_FORM[word]
    raise InputError(
        f"none of the {len(VERBS)} verbs stands before 'to' in sent1 {sent1!r}; mend the row, or "
        "say which with the field 'verb'",
        where=where,
    )


def _faults(item: Item) -> list[str]:
    empty = [n for n in ("id", "sent1", "mid_sent", "sent2") if not getattr(item, n).strip()]
    found = [f"{name} is empty" for name in empty]
    names = ("veridical_label", "sick_label", "label", "sound")
    unknown = [name for name in names if getattr(item, name) not in list(LABELS)]
    found += [f"{name} {getattr(item, name)!r} is no label" for name in unknown]
    if item.direction not in ("ab", "ba"):
        found.append(f"direction {item.direction!r} is neither ab nor ba")
    if item.part not in PARTS:
        found.append(f"part {item.part!r} is neither seen nor unseen")
    if item.relation not in RELATIONS:
        found.append(f"relation {item.relation!r} is not one of {', '.join(RELATIONS)}")
    if not unknown:
        veridical, natural = Label(item.veridical_label), Label(item.sick_label)
        if item.label != (wanted := composed_label(veridical, natural)):
            found.append(f"label {item.label}, but the rule says {wanted}")
        if item.type != (number := type_of(veridical, natural)):
            found.append(f"type {item.type}, but the labels say {number}")
    verb = verb_of(item.verb)
    if verb is None:
        return [*found, f"the verb {item.verb!r} is not one of the {len(VERBS)}"]
    if not unknown and item.veridical_label != verb.signature:
        found.append(
            f"veridical_label {item.veridical_label}, but {verb.lemma} is {verb.signature}"
        )
    if empty:
        return found
    places = [start for start, _, word in verb_places(item.sent1) if word in forms_of(verb)]
    if not places:
        found.append(f"sent1 does not hold {verb.third!r} or {verb.lemma!r} before 'to'")
    elif not any(fold(item.mid_sent).startswith(fold(item.sent1[:at])) for at in places):
        found.append("sent1 and mid_sent do not begin with the same subject")
    return found


_BY_FORM = {form: verb.lemma for verb in VERBS for form in forms_of(verb)}
