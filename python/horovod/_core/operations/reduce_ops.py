"""The reduce operations: one table of what sets each apart, and the checks that follow from it.

Used by every framework module, which re-exports the six constants. It decides which operation is meant and whether a
process set and an element type can have it; it submits nothing. A new operation is one more row.
"""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass
from typing import Final, Optional

from horovod._core.callers import users_level
from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.tensors import dtypes


class Gradient(enum.Enum):
    """What the gradient of an allreduce is.

    SAME: the same reduction of the gradients. HOLDERS: their sum, for the ranks that hold the result. NONE: there is
    none here.
    """

    SAME = enum.auto()
    HOLDERS = enum.auto()
    NONE = enum.auto()


@dataclass(frozen=True)
class Row:
    """What sets an operation apart.

    Args:
        gradient: of an allreduce.
        divides: by the number of members. A bool cannot be divided; a division can be split by a predivide factor.
        linear: a multiple of the sum, so that blocks of rows and sparse entries can be reduced by themselves.
        directions: combines directions of descent in pairs: floating numbers, of all ranks, a power of two of them;
            torch's and TensorFlow's optimizers combine their steps with it instead of gradients.
    """

    gradient: Gradient = Gradient.SAME
    divides: bool = False
    linear: bool = False
    directions: bool = False


class ReduceOp(enum.IntEnum):
    """How the ranks' values are combined; equal to the plain integers 0 to 5, which are the core's (hvd_reduce_op)."""

    _value_: int
    row: Row

    def __new__(cls, number: int, row: Row = Row()) -> ReduceOp:  # noqa: B008 - frozen
        made = int.__new__(cls, number)
        made._value_ = number
        made.row = row
        return made

    Average = 0, Row(divides=True, linear=True)
    Sum = 1, Row(linear=True)
    Adasum = 2, Row(directions=True)
    Min = 3, Row(Gradient.HOLDERS)
    Max = 4, Row(Gradient.HOLDERS)
    Product = 5, Row(Gradient.NONE)

    def __str__(self) -> str:
        return self.name


Average: Final = ReduceOp.Average
Sum: Final = ReduceOp.Sum
Adasum: Final = ReduceOp.Adasum
Min: Final = ReduceOp.Min
Max: Final = ReduceOp.Max
Product: Final = ReduceOp.Product


def resolve(op: Optional[int], average: Optional[bool]) -> ReduceOp:
    """The operation meant by `op` and the deprecated boolean `average`, of which the user is warned.

    Raises:
        InvalidArgumentError: both are given, or `op` is none of the six.
    """
    if average is not None:
        if op is not None:
            raise InvalidArgumentError(
                "Give op or average, not both. average is deprecated: use op=hvd.Average or op=hvd.Sum."
            )
        warnings.warn(
            "The argument average is deprecated; use op=hvd.Average or op=hvd.Sum.",
            DeprecationWarning,
            stacklevel=users_level(),
        )
    return meant(op, average)


def meant(op: Optional[int], average: Optional[bool] = None) -> ReduceOp:
    """As `resolve`, of arguments of which the user has been warned, or that have no `average`.

    Raises:
        InvalidArgumentError: `op` is none of the six.
    """
    if average is not None:
        return Average if average else Sum
    if op is None:
        return Average
    try:
        return ReduceOp(op)
    except ValueError:
        raise InvalidArgumentError(
            f"op must be one of hvd.{', '.join(map(str, ReduceOp))} (0 to {len(ReduceOp) - 1}). Received: {op!r}."
        ) from None


def is_power_of_two(n: int) -> bool:
    """True for 1, 2, 4, 8, ..."""
    return n > 0 and n & (n - 1) == 0


def check_members(op: ReduceOp, process_set_id: int, size: int) -> None:
    """Refuses Adasum among ranks where it has no meaning.

    Raises:
        UnsupportedError: not the global set, or its size is no power of two.
    """
    if not op.row.directions:
        return
    if process_set_id != 0:
        raise UnsupportedError(
            f"{op} works on the global process set only. Received process set {process_set_id}; use op=hvd.Average "
            "or hvd.Sum there."
        )
    if not is_power_of_two(size):
        raise UnsupportedError(
            f"{op} needs a number of ranks that is a power of two. This job has {size}; use op=hvd.Average."
        )


def check_linear(what: str, op: ReduceOp) -> None:
    """Refuses an operation that cannot reduce the parts of a tensor by themselves.

    Args:
        what: begins the message.

    Raises:
        UnsupportedError: it is neither Average nor Sum.
    """
    if not op.row.linear:
        raise UnsupportedError(f"{what} supports op=hvd.Average and hvd.Sum only. Received: {op}.")


def check_dtype(op: ReduceOp, dtype: int, prescale: float, postscale: float) -> None:
    """Refuses a combination of operation, element type and factors that has no meaning.

    Args:
        dtype: number of the element type (`horovod._core.tensors.dtypes`).

    Raises:
        UnsupportedError: Adasum of integers, or an average or a factor for bool.
    """
    if op.row.directions and dtype not in dtypes.FLOATING:
        raise UnsupportedError(f"{op} needs a floating dtype. Received: {dtypes.NAMES[dtype]}.")
    if dtype == dtypes.BOOL:
        if op.row.divides:
            raise UnsupportedError(
                "bool has no average. Use op=hvd.Sum or hvd.Max (or), hvd.Product or hvd.Min (and), or cast first."
            )
        if prescale != 1.0 or postscale != 1.0:
            raise UnsupportedError(
                "bool cannot be scaled. Leave prescale_factor and postscale_factor at 1.0, or cast first."
            )
