"""Making the ranks equal, and exchanging Python objects: broadcast of variables and objects.

Used by training scripts after `hvd.init()`. Objects travel pickled, outside of TensorFlow's graphs, so the `session` of
TensorFlow 1's signatures is accepted and not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable, Optional

import tensorflow as tf

from horovod._core.errors import InvalidArgumentError, MismatchError, UnsupportedError
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations import objects
from horovod._core.operations.agreement import agree
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.collectives import ops
from horovod.tensorflow.collectives.operators import placed

__all__ = [
    "allgather_object", "broadcast_global_variables", "broadcast_object", "broadcast_object_fn", "broadcast_variables",
    "build_optimizer", "optimizer_variables",
]  # fmt: skip


@as_written
def broadcast_variables(
    variables: Any, root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Assigns the root's values to variables. Collective.

    Args:
        variables: `tf.Variable`s or Keras 3 variables, e.g. `model.variables` or `optimizer.variables`; the same
            dtypes and shapes in the same order on all ranks.
        root_rank: global rank that has the values.
        process_set: the ranks that take part.
        inplace: accepted; memory is the same either way.

    Returns:
        In a graph of TensorFlow 1 the operation to run; elsewhere None.

    Raises:
        InvalidArgumentError: no list of variables; in eager mode the other ranks get a MismatchError.
        MismatchError: in eager mode, on all ranks: they have different numbers of variables.
    """
    listed = _agreed(variables, process_set) if tf.executing_eagerly() else _listed(variables)
    assigned = ops.broadcast_(listed, root_rank, "broadcast_variables", process_set)
    # A function of TensorFlow 2 runs the assignments by itself.
    return None if tf.compat.v1.executing_eagerly_outside_functions() else tf.group(*assigned)


def _listed(variables: Any) -> list[Any]:
    is_list = isinstance(variables, Iterable) and not isinstance(variables, (tf.Variable, tf.Tensor, Mapping, str))
    listed = list(variables) if is_list else [variables]
    wrong = [entry for entry in listed if not hasattr(entry, "assign")]
    if wrong or not is_list:
        raise InvalidArgumentError(
            "broadcast_variables takes a list of variables, such as model.variables or optimizer.variables. Received: "
            f"{type(wrong[0] if is_list else variables).__name__}{' in the list' if is_list else ''}."
        )
    return listed


def _agreed(variables: Any, process_set: ProcessSet) -> list[Any]:
    """The variables, if all ranks have the same number. Variables that do not exist yet are a common mistake, and would
    hang the broadcast. Collective."""
    listed, refusal = [], None
    try:
        listed = _listed(variables)
    except InvalidArgumentError as error:
        refusal = error
    counts = agree("broadcast_variables", len(listed), refusal, process_set)
    if len(set(counts)) > 1:
        ranks = process_set.ranks or range(len(counts))
        numbers = ", ".join(f"rank {rank} has {count}" for rank, count in zip(ranks, counts))
        raise MismatchError(
            f"broadcast_variables: the ranks have different numbers of variables: {numbers}. Make them on all ranks "
            "first, with model.build(input_shape) and optimizer.build(model.trainable_variables), or by a first step."
        )
    return listed


@as_written
def broadcast_global_variables(root_rank: int) -> Any:
    """Returns the operation that broadcasts the root's global variables of the graph. Collective when it runs.

    Raises:
        UnsupportedError: in eager mode, where no graph holds the variables.
    """
    if tf.executing_eagerly():
        raise UnsupportedError(
            "hvd.broadcast_global_variables() does not support eager execution. Use "
            "hvd.broadcast_variables(model.variables, root_rank) instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def build_optimizer(optimizer: Any, variables: Any) -> None:
    """Creates a Keras optimizer's own variables for these trainable ones, unless they exist: Keras does it in the first
    step. Local."""
    # The legacy optimizers of Keras 2 have a name of their own for it; those of TensorFlow 1 have none.
    make = getattr(optimizer, "_create_all_weights", None) or getattr(optimizer, "build", None)
    if make is not None and not getattr(optimizer, "built", False):
        make(variables)


def optimizer_variables(optimizer: Any) -> list[Any]:
    """The own variables of an optimizer of Keras or TensorFlow 1, the learning rate and a loss scale's among them where
    they are variables. Local."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not callable(inner.variables):  # Keras 3's, which lists everything
        return list(optimizer.variables)
    # Keras 2 lists neither the rate nor the loss scale; its legacy optimizers keep the rate among the hyperparameters.
    rate = getattr(inner, "_hyper", {}).get("learning_rate", getattr(inner, "_learning_rate", None))
    scale = getattr(optimizer, "_loss_scale", None)  # of a LossScaleOptimizer; a number if it never changes
    more = [rate, getattr(scale, "current_loss_scale", None), getattr(scale, "counter", None)]
    return [*inner.variables(), *(variable for variable in more if isinstance(variable, tf.Variable))]


@as_written
def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every member the root's object. Collective.

    Args:
        obj: picklable; looked at on the root only.
        root_rank: global rank whose object it is.
        session: not needed.
        name: identity of the operation; None: counted.
        process_set: the ranks that take part.
    """
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """`broadcast_object` with all arguments but the object given. Local; the function is collective."""
    return lambda obj: objects.broadcast_object(obj, root_rank, name, process_set)


@as_written
def allgather_object(
    obj: Any, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Gives every member the objects of all, in the order of their ranks. Collective.

    Args:
        obj: picklable.
        session: not needed.
        name: identity of the operation; None: counted.
        process_set: the ranks that take part.
    """
    return objects.allgather_object(obj, name, process_set)


def _session_hook_base() -> Optional[type]:
    train = getattr(tf.compat.v1, "train", None)
    return getattr(train, "SessionRunHook", None)


_HookBase: Any = _session_hook_base() or object


class _BroadcastGlobalVariablesHook(_HookBase):
    """For `tf.compat.v1.train.MonitoredTrainingSession`: makes all global variables the root's once the session has
    initialised or restored them. Collective when the session is created.

    Args:
        root_rank: global rank that has the values.
        device: where the operators are placed; "" = TensorFlow's choice.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Adds the operation to the graph, before it is finalized."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with placed(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it."""
        session.run(self.bcast_op)


# Absent where TensorFlow offers no sessions.
if _session_hook_base() is not None:
    BroadcastGlobalVariablesHook = _BroadcastGlobalVariablesHook
    BroadcastGlobalVariablesHook.__name__ = BroadcastGlobalVariablesHook.__qualname__ = "BroadcastGlobalVariablesHook"
    __all__ += ["BroadcastGlobalVariablesHook"]


def vars_to_refs(variables: Any) -> Any:
    """Hashable references to variables, in nested tuples or lists as given."""
    if isinstance(variables, (list, tuple)):
        return tuple(vars_to_refs(variable) for variable in variables)
    return variables.ref()


def refs_to_vars(references: Any) -> Any:
    """The inverse of `vars_to_refs`."""
    if isinstance(references, (list, tuple)):
        return [refs_to_vars(reference) for reference in references]
    return references.deref()
