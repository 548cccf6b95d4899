"""Signals to the launcher, handled where its loop sleeps and not in the middle of other work.

Used by `cli` and `function`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Callable

Taken = tuple[int, Callable[[], list[int]]]


@contextlib.contextmanager
def taken_signals(numbers: Sequence[int]) -> Iterator[Taken]:
    """For its time, these signals become bytes on a descriptor.

    Other signals go on to the descriptor that was there for them, such as that of the caller's event loop. A signal
    that is ignored stays so (nohup, a background job of a script). Outside of the main thread, where Python lets no
    signal in, nothing is taken.

    Args:
        numbers: the signals.

    Yields:
        The descriptor, or -1, and a function that returns the signals that have come since its last call.
    """
    if threading.current_thread() is not threading.main_thread():
        yield -1, list
        return
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    previous: dict[int, Any] = {}

    old_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def take() -> list[int]:
        come = b""
        with contextlib.suppress(BlockingIOError):
            come = reader.recv(64)
        others = bytes(number for number in come if number not in previous)
        if others and old_fd >= 0:
            with contextlib.suppress(OSError):  # full, or closed meanwhile
                os.write(old_fd, others)
        return [number for number in come if number in previous]

    try:
        for number in sorted(numbers, key=_is_interrupt):
            # None: a handler of a C library, which nobody could put back.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                previous[number] = signal.signal(number, _nothing)
        yield reader.fileno(), take
    finally:
        # First, as handlers that are back may raise (SIGINT's does), and the descriptor must not outlive its socket.
        signal.set_wakeup_fd(old_fd)
        take()
        reader.close()
        writer.close()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_interrupt(number: int) -> bool:
    """The last one whose handler is put back: a second Ctrl-C raises in the middle of it."""
    return number == signal.SIGINT


def _nothing(number: int, frame: object) -> None:
    """The byte on the wake-up descriptor says it all."""
