"""Making an optimizer's state equal on all ranks.

The root describes its state (which entries each parameter has, their types and shapes, and all plain values), the
others build tensors to match, and only then do the tensors travel. No optimizer step is made to create state: it would
decay weights and move schedules. Used through `horovod.torch.functions`.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import torch

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import context
from horovod._core.operations.agreement import agree
from horovod._core.operations.objects import broadcast_object
from horovod.torch.broadcasts.tensor_broadcast import broadcast_tensors
from horovod.torch.gradients.optimizer_names import Scope

__all__ = ["broadcast_optimizer_state"]


@dataclass(frozen=True)
class _Leaf:
    """A tensor of the root's state. `on_host`: it lives on the CPU even if the parameter does not (step counters)."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    on_host: bool


@dataclass(frozen=True)
class _Description:
    state: dict[Any, Any]  # parameter index (or the optimizer's own key) -> structure of leaves and plain values
    groups: list[dict[str, Any]]  # options of each parameter group, without the parameters
    extra: dict[str, Any]  # other entries of state_dict()
    scope: Optional[Scope]  # of a DistributedOptimizer's names


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: Optional[torch.nn.Module] = None
) -> None:
    """Makes state and options of an optimizer equal to the root's.

    Collective. The other ranks' optimizers need not have any state yet; state that the root lacks is dropped.
    Works for every optimizer that keeps its state per parameter. Parameters without a gradient get one of zeros.

    Args:
        optimizer: over the same parameters, in the same groups, on all ranks; plain or distributed.
        root_rank: global rank that has the state.
        model: accepted because existing scripts pass it; not needed, since no step is made to create state.

    Raises:
        InvalidArgumentError: no optimizer; or LBFGS, whose state is not per parameter (the other ranks get a
            MismatchError); or the ranks' parameter groups differ.
    """
    _require_equal_groups(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    is_root = context.rank() == root_rank
    description = broadcast_object(_describe(optimizer, parameters) if is_root else None, root_rank, "optimizer_state")
    tensors: list[tuple[str, torch.Tensor]] = []
    _fill_state(optimizer, parameters, description, tensors, is_root)
    broadcast_tensors(tensors, root_rank)
    if description.extra and not is_root:
        optimizer.load_state_dict({**optimizer.state_dict(), **description.extra})
    _give_gradients(optimizer, parameters)
    adopt = getattr(optimizer, "_adopt_scope", None)
    if adopt is not None and description.scope is not None:
        adopt(description.scope)


def _require_equal_groups(optimizer: Any) -> None:
    """Raises on all ranks, so that none waits for another, if a rank gives no optimizer whose state can be sent, or
    parameter groups differ in size. Collective."""
    refusal = _refusal(optimizer)
    own = [] if refusal is not None else [len(group["params"]) for group in optimizer.param_groups]
    for rank, sizes in enumerate(agree("broadcast_optimizer_state", own, refusal)):
        if sizes != own:
            raise InvalidArgumentError(
                f"broadcast_optimizer_state: this rank's optimizer has parameter groups of {own} parameters, that of "
                f"rank {rank} of {sizes}. Give all ranks the same model and groups."
            )


def _refusal(optimizer: Any) -> Optional[InvalidArgumentError]:
    """Why the state cannot be sent; None if it can."""
    if isinstance(optimizer, torch.optim.LBFGS):
        return InvalidArgumentError(
            "broadcast_optimizer_state cannot send the state of torch.optim.LBFGS, which is not kept per parameter. "
            "Use hvd.broadcast_object on its state_dict()."
        )
    if hasattr(optimizer, "param_groups") and hasattr(optimizer, "state"):
        return None
    remedy = ""
    if isinstance(optimizer, torch.nn.Module):
        remedy = " For a model use hvd.broadcast_parameters(model.state_dict(), root_rank)."
    elif isinstance(optimizer, Mapping):
        remedy = " Its state_dict holds copies: give the optimizer itself."
    return InvalidArgumentError(
        f"broadcast_optimizer_state needs an optimizer of torch.optim. Received: {type(optimizer).__name__}.{remedy}"
    )


def _give_gradients(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> None:
    """Zeros where there is no gradient: programs send `p.grad` next. SparseAdam takes no dense ones."""
    if isinstance(optimizer, torch.optim.SparseAdam):
        return
    for parameter in parameters:
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, requires_grad=False)
            _yield_to_sparse(parameter)


def _yield_to_sparse(parameter: torch.nn.Parameter) -> None:
    """Lets the first gradient take the place of the zeros if it is sparse: added to them it would be dense, and nobody
    would learn that this parameter's gradients are sparse."""
    owner, zeros = weakref.ref(parameter), weakref.ref(parameter.grad)

    def look(gradient: torch.Tensor) -> None:
        handle.remove()
        held, given = owner(), zeros()
        if gradient.layout is torch.strided or held is None or given is None or held.grad is not given:
            return
        if not given.any():
            held.grad = None

    register: Any = parameter.register_hook
    handle = register(look)


def _describe(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> _Description:
    index_of = {id(p): index for index, p in enumerate(parameters)}
    state: dict[Any, Any] = {}
    for key, value in optimizer.state.items():
        if isinstance(key, torch.Tensor):
            index = index_of.get(id(key))
            if index is not None:
                state[index] = _outline(value)
        else:
            state[("own", key)] = _outline(value)
    groups = [_outline({k: v for k, v in group.items() if k != "params"}) for group in optimizer.param_groups]
    extra = {k: v for k, v in optimizer.state_dict().items() if k not in ("state", "param_groups")}
    return _Description(state, groups, extra, getattr(optimizer, "_scope", None))


def _outline(value: Any) -> Any:
    """The value with a description in the place of every tensor."""
    if isinstance(value, torch.Tensor):
        return _Leaf(value.dtype, tuple(value.shape), tuple(value.stride()), value.is_cpu)
    if isinstance(value, dict):
        return {k: _outline(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_outline(v) for v in value)
    return value


def _fill_state(
    optimizer: torch.optim.Optimizer,
    parameters: list[torch.nn.Parameter],
    description: _Description,
    tensors: list[tuple[str, torch.Tensor]],
    is_root: bool,
) -> None:
    """Gives the optimizer the described structure, and lists its tensors in an order that is the same on all ranks."""
    wanted: dict[Any, Any] = {}
    for key, outline in description.state.items():
        own = key[1] if isinstance(key, tuple) else parameters[key]
        device = own.device if isinstance(own, torch.Tensor) else torch.device("cpu")
        name = f"optimizer_state.{key[1] if isinstance(key, tuple) else key}"
        wanted[own] = _fill(outline, optimizer.state.get(own), device, name, tensors)
    for index, (group, outline) in enumerate(zip(optimizer.param_groups, description.groups)):
        device = group["params"][0].device if group["params"] else torch.device("cpu")
        old = {k: v for k, v in group.items() if k != "params"}
        filled = _fill(outline, old, device, f"optimizer_group.{index}", tensors)
        if not is_root:
            group.update(filled)
    if not is_root:
        optimizer.state.clear()
        optimizer.state.update(wanted)


def _fill(outline: Any, old: Any, device: torch.device, name: str, tensors: list[tuple[str, torch.Tensor]]) -> Any:
    """The value that an outline describes; its tensors are `old`'s where they fit, else new ones, and are appended to
    `tensors`."""
    if isinstance(outline, _Leaf):
        tensor = old if _fits(old, outline) else _allocate(outline, device)
        tensors.append((name, tensor))
        return tensor
    if isinstance(outline, dict):
        before = old if isinstance(old, dict) else {}
        return {k: _fill(v, before.get(k), device, f"{name}.{k}", tensors) for k, v in outline.items()}
    if type(outline) in (list, tuple):
        held = old if isinstance(old, (list, tuple)) and len(old) == len(outline) else [None] * len(outline)
        items = [_fill(v, held[i], device, f"{name}.{i}", tensors) for i, v in enumerate(outline)]
        return type(outline)(items)
    return outline


def _fits(old: Any, leaf: _Leaf) -> bool:
    return (
        isinstance(old, torch.Tensor)
        and old.dtype is leaf.dtype
        and tuple(old.shape) == leaf.shape
        and tuple(old.stride()) == leaf.stride
        and (old.is_cpu or not leaf.on_host)
    )


def _allocate(leaf: _Leaf, device: torch.device) -> torch.Tensor:
    where = torch.device("cpu") if leaf.on_host else device
    return torch.empty_strided(leaf.shape, leaf.stride, dtype=leaf.dtype, device=where)
