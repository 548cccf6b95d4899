"""The time before the ranks start, over hosts that are not there."""

from __future__ import annotations

import io
import os
import signal
import socket
from typing import Any

import pytest

from horovod.runner.launchers.base import Surroundings
from horovod.runner.remote.launcher_side import gathering
from horovod.runner.remote.launcher_side.gathering import Gathering
from horovod.runner.remote.launcher_side.link import State

_PATIENCE_S = 30.0


class Calls:
    """Has the face of a `Fleet` that has called one host, which is greeted some seconds after Ctrl-Z."""

    failed = waiting = False
    state = State.CALLED
    way = type("Way", (), {"host": "host1"})
    why = ""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.links = [self]
        self._socket, self.other = socket.socketpair()

    def fileno(self) -> int:
        return self._socket.fileno()

    def turn(self) -> None:
        self._socket.recv(1)
        self.state = State.GREETED

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")
        self.other.send(b".")


def test_ctrl_z_stops_the_launcher_and_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]

    def stop(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), signal.SIGSTOP)
        calls.told.append("stop")
        now_s[0] += 10 * _PATIENCE_S

    clock: Any = type("Clock", (), {"monotonic": staticmethod(lambda: now_s[0])})
    monkeypatch.setattr(gathering, "time", clock)
    monkeypatch.setattr(os, "kill", stop)
    calls: Any = Calls()
    reader, writer = socket.socketpair()
    writer.send(b".")

    def take() -> list[int]:
        return list(reader.recv(64) and (signal.SIGTSTP,))

    streams = io.StringIO(), io.StringIO()
    outcome = Gathering(calls, _PATIENCE_S, Surroundings(*streams, reader.fileno(), take)).until(State.GREETED)
    assert outcome is None
    assert calls.told == ["pause", "stop", "resume"]
    for each in (reader, writer, calls.other):
        each.close()
