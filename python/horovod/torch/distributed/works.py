"""`CallWork`: what a call of a process group returns, for `wait` and for futures.

A caller that waits drives the engine, as in `hvd.synchronize`. Only where a future is asked for (DDP does, and waits
for it in C++) one thread of the process looks for the end, too.
"""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any, Callable, Final, Optional, Protocol

import torch
import torch.distributed as dist

from horovod._core.errors import CollectiveTimeoutError, MismatchError
from horovod._core.life import handles, waiting
from horovod.torch.distributed.unawaited import Unawaited, torch_keeps_works

__all__ = ["CallWork", "EndedWork", "seconds_of"]

# How long the thread waits for the oldest call before it looks at the others.
_LOOK_S: Final = 0.002
_unawaited: Final = None if torch_keeps_works() else Unawaited()


def seconds_of(timeout: Optional[datetime.timedelta], default_s: float) -> float:
    """A timeout of torch.distributed, which says by None, 0 or less that there is none of its own."""
    seconds = timeout.total_seconds() if timeout is not None else 0.0
    return seconds if seconds > 0 else default_s


class Owner(Protocol):
    """Whose calls are numbered: see `calls`."""

    def disagree(self, number: int, error: MismatchError) -> None: ...
    def keep(self, work: CallWork) -> None: ...
    def end_kept(self, before: int, timeout_s: float) -> None: ...


