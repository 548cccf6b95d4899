"""What the core tells of a rank that hangs, and what asks for it.

A part of `engine`, which gives it to `horovod._core.life`.
"""

from __future__ import annotations

import ctypes
from typing import Callable

from horovod._native import abi

Check = Callable[[int], None]


class Dumps:
    """See the head of the file. Any thread may call any method.

    Args:
        library: from `horovod._native.library.load`.
        check: raises the error for a status that is none of success.
    """

    def __init__(self, library: ctypes.CDLL, check: Check) -> None:
        self._library = library
        self._check = check

    def text(self) -> str:
        """hvd_dump: JSON text."""
        return text_of(self._library.hvd_dump, self._check)

    def call_fd(self) -> int:
        """hvd_dump_call_fd: readable when somebody asks for a dump; -1: nobody can."""
        return int(self._library.hvd_dump_call_fd())

    def on_signal(self, number: int) -> bool:
        """hvd_dump_on_signal. False: the program uses this signal itself."""
        return bool(self._library.hvd_dump_on_signal(number) == abi.OK)


def text_of(call: Callable[..., int], check: Check) -> str:
    """What a function of the core writes into a buffer, which grows until the text fits."""
    needed = ctypes.c_size_t(4096)
    while True:
        capacity = needed.value
        buffer = ctypes.create_string_buffer(capacity)
        check(call(buffer, capacity, ctypes.byref(needed)))
        if needed.value <= capacity:
            return buffer.value.decode("utf-8", "replace")
