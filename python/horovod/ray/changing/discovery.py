"""A user's discovery, run on a thread of its own: the job goes on meanwhile. Used by `source`."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Optional, Union

_SILENT_S: Final = 60.0

_lock: Final = threading.Lock()
_running: Final[set[int]] = set()  # discoveries by `id`, also those of jobs that have ended; their threads hold them


class Discovery:
    """See the head of the file. One question at a time, even if the last one is an earlier job's.

    Args:
        user_discovery: an object with `find_available_hosts_and_slots`.
    """

    def __init__(self, user_discovery: Any) -> None:
        self._user_discovery = user_discovery
        self._answers: queue.SimpleQueue[Union[Mapping[str, int], BaseException]] = queue.SimpleQueue()
        self._is_asked = False
        self._since_s: Optional[float] = None  # that it runs, or is waited for

    def poll(self) -> Optional[Mapping[str, int]]:
        """Starts the user's discovery if it is not running. Returns its answer, or None while it runs. If it still runs
        for an earlier job, waits for the end of that and drops the answer.

        Raises:
            TimeoutError: it has run, or is waited for, for 60 s or longer.
            RuntimeError: no thread can be started, or the discovery has raised what is no Exception, such as
                SystemExit. Whatever else it raises comes as it is.
        """
        if not self._is_asked:
            self._start()
        try:
            found = self._answers.get_nowait()
        except queue.Empty:
            now_s = time.monotonic()
            if self._since_s is None:
                self._since_s = now_s
            if now_s >= self._since_s + _SILENT_S:
                raise TimeoutError(f"find_available_hosts_and_slots() has not returned for {_SILENT_S:g} s") from None
            return None
        self._is_asked, self._since_s = False, None
        if isinstance(found, Exception):
            raise found
        if isinstance(found, BaseException):
            raise RuntimeError(f"find_available_hosts_and_slots() has raised {type(found).__name__}: {found}")
        return found

    def _start(self) -> None:
        """Does nothing while it runs for an earlier job."""
        with _lock:
            if id(self._user_discovery) in _running:
                return
            threading.Thread(target=self._ask, name="horovod-discovery", daemon=True).start()
            _running.add(id(self._user_discovery))
        self._is_asked, self._since_s = True, time.monotonic()

    def _ask(self) -> None:
        answer: Union[Mapping[str, int], BaseException]
        try:
            answer = dict(self._user_discovery.find_available_hosts_and_slots())
        except BaseException as error:  # SystemExit, too, would end the thread without a word
            answer = error
        with _lock:
            _running.discard(id(self._user_discovery))
            self._answers.put(answer)
