"""`DistributedOptimizer`: an optimizer of the user's own class that steps with gradients combined over the ranks.

Used by training scripts around any `torch.optim.Optimizer`. Its differences from the user's class are in
`distributed_methods` and, for `op=hvd.Adasum`, in `adasum_optimizer`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any, Final, Optional, TypeVar

import torch

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import session
from horovod._core.life.process_sets import ProcessSet, global_process_set, with_ranks
from horovod._core.operations.reduce_ops import Average, Row, meant
from horovod._core.tensors.compression import Compressor, NoneCompressor
from horovod._core.training.groups import chosen_groups
from horovod._core.training.reduction_options import ReductionOptions
from horovod.torch.collectives.dispatch import number_of
from horovod.torch.gradients.optimizer_names import Groups, OptimizerNames, Scope
from horovod.torch.optimizers.adasum_optimizer import AdasumMethods
from horovod.torch.optimizers.distributed_methods import DistributedMethods

__all__ = ["DistributedOptimizer"]

# The names that programs for upstream test for with isinstance().
_DistributedOptimizer = DistributedMethods
_DistributedAdasumOptimizer = AdasumMethods


# The user's own class, for editors and type checkers.
OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)


def DistributedOptimizer(  # noqa: N802 - a class to its users
    optimizer: OptimizerT,
    named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]] = None,
    compression: Compressor = NoneCompressor,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> OptimizerT:
    """An optimizer that combines the gradients over the ranks before it steps.

    Collective in its effect: all members of the process set must wrap the same parameters in the same order, and make
    the same number of steps. The optimizer's state, parameter groups and hooks are those of `optimizer`; on ranks
    outside the process set, and with a single rank, it steps with its own gradients.

    Args:
        optimizer: any `torch.optim.Optimizer`.
        named_parameters: (name, parameter) tuples, as of `model.named_parameters()`; names must be equal on all ranks.
            None: numbered.
        compression: `hvd.Compression.none`, `.fp16` or `.bf16`.
        backward_passes_per_step: gradients are accumulated this many times, and then reduced once.
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
    distributed = _new(type(optimizer), options.row)
    # A scheduler that was made before has replaced the plain optimizer's step; that one must not shadow ours.
    distributed.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    distributed._begin(optimizer, names, options, groups, sparse_as_dense)
    of_its_class: OptimizerT = distributed
    return of_its_class


def _new(kind: type[torch.optim.Optimizer], row: Row) -> Any:
    """A distributed optimizer without any state."""
    base: type[Any] = AdasumMethods if row.directions else DistributedMethods
    copying = {"__reduce_ex__": _reduced, "__deepcopy__": _deep_copy, "__getattr__": _begin_copy}
    # Trainers look for "horovod" in the text of an optimizer's class, before they wrap it.
    made = type(kind.__name__, (base, kind), {"__module__": __name__, "__doc__": kind.__doc__, **copying})
    return made.__new__(made)  # type: ignore[call-overload]


# ---- copies, which are distributed too


@dataclasses.dataclass
class _Recipe:
    """How to make an optimizer like another one, over other parameters. Pickled with it.

    Attributes:
        kind: class of the user's optimizer.
        names, scope: see `OptimizerNames`; None: a further one of these names, as all ranks make it.
        groups: numbers of parameters.
        members: the ranks of the process set, which may have another number, or be gone, when a copy begins; None: all
            ranks.
    """

    kind: type[torch.optim.Optimizer]
    names: list[str]
    scope: Optional[Scope]
    op: int
    compression: Compressor
    gradient_predivide_factor: float
    backward_passes_per_step: int
    members: Optional[list[int]]
    groups: Any
    sparse_as_dense: bool


def _recipe_of(optimizer: Any) -> _Recipe:
    if "_recipe" in optimizer.__dict__:
        found: _Recipe = optimizer._recipe
        return found
    access, names = optimizer._access, optimizer._names
    options = access.options
    return _Recipe(
        type(optimizer._wrapped), [names.name(number) for number in range(len(names.parameters))], names.scope,
        options.op, options.compression, options.gradient_predivide_factor, access.passes,
        None if options.process_set is global_process_set else options.process_set.ranks,
        access.groups, access.sparse_as_dense,
    )  # fmt: skip


def _reduced(optimizer: Any, protocol: Any) -> Any:
    return _copy, (_recipe_of(optimizer),), optimizer.__getstate__()


def _copy(recipe: _Recipe) -> Any:
    """An optimizer that is yet to get its state; a plain one in a process that is not a rank."""
    if session.current is None:
        return recipe.kind.__new__(recipe.kind)
    made = _new(recipe.kind, meant(recipe.op).row)
    made._recipe = recipe
    return made


def _deep_copy(optimizer: Any, memo: dict[int, Any]) -> Any:
    # Unlike one that comes from a file or another rank, it may be used beside the original.
    made = memo[id(optimizer)] = _copy(dataclasses.replace(_recipe_of(optimizer), scope=None))
    made.__setstate__(copy.deepcopy(optimizer.__getstate__(), memo))
    return made


# Set by `DistributedMethods._begin`. A copy does not begin when a program asks for any other attribute.
_MADE_BY_BEGIN: Final = ("_access", "_names", "_should_synchronize", "_synchronized", "_wrapped")


def _begin_copy(optimizer: Any, attribute: str) -> Any:
    """An attribute that a copy lacks. Those of `_begin` make it begin: not before, as a rank may keep a copy that never
    steps."""
    recipe = optimizer.__dict__.pop("_recipe", None) if attribute in _MADE_BY_BEGIN else None
    if recipe is None:
        users = getattr(type(optimizer).__mro__[2], "__getattr__", None)
        if users is not None:
            return users(optimizer, attribute)
        raise AttributeError(f"{type(optimizer).__name__!r} object has no attribute {attribute!r}")
    try:
        _begin_by(recipe, optimizer)
    except BaseException:
        optimizer._recipe = recipe  # the next use says the same, or begins
        raise
    return getattr(optimizer, attribute)


def _begin_by(recipe: _Recipe, optimizer: Any) -> None:
    """A copy is used: makes it a distributed optimizer."""
    options = _options_of(recipe)
    plain = recipe.kind.__new__(recipe.kind)
    plain.__dict__.update(optimizer.__dict__)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = OptimizerNames(optimizer.param_groups, list(zip(recipe.names, parameters)), number_of(options.process_set))
    if recipe.scope is not None:
        names.adopt(recipe.scope)
    groups = recipe.groups
    if isinstance(groups, list):
        groups = [[parameters[number] for number in group] for group in groups]
    optimizer._begin(plain, names, options, groups, recipe.sparse_as_dense)


def _options_of(recipe: _Recipe) -> ReductionOptions:
    return ReductionOptions(
        recipe.op, recipe.compression, recipe.gradient_predivide_factor, recipe.backward_passes_per_step,
        global_process_set if recipe.members is None else with_ranks(recipe.members),
    )  # fmt: skip


def _require_optimizer(optimizer: Any) -> None:
    # Optimizers of other libraries need not be derived from torch's.
    if isinstance(optimizer, type) or not hasattr(optimizer, "param_groups"):
        received = f"the class {optimizer.__name__}" if isinstance(optimizer, type) else type(optimizer).__name__
        raise InvalidArgumentError(
            "DistributedOptimizer needs an optimizer, e.g. torch.optim.SGD(model.parameters(), lr=0.01). "
            f"Received: {received}."
        )
