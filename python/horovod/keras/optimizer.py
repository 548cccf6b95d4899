"""`DistributedOptimizer` and `PartialDistributedOptimizer`: a Keras optimizer of the user's own class that applies the
gradients of all ranks.

The optimizer made is an instance of a generated subclass (`distributed_class`), and it takes over what the user's one
holds: variables, iterations, learning rate. Its methods are in `keras_2` and `keras_3`; how gradients are reduced is in
`reducer`.
"""

from __future__ import annotations

from typing import Any, Optional, TypeVar

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import session
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average
from horovod._core.tensors.compression import Compressor
from horovod._core.training.groups import chosen_groups
from horovod._core.training.reduction_options import ReductionOptions
from horovod.keras import plain_copies
from horovod.keras.backends import make_reducer
from horovod.keras.compression import Compression
from horovod.keras.distributed_class import distributed_class
from horovod.keras.flavour import flavour
from horovod.keras.reducer import Reducer, ReductionSettings

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer", "is_distributed", "wrap"]


def _refuse_no_object(optimizer: Any) -> None:
    """A class and a name, which Keras itself takes in places, are common mistakes."""
    if isinstance(optimizer, type):
        remedy = f"the class {optimizer.__name__}; make an instance: {optimizer.__name__}(0.01)."
    elif isinstance(optimizer, str):
        remedy = f"{optimizer!r}; use keras.optimizers.get({optimizer!r})."
    else:
        return
    raise InvalidArgumentError(f"DistributedOptimizer wraps an optimizer of Keras. Received {remedy}")


def wrap(optimizer: Any, settings: ReductionSettings, local_layers: Any = None) -> Any:
    """A distributed optimizer that takes over the state of a plain one.

    Args:
        optimizer: of Keras.
        settings: how gradients are reduced; an empty scope becomes "Distributed" and the class's name.
        local_layers: layers whose gradients are not reduced.

    Raises:
        InvalidArgumentError: no Keras optimizer, one that is distributed already, no layers, or an op other than
            Average and Sum.
        NotInitializedError: `init` has not been called.
    """
    session.require()  # raises if not initialised
    _refuse_no_object(optimizer)
    kind = type(optimizer)
    reason = flavour.why_not(optimizer)
    if reason is not None:
        raise InvalidArgumentError(f"DistributedOptimizer cannot wrap {kind.__module__}.{kind.__qualname__}: {reason}.")
    if is_distributed(optimizer):
        raise InvalidArgumentError(
            "This optimizer is a DistributedOptimizer already; its gradients would be reduced twice. Wrap the plain "
            "one."
        )
    if not settings.options.row.linear:
        raise InvalidArgumentError(
            f"Optimizers of Keras support op=hvd.Average and hvd.Sum only. Received: {settings.options.op!s}."
        )
    reduction = make_reducer(settings)
    reduction.register_local_layers(local_layers)
    return _made(optimizer, reduction)


def _made(optimizer: Any, reduction: Reducer) -> Any:
    kind = type(optimizer)
    plain_copies.forget(optimizer)
    made = distributed_class(kind, flavour.methods_of(kind), lambda plain: _made(plain, reduction.fresh()))
    distributed = made.__new__(made)
    distributed.__dict__.update(optimizer.__dict__, _hvd_reduction=reduction, _hvd_reduced=False)
    reduction.adopt(distributed)
    return distributed


def is_distributed(optimizer: Any) -> bool:
    """True for what this module makes."""
    return isinstance(optimizer, flavour.DistributedMethods)


def _scope_of(name: Optional[str], optimizer: Any) -> str:
    """What the names of a distributed optimizer's operations begin with."""
    return name or f"Distributed{type(optimizer).__name__}"


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
    num_groups: int = 0,
    groups: Any = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
) -> OptimizerT:
    """An optimizer that applies the gradients of all ranks. Local; applying is collective.

    Args:
        optimizer: of `keras.optimizers`; its state is taken over.
        name: begins the operations' names; None: "Distributed" and the class's name.
        device_dense, device_sparse: devices of TensorFlow's operators; "" = TensorFlow's choice. Other backends have
            none.
        compression: hvd.Compression.none, fp16 or bf16.
        sparse_as_dense: make TensorFlow's IndexedSlices dense first. Other backends have dense gradients only.
        gradient_predivide_factor: f splits the averaging: 1/f before the sum, f/size after it.
        op: hvd.Average or hvd.Sum.
        num_groups: deprecated; use `groups`.
        groups: the number of groups, or lists of variables, each a group.
        backward_passes_per_step: gradients are added up locally this many times before they are reduced and applied;
            not with JAX.
        average_aggregated_gradients: divide these sums by the number of passes.

    Returns:
        An instance of a class that has the name of, and is derived from, the class of `optimizer`, in the module
        horovod._keras; `register_local_var(var)` leaves a variable's gradient alone.

    Raises:
        ValueError: another op, a predivide factor with op=hvd.Sum, no grouping, no Keras optimizer, one that is
            distributed already, a device without TensorFlow, no positive number of passes, or several with JAX.
        NotInitializedError: `init` has not been called.
    """
    distributed: OptimizerT = PartialDistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
        backward_passes_per_step, average_aggregated_gradients, chosen_groups(groups, num_groups),
    )  # fmt: skip
    return distributed


def PartialDistributedOptimizer(  # noqa: N802 - a class to its users
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As `DistributedOptimizer`, leaving alone the gradients of local layers, which differ between the ranks.

    Args:
        process_set: the ranks that take part; the others apply their own gradients.
        local_layers: a Keras layer, or a list of them. They may be built later.
        scale_local_gradients: divide the gradients of local layers and variables by the number of ranks.

    Raises:
        ValueError: as of `DistributedOptimizer`; or something that is not a layer.
    """
    options = ReductionOptions(op, compression, gradient_predivide_factor, backward_passes_per_step, process_set)
    settings = ReductionSettings(
        _scope_of(name, optimizer), options, (device_dense, device_sparse), sparse_as_dense, chosen_groups(groups),
        average_aggregated_gradients, scale_local_gradients,
    )  # fmt: skip
    return wrap(optimizer, settings, local_layers)


plain_copies.watch()
