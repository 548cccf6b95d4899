"""The checks that operations share."""

from __future__ import annotations

import numpy as np
import pytest

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.operations import checks
from horovod._core.operations.reduce_ops import Adasum, Average, ReduceOp, Sum, check_linear
from horovod.numpy.adapter import adapter


@pytest.mark.parametrize("rows", [0, 1, 5, 6, 7])
def test_a_reducescatter_leaves_every_row_to_one_member(rows: int) -> None:
    ranks = [1, 4, 6]
    parts = [checks.own_rows(rows, ranks, rank) for rank in ranks]
    assert sum(parts) == rows and parts == sorted(parts, reverse=True) and parts[0] - parts[-1] <= 1


def test_rows_that_are_not_known_yet_pass() -> None:
    checks.require_rows("allgather 'x'", [1, None, 3])
    with pytest.raises(InvalidArgumentError, match="allgather 'x' needs a tensor of at least one dimension"):
        checks.require_rows("allgather 'x'", [1, 0])


def test_factors() -> None:
    assert checks.factor("prescale_factor", np.float32(0.5)) == 0.5
    with pytest.raises(InvalidArgumentError, match="prescale_factor must be a number. Received: 'half'"):
        checks.factor("prescale_factor", "half")


def test_one_tensor_of_a_group_is_enough() -> None:
    tensors = [np.ones(1, np.float32), np.ones(1, np.int32)]
    checks.require_reducible(Average, adapter, tensors, (1.0, 1.0))
    with pytest.raises(UnsupportedError, match="Adasum needs a floating dtype. Received: int32"):
        checks.require_reducible(Adasum, adapter, tensors, (1.0, 1.0))


@pytest.mark.parametrize("op", ReduceOp)
def test_average_and_sum_reduce_parts_by_themselves(op: ReduceOp) -> None:
    if op in (Average, Sum):
        check_linear("reducescatter", op)
    else:
        with pytest.raises(UnsupportedError, match=f"reducescatter supports .* only. Received: {op.name}"):
            check_linear("reducescatter", op)
