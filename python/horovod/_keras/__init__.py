"""Import path of existing scripts: `horovod._keras`, of what the Keras modules have in common.

What is here takes the Keras module or backend first, as it always has; a process has one Keras, so it is not needed.
"""

from __future__ import annotations

from typing import Any

from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.tensors.compression import Compressor
from horovod.keras.optimizer import PartialDistributedOptimizer

__all__ = ["CallableList", "create_distributed_optimizer"]


class CallableList(list[Any]):
    """A list that returns itself when it is called: `optimizer.variables` and `optimizer.variables()` alike."""

    def __call__(self) -> CallableList:
        return self


def create_distributed_optimizer(
    keras: Any,
    optimizer: Any,
    name: Any,
    device_dense: str,
    device_sparse: str,
    compression: Compressor,
    sparse_as_dense: bool,
    gradient_predivide_factor: float,
    op: int,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """`horovod.tensorflow.keras.DistributedOptimizer`, with every backend. Local; applying is collective.

    Args:
        keras: the Keras module.
        optimizer, ...: as of `DistributedOptimizer`.

    Raises:
        ValueError: as of `DistributedOptimizer`.
    """
    return PartialDistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
        backward_passes_per_step, average_aggregated_gradients, groups, process_set,
        scale_local_gradients=scale_local_gradients,
    )  # fmt: skip


def taking_a_backend(kind: Any, module: str) -> Any:
    """The callback `kind` for a module of this package: with Keras' backend as the first argument, which is not
    needed."""

    def __init__(self: Any, backend: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - becomes the class's
        kind.__init__(self, *args, **kwargs)

    members = {"__init__": __init__, "__module__": module, "__doc__": f"See `{kind.__module__}`."}
    return type(f"{kind.__name__}Impl", (kind,), members)
