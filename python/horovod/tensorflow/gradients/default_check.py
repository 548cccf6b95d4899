"""What is compared of the gradients that TensorFlow reduces where nobody has asked; see
`horovod._core.training.reduction_check`. Used by `reducer`.

In a graph it is a branch that runs while a resource exists, which is destroyed when all is compared: later steps look
for it and go on. Every trace has that branch, so that operations have the same names whenever a rank traces. Not in
functions that XLA compiles, and not in graphs of TensorFlow 1.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final

import tensorflow as tf

from horovod._core.training.default_check import is_unasked
from horovod._core.training.default_findings import Form
from horovod._core.training.reduction_check import Reduced, Value, check_of
from horovod._core.training.reduction_options import ReductionOptions
from horovod.tensorflow.collectives import ops, xla

__all__ = ["before_reduction"]

_CHUNK: Final = 1 << 22  # elements that are made 64 bits wide at a time
_LAST: Final = "_horovod_default_check"  # attribute of a graph: its last branch
_HOST: Final = "CPU:0"
_READERS: Final = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})


@contextlib.contextmanager
def before_reduction(
    gradients: Sequence[Any], variables: Sequence[Any], name: str, options: ReductionOptions, remedy: str
) -> Iterator[None]:
    """In the body gradients are reduced, after the ranks have compared what they reduce.

    Args:
        gradients: dense.
        variables: what they are the gradients of.
        name: of the reduction, or of its first part.
        options: of the reduction.
        remedy: for variables that differ, a sentence.

    Raises:
        MismatchError: (in a graph an error of TensorFlow's with the same words) other numbers or shapes on other ranks.
    """
    if not is_unasked(options.process_set) or options.row.directions:
        yield
        return
    if tf.executing_eagerly():
        check = check_of("tensorflow", name)
        if not check.is_over:
            check.compare(_reduced(gradients, variables, remedy))
        yield
        return
    # A graph of TensorFlow 1 has no order of its own.
    if xla.compiling() or not tf.compat.v1.executing_eagerly_outside_functions():
        yield
        return
    with tf.control_dependencies([_branch(gradients, variables, name, remedy)]):
        yield


def _branch(gradients: Sequence[Any], variables: Sequence[Any], name: str, remedy: str) -> Any:
    """The operation that compares, in the graph that is being made."""
    graph = tf.compat.v1.get_default_graph()
    key = f"graph/{graph.unique_name(name, mark_as_used=False)}"
    check, reduced = check_of("tensorflow", key), _reduced(gradients, variables, remedy)
    if check.expect(reduced.variables):
        with tf.init_scope(), tf.device(_HOST):
            tf.raw_ops.AssignVariableOp(resource=_resource(key), value=tf.constant(True))

    def compare() -> None:
        check.compare(reduced)
        if check.is_over:
            with tf.device(_HOST):
                tf.raw_ops.DestroyResourceOp(resource=_resource(key), ignore_lookup_error=True)

    own = [variable for variable in map(ops.tensorflow_variable, variables) if _has_values(variable)]
    # No value is an argument of the function: TensorFlow would keep it for a gradient. Reading them puts the branch
    # behind what has been assigned so far. Where nothing has been, later steps are spared what hands them to it.
    before_it = [] if _are_only_read(own, graph) else own

    def run() -> Any:
        with tf.control_dependencies(list(map(_read, before_it))), tf.device(_HOST):
            return tf.group(tf.py_function(compare, [], []))

    # One after the other: two that wait for other ranks at once could hold all of TensorFlow's threads.
    before = getattr(graph, _LAST, None)
    with tf.control_dependencies([] if before is None else [before]):
        with tf.device(_HOST):
            is_there = tf.raw_ops.VarIsInitializedOp(resource=_resource(key))
        branch = tf.cond(is_there, run, tf.no_op)
    setattr(graph, _LAST, branch)
    return branch


def _resource(key: str) -> Any:
    return tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name=f"horovod_default_check/{key}")


def _are_only_read(variables: Sequence[Any], graph: Any) -> bool:
    """True if this graph reads all of the variables, and has written none so far."""
    own = {id(variable.handle) for variable in variables}
    inside = {id(inner) for outer, inner in graph.captures if id(outer) in own}
    users = (operation for operation in graph.get_operations() if not inside.isdisjoint(map(id, operation.inputs)))
    return len(inside) == len(own) and all(operation.type in _READERS for operation in users)


def _read(variable: Any) -> Any:
    # Not `read_value`, which a tape would record.
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _reduced(gradients: Sequence[Any], variables: Sequence[Any], remedy: str) -> Reduced:
    own = [ops.tensorflow_variable(variable) for variable in variables]
    forms = [Form(f"{i}{_last_name(v)}", _form(g, v)) for i, (g, v) in enumerate(zip(gradients, own))]
    valued = [(i, v) for i, v in enumerate(own) if _has_values(v)]
    refs = [weakref.ref(variable) for _, variable in valued]
    names = [variable.name.partition(":")[0] or str(i) for i, variable in valued]
    return Reduced(forms, refs, names, lambda: _measured(refs), remedy)


def _last_name(variable: Any) -> str:
    """What stands before it may be numbered."""
    return f".{variable.name.partition(':')[0].rpartition('/')[2]}" if isinstance(variable, tf.Variable) else ""


def _form(gradient: Any, variable: Any) -> str:
    """Type and shape, as far as every trace knows it."""
    of = variable if isinstance(variable, tf.Variable) else gradient
    known = (tf.executing_eagerly() or of is variable) and of.shape.is_fully_defined()
    return f"{gradient.dtype.name} {list(of.shape)}" if known else gradient.dtype.name


def _has_values(variable: Any) -> bool:
    return isinstance(variable, tf.Variable) and variable.dtype.is_floating and hasattr(variable, "handle")


def _measured(refs: Sequence[weakref.ref[Any]]) -> list[Value]:
    variables = [variable for variable in (ref() for ref in refs) if variable is not None]
    try:
        sums = tf.stack([part for variable in variables for part in _sums(_read(variable))]).numpy().tolist()
    except (tf.errors.OpError, tf.errors.InvalidArgumentError):  # a device without numbers of 64 bits, say
        return []
    return [
        Value(variable.dtype.size, total, squares**0.5)
        for variable, total, squares in zip(variables, sums[::2], sums[1::2])
    ]


def _sums(value: Any) -> tuple[Any, Any]:
    """Of the elements, and of their squares."""
    flat = tf.reshape(value, [-1])
    total = squares = tf.zeros([], tf.float64)
    for start in range(0, flat.shape[0], _CHUNK):
        wide = tf.cast(flat[start : start + _CHUNK], tf.float64)
        total, squares = total + tf.reduce_sum(wide), squares + tf.reduce_sum(wide * wide)
    return total, squares
