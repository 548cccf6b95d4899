"""Horovod for PyTorch: `import horovod.torch as hvd`.

Collectives on torch tensors, `DistributedOptimizer`, broadcasts of parameters and optimizer state, `SyncBatchNorm` and
elastic training. A core library that cannot be loaded is a warning here and an error in `hvd.init()`, so that a machine
that only launches jobs can import scripts.
"""

from __future__ import annotations

import warnings as _warnings
from typing import TYPE_CHECKING as _TYPE_CHECKING

import horovod.torch.installed as _installed  # noqa: F401 - first: what follows needs the framework
from horovod._core import public as _public
from horovod._core.absent import public_module as _public_module
from horovod._core.life.engine_start import library_problem as _library_problem
from horovod._core.public import *  # noqa: F403
from horovod.torch import elastic, mpi_ops
from horovod.torch.collectives import ops as _ops
from horovod.torch.collectives.ops import *  # noqa: F403
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.gradients.parameter_check import watch_plain_optimizers as _watch_plain_optimizers
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.optimizers.plain_steps import watch as _watch_plain_steps
from horovod.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "mpi_ops",
]
__all__ += _public.__all__
__all__ += _ops.__all__

_problem = _library_problem()
if _problem is not None:
    _warnings.warn(f"horovod.torch cannot run collectives in this process. {_problem}", RuntimeWarning, stacklevel=2)
del _problem
_watch_plain_optimizers()
_watch_plain_steps()

if not _TYPE_CHECKING:  # a checker would take every name for one of the module's
    __getattr__, __dir__ = _public_module(__name__, __all__)
