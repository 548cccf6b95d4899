"""Horovod for JAX: `import horovod.jax as hvd`.

Pure functions on pytrees, outside of compiled functions and inside: `jit`, `grad`, `vmap`, `scan`, `cond`, `remat`.
Keras on JAX (`horovod.keras`) reduces its gradients through the same custom call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

import horovod.jax.installed as _installed  # noqa: F401 - first: what follows needs the framework
from horovod._core import public as _public
from horovod._core.absent import public_module as _public_module
from horovod._core.public import *  # noqa: F403
from horovod.jax import elastic
from horovod.jax.batch_statistics import batch_moments, batch_stats_mean
from horovod.jax.compression import Compression
from horovod.jax.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    metric_average,
)
from horovod.jax.gradients import grad, value_and_grad
from horovod.jax.ops import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allreduce,
    join,
    recv,
    reducescatter,
    send,
)
from horovod.jax.optimizer import DistributedGradientTransformation, DistributedOptimizer, allreduce_gradients

__all__ = [
    "Compression",
    "DistributedGradientTransformation",
    "DistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_gradients",
    "alltoall",
    "barrier",
    "batch_moments",
    "batch_stats_mean",
    "broadcast",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "grad",
    "grouped_allreduce",
    "join",
    "metric_average",
    "recv",
    "reducescatter",
    "send",
    "value_and_grad",
]
__all__ += _public.__all__

if not _TYPE_CHECKING:  # a checker would take every name for one of the module's
    __getattr__, __dir__ = _public_module(__name__, __all__)
