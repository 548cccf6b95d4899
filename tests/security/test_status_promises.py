"""The promises of what shows a running job: other users get nothing, clients cannot disturb it, no port is open."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from horovod._dumps import paths
from horovod.runner.job import effective_settings, make_job
from horovod.runner.live.figures import Figures, Reading
from horovod.runner.showing.desk import Desk, abstract_names

PATIENCE_S = 30.0
STRANGER = 65534


class Served:
    """A desk, and the loop of a launcher that serves it."""

    def __init__(self, directory: Path | None) -> None:
        self.desk = Desk()
        job = make_job(effective_settings({"num_proc": 1}, "argument", {}), ["true"], {}, "/")
        fd = os.open(directory, os.O_RDONLY) if directory else -1
        self.desk.listen(job, fd)
        if directory:
            os.close(fd)
        self.rounds = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over.is_set():
            if select.select([self.desk.fd], [], [], 0.05)[0]:
                self.rounds += 1
                self.desk.serve(lambda: {0: Reading(Figures(rank=0, steps=7), time.monotonic())}, {0})

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.desk.close()


@pytest.fixture
def served() -> Iterator[Served]:
    with contextlib.closing(Served(None)) as made:
        yield made


def own_name() -> str:
    names = Path("/proc/net/unix").read_text().split()
    return next(name for name in reversed(names) if name.startswith(f"@{abstract_names()}"))


def asked(place: str, user: int | None = None) -> str:
    """What a client gets that another process of this user, or of another one, is: "" if it is let go."""

    def ask() -> bytes:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE_S)
            try:
                sock.connect(place.replace("@", "\0", 1) if place.startswith("@") else place)
                sock.sendall(b"?")
                return sock.recv(100)
            except (ConnectionResetError, BrokenPipeError):
                return b""
            except PermissionError:
                return b"not allowed"

    return in_another_process(ask, user)


def in_another_process(work: Callable[[], bytes], user: int | None) -> str:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            if user is not None:
                os.setuid(user)
            os.write(writer, work())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        text = said.read().decode()
    os.waitpid(pid, 0)
    return text


def connected(name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE_S)
    sock.connect("\0" + name[1:])
    return sock


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can become another user.")
def test_another_user_gets_nothing_and_the_owner_still_does(served: Served) -> None:
    name = own_name()
    assert asked(name, STRANGER) == ""
    assert asked(name).startswith('{"layout"')


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can become another user.")
def test_a_stranger_who_comes_again_and_again_does_not_keep_the_launcher_busy(served: Served) -> None:
    name = own_name()

    def flood() -> bytes:
        end_s, times = time.monotonic() + 2, 0
        while time.monotonic() < end_s:
            with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
                sock.settimeout(0.1)
                sock.connect("\0" + name[1:])
                times += 1
        return str(times).encode()

    assert int(in_another_process(flood, STRANGER)) > 20
    assert served.rounds < 20


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can become another user.")
def test_in_a_directory_the_file_system_shuts_others_out(tmp_path: Path) -> None:
    place = tmp_path / "job"
    place.mkdir(0o700)
    with contextlib.closing(Served(place)):
        path = place / paths.STATUS
        assert path.stat().st_mode & 0o777 == 0o600
        assert asked(str(path), STRANGER) == "not allowed"
        assert asked(str(path)).startswith('{"layout"')


def test_noise_is_only_a_question_and_many_clients_are_bounded(served: Served) -> None:
    name = own_name()
    with connected(name) as sock:
        sock.sendall(b"\xff\0GET / HTTP/1.1\r\n")
        told = json.loads(sock.makefile().readline())
        assert told["ranks"][0][0] == 0
    held = [connected(name) for _ in range(12)]
    deadline = time.monotonic() + PATIENCE_S
    while sum(bool(select.select([sock], [], [], 0)[0]) for sock in held) < 4:  # the others are let go
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for sock in held:
        sock.close()


def test_a_closed_desk_answers_nobody() -> None:
    made = Served(None)
    name = own_name()
    sock = connected(name)
    made.close()
    made.close()
    sock.sendall(b"?")
    assert sock.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        connected(name)


def test_a_job_opens_no_port_unless_it_is_asked_to(private_base: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "horovod.runner", "-np", "1", sys.executable, "-c", "print(1, flush=True); input()"],
        stdin=subprocess.PIPE,  # open: the job waits until it is ended
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        inodes = set()
        for each in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has just been closed
                inodes.add(os.readlink(each))
        listening = [
            line.split()[9]
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]
        ]
        assert not {f"socket:[{inode}]" for inode in listening} & inodes
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
