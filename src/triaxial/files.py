"""Digests, files written whole or not at all, and the directory that one call fills.

The lowest part of the store, which offers these names as its own: import them from `store`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import errno
import hashlib
import json
import math
import os
import secrets
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from .errors import InputError, StoreError

__all__ = [
    "MANIFEST",
    "PLAN",
    "SCHEMA",
    "canonical",
    "check_schema",
    "claim_directory",
    "complete_manifest",
    "digest",
    "explained",
    "file_digest",
    "finish_directory",
    "finished_directory",
    "planned",
    "provenance",
    "read_json",
    "write_bytes_atomic",
    "write_json",
]

SCHEMA = 1  # of the manifests
MANIFEST = "manifest.json"
PLAN = "plan.json"  # what an unfinished directory is to hold


def digest(value: object) -> str:
    """32 hex digits of blake2b over canonical JSON: equal values, equal digest, on every machine.

    Args:
        value: None, bool, int, float, str, enum, and lists, tuples, mappings with str keys and
            dataclasses of those. A tuple equals a list, a dataclass its fields; 1 is not 1.0.

    Raises:
        InputError: A number is not finite.
        TypeError: Something else, such as a path: a key says what, never where.
    """
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()


def canonical(value: object) -> object:
    """The value in JSON's own types, as `digest` sees it; errors as there."""
    if value is None or type(value) in (str, int, bool):  # most values, and the fastest to see
        return value
    match value:
        case enum.Enum():
            return canonical(value.value)
        case int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise InputError(f"a value is {value}; wanted a finite number")
            return float(value)
        case list() | tuple():
            return [canonical(item) for item in value]
        case Mapping():
            if not all(isinstance(name, str) for name in value):
                raise TypeError(f"the keys of {value!r} are not all str; wanted names")
            return {str(name): canonical(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: canonical(getattr(value, field.name)) for field in fields}
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be part of a digest")


def file_digest(path: str | Path) -> str:
    """The sha256 of a file's bytes, 64 hex digits."""
    with explained(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_bytes_atomic(path: str | Path, data: bytes | memoryview) -> None:
    """Write a file whole or not at all: temporary name, fsync, rename.

    Folders are created. An older file of that name is replaced: readers see the old or the new.

    Raises:
        StoreError: No space, no permission; the temporary file is gone then.
    """
    path = Path(path)
    # Beside the target, since a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # 0o666 under the umask, where tempfile would make a private file in a shared store.
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(handle, rest) :]
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def write_json(path: str | Path, obj: object) -> None:
    """Write indented JSON for people, atomically; values as for `digest`."""
    text = json.dumps(canonical(obj), indent=2, ensure_ascii=False)
    write_bytes_atomic(path, (text + "\n").encode())


def read_json(path: str | Path) -> dict[str, Any]:
    """The object in a JSON file; StoreError where there is none."""
    with explained(path):
        data = Path(path).read_bytes()
    with contextlib.suppress(ValueError):
        if isinstance(found := json.loads(data), dict):
            return found
    raise StoreError("is not a JSON object; remove it and call again", where=path)


def claim_directory(out: str | Path, kind: str, key: str, *, replace: bool = False) -> None:
    """Make `out` ours for one call, or refuse.

    A new or empty directory is taken; so is one that this very run (same kind and key) began or
    finished. Until `finish_directory` its manifest says `"complete": false`.

    Args:
        out: The directory that will receive tables and report.
        kind: What writes there, such as "merge.report".
        key: Digest of what the run computes.
        replace: Also take over a directory of this kind with another key: the files that its
            manifest lists go, anything else stays.

    Raises:
        StoreError: It holds another run, or something that is not ours.
    """
    out = Path(out)
    with explained(out):
        if out.exists() and not out.is_dir():
            raise StoreError("is a file, wanted a directory; choose another name", where=out)
        out.mkdir(parents=True, exist_ok=True)
        there = any(out.iterdir())
    older: dict[str, int] = {}
    if there:
        seen = read_json(out / MANIFEST) if (out / MANIFEST).is_file() else {}
        if seen.get("kind") != kind:
            what = (
                f"a run of kind {seen['kind']!r}" if "kind" in seen else "files that are not ours"
            )
            raise StoreError(f"holds {what}; choose an empty or a new directory", where=out)
        if seen.get("key") == key:
            return
        if not replace:
            raise StoreError(
                f"holds another run of {kind!r} (key {str(seen.get('key'))[:16]}, this one "
                f"{key[:16]}); choose another directory, or replace it (--overwrite)",
                where=out,
            )
        with explained(out):
            for name in seen.get("files", {}):
                if (path := out / name).resolve().is_relative_to(out.resolve()):
                    path.unlink(missing_ok=True)
        # Files that an unfinished run or the user left: not deleted, and not listed as ours later.
        older = {name: path.stat().st_mtime_ns for name, path in _files(out)}
    claim = {"schema": SCHEMA, "kind": kind, "key": key, "complete": False, "older": older}
    write_json(out / MANIFEST, claim)


def finish_directory(out: str | Path, facts: Mapping[str, object]) -> None:
    """Write the manifest of a claimed directory: the files with size and sha256, and the facts."""
    out = Path(out)
    claim = read_json(out / MANIFEST)
    older = claim.get("older", {})
    files = {
        name: {"bytes": path.stat().st_size, "sha256": file_digest(path)}
        for name, path in _files(out)
        if older.get(name) != path.stat().st_mtime_ns
    }
    about = {name: claim[name] for name in ("schema", "kind", "key")}
    state = {"complete": True, "files": files, "facts": dict(facts), "older": older}
    write_json(out / MANIFEST, about | state | provenance())


def finished_directory(out: str | Path, kind: str, wanted: str) -> dict[str, Any]:
    """The manifest of a directory that was claimed for `kind` and finished.

    Args:
        out: The directory.
        kind: As for `claim_directory`.
        wanted: What it is not, and what to do: "split; make it with `triax temporal split`".

    Raises:
        StoreError: It is none, or was not finished.
    """
    path = Path(out) / MANIFEST
    manifest: dict[str, Any] = read_json(path) if path.is_file() else {}
    if manifest.get("kind") != kind or not manifest.get("complete"):
        raise StoreError(f"is no finished {wanted}", where=out)
    check_schema(manifest, out)
    return manifest


@contextlib.contextmanager
def planned(root: str | Path, kind: str, stages: Sequence[str]) -> Iterator[None]:
    """While stages are filled, a directory beside them says which; who is killed leaves it.

    Args:
        root: The store.
        kind: What fills them, such as "c2gen.grid".
        stages: The names of their directories.
    """
    if all((Path(root) / name / MANIFEST).is_file() for name in stages):
        yield
        return
    key = digest([kind, sorted(stages)])
    folder = Path(root) / f"{kind}-{key[:16]}"
    write_json(folder / PLAN, {"schema": SCHEMA, "key": key, "stages": sorted(stages)})
    yield
    with contextlib.suppress(OSError):  # another call of the same may have been faster
        (folder / PLAN).unlink(missing_ok=True)
        folder.rmdir()


def complete_manifest(
    directory: Path, kinds: Collection[str], *, missing: str, wanted: str
) -> dict[str, Any]:
    """The manifest of a directory that a user named, of one of several kinds.

    Args:
        directory: The directory.
        kinds: Those that will do.
        missing: What to say where there is no manifest.
        wanted: What to say behind the kind of another one.

    Raises:
        InputError: It is none of these, or was not finished.
        StoreError: It is of another schema.
    """
    if not (directory / MANIFEST).is_file():
        raise InputError(missing, where=directory)
    manifest = read_json(directory / MANIFEST)
    if manifest.get("kind") not in kinds:
        raise InputError(f"is a {manifest.get('kind')}{wanted}", where=directory)
    if not manifest.get("complete"):
        raise InputError("is not complete; call the command that writes it again", where=directory)
    check_schema(manifest, directory)
    return manifest


def check_schema(manifest: Mapping[str, Any], where: str | Path) -> None:
    """Refuse results whose form this release does not know, rather than misread them.

    Raises:
        StoreError: They are of another schema.
    """
    if manifest.get("schema") != SCHEMA:
        by = (manifest.get("versions") or {}).get("triaxial", "of another release")
        raise StoreError(
            f"is of result schema {manifest.get('schema')}, written by triaxial {by}; this release "
            f"reads schema {SCHEMA}: make it again, or read it with that release",
            where=where,
        )


@contextlib.contextmanager
def explained(path: str | Path) -> Iterator[None]:
    """Turn the operating system's errors into one clear line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text = "no space left here; committed shards are kept; free space and call again"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            text = f"no permission ({error.strerror}); mend it or choose another directory"
        elif error.errno == errno.ENOENT:
            text = "is not there; check the name, or run the step that writes it"
        else:
            text = f"{error.strerror or error}; mend that or choose another directory"
        raise StoreError(text, where=path) from error


def provenance() -> dict[str, object]:
    """Time and versions, for a manifest."""
    versions = {"python": sys.version.split()[0]}
    for package in ("triaxial", "numpy", "polars", "torch", "transformers"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {"created": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions}


def _files(out: Path) -> list[tuple[str, Path]]:
    """Every file under a directory but its manifest and hidden ones, by name in POSIX form."""
    found = [(path.relative_to(out), path) for path in out.rglob("*") if path.is_file()]
    shown = [(name.as_posix(), path) for name, path in found if not name.name.startswith(".")]
    return sorted(item for item in shown if item[0] != MANIFEST)
