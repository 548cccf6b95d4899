"""Reducing a list of gradients: what tapes, optimizers and the Keras wrapper have in common.

In eager mode all dense gradients go as one group, since eager operations run one after the other; in a graph each is an
operation of its own, unless groups are asked for. Which of them one operator stands for is in `gathered`. It computes
no gradient and applies none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

import tensorflow as tf

from horovod._core.life.process_sets import ProcessSet, global_process_set, leaves_out_this_rank
from horovod._core.operations.reduce_ops import ReduceOp
from horovod._core.tensors.compression import Compressor
from horovod._core.training.default_check import equal_by
from horovod._core.training.groups import assign_groups
from horovod._core.training.reduction_options import ReductionOptions
from horovod.tensorflow.collectives import ops, xla
from horovod.tensorflow.collectives.operators import Reduction, placed, plain_name, set_number
from horovod.tensorflow.gradients import default_check, gathered, parameter_check

__all__ = ["GradientReduction", "Groups", "_make_allreduce_grads_fn", "divided", "key_of"]

Groups = Union[None, int, Iterable[Iterable[Any]]]


def key_of(variable: Any) -> int:
    """The identity of a variable; a Keras 3 variable and the `tf.Variable` inside it are the same."""
    return id(ops.tensorflow_variable(variable))


@dataclass
class GradientReduction:
    """How gradients are reduced.

    Args:
        options: op, factors, compression, process set.
        device_dense, device_sparse: devices of the operators.
        sparse_as_dense: make IndexedSlices dense first.
        groups: the number of groups, or lists of variables, each a group; None: the default.
        scale_local_gradients: divide the gradients of local variables by the number of ranks.
        remedy: for variables that differ, a sentence.

    Attributes:
        local: the variables whose gradients are not reduced, by key; held, so that no other gets a key of theirs.
    """

    options: ReductionOptions
    device_dense: str = ""
    device_sparse: str = ""
    sparse_as_dense: bool = False
    groups: Groups = None
    scale_local_gradients: bool = True
    remedy: str = equal_by("hvd.broadcast_variables(model.variables, root_rank=0)")
    local: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.groups is not None and not isinstance(self.groups, int):
            self.groups = [[key_of(variable) for variable in group] for group in self.groups]

    def register_local(self, variable: Any) -> None:
        """The variable's gradient will not be reduced."""
        self.local[key_of(variable)] = variable

    def is_local(self, variable: Any) -> bool:
        """True if the variable's gradient is not reduced."""
        return key_of(variable) in self.local

    def reduce(
        self, gradients: Sequence[Any], variables: Sequence[Any], scope: str, numbered: bool = False
    ) -> list[Any]:
        """The gradients of all ranks combined; outside the process set, this rank's own. Collective.

        Args:
            gradients: tensors, IndexedSlices, or None; None on all ranks or on none.
            variables: what they are the gradients of.
            scope: begins the operations' names.
            numbered: the rest of a name is the variable's place in the list, not its name.

        Returns:
            In the same order; None stays None.
        """
        results = list(gradients)
        if leaves_out_this_rank(self.options.process_set):
            return results
        dense: list[int] = []

        def name_of(index: int) -> str:
            return f"{scope}/{index if numbered else _title(variables[index], index)}"

        for index, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if self.local and self.is_local(variable):
                results[index] = divided(gradient, self.options.process_set) if self.scale_local_gradients else gradient
            elif not isinstance(gradient, tf.IndexedSlices):
                dense.append(index)
            elif self.sparse_as_dense:
                results[index] = tf.convert_to_tensor(gradient)
                dense.append(index)
            else:
                results[index] = self._sparse(gradient, name_of(index))
        shared = [v for v in variables if not (self.local and self.is_local(v))]
        units = self._units(dense, variables, scope, name_of)
        with parameter_check.before_step(shared, scope, self.options), self._compared(results, variables, dense, units):
            for unit in gathered.gather(units, results):
                with placed(self.device_dense):
                    reduced = self._together([results[i] for i in unit.members], unit)
                for index, result in zip(unit.members, reduced):
                    results[index] = result
        return results

    def _compared(
        self, gradients: Sequence[Any], variables: Sequence[Any], dense: list[int], units: list[tuple[str, list[int]]]
    ) -> contextlib.AbstractContextManager[None]:
        """In the body the ranks know that they reduce the same, where nobody has asked."""
        if not units:
            return contextlib.nullcontext()
        own = [gradients[i] for i in dense], [variables[i] for i in dense]
        return default_check.before_reduction(*own, units[0][0], self.options, self.remedy)

    def _together(self, tensors: list[Any], unit: gathered.Unit) -> list[Any]:
        prescale, postscale = self.options.factors
        if unit.names:
            reduction = Reduction(ReduceOp(self.options.op), prescale, postscale, self.options.process_set)
            return gathered.reduce_each(tensors, unit, self.options.compression, reduction)
        return ops.grouped_allreduce(
            tensors, compression=self.options.compression, op=self.options.op, prescale_factor=prescale,
            postscale_factor=postscale, process_set=self.options.process_set, name=unit.name,
        )  # fmt: skip

    def _sparse(self, gradient: tf.IndexedSlices, name: str) -> Any:
        # An average's two factors cancel; there is nothing to lose in 16 bits either.
        return ops.allreduce(
            gradient, device_sparse=self.device_sparse, op=self.options.op, name=name,
            process_set=self.options.process_set,
        )  # fmt: skip

    def _units(
        self, dense: list[int], variables: Sequence[Any], scope: str, name_of: Callable[[int], str]
    ) -> list[tuple[str, list[int]]]:
        """What is reduced together: (name, indices)."""
        if not dense:
            return []
        # Eager operations and calls inside XLA run one after the other.
        if self.groups is None and (tf.executing_eagerly() or xla.compiling()):
            return [(scope, dense)]
        keys = {key_of(variables[index]): index for index in dense}
        units: list[tuple[str, list[int]]] = []
        grouped: set[int] = set()
        for number, group in enumerate(assign_groups(list(keys), self.groups)):
            members = [keys[int(key)] for key in group]  # type: ignore[call-overload]
            grouped.update(members)
            units.append((f"{scope}/group_{number}", members))
        return units + [(name_of(i), [i]) for i in dense if i not in grouped]


