"""`GroupCalls`: how a call of a process group is submitted, under a name, with a `CallWork`. Base of the parts of
`group`."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Hashable
from typing import Any, Callable, Final, Optional

import torch.distributed as dist

from horovod._core.errors import CollectiveTimeoutError, HorovodInternalError, MismatchError, NotInitializedError
from horovod._core.life import handles, session
from horovod._core.life.process_sets import ProcessSet
from horovod.torch.distributed.call_names import TURNS, CallNames
from horovod.torch.distributed.works import CallWork, EndedWork, seconds_of

__all__ = ["GroupCalls"]

Submit = Callable[[str], int]
Finish = Optional[Callable[[Any], None]]

_MOST_NOTED: Final = 1 << 14

# Its methods are typed as overloads, which no Python method matches.
_ProcessGroup: Any = dist.ProcessGroup


class _Groups:
    """Numbers the groups of each process set in a session; its members make them in one order."""

    def __init__(self) -> None:
        self._session: object = None
        self._counts: dict[Optional[int], int] = {}

    def next_of(self, process_set: ProcessSet) -> int:
        """The number of another group of this set."""
        if self._session is not session.current:
            self._session = session.current
            self._counts.clear()
        number = self._counts[process_set.process_set_id] = self._counts.get(process_set.process_set_id, -1) + 1
        return number


_groups: Final = _Groups()


class GroupCalls(_ProcessGroup):  # type: ignore[misc]
    """A group of ranks with a name for each of its calls.

    Args:
        process_set: the ranks.
        rank: of this process in the group.
        timeout_s: how long `Work.wait` waits.
    """

    def __init__(self, process_set: ProcessSet, rank: int, timeout_s: float) -> None:
        self._ranks: Final = list(process_set.ranks or ())
        super().__init__(rank, len(self._ranks))
        self._set: Final = process_set
        self._timeout_s = timeout_s
        # torch's own name for a group may differ on its ranks (`use_local_synchronization`).
        self._names = CallNames(f"torch.{_groups.next_of(process_set)}")
        self._broken: Optional[MismatchError] = None
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
            if self._broken is not None:
                return EndedWork(what, result, self._why_broken(self._broken))
            name = self._names.next((what, call))
            try:
                self._wait_for_turn(name, seconds)
                handle = submit(name)
            except NotInitializedError:
                raise
            except HorovodInternalError as error:
                return EndedWork(what, result, error)
            self._note(name, handle)
            number = self._names.count

        def on_mismatch(error: MismatchError) -> None:
            self._disagree(number, error)

        return CallWork(handle, f"{what} '{name}'", result, finish, seconds, on_mismatch)

    def _disagree(self, number: int, error: MismatchError) -> None:
        """The ranks disagree about a call. All of them know before the next one, or there is no saying which of the
        later calls of one rank belong to which of another's."""
        with self._lock:
            if self._names.count == number:
                self._names.forget()
            elif self._broken is None:
                self._broken = error

    def _wait_for_turn(self, name: str, timeout_s: float) -> None:
        """Waits until an earlier operation of that name has ended, well or not. There is one only while many calls are
        under way.

        Raises:
            CollectiveTimeoutError: it does not end.
        """
        pending = handles.open_handles.get(self._under_way.get(name, 0))
        if pending is not None and not handles.end_within([pending], timeout_s):
            raise CollectiveTimeoutError(
                f"The process group has had {TURNS} calls under way, or more, for {timeout_s:g} s. Other ranks have "
                "not made the first of them; the stall report names them."
            )

    def _why_broken(self, error: MismatchError) -> MismatchError:
        return MismatchError(
            f"The ranks disagreed about a call of this process group while later ones were under way: {error} Destroy "
            "the group, and make it again."
        )

    def _note(self, name: str, handle: int) -> None:
        self._under_way[name] = handle
        if len(self._under_way) > _MOST_NOTED:  # of programs that make other calls all the time
            open_handles = handles.open_handles
            self._under_way = {one: its for one, its in self._under_way.items() if its in open_handles}

    def _global(self, group_rank: int) -> int:
        return self._ranks[group_rank]
