"""The security promises of jobs on Spark, each attacked: who listens where and how long, who may connect, and where the
job's secret is seen. What stands for Spark are threads of this process; agents and ranks are real.
"""

from __future__ import annotations

import base64
import contextlib
import io
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks import GARBAGE, listening_tcp_sockets
from fake_spark import FakeSession

import horovod.spark
from horovod.spark import driving, session
from horovod.spark.slots import Numbers
from horovod.spark.tasks import Task

SECRET = bytes(range(7, 39))
SEEN_AS = (SECRET, SECRET.hex().encode(), base64.b64encode(SECRET))
LOOPBACK = "0100007F:"


class Watched(FakeSession):
    """Calls `attack` with the port of the driver before a task has called."""

    def __init__(self, attack: Callable[[int], object]) -> None:
        super().__init__()
        self._attack = attack

    def start(self, numbers: Numbers, task: Task, description: str) -> Any:
        self._attack(task.launcher[1])
        return super().start(numbers, task, description)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], object]], Watched]:
    monkeypatch.setattr(driving, "new_secret", lambda: SECRET)

    def made(attack: Callable[[int], object]) -> Watched:
        spark = Watched(attack)
        monkeypatch.setattr(session, "active", lambda caller: spark)
        return spark

    return made


class Lines(io.StringIO):
    """What ranks write; calls `on_line` for each of their lines."""

    def __init__(self, on_line: Callable[[], object]) -> None:
        super().__init__()
        self._on_line = on_line

    def write(self, text: str) -> int:
        if "up" in text:
            self._on_line()
        return super().write(text)


def stands() -> int:
    """Long enough to be looked at."""
    import horovod.numpy as hvd

    hvd.init()
    print("up", flush=True)
    hvd.barrier()
    return hvd.rank()


def test_run_listens_at_one_address_until_all_have_called_and_its_secret_is_seen_nowhere(
    watched: Callable[[Callable[[int], object]], Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On no command line, in no variable, file or line. Ranks have another one, which is derived from it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = listening_tcp_sockets()
    during: dict[int, list[str]] = {}
    afterwards: list[list[str]] = []
    seen: list[bytes] = []

    def look() -> None:
        afterwards.append(listening_tcp_sockets())
        for place in Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    seen.append((place / name).read_bytes())
        seen.extend(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())

    watched(lambda port: during.update({port: listening_tcp_sockets()}))
    lines = Lines(look)
    assert horovod.spark.run(stands, stdout=lines, stderr=lines, verbose=2) == [0, 1]
    ((port, found),) = during.items()
    assert sorted(found) == sorted([*before, f"{LOOPBACK}{port:04X}"])
    assert afterwards and all(each == before for each in [*afterwards, listening_tcp_sockets()])
    seen.append(lines.getvalue().encode())
    assert any(b"_HOROVOD_SECRET_KEY=" in each for each in seen), "the ranks were not looked at"
    assert not any(secret in each for each in seen for secret in SEEN_AS)


def test_an_elastic_job_listens_at_one_address_while_it_lasts_and_strangers_there_are_dropped(
    watched: Callable[[Callable[[int], object]], Watched],
) -> None:
    before = listening_tcp_sockets()
    during: list[list[str]] = []
    ports: list[int] = []
    visitors: list[socket.socket] = []

    def visit(port: int) -> None:
        ports.append(port)
        for data in GARBAGE.values():
            visitors.append(socket.create_connection(("127.0.0.1", port), timeout=20))
            visitors[-1].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                visitors[-1].send(data)

    watched(visit)
    lines = Lines(lambda: during.append(listening_tcp_sockets()))
    assert horovod.spark.run_elastic(stands, num_proc=2, stdout=lines, stderr=lines) == [0, 1]
    assert during and all(sorted(each) == sorted([*before, f"{LOOPBACK}{ports[0]:04X}"]) for each in during)
    assert listening_tcp_sockets() == before
    for visitor in visitors:
        visitor.settimeout(5)
        with visitor, contextlib.suppress(ConnectionResetError):
            while heard := visitor.recv(4096):
                assert not any(secret in heard for secret in SEEN_AS)
