"""The frames that ranks exchange while they connect: a fixed, versioned, bounded binary schema.

::

    frame = magic "HVDN" | version u8 | kind u8 | zero u16 | body length u32 | body [| code]   (big-endian)

A message is a dataclass whose fields are packed by its LAYOUT; some end in a text. The parser is pure: bytes in,
messages or a `ProtocolError` out. It never buffers more than the limit of the kind, and nothing is evaluated or
unpickled. Used by everything in this folder.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Optional, Protocol, TypeVar, Union

from horovod._net.failures import ProtocolError

MAGIC = b"HVDN"
VERSION = 1
NONCE_BYTES = 32
PROOF_BYTES = 32
JOB_BYTES = 32
MAX_TEXT_BYTES = 4096
MAX_RANKS = 1 << 24

# Roles of a connection, bound into the proof.
ROLE_MEET = 1
ROLE_CONTROL = 2
ROLE_DATA = 3

_HEADER = struct.Struct(">4sBBHI")
HEADER_BYTES = _HEADER.size

_M = TypeVar("_M", bound="_Message")


@dataclass(frozen=True)
class _Message:
    """A message whose body is exactly its LAYOUT. Subclasses check the values in `__post_init__`."""

    KIND: ClassVar[int] = 0
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">")
    TEXT: ClassVar[bool] = False

    def encode(self) -> bytes:
        values = [getattr(self, field.name) for field in dataclasses.fields(self)]
        tail = values.pop().encode("utf-8", "replace")[:MAX_TEXT_BYTES] if self.TEXT else b""
        return self.LAYOUT.pack(*values) + tail

    @classmethod
    def decode(cls: type[_M], body: bytes) -> _M:
        """The message in a body.

        Raises:
            ProtocolError: wrong length or impossible values.
        """
        length = len(body)
        if length < cls.LAYOUT.size or length > cls.longest_body():
            raise ProtocolError(f"A {cls.__name__} message of {length} bytes cannot be; it has {cls.LAYOUT.size}.")
        values = list(cls.LAYOUT.unpack_from(body))
        if cls.TEXT:
            values.append(body[cls.LAYOUT.size :].decode("utf-8", "replace"))
        return cls(*values)

    @classmethod
    def longest_body(cls) -> int:
        """Bytes of the longest body that is accepted."""
        return cls.LAYOUT.size + (MAX_TEXT_BYTES if cls.TEXT else 0)


def _check_rank(what: str, rank: int) -> None:
    if not 0 <= rank < MAX_RANKS:
        raise ProtocolError(f"{what} {rank} is larger than any job.")


@dataclass(frozen=True)
class Knock(_Message):
    """'I am up, connect to me': from a lower rank that came later. Not authenticated; it makes the receiver look,
    nothing else.
    """

    KIND: ClassVar[int] = 1
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">I")
    rank: int

    def __post_init__(self) -> None:
        _check_rank("rank", self.rank)


@dataclass(frozen=True)
class Hello(_Message):
    """First message of the connecting side: who it claims to be, whom it wants, and its nonce."""

    KIND: ClassVar[int] = 2
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(f">{JOB_BYTES}sQBIII{NONCE_BYTES}s")
    job: bytes
    epoch: int
    role: int
    size: int
    from_rank: int
    to_rank: int
    nonce: bytes

    def __post_init__(self) -> None:
        if self.role not in (ROLE_MEET, ROLE_CONTROL, ROLE_DATA):
            raise ProtocolError(f"role {self.role} does not exist.")
        for what in ("size", "from_rank", "to_rank"):
            _check_rank(what, getattr(self, what))


@dataclass(frozen=True)
class Challenge(_Message):
    """The accepting side's nonce, and its proof that it holds the secret."""

    KIND: ClassVar[int] = 3
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(f">{NONCE_BYTES}s{PROOF_BYTES}s")
    nonce: bytes
    proof: bytes


@dataclass(frozen=True)
class Proof(_Message):
    """The connecting side's proof."""

    KIND: ClassVar[int] = 4
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(f">{PROOF_BYTES}s")
    proof: bytes


@dataclass(frozen=True)
class Offer(_Message):
    """How the sender can be reached. With `shares_memory` its memfd and doorbell travel with the frame.

    Without `has_pidfd` the sender watches the connection itself to notice the receiver's end, so the receiver must
    keep it open.
    """

    KIND: ClassVar[int] = 5
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">??QQ36s")
    shares_memory: bool
    has_pidfd: bool
    region_bytes: int
    ipc_namespace: int
    boot_id: bytes


@dataclass(frozen=True)
class Seen(_Message):
    """The nonce that the sender read from the receiver's memory after mapping it: the proof that the two share it."""

    KIND: ClassVar[int] = 6
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(f">{NONCE_BYTES}s")
    nonce: bytes


