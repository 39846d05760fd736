"""What a user needs to know of the machine, and of what the store and earlier calls left on it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from triaxial import __version__
from triaxial.errors import InputError, TriaxialError
from triaxial.store import read_json

__all__ = ["Check", "Entry", "doctor", "entries", "find", "remove"]

State = Literal["ok", "note", "missing"]

_PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "polars", "numpy", "altair")
_OPTIONAL = {"peft": 'LoRA: pip install "triaxial[llm]"', "spacy": 'pip install "triaxial[spacy]"'}
_MANIFEST, _PLAN = "manifest.json", "plan.json"
_STAGE = re.compile(r"[a-z0-9._-]+-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Args:
        name: What.
        state: `ok`; `note`, worth knowing; `missing`, something will not work.
        found: What was seen, and what to do where it is missing.
    """

    name: str
    state: State
    found: str

    def plain(self) -> dict[str, str]:
        """As it stands in JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory that triaxial made: a stage or cache of a store, or a run.

    Args:
        path: Where.
        kind: What: a stage's name, or the kind of a run.
        key: Its key, or the part of it that its name tells.
        complete: Whether it is whole; what is not goes on with the command that made it.
        parts: What its parts are: `shards` of a stage, `stages` of a grid at work or killed.
        done: How many of them are there; `None` where the directory does not say.
        planned: How many there will be.
        rows: Rows of a stage; `None` where the manifest counts none.
        bytes: On disk.
        changed: When it was last written, seconds since the epoch.
    """

    path: str
    kind: str
    key: str
    complete: bool
    parts: str
    done: int | None
    planned: int | None
    rows: int | None
    bytes: int
    changed: float

    def plain(self) -> dict[str, Any]:
        """As it stands in JSON."""
        return asdict(self)


def doctor(store: str | Path = ".triaxial", *, timeout: float = 3.0) -> list[Check]:
    """Versions, devices and their speed, caches, taggers and word lists, and the model hub.

    Args:
        store: Directory that is asked for space and rights.
        timeout: Seconds that the hub has to answer.
    """
    found = [Check("triaxial", "ok", f"{__version__}, Python {platform.python_version()}")]
    versions = {name: _version(name) for name in _PACKAGES}
    lacking = [name for name, version in versions.items() if version is None]
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    found.append(Check("packages", "missing" if lacking else "ok", told or "none"))
    found += [
        Check(name, "ok", version) if (version := _version(name)) else Check(name, "note", how)
        for name, how in _OPTIONAL.items()
    ]
    return [*found, *_devices(), _space(Path(store)), _hub_cache(), *_data(), _hub(timeout)]


def entries(where: str | Path) -> list[Entry]:
    """Everything that triaxial made directly under a directory, or the directory itself.

    Raises:
        InputError: There is no such directory.
    """
    root = Path(where)
    if not root.is_dir():
        raise InputError("is no directory; name a store or a run (--store)", where=root)
    if (root / _MANIFEST).is_file():
        return [_entry(root)]
    inside = sorted(path for path in root.iterdir() if path.is_dir())
    return [
        _entry(path)
        for path in inside
        if (path / _MANIFEST).is_file() or _STAGE.fullmatch(path.name)
    ]


def find(where: str | Path, names: Sequence[str]) -> list[Entry]:
    """The entries of these names, keys, or beginnings of keys.

    Raises:
        InputError: A name fits none, or several.
    """
    every = entries(where)
    found = []
    for name in names:
        exact = [one for one in every if name in (one.key, Path(one.path).name)]
        fits = exact or [one for one in every if len(name) >= 4 and one.key.startswith(name)]
        if len(fits) != 1:
            told = "is not there" if not fits else f"fits {len(fits)} entries; give more of the key"
            raise InputError(f"{name!r} {told}; see `triax runs list`", where=where)
        found += fits
    return found


def remove(chosen: Sequence[Entry]) -> int:
    """Remove entries from disk, and say how many bytes came free.

    A manifest goes first, so that what is half removed counts as not finished.
    """
    for entry in chosen:
        path = Path(entry.path)
        with contextlib.suppress(FileNotFoundError):
            (path / _MANIFEST).unlink()
        shutil.rmtree(path)
    return sum(entry.bytes for entry in chosen)


