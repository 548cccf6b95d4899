"""Collectives inside functions that TensorFlow compiles with XLA (`jit_compile=True`), for the CPU or for CUDA.

XLA cannot hold the core's operators, so there a collective is a custom call of the core's, which waits on XLA's thread:
on the CPU for its end; on a GPU until it is on its way, ordered by the stream that XLA tells. Successive calls hand on
a token, because XLA would neither keep their order nor have all of them under way: gradients are best reduced as one
group. Shapes must be known when the function is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Final, Optional

import tensorflow as tf

from horovod._core.errors import UnsupportedError
from horovod._core.life import engine_start, process_sets, session
from horovod._core.life.engine_port import OP_NAMES
from horovod._core.operations.checks import own_rows
from horovod._core.operations.described_call import DescribedOperation, TensorForm, describe
from horovod._core.operations.submission import called, member_names
from horovod._core.tensors import dtypes

__all__ = ["Launch", "compiling", "holds_no_collectives", "launch"]

# Operator -> hvd_op_type.
_TYPES: Final = {f"Horovod{name.capitalize()}": number for number, name in enumerate(OP_NAMES)}
_TOKEN: Final = "_horovod_token"  # attribute of a graph: what its last call handed on

# (operator, tensors, attributes, node name) -> results
Launch = Callable[[str, Sequence[Any], dict[str, Any], str], list[Any]]


def compiling() -> bool:
    """True while a function is traced that XLA will compile."""
    try:
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import control_flow_util
    except ImportError:
        return False
    if tf.executing_eagerly():
        return False
    return bool(control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph()))


def holds_no_collectives() -> bool:
    """True if there is a device for which XLA compiles here and then cannot hold collectives: one that is neither the
    CPU nor CUDA's."""
    fit = ("CPU", "GPU") if tf.test.is_built_with_cuda() else ("CPU",)
    return any(device.device_type not in fit for device in tf.config.list_logical_devices())


def launch(operator: str, tensors: Sequence[Any], attributes: dict[str, Any], node: str) -> list[Any]:
    """One collective as a custom call, without a gradient. Collective.

    Args:
        operator: "HorovodAllreduce", ...
        tensors: of shapes that are known.
        attributes: of the operator.
        node: the name it is negotiated by, if the attributes give none.

    Raises:
        UnsupportedError: this TensorFlow has no custom calls, a shape is not known, splits are given, or the function
            is for a device that the core cannot use.
    """
    problem = engine_start.tensorflow_xla_problem()
    if problem:
        raise UnsupportedError(f"{node} in a function compiled with XLA: {problem}. Leave jit_compile off.")
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    if operator == "HorovodAlltoall":
        tensors = _without_splits(node, tensors)
    shapes = [_result_shape(operator, node, tensor, attributes["process_set_id"]) for tensor in tensors]
    graph = tf.compat.v1.get_default_graph()
    name = attributes["tensor_name"] or graph.unique_name(node)
    token: Optional[Any] = getattr(graph, _TOKEN, None)
    token, *results = gen_xla_ops.xla_custom_call_v2(
        operands=[tf.zeros([]) if token is None else token, *tensors],
        call_target_name="hvd_collective",
        backend_config=_description(operator, tensors, shapes, attributes, name),
        has_side_effect=True,
        result_dtypes=[tf.float32, *(tensor.dtype for tensor in tensors)],
        result_shapes=[tf.TensorShape([]), *shapes],
        name=node,
    )
    _make_ready(node, token.device)
    setattr(graph, _TOKEN, token)
    if operator == "HorovodAlltoall":
        members = len(_members(attributes["process_set_id"]))
        return [results[0], tf.fill([members], tensors[0].shape[0] // members)]
    return list(results)


def _make_ready(node: str, placed: str) -> None:
    """Where the function is for a GPU, makes the core ready for tensors there.

    Args:
        node: whose call is traced.
        placed: the device of its node; "" = that of the function's caller, or TensorFlow's choice, which is the first
            GPU if there is one.
    """
    from tensorflow.python.eager import context

    # A function is traced again for a caller on another device.
    asked = tf.DeviceSpec.from_string(placed or context.context().device_name or "")
    visible = tf.config.get_visible_devices("GPU")
    if asked.device_type not in (None, "GPU") or not visible:
        return
    from horovod._core.life.planes import gpu_plane  # few programs have a GPU

    if holds_no_collectives():
        why = "this TensorFlow computes on a GPU without CUDA"
    else:
        # One GPU may be several of TensorFlow's devices.
        physical = visible[0 if len(visible) == 1 else asked.device_index or 0]
        device = int(physical.name.rpartition(":")[2])
        usable = gpu_plane.use_in_every_life(session.require(), device)
        why = "" if usable else gpu_plane.why_not(session.require(), device)
    if why:
        raise UnsupportedError(f"{node} in a function compiled with XLA for a GPU: {why}. Leave jit_compile off.")


def _description(
    operator: str, tensors: Sequence[Any], shapes: Sequence[Any], attributes: dict[str, Any], name: str
) -> str:
    """What the core reads."""
    op_type = _TYPES[operator]
    names = [name] if len(tensors) == 1 else member_names(name, len(tensors))
    members = [
        TensorForm(own, _dtype(tensor), list(tensor.shape), shape.num_elements() * tensor.dtype.size)
        for own, tensor, shape in zip(names, tensors, shapes)
    ]
    factors = attributes.get("prescale_factor", "1"), attributes.get("postscale_factor", "1")
    numbers = attributes["process_set_id"], attributes.get("reduce_op", 0)
    return describe([DescribedOperation(op_type, members, *numbers, factors, attributes.get("root_rank", 0))])


def _dtype(tensor: Any) -> int:
    return dtypes.NAMES.index(tensor.dtype.name) if tensor.dtype.name in dtypes.NAMES else -1


def _result_shape(operator: str, node: str, tensor: Any, number: int) -> Any:
    if not tensor.shape.is_fully_defined():
        raise UnsupportedError(
            f"{called(_TYPES[operator], node)} in a function compiled with XLA needs a shape that is known at compile "
            f"time. Received: {tensor.shape}. Leave jit_compile off."
        )
    if operator in ("HorovodAllreduce", "HorovodBroadcast", "HorovodAlltoall"):
        return tensor.shape
    ranks = _members(number)
    rows, *rest = tensor.shape
    if operator == "HorovodAllgather":
        return tf.TensorShape([rows * len(ranks), *rest])  # checked when it runs
    return tf.TensorShape([own_rows(rows, ranks, session.require().rank), *rest])


def _members(number: int) -> list[int]:
    return list(process_sets.ids_and_ranks()[number])


def _without_splits(node: str, tensors: Sequence[Any]) -> Sequence[Any]:
    tensor, splits = tensors
    if splits.shape.num_elements() != 0:
        raise UnsupportedError(
            f"alltoall '{node}' with splits in a function compiled with XLA: the number of rows that "
            "arrive is not known at compile time. Leave jit_compile off."
        )
    return [tensor]
