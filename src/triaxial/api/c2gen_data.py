"""The data of the composition axis as a directory: items, primitives, card, manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from triaxial import __version__
from triaxial.c2gen.build import (
    BuildOptions,
    Built,
    Primitive,
    build,
    check_items,
    data_card,
    read_items,
    read_sick,
    validate_items,
)
from triaxial.c2gen.compose import Item
from triaxial.c2gen.pseudo import Pseudo, pseudo_items
from triaxial.c2gen.verbs import VERBS
from triaxial.errors import InputError
from triaxial.models.tagger import load_tagger
from triaxial.store import (
    claim_directory,
    digest,
    finish_directory,
    table_of,
    write_bytes_atomic,
    write_json,
    write_jsonl,
)

__all__ = ["DATA", "Made", "build_data", "read_data", "validate_data"]

DATA = "c2gen.data"
VERSION = 1  # bumped by hand whenever the same source and options give other items
Told = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Made:
    """What `build_data` wrote.

    Args:
        built: Items (with invented words where asked) and primitives.
        pseudo: The invented words, or `None`.
        facts: What the manifest says.
    """

    built: Built
    pseudo: Pseudo | None
    facts: dict[str, Any]


def build_data(
    sick: str | Path,
    out: str | Path,
    options: BuildOptions,
    *,
    pseudo: Literal["verbs", "nouns", "all"] | None = None,
    tagger: str = "hanta",
    overwrite: bool = False,
    progress: Told | None = None,
) -> Made:
    """Build items from SICK and write them; the same call writes the same items again.

    Args:
        sick: SICK.txt as distributed.
        out: Directory for items.jsonl, primitives.jsonl, card.md and manifest.json, with `pseudo`
            also pseudo.json, the invented words.
        options: What to build.
        pseudo: Which words to replace by invented ones.
        tagger: As for `models.tagger.load_tagger`.
        overwrite: Replace the data of another call.
        progress: Told the step, how many are done, and of how many.

    Raises:
        InputError: The source or an option cannot be used.
        StoreError: The directory holds something else.
    """
    out = Path(out)
    told = progress or (lambda what, done, total: None)
    steps = ("reading", "building", "checking", "writing")

    def step(number: int) -> None:
        told(steps[min(number, len(steps) - 1)], number, len(steps))

    step(0)
    pairs, source = read_sick(sick)
    loaded = load_tagger(tagger)
    about = {"options": asdict(options), "pseudo": pseudo, "tagger": loaded.fingerprint}
    key = digest({"kind": DATA, "version": VERSION, "source": source, **about})
    claim_directory(out, DATA, key, replace=overwrite)
    step(1)
    built = build(pairs, options, loaded)
    made: Pseudo | None = None
    if pseudo is not None:
        made = pseudo_items(
            built.items,
            verbs=pseudo in ("verbs", "all"),
            nouns=pseudo in ("nouns", "all"),
            seed=options.seed,
        )
        built = replace(built, items=made.items)
    step(2)
    check_items(built.items, str(out / "items.jsonl"))
    step(3)
    facts = {
        "version": __version__,
        "source": {"name": Path(sick).name, "sha256": source, "licence": "CC BY-NC-SA 3.0"},
        **about,
        "items": len(built.items),
        "counts": built.counts,
        "primitives": [
            {
                name: getattr(primitive, name)
                for name in ("pair_id", "direction", "relation", "label", "part", "group")
            }
            for primitive in built.primitives
        ],
    }
    card = data_card(built)
    if made is not None:
        facts["pseudo_words"] = {"pairs": made.pairs, "instances": made.instances}
        write_json(out / "pseudo.json", {"verbs": made.verbs, "words": made.words})
        card += (
            f"\nInvented words stand for {len(made.verbs)} verbs, and for {made.pairs} pairs of "
            f"words in {made.instances} natural primitives; primitives.jsonl holds the real ones.\n"
        )
    write_jsonl(out / "items.jsonl", table_of(built.items, Item))
    write_jsonl(out / "primitives.jsonl", table_of(built.primitives, Primitive))
    write_bytes_atomic(out / "card.md", card.encode())
    finish_directory(out, facts)
    step(4)
    return Made(built, made, facts)


def read_data(path: str | Path) -> list[Item]:
    """The items of a data directory or of a JSON-lines file, ours or the authors'."""
    return read_items(_file(path))


def validate_data(path: str | Path) -> dict[str, Any]:
    """Counts of items, and what is wrong with them.

    Args:
        path: As for `read_data`.
    """
    file = _file(path)
    items = read_items(file)
    faults = validate_items(items, str(file))
    pairs = {(i.mid_sent, i.sent2): (i.part, i.sick_label) for i in items}
    return {
        "file": str(file),
        "items": len(items),
        "verbs": len({item.verb for item in items}),
        "of_verbs": len(VERBS),
        "types": {str(n): count for n, count in sorted(Counter(i.type for i in items).items())},
        "primitives": {
            " ".join(what): count for what, count in sorted(Counter(pairs.values()).items())
        },
        "faults": faults,
    }


def _file(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_dir():
        return path
    if not (path / "items.jsonl").is_file():
        raise InputError(
            "holds no items.jsonl; name the --out of `triax c2gen build`, or a file", where=path
        )
    return path / "items.jsonl"
