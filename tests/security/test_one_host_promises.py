"""The security promises of one host, each attacked: who listens, who gets in, what a stranger can do to a job, what
leaks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from attacks import GARBAGE, Crowd, House, Onlooker, attacked, dial, listening_tcp_sockets, tcp_address
from net_ranks import REGION_BYTES, connected, in_threads, placements

from horovod import _net
from horovod._net.bootstrap import Ways, bootstrap
from horovod._net.clusters.placement import Placement
from horovod._net.connections import Connections
from horovod._net.failures import ConnectError, ProtocolError
from horovod._net.handshake import door, reception, visits
from horovod._net.handshake.frames import auth, messages
from horovod._net.handshake.frames.links import Link
from horovod._net.handshake.frames.messages import frame
from horovod._net.meeting import lasting_claim

SOURCES = pathlib.Path(_net.__file__).parent


# ---- 1. nothing needless listens


def test_no_tcp_port_is_open_on_one_host(private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attacked(monkeypatch, lambda house: listening_tcp_sockets()) == []
    assert listening_tcp_sockets() == []


def test_sockets_on_request_listen_on_loopback_only_and_not_after(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    during = attacked(monkeypatch, lambda house: listening_tcp_sockets(), transport="tcp")
    assert during and all(address.startswith("0100007F:") for address in during)
    assert listening_tcp_sockets() == []


# ---- 3. the secret


def test_children_of_a_rank_do_not_inherit_the_secret() -> None:
    program = (
        "import os, subprocess; from horovod._net.clusters.launchers import detect_placement;"
        "assert len(detect_placement().secret) == 32;"
        "print(subprocess.run(['env'], capture_output=True, text=True).stdout)"
    )
    names = {"RANK": "0", "SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "2", "RENDEZVOUS_DIR": "/run/none"}
    env = {
        **os.environ,
        **{f"HOROVOD_{name}": value for name, value in names.items()},
        "_HOROVOD_SECRET_KEY": "5e" * 32,
    }
    child = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    assert "HOROVOD_RANK=0" in child and "5e5e" not in child and "SECRET" not in child


def test_the_secret_is_in_no_log_and_no_error(private_base: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = bytes(range(32))
    jobs = placements(2, meeting_directory=str(private_base), secret=secret)
    caplog.set_level(logging.DEBUG)
    wrong = dataclasses.replace(jobs[1], secret=bytes(32))
    calls = [lambda p=p: bootstrap(p, epoch=0, region_bytes=REGION_BYTES, timeout_s=1.0) for p in (jobs[0], wrong)]
    results = in_threads(calls)
    text = caplog.text + repr(results) + repr(jobs)
    assert all(isinstance(result, ConnectError) for result in results)
    assert secret.hex() not in text and repr(secret) not in text


# ---- 4. every connection is authenticated first


def test_a_rank_with_another_secret_gets_nothing(private_base: pathlib.Path) -> None:
    jobs = placements(2, meeting_directory=str(private_base), secret=bytes(range(32)))
    wrong = dataclasses.replace(jobs[1], secret=bytes(32))
    calls = [lambda p=p: bootstrap(p, epoch=0, region_bytes=REGION_BYTES, timeout_s=1.0) for p in (jobs[0], wrong)]
    zero, one = in_threads(calls)
    assert isinstance(one, ConnectError) and "Rank 0 cannot be trusted" in str(one)
    assert isinstance(zero, ConnectError) and zero.ranks == (1,)
    assert os.listdir(private_base) == []


def test_a_rank_of_an_earlier_epoch_is_refused(private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(house: House) -> bytes:
        own = house.credentials
        old = dataclasses.replace(own, rank=2, epoch=own.epoch + 7)
        sock = dial(house)
        sock.sendall(frame(auth.Connector(old, 0, messages.ROLE_MEET).hello))
        strangers.append(sock)
        return b""

    strangers: list[socket.socket] = []
    attacked(monkeypatch, stale)
    assert strangers[0].recv(100) == b""  # closed, without a challenge


def test_another_users_process_is_refused(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, name = Link.peer_process, f"\0foreign-{os.getpid()}"
    foreign = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    foreign.bind(name)
    foreign.settimeout(20)

    def peer_process(link: Link) -> tuple[int, int]:
        pid, uid = real(link)
        return pid, uid + (link.sock.getpeername() == name.encode())

    def knock(house: House) -> None:
        foreign.connect(house.meeting.address("r0"))

    monkeypatch.setattr(Link, "peer_process", peer_process)
    attacked(monkeypatch, knock)
    assert foreign.recv(100) == b""
    assert f"a connection of uid {os.geteuid() + 1} was refused" in caplog.text


# ---- 5. no pickle


def test_nothing_that_evaluates_bytes_is_imported() -> None:
    for path in SOURCES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"\b(pickle|marshal|shelve|yaml)\b(?!d)|\beval\(|\bexec\(", text.replace("unpickled", "")
        ), path


# ---- 8. malformed input kills no job


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("name", sorted(GARBAGE))
def test_garbage_is_dropped_and_the_job_goes_on(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str, transport: str
) -> None:
    def send(house: House) -> None:
        sock = dial(house) if house.door.tcp is None else socket.create_connection(tcp_address(house))
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.send(GARBAGE[name])
        sock.close()

    attacked(monkeypatch, send, transport=transport)


def test_a_stranger_cannot_pass_for_a_rank_that_has_not_come(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By TCP anybody can say a rank's Hello and go; that is no sign that the rank has died."""
    crowd = Crowd(monkeypatch)
    zero, one = placements(2)
    options: dict[str, Any] = {"epoch": 0, "region_bytes": REGION_BYTES, "timeout_s": 20, "ways": Ways("tcp")}

    def say_hello(house: House) -> None:
        stranger = dataclasses.replace(house.credentials, rank=1, secret=bytes(32))
        with socket.create_connection(tcp_address(house)) as sock:
            sock.sendall(frame(auth.Connector(stranger, 0, messages.ROLE_CONTROL).hello))

    def late() -> Connections:
        assert crowd.dropped.wait(10)
        return bootstrap(one, **options)

    Onlooker(monkeypatch, say_hello)
    results = in_threads([lambda: bootstrap(zero, **options), late])
    assert all(isinstance(result, Connections) for result in results), results
    for result in results:
        result.close()


