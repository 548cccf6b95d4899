"""Send and recv of torch tensors, as users call them; see `ops`, which exports them too."""

from __future__ import annotations

from typing import Optional

import torch

from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod.torch.collectives.dispatch import dense
from horovod.torch.collectives.operators import collectives
from horovod.torch.graphs import outside_graphs
from horovod.torch.versions import increment_versions

__all__ = ["recv", "recv_async", "send", "send_async"]


@outside_graphs
def send(
    tensor: torch.Tensor, to_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> None:
    """Sends a tensor to another rank of the process set, which calls `recv`. Returns when the tensor may be changed.
    Not collective, not differentiable.

    A tensor of at most 64 KB is copied and the call returns at once, unless 16 MB of such copies wait to be received;
    then, and for a larger tensor, it waits for the `recv`. So two ranks that both send first get past it with small
    tensors only. What a rank sends to itself is always copied. A tensor on a GPU goes through main memory.

    Args:
        tensor: of any strides; dtype and shape equal to those of the tensor that receives it.
        to_rank: who receives it: a rank of the process set, from 0. The n-th send to it meets its n-th `recv` from
            here.
        name: for messages.
        process_set: of both.

    Raises:
        ValueError: a bad argument on this rank.
        MismatchError: the other rank receives another dtype or shape. Or an earlier send to that rank, which had
            already returned, has failed like that; then nothing is sent, and the `recv` in its turn fails
            too.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    collectives.send(dense(tensor), to_rank, name, process_set)


@outside_graphs
def send_async(
    tensor: torch.Tensor, to_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `send`; nothing is copied. Returns a handle; `synchronize` waits until the tensor has been received, and
    gives it."""
    return collectives.send_async(dense(tensor), to_rank, name, process_set)


@outside_graphs
def recv(
    tensor: torch.Tensor, from_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Receives what another rank of the process set sends with `send`, into a tensor. Not collective, no gradient.

    Args:
        tensor: contiguous; dtype and shape equal to those of the tensor that is sent. On a GPU it is filled through
            main memory.
        from_rank: who sends it: a rank of the process set, from 0.
        name: for messages.
        process_set: of both.

    Returns:
        The tensor given.

    Raises:
        ValueError: a bad argument on this rank, or this rank waits for itself.
        MismatchError: the other rank sends another dtype or shape.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    collectives.recv(tensor, from_rank, name, process_set)
    increment_versions((tensor,))
    return tensor


@outside_graphs
def recv_async(
    tensor: torch.Tensor, from_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `recv`. The tensor must not be touched before the end. Returns a handle; `synchronize` gives the
    tensor."""
    handle = collectives.recv_async(tensor, from_rank, name, process_set)
    increment_versions((tensor,))
    return handle
