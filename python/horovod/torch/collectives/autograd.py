"""Gradients of the collectives, for the registered operators (`operators`).

The gradients follow upstream's contract, so that models behave the same: allreduce gives the same allreduce of
the incoming gradient, allgather and broadcast the *average* over the ranks, reducescatter an allgather. Every gradient
is itself a collective: all members must run the backward pass. Importing this file registers them; it offers nothing
else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional

import torch

from horovod._core.errors import UnsupportedError
from horovod._core.life import session
from horovod._core.operations.reduce_ops import Average, Gradient, ReduceOp, Sum, meant
from horovod.torch.collectives import operators

__all__: list[str] = []

_Gradient = Optional[torch.Tensor]
_EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)


def _backward_name(name: Optional[str]) -> Optional[str]:
    return None if name is None else name + ".gradient"


def _size(process_set: int) -> int:
    ranks = operators.process_set_of(process_set).ranks
    return session.require().size if ranks is None else len(ranks)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, in float32 if PyTorch cannot calculate with its type. Gradients are converted back by PyTorch."""
    return tensor.float() if tensor.dtype in _EIGHT_BITS else tensor


def _register(name: str, backward: Callable[..., Any], setup: Callable[..., Any]) -> None:
    torch.library.register_autograd(f"horovod::{name}", backward, setup_context=setup, lib=operators._library)


# ---- allreduce


