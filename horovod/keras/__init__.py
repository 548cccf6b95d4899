"""Horovod for Keras: `import horovod.keras as hvd`. Keras 3 with the TensorFlow, PyTorch and JAX backends, and Keras 2.

`DistributedOptimizer`, callbacks for `model.fit`, `load_model`, collectives on values, elastic training. Only the
framework that Keras runs on is imported. `horovod.tensorflow.keras` is the same, bound to TensorFlow.
"""

from __future__ import annotations

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
from horovod._core.process_sets import global_process_set
from horovod._core.reduce_ops import Adasum, Average, Sum
from horovod.keras import callbacks, elastic
from horovod.keras.compression import Compression
from horovod.keras.model_files import load_model
from horovod.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from horovod.keras.values import allgather, allreduce, broadcast, broadcast_global_variables, reducescatter

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "PartialDistributedOptimizer", "Sum", "allgather",
    "allreduce", "broadcast", "broadcast_global_variables", "callbacks", "ccl_built", "cross_rank", "cross_size",
    "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_initialized",
    "load_model", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank",
    "reducescatter", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip
