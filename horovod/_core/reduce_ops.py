"""The reduce operations, their public numbers, and the one rule for the deprecated `average=` argument.

Used by every framework module, which re-exports the six constants. It decides which operation is meant and whether a
process set and an element type can have it; it submits nothing.
"""

from __future__ import annotations

import enum
import warnings
from typing import Final, Optional

from horovod._core import dtypes
from horovod._core.errors import InvalidArgumentError, UnsupportedError


class ReduceOp(enum.IntEnum):
    """How the ranks' values are combined; equal to the plain integers 0 to 5."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5

    def __str__(self) -> str:
        return self.name


Average: Final = ReduceOp.Average
Sum: Final = ReduceOp.Sum
Adasum: Final = ReduceOp.Adasum
Min: Final = ReduceOp.Min
Max: Final = ReduceOp.Max
Product: Final = ReduceOp.Product


def resolve(op: Optional[int], average: Optional[bool]) -> ReduceOp:
    """The operation meant by `op` and the deprecated boolean `average`.

    Raises:
        InvalidArgumentError: both are given, or `op` is none of the six.
    """
    if average is not None:
        if op is not None:
            raise InvalidArgumentError(
                "Give op or average, not both. average is deprecated: use op=hvd.Average or op=hvd.Sum."
            )
        warnings.warn(
            "The argument average is deprecated; use op=hvd.Average or op=hvd.Sum.", DeprecationWarning, stacklevel=4
        )
        return Average if average else Sum
    if op is None:
        return Average
    try:
        return ReduceOp(op)
    except ValueError:
        raise InvalidArgumentError(
            f"op must be one of hvd.Average, Sum, Adasum, Min, Max, Product (0 to 5). Received: {op!r}."
        ) from None


def is_power_of_two(n: int) -> bool:
    """True for 1, 2, 4, 8, ..."""
    return n > 0 and n & (n - 1) == 0


def check_adasum(process_set_id: int, size: int) -> None:
    """Refuses Adasum where it has no meaning.

    Raises:
        UnsupportedError: not the global set, or its size is no power of two.
    """
    if process_set_id != 0:
        raise UnsupportedError(
            f"Adasum works on the global process set only. Received process set {process_set_id}; use op=hvd.Average "
            "or hvd.Sum there."
        )
    if not is_power_of_two(size):
        raise UnsupportedError(
            f"Adasum needs a number of ranks that is a power of two. This job has {size}; use op=hvd.Average."
        )


def check_dtype(op: ReduceOp, dtype: int, prescale: float, postscale: float) -> None:
    """Refuses a combination of operation, element type and factors that has no meaning.

    Args:
        dtype: number of the element type (`horovod._core.dtypes`).

    Raises:
        InvalidArgumentError: Adasum of integers, or an average or a factor for bool.
    """
    if op is Adasum and dtype not in dtypes.FLOATING:
        raise InvalidArgumentError(f"Adasum needs a floating dtype. Received: {dtypes.NAMES[dtype]}.")
    if dtype == dtypes.BOOL:
        if op is Average:
            raise InvalidArgumentError(
                "bool has no average. Use op=hvd.Sum or hvd.Max (or), hvd.Product or hvd.Min (and), or cast first."
            )
        if prescale != 1.0 or postscale != 1.0:
            raise InvalidArgumentError(
                "bool cannot be scaled. Leave prescale_factor and postscale_factor at 1.0, or cast first."
            )
