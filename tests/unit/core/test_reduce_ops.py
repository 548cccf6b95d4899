"""Which reduction is meant, and which are refused."""

from __future__ import annotations

import pytest

from horovod._core import public
from horovod._core.compat.basics import basics
from horovod._core.compat.legacy import get_average_backwards_compatibility_fun
from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.operations import reduce_ops
from horovod._core.operations.reduce_ops import Adasum, Average, Max, Min, Product, Sum
from horovod._core.tensors import dtypes
from horovod._core.training.groups import chosen_groups


def test_public_numbers() -> None:
    assert [int(op) for op in (Average, Sum, Adasum, Min, Max, Product)] == [0, 1, 2, 3, 4, 5]
    assert {1: "x"}[Sum] == "x"
    assert str(Sum) == "Sum"


def test_every_operation_is_a_public_name() -> None:
    for op in reduce_ops.ReduceOp:
        assert op.name in public.__all__
        assert getattr(public, op.name) is getattr(basics, op.name) is op


@pytest.mark.parametrize(("op", "expected"), [(None, Average), (1, Sum), (Max, Max)])
def test_resolve(op: int, expected: object) -> None:
    assert reduce_ops.resolve(op, None) is expected


@pytest.mark.parametrize(("average", "expected"), [(True, Average), (False, Sum)])
def test_average_alone_warns(average: bool, expected: object) -> None:
    with pytest.warns(DeprecationWarning, match="op=hvd.Average"):
        assert reduce_ops.resolve(None, average) is expected


def test_the_warning_points_at_the_users_line() -> None:
    through_another = get_average_backwards_compatibility_fun(basics)
    with pytest.warns(DeprecationWarning, match="op=hvd.Average") as caught:
        through_another(None, True)
    with pytest.warns(DeprecationWarning, match="use groups") as more:
        chosen_groups(None, num_groups=2)
    assert {warning.filename for warning in (*caught, *more)} == {__file__}


def test_average_with_op_is_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        reduce_ops.resolve(Sum, False)


@pytest.mark.parametrize("op", [6, -1, "sum", 1.5])
def test_unknown_op(op: object) -> None:
    with pytest.raises(InvalidArgumentError, match="Received"):
        reduce_ops.resolve(op, None)  # type: ignore[arg-type]


def test_adasum_needs_a_power_of_two() -> None:
    reduce_ops.check_members(Adasum, 0, 4)
    with pytest.raises(NotImplementedError, match="This job has 6"):
        reduce_ops.check_members(Adasum, 0, 6)


def test_adasum_needs_the_global_set() -> None:
    with pytest.raises(UnsupportedError, match="process set 2"):
        reduce_ops.check_members(Adasum, 2, 4)


@pytest.mark.parametrize(
    ("op", "dtype", "prescale", "words"),
    [
        (Adasum, dtypes.INT32, 1.0, "floating"),
        (Average, dtypes.BOOL, 1.0, "no average"),
        (Sum, dtypes.BOOL, 2.0, "scaled"),
    ],
)
def test_combinations_without_meaning(op: reduce_ops.ReduceOp, dtype: int, prescale: float, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        reduce_ops.check_dtype(op, dtype, prescale, 1.0)


def test_numbers_agree_with_the_abi() -> None:
    from horovod._native import abi

    assert {name.lower(): number for name, number in abi.ENUMS["hvd_dtype"].items()} == {
        name: number for number, name in enumerate(dtypes.NAMES)
    }
    assert {op.name.upper(): int(op) for op in reduce_ops.ReduceOp} == abi.ENUMS["hvd_reduce_op"]
