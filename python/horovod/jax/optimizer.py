"""Distributed optimizers for optax: gradients are combined before an optimizer sees them.

With `backward_passes_per_step=k` they are added up here, and the ranks speak, and the optimizer works, in every k-th
update. `optax.MultiSteps` around a distributed optimizer gives the same but reduces in every pass, since it runs the
inner update each time and throws most of them away.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import jax
import jax.numpy as jnp

from horovod._core.errors import InvalidArgumentError
from horovod._core.frameworks import require
from horovod._core.integers import as_integer
from horovod._core.life.engine_port import ALLREDUCE
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average
from horovod._core.tensors.compression import Compressor
from horovod._core.training.reduction_options import ReductionOptions
from horovod.jax import operators
from horovod.jax.compression import Compression
from horovod.jax.gradients import GRADIENTS
from horovod.jax.ops import reduce_tree

__all__ = ["DistributedGradientTransformation", "DistributedOptimizer", "PassesState", "allreduce_gradients"]


class PassesState(NamedTuple):
    """The state of an optimizer with several passes per step.

    Args:
        passes: how many there were since the last step, int32.
        sums: of their gradients.
        inner: the optimizer's own state.
    """

    passes: Any
    sums: Any
    inner: Any


def allreduce_gradients(
    op: int = Average,
    compression: Compressor = Compression.none,
    gradient_predivide_factor: float = 1.0,
    groups: Optional[int] = None,
    backward_passes_per_step: int = 1,
    process_set: ProcessSet = global_process_set,
    name: str = GRADIENTS,
) -> Any:
    """A transformation for `optax.chain` that combines the ranks' gradients in one call. Its updates are collective.

    Args:
        op: Average, Sum, ...
        compression: Compression.none, fp16 or bf16.
        gradient_predivide_factor: f splits the averaging: 1/f before the sum, f/size after it.
        groups: into how many groups the gradients are divided, each of which travels as one unit; None: one.
        backward_passes_per_step: how many passes' gradients are added up before they are combined. In the passes
            between it gives zeros, from which most optimizers would learn something: use
            `DistributedGradientTransformation`, whose optimizer waits.
        process_set: the ranks that take part.
        name: begins the names of the gradients; optimizers that may work at the same time need names.

    Returns:
        An `optax.GradientTransformation`.

    Raises:
        ModuleNotFoundError: optax is not installed.
        InvalidArgumentError, UnsupportedError: a bad argument.
    """
    optax = _optax()
    options = ReductionOptions(op, compression, gradient_predivide_factor, backward_passes_per_step, process_set)
    number = _number_of(groups)

    def reduce(gradients: Any) -> Any:
        return reduce_tree(ALLREDUCE, gradients, op, name, compression, options.factors, process_set, number)

    reduction = optax.GradientTransformation(
        lambda params: optax.EmptyState(), lambda updates, state, params=None: (reduce(updates), state)
    )
    passes = options.backward_passes_per_step
    return reduction if passes == 1 else _every(passes, reduction)


def DistributedGradientTransformation(  # noqa: N802 - named like a class, as the optimizers of other frameworks
    tx: Any,
    op: int = Average,
    compression: Compressor = Compression.none,
    gradient_predivide_factor: float = 1.0,
    groups: Optional[int] = None,
    backward_passes_per_step: int = 1,
    process_set: ProcessSet = global_process_set,
    name: str = GRADIENTS,
) -> Any:
    """An optimizer of optax that works on the combined gradients of all ranks. Its updates are collective.

    Args:
        tx: the optimizer.
        op, compression, gradient_predivide_factor, groups, process_set, name: as of `allreduce_gradients`.
        backward_passes_per_step: how many passes' gradients are added up for one step. The updates of the passes
            between are zeros; the optimizer's state stays and nothing is sent.

    Returns:
        An `optax.GradientTransformationExtraArgs`.

    Raises:
        As `allreduce_gradients`.
    """
    options = ReductionOptions(op, compression, gradient_predivide_factor, backward_passes_per_step, process_set)
    reduction = allreduce_gradients(op, compression, gradient_predivide_factor, groups, 1, process_set, name)
    both = _optax().chain(reduction, tx)
    passes = options.backward_passes_per_step
    return both if passes == 1 else _every(passes, both)


DistributedOptimizer = DistributedGradientTransformation


def _every(passes: int, tx: Any) -> Any:
    """The transformation, which gets the sum of so many passes' gradients at the last of them."""
    optax = _optax()
    tx = optax.with_extra_args_support(tx)

    def init(params: Any) -> PassesState:
        zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
        return PassesState(jnp.zeros((), jnp.int32), zeros, tx.init(params))

    def update(updates: Any, state: PassesState, params: Any = None, **more: Any) -> tuple[Any, PassesState]:
        def step(sums: Any, inner: Any) -> Any:
            changes, new = tx.update(sums, inner, params, **more)
            new = jax.tree_util.tree_map(lambda one, before: jnp.asarray(one, jnp.asarray(before).dtype), new, inner)
            return changes, jax.tree_util.tree_map(jnp.zeros_like, sums), new

        def wait(sums: Any, inner: Any) -> Any:
            return jax.tree_util.tree_map(lambda form: jnp.zeros(form.shape, form.dtype), changes), sums, inner

        # In the types of the parameters, as the state is: gradients may have others.
        sums = jax.tree_util.tree_map(lambda sum_, one: (sum_ + one).astype(sum_.dtype), state.sums, updates)
        is_last = state.passes + 1 >= passes  # on all ranks alike
        if operators.tracing():
            changes, _, _ = jax.eval_shape(step, sums, state.inner)
            changes, sums, inner = jax.lax.cond(is_last, step, wait, sums, state.inner)
        elif is_last:  # outside, where JAX would compile the condition each time
            changes, sums, inner = step(sums, state.inner)
        else:
            changes, _, _ = jax.eval_shape(step, sums, state.inner)
            changes, sums, inner = wait(sums, state.inner)
        return changes, PassesState(jnp.where(is_last, 0, state.passes + 1), sums, inner)

    return optax.GradientTransformationExtraArgs(init, update)


def _number_of(groups: Any) -> int:
    number = 1 if groups is None else as_integer(groups)
    if number is None or number < 1:
        raise InvalidArgumentError(f"groups must be None or an integer >= 1. Received: {groups!r}.")
    return number


def _optax() -> Any:
    return require("optax", "optax", "hvd.DistributedOptimizer of horovod.jax")
