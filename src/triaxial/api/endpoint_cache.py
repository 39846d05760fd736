"""The answers of an endpoint on disk, so that none is asked and paid for twice.

Each process appends lines to a file of its own; a group of answers counts as kept once the disk has
it. Whoever is killed leaves at most a last line that is cut, which is ignored; the next run reads
all files and starts its own. Processes at work at the same time do not see each other's answers.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from triaxial.errors import StoreError
from triaxial.files import digest, explained
from triaxial.models.endpoint_answers import Answer

__all__ = ["Journal", "answers_in"]


class Journal:
    """Answers by the digest of their request; see `models.endpoint.AnswerCache`.

    Args:
        folder: Of the files; created with the first answer.

    Raises:
        StoreError: A line is damaged that is not the last of its file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path: Path | None = None
        self._answers: dict[str, Answer] = {}
        with explained(folder):
            for path in sorted(folder.glob("*.jsonl")):
                self._read(path)

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str, /) -> Answer | None:
        """The answer, where there is one."""
        return self._answers.get(key)

    def update(self, answers: Mapping[str, Answer], /) -> None:
        """Keep answers; when this returns, the disk has them."""
        if not answers:
            return
        lines = "".join(
            json.dumps({"key": key, "listed": one.listed, "least": one.least}) + "\n"
            for key, one in answers.items()
        )
        with explained(self.folder):
            try:
                self._append(lines.encode("ascii"))
            except OSError:
                self._path = None  # its last line may be cut now, and nothing may stand behind it
                raise
        self._answers.update(answers)

    def _append(self, data: bytes) -> None:
        if self._path is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"answers-{time.time_ns():020d}-{secrets.token_hex(4)}.jsonl"
            self._path = self.folder / name
        with self._path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _read(self, path: Path) -> None:
        lines = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], 1):  # behind the last newline is what was cut
            try:
                row = json.loads(line)
                first, second, third = row["listed"]
                self._answers[row["key"]] = Answer((first, second, third), row["least"])
            except (ValueError, TypeError, KeyError):
                raise StoreError(
                    "is damaged; remove this line, and its item is asked again",
                    where=f"{path}:{number}",
                ) from None


def answers_in(store: str | Path, fingerprint: Mapping[str, str]) -> Journal:
    """The journal of one model, server and prompt in a store."""
    return Journal(Path(store) / f"endpoint.answers-{digest(dict(fingerprint))[:16]}")
