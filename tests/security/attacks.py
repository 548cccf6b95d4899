"""What strangers do to the ranks of a job while they connect, and how the tests do it."""

from __future__ import annotations

import dataclasses
import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from net_ranks import connected, placements

from horovod._net.handshake import connect, visits
from horovod._net.handshake.door import Door
from horovod._net.handshake.frames import auth, messages
from horovod._net.handshake.frames.messages import frame
from horovod._net.handshake.pairing import OwnSide
from horovod._net.handshake.roll_call import World
from horovod._net.meeting.directory import Meeting

HEADER = struct.Struct(">4sBBHI")
GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(4096),
    "megabyte": os.urandom(64) * 16384,
    "oversized": HEADER.pack(b"HVDN", 1, messages.FORMS[messages.Hello].kind, 0, 2**32 - 1) + bytes(100),
    "truncated": frame(messages.Proof(bytes(32)))[:20],
    "wrong time": frame(messages.Proof(bytes(32))),
    "too early": frame(messages.Failed(0, "I am your leader, stop")),
    "other version": HEADER.pack(b"HVDN", 9, 2, 0, 0),
    "knock from nowhere": frame(messages.Knock(77)),
    "knock of itself": frame(messages.Knock(0)),
    "nothing": b"",
}


def listening_tcp_sockets() -> list[str]:
    """The local addresses on which this process listens by TCP."""
    own = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    found = []
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for fields in (line.split() for line in list(lines)[1:]):
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                    found.append(fields[1])
    return found


@dataclasses.dataclass
class House:
    """Rank 0 while its door is open: what its Mesh was made of."""

    meeting: Meeting
    credentials: auth.Credentials
    world: World
    door: Door


class Onlooker:
    """Runs something once, before rank 0 of a job has accepted anybody: strangers are in its queue with, or before,
    the ranks.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, look: Callable[[House], Any]) -> None:
        self.seen: list[Any] = []
        real_make, real_open = connect.Mesh.__init__, Door.open
        made: list[tuple[Meeting, auth.Credentials, World]] = []

        def make(
            mesh: connect.Mesh, meeting: Meeting, credentials: auth.Credentials, own: OwnSide, world: World, *more: Any
        ) -> None:
            if credentials.rank == 0:
                made.append((meeting, credentials, world))
            real_make(mesh, meeting, credentials, own, world, *more)

        def open_door(door: Door, *sockets: Any) -> None:
            real_open(door, *sockets)
            if door.rank == 0:
                self.seen.append(look(House(*made[-1], door)))

        monkeypatch.setattr(connect.Mesh, "__init__", make)
        monkeypatch.setattr(Door, "open", open_door)


class Crowd:
    """How many strangers each rank has let in at a time, and whether one has been dropped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes = [0]
        self.dropped = threading.Event()
        real_begin, real_drop = visits.Visits.begin, visits.Visits.drop

        def begin(everybody: visits.Visits, visit: visits.Visit) -> None:
            real_begin(everybody, visit)
            self.sizes.append(sum(visit.accepted for visit in everybody))

        def drop(everybody: visits.Visits, visit: visits.Visit) -> None:
            real_drop(everybody, visit)
            self.dropped.set()

        monkeypatch.setattr(visits.Visits, "begin", begin)
        monkeypatch.setattr(visits.Visits, "drop", drop)


def attacked(monkeypatch: pytest.MonkeyPatch, attack: Callable[[House], Any], **options: Any) -> Any:
    """Connects three ranks while `attack` happens to rank 0; the job must not notice. What `attack` returned."""
    onlooker = Onlooker(monkeypatch, attack)
    for result in connected(placements(3), **options):
        assert len(result.peers) == 2
        result.close()
    assert len(onlooker.seen) == 1
    return onlooker.seen[0]


def dial(house: House) -> socket.socket:
    """A stranger's connection to rank 0."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(house.meeting.address("r0"))
    return sock


def tcp_address(house: House) -> tuple[str, int]:
    """Where rank 0 listens for ranks of its host that do not share memory."""
    assert house.door.tcp is not None
    host, port = house.door.tcp.getsockname()
    return host, port
