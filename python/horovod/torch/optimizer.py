"""`DistributedOptimizer`: an optimizer of the user's own class that steps with gradients combined over the ranks.

Used by training scripts around any `torch.optim.Optimizer`. What it does otherwise than the user's class is in
`distributed_methods` and, for `op=hvd.Adasum`, in `adasum_optimizer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

import torch

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import session
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average
from horovod._core.tensors.compression import Compressor, NoneCompressor
from horovod._core.training.groups import chosen_groups
from horovod._core.training.reducer import ReductionOptions
from horovod.torch.adasum_optimizer import AdasumMethods
from horovod.torch.dispatch import number_of
from horovod.torch.distributed_methods import DistributedMethods
from horovod.torch.optimizer_names import OptimizerNames
from horovod.torch.reducer import Groups

__all__ = ["DistributedOptimizer"]

# The names that programs for upstream test for with isinstance().
_DistributedOptimizer = DistributedMethods
_DistributedAdasumOptimizer = AdasumMethods


def DistributedOptimizer(  # noqa: N802 - a class to its users
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]] = None,
    compression: Compressor = NoneCompressor,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An optimizer that combines the gradients over the ranks before it steps.

    Collective in its effect: all members of the process set must wrap the same parameters in the same order, and make
    the same number of steps. The optimizer's state, parameter groups and hooks are those of `optimizer`; on ranks
    outside the process set, and with a single rank, it steps with its own gradients.

    Args:
        optimizer: any `torch.optim.Optimizer`.
        named_parameters: (name, parameter) tuples, as of `model.named_parameters()`; names must be equal on all ranks.
            None: numbered.
        compression: `hvd.Compression.none`, `.fp16` or `.bf16`.
        backward_passes_per_step: gradients are accumulated so many times, and then reduced once.
        op: Average, Sum, Min, Max, Product; Adasum combines the steps instead of the gradients.
        gradient_predivide_factor: f splits the averaging: multiplies with 1/f before the sum and with f/size after it.
        num_groups: deprecated; use `groups`.
        groups: number of groups, or lists of parameters; the gradients of a group are reduced as one unit.
        sparse_as_dense: reduce sparse gradients as dense ones. Needed where a rank's first step may leave out such a
            parameter: it does not know that the others send sparse gradients of it, and all wait for one another.
            (SparseAdam's parameters are known to be sparse.)
        process_set: the ranks that take part.

    Returns:
        An instance of a class that has the name of, and is derived from, the class of `optimizer`, with these methods
        besides: `synchronize`, `skip_synchronize`, `set_backward_passes_per_step`.

    Raises:
        InvalidArgumentError: a bad argument: named_parameters that are no tuples, repeat a name or leave parameters
            out; a predivide factor with another op than Average; no positive number of passes; groups that are neither
            a number nor lists of parameters.
        UnsupportedError: Adasum on a process set.
        NotInitializedError: `init` has not been called.
    """
    groups = chosen_groups(groups, num_groups)
    session.require()  # raises if not initialised
    _require_optimizer(optimizer)
    options = ReductionOptions(op, compression, gradient_predivide_factor, backward_passes_per_step, process_set)
    if isinstance(optimizer, DistributedMethods):
        raise InvalidArgumentError(
            "This optimizer is a DistributedOptimizer already; its gradients would be reduced twice. Wrap the plain "
            "one."
        )
    names = OptimizerNames(optimizer.param_groups, named_parameters, number_of(process_set))
    kind = type(optimizer)
    base: type[Any] = AdasumMethods if options.row.directions else DistributedMethods
    # Trainers look for "horovod" in the text of an optimizer's class, before they wrap it.
    made = type(kind.__name__, (base, kind), {"__module__": __name__, "__doc__": kind.__doc__})
    distributed: Any = made.__new__(made)  # type: ignore[call-overload]
    # A scheduler that was made before has replaced the plain optimizer's step; that one must not shadow ours.
    distributed.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    distributed._begin(optimizer, names, options, groups, sparse_as_dense)
    return distributed


def _require_optimizer(optimizer: Any) -> None:
    # Optimizers of other libraries need not be derived from torch's.
    if isinstance(optimizer, type) or not hasattr(optimizer, "param_groups"):
        received = f"the class {optimizer.__name__}" if isinstance(optimizer, type) else type(optimizer).__name__
        raise InvalidArgumentError(
            "DistributedOptimizer needs an optimizer, e.g. torch.optim.SGD(model.parameters(), lr=0.01). "
            f"Received: {received}."
        )
