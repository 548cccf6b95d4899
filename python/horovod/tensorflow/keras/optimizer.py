"""`DistributedOptimizer` with the arguments that `horovod.tensorflow.keras` has."""

from __future__ import annotations

from typing import Any, Optional, TypeVar

from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average
from horovod._core.tensors.compression import Compressor
from horovod._core.training.groups import chosen_groups
from horovod.keras.compression import Compression
from horovod.keras.optimizer import PartialDistributedOptimizer

__all__ = ["DistributedOptimizer"]


# The user's own class, for editors and type checkers.
OptimizerT = TypeVar("OptimizerT")


def DistributedOptimizer(  # noqa: N802 - a class to its users
    optimizer: OptimizerT,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> OptimizerT:
    """An optimizer that applies the gradients of all ranks. Local; applying is collective.

    Args:
        optimizer: of `tf.keras.optimizers`; its state is taken over.
        name: begins the operations' names; None: "Distributed" and the class's name.
        device_dense, device_sparse: devices of the operators; "" = TensorFlow's choice.
        compression: hvd.Compression.none, fp16 or bf16.
        sparse_as_dense: make IndexedSlices dense first.
        gradient_predivide_factor: f splits the averaging: 1/f before the sum, f/size after it.
        op: hvd.Average or hvd.Sum.
        backward_passes_per_step: gradients are added up locally this many times before they are reduced and applied;
            `iterations` counts the former.
        average_aggregated_gradients: divide these sums by the number of passes.
        num_groups: deprecated; use `groups`.
        groups: the number of groups, or lists of variables, each a group.
        process_set: the ranks that take part; the others apply their own gradients.
        scale_local_gradients: divide the gradients of local variables by the number of ranks.

    Returns:
        An instance of a class that has the name of, and is derived from, the class of `optimizer`;
        `register_local_var(var)` leaves a variable's gradient alone.

    Raises:
        ValueError: another op, a predivide factor with op=hvd.Sum, no grouping, no positive number of passes, no Keras
            optimizer, or one that is distributed already.
        NotInitializedError: `init` has not been called.
    """
    distributed: OptimizerT = PartialDistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
        backward_passes_per_step, average_aggregated_gradients, chosen_groups(groups, num_groups), process_set,
        scale_local_gradients=scale_local_gradients,
    )  # fmt: skip
    return distributed
