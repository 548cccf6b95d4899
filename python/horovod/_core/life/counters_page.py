"""The memory in which this rank counts: one page, which the core and this module write and others read.

In a job that has a private directory on its host it is the file `counters.N` there, so that the launcher sees a rank's
figures without asking it. Elsewhere only `hvd.metrics()` reads it. counters.h has the layout. The page lives as long as
the process: each engine of it goes on counting where the one before has stopped.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import time
from pathlib import Path
from typing import Any, Final, Optional

from horovod._dumps import paths
from horovod._native import abi

_BYTES: Final = mmap.PAGESIZE

_log: Final = logging.getLogger("horovod")


class CountersPage:
    """See the head of the file.

    Args:
        path: of the file; None: nobody else reads it.

    Attributes:
        path: the same, also where the file could not be made.
        words: their address, for `hvd_config`.
    """

    def __init__(self, path: Optional[Path]) -> None:
        self.path = path
        memory = _in_file(path) if path is not None else None
        if memory is None:
            memory = mmap.mmap(-1, _BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Exported, the memory cannot be unmapped while a thread of the core may still count.
        self._words = (ctypes.c_uint64 * abi.COUNTER_WORDS).from_buffer(memory)
        self.words: Any = ctypes.cast(self._words, ctypes.POINTER(ctypes.c_uint64))
        self._words[abi.COUNTER_PID] = os.getpid()
        self._words[abi.COUNTER_BEGAN_NS] = time.monotonic_ns()

    def place(self, rank: int, size: int, epoch: int) -> None:
        """Notes where this rank stands now, and that an engine runs. From the first time on, others may read."""
        since_ns = self._words[abi.COUNTER_PAUSED_SINCE_NS]
        if since_ns:
            self._words[abi.COUNTER_PAUSED_NS] += time.monotonic_ns() - since_ns
            self._words[abi.COUNTER_PAUSED_SINCE_NS] = 0
        for word, value in ((abi.COUNTER_RANK, rank), (abi.COUNTER_SIZE, size), (abi.COUNTER_EPOCH, epoch)):
            self._words[word] = value
        self._words[abi.COUNTER_LAYOUT] = abi.COUNTERS_LAYOUT

    def pause(self) -> None:
        """No engine runs until `place`: the time is none of computing, waiting and transferring."""
        if not self._words[abi.COUNTER_PAUSED_SINCE_NS]:
            self._words[abi.COUNTER_PAUSED_SINCE_NS] = time.monotonic_ns()

    def add(self, word: int, more: int = 1) -> None:
        """More of what the word counts."""
        self._words[word] += more

    def read(self, word: int) -> int:
        """What the word counts."""
        return int(self._words[word])

    def numbers(self) -> list[int]:
        """All words."""
        return list(self._words)


_page: Optional[CountersPage] = None


def begin(directory: Optional[str], number: int) -> CountersPage:
    """The page of this process, which becomes a file where there is a directory for it.

    Args:
        directory: of the job on this host; None: there is none.
        number: under which the launcher has started this rank.
    """
    global _page
    path = paths.counters_file(Path(directory), number) if directory else None
    if _page is None or _page.path != path:
        before, _page = _page, CountersPage(path)
        for word in (abi.COUNTER_RESETS, abi.COUNTER_COMMITS):
            _page.add(word, before.read(word) if before is not None else 0)
    return _page


def pause() -> None:
    """The engine of this process has ended."""
    if _page is not None:
        _page.pause()


def count_reset() -> None:
    """The job is going to begin again with other ranks."""
    if _page is not None:
        _page.add(abi.COUNTER_RESETS)


def count_commit() -> None:
    """The state has been committed."""
    if _page is not None:
        _page.add(abi.COUNTER_COMMITS)


def read(word: int) -> int:
    """What a word of this process's page counts; 0 before the first `init`."""
    return 0 if _page is None else _page.read(word)


def numbers() -> list[int]:
    """All words of this process's page; zeros before the first `init`."""
    return [0] * abi.COUNTER_WORDS if _page is None else _page.numbers()


def forget() -> None:
    """In a forked child: what it counts is not the parent's."""
    global _page
    _page = None


def _in_file(path: Path) -> Optional[mmap.mmap]:
    fd = -1
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # of a program that was in this rank's place before
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        # Not a hole: a full file system would end the rank by SIGBUS later.
        os.write(fd, bytes(_BYTES))
        return mmap.mmap(fd, _BYTES)
    except (OSError, ValueError) as error:
        _log.debug("The counters of this rank cannot be read by others: %s", error)
        return None
    finally:
        if fd >= 0:
            os.close(fd)
