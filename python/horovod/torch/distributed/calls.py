"""`GroupCalls`: how a call of a process group is submitted, under a name, with a `CallWork`. Base of the parts of
`group`."""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Hashable, Iterator
from typing import Any, Callable, Final, Optional

import torch.distributed as dist

from horovod._core.errors import CollectiveTimeoutError, HorovodInternalError, MismatchError, NotInitializedError
from horovod._core.life import handles, session
from horovod._core.life.process_sets import ProcessSet
from horovod._core.operations.submission import Call
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
        self._kept: dict[int, CallWork] = {}  # by their numbers
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
        self.end_kept(0, 0.0)
        while True:
            with self._lock:
                if self._broken is not None:
                    return EndedWork(what, result, self._why_broken(self._broken))
                earlier = self._earlier()
                if earlier is None:
                    name = self._names.next((what, call))
                    try:
                        handle = submit(name)
                    except NotInitializedError:
                        raise
                    except HorovodInternalError as error:
                        return EndedWork(what, result, error)
                    except Exception:  # which the other ranks have heard of
                        self._names.forget()
                        raise
                    self._note(name, handle)
                    number = self._names.count
                    break
            # Without the lock, which other threads need to end calls.
            if not handles.end_within([earlier], seconds):
                return EndedWork(what, result, self._too_many(seconds))

        return CallWork(handle, f"{what} '{name}'", result, finish, seconds, self, number)

    def keep(self, work: CallWork) -> None:
        """The program has dropped a call that is under way."""
        self._kept[work.number] = work

    def end_kept(self, before: int, timeout_s: float) -> None:
        """Takes the results of calls that the program has dropped.

        Args:
            before: calls up to this number have been made on all ranks, and are waited for.
            timeout_s: for each of them.
        """
        if not self._kept:
            return
        for number in sorted(self._kept):  # a list: others may be dropped meanwhile
            work = self._kept.get(number)
            if work is not None and work.ends_within(timeout_s if number < before else 0.0):
                self._kept.pop(number, None)

    def disagree(self, number: int, error: MismatchError) -> None:
        """The ranks disagree about a call. All of them know before the next one, or there is no saying which of the
        later calls of one rank belong to which of another's."""
        with self._lock:
            if self._names.count == number:
                self._names.forget()
            elif self._broken is None:
                self._broken = error

    def _earlier(self) -> Optional[handles.Pending]:
        """An operation under way that has the name of the next call. There is one only while many calls are."""
        pending = handles.open_handles.get(self._under_way.get(self._names.coming(), 0))
        return None if pending is None or handles.end_within([pending], 0.0) else pending

    @contextlib.contextmanager
    def _refusing(self, what: str, op_type: int, n: int = 1) -> Iterator[None]:
        """Around what may fail on this rank alone before the call is submitted: the other ranks then get the reason.

        Args:
            what: as for `_start`.
            op_type: the operation that the call becomes.
            n: number of its tensors.
        """
        try:
            yield
        except Exception as error:
            with self._lock:
                name = self._names.next((what, "refused"))
                self._names.forget()
            with Call(op_type, self._set, name, n if n > 1 else None):
                raise error

    def _too_many(self, seconds: float) -> CollectiveTimeoutError:
        return CollectiveTimeoutError(
            f"The process group has had {TURNS} calls under way, or more, for {seconds:g} s. Other ranks have not made "
            "the first of them; the stall report names them."
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

    def _leave_kept(self) -> None:
        while self._kept:
            self._kept.popitem()[1].leave()

    def _global(self, group_rank: int) -> int:
        return self._ranks[group_rank]
