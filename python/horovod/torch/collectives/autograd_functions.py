"""The collectives by the names of upstream's autograd functions: `HorovodAllreduce.apply(...)` and so on.

Programs that were written for upstream call these, all arguments by position; new ones call `horovod.torch.allreduce`,
which does the same. Offered by `mpi_ops`.
"""

from __future__ import annotations

from typing import Any

import torch

from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average
from horovod._core.tensors.compression import NoneCompressor
from horovod.torch.collectives import ops

__all__ = [
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce",
    "HorovodGroupedReducescatter",
    "HorovodReducescatter",
]


class HorovodAllreduce:
    """See `horovod.torch.allreduce`."""

    @staticmethod
    def apply(tensor: torch.Tensor, average: Any, name: Any, op: Any, *factors_and_set: Any) -> torch.Tensor:
        """As `allreduce` without `compression`. Collective."""
        return ops.allreduce(tensor, average, name, NoneCompressor, op, *factors_and_set)


class HorovodGroupedAllreduce:
    """See `horovod.torch.grouped_allreduce`."""

    @staticmethod
    def apply(
        average: Any, name: Any, op: Any, pre: float, post: float, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """As `grouped_allreduce`, the tensors last. Collective."""
        return tuple(ops.grouped_allreduce(tensors, average, name, NoneCompressor, op, pre, post, process_set))


class HorovodAllgather:
    """See `horovod.torch.allgather`."""

    apply = staticmethod(ops.allgather)


class HorovodGroupedAllgather:
    """See `horovod.torch.grouped_allgather`."""

    @staticmethod
    def apply(name: Any, process_set: ProcessSet, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """As `grouped_allgather`, the tensors last. Collective."""
        return tuple(ops.grouped_allgather(tensors, name, process_set))


class HorovodBroadcast:
    """See `horovod.torch.broadcast`."""

    apply = staticmethod(ops.broadcast)


class HorovodAlltoall:
    """See `horovod.torch.alltoall`."""

    apply = staticmethod(ops.alltoall)


class HorovodReducescatter:
    """See `horovod.torch.reducescatter`."""

    @staticmethod
    def apply(
        tensor: torch.Tensor,
        name: Any = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        pre: float = 1.0,
        post: float = 1.0,
    ) -> torch.Tensor:
        """As `reducescatter` without `compression`. Collective."""
        return ops.reducescatter(tensor, name, NoneCompressor, op, process_set, pre, post)


class HorovodGroupedReducescatter:
    """See `horovod.torch.grouped_reducescatter`."""

    @staticmethod
    def apply(
        name: Any, op: int, process_set: ProcessSet, pre: float, post: float, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """As `grouped_reducescatter`, the tensors last. Collective."""
        return tuple(ops.grouped_reducescatter(tensors, name, NoneCompressor, op, process_set, pre, post))
