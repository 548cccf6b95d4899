"""The frames that ranks exchange while they connect: a fixed, versioned, bounded binary schema.

::

    frame = magic "HVDN" | version u8 | kind u8 | zero u16 | body length u32 | body [| code]   (big-endian)

A message is a named tuple whose fields are packed by the layout of its `Form`; some end in a text or in bytes. (A
tuple, because every rank waits for this import, and eleven frozen dataclasses take 6 ms.) The parser is pure: bytes in,
messages or a `ProtocolError` out. It never buffers more than the limit of the kind, and nothing is evaluated or
unpickled. Used by everything in this folder.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, Optional, Protocol, Union

from horovod._net.failures import ProtocolError

MAGIC = b"HVDN"
VERSION = 3
NONCE_BYTES = 32
PROOF_BYTES = 32
JOB_BYTES = 32
MAX_TEXT_BYTES = 4096
MAX_PIECE_BYTES = 1 << 14
MAX_RANKS = 1 << 24

# Of an Offer or Introduction: memory, doorbell and sign of life of each rank; the kernel passes 253 with one message.
DESCRIPTORS_EACH = 3
MOST_INTRODUCED = 80

# Roles of a connection, bound into the proof.
ROLE_MEET = 1
ROLE_CONTROL = 2
ROLE_DATA = 3
ROLE_BOARD = 4
ROLE_AGENT = 5

_HEADER = struct.Struct(">4sBBHI")
HEADER_BYTES = _HEADER.size


class Knock(NamedTuple):
    """'I am up, connect to me': from a lower rank that came later. Not authenticated; it makes the receiver look,
    nothing else.
    """

    rank: int


class Hello(NamedTuple):
    """First message of the connecting side: the rank it claims to be, the rank it wants, and its nonce."""

    job: bytes
    epoch: int
    role: int
    size: int
    from_rank: int
    to_rank: int
    nonce: bytes


class Challenge(NamedTuple):
    """The accepting side's nonce, and its proof that it holds the secret."""

    nonce: bytes
    proof: bytes


class Proof(NamedTuple):
    """The connecting side's proof."""

    proof: bytes


class Offer(NamedTuple):
    """How the sender can be reached. With `shares_memory` its memfd, its doorbell and a pipe that ends with its process
    travel with the frame. With `by_mpi` the sender wants MPI to move tensors.
    """

    shares_memory: bool
    by_mpi: bool
    region_bytes: int
    ipc_namespace: int
    boot_id: bytes


class Seen(NamedTuple):
    """The nonce that the sender read from the receiver's memory after mapping it: the proof that the two share it."""

    nonce: bytes


class Address(NamedTuple):
    """Where the sender listens for the receiver's control and data connections."""

    port: int
    host: str


class Ready(NamedTuple):
    """The sender is connected to every other rank, and its memory is clean. From a board: all has been sent that stood
    on it when the receiver came.
    """


class Failed(NamedTuple):
    """The sender gives up: whose fault it was (-1: nobody's in particular), and why."""

    culprit: int
    reason: str


class Started(NamedTuple):
    """The sender's engine runs."""


class Post(NamedTuple):
    """An entry of the job's board, `key=value`: from a rank that wants it there, and to all ranks once it stands."""

    text: str


class Introduction(NamedTuple):
    """From the leader of a host: ranks there that the receiver shares memory with, as `<rank> <pid>` a line. Memory,
    doorbell and pidfd, or pipe, of each travel with the frame.
    """

    text: str


class Taken(NamedTuple):
    """The sender has the descriptors of the last Introduction."""


class Posts(NamedTuple):
    """Several entries that stand, in their order, with NULs between them."""

    text: str

    def entries(self) -> list[str]:
        """One by one."""
        return self.text.split("\0")


class Piece(NamedTuple):
    """The next bytes of a stream that the connection carries, between the launcher and the agent of a host."""

    data: bytes


AnyMessage = Union[
    Knock,
    Hello,
    Challenge,
    Proof,
    Offer,
    Seen,
    Address,
    Ready,
    Failed,
    Started,
    Post,
    Introduction,
    Taken,
    Posts,
    Piece,
]


class Form(NamedTuple):
    """What a kind of message looks like as bytes: its number, the layout of its fields, and how long a text, or bytes,
    may be that follows as the last of them; 0: none does."""

    kind: int
    layout: struct.Struct
    text: int = 0
    data: int = 0


FORMS: dict[type[AnyMessage], Form] = {
    Knock: Form(1, struct.Struct(">I")),
    Hello: Form(2, struct.Struct(f">{JOB_BYTES}sQBIII{NONCE_BYTES}s")),
    Challenge: Form(3, struct.Struct(f">{NONCE_BYTES}s{PROOF_BYTES}s")),
    Proof: Form(4, struct.Struct(f">{PROOF_BYTES}s")),
    Offer: Form(5, struct.Struct(">??QQ36s")),
    Seen: Form(6, struct.Struct(f">{NONCE_BYTES}s")),
    Address: Form(7, struct.Struct(">H"), text=MAX_TEXT_BYTES),
    Ready: Form(8, struct.Struct(">")),
    Failed: Form(9, struct.Struct(">i"), text=MAX_TEXT_BYTES),
    Started: Form(10, struct.Struct(">")),
    Post: Form(11, struct.Struct(">"), text=MAX_TEXT_BYTES),
    Introduction: Form(12, struct.Struct(">"), text=MAX_TEXT_BYTES),
    Taken: Form(13, struct.Struct(">")),
    Posts: Form(14, struct.Struct(">"), text=MAX_TEXT_BYTES),
    Piece: Form(15, struct.Struct(">"), data=MAX_PIECE_BYTES),
}
TYPE_OF_KIND: dict[int, type[AnyMessage]] = {form.kind: kind for kind, form in FORMS.items()}

