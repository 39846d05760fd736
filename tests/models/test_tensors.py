"""To a device and back; on a CPU there is nothing to wait for, but the order can be seen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from triaxial.models.tensors import fetched, on_device, one_behind


def test_there_and_back() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    tensor = on_device(array, "cpu", torch.long)
    assert tensor.dtype == torch.long
    one, other = fetched(tensor, tensor + 1)()
    np.testing.assert_array_equal(one, array)
    np.testing.assert_array_equal(other, array + 1)


def test_a_result_is_asked_for_when_the_next_batch_is_on_its_way() -> None:
    seen: list[str] = []

    def batches() -> Iterator[int]:
        for number in range(3):
            seen.append(f"made {number}")
            yield number

    for number in one_behind(batches()):
        seen.append(f"used {number}")
    assert seen == ["made 0", "made 1", "used 0", "made 2", "used 1", "used 2"]
    assert list(one_behind([])) == []
