"""The state of a PyTorch training that survives a change of ranks: models, optimizers, samplers and plain objects.

Used by training scripts through `horovod.torch.elastic.TorchState`. The retry loop is framework-neutral and lives in
`horovod._core.training.elastic`; this file only says how each kind of value is saved, restored and made equal on all
ranks.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any, Callable, Generic, Optional, TypeVar

import torch

from horovod._core.life import context
from horovod._core.training.elastic.snapshot import Snapshot, leaves, settle
from horovod._core.training.elastic.state import ObjectState
from horovod.torch.elastic.arrival import await_collectives
from horovod.torch.elastic.copies import held, overwritten
from horovod.torch.elastic.lending import given_to
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from horovod.torch.optimizers.distributed_methods import DistributedMethods

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "SchedulerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]

T = TypeVar("T")


class _Handled:
    """Stands in a commit for an object that a handler keeps: its holders there hold the living one when restored.

    Part of the format of durable commits.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        return memo[self.name]


class StateHandler(Generic[T]):
    """How one kind of value is saved, restored and synchronised. Subclass it and register it for a type of your own.

    Args:
        value: the live object, which is changed in place by `restore` and `sync`.
    """

    def __init__(self, value: T) -> None:
        self.value = value

    def save(self) -> None:
        """Saves the value in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Undoes all changes since the last `save`."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes the value equal on all ranks, then saves it. Collective."""
        raise NotImplementedError

    def set_value(self, value: T) -> None:
        """Handles another object from now on, and saves it."""
        self.value = value
        self.save()

    def _to_write(self) -> Snapshot:
        """The values that were saved last, for a durable commit: of a handler of the user's, its attributes."""
        return Snapshot({name: value for name, value in vars(self).items() if name != "value"})

    def _take_over(self, saved: Any) -> None:
        """Keeps what a durable commit has of it as saved last."""
        vars(self).update(saved)


class _SnapshotHandler(StateHandler[T]):
    """A handler that saves a snapshot of `_state`."""

    def __init__(self, value: T) -> None:
        super().__init__(value)
        self._saved = Snapshot(self._state(), None, self._stand_ins())

    def save(self) -> None:
        self._saved = Snapshot(self._state(), self._saved, self._stand_ins())

    def _state(self) -> Any:
        state: Any = self.value
        return state.state_dict()

    def _stand_ins(self) -> dict[int, Any]:
        """See `Snapshot`'s `instead`."""
        return {}

    def _to_write(self) -> Snapshot:
        return self._saved

    def _take_over(self, saved: Any) -> None:
        self._saved = Snapshot.holding(saved)


class ModelStateHandler(_SnapshotHandler[torch.nn.Module]):
    """Parameters and buffers of a module, synchronised from rank 0."""

    def _state(self) -> Any:
        try:
            state = self.value.state_dict(keep_vars=True)
        except TypeError:  # a model may have a state_dict of its own
            state = self.value.state_dict()
        # Another dictionary, of the same type and with the versions that torch notes on it: a model's own state_dict
        # may give the one that it works with.
        taken = copy.copy(state)
        taken.update({name: held(value) for name, value in state.items()})
        return taken

    def restore(self) -> None:
        self.value.load_state_dict(given_to(self.value, self._saved.value))

    def sync(self) -> None:
        state = self.value.state_dict()
        broadcast_parameters(state, root_rank=0)
        # Values that are not tensors were replaced in the dictionary only; modules and hooks may give copies of
        # tensors.
        if not all(isinstance(value, torch.Tensor) for value in state.values()) or not self._has(state):
            self.value.load_state_dict(state)
        await_collectives()
        self.save()

    def _has(self, tensors: dict[str, torch.Tensor]) -> bool:
        """All of these are the module's own memory."""
        own = {each.data_ptr() for each in (*self.value.parameters(), *self.value.buffers())}
        return all(each.data_ptr() in own for each in tensors.values())


