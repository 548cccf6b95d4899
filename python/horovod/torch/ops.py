"""The operations on torch tensors, as users call them (`hvd.allreduce`, ...).

Plain calls go straight to the core's collectives with the torch adapter. A call on a tensor that needs a gradient, and
any call inside a function that torch.compile traces, goes through the registered operators (`operators`, `autograd`).
In-place operations change memory, not graphs: they have no gradient, but they tell autograd that the tensor has
changed.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Callable, Optional, TypeVar, Union

import torch
from torch.compiler import is_compiling

from horovod._core.life import handles
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average
from horovod._core.tensors.compression import Compressor, NoneCompressor
from horovod.torch import autograd as _autograd
from horovod.torch.dispatch import (
    dense,
    member_count,
    needs_operator,
    number_of,
    promised_rows,
    start_outside_graphs,
    wait_outside_graphs,
)
from horovod.torch.graphs import outside_graphs
from horovod.torch.operators import collectives
from horovod.torch.sparse import sparse_allreduce_async
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
    "reducescatter",
    "reducescatter_async",
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
_F = TypeVar("_F", bound=Callable[..., Any])


def _described(method: Callable[..., Any], gradient: str = "") -> Callable[[_F], _F]:
    """Gives a function the documentation of the core's method, plus a sentence on its gradient."""

    def describe(function: _F) -> _F:
        text = inspect.cleandoc(method.__doc__ or "")
        function.__doc__ = text + (f"\n\nDifferentiable: {gradient}" if gradient else "")
        return function

    return describe


# ---- allreduce


@_described(collectives.allreduce, "the gradient is the same allreduce of the incoming gradient.")
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
    if not needs_operator((tensor,)):
        return collectives.allreduce(  # type: ignore[no-any-return]
            dense(tensor), average, name, compression, op, prescale_factor, postscale_factor, process_set
        )
    sent, context = compression.compress(tensor)
    reduced = torch.ops.horovod.allreduce(
        sent, name, op, average, prescale_factor, postscale_factor, number_of(process_set)
    )
    return compression.decompress(reduced, context)  # type: ignore[no-any-return]


@outside_graphs
@_described(collectives.allreduce_async)
def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    return collectives.allreduce_async(dense(tensor), average, name, op, prescale_factor, postscale_factor, process_set)


@_described(collectives.allreduce_)
def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
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


