"""A connection whose two ends have proven to hold the config's key, and the frames that it carries.

::

    client                                       server
        MAGIC, nonce_c                       ->
                       <-  nonce_s, HMAC(key, "server" | nonce_c | nonce_s)
        HMAC(key, "client" | nonce_c | nonce_s)   ->
    frame = length u32 | HMAC(session key, direction | number of the frame | body) | body      (big-endian)

A body is JSON, and it is parsed only after its code was found right: what arrives without the key is never looked into.
Nothing is unpickled. Frames cannot be changed, replayed, reordered or reflected. They are not encrypted. Used by
`client` and `service`; it knows nothing of what the messages mean.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import struct
import threading
import time
from typing import Any, Final, Optional

KEY_BYTES: Final = 32
MAX_BODY_BYTES: Final = 1 << 16
# For the other side to answer. TensorFlow keeps the interpreter to itself while it stops a worker, 10 s and more where
# a reader is still connected; the service, which runs in a process that has a worker, is silent meanwhile.
HANDSHAKE_S: Final = 60.0

_MAGIC: Final = b"HVDDATA1"
_NONCE_BYTES: Final = 32
_CODE_BYTES: Final = 32
_LENGTH: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


class ChannelError(Exception):
    """The connection can no longer be used."""


class ClosedError(ChannelError):
    """The other side has closed the connection, or died."""


class LateError(ChannelError):
    """The other side did not answer in time."""


class StrangerError(ChannelError):
    """The other side does not hold the key, or speaks another protocol."""


class Channel:
    """An authenticated connection. One thread may receive while others send. `close` may be called twice."""

    def __init__(self, sock: socket.socket, session_key: bytes, outgoing: bytes, incoming: bytes) -> None:
        self._sock = sock
        self._key = session_key
        self._outgoing, self._incoming = outgoing, incoming
        self._sent = self._received = 0
        self._send_lock = threading.Lock()

    @property
    def local_host(self) -> str:
        """The address of this side: how the other side's host reaches this process's host."""
        return str(self._sock.getsockname()[0])

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message.

        Raises:
            ClosedError: the other side is gone, or does not read.
        """
        body = json.dumps(message).encode()
        with self._send_lock:
            data = _LENGTH.pack(len(body)) + self._code(self._outgoing, self._sent, body) + body
            self._sent += 1
            try:
                self._sock.sendall(data)
            except OSError as error:
                raise ClosedError(str(error)) from error

    def receive(self, timeout_s: Optional[float]) -> dict[str, Any]:
        """The next message; None: waits until the other side sends or goes.

        Raises:
            ClosedError, LateError, StrangerError: the channel can no longer be used.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (length,) = _LENGTH.unpack(_read(self._sock, _LENGTH.size, deadline))
        if length > MAX_BODY_BYTES:
            raise StrangerError(f"a frame of {length} bytes; at most {MAX_BODY_BYTES} are allowed")
        # The rest of a frame follows its beginning at once, whatever the caller waits for.
        rest = time.monotonic() + HANDSHAKE_S
        code = _read(self._sock, _CODE_BYTES, rest)
        body = _read(self._sock, length, rest)
        if not hmac.compare_digest(code, self._code(self._incoming, self._received, body)):
            raise StrangerError("a frame whose code is wrong")
        self._received += 1
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise StrangerError("a message that is not JSON") from error
        if not isinstance(message, dict):
            raise StrangerError("a message that is not an object")
        return message

    def close(self) -> None:
        """Ends the connection; a thread that receives gets a ClosedError."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _code(self, direction: bytes, number: int, body: bytes) -> bytes:
        return _mac(self._key, direction, _NUMBER.pack(number) + body)


def connect(host: str, port: int, key: bytes, timeout_s: float) -> Channel:
    """Connects to a compute service and proves itself.

    Raises:
        OSError: nobody listens there.
        ChannelError: the process that answers does not hold the key, or sends nothing.
    """
    sock = socket.create_connection((host, port), timeout_s)
    try:
        _prepare(sock)
        deadline = time.monotonic() + min(timeout_s, HANDSHAKE_S)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        _write(sock, _MAGIC + nonce)
        transcript = nonce + _read(sock, _NONCE_BYTES, deadline)
        if not hmac.compare_digest(_read(sock, _CODE_BYTES, deadline), _mac(key, b"server", transcript)):
            raise StrangerError("it does not hold the key of this config")
        _write(sock, _mac(key, b"client", transcript))
        return Channel(sock, _mac(key, b"session", transcript), b"c", b"s")
    except BaseException:
        sock.close()
        raise


def accept(sock: socket.socket, key: bytes) -> Channel:
    """The server's side of `connect`; closes the socket when the client is a stranger.

    Raises:
        ChannelError: it does not hold the key, speaks another protocol, or is slow.
    """
    try:
        _prepare(sock)
        deadline = time.monotonic() + HANDSHAKE_S
        if _read(sock, len(_MAGIC), deadline) != _MAGIC:
            raise StrangerError("it speaks another protocol")
        own = secrets.token_bytes(_NONCE_BYTES)
        transcript = _read(sock, _NONCE_BYTES, deadline) + own
        _write(sock, own + _mac(key, b"server", transcript))
        if not hmac.compare_digest(_read(sock, _CODE_BYTES, deadline), _mac(key, b"client", transcript)):
            raise StrangerError("it does not hold the key of this compute job")
        return Channel(sock, _mac(key, b"session", transcript), b"s", b"c")
    except BaseException:
        sock.close()
        raise


def _mac(key: bytes, label: bytes, data: bytes) -> bytes:
    return hmac.new(key, label + b"\0" + data, hashlib.sha256).digest()


def _prepare(sock: socket.socket) -> None:
    """A host that loses power closes no connection: keep-alive notices it, after about half a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _write(sock: socket.socket, data: bytes) -> None:
    try:
        sock.settimeout(HANDSHAKE_S)
        sock.sendall(data)
    except OSError as error:
        raise ClosedError(str(error)) from error


def _read(sock: socket.socket, length: int, deadline: Optional[float]) -> bytes:
    data = bytearray()
    while len(data) < length:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            sock.settimeout(left)  # 0: what arrived while this process stood still is read anyway
            piece = sock.recv(length - len(data))
        except (TimeoutError, BlockingIOError) as error:
            raise LateError("it sends nothing") from error
        except OSError as error:
            raise ClosedError(str(error)) from error
        if not piece:
            raise ClosedError("it closed the connection")
        data += piece
    return bytes(data)
