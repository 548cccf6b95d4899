"""The collectives on MXNet's arrays.

Reductions and broadcasts are operations of MXNet's engine: they return at once, and a failure is an error where their
results are waited for (`NDArray.asnumpy`, `wait_to_read`). Allgather and alltoall wait, because nobody knows before how
many rows come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Optional

from horovod._core.life.engine_port import ALLREDUCE, BROADCAST, REDUCESCATTER
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.reduce_ops import Average
from horovod.mxnet.adapter import adapter
from horovod.mxnet.engine import named, prepared, push, push_by_way_of_new_arrays

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
]

blocking: Final = Collectives(adapter)  # what waits


def reduce_in_place(
    tensors: Sequence[Any],
    names: tuple[str, ...],
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    priority: int,
) -> None:
    """An allreduce of arrays of which no two share memory, as a group if there are several. Collective."""
    single = len(names) == 1
    key = (names[0] if single else names, None, op, *factors, process_set)
    push(prepared._start_allreduce(list(tensors), True, key, single), priority)


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> Any:
    """Combines the members' arrays, element by element, into a new array.

    Collective. It is not recorded by autograd.

    Args:
        tensor: shape and dtype equal on all members.
        average: deprecated; use `op`.
        name: identity of the operation, equal on all members; None: counted.
        priority: MXNet's engine prefers higher ones among the operations that are ready.
        prescale_factor: multiplies each array before the reduction.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part.
        op: Average (default), Sum, Adasum, Min, Max or Product.

    Returns:
        The result, which is ready later.

    Raises:
        InvalidArgumentError, UnsupportedError: a bad argument on this rank (the other members get a MismatchError).
    """
    name = named(name, ALLREDUCE, process_set)
    key = (name, average, op, prescale_factor, postscale_factor, process_set)
    return push(prepared._start_allreduce([tensor], False, key), priority)


def allreduce_(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> Any:
    """As `allreduce`, in place. Collective. Returns the array given."""
    name = named(name, ALLREDUCE, process_set)
    key = (name, average, op, prescale_factor, postscale_factor, process_set)
    return push(prepared._start_allreduce([tensor], True, key), priority)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> list[Any]:
    """As `allreduce`, for a list of arrays that is negotiated as one unit. Collective. Returns the list of results."""
    tensors = list(tensors)
    name = named(name, ALLREDUCE, process_set, len(tensors))
    key = (name, average, op, prescale_factor, postscale_factor, process_set)
    results: list[Any] = push(prepared._start_allreduce(tensors, False, key, False), priority)
    return results


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> list[Any]:
    """As `grouped_allreduce`, in place. Collective. Returns the arrays given."""
    tensors = list(tensors)
    name = named(name, ALLREDUCE, process_set, len(tensors))
    key = (name, average, op, prescale_factor, postscale_factor, process_set)
    push_by_way_of_new_arrays(prepared._start_allreduce(tensors, True, key, False), tensors, priority)
    return tensors


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Combines the members' arrays and leaves each member a block of rows (first dimension).

    Collective. Of n rows each of s members gets n // s; the first n % s members get one more.

    Args:
        tensor: at least one dimension; shape and dtype equal on all members.
        op: Average or Sum.
        name, priority, process_set, prescale_factor, postscale_factor: as of `allreduce`.

    Returns:
        This member's block, which is ready later.

    Raises:
        As `allreduce`.
    """
    key = (named(name, REDUCESCATTER, process_set), None, op, prescale_factor, postscale_factor, process_set)
    (block,) = push(prepared._start_reducescatter([tensor], key), priority)
    return block


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int = Average,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """As `reducescatter`, for a list of arrays that is negotiated as one unit. Collective. Returns the list of
    blocks."""
    tensors = list(tensors)
    name = named(name, REDUCESCATTER, process_set, len(tensors))
    key = (name, None, op, prescale_factor, postscale_factor, process_set)
    blocks: list[Any] = push(prepared._start_reducescatter(tensors, key, False), priority)
    return blocks


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Copies the root's array to all members, into a new array.

    Collective.

    Args:
        tensor: shape and dtype equal on all members.
        root_rank: a global rank, also for a process set.
        name, priority, process_set: as of `allreduce`.

    Returns:
        The root's values, which are there later.

    Raises:
        As `allreduce`.
    """
    arguments = (root_rank, named(name, BROADCAST, process_set), process_set)
    return push(prepared._start_broadcast(tensor, False, arguments), priority)


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As `broadcast`, in place. Collective. Returns the array given."""
    arguments = (root_rank, named(name, BROADCAST, process_set), process_set)
    return push(prepared._start_broadcast(tensor, True, arguments), priority)


def allgather(
    tensor: Any, name: Optional[str] = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenates the members' arrays along the first dimension, in the order of their ranks. Waits for the result.

    Collective.

    Args:
        tensor: at least one dimension; dtype and all dimensions but the first equal on all members.
        name, process_set: as of `allreduce`.
        priority: accepted for compatibility; this is no operation of MXNet's engine.

    Returns:
        A new array of the same dtype.

    Raises:
        As `allreduce`; MismatchError: the members disagree; HorovodInternalError: a rank died, or the engine is
        shutting down.
    """
    return blocking.allgather(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """As `allgather`, for a list of arrays that is negotiated as one unit. Collective. Returns the list of results."""
    return blocking.grouped_allgather(tensors, name, process_set)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends blocks of rows (first dimension) to each member and gathers theirs, in the order of their ranks. Waits for
    the result.

    Collective.

    Args:
        tensor: at least one dimension; dtype and all dimensions but the first equal on all members.
        splits: rows for each member; None: equal parts.
        name, priority, process_set: as of `allgather`.

    Returns:
        The received rows; with `splits` a pair of them and the number of rows from each member (int32).

    Raises:
        As `allgather`.
    """
    return blocking.alltoall(tensor, splits, name, process_set)
