"""`GroupCalls`: how a call of a process group is submitted, under a name, with a `CallWork`. Base of the parts of
`group`."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Hashable, Sequence
from typing import Any, Callable, Final, Optional

import torch.distributed as dist

from horovod._core.errors import HorovodInternalError, NotInitializedError
from horovod._core.life import handles
from horovod._core.life.process_sets import ProcessSet
from horovod.torch.distributed.call_names import CallNames
from horovod.torch.distributed.works import CallWork, FailedWork, seconds_of

__all__ = ["GroupCalls"]

Submit = Callable[[str], int]
Finish = Optional[Callable[[Any], None]]

# Its methods are typed as overloads, which no Python method matches.
_ProcessGroup: Any = dist.ProcessGroup


class GroupCalls(_ProcessGroup):  # type: ignore[misc]
    """A group of ranks with a name for each of its calls.

    Args:
        name: torch's for the group.
        process_set: the ranks.
        rank: of this process in the group.
        timeout_s: how long `Work.wait` waits.
    """

    def __init__(self, name: str, process_set: ProcessSet, rank: int, timeout_s: float) -> None:
        self._ranks: Final = list(process_set.ranks or ())
        super().__init__(rank, len(self._ranks))
        self._set: Final = process_set
        self._timeout_s = timeout_s
        self._names = CallNames(f"torch.{name}")
        self._under_way: dict[str, int] = {}
        self._lock = threading.Lock()

    def _start(
        self,
        what: str,
        call: Hashable,
        submit: Submit,
        result: Any,
        finish: Finish = None,
        timeout: Optional[datetime.timedelta] = None,
    ) -> CallWork:
        """Submits a call.

        Args:
            what: its name in torch.distributed.
            call: what is the same on all ranks; see `CallNames`.
            submit: starts the operation under a name; its handle.
            result: of the work.
            finish: as of `CallWork`.
            timeout: of the call; None, 0 or less: the group's.
        """
        seconds = seconds_of(timeout, self._timeout_s)
        with self._lock:
            name = self._names.next((what, call))
            self._wait_for_turn(name, seconds)
            try:
                handle = submit(name)
            except NotInitializedError:
                raise
            except HorovodInternalError as error:
                return FailedWork(what, result, error)
            self._under_way[name] = handle
        return CallWork(handle, f"{what} '{name}'", result, finish, seconds)

    def _wait_for_turn(self, name: str, timeout_s: float) -> None:
        """Lets an earlier operation of that name end, well or not: so many are under way that their names are used
        up."""
        pending = handles.open_handles.get(self._under_way.get(name, 0))
        if pending is not None:
            handles.end_within([pending], timeout_s)

    def _global(self, group_rank: int) -> int:
        return self._ranks[group_rank]

    def _forms(self, tensors: Sequence[Any]) -> Hashable:
        return tuple((tensor.dtype, tuple(tensor.shape)) for tensor in tensors)