class CallWork(dist.Work):
    """One call under way. Programs may drop it: its result then comes before that of a later call of its group.

    Args:
        handle: of `horovod.torch`.
        what: the call, for messages.
        result: what `result` and the future give.
        finish: takes what the operation returned and puts it where the caller wants it; None: it is there.
        timeout_s: how long `wait` waits unless it says something else, and the future in any case.
        owner: the group, for a call in the order that all its ranks have.
        number: of the call in that order.
    """

    _is_awaited = False

    def __init__(
        self,
        handle: int,
        what: str,
        result: Any,
        finish: Optional[Callable[[Any], None]],
        timeout_s: float,
        owner: Optional[Owner] = None,
        number: int = 0,
    ) -> None:
        super().__init__()
        self._handle = handle
        self._what = what
        self._result = result
        self._finish = finish
        self._timeout_s = timeout_s
        self._owner = owner
        self.number = number
        self._lock = threading.Lock()
        self._is_over = False
        self._error: Optional[Exception] = None
        self._ended: Optional[torch.futures.Future[Any]] = None  # with this work when it is over
        self._future: Optional[torch.futures.Future[Any]] = None
        self._deadline = 0.0  # of the future

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        """Waits for the end.

        Args:
            timeout: None, 0 or less: the call's own, or the group's.

        Returns:
            True.

        Raises:
            MismatchError: the ranks disagree about the call.
            CollectiveTimeoutError: it has not ended in time.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        self._awaited()
        seconds = seconds_of(timeout, self._timeout_s)
        if not self._is_over and not self.ends_within(seconds):
            raise self._late(seconds)
        if self._owner is not None:
            self._owner.end_kept(self.number, seconds)
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """True if `wait` would not wait."""
        return self._is_over or self.ends_within(0.0)

    def is_success(self) -> bool:
        """True if it has ended, and well."""
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[Exception]:
        """Why it failed; None while it is under way or if it has ended well."""
        return self._error if self.is_completed() else None

    def result(self) -> Any:
        """The tensors that have been filled."""
        return self._result

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """Completed with `result` when the call has ended; with its error, or one when its time is over."""
        self._awaited()
        with self._lock:
            if self._future is None:
                self._ended = torch.futures.Future()
                # C++ takes an exception that a future is given for its value, and what `then` raises for an error.
                self._future = self._ended.then(lambda ended: ended.value()._outcome())
                if not self._is_over:
                    self._deadline = time.monotonic() + self._timeout_s
                    _watcher.add(self)
                    return self._future
                self._ended.set_result(self)
            return self._future

    def ends_within(self, timeout_s: float) -> bool:
        """Takes the result if it comes within some seconds; True if it has been taken."""
        if self._finish is None and timeout_s >= waiting.SLICE_S:
            begun = time.monotonic()
            if handles.finish_quickly(self._handle) is not None:
                self._end(lambda: None)
                return True
            timeout_s -= time.monotonic() - begun
        pending = handles.open_handles.get(self._handle)
        if pending is not None and not handles.end_within([pending], timeout_s):
            return False
        self._end(self._taken)
        return True

    def end_if_late(self) -> None:
        """Ends it, with an error, if the time of its future is over."""
        if time.monotonic() > self._deadline:
            self._end(lambda: self._late(self._timeout_s))

    def _end(self, outcome: Callable[[], Optional[Exception]]) -> None:
        with self._lock:  # which is held for as long as the result is being copied
            if self._is_over:
                return
            self._error = outcome()
            self._finish = None
            self._is_over = True
            ended = self._ended
        if ended is not None:
            ended.set_result(self)

    def _taken(self) -> Optional[Exception]:
        try:
            returned = handles.synchronize(self._handle)
            if self._finish is not None:
                self._finish(returned)
        except Exception as error:
            if isinstance(error, MismatchError) and self._owner is not None:
                self._owner.disagree(self.number, error)
            return error
        return None

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def _late(self, seconds: float) -> CollectiveTimeoutError:
        return CollectiveTimeoutError(
            f"{self._what} has not ended within {seconds:g} s, the time limit of this call or of its process group. "
            "Other ranks have not made it, or wait for something else; the stall report names them. Give "
            "init_process_group or new_group a longer timeout if that is too short."
        )

    def _awaited(self) -> None:
        if _unawaited is not None:
            self._is_awaited = True
            _unawaited.release(self)

    def _dropped(self) -> None:
        if _unawaited is not None and not self._is_awaited:
            _unawaited.keep(self)

    def leave(self) -> None:
        """Nobody will ask for its result."""
        handles.leave(self._handle)  # does nothing if it has been taken

    def __del__(self) -> None:
        if self._owner is None or self._is_over:
            self.leave()
        else:
            self._owner.keep(self)
        self._dropped()


class EndedWork(CallWork):
    """A call that is over when it returns.

    Args:
        error: why it could not be made; None: it has ended well.
    """

    # What CallWork's constructor sets; one of these is made for each small send.
    _owner = _ended = _future = _finish = None
    _is_over = True
    _lock = threading.Lock()

    def __init__(self, what: str, result: Any, error: Optional[Exception] = None) -> None:
        dist.Work.__init__(self)
        self._what = what
        self._result = result
        self._error = error

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        """Does not wait."""
        self._awaited()
        if self._error is not None:
            raise self._error
        return True

    def __del__(self) -> None:
        """Nothing is under way."""
        self._dropped()


class _Watcher:
    """The thread that completes futures, from the first one on. Another one takes its place while callbacks of a future
    ask for futures."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._works: list[CallWork] = []
        self._thread: Optional[threading.Thread] = None

    def add(self, work: CallWork) -> None:
        with self._changed:
            self._works.append(work)
            thread = self._thread
            # A forked child has none. And what a callback of a future adds, it may wait for: in this very thread.
            if thread is None or not thread.is_alive() or thread is threading.current_thread():
                self._thread = threading.Thread(target=self._run, name="horovod futures", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while self._thread is threading.current_thread():
            with self._changed:
                while not self._works:
                    self._changed.wait()
                works = list(self._works)
            # The oldest ends first as a rule; where one of another group does, its future is a little late.
            works[0].ends_within(_LOOK_S)
            for work in works:
                work.end_if_late()
            done = {id(work) for work in works if work.is_completed()}
            if done:
                with self._changed:
                    self._works = [work for work in self._works if id(work) not in done]


_watcher: Final = _Watcher()
