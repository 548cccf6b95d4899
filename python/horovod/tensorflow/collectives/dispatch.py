"""From an operator's name to its results: as an operator of the core, or inside XLA as a custom call.

Used by `operators` for users' calls and by `autograd` for their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Final

import tensorflow as tf

from horovod.tensorflow.collectives import library, xla
from horovod.tensorflow.gpu import device_memory

__all__ = ["GRADIENTS", "launch"]

# By operator: (operation with inputs, outputs and get_attr, gradients of the outputs) -> gradients of the inputs.
# Filled by `autograd`.
GRADIENTS: Final[dict[str, Callable[..., list[Any]]]] = {}


def launch(operator: str, tensors: Sequence[Any], attributes: dict[str, Any], node: str) -> list[Any]:
    """The results of one collective operator. Collective when it runs.

    Args:
        operator: "HorovodAllreduce", ...
        tensors: its inputs; of an alltoall the tensor and the splits.
        attributes: "tensor_name", "process_set_id", ... as the operator has them.
        node: the name of the node.
    """
    if xla.compiling():
        return _in_xla(operator, tensors, attributes, node)
    functions = library.loaded()
    device_memory.make_ready()
    if operator == "HorovodAlltoall":
        result = functions.horovod_alltoall(tensor=tensors[0], splits=tensors[1], name=node, **attributes)
        return [result.output, result.received_splits]
    function = getattr(functions, f"horovod_{operator[len('Horovod') :].lower()}")
    return list(function(tensors=list(tensors), name=node, **attributes))


class _Recorded:
    """What a gradient function asks of an operation."""

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], attributes: dict[str, Any]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._attributes = attributes

    def get_attr(self, name: str) -> Any:
        value = self._attributes[name]
        return value.encode() if isinstance(value, str) else value


def _in_xla(operator: str, tensors: Sequence[Any], attributes: dict[str, Any], node: str) -> list[Any]:
    @tf.custom_gradient  # the custom call has none of its own
    def call(*inputs: Any) -> tuple[list[Any], Callable[..., list[Any]]]:
        outputs = xla.launch(operator, inputs, attributes, node)
        recorded = _Recorded(inputs, outputs, attributes)
        return outputs, lambda *grads: GRADIENTS[operator](recorded, *grads)

    return list(call(*tensors))
