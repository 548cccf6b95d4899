"""`CallWork`: what a call of a process group returns, for `wait` and for futures.

A caller that waits drives the engine, as in `hvd.synchronize`. Only where a future is asked for (DDP does, and waits
for it in C++) one thread of the process looks for the end, too.
"""

from __future__ import annotations

import datetime
import threading
from typing import Any, Callable, Final, Optional

import torch
import torch.distributed as dist

from horovod._core.errors import CollectiveTimeoutError
from horovod._core.life import handles

__all__ = ["CallWork", "FailedWork", "seconds_of"]

# How long the thread waits for the oldest call before it looks at the others.
_LOOK_S: Final = 0.002


def seconds_of(timeout: Optional[datetime.timedelta], default_s: float) -> float:
    """A timeout of torch.distributed, which says by None, 0 or less that there is none of its own."""
    seconds = timeout.total_seconds() if timeout is not None else 0.0
    return seconds if seconds > 0 else default_s


class CallWork(dist.Work):
    """One call under way.

    Args:
        handle: of `horovod.torch`.
        what: the call, for messages.
        result: what `result` and the future give.
        finish: takes what the operation returned and puts it where the caller wants it; None: it is there.
        timeout_s: how long `wait` waits unless it says something else.
        is_eager: the caller's tensors are in use no more; `wait` waits for nothing, and raises what has failed already.
    """

    def __init__(
        self,
        handle: int,
        what: str,
        result: Any,
        finish: Optional[Callable[[Any], None]],
        timeout_s: float,
        is_eager: bool = False,
    ) -> None:
        super().__init__()
        self._handle = handle
        self._what = what
        self._result = result
        self._finish = finish
        self._timeout_s = timeout_s
        self._is_eager = is_eager
        self._lock = threading.Lock()
        self._is_over = False
        self._error: Optional[Exception] = None
        self._future: Optional[torch.futures.Future[Any]] = None

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        """Waits for the end.

        Args:
            timeout: None, 0 or less: the group's.

        Returns:
            True.

        Raises:
            MismatchError: the ranks disagree about the call.
            CollectiveTimeoutError: it has not ended in time.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        seconds = seconds_of(timeout, self._timeout_s)
        if self._is_eager:
            self.ends_within(0.0)
        elif not self._is_over and not self.ends_within(seconds):
            raise CollectiveTimeoutError(
                f"{self._what} has not ended within {seconds:g} s, the time limit of this call or of its process "
                "group. Other ranks have not made it, or wait for something else; the stall report names them. Give "
                "init_process_group or new_group a longer timeout if that is too short."
            )
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """True if `wait` would not wait."""
        return self._is_over or self.ends_within(0.0) or self._is_eager

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
        """Completed with `result` when the call has ended, or with its error."""
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                if not self._is_over:
                    _watcher.add(self)
                    return self._future
                self._complete(self._future)
            return self._future

    def ends_within(self, timeout_s: float) -> bool:
        """Takes the result if it comes within some seconds; True if it has been taken."""
        pending = handles.open_handles.get(self._handle)
        if pending is not None and not handles.end_within([pending], timeout_s):
            return False
        with self._lock:  # which is held for as long as the result is being copied
            if not self._is_over:
                try:
                    returned = handles.synchronize(self._handle)
                    if self._finish is not None:
                        self._finish(returned)
                except Exception as error:
                    self._error = error
                self._finish = None
                self._is_over = True
                future = self._future
            else:
                future = None
        if future is not None:
            self._complete(future)
        return True

    def _complete(self, future: torch.futures.Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._result)
        else:
            future.set_exception(self._error)

    def __del__(self) -> None:
        # Nobody waits for it any more. The core keeps its tensors until it has ended.
        if not self._is_over:
            handles.drop(self._handle)


class FailedWork(CallWork):
    """A call that could not be submitted, because the job has failed: `wait` says why."""

    def __init__(self, what: str, result: Any, error: Exception) -> None:
        super().__init__(0, what, result, None, 0.0)
        self._error = error
        self._is_over = True


class _Watcher:
    """The thread that completes futures, from the first one on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._works: list[CallWork] = []
        self._thread: Optional[threading.Thread] = None

    def add(self, work: CallWork) -> None:
        with self._changed:
            self._works.append(work)
            if self._thread is None or not self._thread.is_alive():  # a forked child has none
                self._thread = threading.Thread(target=self._run, name="horovod futures", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._works:
                    self._changed.wait()
                works = list(self._works)
            # The oldest ends first as a rule; where one of another group does, its future is a little late.
            works[0].ends_within(_LOOK_S)
            done = {id(work) for work in works if work.is_completed()}
            if done:
                with self._changed:
                    self._works = [work for work in self._works if id(work) not in done]


_watcher: Final = _Watcher()
