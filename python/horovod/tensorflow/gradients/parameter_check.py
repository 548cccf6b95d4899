"""`--check-parameters` where TensorFlow's gradients are reduced: tapes, optimizers, and Keras' on TensorFlow.

Nothing here sees the end of a step, so the parameters are compared when the next one reduces its gradients. In a graph
that is an operation of its own, which the reductions wait for. Used by `reducer`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

import tensorflow as tf

from horovod._core.tensors.byte_adapter import adapter
from horovod._core.training.ordinals import Ordinals
from horovod._core.training.parameter_check import FirstSteps, check, wanted
from horovod._core.training.reduction_options import ReductionOptions
from horovod.tensorflow.collectives import ops, xla

__all__ = ["before_step"]

_MOST_NAMES: Final = 1024
_steps: Final = FirstSteps({}, before=True)
# Lists are numbered: names of variables may differ between the ranks.
_numbers: Final = Ordinals({})
# The variables of each list: while they live no other ones have their ids.
_kept: Final[dict[Any, Sequence[Any]]] = {}
_log: Final = logging.getLogger("horovod.tensorflow")


@contextlib.contextmanager
def before_step(variables: Sequence[Any], scope: str, options: ReductionOptions) -> Iterator[None]:
    """In the body gradients are reduced, after the variables have been compared if the step before is to be checked.
    Collective then.

    Args:
        variables: what the gradients are of; what is not a variable is passed over.
        scope: begins the operation's name.
        options: of the reduction. Where steps are combined instead of gradients, the variables differ meanwhile.

    Raises:
        MismatchError: (in a graph an error of TensorFlow's with the same words) they differ between the ranks.
    """
    watched = wanted() and not options.row.directions
    found = [v for v in map(ops.tensorflow_variable, variables) if isinstance(v, tf.Variable)] if watched else []
    if not found:
        yield
        return
    if xla.compiling():
        _log.warning("--check-parameters: a step that XLA compiles is not checked.")
        yield
        return
    key = (scope, tuple(id(variable) for variable in found))
    _kept[key] = found
    names = [f"{index}.{variable.name.partition(':')[0]}" for index, variable in enumerate(found)]

    def compare(*values: Any) -> None:
        step = _steps.next(key)
        if step:
            contents = [bytearray(value.numpy().tobytes()) for value in values]
            number = _numbers.of(key) % _MOST_NAMES
            check(adapter, lambda: zip(names, contents), f"{scope}.{number}", step, options.process_set)

    if tf.executing_eagerly():
        compare(*found)
        yield
        return
    compared = tf.py_function(compare, [variable.read_value() for variable in found], [])
    with tf.control_dependencies([compared]):
        yield
