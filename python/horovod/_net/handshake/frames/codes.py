"""Codes of the frames between two hosts: an attacker on the connection cannot forge, repeat or reorder them.

The code is HMAC-SHA256, cut to 16 bytes, of the frame, its number and its direction, with the key that the two sides
got from their proofs. Unix sockets need none: the kernel keeps them. Used by links.
"""

from __future__ import annotations

import hmac
from typing import ClassVar

from horovod._net.failures import ProtocolError

_DIRECTIONS = (b"from connector", b"from acceptor")


class FrameCodes:
    """One side's codes of one connection.

    Args:
        key: of the connection.
        connector: this side has opened it.
    """

    BYTES: ClassVar[int] = 16

    def __init__(self, key: bytes, *, connector: bool) -> None:
        self._key = key
        self._directions = _DIRECTIONS if connector else _DIRECTIONS[::-1]
        self._sent = self._received = 0

    def of_next_sent(self, frame: bytes) -> bytes:
        """The code of the next frame to send."""
        self._sent += 1
        return self._code(self._directions[0], self._sent, frame)

    def check_next_received(self, frame: bytes, code: bytes) -> None:
        """Judges the next frame to arrive.

        Raises:
            ProtocolError: it is not the frame that the other side has sent as its next.
        """
        self._received += 1
        if not hmac.compare_digest(code, self._code(self._directions[1], self._received, frame)):
            raise ProtocolError(f"Frame {self._received} does not carry the code of this connection.")

    def _code(self, direction: bytes, number: int, frame: bytes) -> bytes:
        text = direction + number.to_bytes(8, "big") + frame
        return hmac.digest(self._key, text, "sha256")[: self.BYTES]
