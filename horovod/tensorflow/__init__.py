"""Horovod for TensorFlow: `import horovod.tensorflow as hvd`.

Collectives as TensorFlow operators (eager, `tf.function`, graphs of TensorFlow 1), `DistributedGradientTape`,
`DistributedOptimizer`, broadcasts of variables and objects, `SyncBatchNormalization`, elastic training and the tf.data
service. A core library that cannot be loaded is a warning here and an error in `hvd.init()`.
"""

from __future__ import annotations

import warnings as _warnings

from horovod._core.context import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
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
from horovod._core.engine_start import library_problem as _library_problem
from horovod._core.errors import HorovodInternalError
from horovod._core.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod._core.reduce_ops import Adasum, Average, Max, Min, Product, Sum
from horovod.tensorflow import aggregation as _aggregation
from horovod.tensorflow import elastic
from horovod.tensorflow import functions as _functions
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.ops import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    reducescatter,
    size_op,
)
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow.util import (
    _executing_eagerly,
    check_num_rank_power_of_2,
    gpu_available,
    handle_average_backwards_compatibility,
    refs_to_vars,
    vars_to_refs,
)

__all__ = [
    "Adasum", "Average", "Compression", "DistributedGradientTape", "DistributedOptimizer", "HorovodInternalError",
    "LocalGradientAggregationHelper", "LocalGradientAggregationHelperEager", "Max", "Min",
    "PartialDistributedGradientTape", "ProcessSet", "Product", "Sum", "SyncBatchNormalization", "_executing_eagerly",
    "add_process_set", "allgather", "allgather_object", "allreduce", "alltoall", "broadcast", "broadcast_",
    "broadcast_global_variables", "broadcast_object", "broadcast_object_fn", "broadcast_variables", "ccl_built",
    "check_num_rank_power_of_2", "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic",
    "global_process_set", "gloo_built", "gloo_enabled", "gpu_available", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "handle_average_backwards_compatibility", "init", "is_homogeneous", "is_initialized",
    "join", "local_rank", "local_rank_op", "local_size", "local_size_op", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "process_set_included_op", "rank", "rank_op", "reducescatter",
    "refs_to_vars", "remove_process_set", "rocm_built", "shutdown", "size", "size_op", "start_timeline",
    "stop_timeline", "vars_to_refs",
]  # fmt: skip

LocalGradientAggregationHelper = _aggregation.LocalGradientAggregationHelper
LocalGradientAggregationHelperEager = _aggregation.LocalGradientAggregationHelperEager
if hasattr(_functions, "BroadcastGlobalVariablesHook"):
    BroadcastGlobalVariablesHook = _functions.BroadcastGlobalVariablesHook
    __all__ += ["BroadcastGlobalVariablesHook"]

_problem = _library_problem()
if _problem is not None:
    _warnings.warn(
        f"horovod.tensorflow cannot run collectives in this process. {_problem}", RuntimeWarning, stacklevel=2
    )
else:
    from horovod.tensorflow import registered_gradients as _registered_gradients  # noqa: F401
del _problem
