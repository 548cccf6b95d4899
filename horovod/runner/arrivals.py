"""Which ranks have called hvd.init(): each makes a socket `r<rank>` in a sub-directory of the job's directory.

Used by `supervision`. The kernel tells when something changes there (inotify); where that is not to be had, the
caller's tick does. The ranks take their sockets away when all are connected, or when they have given up: either way the
start is over then, and what follows is theirs to report.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

_SOCKET: Final = re.compile(r"r([0-9]+)")
_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_IN_DELETE: Final = 0x200


class Arrivals:
    """The ranks that have shown up in `directory`.

    Attributes:
        fd: readable when something has changed there; -1 when the kernel cannot tell.
        over: a rank that was there has left again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._watched: set[str] = set()
        self._seen: set[tuple[str, int]] = set()
        self.over = False
        import ctypes  # not before the ranks are on their way: it takes 10 ms

        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = -1
        with contextlib.suppress(AttributeError):
            self.fd = int(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        self._watch(str(directory))

    def ranks(self) -> set[int]:
        """Who is up, or was."""
        if self.fd >= 0:
            with contextlib.suppress(BlockingIOError):
                os.read(self.fd, 1 << 16)
        # Watch first, look then: nothing falls in between.
        now: set[tuple[str, int]] = set()
        for place in self._meetings():
            self._watch(place)
            with contextlib.suppress(OSError):
                matches = [_SOCKET.fullmatch(name) for name in os.listdir(place)]
                now |= {(place, int(match.group(1))) for match in matches if match}
        self.over = self.over or bool(self._seen - now)
        self._seen |= now
        return {rank for _, rank in self._seen}

    def close(self) -> None:
        """Ends the watch."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _meetings(self) -> list[str]:
        with contextlib.suppress(OSError):
            return [entry.path for entry in os.scandir(self._directory) if entry.is_dir(follow_symlinks=False)]
        return []

    def _watch(self, place: str) -> None:
        if self.fd >= 0 and place not in self._watched:
            self._libc.inotify_add_watch(self.fd, os.fsencode(place), _IN_CREATE | _IN_MOVED_TO | _IN_DELETE)
            self._watched.add(place)
