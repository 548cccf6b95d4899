"""Signs of life between launcher and agent that do not wait for one another: datagrams with a code.

Used by `channel`. The stream between the two goes through ssh and TCP, which repeats what was lost on a cut link after
pauses that double: a link that was gone for 2 s is silent for 3.5 s. A datagram comes through as soon as the link is
back. The launcher asks four times a second, the agent answers; each question and answer has a number that rises, and a
code under a key that has come over ssh. A datagram means nothing but "I live". Where none passes, because a firewall
lets only ssh through for example, the stream counts alone (`vigil`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
from typing import Final, Optional

PULSE_S: Final = 0.25  # between two questions
KEY_BYTES: Final = 32
_CODE_BYTES: Final = 16
_NUMBER: Final = struct.Struct(">cQ")
_QUESTION: Final = b"?"
_ANSWER: Final = b"!"
_AT_ONCE: Final = 64  # datagrams that are read in one turn, so that a flood does not hold up everything else


def new_key() -> bytes:
    """A key for one link."""
    return secrets.token_bytes(KEY_BYTES)


def datagram(key: bytes, kind: bytes, number: int) -> bytes:
    """A question or an answer. Pure."""
    words = _NUMBER.pack(kind, number)
    return words + hmac.digest(key, words, hashlib.sha256)[:_CODE_BYTES]


def number_of(key: bytes, kind: bytes, data: bytes) -> Optional[int]:
    """The number of a question or an answer; None: it is not of this kind, or not under this key. Pure."""
    if len(data) != _NUMBER.size + _CODE_BYTES or data[:1] != kind:
        return None
    number = int(_NUMBER.unpack_from(data)[1])
    return number if hmac.compare_digest(data, datagram(key, kind, number)) else None


class Pulses:
    """One side's socket.

    Args:
        key: of the link.
        address, port: where the agent answers, in numbers.
        asks: this is the launcher's side. Else the port may be 0: any.

    Raises:
        OSError: there is no such address here, or no way to it.

    Attributes:
        asks: as given.
    """

    def __init__(self, key: bytes, address: str, port: int, asks: bool) -> None:
        self._key = key
        self.asks = asks
        self._asked = self._heard = 0
        found = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
        family, kind, protocol, _, place = found[0]
        self._socket = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
        try:
            self._socket.connect(place) if asks else self._socket.bind(place)
        except OSError:
            self._socket.close()
            raise

    @property
    def port(self) -> int:
        """Of this side's socket."""
        return int(self._socket.getsockname()[1])

    def fileno(self) -> int:
        """Readable when something has come."""
        return self._socket.fileno()

    def ask(self) -> None:
        """Sends a question. One thread at a time."""
        self._asked += 1
        with contextlib.suppress(OSError):  # no way there at the moment, or closed
            self._socket.send(datagram(self._key, _QUESTION, self._asked))

    def hear(self) -> bool:
        """Reads what has come, and answers questions. True if there was a new sign of life."""
        kind = _ANSWER if self.asks else _QUESTION
        new = False
        for _ in range(_AT_ONCE):
            try:
                data, source = self._socket.recvfrom(_NUMBER.size + _CODE_BYTES + 1)
            except BlockingIOError:
                break
            except OSError:
                continue  # an earlier datagram has reached nobody
            number = number_of(self._key, kind, data)
            if number is None or number <= self._heard:
                continue
            self._heard, new = number, True
            if not self.asks:
                with contextlib.suppress(OSError):
                    self._socket.sendto(datagram(self._key, _ANSWER, number), source)
        return new

    def close(self) -> None:
        """Ends it. May be called twice."""
        self._socket.close()