BEFORE_AUTHENTICATION: frozenset[int] = frozenset(FORMS[kind].kind for kind in (Knock, Hello, Challenge, Proof))
_POSTS: frozenset[int] = frozenset(FORMS[kind].kind for kind in (Post, Posts))
ON_A_BOARD: frozenset[int] = _POSTS | {FORMS[Ready].kind}
IN_PIECES: frozenset[int] = frozenset({FORMS[Piece].kind})
AFTER_AUTHENTICATION: frozenset[int] = frozenset(TYPE_OF_KIND) - BEFORE_AUTHENTICATION - _POSTS - IN_PIECES


def together(entries: Iterable[str]) -> Iterator[Union[Post, Posts]]:
    """Entries of a board in as few messages as they fit into, in their order."""
    kept: list[str] = []
    kept_bytes = 0
    for text in entries:
        size = len(text.encode("utf-8", "replace")) + 1
        if kept and kept_bytes + size > MAX_TEXT_BYTES:
            yield Posts("\0".join(kept))
            kept, kept_bytes = [], 0
        if "\0" in text:
            if kept:
                yield Posts("\0".join(kept))
            yield Post(text)
            kept, kept_bytes = [], 0
        else:
            kept.append(text)
            kept_bytes += size
    if kept:
        yield Posts("\0".join(kept))


class Codes(Protocol):
    """What protects the frames of a connection once it is authenticated; see `codes`."""

    BYTES: ClassVar[int]

    def of_next_sent(self, frame: bytes) -> bytes:
        """The code of the next frame to send."""
        ...

    def check_next_received(self, frame: bytes, code: bytes) -> None:
        """Raises ProtocolError when it is not the code of the next frame to arrive."""
        ...


def body_of(message: AnyMessage) -> bytes:
    """The message without its header. A text that is too long is cut."""
    form = FORMS[type(message)]
    values: list[Any] = list(message)
    last = b""
    if form.text:
        last = values.pop().encode("utf-8", "replace")[: form.text]
    elif form.data:
        last = values.pop()
    return form.layout.pack(*values) + last


def frame(message: AnyMessage) -> bytes:
    """The message with its header."""
    body = body_of(message)
    return _HEADER.pack(MAGIC, VERSION, FORMS[type(message)].kind, 0, len(body)) + body


def parse(kind: type[AnyMessage], body: bytes) -> AnyMessage:
    """The message in a body.

    Raises:
        ProtocolError: wrong length or impossible values.
    """
    form = FORMS[kind]
    size = form.layout.size
    if len(body) < size or len(body) > _longest_body(kind):
        raise ProtocolError(f"A {kind.__name__} message of {len(body)} bytes is not valid; it has {size}.")
    values = list(form.layout.unpack_from(body))
    if form.text:
        values.append(body[size:].decode("utf-8", "replace"))
    elif form.data:
        values.append(body[size:])
    message = kind(*values)
    if isinstance(message, Knock):
        _check_rank("rank", message.rank)
    elif isinstance(message, Hello):
        _check_hello(message)
    return message


def _longest_body(kind: type[AnyMessage]) -> int:
    return FORMS[kind].layout.size + FORMS[kind].text + FORMS[kind].data


def _check_hello(hello: Hello) -> None:
    if hello.role not in (ROLE_MEET, ROLE_CONTROL, ROLE_DATA, ROLE_BOARD, ROLE_AGENT):
        raise ProtocolError(f"role {hello.role} does not exist.")
    for what in ("size", "from_rank", "to_rank"):
        _check_rank(what, getattr(hello, what))


def _check_rank(what: str, rank: int) -> None:
    if not 0 <= rank < MAX_RANKS:
        raise ProtocolError(f"{what} {rank} is larger than any job.")


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
        if length > _longest_body(message_type):
            raise ProtocolError(
                f"A {message_type.__name__} frame of {length} bytes is too long; at most "
                f"{_longest_body(message_type)} are allowed."
            )
        end = HEADER_BYTES + length
        whole = end + (self.codes.BYTES if self.codes is not None else 0)
        if len(self._buffer) < whole:
            return None
        data, code = bytes(self._buffer[:end]), bytes(self._buffer[end:whole])
        del self._buffer[:whole]
        if self.codes is not None:
            self.codes.check_next_received(data, code)
        return parse(message_type, data[HEADER_BYTES:])

    @property
    def missing_bytes(self) -> int:
        """How many bytes belong, for all that is known now, to the message that comes next."""
        if len(self._buffer) < HEADER_BYTES:
            return HEADER_BYTES - len(self._buffer)
        whole = HEADER_BYTES + int(_HEADER.unpack_from(self._buffer)[4])
        return whole + (self.codes.BYTES if self.codes is not None else 0) - len(self._buffer)