def _make_allreduce_grads_fn(
    name: str,
    device_dense: str,
    device_sparse: str,
    compression: Compressor,
    sparse_as_dense: bool,
    op: int,
    gradient_predivide_factor: float = 1.0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., list[Any]]:
    """A function from a list of gradients to those of all ranks, for wrappers that scripts write themselves. Local; the
    function is collective. It takes the gradients, their variables, which lists of `groups` need, and whether to number
    the operations instead of naming them after the variables."""
    options = ReductionOptions(op, compression, gradient_predivide_factor, 1, process_set)
    reduction = GradientReduction(options, device_dense, device_sparse, sparse_as_dense, groups)

    def allreduce_grads(
        grads: Sequence[Any], vars: Optional[Sequence[Any]] = None, use_generic_names: bool = False
    ) -> list[Any]:
        return reduction.reduce(grads, grads if vars is None else vars, name, use_generic_names or vars is None)

    return allreduce_grads


def divided(gradient: Any, process_set: ProcessSet) -> Any:
    """The gradient of a local variable by the number of ranks, which is what an average does to all others."""
    divisor = ops.size_op(set_number(process_set))
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values / tf.cast(divisor, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient / tf.cast(divisor, gradient.dtype)


def _title(variable: Any, index: int) -> str:
    """A variable's name for the timeline; made unique by its place."""
    name: Optional[str] = None
    if not isinstance(variable, tf.Tensor):
        name = getattr(variable, "path", None) or getattr(variable, "name", None)
    return f"{plain_name(name.partition(':')[0])}_{index}" if name else str(index)
