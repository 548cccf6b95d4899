"""Which way a call goes: straight to the core's collectives, or through a registered operator; and what the ways need.

Autograd must see an operation on a tensor that needs a gradient, torch.compile every operation that it traces. Handles
do not fit into graphs: what makes or takes one breaks the graph. Used by `ops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch
from torch.compiler import is_compiling

from horovod._core.errors import InvalidArgumentError
from horovod._core.life.process_sets import ProcessSet
from horovod.torch.adapter import PLAIN_TYPES, adapter, is_sharded
from horovod.torch.collectives.operators import collectives
from horovod.torch.graphs import constant_in_graphs, outside_graphs
from horovod.torch.versions import increment_versions

__all__ = [
    "dense", "member_count", "needs_operator", "number_of", "promised_rows", "start_outside_graphs",
    "wait_outside_graphs",
]  # fmt: skip


def needs_operator(tensors: Sequence[Any]) -> bool:
    """True if autograd or a tracer must see the operation."""
    if is_compiling():
        return True
    for tensor in tensors:
        if type(tensor) in PLAIN_TYPES:
            if tensor.requires_grad and torch.is_grad_enabled():
                return not tensor.is_meta  # refused by the core, which lets the other ranks know
        elif isinstance(tensor, torch.Tensor):
            return not (is_sharded(tensor) or tensor.is_nested)
    return False


def number_of(process_set: ProcessSet) -> int:
    number = process_set.process_set_id if isinstance(process_set, ProcessSet) else None
    if number is None:
        raise InvalidArgumentError(
            "process_set must be an hvd.ProcessSet that is registered with hvd.init or hvd.add_process_set. "
            f"Received: {process_set!r}."
        )
    return number


def dense(tensor: Any) -> Any:
    """The tensor, or a contiguous copy; out-of-place operations take any strides."""
    if isinstance(tensor, torch.Tensor) and not adapter.is_contiguous(tensor):
        return adapter.contiguous(tensor)
    return tensor


@constant_in_graphs
def _sizes_may_be_unknown() -> bool:
    import torch._dynamo.config as dynamo_config

    return bool(dynamo_config.capture_dynamic_output_shape_ops)


def promised_rows(own_rows: Any, members: int) -> Any:
    """For the operators: how many rows a graph may count on; -1 = it may not. Only a tracer that cannot cope with
    unknown sizes is promised any."""
    return own_rows * members if is_compiling() and not _sizes_may_be_unknown() else -1


def member_count(process_set: ProcessSet) -> int:
    return len(process_set.ranks or ())


def _start_and_tell_autograd(tensor: torch.Tensor, *arguments: Any) -> int:
    handle = collectives.allreduce_async_(tensor, *arguments)
    increment_versions((tensor,))
    return handle


# torch.compile breaks its graph instead of looking inside these. The functions that time matters for ask first whether
# they are traced: a disabled function costs a microsecond also where nothing is compiled.
start_outside_graphs: Callable[..., int] = outside_graphs(_start_and_tell_autograd)
wait_outside_graphs: Callable[[int], Any] = outside_graphs(collectives.synchronize)
