"""Which parameters an optimizer has and how they are called in the negotiation.

Names must be equal on all ranks and different for all operations in flight, also when two optimizers have parameters of
the same names (the two networks of a GAN). The first optimizer of such names uses them as they are; a further one,
alive at the same time, adds a scope to them. The scope is counted, so ranks that make their optimizers in the same
order agree; `broadcast_optimizer_state` makes the root's hold for everybody.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Optional

import torch

from horovod._core.errors import InvalidArgumentError
from horovod._core.gradients import check_names

__all__ = ["OptimizerNames"]

_living: weakref.WeakSet[OptimizerNames] = weakref.WeakSet()


class OptimizerNames:
    """The parameters of one optimizer, numbered in the order of its groups, and their names.

    Args:
        param_groups: of the optimizer.
        named_parameters: (name, parameter) tuples; None: parameters are called by their number.

    Attributes:
        parameters: by number.
        scope: what is added to the names; empty for most optimizers.

    Raises:
        InvalidArgumentError: entries that are no tuples, repeated names, or parameters without a name.
    """

    def __init__(
        self, param_groups: list[dict[str, Any]], named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]]
    ) -> None:
        self.parameters: list[torch.Tensor] = [p for group in param_groups for p in group["params"]]
        self._names = self._checked(named_parameters)
        self.scope = self._free_scope()
        _living.add(self)

    def name(self, number: int) -> str:
        """The user's name of a parameter."""
        return self._names[number]

    def engine_name(self, name: str) -> str:
        """A name as the other ranks see it."""
        return f"{name}{self.scope}"

    def number_of(self, parameter: Any) -> Optional[int]:
        """The number of a parameter; None if it is not one of this optimizer."""
        for number, own in enumerate(self.parameters):
            if own is parameter:
                return number
        return None

    def extend(self, param_groups: list[dict[str, Any]]) -> None:
        """Takes up parameters that have been added."""
        known = {id(p) for p in self.parameters}
        for group in param_groups:
            for parameter in group["params"]:
                if id(parameter) not in known:
                    self._names.append(f"parameter.{len(self.parameters)}")
                    self.parameters.append(parameter)

    def _checked(self, named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]]) -> list[str]:
        named = list(named_parameters) if named_parameters is not None else []
        if not named:
            return [f"parameter.{number}" for number in range(len(self.parameters))]
        for entry in named:
            if not isinstance(entry, tuple) or len(entry) != 2:
                raise InvalidArgumentError(
                    "named_parameters must hold (name, parameter) tuples, as model.named_parameters() gives them. "
                    f"Received: {entry!r}."
                )
        keyed = [(name, id(parameter)) for name, parameter in named]
        pairs = check_names(keyed, [id(p) for p in self.parameters])
        return [name for _, name in pairs]

    def _free_scope(self) -> str:
        taken = {other.scope for other in _living if not set(other._names).isdisjoint(self._names)}
        number = 0
        while (f".optimizer{number}" if number else "") in taken:
            number += 1
        return f".optimizer{number}" if number else ""
