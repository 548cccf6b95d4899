"""Import path kept for users' scripts (`hvd.mpi_ops`): re-exports, and private names that scripts use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Optional

import torch

from horovod._core import public as _public
from horovod._core.absent import absent_names as _absent_names
from horovod._core.compat.basics import basics as _basics
from horovod._core.compat.legacy import gpu_available, num_rank_is_power_2
from horovod._core.life.handles import open_handles as _handle_map
from horovod._core.operations.reduce_ops import resolve as _resolve
from horovod._core.public import *  # noqa: F403
from horovod.torch.collectives import autograd_functions as _autograd_functions
from horovod.torch.collectives import ops as _ops
from horovod.torch.collectives.autograd_functions import *  # noqa: F403
from horovod.torch.collectives.ops import *  # noqa: F403
from horovod.torch.compression import Compression

__all__ = [
    "Compression",
    "_basics",
    "_handle_map",
    "gpu_available",
    "handle_average_backwards_compatibility",
    "num_rank_is_power_2",
]
__all__ += _public.__all__
__all__ += _ops.__all__
__all__ += _autograd_functions.__all__


def handle_average_backwards_compatibility(op: Optional[int], average: Optional[bool]) -> int:
    """The operation meant by `op` and the deprecated `average`."""
    return _resolve(op, average)


def _allreduce_async(
    tensor: torch.Tensor, output: torch.Tensor, name: Any = None, op: Any = None, *factors_and_set: Any
) -> int:
    """Starts an allreduce of `tensor` into `output`. Collective."""
    return _ops.allreduce_async_(_copied(tensor, output), None, name, op, *factors_and_set)


def _grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    name: Any = None,
    op: Any = None,
    *factors_and_set: Any,
) -> int:
    """As `_allreduce_async`, for a group. Collective."""
    handle: int = _ops.grouped_allreduce_async_(list(map(_copied, tensors, outputs)), None, name, op, *factors_and_set)
    return handle


def _broadcast_async(tensor: torch.Tensor, output: torch.Tensor, root_rank: int, *name_and_set: Any) -> int:
    """Starts a broadcast of `tensor` into `output`. Collective."""
    handle: int = _ops.broadcast_async_(_copied(tensor, output), root_rank, *name_and_set)
    return handle


def _copied(tensor: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return output if output is tensor else output.detach().copy_(tensor.detach())


_OUTPUTS: Final = "hvd.{}, which allocates its output: hvd.synchronize(handle) returns it"
__getattr__ = _absent_names(
    __name__,
    {
        f"_{name}": _OUTPUTS.format(name)
        for name in (
            "allgather_async",
            "grouped_allgather_async",
            "alltoall_async",
            "reducescatter_async",
            "grouped_reducescatter_async",
        )
    },
)