def _entry(path: Path) -> Entry:
    files = [file for file in path.rglob("*") if file.is_file()]
    stats = [file.stat() for file in files]
    found: dict[str, Any] = {}
    if (path / _MANIFEST).is_file():
        try:
            found = read_json(path / _MANIFEST)
        except TriaxialError:
            found = {}  # cut off or changed: listed as not whole, so that it can be removed
    name, _, short = path.name.rpartition("-")
    whole = bool(found) and bool(found.get("complete", True))
    kind, done, planned = _state(path, found)
    changed = max((stat.st_mtime for stat in stats), default=path.stat().st_mtime)
    return Entry(
        str(path),
        str(found.get("stage") or found.get("kind") or name),
        str(found.get("key") or short),
        whole,
        kind,
        done,
        planned,
        found.get("rows"),
        sum(stat.st_size for stat in stats),
        changed,
    )


def _state(path: Path, manifest: Mapping[str, Any]) -> tuple[str, int | None, int | None]:
    """What the parts of a directory are, how many are there, and how many there will be."""
    if "shards" in manifest:
        return "shards", manifest["shards"], manifest["shards"]
    plan: dict[str, Any] = {}
    if (path / _PLAN).is_file():
        with contextlib.suppress(TriaxialError):
            plan = read_json(path / _PLAN)
    if "stages" in plan:
        done = sum((path.parent / name / _MANIFEST).is_file() for name in plan["stages"])
        return "stages", done, len(plan["stages"])
    done = sum(1 for _ in path.glob("part-*.parquet")) if not manifest else None
    return "shards", done, plan.get("shards")


def _devices() -> Iterator[Check]:
    if _version("torch") is None:
        yield Check("device", "missing", "no torch; pip install torch==2.13.0")
        return
    from triaxial.models.base import devices, hardware, measured_rate

    for device, what in devices():
        rates = []
        for precision in ("fp32", "bf16"):
            try:
                rate = measured_rate(hardware(device, precision))
                rates.append(f"{precision} {rate / 1e9:,.0f} GFLOP/s")
            except InputError:
                rates.append(f"no {precision}")
        chosen = hardware(device, "auto").precision
        yield Check(device, "ok", f"{what}; {', '.join(rates)}; auto takes {chosen}")


def _space(store: Path) -> Check:
    there = next(path for path in (store, *store.resolve().parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        return Check("store", "missing", f"{store} cannot be written; choose another --store")
    used = sum(entry.bytes for entry in entries(store)) if store.is_dir() else 0
    state: State = "ok" if free > 2**30 else "note"
    return Check("store", state, f"{store}: {used / 2**20:,.0f} MiB; {free / 2**30:,.0f} GiB free")


def _hub_cache() -> Check:
    from huggingface_hub.constants import HF_HUB_CACHE

    root = Path(HF_HUB_CACHE)
    models = len(list(root.glob("models--*"))) if root.is_dir() else 0
    return Check("hub cache", "ok", f"{root}: {models} models")


def _data() -> Iterator[Check]:
    from triaxial.merge.lexicon import find_wordnet

    tagger = _version("HanTa")
    yield Check("tagger", "ok" if tagger else "missing", f"HanTa {tagger or 'is not installed'}")
    wordnet = find_wordnet(None)
    lacking = "none found: labels at risk are not flagged (Debian: apt install wordnet-base)"
    yield Check("WordNet", "ok" if wordnet else "note", str(wordnet or lacking))


def _hub(timeout: float) -> Check:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return Check("hub", "note", "switched off by HF_HUB_OFFLINE; directories and cache work")
    begun = time.perf_counter()
    asked = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        status = error.code  # it is there, whatever it thinks of the question
    except OSError as error:
        why = getattr(error, "reason", None) or error
        return Check("hub", "note", f"does not answer ({why}); directories and cache work")
    took = 1000 * (time.perf_counter() - begun)
    return Check("hub", "ok", f"answers {status} in {took:.0f} ms")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
