"""The state of a PyTorch training that survives a change of ranks: models, optimizers, samplers and plain objects.

Used by training scripts through `horovod.torch.elastic.TorchState`. The retry loop is framework-neutral and lives in
`horovod._core.training.elastic`; this file only says how each kind of value is saved, restored and made equal on all
ranks.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Generic, Optional, TypeVar

import torch

from horovod._core.life import context
from horovod._core.training.elastic.state import ObjectState
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]

T = TypeVar("T")


class StateHandler(Generic[T]):
    """How one kind of value is saved, restored and synchronised. Subclass it and register it for a type of your own.

    Args:
        value: the live object, which is changed in place by `restore` and `sync`.
    """

    def __init__(self, value: T) -> None:
        self.value = value

    def save(self) -> None:
        """Remembers the value in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Takes back all changes since the last `save`."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes the value equal on all ranks, then saves it. Collective."""
        raise NotImplementedError

    def set_value(self, value: T) -> None:
        """Handles another object from now on, and saves it."""
        self.value = value
        self.save()


class ModelStateHandler(StateHandler[torch.nn.Module]):
    """Parameters and buffers of a module; rank 0 has the truth."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self._saved_model_state: dict[str, Any] = copy.deepcopy(self.value.state_dict())

    def save(self) -> None:
        self._saved_model_state = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(self._saved_model_state)

    def sync(self) -> None:
        state = self.value.state_dict()
        broadcast_parameters(state, root_rank=0)
        if not all(isinstance(value, torch.Tensor) for value in state.values()):
            self.value.load_state_dict(state)  # what is no tensor was replaced in the dictionary only
        self.save()


class OptimizerStateHandler(StateHandler[torch.optim.Optimizer]):
    """State and settings of an optimizer; rank 0 has the truth."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self._saved_state: dict[str, Any] = copy.deepcopy(self.value.state_dict())

    def save(self) -> None:
        self._saved_state = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        # load_state_dict may keep the tensors it is given, so that training on would change what was saved.
        self.value.load_state_dict(copy.deepcopy(self._saved_state))
        # Those of the step that failed must not be added to the next one's.
        self.value.zero_grad()

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(StateHandler[ElasticSampler]):
    """Epoch and progress of an `ElasticSampler`; rank 0 has the truth, as it has for the model that the samples went
    into."""

    def __init__(self, sampler: ElasticSampler) -> None:
        super().__init__(sampler)
        self._saved_state: dict[str, Any] = sampler.state_dict()

    def save(self) -> None:
        self._saved_state = self.value.state_dict()

    def restore(self) -> None:
        self.value.load_state_dict(self._saved_state)

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank=0, name="elastic.sampler"))
        self.save()


_handler_registry: list[tuple[type[Any], Callable[[Any], StateHandler[Any]]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type[Any], Callable[[Any], StateHandler[Any]]]]:
    """The (type, handler class) pairs in order; the first that matches a value is used. The list itself may be
    changed."""
    return _handler_registry


def set_handler_registry(registry: list[tuple[type[Any], Callable[[Any], StateHandler[Any]]]]) -> None:
    """Replaces the (type, handler class) pairs that `TorchState` chooses from."""
    global _handler_registry
    _handler_registry = registry


class TorchState(ObjectState):
    """Everything that a training needs to go on after a failure or a change of hosts.

    Modules, optimizers and `ElasticSampler`s (and types of the handler registry) are changed in place; all other
    keyword arguments are picklable objects that become attributes.

    Args:
        model: a module, optional.
        optimizer: an optimizer, optional.
        **kwargs: further values, each becomes an attribute of this name.
    """

    _handlers: dict[str, StateHandler[Any]]

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        **kwargs: Any,
    ) -> None:
        if model is not None:
            kwargs["model"] = model
        if optimizer is not None:
            kwargs["optimizer"] = optimizer
        handlers, objects = _split_by_handler(kwargs)
        # The base class has no attribute of this name before, so __setattr__ below must already find the dictionary.
        self.__dict__["_handlers"] = handlers
        super().__init__(bcast_object=broadcast_object, get_rank=context.rank, **objects)
        for name, handler in handlers.items():
            self.__dict__[name] = handler.value
        if model is None:
            self.__dict__.setdefault("model", None)
        if optimizer is None:
            self.__dict__.setdefault("optimizer", None)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def _keepers(self) -> list[Any]:
        return [self, *self._handlers.values()]

    def reset(self) -> None:
        super().reset()
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        handler = self.__dict__["_handlers"].get(name)
        if handler is not None:
            handler.set_value(value)


def _split_by_handler(values: dict[str, Any]) -> tuple[dict[str, StateHandler[Any]], dict[str, Any]]:
    handlers: dict[str, StateHandler[Any]] = {}
    objects: dict[str, Any] = {}
    for name, value in values.items():
        for kind, handler in _handler_registry:
            if isinstance(value, kind):
                handlers[name] = handler(value)
                break
        else:
            objects[name] = value
    return handlers, objects
