"""Horovod for Apache MXNet 1.9: `import horovod.mxnet as hvd`.

Reductions and broadcasts are operations of MXNet's engine, so that gradients are reduced while the backward pass still
computes others. See docs/mxnet.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

import horovod.mxnet.installed as _installed  # noqa: F401 - first: what follows needs the framework
from horovod._core import public as _public
from horovod._core.absent import public_module as _public_module
from horovod._core.public import *  # noqa: F403
from horovod.mxnet import ops as _ops
from horovod.mxnet.compression import Compression
from horovod.mxnet.functions import allgather_object, broadcast_object, broadcast_parameters
from horovod.mxnet.ops import *  # noqa: F403
from horovod.mxnet.optimizer import DistributedOptimizer, DistributedTrainer

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
]
__all__ += _public.__all__
__all__ += _ops.__all__

if not _TYPE_CHECKING:  # a checker would take every name for one of the module's
    __getattr__, __dir__ = _public_module(__name__, __all__)
