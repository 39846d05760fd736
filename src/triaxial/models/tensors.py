"""Tensors in a file, whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from triaxial.errors import StoreError

__all__ = ["write_tensors"]


def write_tensors(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    facts: Mapping[str, str] | None = None,
    *,
    mend: str = "make room or choose another place",
) -> None:
    """Write tensors as safetensors under another name, then rename.

    Args:
        path: The file; its directory is made when absent.
        tensors: By name, on any device.
        facts: Text that goes into the file's header.
        mend: What to do, for the error.

    Raises:
        StoreError: They cannot be written.
    """
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    found = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(found, temporary, None if facts is None else dict(facts))
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) or type(error).__name__ == "SafetensorError":
            raise StoreError(f"cannot be written ({error}); {mend}", where=path) from None
        raise
