"""The calls that every operation makes, as ctypes has them: they answer the raw status and raise nothing.

Used by `engine`, which adds all other calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence


class HotPath:
    """Submitting operations and waiting for them. Any thread may call any method."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """
        Args:
            library: from `horovod._native.library.load`.
        """
        self._library = library
        # Calls go to the ctypes functions themselves, without a Python frame in between.
        # For the lane: the addresses of what it calls itself.
        self.door = tuple(
            ctypes.cast(function, ctypes.c_void_p).value or 0
            for function in (library.hvd_run, library.hvd_submit, library.hvd_finish, library.hvd_finish_all)
        )
        self.run = library.hvd_run  # type: ignore[method-assign]
        self.submit = library.hvd_submit  # type: ignore[method-assign]
        self.poll = library.hvd_poll  # type: ignore[method-assign]
        self.wait = library.hvd_wait  # type: ignore[method-assign]
        self.finish = library.hvd_finish  # type: ignore[method-assign]
        self.release = library.hvd_release  # type: ignore[method-assign]

    def run(self, ops: int, n: int, timeout_s: float, handle: int) -> int:
        """hvd_run: `ops` is the address of n HvdOp, `handle` that of an int64. A raw status. Collective."""
        return int(self._library.hvd_run(ops, n, timeout_s, handle))

    def submit(self, ops: int, n: int, flags: int, handle: int) -> int:
        """hvd_submit, as above. A raw status. Collective."""
        return int(self._library.hvd_submit(ops, n, flags, handle))

    def poll(self, handle: int) -> int:
        """hvd_poll. A raw status."""
        return int(self._library.hvd_poll(handle))

    def wait(self, handle: int, timeout_s: float) -> int:
        """hvd_wait. A raw status; IN_PROGRESS also when a signal arrived, so that its Python handler can run."""
        return int(self._library.hvd_wait(handle, timeout_s))

    def finish(self, handle: int, timeout_s: float) -> int:
        """hvd_finish: waits, and releases an operation that was successful. A raw status."""
        return int(self._library.hvd_finish(handle, timeout_s))

    def finish_all(self, handles: Sequence[int], timeout_s: float) -> int:
        """hvd_finish_all: releases all of them, or none. A raw status."""
        n = len(handles)
        return int(self._library.hvd_finish_all((ctypes.c_int64 * n)(*handles), n, timeout_s))

    def release(self, handle: int) -> int:
        """hvd_release. A raw status."""
        return int(self._library.hvd_release(handle))
