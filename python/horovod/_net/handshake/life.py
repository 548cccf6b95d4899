"""A pipe that ends with this process, which alone has its writing end: for others that can have no pidfd of it.

Used by members. Nothing is ever written; a forked child closes its copies, which would keep the pipe open.
"""

from __future__ import annotations

import os
import threading

_ends: list[int] = []  # for others, and ours
_lock = threading.Lock()


def reading_end() -> int:
    """To be given to others, who see the end of the process by it; it stays this module's."""
    with _lock:
        if not _ends:
            _ends.extend(os.pipe())
        return _ends[0]


def _close() -> None:
    global _lock
    _lock = threading.Lock()
    while _ends:
        os.close(_ends.pop())


os.register_at_fork(after_in_child=_close)
