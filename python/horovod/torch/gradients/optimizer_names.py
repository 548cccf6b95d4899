"""The parameters of an optimizer and their names in the negotiation.

Names must be equal on all ranks and different for all operations in flight, also when two optimizers have parameters of
the same names (the two networks of a GAN). The first optimizer of such names uses them as they are, each further one
adds a scope to them: its number. All ranks make the same optimizers in the same order, so they count alike, from 0 in
every session; which optimizers are still alive differs between ranks and does not matter. Where ranks made different
ones, `broadcast_optimizer_state` gives all ranks the root's count.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Optional, Union

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import session
from horovod._core.training.reduction_options import check_names
from horovod.torch.adapter import is_sharded
from horovod.torch.collectives.discards import SharedName

__all__ = ["Groups", "OptimizerNames", "Scope"]

Groups = Union[None, int, Sequence[Sequence[torch.Tensor]]]

# Scopes repeat after so many optimizers of equal names, so that the names in use are bounded. Two of them would have to
# be used at the same time to meet, which is an error that says so.
_SCOPES: Final = 1024


class Scope(NamedTuple):
    """The difference between optimizers whose parameters have equal names.

    Attributes:
        number: how many optimizers of these names were made before it.
        made: how many have been made by now.
        names: of the parameters, as the other ranks see them while nothing has been discarded.
        odd: by parameter: an odd number of its steps has been discarded (see `discards`).
    """

    number: int
    made: int
    names: tuple[str, ...]
    odd: tuple[bool, ...] = ()


class _Count:
    """How many optimizers each name has had, by process set, in this session."""

    def __init__(self) -> None:
        self._session: object = None
        self._made: dict[tuple[int, str], int] = {}

    def made(self, process_set: int, names: Iterable[str]) -> int:
        self._follow_session()
        return max((self._made.get((process_set, name), 0) for name in names), default=0)

    def put(self, process_set: int, names: Iterable[str], made: int) -> None:
        self._follow_session()
        self._made.update(((process_set, name), made) for name in names)

    def _follow_session(self) -> None:
        # Ranks that join with a new session have made none before it.
        if self._session is not session.current:
            self._session = session.current
            self._made.clear()


_count: Final = _Count()
# Parameter -> number of the process set -> its `SharedName`.
_negotiated: Final[Any] = WeakTensorKeyDictionary()


class OptimizerNames:
    """The parameters of one optimizer, numbered in the order of its groups, and their names.

    Args:
        param_groups: of the optimizer.
        named_parameters: (name, parameter) tuples; None: parameters are called by their number.
        process_set: number of the set that reduces them.

    Attributes:
        parameters: by number.

    Raises:
        InvalidArgumentError: entries that are no tuples, repeated names, or parameters without a name.
    """

    def __init__(
        self,
        param_groups: list[dict[str, Any]],
        named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]],
        process_set: int,
    ) -> None:
        self.parameters: list[torch.Tensor] = [p for group in param_groups for p in group["params"]]
        self._names = self._checked(named_parameters)
        _refuse_sharded(self._names, self.parameters)
        self._process_set = process_set
        self._own = tuple(self._names)
        self._known: list[SharedName] = []  # by number
        self._number = _count.made(process_set, self._own)
        _count.put(process_set, self._own, self._number + 1)

    def name(self, number: int) -> str:
        """The user's name of a parameter."""
        return self._names[number]

    def engine_name(self, name: str) -> str:
        """A name as the other ranks see it."""
        number = self._number % _SCOPES
        return f"{name}.optimizer{number}" if number else name

    @property
    def scope(self) -> Scope:
        """For `adopt` on other ranks."""
        # One made in an earlier session is not counted in this one yet.
        made = max(_count.made(self._process_set, self._own), self._number + 1)
        shared = [self._shared(number) for number in range(len(self.parameters))]
        return Scope(self._number, made, tuple(s.base for s in shared), tuple(s.is_odd for s in shared))

    def adopt(self, scope: Scope) -> bool:
        """Takes over the root's scope; True if that changes the names."""
        _count.put(self._process_set, self._own, scope.made)
        before = [self.negotiated(number) for number in range(len(self.parameters))]
        self._number = scope.number
        for number, (name, is_odd) in enumerate(zip(scope.names, scope.odd)):
            shared = self._shared(number)
            shared.base, shared.is_odd = name, is_odd
        return before != [self.negotiated(number) for number in range(len(self.parameters))]

    def negotiated(self, number: int) -> str:
        """A parameter's name as the other ranks see it: that of the first optimizer of the parameter."""
        return self._shared(number).current

    def discard(self, numbers: Iterable[int]) -> None:
        """A step of these parameters has been discarded."""
        for number in numbers:
            shared = self._shared(number)
            shared.is_odd = not shared.is_odd

    def _shared(self, number: int) -> SharedName:
        if number < len(self._known):
            return self._known[number]
        for parameter in self.parameters[len(self._known) : number + 1]:
            mine = self.engine_name(self._names[len(self._known)])
            by_set: dict[int, SharedName] = _negotiated.setdefault(parameter, {})
            self._known.append(by_set.setdefault(self._process_set, SharedName(mine)))
        return self._known[number]

    def numbers_of(self, parameters: Iterable[torch.Tensor]) -> list[int]:
        """The numbers of parameters that this optimizer has."""
        known = {id(parameter): number for number, parameter in enumerate(self.parameters)}
        return [known[id(parameter)] for parameter in parameters]

    def numbered(self, groups: Groups) -> Union[None, int, list[list[Any]]]:
        """The user's groups with numbers in the place of parameters.

        Raises:
            InvalidArgumentError: a group holds something else.
        """
        if groups is None or isinstance(groups, int):
            return groups
        numbered = [[self.number_of(entry) for entry in group] for group in groups]
        for group, numbers in zip(groups, numbered):
            if None in numbers:
                stranger = list(group)[numbers.index(None)]
                raise InvalidArgumentError(
                    f"groups holds a tensor of shape {list(stranger.shape)} that is not a parameter of this optimizer."
                )
        return numbered

    def number_of(self, parameter: Any) -> Optional[int]:
        """The number of a parameter; None if it is not one of this optimizer."""
        for number, own in enumerate(self.parameters):
            if own is parameter:
                return number
        return None

    def extend(self, param_groups: list[dict[str, Any]]) -> bool:
        """Takes up parameters that have been added; True if there are any."""
        given = [parameter for group in param_groups for parameter in group["params"]]
        if len(given) == len(self.parameters) and all(map(operator.is_, given, self.parameters)):
            return False  # in every step but few
        known = {id(p) for p in self.parameters}
        added = [parameter for parameter in given if id(parameter) not in known]
        for parameter in added:
            # Called after the first one, which no other optimizer of the same scope has.
            base = f"{self._own[0]}.added" if self._own else "parameter"
            self._names.append(f"{base}.{len(self.parameters)}")
            self.parameters.append(parameter)
        return bool(added)

    def _checked(self, named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]]) -> list[str]:
        # A container of modules can be iterated too.
        if isinstance(named_parameters, torch.nn.Module) or not isinstance(named_parameters, (Iterable, type(None))):
            raise InvalidArgumentError(
                "named_parameters must hold (name, parameter) tuples, as model.named_parameters() gives them. "
                f"Received: {type(named_parameters).__name__}."
            )
        named = list(named_parameters) if named_parameters is not None else []
        if not named:
            return [f"parameter.{number}" for number in range(len(self.parameters))]
        for entry in named:
            if not isinstance(entry, tuple) or len(entry) != 2:
                raise InvalidArgumentError(
                    "named_parameters must hold (name, parameter) tuples, as model.named_parameters() gives them. "
                    f"Received: {_described(entry)}."
                )
        keyed = [(name, id(parameter)) for name, parameter in named]
        pairs = check_names(keyed, [id(p) for p in self.parameters])
        return [name for _, name in pairs]


def _refuse_sharded(names: list[str], parameters: list[torch.Tensor]) -> None:
    for name, parameter in zip(names, parameters):
        if is_sharded(parameter):
            raise InvalidArgumentError(
                f"DistributedOptimizer: parameter '{name}' is a DTensor, of which each rank holds a shard, as FSDP2 "
                "(fully_shard) and tensor parallelism make them. torch.distributed reduces their gradients: use the "
                "plain optimizer with them, or give a model of whole parameters to hvd.DistributedOptimizer."
            )


def _described(entry: Any) -> str:
    """An entry for a message, without the values of a tensor."""
    if isinstance(entry, torch.Tensor):
        return f"a tensor of shape {list(entry.shape)} without a name; model.parameters() gives no names"
    if isinstance(entry, tuple):
        return f"a tuple of {len(entry)}"
    return f"{entry!r:.80}" if isinstance(entry, (str, int, float)) else type(entry).__name__
