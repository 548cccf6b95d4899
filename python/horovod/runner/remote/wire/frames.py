"""What launcher and agent send one another: frames, cut out of a byte stream. Pure.

::

    stream of an agent = anything that a login shell prints | MARK | frame ...
    frame              = body length u32 | kind u8 | body                                            (big-endian)

Used by `channel`. Each kind has a limit, so that a broken peer makes nobody buffer without end; what is in a body is
said in `messages`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from horovod._net.failures import ProtocolError

PROTOCOL: Final = 8
MARK: Final = b"\x00horovod-agent\x00"
MAX_NOISE_BYTES: Final = 1 << 16  # what may come before the mark

HELLO: Final = 1  # of the agent: who it is, as JSON; its kind and MARK never change
CONTROL: Final = 2  # JSON
OUTPUT: Final = 3  # of the agent: rank u32, stream u8, bytes; none: the stream has ended
FUNCTION: Final = 4  # of the launcher: a piece of the function of horovod.run
POST: Final = 5  # an entry for the board, or one that stands there
BEAT: Final = 6  # I am alive
DUMP: Final = 7  # of the agent: rank u32, its dump as JSON

MAX_OUTPUT_BYTES: Final = 1 << 16
MAX_FUNCTION_BYTES: Final = 1 << 18
MAX_DUMP_BYTES: Final = 1 << 17
_OUTPUT: Final = struct.Struct(">IB")
_DUMP: Final = struct.Struct(">I")
FROM_AGENT: Final = {
    HELLO: 1 << 12,
    CONTROL: 1 << 16,
    OUTPUT: MAX_OUTPUT_BYTES + _OUTPUT.size,
    POST: 4096,
    BEAT: 0,
    DUMP: MAX_DUMP_BYTES + _DUMP.size,
}
FROM_LAUNCHER: Final = {CONTROL: 1 << 24, FUNCTION: MAX_FUNCTION_BYTES, POST: 4096, BEAT: 0}

_HEADER: Final = struct.Struct(">IB")


def frame(kind: int, body: bytes = b"") -> bytes:
    """The body with its header."""
    return _HEADER.pack(len(body), kind) + body


def output_frame(rank: int, stream: int, data: bytes) -> bytes:
    """A piece of what a rank has written; without bytes: the stream has ended."""
    return frame(OUTPUT, _OUTPUT.pack(rank, stream) + data)


def output_of(body: bytes) -> tuple[int, int, bytes]:
    """Rank, stream and bytes of an OUTPUT frame.

    Raises:
        ProtocolError: it is too short.
    """
    if len(body) < _OUTPUT.size:
        raise ProtocolError(f"An output frame of {len(body)} bytes is not valid.")
    rank, stream = _OUTPUT.unpack_from(body)
    return rank, stream, body[_OUTPUT.size :]


def dump_frame(rank: int, text: bytes) -> bytes:
    """The dump of a rank."""
    return frame(DUMP, _DUMP.pack(rank) + text)


def dump_of(body: bytes) -> tuple[int, bytes]:
    """Rank and text of a DUMP frame.

    Raises:
        ProtocolError: it is too short.
    """
    if len(body) < _DUMP.size:
        raise ProtocolError(f"A dump frame of {len(body)} bytes is not valid.")
    return _DUMP.unpack_from(body)[0], body[_DUMP.size :]


class Reader:
    """Cuts the stream of one peer.

    Args:
        limits: longest body of each kind that this peer may send.
        marked: the stream begins with MARK; what comes before it is dropped.
    """

    def __init__(self, limits: Mapping[int, int], marked: bool = False) -> None:
        self._limits = limits
        self._waiting_for_mark = marked
        self._noise_bytes = 0
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Takes the next bytes; gives the frames that are complete now, as (kind, body).

        Raises:
            ProtocolError: the stream is not, or no longer, such frames; nothing after it counts.
        """
        self._buffer += data
        if self._waiting_for_mark and not self._find_mark():
            return
        at = 0
        try:
            while len(self._buffer) - at >= _HEADER.size:
                length, kind = _HEADER.unpack_from(self._buffer, at)
                limit = self._limits.get(kind)
                if limit is None:
                    raise ProtocolError(f"A frame of kind {kind} is not expected here.")
                if length > limit:
                    raise ProtocolError(f"A frame of kind {kind} with {length} bytes is too long; {limit} are allowed.")
                end = at + _HEADER.size + length
                if len(self._buffer) < end:
                    break
                body = bytes(self._buffer[at + _HEADER.size : end])
                at = end
                yield kind, body
        finally:
            del self._buffer[:at]

    def _find_mark(self) -> bool:
        found = self._buffer.find(MARK)
        # What may still become the mark stays.
        dropped = found if found >= 0 else max(0, len(self._buffer) - len(MARK) + 1)
        self._noise_bytes += dropped
        del self._buffer[: found + len(MARK) if found >= 0 else dropped]
        if self._noise_bytes > MAX_NOISE_BYTES:
            raise ProtocolError(f"More than {MAX_NOISE_BYTES} bytes came before the agent's first word.")
        self._waiting_for_mark = found < 0
        return found >= 0
