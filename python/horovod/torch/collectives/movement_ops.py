"""The operations on torch tensors that move values without combining them, as users call them; see `ops`, which exports
them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch.compiler import is_compiling

from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod.torch.collectives.dispatch import dense, member_count, needs_operator, number_of, promised_rows
from horovod.torch.collectives.operators import collectives
from horovod.torch.graphs import outside_graphs
from horovod.torch.versions import increment_versions

__all__ = [
    "allgather",
    "allgather_async",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
]

_lane_in_place = collectives.lane_in_place
_lane_placed = collectives.lane_placed


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Joins the ranks' tensors along the first dimension, in the order of the ranks. Collective. Differentiable: the
    gradient is this rank's rows of the average over the ranks' incoming gradients.

    Args:
        tensor: of at least one dimension; the first may differ between the ranks, all others and the dtype may not.
        name: identity of the operation, equal on all ranks; None: the operations are counted.
        process_set: the ranks that take part.

    Returns:
        A new tensor of the same dtype.

    Raises:
        ValueError: a bad argument on this rank; the other ranks get a MismatchError.
        MismatchError: the ranks disagree about dtype or dimensions.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    if not needs_operator((tensor,)):
        gathered = _lane_placed(("allgather", name, process_set), tensor)  # as in `allreduce_`
        if gathered is None:
            gathered = collectives.allgather(dense(tensor), name, process_set)
        return gathered  # type: ignore[no-any-return]
    rows = promised_rows(tensor.shape[0], member_count(process_set)) if tensor.dim() else -1
    return torch.ops.horovod.allgather(tensor, name, number_of(process_set), rows)  # type: ignore[no-any-return]


@outside_graphs
def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `allgather`. Collective. Returns a handle for `poll` and `synchronize`, which gives the result."""
    return collectives.allgather_async(dense(tensor), name, process_set)


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """As `allgather`, for a list of tensors that is negotiated as one unit. Collective. Differentiable: the gradients
    are as those of `allgather`. Returns the list of results."""
    tensors = list(tensors)
    if not tensors or not needs_operator(tensors):
        return collectives.grouped_allgather([dense(tensor) for tensor in tensors], name, process_set)
    members = member_count(process_set)
    rows = [promised_rows(tensor.shape[0], members) if tensor.dim() else -1 for tensor in tensors]
    return list(torch.ops.horovod.grouped_allgather(tensors, name, number_of(process_set), rows))


@outside_graphs
def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `grouped_allgather`. Collective. Returns a handle; `synchronize` gives the list."""
    return collectives.grouped_allgather_async([dense(tensor) for tensor in tensors], name, process_set)


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Copies the root's tensor to all ranks, into a new one. Collective. Differentiable: the gradient is the average of
    the incoming gradients on the root, zeros elsewhere.

    Args:
        tensor: shape and dtype equal on all ranks; the values matter on the root only.
        root_rank: a global rank, also for a process set.
        name: identity of the operation, equal on all ranks; None: the operations are counted.
        process_set: the ranks that take part.

    Returns:
        A tensor with the root's values.

    Raises:
        ValueError: a bad argument on this rank; the other ranks get a MismatchError.
        MismatchError: the ranks disagree about dtype, shape or root.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    if not needs_operator((tensor,)):
        return collectives.broadcast(dense(tensor), root_rank, name, process_set)  # type: ignore[no-any-return]
    return torch.ops.horovod.broadcast(tensor, root_rank, name, number_of(process_set))  # type: ignore[no-any-return]


@outside_graphs
def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `broadcast`. Collective. Returns a handle for `poll` and `synchronize`, which gives the result."""
    return collectives.broadcast_async(dense(tensor), root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """As `broadcast`, in place. Collective. The tensor must be contiguous; no gradient. Returns the tensor given."""
    if is_compiling():
        torch.ops.horovod.broadcast_(tensor, root_rank, name, number_of(process_set))
        return tensor
    # As in `allreduce_`.
    if not _lane_in_place(("broadcast", (root_rank, name, process_set)), tensor):
        collectives.broadcast_(tensor, root_rank, name, process_set)
    increment_versions((tensor,))
    return tensor


@outside_graphs
def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `broadcast_`. Collective. Returns a handle."""
    handle = collectives.broadcast_async_(tensor, root_rank, name, process_set)
    increment_versions((tensor,))
    return handle


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Sends rows of the first dimension to each rank and receives theirs, in the order of the ranks. Collective.
    Differentiable: the gradient is the alltoall that sends the incoming gradient back where the rows came from.

    Args:
        tensor: of at least one dimension; all but the first, and the dtype, equal on all ranks.
        splits: rows for each rank: a list or a tensor of integers, one per rank, together at most the rows of
            `tensor`; None: equal parts.
        name: identity of the operation, equal on all ranks; None: the operations are counted.
        process_set: the ranks that take part.

    Returns:
        The received rows; with `splits` a pair of them and of the number of rows from each rank (int32).

    Raises:
        ValueError: a bad argument on this rank; the other ranks get a MismatchError.
        MismatchError: the ranks disagree about dtype or dimensions.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
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
def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `alltoall`. Collective. Returns a handle; `synchronize` gives the pair of rows and received splits."""
    return collectives.alltoall_async(dense(tensor), splits, name, process_set)
