"""The peak of memory: of a GPU, or of this process where the system tells (Linux)."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["peak_bytes", "reset_peak"]


def reset_peak(device: str) -> None:
    """Begin to measure anew, where the system can."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes(device: str = "cpu") -> int | None:
    """The most memory held since then, or since the start."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    return None