def _keep_reduction(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensors, name, op, average, pre, post, process_set = inputs
    grouped = not isinstance(tensors, torch.Tensor)
    ctx.arguments = (_backward_name(name), meant(op, average), pre, post, process_set)
    ctx.shapes = [(t.shape, t.dtype, t.device) for t in tensors] if grouped else None
    if ctx.arguments[1].row.gradient is Gradient.HOLDERS:
        ctx.save_for_backward(*(tensors if grouped else [tensors]))


def _allreduce_backward(ctx: Any, grad: torch.Tensor) -> tuple[_Gradient, ...]:
    name, op, pre, post, process_set = ctx.arguments
    if op.row.gradient is Gradient.HOLDERS:
        result = _extremum_gradient(grad, ctx.saved_tensors[0], ctx.arguments)
    else:
        _require_gradient(op)
        result = torch.ops.horovod.allreduce(grad, name, int(op), None, pre, post, process_set)
    return (result, *[None] * 6)


def _grouped_allreduce_backward(ctx: Any, grads: Sequence[_Gradient]) -> tuple[Any, ...]:
    name, op, pre, post, process_set = ctx.arguments
    dense = _materialized(grads, ctx.shapes)
    if op.row.gradient is Gradient.HOLDERS:
        results = [_extremum_gradient(grad, x, ctx.arguments) for grad, x in zip(dense, ctx.saved_tensors)]
    else:
        _require_gradient(op)
        results = torch.ops.horovod.grouped_allreduce(dense, name, int(op), None, pre, post, process_set)
    return (list(results), *[None] * 6)


def _require_gradient(op: ReduceOp) -> None:
    if op.row.gradient is Gradient.NONE:
        raise UnsupportedError(
            f"allreduce with op=hvd.{op} has no gradient here. Sum the logarithms with op=hvd.Sum instead, or "
            "detach the tensor."
        )


def _extremum_gradient(grad: torch.Tensor, tensor: torch.Tensor, arguments: tuple[Any, ...]) -> torch.Tensor:
    """The gradient of Min and Max: goes to the ranks that hold the extremum, in equal parts if there are several."""
    _, op, pre, post, process_set = arguments
    grad, scaled = _wide(grad), _wide(tensor) * pre
    extremum = torch.ops.horovod.allreduce(scaled, None, int(op), None, 1.0, 1.0, process_set)
    held = (scaled == extremum).to(grad.dtype)
    holders = torch.ops.horovod.allreduce(held, None, int(Sum), None, 1.0, 1.0, process_set)
    total = torch.ops.horovod.allreduce(grad, None, int(Sum), None, 1.0, pre * post, process_set)
    result: torch.Tensor = total * held / holders
    return result


def _materialized(grads: Sequence[_Gradient], shapes: list[Any]) -> list[torch.Tensor]:
    """Zeros for outputs without a use: the other members take part for them too."""
    return [
        torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad
        for grad, (shape, dtype, device) in zip(grads, shapes)
    ]


_register("allreduce", _allreduce_backward, _keep_reduction)
_register("grouped_allreduce", _grouped_allreduce_backward, _keep_reduction)


# ---- allgather


def _run_allgather_backward(
    grads: Sequence[torch.Tensor], rows: Sequence[int], name: Optional[str], process_set: int
) -> list[torch.Tensor]:
    members = operators.process_set_of(process_set)
    reduced = operators.collectives.grouped_allreduce(
        [operators._dense(grad) for grad in grads], None, name, op=Average, process_set=members
    )
    sizes = operators.collectives.allgather(
        torch.tensor([list(rows)]), None if name is None else name + ".rows", members
    )
    index = members.rank() if members.ranks is not None else session.require().rank
    starts = sizes[:index].sum(0).tolist()
    return [part[start : start + count].clone() for part, start, count in zip(reduced, starts, rows)]


def _blocks(grads: Sequence[torch.Tensor], rows: Sequence[Any], *_: Any) -> list[torch.Tensor]:
    return [
        torch.empty((count, *grad.shape[1:]), dtype=grad.dtype, device=grad.device) for grad, count in zip(grads, rows)
    ]


def _keep_allgather(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensors, name, process_set, _ = inputs
    grouped = not isinstance(tensors, torch.Tensor)
    ctx.rows = [t.shape[0] for t in tensors] if grouped else [tensors.shape[0]]
    ctx.shapes = [(t.shape, t.dtype, t.device) for t in output] if grouped else None
    ctx.arguments = (_backward_name(name), process_set)


def _allgather_backward(ctx: Any, grad: torch.Tensor) -> tuple[_Gradient, ...]:
    return torch.ops.horovod.allgather_gradient([grad], ctx.rows, *ctx.arguments)[0], None, None, None


def _grouped_allgather_backward(ctx: Any, grads: Sequence[_Gradient]) -> tuple[Any, ...]:
    dense = _materialized(grads, ctx.shapes)
    return list(torch.ops.horovod.allgather_gradient(dense, ctx.rows, *ctx.arguments)), None, None, None


def _keep_allgather_gradient(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grads, _, name, process_set = inputs
    ctx.rows = [grad.shape[0] for grad in grads]
    ctx.shapes = [(t.shape, t.dtype, t.device) for t in output]
    ctx.arguments = (_backward_name(name), process_set)


def _allgather_gradient_backward(ctx: Any, grads: Sequence[_Gradient]) -> tuple[Any, ...]:
    name, process_set = ctx.arguments
    dense = _materialized(grads, ctx.shapes)
    gathered = torch.ops.horovod.grouped_allgather(dense, name, process_set, ctx.rows)
    return [_wide(part) / _size(process_set) for part in gathered], None, None, None


operators._define(
    "allgather_gradient(Tensor[] grads, SymInt[] rows, str? name, int process_set) -> Tensor[]",
    _run_allgather_backward,
    _blocks,
)
_register("allgather_gradient", _allgather_gradient_backward, _keep_allgather_gradient)
_register("allgather", _allgather_backward, _keep_allgather)
_register("grouped_allgather", _grouped_allgather_backward, _keep_allgather)


# ---- broadcast


def _run_broadcast_backward(grad: torch.Tensor, root_rank: int, name: Optional[str], process_set: int) -> torch.Tensor:
    members = operators.process_set_of(process_set)
    reduced: torch.Tensor = operators.collectives.allreduce(
        operators._dense(grad), None, name, op=Average, process_set=members
    )
    return reduced if session.require().rank == root_rank else reduced.zero_()


def _keep_broadcast(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, root_rank, name, process_set = inputs
    ctx.arguments = (root_rank, _backward_name(name), process_set)


def _broadcast_backward(ctx: Any, grad: torch.Tensor) -> tuple[_Gradient, ...]:
    return torch.ops.horovod.broadcast_gradient(grad, *ctx.arguments), None, None, None


def _broadcast_gradient_backward(ctx: Any, grad: torch.Tensor) -> tuple[_Gradient, ...]:
    root_rank, name, process_set = ctx.arguments
    sent = torch.ops.horovod.broadcast(grad, root_rank, name, process_set)
    return _wide(sent) / _size(process_set), None, None, None


operators._define(
    "broadcast_gradient(Tensor grad, int root_rank, str? name, int process_set) -> Tensor",
    _run_broadcast_backward,
    lambda grad, *_: operators._fresh(grad),
)
_register("broadcast_gradient", _broadcast_gradient_backward, _keep_broadcast)
_register("broadcast", _broadcast_backward, _keep_broadcast)


# ---- alltoall


def _keep_alltoall(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensor, splits, name, process_set, _ = inputs
    ctx.rows = tensor.shape[0]
    ctx.all_sent = splits is None
    ctx.arguments = (_backward_name(name), process_set)
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _alltoall_backward(ctx: Any, grad: torch.Tensor, _: _Gradient) -> tuple[_Gradient, ...]:
    name, process_set = ctx.arguments
    (received_splits,) = ctx.saved_tensors
    rows = ctx.rows if ctx.all_sent else -1
    result, _ = torch.ops.horovod.alltoall(grad, received_splits, name, process_set, rows)
    if not ctx.all_sent:
        # Rows beyond the splits went nowhere.
        unsent = torch.zeros((ctx.rows - result.shape[0], *result.shape[1:]), dtype=result.dtype, device=result.device)
        result = torch.cat([result, unsent])
    return result, None, None, None, None


_register("alltoall", _alltoall_backward, _keep_alltoall)


# ---- reducescatter


def _keep_reducescatter(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensors, name, op, pre, post, process_set = inputs
    grouped = not isinstance(tensors, torch.Tensor)
    ctx.rows = [t.shape[0] for t in tensors] if grouped else [tensors.shape[0]]
    ctx.shapes = [(t.shape, t.dtype, t.device) for t in output] if grouped else None
    # Upstream's convention: a sum's gradient counts once for every rank, an average's once.
    ctx.scale = pre * post * (1 if meant(op).row.divides else _size(process_set))
    ctx.arguments = (_backward_name(name), process_set)


def _reducescatter_backward(ctx: Any, grad: torch.Tensor) -> tuple[_Gradient, ...]:
    gathered = torch.ops.horovod.allgather(grad, *ctx.arguments, ctx.rows[0])
    return (_wide(gathered) * ctx.scale if ctx.scale != 1 else gathered, *[None] * 5)


def _grouped_reducescatter_backward(ctx: Any, grads: Sequence[_Gradient]) -> tuple[Any, ...]:
    dense = _materialized(grads, ctx.shapes)
    gathered = torch.ops.horovod.grouped_allgather(dense, *ctx.arguments, ctx.rows)
    return ([_wide(part) * ctx.scale for part in gathered], *[None] * 5)


_register("reducescatter", _reducescatter_backward, _keep_reducescatter)
_register("grouped_reducescatter", _grouped_reducescatter_backward, _keep_reducescatter)
