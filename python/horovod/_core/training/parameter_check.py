"""`--check-parameters`: whether all ranks hold equal parameters after their first optimizer steps.

They do unless the broadcast at the start was forgotten, or an optimizer stepped that does not combine gradients. Used
by the optimizers of every framework, which say when a step is over and give names and tensors. Equal means equal bits:
each rank sends a digest of every parameter, and every rank compares all of them, so that all raise the same error or
none does.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Callable, Final, Optional

from horovod._core.errors import MismatchError
from horovod._core.life import session
from horovod._core.life.process_sets import ProcessSet, leaves_out_this_rank, listed
from horovod._core.operations.objects import allgather_object
from horovod._core.tensors import dtypes
from horovod._core.tensors.adapter import Adapter

__all__ = ["FirstSteps", "check", "compare", "digests", "wanted"]

_SHOWN: Final = 8
_REMEDY: Final = (
    "Broadcast the parameters before the first step, after the model is loaded and moved (hvd.broadcast_parameters, "
    "hvd.broadcast_variables, BroadcastGlobalVariablesCallback), and step with the optimizer that "
    "hvd.DistributedOptimizer returned."
)

Named = Iterable[tuple[str, Any]]


def wanted() -> int:
    """How many first steps the user wants checked; 0 also where there is nobody to compare with."""
    current = session.current
    return current.settings.check_parameters or 0 if current is not None and current.size > 1 else 0


class FirstSteps:
    """Counts the steps of each optimizer, in this session.

    Args:
        counts: empty; one with weak keys where these are optimizers.
        before: the caller asks before each step, so the first time no step is over.
    """

    def __init__(self, counts: MutableMapping[Any, int], before: bool = False) -> None:
        self._counts = counts
        self._begin = -1 if before else 0
        self._session: object = None

    def next(self, key: Any) -> int:
        """The number of the step of this optimizer that is over now, from 1 on; 0 when none is to be checked."""
        most = wanted()
        if not most:
            return 0
        if self._session is not session.current:
            self._session = session.current
            self._counts.clear()
        step = self._counts.get(key, self._begin) + 1
        if step <= most + 1:
            self._counts[key] = step
        return step if step <= most else 0


def check(adapter: Adapter, named: Callable[[], Named], name: str, step: int, process_set: ProcessSet) -> None:
    """Compares the parameters over the ranks. Collective over the process set; nothing outside of it.

    Args:
        adapter: of the tensors.
        named: gives (name, tensor) pairs, of any device.
        name: of the operation, equal on all ranks: which optimizer it is.
        step: that is over, for the message.
        process_set: that should hold equal parameters.

    Raises:
        MismatchError: on every member: parameters differ; names them and their ranks.
    """
    if leaves_out_this_rank(process_set):
        return
    tables = allgather_object(digests(adapter, named()), f"check_parameters.{name}", process_set)
    ranks = process_set.ranks or range(len(tables))
    problem = compare(dict(zip(ranks, tables)))
    if problem:
        raise MismatchError(f"After step {step} of an optimizer {problem} {_REMEDY}")


def digests(adapter: Adapter, named: Named) -> dict[str, bytes]:
    """A digest of the element type, shape and bits of each parameter; none of types that the core does not know."""
    found = {}
    for name, tensor in named:
        number = adapter.dtype(tensor)
        if number >= 0 and not adapter.unfit(tensor):
            found[name] = _digest(adapter, tensor, number)
    return found


def compare(tables: Mapping[int, Mapping[str, bytes]]) -> str:
    """How the ranks' parameters differ, in words; empty when they do not.

    Args:
        tables: of each rank, what `digests` gives.
    """
    names = list(dict.fromkeys(name for table in tables.values() for name in table))
    every = (_story(name, {rank: table.get(name) for rank, table in tables.items()}) for name in names)
    stories = [story for story in every if story]
    if not stories:
        return ""
    shown = "; ".join(stories[:_SHOWN]) + (f"; and {len(stories) - _SHOWN} more" if len(stories) > _SHOWN else "")
    if len(names) == 1:
        count = "the only parameter differs"
    elif len(stories) == len(names):
        count = f"all {len(names)} parameters differ"
    else:
        count = f"{len(stories)} of {len(names)} parameters differ"
    return f"{count} between the ranks: {shown}."


def _story(name: str, of_rank: Mapping[int, Optional[bytes]]) -> str:
    """The ranks that differ from the lowest rank in a parameter; empty if none do."""
    first = min(of_rank)
    others = [rank for rank, digest in of_rank.items() if digest != of_rank[first]]
    if not others:
        return ""
    lacking = sorted(rank for rank, digest in of_rank.items() if digest is None)
    if lacking:
        return f"'{name}' is not there on {listed(lacking)}"
    return f"'{name}' of {listed(sorted(others))} differs from rank {first}'s"


def _digest(adapter: Adapter, tensor: Any, number: int) -> bytes:
    host = adapter.contiguous(tensor) if adapter.device(tensor) == "cpu" else adapter.to_host(tensor)
    shape: Sequence[int] = adapter.shape(host)
    nbytes = dtypes.ITEM_BYTES[number] * dtypes.elements(tuple(shape))
    state = hashlib.blake2b(f"{number} {list(shape)} ".encode(), digest_size=16)
    if nbytes:
        state.update((ctypes.c_ubyte * nbytes).from_address(adapter.address(host)))
    return state.digest()
