"""The operations on NumPy arrays: the core's collectives with the NumPy adapter."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from horovod._core.operations.collectives import Collectives
from horovod.numpy.adapter import adapter

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
    "synchronize",
]


class _Collectives(Collectives):
    """Out-of-place operations take arrays of any strides, NumPy's scalars and Python's numbers."""

    def _taken(self, value: Any) -> Any:
        if isinstance(value, (np.generic, int, float)):
            return np.asarray(value)
        return adapter.contiguous(value) if isinstance(value, np.ndarray) else value


collectives: Final = _Collectives(adapter)

allreduce = collectives.allreduce
allreduce_ = collectives.allreduce_
allreduce_async = collectives.allreduce_async
allreduce_async_ = collectives.allreduce_async_
grouped_allreduce = collectives.grouped_allreduce
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async = collectives.grouped_allreduce_async
grouped_allreduce_async_ = collectives.grouped_allreduce_async_
allgather = collectives.allgather
allgather_async = collectives.allgather_async
grouped_allgather = collectives.grouped_allgather
grouped_allgather_async = collectives.grouped_allgather_async
broadcast = collectives.broadcast
broadcast_ = collectives.broadcast_
broadcast_async = collectives.broadcast_async
broadcast_async_ = collectives.broadcast_async_
alltoall = collectives.alltoall
alltoall_async = collectives.alltoall_async
reducescatter = collectives.reducescatter
reducescatter_async = collectives.reducescatter_async
grouped_reducescatter = collectives.grouped_reducescatter
grouped_reducescatter_async = collectives.grouped_reducescatter_async
send = collectives.send
send_async = collectives.send_async
recv = collectives.recv
recv_async = collectives.recv_async
barrier = collectives.barrier
join = collectives.join
poll = collectives.poll
synchronize = collectives.synchronize
