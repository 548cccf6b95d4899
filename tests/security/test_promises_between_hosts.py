"""The security promises between hosts, each attacked: who listens where, what a stranger at the door of a rank can do,
what can be said again, and what stands on the board.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from attacks import GARBAGE, Crowd, House, Onlooker, listening_tcp_sockets
from net_hosts import SECRET, Hosts
from net_ranks import REGION_BYTES, connected, in_threads

from horovod._net.bootstrap import bootstrap
from horovod._net.connections import Connections
from horovod._net.handshake import door
from horovod._net.handshake.frames import auth, messages
from horovod._net.handshake.frames.messages import frame

COUNTS = (1, 2, 1)


def dial(house: House) -> socket.socket:
    """A stranger's connection to the rank's door for other hosts."""
    assert house.world.listener is not None
    return socket.create_connection(house.world.listener.getsockname(), timeout=20)


def hung_up(sock: socket.socket) -> bool:
    """True when the other side has closed, or reset, the connection."""
    poller = select.poll()
    poller.register(sock, select.POLLRDHUP)
    return bool(poller.poll(0))


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Hosts:
    """Four ranks on three hosts."""
    return Hosts(tmp_path, COUNTS)


def attacked(job: Hosts, monkeypatch: pytest.MonkeyPatch, attack: Callable[[House], Any]) -> Any:
    """Connects all ranks while `attack` happens to rank 0; the job must not notice. What `attack` returned."""
    onlooker = Onlooker(monkeypatch, attack)
    try:
        for result in connected(job.placements):
            assert len(result.peers) == sum(COUNTS) - 1
            result.close()
    finally:
        job.board.close()
    assert len(onlooker.seen) == 1
    return onlooker.seen[0]


def test_ranks_listen_at_their_address_alone_and_not_after(job: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    during = attacked(job, monkeypatch, lambda house: listening_tcp_sockets())
    assert during and all(address.startswith("0100007F:") for address in during), "never the wildcard"
    assert listening_tcp_sockets() == []


@pytest.mark.parametrize("name", sorted(GARBAGE))
def test_garbage_is_dropped_and_the_job_goes_on(job: Hosts, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def send(house: House) -> None:
        with dial(house) as sock:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.send(GARBAGE[name])

    attacked(job, monkeypatch, send)


@pytest.mark.parametrize(
    "change",
    [{"job": b"another job" + bytes(5)}, {"epoch": 77}, {"size": 9}, {"rank": 0}, {"secret": bytes(32)}],
    ids=lambda change: next(iter(change)),
)
def test_a_stale_or_foreign_worker_is_refused(
    job: Hosts, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """Also where it holds the secret: of another job, epoch or size, or as a rank that it cannot be."""

    def knock(house: House) -> socket.socket:
        own = dataclasses.replace(house.credentials, rank=3)
        stale = dataclasses.replace(own, **change)
        hello = auth.Connector(stale, 0, messages.ROLE_MEET)
        sock = dial(house)
        sock.sendall(frame(hello.hello) + frame(messages.Proof(bytes(32))))
        return sock

    # Only who names this job, epoch and size is asked for a proof; nobody hears more than the question.
    with attacked(job, monkeypatch, knock) as sock, contextlib.suppress(ConnectionResetError):
        heard = b"".join(iter(lambda: sock.recv(4096), b""))
        assert len(heard) <= len(frame(messages.Challenge(bytes(32), bytes(32)))) * ("secret" in change)


def test_what_a_rank_has_said_is_of_no_use_again(job: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    real = auth.Connector.answer
    doors: list[House] = []
    again: list[socket.socket] = []

    def answer(proof: auth.Connector, challenge: messages.Challenge) -> messages.Proof:
        said = real(proof, challenge)
        if proof.hello.to_rank == 0 and not again:
            again.append(dial(doors[0]))
            again[0].sendall(frame(proof.hello) + frame(said))
        return said

    monkeypatch.setattr(auth.Connector, "answer", answer)
    attacked(job, monkeypatch, doors.append)
    question = len(frame(messages.Challenge(bytes(32), bytes(32))))
    with again[0] as sock, contextlib.suppress(ConnectionResetError):
        assert len(b"".join(iter(lambda: sock.recv(4096), b""))) <= question


@pytest.mark.parametrize("said", [b"", frame(messages.Knock(3))[:5]], ids=["silent", "slow"])
def test_hundreds_that_say_nothing_cost_no_rank_its_place(
    job: Hosts, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    strangers = Crowd(monkeypatch)

    def flood(house: House) -> list[socket.socket]:
        crowd = [dial(house) for _ in range(300)]
        for sock in crowd:
            sock.sendall(said)
        return crowd

    for sock in attacked(job, monkeypatch, flood):
        sock.close()
    assert sum(COUNTS) < max(strangers.sizes) <= 2 * sum(COUNTS) + 64 + 1


def test_a_slow_one_is_dropped_after_its_time(
    job: Hosts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the job still waits for a rank."""
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.1)
    slow: list[socket.socket] = []
    options: dict[str, Any] = {"epoch": 0, "region_bytes": REGION_BYTES, "timeout_s": 20}
    Onlooker(monkeypatch, lambda house: slow.append(dial(house)))
    gone = threading.Event()
    real_drop, real_open = door.Door.drop_slow_strangers, door.Door.open

    def drop(entrance: door.Door) -> None:
        real_drop(entrance)
        if slow and hung_up(slow[0]):
            gone.set()

    def open_late(entrance: door.Door, *sockets: Any) -> None:
        if entrance.rank == 3:  # it has shown its card, so that the others come to the door; but is slow to connect
            assert gone.wait(10)
        real_open(entrance, *sockets)

    monkeypatch.setattr(door.Door, "drop_slow_strangers", drop)
    monkeypatch.setattr(door.Door, "open", open_late)

    def late() -> Connections:
        return bootstrap(job.placements[3], **options)

    calls: list[Callable[[], Any]] = [late]
    calls += [lambda p=p: (time.sleep(0.05), bootstrap(p, **options))[1] for p in job.placements[:3]]
    try:
        results = in_threads(calls)
    finally:
        job.board.close()
    assert all(isinstance(result, Connections) for result in results), results
    for result in results:
        result.close()
    slow[0].settimeout(20)
    assert slow[0].recv(1) == b""
    assert any("did not authenticate within" in record.message for record in caplog.records)


def test_the_secret_is_not_on_the_board_and_in_no_log(
    job: Hosts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    attacked(job, monkeypatch, lambda house: None)
    assert any(".card." in key for key in job.board.entries)
    text = caplog.text + repr(job.board.entries)
    assert SECRET.hex() not in text and repr(SECRET) not in text
