"""The argument of `broadcast_parameters`, as a list of tensors and a list of other values with their places. Pure:
it looks at values and sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, Optional

import torch

from horovod._core.errors import InvalidArgumentError

__all__ = ["ParameterTree", "parameter_tree"]

# Entries of a module's state_dict that the module takes as a whole, whatever they hold.
_WHOLE: Final = ("_extra_state", "_packed_params")
_OPTIMIZER: Final = "an optimizer's state; use hvd.broadcast_optimizer_state(optimizer, root_rank)"
_SCHEDULER: Final = (
    "a learning rate scheduler's state; use scheduler.load_state_dict(hvd.broadcast_object(scheduler.state_dict(), "
    "root_rank))"
)
_SCALER: Final = (
    "a gradient scaler's state; use scaler.load_state_dict(hvd.broadcast_object(scaler.state_dict(), root_rank))"
)
_MODULE: Final = "a module; give a dictionary, model.state_dict()"


@dataclass
class ParameterTree:
    """The leaves of what was given.

    Attributes:
        tensors: (name, tensor), to be overwritten in place.
        places: name -> (container, key) of each other value, which is replaced there.
        taken: the names of all.
    """

    tensors: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    places: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def kinds(self) -> dict[str, str]:
        """name -> whether that leaf is a tensor, in an order that is the same for the same names."""
        kinds = dict.fromkeys((name for name, _ in self.tensors), "a tensor")
        return dict(sorted([*kinds.items(), *((name, "no tensor") for name in self.places)]))

    def others(self) -> dict[str, Any]:
        """The values that are not tensors, by name."""
        return {name: container[key] for name, (container, key) in self.places.items()}

    def put(self, values: Mapping[str, Any]) -> None:
        """Replaces the values that are not tensors."""
        for name, value in values.items():
            container, key = self.places[name]
            container[key] = value


def parameter_tree(params: Any) -> ParameterTree:
    """The leaves of a state_dict, of (name, value) tuples or of tensors; containers may be nested. None is skipped.

    Raises:
        InvalidArgumentError: something else; or the state of an optimizer, a scheduler or a scaler, of which a
            `state_dict` holds copies; or a value in a place where it cannot be replaced; or two leaves of one name.
    """
    form = _form(params)
    if form is not None and not isinstance(params, torch.nn.ParameterList):
        raise InvalidArgumentError(f"broadcast_parameters was given {form}.")
    tree = ParameterTree()
    for name, value, place in _entries(params):
        _take(tree, name, value, place)
    return tree


def _entries(params: Any) -> Iterator[tuple[str, Any, Optional[tuple[Any, Any]]]]:
    """The name and the value of each entry, and where the value can be replaced."""
    if isinstance(params, Mapping):
        for key, value in params.items():
            yield str(key), value, _place(params, key)
        return
    # A tensor can be iterated too, over its rows; a container of modules over these.
    if isinstance(params, torch.Tensor) or not isinstance(params, Iterable):
        raise _not_parameters(params)
    for index, entry in enumerate(params):
        pair = (None, entry) if isinstance(entry, torch.Tensor) else entry
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise _not_parameters(params)
        yield f"unnamed.{index}" if pair[0] is None else str(pair[0]), pair[1], None


def _take(tree: ParameterTree, name: str, value: Any, place: Optional[tuple[Any, Any]]) -> None:
    """Adds the leaves of one entry."""
    if value is None:
        return
    form = _form(value)
    if form is not None:
        raise InvalidArgumentError(f"broadcast_parameters: '{name}' is {form}.")
    if isinstance(value, torch.Tensor):
        if torch.nn.parameter.is_lazy(value):
            raise InvalidArgumentError(
                f"broadcast_parameters: '{name}' has no shape and no values yet, since its lazy module has seen no "
                "batch. Run one through the model first, on every rank; with elastic training before the function "
                "that hvd.elastic.run decorates is called."
            )
        _require_free(tree, name)
        if _is_expanded(value):
            raise InvalidArgumentError(
                f"broadcast_parameters: '{name}' is expanded: several of its elements share one place in memory, so it "
                "cannot be overwritten. Give the module a copy, tensor.clone()."
            )
        tree.tensors.append((name, value))
    elif name.rpartition(".")[2] not in _WHOLE and _holds_leaves(value):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inner in items:
            _take(tree, f"{name}.{key}", inner, _place(value, key))
    elif place is None:
        raise InvalidArgumentError(
            f"broadcast_parameters: '{name}' is not a tensor; only in a dictionary or a list can such values be "
            "replaced. Use hvd.broadcast_object for them."
        )
    else:
        _require_free(tree, name)
        tree.places[name] = place


def _require_free(tree: ParameterTree, name: str) -> None:
    # The dots of a name say nothing of the containers: {"a.b": 1} and {"a": {"b": 1}} give the same one.
    if name in tree.taken:
        raise InvalidArgumentError(
            f"broadcast_parameters: '{name}' names two entries, as the keys 1 and '1', or 'a.b' and 'b' within 'a' do. "
            "Rename one of them, or broadcast it in a call of its own."
        )
    tree.taken.add(name)


def _is_expanded(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.is_nested or not tensor.numel():
        return False
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride()))


def _place(container: Any, key: Any) -> Optional[tuple[Any, Any]]:
    return (container, key) if isinstance(container, (MutableMapping, list)) else None


def _holds_leaves(value: Any) -> bool:
    """True for a container, at any depth, of something that is broadcast in place or refused."""
    if isinstance(value, Mapping):
        inner: Iterable[Any] = value.values()
    elif isinstance(value, (list, tuple)):
        inner = value
    else:
        return False
    return any(isinstance(each, torch.Tensor) or _form(each) is not None or _holds_leaves(each) for each in inner)


def _form(value: Any) -> Optional[str]:
    """The name of a value that cannot be broadcast as parameters, and the function to use; None for all others."""
    if isinstance(value, torch.optim.Optimizer):
        return _OPTIMIZER.replace("'s state", "")
    if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
        return _SCHEDULER.replace("'s state", "", 1)
    if isinstance(value, torch.amp.GradScaler):
        return _SCALER.replace("'s state", "", 1)
    if isinstance(value, torch.nn.Module):
        return _MODULE
    if not isinstance(value, Mapping):
        return None
    if "state" in value and "param_groups" in value:
        return _OPTIMIZER
    if "_last_lr" in value or ("base_lrs" in value and "last_epoch" in value):
        return _SCHEDULER
    return _SCALER if "_growth_tracker" in value and "scale" in value else None


def _not_parameters(params: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        "broadcast_parameters needs a dictionary, e.g. model.state_dict(), (name, tensor) tuples, e.g. "
        f"model.named_parameters(), or a list of tensors. Received: {type(params).__name__}."
    )
