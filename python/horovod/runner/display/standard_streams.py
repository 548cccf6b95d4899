"""The launcher's own standard streams when they are closed (`>&-`, some service managers), when nobody reads them, or
when they cannot show a text.

Used by `cli`, `doctor`, `function`, `output` and `launchers`.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Optional, TextIO


def fill() -> None:
    """Makes /dev/null of each standard stream that is closed, before the number goes to a pipe of the job."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def descriptor(stream: TextIO) -> Optional[int]:
    """Where the bytes of what is written to the stream go; None where that is not a descriptor.

    Only a stream of Python's own is asked. Those that stand in for one may name the descriptor of another: a notebook's
    names the kernel's terminal, and shows in the cell only what is written to itself; so do programs that copy what is
    printed into a log.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def is_terminal(stream: TextIO) -> bool:
    """The text goes to a terminal."""
    fd = descriptor(stream)
    return fd is not None and os.isatty(fd)


def is_read(stream: TextIO, patience_s: float) -> bool:
    """Somebody takes what is written to the stream, at the latest after this time. True where that cannot be known."""
    fd = descriptor(stream)
    if fd is None:
        return True
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(patience_s * 1000))


def write(stream: TextIO, text: str) -> None:
    """Writes a text; what the stream's encoding does not know is escaped, such as bytes of a file's name that are no
    UTF-8."""
    encoding = getattr(stream, "encoding", None) or "utf-8"  # what stands in for a stream may know of none
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
