"""Making the ranks equal, and exchanging Python objects: broadcast of parameters, of optimizer state, of objects.

Used by training scripts after `hvd.init()` and by `horovod.torch.elastic`. Tensors travel as tensors, everything else
pickled; nothing here runs in the training loop itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Union

import torch

from horovod._core.errors import InvalidArgumentError
from horovod._core.objects import allgather_object, broadcast_object
from horovod.torch.optimizer_state import broadcast_optimizer_state
from horovod.torch.tensor_broadcast import broadcast_tensors

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]

Parameters = Union[Mapping[str, Any], Iterable[tuple[str, Any]]]


def broadcast_parameters(params: Parameters, root_rank: int) -> None:
    """Overwrites parameters and buffers with the root's, in place.

    Collective. Typical use: `hvd.broadcast_parameters(model.state_dict(), root_rank=0)`.

    Args:
        params: a state_dict, or (name, tensor) tuples as of `model.named_parameters()`; the same names, dtypes and
            shapes on all ranks. Values of a dictionary that are not tensors are replaced by the root's if they differ;
            None is skipped.
        root_rank: global rank that has the values.

    Raises:
        InvalidArgumentError: neither a dictionary nor (name, tensor) tuples; or the ranks have different names.
    """
    named = _named_values(params)
    tensors = [(f"parameter.{name}", value) for name, value in named if isinstance(value, torch.Tensor)]
    others = {name: value for name, value in named if not isinstance(value, torch.Tensor) and value is not None}
    if others:
        if not isinstance(params, dict):
            raise InvalidArgumentError(
                f"broadcast_parameters: '{next(iter(others))}' is no tensor; only in a dictionary can such values be "
                "replaced. Use "
                "hvd.broadcast_object for them."
            )
        params.update(broadcast_object(others, root_rank, name="parameters"))
    broadcast_tensors(tensors, root_rank)


def _named_values(params: Any) -> list[tuple[str, Any]]:
    if isinstance(params, Mapping):
        return list(params.items())
    try:
        named = list(params)
    except TypeError:
        named = [None]
    if not all(isinstance(entry, tuple) and len(entry) == 2 for entry in named):
        raise InvalidArgumentError(
            "broadcast_parameters needs a dictionary, e.g. model.state_dict(), or (name, tensor) tuples, e.g. "
            "model.named_parameters(). "
            f"Received: {type(params).__name__}."
        )
    return named
