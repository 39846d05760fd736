"""What every benchmark shares: the machine, versions, medians and a table."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from statistics import median

__all__ = ["header", "spread", "table", "versions"]


def header(title: str, threads: int, packages: Sequence[str]) -> str:
    """Title, machine, threads and versions: what a figure means nothing without."""
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return (
        f"{title}\n"
        f"machine: {_processor()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.machine()}; load before the start {load}\n"
        f"threads: {threads} (torch, in every process); fp32 on the CPU\n"
        f"versions: Python {platform.python_version()}, {versions(packages)}"
    )


def versions(packages: Sequence[str]) -> str:
    """Installed versions, on one line."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in packages)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median with the least and the greatest value behind it."""
    low, high = min(values), max(values)
    return f"{median(values):,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, the first to the left and the others to the right."""
    widths = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"
