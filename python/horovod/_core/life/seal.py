"""A code over pickled bytes, so that nobody but a rank of the job can make a rank unpickle something.

::

    sealed = code (HMAC-SHA256, 32 bytes) | sender u32 | number u64 | pickled bytes
    code over: operation, name and process set | sender | number | pickled bytes

The core's data plane carries no code between ranks that share no memory; an attacker between them could change what
travels there. Numbers in a tensor are then wrong; a changed pickle would run the attacker's code. The key comes from
the job's secret and is another one in every epoch; the operation and its sender are bound in; a number that has come
before is refused. Used by `objects`, where the ranks of a job do not all share memory. It does no I/O.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import struct
import threading
from typing import Final

from horovod._core.errors import HorovodInternalError

_CODE_BYTES: Final = 32
_HEAD: Final = struct.Struct(">IQ")
_WINDOW: Final = 1 << 16  # so many operations of other threads may end while one waits for a slow rank
_WINDOW_BITS: Final = (1 << _WINDOW) - 1


class Seal:
    """One rank's means to seal and to open.

    Args:
        key: known to the ranks of the job only, of one epoch.
        rank: of this process.
    """

    def __init__(self, key: bytes, rank: int) -> None:
        self._key = key
        self._rank = rank
        self._numbers = itertools.count(1)  # its `next` is atomic
        self._seen: dict[int, _Window] = {}
        self._lock = threading.Lock()  # guards _seen

    def close(self, operation: str, data: bytes | bytearray) -> bytearray:
        """The sealed bytes to send.

        Args:
            operation: what tells it from all others that are under way, equal on all members.
            data: pickled.
        """
        head = _HEAD.pack(self._rank, next(self._numbers))
        return bytearray(b"".join((self._code(operation, head, data), head, data)))

    def open(self, operation: str, sealed: bytes | bytearray | memoryview, from_rank: int) -> memoryview:
        """The pickled bytes.

        Args:
            operation: as the sender has named it.
            sealed: as they came.
            from_rank: the rank that must have sealed them.

        Raises:
            HorovodInternalError: that rank has not, or not for this operation, or they have come before.
        """
        view = memoryview(sealed)
        code, head, data = view[:_CODE_BYTES], view[_CODE_BYTES:][: _HEAD.size], view[_CODE_BYTES + _HEAD.size :]
        genuine = len(head) == _HEAD.size and hmac.compare_digest(code, self._code(operation, head, data))
        sender, number = _HEAD.unpack(head) if genuine else (-1, 0)
        if sender != from_rank or not self._is_new(sender, number):
            raise HorovodInternalError(
                f"{operation}: the bytes received as rank {from_rank}'s object were not sent by that rank for this "
                "operation, or were received before; somebody between the hosts changes the traffic. They were not "
                "unpickled. Use a private network."
            )
        return data

    def _code(self, operation: str, head: bytes | memoryview, data: bytes | bytearray | memoryview) -> bytes:
        code = hmac.new(self._key, digestmod=hashlib.sha256)
        name = operation.encode("utf-8", "surrogatepass")
        code.update(len(name).to_bytes(8, "big") + name)
        code.update(head)
        code.update(data)
        return code.digest()

    def _is_new(self, sender: int, number: int) -> bool:
        with self._lock:
            return self._seen.setdefault(sender, _Window()).take(number)


class _Window:
    """Which of a sender's numbers have come: the highest, and the ones shortly before it."""

    def __init__(self) -> None:
        self._highest = 0
        self._bits = 0  # bit i: the number `highest - i` has come

    def take(self, number: int) -> bool:
        """Notes the number; False when it has come before, or is too old to tell."""
        if number > self._highest:
            self._bits = (self._bits << min(number - self._highest, _WINDOW) | 1) & _WINDOW_BITS
            self._highest = number
            return True
        bit = 1 << (self._highest - number)
        if self._highest - number >= _WINDOW or self._bits & bit:
            return False
        self._bits |= bit
        return True
