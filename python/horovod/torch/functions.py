"""Making the ranks equal, and exchanging Python objects: broadcast of parameters, of optimizer state, of objects.

Used by training scripts after `hvd.init()` and by `horovod.torch.elastic`. Tensors travel as tensors, everything else
pickled; nothing here runs in the training loop itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union

import torch

from horovod._core.errors import InvalidArgumentError
from horovod._core.operations.objects import allgather_object, broadcast_object
from horovod.torch.optimizer_state import broadcast_optimizer_state
from horovod.torch.tensor_broadcast import broadcast_tensors

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]

Parameters = Union[Mapping[str, Any], Iterable[Union[torch.Tensor, tuple[Optional[str], Any]]]]


def broadcast_parameters(params: Parameters, root_rank: int) -> None:
    """Overwrites parameters and buffers with the root's, in place.

    Collective. Typical use: `hvd.broadcast_parameters(model.state_dict(), root_rank=0)`.

    Args:
        params: a state_dict, (name, tensor) tuples as of `model.named_parameters()`, or tensors as of
            `model.parameters()`; the same names, dtypes and shapes on all ranks, and the same order where there is no
            name. Values of a dictionary that are not tensors are replaced there by the root's; what a module's
            `get_extra_state` gave needs `model.load_state_dict` with that dictionary besides. None is skipped.
        root_rank: global rank that has the values.

    Raises:
        InvalidArgumentError: none of these; or the ranks have different names; or a module has no shapes yet.
    """
    named = _named_values(params)
    shapeless = next((name for name, value in named if torch.nn.parameter.is_lazy(value)), None)
    if shapeless is not None:
        raise InvalidArgumentError(
            f"broadcast_parameters: '{shapeless}' has no shape and no values yet, since its lazy module has seen no "
            "batch. Run one through the model first, on every rank; with elastic training before the function that "
            "hvd.elastic.run decorates is called."
        )
    tensors = [(f"parameter.{name}", value) for name, value in named if isinstance(value, torch.Tensor)]
    others = {name: value for name, value in named if not isinstance(value, torch.Tensor) and value is not None}
    if others:
        if not isinstance(params, dict):
            raise InvalidArgumentError(
                f"broadcast_parameters: '{next(iter(others))}' is no tensor; only in a dictionary can such values be "
                "replaced. Use hvd.broadcast_object for them."
            )
        params.update(broadcast_object(others, root_rank, name="parameters"))
    broadcast_tensors(tensors, root_rank)


def _named_values(params: Any) -> list[tuple[str, Any]]:
    if isinstance(params, Mapping):
        return list(params.items())
    # A tensor can be iterated too, over its rows; a container of modules over these.
    if isinstance(params, torch.Tensor) or not isinstance(params, Iterable):
        raise _not_parameters(params)
    named = []
    for index, entry in enumerate(params):
        pair = (None, entry) if isinstance(entry, torch.Tensor) else entry
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise _not_parameters(params)
        named.append((f"unnamed.{index}" if pair[0] is None else pair[0], pair[1]))
    return named


def _not_parameters(params: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        "broadcast_parameters needs a dictionary, e.g. model.state_dict(), (name, tensor) tuples, e.g. "
        f"model.named_parameters(), or a list of tensors. Received: {type(params).__name__}."
    )
