"""The checks of tensors and numbers that operations share.

Those over element types, dimensions and numbers ask for nothing else, so that a tensor that is still a symbol passes
through the same ones. An error begins with `what`, the operation as messages call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional, Protocol

from horovod._core.errors import InvalidArgumentError
from horovod._core.operations.reduce_ops import ReduceOp, check_dtype
from horovod._core.tensors import dtypes
from horovod._core.tensors.adapter import Adapter

__all__ = [
    "factor", "own_rows", "require_distinct", "require_dtypes", "require_movable", "require_reducible", "require_rows",
    "require_tensors", "require_writable",
]  # fmt: skip


class TypedAdapter(Protocol):
    """What the checks ask about a tensor; see `horovod._core.tensors.adapter.Adapter`."""

    def dtype(self, tensor: Any) -> int: ...

    def dtype_name(self, tensor: Any) -> str: ...


def require_tensors(what: str, adapter: Adapter, tensors: Iterable[Any]) -> None:
    """Raises InvalidArgumentError unless all are tensors of the adapter's framework."""
    for tensor in tensors:
        if not adapter.owns(tensor):
            raise InvalidArgumentError(
                f"{what} needs a {adapter.framework} tensor. Received: {type(tensor).__name__}; {adapter.maker}(value) "
                "makes one."
            )


def require_movable(what: str, adapter: Adapter, tensors: Sequence[Any]) -> None:
    """Raises InvalidArgumentError unless all are tensors of a known element type, whose values lie in memory without
    gaps."""
    require_tensors(what, adapter, tensors)
    for reason in map(adapter.unfit, tensors):
        if reason:
            raise InvalidArgumentError(f"{what} {reason}")
    require_dtypes(what, adapter, tensors)
    for tensor in tensors:
        if not adapter.is_contiguous(tensor):
            raise InvalidArgumentError(
                f"{what} needs a contiguous tensor. Received one of shape {list(adapter.shape(tensor))} with gaps or "
                "another order of dimensions in memory; make it contiguous first."
            )


def require_writable(what: str, adapter: Adapter, tensors: Iterable[Any]) -> None:
    """Raises InvalidArgumentError if one of the tensors, which are changed in place, is read-only."""
    if not all(map(adapter.is_writable, tensors)):
        raise InvalidArgumentError(
            f"{what} works in place, but the tensor is read-only; copy it first or use the variant without '_'."
        )


def require_distinct(what: str, adapter: Adapter, tensors: Iterable[Any]) -> None:
    """Raises InvalidArgumentError if two of the tensors, which are changed in place, are one."""
    keys = [adapter.slot_key(tensor) for tensor in tensors if dtypes.elements(adapter.shape(tensor))]
    if len(set(keys)) != len(keys):
        raise InvalidArgumentError(
            f"{what} was given the same tensor twice; a tensor can be reduced in place only once in a group."
        )


def require_dtypes(what: str, adapter: TypedAdapter, tensors: Iterable[Any]) -> None:
    """Raises InvalidArgumentError unless the core knows every tensor's element type."""
    for tensor in tensors:
        if adapter.dtype(tensor) < 0:
            raise InvalidArgumentError(
                f"{what}: dtype {adapter.dtype_name(tensor)} is not supported. Supported are "
                f"{', '.join(dtypes.NAMES)}; cast the tensor first."
            )


def require_reducible(
    op: ReduceOp, adapter: TypedAdapter, tensors: Iterable[Any], factors: tuple[float, float]
) -> None:
    """Raises UnsupportedError unless the operation can have every tensor's element type and the factors."""
    for number in {adapter.dtype(tensor): None for tensor in tensors}:
        check_dtype(op, number, *factors)


def require_rows(what: str, dimensions: Iterable[Optional[int]]) -> None:
    """Raises InvalidArgumentError if a tensor is a scalar.

    Args:
        dimensions: how many each has; None: not known yet.
    """
    if 0 in dimensions:
        raise InvalidArgumentError(
            f"{what} needs a tensor of at least one dimension. Received a scalar; reshape it to one element."
        )


def own_rows(rows: Any, ranks: Sequence[int], rank: int) -> Any:
    """How many of the rows a reducescatter leaves to a rank.

    Args:
        rows: an integer, or a tracer's symbol for one.
        ranks: the members.
        rank: one of them.
    """
    return rows // len(ranks) + (1 if ranks.index(rank) < rows % len(ranks) else 0)


def factor(name: str, value: Any) -> float:
    """What a reduction multiplies with.

    Raises:
        InvalidArgumentError: no number.
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{name} must be a number. Received: {value!r}.") from None
