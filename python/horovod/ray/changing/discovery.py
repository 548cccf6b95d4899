"""A user's discovery, asked on a thread of its own: the job goes on while it is at work. Used by `source`."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Optional, Union

_SILENT_S: Final = 60.0


class Discovery:
    """See the head of the file. One question at a time.

    Args:
        users: an object with `find_available_hosts_and_slots`.
    """

    def __init__(self, users: Any) -> None:
        self._users = users
        self._answers: queue.SimpleQueue[Union[Mapping[str, int], Exception]] = queue.SimpleQueue()
        self._since_s: Optional[float] = None  # it is at work

    def answer(self) -> Optional[Mapping[str, int]]:
        """What it has found, by the name of a node; None: it is at work. After an answer the next call asks again.

        Raises:
            TimeoutError: it has been at work for a long time. What it raises itself.
        """
        if self._since_s is None:
            self._since_s = time.monotonic()
            threading.Thread(target=self._ask, name="horovod-discovery", daemon=True).start()
        try:
            found = self._answers.get_nowait()
        except queue.Empty:
            if time.monotonic() >= self._since_s + _SILENT_S:
                raise TimeoutError(f"find_available_hosts_and_slots() has not returned for {_SILENT_S:g} s") from None
            return None
        self._since_s = None
        if isinstance(found, Exception):
            raise found
        return found

    def _ask(self) -> None:
        try:
            self._answers.put(dict(self._users.find_available_hosts_and_slots()))
        except Exception as error:
            self._answers.put(error)