class OptimizerStateHandler(_SnapshotHandler[torch.optim.Optimizer]):
    """State and settings of an optimizer, synchronised from rank 0."""

    _steps_of: Any = None

    def save(self) -> None:
        self._wait_before_steps()
        super().save()

    def restore(self) -> None:
        # load_state_dict may keep the tensors it is given, so that training on would change what was saved: it gets the
        # optimizer's own, with the saved values, and copies only of those that it has not.
        saved, own = self._saved.value, dict(leaves(self.value.state_dict()))
        given = {id(kept): own[path] for path, kept in leaves(saved) if overwritten(own.get(path), kept)}
        self.value.load_state_dict(copy.deepcopy(saved, given))
        # Those of the step that failed must not be added to the next one's.
        self.value.zero_grad()

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)
        await_collectives()
        self.save()

    def _wait_before_steps(self) -> None:
        """A step changes everything in place; what is not copied yet would be copied by it, into new memory."""
        if self._steps_of is self.value:
            return
        self._steps_of = self.value
        # One that has no hooks takes that memory, such as a wrapper around another optimizer, whose class is derived
        # from Optimizer and never calls its __init__.
        with contextlib.suppress(AttributeError):
            self.value.register_step_pre_hook(lambda *_: settle())


class _LoadedStateHandler(_SnapshotHandler[T]):
    """An object of small state that only `load_state_dict` changes, synchronised from rank 0."""

    def restore(self) -> None:
        value: Any = self.value
        value.load_state_dict(copy.deepcopy(self._saved.value, self._living()))

    def sync(self) -> None:
        self.save()
        self._saved = Snapshot.holding(broadcast_object(self._saved.value, root_rank=0, name="elastic.progress"))
        self.restore()

    def _living(self) -> dict[Any, Any]:
        """The objects that the stand-ins stand for, by name."""
        return {}


class SamplerStateHandler(_LoadedStateHandler[ElasticSampler]):
    """Epoch and progress of an `ElasticSampler`, synchronised from rank 0, like the model that has seen the samples."""


class SchedulerStateHandler(_LoadedStateHandler[torch.optim.lr_scheduler.LRScheduler]):
    """Progress of a scheduler of learning rates, and of those inside it, which go on working on its optimizer;
    synchronised from rank 0."""

    def _stand_ins(self) -> dict[int, Any]:
        return {id(optimizer): _Handled("optimizer") for optimizer in self._living().values()}

    def _living(self) -> dict[Any, Any]:
        return {"optimizer": self.value.optimizer} if hasattr(self.value, "optimizer") else {}


_handler_registry: list[tuple[type[Any], Callable[[Any], StateHandler[Any]]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (torch.optim.lr_scheduler.LRScheduler, SchedulerStateHandler),
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

    Modules, optimizers, `ElasticSampler`s and schedulers of learning rates (and types of the handler registry) are
    changed in place; all other keyword arguments are picklable objects that become attributes. One that holds any of
    these goes on holding it; a tensor with a graph comes back without.

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
        await_collectives()  # before the first part is replaced: what was saved stays whole
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
        self._sync_attributes()

    def _keepers(self) -> list[Any]:
        return [self, *self._handlers.values()]

    def _stand_ins(self) -> dict[int, Any]:
        return {id(value): _Handled(name) for name, value in self._living().items()}

    def _living(self) -> dict[Any, Any]:
        values: dict[Any, Any] = {name: handler.value for name, handler in self._handlers.items()}
        # Objects made before the optimizer was wrapped, such as a schedule of the program's own, work on the plain one.
        plain = {
            f"plain {name}": value._wrapped for name, value in values.items() if isinstance(value, DistributedMethods)
        }
        return {**values, **plain}

    def _to_write(self) -> dict[str, Snapshot]:
        parts = {f"handler {name}": handler._to_write() for name, handler in self._handlers.items()}
        return {**super()._to_write(), **parts}

    def _take_over(self, parts: dict[str, Any]) -> None:
        super()._take_over(parts)
        for name, handler in self._handlers.items():
            handler._take_over(parts[f"handler {name}"])

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
