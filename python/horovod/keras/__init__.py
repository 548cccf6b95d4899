"""Horovod for Keras: `import horovod.keras as hvd`. Keras 3 with the TensorFlow, PyTorch and JAX backends, and Keras 2.

`DistributedOptimizer`, callbacks for `model.fit`, `load_model`, collectives on values, elastic training. Only the
framework that Keras runs on is imported. `horovod.tensorflow.keras` is the same, bound to TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

import horovod.keras.installed as _installed  # noqa: F401 - first: what follows needs the framework
from horovod._core import public as _public
from horovod._core.absent import public_module as _public_module
from horovod._core.public import *  # noqa: F403
from horovod.keras import callbacks, elastic
from horovod.keras.compression import Compression
from horovod.keras.model_files import load_model
from horovod.keras.ops import allgather, allreduce, broadcast, broadcast_global_variables, reducescatter
from horovod.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
__all__ += _public.__all__

if not _TYPE_CHECKING:  # a checker would take every name for one of the module's
    __getattr__, __dir__ = _public_module(__name__, __all__)
