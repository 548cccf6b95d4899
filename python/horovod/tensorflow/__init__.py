"""Horovod for TensorFlow: `import horovod.tensorflow as hvd`.

Collectives as TensorFlow operators (eager, `tf.function`, graphs of TensorFlow 1), `DistributedGradientTape`,
`DistributedOptimizer`, broadcasts of variables and objects, `SyncBatchNormalization`, elastic training and the tf.data
service. A core library that cannot be loaded is a warning here and an error in `hvd.init()`.
"""

from __future__ import annotations

import warnings as _warnings
from typing import TYPE_CHECKING as _TYPE_CHECKING

import horovod.tensorflow.installed as _installed  # noqa: F401 - first: what follows needs the framework
from horovod._core import public as _public
from horovod._core.absent import public_module as _public_module
from horovod._core.life.engine_start import library_problem as _library_problem
from horovod._core.public import *  # noqa: F403
from horovod.tensorflow import elastic, gradient_aggregation, gradient_aggregation_eager, mpi_ops  # noqa: F401
from horovod.tensorflow import functions as _functions
from horovod.tensorflow.collectives import ops as _ops
from horovod.tensorflow.collectives.ops import *  # noqa: F403
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradients.aggregation import LocalGradientAggregationHelper, LocalGradientAggregationHelperEager
from horovod.tensorflow.gradients.reducer import _make_allreduce_grads_fn
from horovod.tensorflow.gradients.tape import (
    DistributedGradientTape,
    PartialDistributedGradientTape,
    _DistributedGradientTape,
)
from horovod.tensorflow.optimizer import (
    DistributedOptimizer,
    _DistributedAdasumOptimizer,
    _DistributedOptimizer,
    _LegacyOptimizer,
)
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization
from horovod.tensorflow.util import (
    _executing_eagerly,
    check_num_rank_power_of_2,
    gpu_available,
    handle_average_backwards_compatibility,
    refs_to_vars,
    vars_to_refs,
)

__all__ = [
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "LocalGradientAggregationHelper",
    "LocalGradientAggregationHelperEager",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "_DistributedAdasumOptimizer",
    "_DistributedGradientTape",
    "_DistributedOptimizer",
    "_LegacyOptimizer",
    "_executing_eagerly",
    "_make_allreduce_grads_fn",
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_num_rank_power_of_2",
    "elastic",
    "gpu_available",
    "handle_average_backwards_compatibility",
    "refs_to_vars",
    "vars_to_refs",
]
__all__ += _public.__all__
__all__ += _ops.__all__

if hasattr(_functions, "BroadcastGlobalVariablesHook"):
    BroadcastGlobalVariablesHook = _functions.BroadcastGlobalVariablesHook
    __all__ += ["BroadcastGlobalVariablesHook"]

_problem = _library_problem()
if _problem is not None:
    _warnings.warn(
        f"horovod.tensorflow cannot run collectives in this process. {_problem}", RuntimeWarning, stacklevel=2
    )
else:
    from horovod.tensorflow.collectives import autograd as _autograd  # noqa: F401
del _problem

if not _TYPE_CHECKING:  # a checker would take every name for one of the module's
    __getattr__, __dir__ = _public_module(__name__, __all__)