@dataclass(frozen=True)
class Address(_Message):
    """Where the sender listens for the receiver's control and data connections."""

    KIND: ClassVar[int] = 7
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">H")
    TEXT: ClassVar[bool] = True
    port: int
    host: str


@dataclass(frozen=True)
class Ready(_Message):
    """The sender is connected to every other rank, and its memory is clean. From a board: all has been sent that stood
    on it when the receiver came.
    """

    KIND: ClassVar[int] = 8


@dataclass(frozen=True)
class Failed(_Message):
    """The sender gives up: whose fault it was (-1: nobody's in particular), and why."""

    KIND: ClassVar[int] = 9
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(">i")
    TEXT: ClassVar[bool] = True
    culprit: int
    reason: str


@dataclass(frozen=True)
class Started(_Message):
    """The sender's engine runs."""

    KIND: ClassVar[int] = 10


@dataclass(frozen=True)
class Post(_Message):
    """An entry of the job's board, `key=value`: from a rank that wants it there, and to all ranks once it stands."""

    KIND: ClassVar[int] = 11
    TEXT: ClassVar[bool] = True
    text: str


AnyMessage = Union[Knock, Hello, Challenge, Proof, Offer, Seen, Address, Ready, Failed, Started, Post]
_TYPES: tuple[type[AnyMessage], ...] = (
    *(Knock, Hello, Challenge, Proof),
    *(Offer, Seen, Address, Ready, Failed, Started),
    Post,
)
TYPE_OF_KIND: dict[int, type[AnyMessage]] = {kind.KIND: kind for kind in _TYPES}

BEFORE_AUTHENTICATION: frozenset[int] = frozenset({Knock.KIND, Hello.KIND, Challenge.KIND, Proof.KIND})
ON_A_BOARD: frozenset[int] = frozenset({Post.KIND, Ready.KIND})
AFTER_AUTHENTICATION: frozenset[int] = frozenset(TYPE_OF_KIND) - BEFORE_AUTHENTICATION - {Post.KIND}


class Codes(Protocol):
    """What protects the frames of a connection once it is authenticated; see `codes`."""

    BYTES: ClassVar[int]

    def of_next_sent(self, frame: bytes) -> bytes:
        """The code of the next frame to send."""
        ...

    def check_next_received(self, frame: bytes, code: bytes) -> None:
        """Raises ProtocolError when it is not the code of the next frame to arrive."""
        ...


def frame(message: AnyMessage) -> bytes:
    """The message with its header."""
    body = message.encode()
    return _HEADER.pack(MAGIC, VERSION, message.KIND, 0, len(body)) + body


class FrameReader:
    """Cuts a byte stream into messages; only `allowed` kinds, which the owner widens once the sender is
    authenticated. From then on each frame may be followed by its code.
    """

    def __init__(self, allowed: Collection[int] = BEFORE_AUTHENTICATION) -> None:
        self.allowed = allowed
        self.codes: Optional[Codes] = None
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Adds received bytes; the owner calls `next` until None before it feeds more."""
        self._buffer += data

    def next(self) -> Optional[AnyMessage]:
        """The next complete message, or None.

        Raises:
            ProtocolError: the stream is not, or no longer, frames of this version; the connection is to be dropped.
        """
        if len(self._buffer) < HEADER_BYTES:
            if not MAGIC.startswith(bytes(self._buffer[: len(MAGIC)])):
                raise ProtocolError("The bytes received are not a frame of this protocol.")
            return None
        magic, version, kind, zero, length = _HEADER.unpack_from(self._buffer)
        if magic != MAGIC or zero:
            raise ProtocolError("The bytes received are not a frame of this protocol.")
        if version != VERSION:
            raise ProtocolError(
                f"The frame is of protocol version {version}, this side speaks {VERSION}: all ranks must run the "
                "same Horovod."
            )
        if kind not in self.allowed:
            raise ProtocolError(f"A message of kind {kind} is not allowed here.")
        message_type = TYPE_OF_KIND[kind]
        if length > message_type.longest_body():
            raise ProtocolError(
                f"A {message_type.__name__} frame of {length} bytes is too long; at most "
                f"{message_type.longest_body()} are allowed."
            )
        end = HEADER_BYTES + length
        whole = end + (self.codes.BYTES if self.codes is not None else 0)
        if len(self._buffer) < whole:
            return None
        data, code = bytes(self._buffer[:end]), bytes(self._buffer[end:whole])
        del self._buffer[:whole]
        if self.codes is not None:
            self.codes.check_next_received(data, code)
        return message_type.decode(data[HEADER_BYTES:])

    @property
    def pending_bytes(self) -> int:
        """Bytes received that are not a complete message yet."""
        return len(self._buffer)
