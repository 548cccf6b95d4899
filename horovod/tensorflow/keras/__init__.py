"""Horovod for Keras on TensorFlow: `import horovod.tensorflow.keras as hvd`.

`horovod.keras` bound to the TensorFlow backend, with the arguments and names that this module has always had.
"""

from __future__ import annotations

from horovod.keras.installed import keras as _keras

if _keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"horovod.tensorflow.keras needs Keras' TensorFlow backend; Keras runs on {_keras.backend.backend()}. Remedy: "
        "import horovod.keras, which works with every backend, or set KERAS_BACKEND=tensorflow before importing keras."
    )

from horovod._core.context import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod._core.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod._core.reduce_ops import Average, Sum
from horovod.keras.compression import Compression
from horovod.keras.model_files import load_model
from horovod.keras.values import allgather, allreduce, broadcast, broadcast_global_variables, reducescatter
from horovod.tensorflow.keras import callbacks, elastic
from horovod.tensorflow.keras.optimizer import DistributedOptimizer

__all__ = [
    "Average", "Compression", "DistributedOptimizer", "ProcessSet", "Sum", "add_process_set", "allgather", "allreduce",
    "broadcast", "broadcast_global_variables", "callbacks", "ccl_built", "cross_rank", "cross_size", "cuda_built",
    "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_initialized", "load_model",
    "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank",
    "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip
