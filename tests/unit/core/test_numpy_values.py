"""What out-of-place operations of `horovod.numpy` take besides contiguous arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes.ranks import run_ranks

import horovod.numpy as hvd

VALUES = {
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "reversed": np.arange(6.0)[::-2],
    "read-only": np.broadcast_to(np.float32(2), (4,)),
    "scalar": np.float32(1.5),
    "float": 1.5,
    "int": 3,
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_that_are_taken(kind: str) -> None:
    value: Any = VALUES[kind]

    def body(rank: int) -> None:
        whole = np.asarray(value)
        for _ in range(2):
            summed = hvd.allreduce(value, op=hvd.Sum, name="x")
            assert type(summed) is np.ndarray and summed.dtype == whole.dtype
            np.testing.assert_array_equal(summed, 2 * whole)
        np.testing.assert_array_equal(hvd.synchronize(hvd.allreduce_async(value, op=hvd.Sum)), 2 * whole)
        for result in hvd.grouped_allreduce([value, np.ones(2)], op=hvd.Sum)[:1]:
            np.testing.assert_array_equal(result, 2 * whole)
        np.testing.assert_array_equal(hvd.broadcast(value, 0), whole)
        if whole.dtype.kind == "f" and kind != "scalar":
            half = hvd.allreduce(value, op=hvd.Sum, compression=hvd.Compression.fp16)
            np.testing.assert_array_equal(half, 2 * whole)
        if not whole.ndim:
            return
        np.testing.assert_array_equal(hvd.allgather(value), np.concatenate([whole, whole]))
        if len(whole) % 2 == 0:
            own = slice(rank * len(whole) // 2, (rank + 1) * len(whole) // 2)
            np.testing.assert_array_equal(hvd.reducescatter(value, op=hvd.Sum), 2 * whole[own])
            np.testing.assert_array_equal(hvd.alltoall(value), np.concatenate([whole[own], whole[own]]))

    run_ranks(2, body)


def test_values_that_are_not() -> None:
    def body(rank: int) -> None:
        for wrong in ([1.0, 2.0], None, "1", b"ab", 1j):
            with pytest.raises(ValueError, match="numpy tensor"):
                hvd.allreduce(wrong)
        with pytest.raises(ValueError, match="mask"):
            hvd.allreduce(np.ma.array([1.0, 2.0], mask=[0, 1])[::-1])
        with pytest.raises(ValueError, match="numpy tensor"):
            hvd.allreduce_(1.0)
        with pytest.raises(ValueError, match="contiguous"):
            hvd.allreduce_(np.ones(4)[::2])

    run_ranks(2, body)
