"""Making the ranks equal, and exchanging Python objects: broadcast of parameters, of optimizer state, of objects.

Used by training scripts after `hvd.init()` and by `horovod.torch.elastic`. Tensors travel as tensors, everything else
pickled; nothing here runs in the training loop itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Optional, Union

import torch

from horovod._core.errors import InvalidArgumentError, MismatchError
from horovod._core.operations.agreement import agree
from horovod._core.operations.objects import allgather_object, broadcast_object
from horovod.torch.broadcasts.optimizer_state import broadcast_optimizer_state
from horovod.torch.broadcasts.parameter_tree import ParameterTree, parameter_tree
from horovod.torch.broadcasts.tensor_broadcast import broadcast_tensors

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]

Parameters = Union[Mapping[str, Any], Iterable[Union[torch.Tensor, tuple[Optional[str], Any]]]]


def broadcast_parameters(params: Parameters, root_rank: int) -> None:
    """Overwrites parameters and buffers with the root's, in place.

    Collective. Typical use: `hvd.broadcast_parameters(model.state_dict(), root_rank=0)`.

    Args:
        params: a state_dict, (name, tensor) tuples as of `model.named_parameters()`, or tensors as of
            `model.parameters()`; the same names, dtypes and shapes on all ranks, and the same order where there is no
            name. Dictionaries, lists and tuples may be nested, as in `{"model": model.state_dict()}`. Values that are
            not tensors are replaced by the root's in the dictionary or list that holds them, which must be one that you
            keep; what a module's `get_extra_state` gave needs `model.load_state_dict` with that dictionary besides.
            None is skipped.
        root_rank: global rank that has the values.

    Raises:
        InvalidArgumentError: none of these; an optimizer, a scheduler or a gradient scaler or its `state_dict`, which
            holds copies (use `broadcast_optimizer_state`, `broadcast_object`); or a module that has no shapes yet; or
            two entries of one name. The other ranks get a MismatchError.
        MismatchError: the ranks have different names, dtypes or shapes, or a tensor where others have none.
    """
    tree, refusal = ParameterTree(), None
    try:
        tree = parameter_tree(params)
    except InvalidArgumentError as error:
        refusal = error
    _require_equal_entries(tree.kinds(), refusal)
    others = tree.others()
    if others:
        tree.put(broadcast_object(others, root_rank, name="parameters"))
    broadcast_tensors([(f"parameter.{name}", tensor) for name, tensor in tree.tensors], root_rank)


def _require_equal_entries(kinds: dict[str, str], refusal: Optional[InvalidArgumentError]) -> None:
    """Raises MismatchError on all ranks, so that none waits for another, if they have different names, or a tensor
    under a name that is not a tensor elsewhere. Collective."""
    digest = hashlib.sha256("\0".join(chain(*kinds.items())).encode("utf-8", "surrogatepass")).digest()
    if len(set(agree("broadcast_parameters", digest, refusal))) == 1:
        return
    everywhere: list[dict[str, str]] = allgather_object(kinds, "broadcast_parameters.names")
    first = everywhere[0]
    for rank, listed in enumerate(everywhere):
        missing = sorted(first.keys() ^ listed.keys())
        if missing:
            has, lacks = (rank, 0) if missing[0] in listed else (0, rank)
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise MismatchError(
                f"broadcast_parameters: rank {has} has '{missing[0]}'{more}, which rank {lacks} does not have. Give "
                "all ranks the same model, and call it on all of them with the same entries."
            )
        unlike = [name for name in listed if listed[name] != first[name]]
        if unlike:
            raise MismatchError(
                f"broadcast_parameters: '{unlike[0]}' is {first[unlike[0]]} on rank 0 and {listed[unlike[0]]} on rank "
                f"{rank}. Make it the same on all ranks, e.g. by torch.as_tensor, or broadcast it by "
                "hvd.broadcast_object."
            )
