"""What every command prints with: a console for results, a progress bar that knows its place."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["note", "out", "print_json", "progress", "quiet_libraries", "silenced", "warn"]

_MINUTE = 60.0
_SILENT: ContextVar[bool] = ContextVar("silent", default=False)


@contextlib.contextmanager
def silenced(silent: bool) -> Iterator[None]:
    """Without progress bars and notes, where `--quiet` was said; warnings and results stay."""
    before = _SILENT.set(silent)
    try:
        yield
    finally:
        _SILENT.reset(before)


def out() -> Console:
    """The console for results; wide enough for tables when it is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, soft_wrap=False)


def note(text: str) -> None:
    """A message beside the results: where they are, what to try next."""
    if not _SILENT.get():
        print(text, file=sys.stderr)


def warn(text: str) -> None:
    """What makes results doubtful; said to the quiet too."""
    print(f"triax: WARNING: {text}", file=sys.stderr)


def print_json(value: Any) -> None:
    """A result as JSON, for programs."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))


def _line_a_minute() -> Callable[[str, int, int], None]:
    """Progress for logs: whoever looks at one must see that the work goes on."""
    last = time.monotonic()

    def told(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _MINUTE:
            last = time.monotonic()
            print(f"{what}: {done:,} of {total:,}", file=sys.stderr, flush=True)

    return told


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """A progress bar with rate and remaining time on a terminal, elsewhere one line a minute."""
    quiet_libraries()
    if _SILENT.get():
        yield None
        return
    if not sys.stderr.isatty():
        yield _line_a_minute()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, int] = {}

        def told(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield told


def quiet_libraries() -> None:
    """Keep libraries from drawing progress bars of their own where nobody sees them."""
    import os

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