@_described(collectives.allreduce_async_)
def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    if is_compiling():
        return start_outside_graphs(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    # As in `allreduce_`.
    handle: Optional[int] = _lane_submit((name, average, op, prescale_factor, postscale_factor, process_set), tensor)
    if handle is None:
        handle = _start_allreduce_in_place(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    increment_versions((tensor,))
    return handle


@_described(collectives.grouped_allreduce, "the gradients are the same grouped allreduce of the incoming gradients.")
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
    tensors = list(tensors)
    if not tensors or not needs_operator(tensors):
        contiguous = [dense(tensor) for tensor in tensors]
        return collectives.grouped_allreduce(
            contiguous, average, name, compression, op, prescale_factor, postscale_factor, process_set
        )
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduced = torch.ops.horovod.grouped_allreduce(
        [pair[0] for pair in pairs], name, op, average, prescale_factor, postscale_factor, number_of(process_set)
    )
    return [compression.decompress(result, pair[1]) for result, pair in zip(reduced, pairs)]


@outside_graphs
@_described(collectives.grouped_allreduce_async)
def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    contiguous = [dense(tensor) for tensor in tensors]
    return collectives.grouped_allreduce_async(
        contiguous, average, name, op, prescale_factor, postscale_factor, process_set
    )


@_described(collectives.grouped_allreduce_)
def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
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
@_described(collectives.grouped_allreduce_async_)
def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    tensors = list(tensors)
    handle = collectives.grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    )
    increment_versions(tensors)
    return handle


# ---- allgather, broadcast, alltoall


@_described(
    collectives.allgather, "the gradient is this rank's rows of the average over the ranks' incoming gradients."
)
def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    if not needs_operator((tensor,)):
        gathered = _lane_placed(("allgather", name, process_set, True, 1), tensor)  # as in `allreduce_`
        if gathered is None:
            gathered = collectives.allgather(dense(tensor), name, process_set)
        return gathered  # type: ignore[no-any-return]
    rows = promised_rows(tensor.shape[0], member_count(process_set)) if tensor.dim() else -1
    return torch.ops.horovod.allgather(tensor, name, number_of(process_set), rows)  # type: ignore[no-any-return]


@outside_graphs
@_described(collectives.allgather_async)
def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    return collectives.allgather_async(dense(tensor), name, process_set)


@_described(collectives.grouped_allgather, "the gradients are as those of `allgather`.")
def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    tensors = list(tensors)
    if not tensors or not needs_operator(tensors):
        return collectives.grouped_allgather([dense(tensor) for tensor in tensors], name, process_set)
    members = member_count(process_set)
    rows = [promised_rows(tensor.shape[0], members) if tensor.dim() else -1 for tensor in tensors]
    return list(torch.ops.horovod.grouped_allgather(tensors, name, number_of(process_set), rows))


@outside_graphs
@_described(collectives.grouped_allgather_async)
def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    return collectives.grouped_allgather_async([dense(tensor) for tensor in tensors], name, process_set)


@_described(
    collectives.broadcast, "the gradient is the average of the incoming gradients on the root, zeros elsewhere."
)
def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    if not needs_operator((tensor,)):
        return collectives.broadcast(dense(tensor), root_rank, name, process_set)  # type: ignore[no-any-return]
    return torch.ops.horovod.broadcast(tensor, root_rank, name, number_of(process_set))  # type: ignore[no-any-return]


@outside_graphs
@_described(collectives.broadcast_async)
def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    return collectives.broadcast_async(dense(tensor), root_rank, name, process_set)


@_described(collectives.broadcast_)
def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    if is_compiling():
        torch.ops.horovod.broadcast_(tensor, root_rank, name, number_of(process_set))
        return tensor
    # As in `allreduce_`.
    if not _lane_in_place(("broadcast", (root_rank, name, process_set)), tensor):
        collectives.broadcast_(tensor, root_rank, name, process_set)
    increment_versions((tensor,))
    return tensor


@outside_graphs
@_described(collectives.broadcast_async_)
def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    handle = collectives.broadcast_async_(tensor, root_rank, name, process_set)
    increment_versions((tensor,))
    return handle


@_described(
    collectives.alltoall, "the gradient is the alltoall that sends the incoming gradient back where the rows came from."
)
def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    if not needs_operator((tensor,)):
        # As in `allreduce_`.
        received = None if splits is not None else _lane_placed(("alltoall", name, process_set), tensor)
        if received is None:
            received = collectives.alltoall(dense(tensor), splits, name, process_set)
        return received  # type: ignore[no-any-return]
    rows = promised_rows(tensor.shape[0], 1) if splits is None and tensor.dim() else -1
    sent = splits
    if splits is not None and not isinstance(splits, torch.Tensor):
        sent = torch.as_tensor(splits)
        if not sent.numel():  # PyTorch makes floats of an empty list
            sent = sent.to(torch.int64)
    received, received_splits = torch.ops.horovod.alltoall(tensor, sent, name, number_of(process_set), rows)
    return received if splits is None else (received, received_splits)


@outside_graphs
@_described(collectives.alltoall_async)
def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    return collectives.alltoall_async(dense(tensor), splits, name, process_set)


# ---- reducescatter

_SCATTER_GRADIENT = (
    "the gradient is an allgather of the incoming gradients, times the factors and, for op=Sum, the number of members "
    "(upstream's convention)."
)


@_described(collectives.reducescatter, _SCATTER_GRADIENT)
def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: Compressor = NoneCompressor,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    if not needs_operator((tensor,)):
        block = None
        if compression is NoneCompressor:  # as in `allreduce_`
            key = (name, None, op, prescale_factor, postscale_factor, process_set)
            block = _lane_placed(("reducescatter", key, True, 1), tensor)
        if block is None:
            block = collectives.reducescatter(
                dense(tensor), name, compression, op, process_set, prescale_factor, postscale_factor
            )
        return block  # type: ignore[no-any-return]
    sent, context = compression.compress(tensor)
    block = torch.ops.horovod.reducescatter(
        sent, name, int(op), prescale_factor, postscale_factor, number_of(process_set)
    )
    return compression.decompress(block, context)  # type: ignore[no-any-return]


@outside_graphs
@_described(collectives.reducescatter_async)
def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    return collectives.reducescatter_async(dense(tensor), name, op, process_set, prescale_factor, postscale_factor)


@_described(collectives.grouped_reducescatter, _SCATTER_GRADIENT)
def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    compression: Compressor = NoneCompressor,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    tensors = list(tensors)
    if not tensors or not needs_operator(tensors):
        contiguous = [dense(tensor) for tensor in tensors]
        return collectives.grouped_reducescatter(
            contiguous, name, compression, op, process_set, prescale_factor, postscale_factor
        )
    pairs = [compression.compress(tensor) for tensor in tensors]
    blocks = torch.ops.horovod.grouped_reducescatter(
        [pair[0] for pair in pairs], name, int(op), prescale_factor, postscale_factor, number_of(process_set)
    )
    return [compression.decompress(block, pair[1]) for block, pair in zip(blocks, pairs)]


@outside_graphs
@_described(collectives.grouped_reducescatter_async)
def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    contiguous = [dense(tensor) for tensor in tensors]
    return collectives.grouped_reducescatter_async(contiguous, name, op, process_set, prescale_factor, postscale_factor)


# ---- handles, no data


@outside_graphs
@_described(collectives.poll)
def poll(handle: int) -> bool:
    return collectives.poll(handle)


@_described(collectives.synchronize)
def synchronize(handle: int) -> Any:
    if is_compiling():
        return wait_outside_graphs(handle)
    result = _finish_quickly(handle)
    return _wait_for(handle) if result is None else result


@outside_graphs
@_described(collectives.join)
def join(device: int = -1) -> int:
    return collectives.join(device)


@outside_graphs
@_described(collectives.barrier)
def barrier(process_set: ProcessSet = global_process_set) -> None:
    collectives.barrier(process_set)
