"""Horovod for Keras on TensorFlow: `import horovod.tensorflow.keras as hvd`.

`horovod.keras` bound to the TensorFlow backend, with the arguments and names that this module has always had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from horovod._core import public as _public
from horovod._core.absent import public_module as _public_module
from horovod._core.public import *  # noqa: F403
from horovod.keras.installed import keras as _keras

if _keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"horovod.tensorflow.keras needs Keras' TensorFlow backend; Keras runs on {_keras.backend.backend()}. Remedy: "
        "import horovod.keras, which works with every backend, or set KERAS_BACKEND=tensorflow before importing keras."
    )

from horovod.keras.compression import Compression
from horovod.keras.model_files import load_model
from horovod.keras.ops import allgather, allreduce, broadcast, broadcast_global_variables, reducescatter
from horovod.keras.optimizer import PartialDistributedOptimizer
from horovod.tensorflow.keras import callbacks, elastic
from horovod.tensorflow.keras.optimizer import DistributedOptimizer

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
