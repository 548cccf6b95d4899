"""Files that a user or a scheduler names: read to their end, but neither without a bound nor for ever.

A name may lead to a pipe, as `--hostfile <(program)` does, and that to a program that never writes. Used by `hosts`,
`config_file` and `allocations`.
"""

from __future__ import annotations

import errno
import os
import select
import time
from typing import Final

_PATIENCE_S: Final = 10.0
_CHUNK_BYTES: Final = 1 << 16


def read(path: str, most_bytes: int, patience_s: float = _PATIENCE_S) -> bytes:
    """What is in the file; one byte more than `most_bytes` if it is longer.

    Args:
        path: of the file.
        most_bytes: that it may have.
        patience_s: for a pipe to end.

    Raises:
        OSError: it cannot be read, or is a pipe that does not end in time; `strerror` says which.
    """
    deadline = time.monotonic() + patience_s
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        data = bytearray()
        while len(data) <= most_bytes:
            if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError(
                    errno.ETIMEDOUT, f"it is a pipe whose writer has not closed it within {patience_s:g} s"
                )
            try:
                piece = os.read(fd, min(_CHUNK_BYTES, most_bytes + 1 - len(data)))
            except BlockingIOError:
                continue
            if not piece:
                break
            data += piece
        return bytes(data)
    finally:
        os.close(fd)
