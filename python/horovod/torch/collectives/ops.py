"""The operations on torch tensors, as users call them (`hvd.allreduce`, ...).

Plain calls go straight to the core's collectives with the torch adapter. A call on a tensor that needs a gradient, and
any call inside a function that torch.compile traces, goes through the registered operators (`operators`, `autograd`).
In-place operations change memory, not graphs: they have no gradient, but they tell autograd that the tensor has
changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch.compiler import is_compiling

from horovod._core.life import handles
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average
from horovod._core.tensors.compression import Compressor, NoneCompressor, compressed
from horovod.torch.collectives import autograd as _autograd
from horovod.torch.collectives import discards
from horovod.torch.collectives.dispatch import (
    dense,
    needs_operator,
    number_of,
    start_outside_graphs,
    wait_outside_graphs,
)
from horovod.torch.collectives.movement_ops import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
)
from horovod.torch.collectives.operators import collectives
from horovod.torch.collectives.point_to_point_ops import recv, recv_async, send, send_async
from horovod.torch.collectives.sparse import sparse_allreduce_async
from horovod.torch.graphs import outside_graphs
from horovod.torch.versions import increment_versions

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "recv",
    "recv_async",
    "reducescatter",
    "reducescatter_async",
    "send",
    "send_async",
    "sparse_allreduce_async",
    "synchronize",
]
del _autograd

_lane_in_place = collectives.lane_in_place
_allreduce_in_place = collectives.allreduce_
_lane_placed = collectives.lane_placed
_lane_submit = collectives.lane_submit
_start_allreduce_in_place = collectives.allreduce_async_
_finish_quickly = handles.finish_quickly
_wait_for = collectives.synchronize


# ---- allreduce


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Compressor = NoneCompressor,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Combines the ranks' tensors, element by element, into a new one. Collective. Differentiable: the gradient is the
    same allreduce of the incoming gradient.

    Args:
        tensor: of any shape, strides and dtype; shape and dtype equal on all ranks.
        average: deprecated; True is op=hvd.Average, False op=hvd.Sum.
        name: identity of the operation, equal on all ranks; None: the operations are counted.
        compression: hvd.Compression.none, fp16 or bf16: the type in which values travel.
        op: hvd.Average (the default), Sum, Adasum, Min, Max or Product.
        prescale_factor, postscale_factor: multiply the tensors before, the results after.
        process_set: the ranks that take part.

    Returns:
        A tensor of the same shape and dtype; averages of integers are truncated toward zero.

    Raises:
        ValueError: a bad argument on this rank; the other ranks get a MismatchError.
        MismatchError: the ranks disagree about dtype, shape, op or factors.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    if not needs_operator((tensor,)):
        return collectives.allreduce(  # type: ignore[no-any-return]
            dense(tensor), average, name, compression, op, prescale_factor, postscale_factor, process_set
        )
    ((sent, context),) = compressed([tensor], compression)
    reduced = torch.ops.horovod.allreduce(
        sent, name, op, average, prescale_factor, postscale_factor, number_of(process_set)
    )
    return compression.decompress(reduced, context)  # type: ignore[no-any-return]


@outside_graphs
def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce`. Collective. The tensor must not be changed before the end.

    Returns:
        A handle for `poll` and `synchronize`, which gives the result.
    """
    return collectives.allreduce_async(dense(tensor), average, name, op, prescale_factor, postscale_factor, process_set)


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """As `allreduce`, in place. Collective. The tensor must be contiguous; no gradient.

    Returns:
        The tensor given.
    """
    if is_compiling():
        torch.ops.horovod.allreduce_(
            tensor, name, op, average, prescale_factor, postscale_factor, number_of(process_set)
        )
        return tensor
    # Asked here already, for one frame less; `Reductions.allreduce_` makes the same key.
    if not _lane_in_place((name, average, op, prescale_factor, postscale_factor, process_set), tensor):
        _allreduce_in_place(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    increment_versions((tensor,))
    return tensor


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce_`. Collective. The tensor must not be touched before the end.

    Returns:
        A handle for `poll` and `synchronize`.
    """
    if is_compiling():
        return start_outside_graphs(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    # As in `allreduce_`.
    handle: Optional[int] = _lane_submit((name, average, op, prescale_factor, postscale_factor, process_set), tensor)
    if handle is None:
        handle = _start_allreduce_in_place(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    increment_versions((tensor,))
    return handle


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Compressor = NoneCompressor,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """As `allreduce`, for a list of tensors that is negotiated as one unit. Collective. Differentiable: the gradients
    are the same grouped allreduce of the incoming gradients.

    Args:
        tensors: as many on all ranks; each as of `allreduce`, and so are all other arguments.

    Returns:
        The results, in the order of `tensors`.
    """
    tensors = list(tensors)
    if not tensors or not needs_operator(tensors):
        contiguous = [dense(tensor) for tensor in tensors]
        return collectives.grouped_allreduce(
            contiguous, average, name, compression, op, prescale_factor, postscale_factor, process_set
        )
    pairs = compressed(tensors, compression)
    reduced = torch.ops.horovod.grouped_allreduce(
        [pair[0] for pair in pairs], name, op, average, prescale_factor, postscale_factor, number_of(process_set)
    )
    return [compression.decompress(result, pair[1]) for result, pair in zip(reduced, pairs)]


@outside_graphs
def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce`. Collective. Returns a handle; `synchronize` gives the list."""
    contiguous = [dense(tensor) for tensor in tensors]
    return collectives.grouped_allreduce_async(
        contiguous, average, name, op, prescale_factor, postscale_factor, process_set
    )


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """As `grouped_allreduce`, in place. Collective. Returns the tensors given."""
    tensors = list(tensors)
    if is_compiling():
        torch.ops.horovod.grouped_allreduce_(
            tensors, name, op, average, prescale_factor, postscale_factor, number_of(process_set)
        )
        return tensors
    collectives.grouped_allreduce_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
    increment_versions(tensors)
    return tensors


@outside_graphs
def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce_`. Collective. Returns a handle."""
    tensors = list(tensors)
    handle = collectives.grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    )
    increment_versions(tensors)
    return handle


