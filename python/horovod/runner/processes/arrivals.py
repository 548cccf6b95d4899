"""Which ranks have called hvd.init(): each makes a socket `r<rank>` in a sub-directory of the job's directory.

Used by `launchers.local` and `launchers.following`. The kernel tells when something changes there (inotify); where that
is not to be had, the caller's tick does. The ranks take their sockets away when all are connected, or when they have
given up: either way the start is over then, and what follows is theirs to report.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from pathlib import Path
from typing import Final

from horovod.runner.processes.strays import strays_in

_SOCKET: Final = re.compile(r"r([0-9]+)")
_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_IN_DELETE: Final = 0x200
_IN_OVERFLOW: Final = 0x4000
_IN_ISDIR: Final = 0x40000000


class DirectoryArrivals:
    """The ranks that have shown up in `directory`. A `crew.Arrivals`.

    Attributes:
        fd: readable when something has changed there; -1 when the kernel cannot tell.
        over: a rank that was there has left again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._watched: set[str] = set()
        self._seen: set[tuple[str, int]] = set()
        self._met = False
        self.over = False
        import ctypes  # not before the ranks are on their way: it takes 10 ms

        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = -1
        with contextlib.suppress(AttributeError):
            self.fd = int(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        self._watch(str(directory))

    def ranks(self) -> set[int]:
        """The ranks that are up, or were."""
        self._read_events()
        # Watch first, then look, so that nothing is missed.
        now: set[tuple[str, int]] = set()
        for place in self._meetings():
            self._met = True
            self._watch(place)
            with contextlib.suppress(OSError):
                matches = [_SOCKET.fullmatch(name) for name in os.listdir(place)]
                now |= {(place, int(match.group(1))) for match in matches if match}
        self.over = self.over or bool(self._seen - now)
        self._seen |= now
        return {rank for _, rank in self._seen}

    def nobody(self) -> bool:
        """No rank has come at all. False when that cannot be known, and after `close`."""
        known = self.fd >= 0
        self.ranks()
        return known and not self._met

    def strays(self) -> int:
        """See `crew.Arrivals`."""
        return strays_in(self._directory)

    def close(self) -> None:
        """Ends the watch."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _read_events(self) -> None:
        """Where the ranks meet is a sub-directory, which may be gone again before anybody looks; the event stays."""
        while self.fd >= 0:
            try:
                events = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            while events:
                _, mask, _, length = struct.unpack_from("iIII", events)
                self._met = self._met or bool(mask & (_IN_ISDIR | _IN_OVERFLOW))
                events = events[struct.calcsize("iIII") + length :]

    def _meetings(self) -> list[str]:
        with contextlib.suppress(OSError):
            return [entry.path for entry in os.scandir(self._directory) if entry.is_dir(follow_symlinks=False)]
        return []

    def _watch(self, place: str) -> None:
        if self.fd >= 0 and place not in self._watched:
            self._libc.inotify_add_watch(self.fd, os.fsencode(place), _IN_CREATE | _IN_MOVED_TO | _IN_DELETE)
            self._watched.add(place)
