"""Tensors on their way: to a device and back without waiting for it, and to a file, whole.

A GPU works through what it is given while the host prepares what comes next, until the host asks
for a result. Memory of the host that is not pinned is copied as if it were such a question. So
arrays are sent from pinned memory, and results are asked for when the next batch is on its way.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors.torch import save_file

from triaxial.errors import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fetched", "on_device", "one_behind", "write_tensors"]

Item = TypeVar("Item")


def on_device(
    array: NDArray[Any], device: str | torch.device, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """An array as a tensor on a device; a GPU is not waited for."""
    tensor = torch.from_numpy(array)
    device = torch.device(device)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, dtype, non_blocking=True)


def fetched(*tensors: torch.Tensor) -> Callable[[], list[NDArray[Any]]]:
    """Start to copy tensors to the host; what is returned waits for them and gives the arrays."""
    if tensors[0].device.type != "cuda":
        here = [tensor.cpu().numpy() for tensor in tensors]
        return lambda: here
    copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]  # into pinned memory
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(tensors[0].device))

    def arrays() -> list[NDArray[Any]]:
        event.synchronize()
        return [copy.numpy() for copy in copies]

    return arrays


def one_behind(items: Iterable[Item]) -> Iterator[Item]:
    """Each item when the next has been made: the work of a batch is on its way by then."""
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        if len(waiting) > 1:
            yield waiting.pop(0)
    yield from waiting


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
