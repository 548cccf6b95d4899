"""How the function of `horovod.run` reaches the ranks and how their results come back: by inherited descriptors.

The function lies in anonymous memory that all ranks inherit; each rank has a pipe for its result, which the launcher
empties as it fills. So neither needs room in any file system, however large it is. Used by `function` and `launchers`
on the launcher's side, by `run_task` in the ranks.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping, MutableMapping
from typing import Final, Optional

VARIABLE: Final = "_HOROVOD_TASK"  # "<descriptor of the function>,<descriptor for the result>"
_LENGTH: Final = struct.Struct("<Q")


class ResultStream:
    """The result of one rank, as it comes out of its pipe. Has the face of `output.RankStream`."""

    name: Final = "result"
    problem: Final = ""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._received = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes; there is nothing to be shown."""
        self._received += data
        return b""

    def finish(self) -> bytes:
        """The stream has ended."""
        return b""

    def result(self) -> Optional[memoryview]:
        """The whole result; None when the rank ended before it had written all of it."""
        received = memoryview(self._received)
        if len(received) < _LENGTH.size or len(received) - _LENGTH.size != _LENGTH.unpack_from(received)[0]:
            return None
        return received[_LENGTH.size :]


class Shipment:
    """The launcher's side of one call.

    Args:
        function: the pickled call.

    Attributes:
        function_fd: what all ranks inherit.
    """

    def __init__(self, function: bytes) -> None:
        self.function_fd = os.memfd_create("horovod.run", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._streams: dict[int, ResultStream] = {}
        try:
            with open(self.function_fd, "wb", closefd=False) as file:
                file.write(function)
            # The ranks share it, so that none of them may change it for the others.
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.function_fd, fcntl.F_ADD_SEALS, seals)
        except BaseException:
            self.close()  # nobody else can: the caller has no shipment
            raise

    def expect(self, rank: int) -> ResultStream:
        """What is to be fed with the bytes of this rank's pipe."""
        self._streams[rank] = ResultStream(rank)
        return self._streams[rank]

    def variables(self, result_fd: int) -> Mapping[str, str]:
        """What tells a rank its descriptors."""
        return {VARIABLE: f"{self.function_fd},{result_fd}"}

    def results(self) -> dict[int, memoryview]:
        """The results that have come, by rank."""
        found = {rank: stream.result() for rank, stream in self._streams.items()}
        return {rank: result for rank, result in found.items() if result is not None}

    def close(self) -> None:
        """Closes the function's memory."""
        os.close(self.function_fd)


class Desk:
    """A rank's side.

    Args:
        environ: of this process; the variable is taken out, and the descriptors are kept from children.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        function_fd, self._result_fd = map(int, environ.pop(VARIABLE).split(","))
        os.set_inheritable(self._result_fd, False)
        with open(function_fd, "rb", buffering=0):
            self.function = function_in(function_fd)

    def answer(self, result: bytes) -> None:
        """Gives the result to the launcher."""
        with open(self._result_fd, "wb") as file:
            file.write(framed(result))


def framed(result: bytes) -> bytes:
    """A result as it travels: its length first, so that nobody takes a part of it for the whole."""
    return _LENGTH.pack(len(result)) + result


def function_in(fd: int) -> bytes:
    """All of the memory that the function lies in. The ranks share the position in it, so that is left alone."""
    size = os.fstat(fd).st_size
    data = bytearray(size)
    view = memoryview(data)
    at = 0
    while at < size:
        at += os.preadv(fd, [view[at:]], at)
    return bytes(data)
