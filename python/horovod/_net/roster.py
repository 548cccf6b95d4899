"""The roster of an elastic job: a Unix socket in the job's directory, where a worker asks for its place and hears news.

The launcher keeps it (`horovod.runner.elastic.roster_keeper`); ranks use it through `horovod._core.life.membership`.
Messages are lines of JSON with fixed keys::

    {"ask": worker, "epoch": e, "commits": n, "why": text}
                                                by a worker: it has left its epoch, or has just come; how new its state
                                                is; why it could not meet the others, if so
    {"lost": worker}                            its program ends, because another rank was lost
    {"place": {...}}                            to it: a Seat
    {"leave": why}                              there is no place for it: it ends
    {"news": kind, "at": seconds}               hosts have changed: leave the epoch at the next commit

The directory is this user's alone, and the kernel says whose process is at the other end. On another host an agent of
the launcher keeps the socket, and passes on what is said.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Any, Final, NamedTuple, Protocol, Union

from horovod._net import identity
from horovod._net.failures import ConnectError, ProtocolError

SOCKET_NAME: Final = "roster"
MOST_BYTES: Final = 1 << 20  # of one message: the workers of a large job
_CHUNK_BYTES: Final = 1 << 16
_MOST_OF_A_REASON: Final = 500  # characters, of which JSON makes six bytes at most


class Seat(NamedTuple):
    """A worker's place in an epoch.

    Attributes:
        epoch: of the job.
        rank, size, local_rank, local_size, cross_rank, cross_size: in it.
        workers: all of them, by rank.
        sync: they do not hold equal states.
        address: by which ranks on other hosts reach this one; empty: as its launcher has said at the start.
    """

    epoch: int
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    workers: tuple[int, ...]
    sync: bool
    address: str = ""


class Dismissal(NamedTuple):
    """There is no place for the worker."""

    why: str


class News(NamedTuple):
    """Hosts have changed: one of `HostUpdateResult`, and when, in seconds since the epoch."""

    kind: int
    at_s: float


class WorkersRoster(Protocol):
    """What a worker needs of a roster, however it reaches the driver of its job. See `Roster`."""

    def ask(self, version: tuple[int, int], why: str = "") -> Union[Seat, Dismissal]:
        """Asks for the next place, and waits for it."""

    def say_lost(self) -> None:
        """This worker ends because another one was lost."""

    def news(self) -> list[News]:
        """The news that has arrived since the last call."""


class Lines:
    """Cuts what arrives into messages.

    Raises:
        ProtocolError: one is too long, or no JSON object.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._received = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are complete."""
        self._received += data
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        if len(rest) > self._most or any(len(line) > self._most for line in lines):
            raise ProtocolError(f"A message to the roster has more than {self._most} bytes.")
        return [_object(bytes(line)) for line in lines]


def packed(message: dict[str, Any]) -> bytes:
    """A message as it travels."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def words(said: Union[Seat, Dismissal, News]) -> dict[str, Any]:
    """What the launcher says, as a message."""
    if isinstance(said, Seat):
        return {"place": said._asdict()}
    if isinstance(said, Dismissal):
        return {"leave": said.why}
    return {"news": said.kind, "at": said.at_s}


def heard(message: dict[str, Any]) -> Union[Seat, Dismissal, News]:
    """What the launcher has said.

    Raises:
        ProtocolError: nothing of that kind.
    """
    try:
        if "place" in message:
            seat = message["place"]
            numbers = {name: int(seat[name]) for name in Seat._fields if name not in ("workers", "sync", "address")}
            workers = tuple(map(int, seat["workers"]))
            return Seat(**numbers, workers=workers, sync=bool(seat["sync"]), address=str(seat["address"]))
        if "leave" in message:
            return Dismissal(str(message["leave"]))
        return News(int(message["news"]), float(message["at"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"The launcher's roster sent an invalid message: {error!r}.") from None


class Roster:
    """A worker's connection to the roster.

    Args:
        directory: of the job.
        worker: this process's number.

    Raises:
        ConnectError: nobody keeps a roster there.
    """

    def __init__(self, directory: str, worker: int) -> None:
        self._worker = worker
        self._lines = Lines()
        self._early: list[Union[Seat, Dismissal, News]] = []  # came together with a place, and is of its epoch
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = -1
        try:
            folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._socket.connect(f"/proc/self/fd/{folder}/{SOCKET_NAME}")  # however deep: an address has 108 bytes
            if identity.peer_credentials(self._socket)[1] != os.geteuid():
                raise ConnectError("The roster of the job is kept by another user's process.")
        except OSError as error:
            self._socket.close()
            raise ConnectError(f"{self._gone()} ({error.strerror})") from error
        finally:
            if folder >= 0:
                os.close(folder)

    def ask(self, version: tuple[int, int], why: str = "") -> Union[Seat, Dismissal]:
        """Asks for the next place, and waits for it: as long as the launcher does, whose deadline is --elastic-timeout.

        Args:
            version: of this worker's state; see `horovod._core.life.membership`.
            why: it could not meet the other workers of its epoch; empty: it has, or there was none.

        Raises:
            ConnectError: the launcher is gone.
        """
        self._send({"ask": self._worker, "epoch": version[0], "commits": version[1], "why": why[:_MOST_OF_A_REASON]})
        while True:
            received = self._receive(block=True)
            for index, answer in enumerate(received):
                if not isinstance(answer, News):  # else of the epoch that this worker has left
                    self._early = received[index + 1 :]
                    return answer

    def say_lost(self) -> None:
        """This worker ends because another one was lost, and not by a mistake of its program."""
        with contextlib.suppress(ConnectError):
            self._send({"lost": self._worker})

    def news(self) -> list[News]:
        """The news that has arrived since the last call. Does not wait. Raises ConnectError as `ask`."""
        received, self._early = [*self._early, *self._receive(block=False)], []
        return [each for each in received if isinstance(each, News)]

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._socket.sendall(packed(message))
        except OSError as error:
            raise ConnectError(self._gone()) from error

    def _receive(self, block: bool) -> list[Union[Seat, Dismissal, News]]:
        try:
            data = self._socket.recv(_CHUNK_BYTES, 0 if block else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ConnectError(self._gone()) from error
        if not data:
            raise ConnectError(self._gone())
        return [heard(message) for message in self._lines.feed(data)]

    def _gone(self) -> str:
        return f"Worker {self._worker} cannot ask for its place: the launcher of this elastic job does not answer."


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ProtocolError("A message to the roster is not a JSON object.")
    return found
