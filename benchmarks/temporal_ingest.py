"""Ingest of dated documents: speed, and memory that does not grow with the texts.

Documents of 150 random words, one in a hundred a copy of an earlier one with one word changed, are
written as JSONL of 20 MB and 200 MB (and 1 GB with --large). On each file, every way in a process
of its own, whose peak memory is what is reported:
  bare         json.loads of every line and nothing else: the floor of reading JSONL
  read         triaxial's reader: checks, dates, ids told apart
  read, gz     the same from gzip
  read, parquet  the same from Parquet with row groups of 20,000
  language     language of every document, with the reader (the smallest file alone)
  words        Moses words with offsets, with the reader (the smallest file alone)
  duplicates   reader, signatures, candidates, exact similarity; reads the file twice

Compared before a figure is printed: the number of documents in all ways, the sum of the lengths of
the texts, and the planted copies with the near-duplicates that were found. Growth is the peak of a
file over that of the smallest, divided by the documents more: what a document costs. Text that was
kept would cost about 1,000 bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from common import header, spread, table

WORDS = 150
COPIES = 100  # one in so many
TYPES = 30_000
SMALLEST = ("language", "words")  # ways for the smallest file alone
WAYS = ("bare", "read", "read, gz", "read, parquet", *SMALLEST, "duplicates")


@dataclass(frozen=True, slots=True)
class File:
    """A generated file: documents, characters of text, copies planted."""

    path: Path
    documents: int
    characters: int
    copies: int


def main() -> None:
    """Generate, run every way, compare, print; exit code 1 where two ways disagree."""
    options = _arguments()
    if options.way:
        print(json.dumps(measure(options.way, Path(options.path))))
        return
    packages = ["triaxial", "rensa", "py3langid", "sacremoses", "pyarrow", "numpy"]
    print(header("ingest of dated documents", 1, packages), flush=True)
    sizes = [20, 200, *([1000] if options.large else [])]
    rows, smallest = [], {}
    with TemporaryDirectory(dir=options.tmp) as folder:
        for size in sizes:
            file = written(Path(folder), size)
            print(f"{size} MB: {file.documents:,} documents, {file.copies:,} copies", flush=True)
            for way in WAYS:
                if size > sizes[0] and way in SMALLEST:
                    continue
                repeats = options.repeats if size == sizes[0] else 1
                runs = [_in_a_process(way, file.path) for _ in range(repeats)]
                for run in runs:
                    _compare(way, run, file)
                peak = median(run["peak"] for run in runs)
                first = smallest.setdefault(way, (file.documents, peak))
                more = file.documents - first[0]
                growth = f"{(peak - first[1]) / more:,.0f}" if more else ""
                speeds = [file.documents / run["seconds"] for run in runs]
                name = f"{size} MB, {way}"
                rate = f"{size / median(run['seconds'] for run in runs):,.1f}"
                rows.append([name, spread(speeds, 0), rate, f"{peak / 2**20:,.0f}", growth])
                print(f"  {way}: {rows[-1][1]} documents/s", flush=True)
            for path in Path(folder).iterdir():
                path.unlink()
    if options.repeats < 5:
        print("\nfewer than 5 repeats: no figure to be quoted")
    head = ["median of repeats (least-greatest)", "documents/s", "MB/s", "peak MiB"]
    print("\n" + table([*head, "bytes a document more"], rows))


def written(folder: Path, megabytes: int) -> File:
    """Write the documents as JSONL, gzip and Parquet."""
    import pyarrow
    from pyarrow import parquet

    path = folder / "documents.jsonl"
    documents = characters = copies = 0
    batch: list[dict[str, str]] = []
    schema = pyarrow.schema([(name, pyarrow.string()) for name in ("id", "date", "text", "source")])
    with path.open("w") as file, parquet.ParquetWriter(path.with_suffix(".parquet"), schema) as out:
        for row, copy in _rows():
            batch.append(row)
            file.write(json.dumps(row) + "\n")
            documents, copies = documents + 1, copies + copy
            characters += len(row["text"])
            if len(batch) == 20_000:
                out.write_table(pyarrow.Table.from_pylist(batch, schema))
                batch.clear()
            if file.tell() >= megabytes * 1e6:
                break
        out.write_table(pyarrow.Table.from_pylist(batch, schema))
    with path.open("rb") as file, gzip.open(f"{path}.gz", "wb", compresslevel=1) as zipped:
        shutil.copyfileobj(file, zipped)
    return File(path, documents, characters, copies)


def measure(way: str, path: Path) -> dict[str, Any]:
    """Seconds, peak bytes and what was counted, of one way in this process."""
    import triaxial.temporal.corpus as corpus
    import triaxial.temporal.dedup as dedup

    class Documents:
        def __init__(self, source: str) -> None:
            self.source = source

        def __iter__(self) -> Iterator[corpus.Document]:
            return corpus.read_documents(self.source).documents

    documents = Documents(str(path))
    found: dict[str, Any] = {}
    start = time.perf_counter()
    if way == "bare":
        with path.open("rb") as file:
            lengths = [len(json.loads(line)["text"]) for line in file]
        found = {"documents": len(lengths), "characters": sum(lengths)}
    elif way.startswith("read"):
        ending = {"read, gz": ".jsonl.gz", "read, parquet": ".parquet"}.get(way, ".jsonl")
        documents = Documents(str(path.with_suffix(ending)))
        found = {"documents": 0, "characters": 0}
        for document in documents:
            found["documents"] += 1
            found["characters"] += len(document.text)
    elif way == "language":
        found = {"documents": sum(bool(dedup.language_of(d.text)) for d in documents)}
    elif way == "words":
        found = {"documents": sum(len(corpus.moses_words(d.text)) >= WORDS for d in documents)}
    else:
        found = {"copies": len(dedup.near_duplicates(documents))}
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak": _peak(), **found}


def _rows() -> Iterator[tuple[dict[str, str], bool]]:
    rng = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    types = sorted({"".join(rng.choice(letters, n)) for n in rng.integers(3, 10, TYPES).tolist()})
    share = 1 / (np.arange(len(types)) + 20)
    share = np.cumsum(share / share.sum())
    last: list[str] = []
    number = 0
    while True:
        drawn = np.searchsorted(share, rng.random((1000, WORDS))).tolist()
        for places in drawn:
            copy = number % COPIES == COPIES - 1
            words = (
                [*last[:-1], "again"] if copy else [types[min(p, len(types) - 1)] for p in places]
            )
            day = (
                f"{2000 + number // 40_000:04d}-{number // 400 % 12 + 1:02d}-{number % 28 + 1:02d}"
            )
            row = {"id": f"{number:09d}", "date": day, "text": " ".join(words), "source": "made"}
            yield row, copy
            last = words
            number += 1


def _peak() -> int:
    """The most memory that this process held, in bytes; `ru_maxrss` would count the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no VmHWM in /proc/self/status: this needs Linux")


def _in_a_process(way: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--way", way, "--path", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{way} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _compare(way: str, run: dict[str, Any], file: File) -> None:
    for name in ("documents", "characters", "copies"):
        if name in run and run[name] != getattr(file, name):
            sys.exit(f"{way}: {run[name]} {name}, written were {getattr(file, name)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="1 GB too: about half an hour")
    parser.add_argument("--repeats", type=int, default=5, help="on the smallest file (5)")
    parser.add_argument("--tmp", help="directory for the files (the system's own)")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
