"""The core's operators inside TensorFlow: loads them once and says what TensorFlow must know about them.

Used by `ops`. The kernels are in the core (src/frameworks/tensorflow); `libhorovod_tensorflow.so` beside it is what
`tf.load_op_library` can load.
"""

from __future__ import annotations

from typing import Any, Final, Optional

import tensorflow as tf

from horovod._core.life import engine_start

__all__ = ["OPERATORS", "loaded"]

OPERATORS: Final = (
    "HorovodAllreduce", "HorovodReducescatter", "HorovodAllgather", "HorovodBroadcast", "HorovodAlltoall",
    "HorovodJoin",
)  # fmt: skip

_loaded: Optional[Any] = None


def loaded() -> Any:
    """The module of generated functions (`horovod_allreduce(...)`, ...).

    Raises:
        ImportError: the core or the shim cannot be loaded, or this TensorFlow is too old; the message says which.
    """
    global _loaded
    if _loaded is None:
        path = engine_start.tensorflow_library()
        try:
            module = tf.load_op_library(path)
        except (tf.errors.OpError, RuntimeError) as cause:
            raise ImportError(
                f"Horovod's operators for TensorFlow cannot be loaded from {path}: {cause}. Remedy: reinstall horovod."
            ) from cause
        problem = engine_start.tensorflow_problem()
        if problem:
            raise ImportError(f"Horovod's operators cannot be added to TensorFlow {tf.__version__}: {problem}.")
        _run_side_by_side()
        _loaded = module
    return _loaded


def _run_side_by_side() -> None:
    """Independent collectives of one function may run at the same time and in any order: the engine finds the order
    that all ranks share. TensorFlow orders stateful operators one after the other unless they are in this list; a
    version that has no such list runs them in order, which is slower and correct as long as all ranks trace alike."""
    try:
        from tensorflow.python.framework import auto_control_deps
    except ImportError:
        return
    names = getattr(auto_control_deps, "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS", None)
    if isinstance(names, frozenset):
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = names | set(OPERATORS)
    elif names is not None:
        names.update(OPERATORS)