def test_a_stream_of_garbage_is_not_collected() -> None:
    reader = messages.FrameReader()
    with pytest.raises(ProtocolError):
        reader.feed(GARBAGE["megabyte"][:16384])
        reader.next()


def test_descriptors_of_strangers_are_closed(private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()

    def send(house: House) -> None:
        sock = dial(house)
        socket.send_fds(sock, [frame(messages.Knock(77))], [write])
        sock.close()

    attacked(monkeypatch, send)
    os.close(write)
    assert os.read(read, 1) == b""  # nobody else holds the other end any more
    os.close(read)


def test_one_that_connects_and_hangs_is_dropped_after_its_time(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.05)
    jobs = placements(3)
    hung: list[socket.socket] = []

    def hang(house: House) -> None:
        hung.extend(dial(house) for _ in range(3))

    Onlooker(monkeypatch, hang)
    results: list[Any] = []
    waiting = threading.Thread(
        target=lambda: results.extend(
            in_threads([lambda p=p: bootstrap(p, epoch=0, region_bytes=REGION_BYTES, timeout_s=30) for p in jobs[:2]])
        )
    )
    waiting.start()
    deadline = time.monotonic() + 20
    while len(hung) < 3 and time.monotonic() < deadline:
        waiting.join(0.01)
    for sock in hung:  # dropped while the job still waits for rank 2
        sock.settimeout(20)
        assert sock.recv(1) == b""
    results.append(bootstrap(jobs[2], epoch=0, region_bytes=REGION_BYTES, timeout_s=30))
    waiting.join(30)
    assert len(results) == 3 and all(isinstance(result, Connections) for result in results)
    for result in results:
        result.close()
    lines = [record.message for record in caplog.records if "did not authenticate within" in record.message]
    assert len(lines) == 1, "logged once, not once for each"


def test_a_flood_of_silent_connections_is_bounded(private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flood: list[socket.socket] = []
    crowd = Crowd(monkeypatch)

    def start(house: House) -> None:
        flood.extend(dial(house) for _ in range(300))

    attacked(monkeypatch, start)
    assert 3 < max(crowd.sizes) <= 2 * 3 + 64 + 1
    for sock in flood:
        sock.close()


def test_a_loop_of_connections_costs_no_rank_its_place(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    loops: list[threading.Thread] = []

    def knock(address: tuple[str, int]) -> None:
        held: list[socket.socket] = []
        while not over.is_set():
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(address, timeout=1.0))
            if len(held) > 200:
                held.pop(0).close()
        for sock in held:
            sock.close()

    def start(house: House) -> None:
        loops.extend(threading.Thread(target=knock, args=(tcp_address(house),)) for _ in range(2))
        for loop in loops:
            loop.start()

    try:
        attacked(monkeypatch, start, transport="tcp")
    finally:
        over.set()
        for loop in loops:
            loop.join()


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_rank_whose_connection_is_dropped_comes_again(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    dropped: set[tuple[int, int, int]] = set()
    real = reception.Reception.hear

    def hear(desk: reception.Reception, visit: visits.Visit, message: messages.AnyMessage) -> None:
        if isinstance(message, messages.Hello):
            key = (message.to_rank, message.from_rank, message.role)
            if key not in dropped:
                dropped.add(key)
                raise ProtocolError("As in a crowd.")
        real(desk, visit, message)

    monkeypatch.setattr(reception.Reception, "hear", hear)
    for result in connected(placements(3), transport=transport):
        assert len(result.peers) == 2
        result.close()
    assert len(dropped) == (2 if transport == "auto" else 9)  # the leader introduces the other two


def test_strangers_cannot_fill_the_log(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(house: House) -> None:
        for number in range(60):
            with dial(house) as sock:
                sock.sendall(frame(messages.Knock(1000 + number)))

    attacked(monkeypatch, start)
    lines = [record.message for record in caplog.records]
    assert 2 <= len(lines) <= 4
    assert "57 more messages of this kind are not shown" in lines[-1]


def test_two_users_of_the_same_variables_are_distinguished() -> None:
    """Fork-free version of 'a rank is claimed twice': an unrelated process with all the rank's variables."""
    program = (
        "import json, sys; from horovod._net.clusters.placement import Placement\n"
        "from horovod._net.failures import MeetingError\n"
        "from horovod._net.meeting import lasting_claim\n"
        "try: lasting_claim.take(Placement(**json.loads(sys.argv[1])), 0)\n"
        "except MeetingError as error: print(error)"
    )
    rank = placements(2)[1]
    lasting_claim.take(rank, 0)
    fields = {f.name: getattr(rank, f.name) for f in dataclasses.fields(Placement) if f.name != "secret"}
    output = subprocess.run(
        [sys.executable, "-c", program, json.dumps(fields)], capture_output=True, text=True, check=True
    ).stdout
    assert "Rank 1 of this test launcher job is already taken by another process" in output
