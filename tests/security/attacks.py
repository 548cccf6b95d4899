"""What strangers do to the ranks of a job while they connect, and how the tests do it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from net_ranks import connected, placements

from horovod._net.handshake import connect, messages
from horovod._net.handshake.messages import frame

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


class Onlooker:
    """Runs something once, before rank 0 of a job has accepted anybody: strangers are in its queue with, or before,
    the ranks.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, look: Callable[[connect.Mesh], Any]) -> None:
        self.seen: list[Any] = []
        real = connect.Mesh._start

        def start(mesh: connect.Mesh) -> None:
            real(mesh)
            if mesh._credentials.rank == 0:
                self.seen.append(look(mesh))

        monkeypatch.setattr(connect.Mesh, "_start", start)


def attacked(monkeypatch: pytest.MonkeyPatch, attack: Callable[[connect.Mesh], Any], **options: Any) -> Any:
    """Connects three ranks while `attack` happens to rank 0; the job must not notice. What `attack` returned."""
    onlooker = Onlooker(monkeypatch, attack)
    for result in connected(placements(3), **options):
        assert len(result.peers) == 2
        result.close()
    assert len(onlooker.seen) == 1
    return onlooker.seen[0]


def dial(mesh: connect.Mesh) -> socket.socket:
    """A stranger's connection to rank 0."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(mesh._meeting.address("r0"))
    return sock