# ---- reducescatter


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: Compressor = NoneCompressor,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combines the ranks' tensors and leaves each rank a part of the rows, the first ones one row more if they cannot
    be divided evenly. Collective. Differentiable: the gradient is an allgather of the incoming gradients, times the
    factors and, for op=Sum, the number of ranks.

    Args:
        tensor: of at least one dimension; shape and dtype equal on all ranks.
        name: identity of the operation, equal on all ranks; None: the operations are counted.
        compression: as of `allreduce`.
        op: hvd.Average (the default) or Sum.
        process_set: the ranks that take part.
        prescale_factor, postscale_factor: as of `allreduce`.

    Returns:
        This rank's rows.

    Raises:
        ValueError: a bad argument on this rank; the other ranks get a MismatchError.
        MismatchError: the ranks disagree about dtype, shape, op or factors.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    if not needs_operator((tensor,)):
        block = None
        if compression is NoneCompressor:  # as in `allreduce_`
            key = (name, None, op, prescale_factor, postscale_factor, process_set)
            block = _lane_placed(("reducescatter", key), tensor)
        if block is None:
            block = collectives.reducescatter(
                dense(tensor), name, compression, op, process_set, prescale_factor, postscale_factor
            )
        return block  # type: ignore[no-any-return]
    ((sent, context),) = compressed([tensor], compression)
    block = torch.ops.horovod.reducescatter(
        sent, name, int(op), prescale_factor, postscale_factor, number_of(process_set)
    )
    return compression.decompress(block, context)  # type: ignore[no-any-return]


@outside_graphs
def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts `reducescatter`. Collective. Returns a handle for `poll` and `synchronize`, which gives the rows."""
    return collectives.reducescatter_async(dense(tensor), name, op, process_set, prescale_factor, postscale_factor)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    compression: Compressor = NoneCompressor,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """As `reducescatter`, for a list of tensors that is negotiated as one unit. Collective. Differentiable: the
    gradients are as those of `reducescatter`. Returns the list of this rank's rows."""
    tensors = list(tensors)
    if not tensors or not needs_operator(tensors):
        contiguous = [dense(tensor) for tensor in tensors]
        return collectives.grouped_reducescatter(
            contiguous, name, compression, op, process_set, prescale_factor, postscale_factor
        )
    pairs = compressed(tensors, compression)
    blocks = torch.ops.horovod.grouped_reducescatter(
        [pair[0] for pair in pairs], name, int(op), prescale_factor, postscale_factor, number_of(process_set)
    )
    return [compression.decompress(block, pair[1]) for block, pair in zip(blocks, pairs)]


@outside_graphs
def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts `grouped_reducescatter`. Collective. Returns a handle; `synchronize` gives the list."""
    contiguous = [dense(tensor) for tensor in tensors]
    return collectives.grouped_reducescatter_async(contiguous, name, op, process_set, prescale_factor, postscale_factor)


# ---- handles, no data


@outside_graphs
def poll(handle: int) -> bool:
    """True if `synchronize(handle)` would not wait. Local.

    Raises:
        ValueError: no operation has ever had this handle.
    """
    return collectives.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation; its handle is then used up. Local.

    Returns:
        The output tensor or list; None for a handle that is used up.

    Raises:
        ValueError: no operation has ever had this handle.
        MismatchError: the ranks disagree about the operation.
        HorovodInternalError: it failed: a rank died, the engine is shutting down, a time limit passed.
    """
    if is_compiling():
        return wait_outside_graphs(handle)
    result = _finish_quickly(handle)
    return _wait_for(handle) if result is None else result


@outside_graphs
def join(device: int = -1) -> int:
    """Declares that this rank has no more data: until all ranks have joined, it takes part in the others' allreduces
    with the neutral element. Collective over all ranks. Other operations fail meanwhile.

    Args:
        device: accepted for compatibility.

    Returns:
        The rank that joined last.
    """
    last = collectives.join(device)
    discards.forget()
    return last


@outside_graphs
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until all ranks of the process set have called it. Collective."""
    collectives.barrier(process_set)
