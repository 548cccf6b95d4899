"""Reading, writing and broadcasting the variables of a model and its optimizer, whatever backend Keras runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod._core.operations.collectives import Collectives
from horovod._core.training.elastic import arrival
from horovod.keras.flavour import flavour
from horovod.keras.installed import keras
from horovod.numpy import adapter

__all__ = ["all_variables", "assign", "await_collectives", "broadcast", "read", "synced", "values_now", "velocities"]

_collectives = Collectives(adapter.adapter)


def synced(model: Any) -> Any:
    """The model, with its variables up to date: JAX's training step keeps them elsewhere meanwhile."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
    return model


def all_variables(model: Any, optimizer: Any) -> list[Any]:
    """The variables of a model and of an optimizer (or None), each once."""
    listed = [*model.variables, *(flavour.optimizer_variables(optimizer) if optimizer is not None else [])]
    return list({id(variable): variable for variable in listed}.values())


def velocities(optimizer: Any) -> list[Any]:
    """The variables in which momentum gathers gradients times the learning rate: those of Keras' SGD and RMSprop, none
    before the optimizer is built. Other optimizers' velocities do not contain the rate."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if isinstance(optimizer, keras.optimizers.SGD):
        found = getattr(optimizer, "momentums", ())
    elif isinstance(optimizer, keras.optimizers.RMSprop):
        found = getattr(optimizer, "_momentums", ())
    else:
        found = flavour.legacy_velocities(optimizer)
    return [velocity for velocity in found if velocity is not None]


def read(variables: Sequence[Any]) -> list[Any]:
    """The values, as NumPy arrays of their own."""
    return [np.array(flavour.to_numpy(variable), order="C") for variable in variables]


def values_now(variables: Sequence[Any]) -> list[Any]:
    """The values as a `Snapshot` takes them, which then holds for this moment: tensors of TensorFlow or PyTorch, or
    arrays, which JAX's next step may overwrite. Before one is made from them, nothing may change the variables."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        from horovod.tensorflow.collectives.ops import tensorflow_variable
        from horovod.tensorflow.elastic_copies import value_now

        if tf.executing_eagerly():
            return [value_now(tensorflow_variable(variable)) for variable in variables]
    elif backend == "torch":
        from horovod.torch.elastic.copies import held

        return [held(variable.value) for variable in variables]
    import horovod.numpy.elastic  # noqa: F401 - says how arrays are copied

    if backend == "jax":
        return [np.asarray(variable.value) for variable in variables]  # which copies nothing on the CPU
    return [flavour.to_numpy(variable) for variable in variables]


def await_collectives() -> None:
    """Waits until `values_now` are there, if collectives on a GPU have made them.

    Raises:
        HorovodInternalError: these were aborted.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from horovod.tensorflow.elastic_copies import await_collectives as await_tensorflows

        await_tensorflows()
    elif backend == "torch":
        from horovod.torch.elastic.arrival import await_collectives as await_torchs

        await_torchs()
    else:
        arrival.await_collectives(lambda device: None)  # an array of NumPy's is there


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Overwrites the variables."""
    flavour.assign(variables, values)


def broadcast(variables: Sequence[Any], root_rank: int, device: str = "") -> None:
    """Overwrites the variables with the root's. Collective: the same dtypes and shapes in the same order on all ranks.

    Args:
        root_rank: global rank that has the values.
        device: where TensorFlow's operator is placed; the other backends' values travel through host memory.
    """
    if keras.backend.backend() == "tensorflow":
        from horovod.tensorflow.collectives.operators import placed

        with placed(device):
            flavour.broadcast(variables, root_rank)
        return
    values = read(variables)
    pending = [
        _collectives.broadcast_async_(value, root_rank, f"broadcast_variables.{index}")
        for index, value in enumerate(values)
    ]
    for handle in pending:
        _collectives.synchronize(handle)
    assign(variables, values)
