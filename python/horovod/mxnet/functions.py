"""Making the ranks' parameters equal, also those that get their shape later; exchanging Python objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import mxnet as mx
from mxnet.gluon.parameter import DeferredInitializationError, Parameter, ParameterDict

from horovod._core.errors import InvalidArgumentError
from horovod._core.operations.objects import allgather_object, broadcast_object
from horovod.mxnet.failures import wait_for
from horovod.mxnet.ops import broadcast_

__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: Optional[str] = None) -> None:
    """Gives all ranks the root's parameters, in place. Those whose shape is not known yet follow when a first batch
    tells it.

    Collective.

    Args:
        params: `block.collect_params()`; or a dictionary of gluon's parameters, or of arrays, such as the parts of
            `module.get_params()`, which `module.set_params` then takes. Names equal on all ranks.
        root_rank: the rank that has the values.
        prefix: what the names of the operations begin with.

    Raises:
        InvalidArgumentError: something else (it is a ValueError).
        MismatchError: the ranks disagree on a shape or dtype.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    if not isinstance(params, (Mapping, ParameterDict)):
        raise InvalidArgumentError(
            "broadcast_parameters needs what block.collect_params() returns, or a dictionary of parameters or arrays. "
            f"Received: {type(params).__name__}."
        )
    sent = []
    for name, value in sorted(params.items()):
        own = f"{prefix or ''}{name}"
        if isinstance(value, mx.nd.NDArray):
            sent.append(broadcast_(value, root_rank, own))
        elif not isinstance(value, Parameter):
            raise InvalidArgumentError(
                f"broadcast_parameters: '{name}' must be a parameter of gluon or an array. Received: "
                f"{type(value).__name__}."
            )
        else:
            try:
                sent += _broadcast(value, root_rank, own)
            except DeferredInitializationError:
                _broadcast_when_shaped(value, root_rank, own)
    wait_for(sent)


def _broadcast(parameter: Any, root_rank: int, name: str) -> list[Any]:
    """Of all its copies, each on a device."""
    copies = parameter.list_data()
    return [broadcast_(data, root_rank, name if index == 0 else f"{name}.{index}") for index, data in enumerate(copies)]


def _broadcast_when_shaped(parameter: Any, root_rank: int, name: str) -> None:
    initialize = parameter._init_impl

    def initialize_and_broadcast(*arguments: Any) -> None:
        del parameter._init_impl  # once
        initialize(*arguments)
        _broadcast(parameter, root_rank, name)

    parameter._init_impl = initialize_and_broadcast
