"""Agents that call their launcher by TCP: who gets in, and what becomes of a connection that breaks or is changed."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from agent_ways import LINK_TIMEOUT_S, PATIENCE_S, SECRET, Agent, job_on, launchers_side, slots_on
from test_transports import until

from horovod._net.handshake import calling, dialler, door, strangers
from horovod._net.handshake.frames import auth, messages, tcp_options
from horovod._net.handshake.frames.links import Link
from horovod._net.handshake.frames.messages import ROLE_AGENT, ROLE_BOARD
from horovod.runner.launchers.base import Surroundings
from horovod.runner.launchers.over_hosts import HostsLauncher
from horovod.runner.loop import Loop
from horovod.runner.remote.agent import LOST
from horovod.runner.remote.launcher_side.fleet import Fleet
from horovod.runner.remote.launcher_side.link import State, Way
from horovod.runner.remote.ways import calling_agent
from horovod.runner.remote.ways.by_process import ProcessConnection
from horovod.runner.remote.ways.by_tcp import CallingAgents
from horovod.runner.remote.ways.calling_agent import AGENT, credentials_of, serve
from horovod.runner.remote.ways.relay import Relay


@pytest.fixture
def launcher() -> Iterator[CallingAgents]:
    made = launchers_side()
    yield made
    made.close()


def fleet_of(launcher: CallingAgents, host: str = "node1", link_timeout_s: float = LINK_TIMEOUT_S) -> Fleet:
    return Fleet([Way(launcher, host, slots_on(host), link_timeout_s)])


def is_served(launcher: CallingAgents) -> None:
    """An agent with the secret gets in."""
    agent, fleet = Agent("node1", launcher.port), fleet_of(launcher)
    assert until(fleet, lambda link: link.state is not State.CALLED).state is State.GREETED
    fleet.close()
    assert agent.ended().words is not None


def stranger(port: int, data: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    sock.sendall(data)
    return sock


def is_dropped(sock: socket.socket) -> bool:
    """After whatever it was answered."""
    with sock:
        try:
            while sock.recv(4096):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
    return True


def hello(role: int) -> bytes:
    return messages.frame(auth.Connector(credentials_of(bytes(32), "job", AGENT), 1, role).hello)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00horovod-agent\x00",
        messages.frame(messages.Post("host=node1")),
        messages.frame(messages.Piece(b"x" * 100)),
        hello(ROLE_BOARD),
        hello(ROLE_AGENT) + messages.frame(messages.Proof(bytes(32))),
        hello(ROLE_AGENT) * 2,
    ],
    ids=["http", "mark", "name", "piece", "role", "wrong proof", "twice"],
)
def test_who_does_not_prove_the_secret_is_dropped_and_disturbs_nobody(launcher: CallingAgents, data: bytes) -> None:
    assert is_dropped(stranger(launcher.port, data))
    is_served(launcher)


def test_an_agent_with_another_secret_hears_so(launcher: CallingAgents) -> None:
    why = Agent("node1", launcher.port, bytes(32)).ended().why
    assert "does not hold this job's secret" in str(why)
    is_served(launcher)


def test_who_says_nothing_is_dropped_in_time(launcher: CallingAgents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.2)
    silent = stranger(launcher.port)
    is_served(launcher)
    assert is_dropped(silent)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "it does not answer"),
        (b"", "cannot be reached at 127.0.0.1"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not hold this job's secret"),
        (messages.frame(messages.Challenge(bytes(32), bytes(32))), "does not hold this job's secret"),
    ],
    ids=["silence", "end", "garbage", "wrong proof"],
)
def test_an_agent_believes_no_other_launcher(answer: Optional[bytes], words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent = Agent("node1", listener.getsockname()[1], patience_s=0.5)
        kept = []
        listener.settimeout(0.1)
        while agent.is_alive():
            try:
                kept.append(listener.accept()[0])
            except TimeoutError:
                continue
            if answer:
                kept[-1].sendall(answer)
            if answer is not None:
                kept[-1].recv(4096)
                kept.pop().close()
        for sock in kept:
            sock.close()
    assert words in str(agent.ended().why)


def test_nobody_listens_where_there_is_no_launcher() -> None:
    made = launchers_side()
    port, threads = made.port, threading.active_count()
    made.close()
    assert threading.active_count() == threads - 1
    with pytest.raises(OSError, match="agents cannot call here any more"):
        made.open("node1", Loop())
    assert "cannot be reached" in str(Agent("node1", port, patience_s=0.2).ended().why)


def test_an_agent_that_is_not_wanted_starts_nothing(launcher: CallingAgents) -> None:
    agent = Agent("node2", launcher.port)
    is_served(launcher)
    assert agent.is_alive()
    launcher.close()
    assert agent.ended().unwanted, "so it may call again"


def test_an_agent_that_comes_again_takes_the_place_of_the_first(launcher: CallingAgents) -> None:
    first = Agent("node1", launcher.port)
    deadline_s = time.monotonic() + PATIENCE_S
    while "node1" not in launcher._come and time.monotonic() < deadline_s:
        time.sleep(0.005)
    second = Agent("node1", launcher.port)
    assert first.ended().unwanted
    fleet = fleet_of(launcher)
    assert until(fleet, lambda link: link.state is not State.CALLED).state is State.GREETED
    fleet.close()
    assert second.ended().words is not None


class Wire:
    """Carries a connection to the launcher, and can cut it or change what the agent says."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.change: Callable[[bytes], bytes] = lambda data: data
        self.seen = bytearray()
        self._target = port
        self._socks: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        theirs, _ = self._listener.accept()
        ours = socket.create_connection(("127.0.0.1", self._target))
        self._socks += [theirs, ours]
        for source, sink in ((theirs, ours), (ours, theirs)):
            self._threads.append(threading.Thread(target=self._carry, args=(source, sink), daemon=True))
            self._threads[-1].start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.seen += data
                sink.sendall(self.change(data) if source is self._socks[0] else data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for sock in self._socks:
            sock.close()


@pytest.fixture
def wire(launcher: CallingAgents) -> Iterator[Wire]:
    made = Wire(launcher.port)
    yield made
    made.close()


def test_a_connection_that_is_cut_ends_both_sides(launcher: CallingAgents, wire: Wire) -> None:
    agent, fleet = Agent("node1", wire.port), fleet_of(launcher)
    until(fleet, lambda link: link.state is State.GREETED)
    wire.cut()
    assert "the connection to it has ended" in until(fleet, lambda link: link.state is State.LOST).why
    assert "The agent ends its ranks" in (agent.ended().words or "")
    fleet.close()


def test_what_is_changed_on_the_way_ends_the_connection(launcher: CallingAgents, wire: Wire) -> None:
    agent, fleet = Agent("node1", wire.port), fleet_of(launcher)
    until(fleet, lambda link: link.state is State.GREETED)
    wire.change = lambda data: data[:-1] + bytes([data[-1] ^ 1])
    why = until(fleet, lambda link: link.state is State.LOST).why
    assert "the connection to it has ended (Frame" in why and "does not carry the code of this connection" in why
    assert "The agent ends its ranks" in (agent.ended().words or "")
    fleet.close()


def test_a_launcher_that_is_busy_gives_signs_of_life(launcher: CallingAgents) -> None:
    agent, fleet = Agent("node1", launcher.port, link_timeout_s=1.0), fleet_of(launcher)
    until(fleet, lambda link: link.state is State.GREETED)
    time.sleep(5.0)  # longer than an agent believes a silence
    assert agent.is_alive()
    fleet.turn()
    assert fleet.links[0].state is State.GREETED
    fleet.close()
    agent.ended()


def test_the_secret_is_on_no_command_line(launcher: CallingAgents) -> None:
    agent, fleet = Agent("node1", launcher.port), fleet_of(launcher)
    until(fleet, lambda link: link.state is State.GREETED)
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read()
        except OSError:
            continue
        assert SECRET not in words and SECRET.hex().encode() not in words
    fleet.close()
    agent.ended()


def test_neither_secret_can_be_read_on_the_way(launcher: CallingAgents, wire: Wire, tmp_path: Path) -> None:
    agent = Agent("node1", wire.port)
    ranks_secret = credentials_of(SECRET, "job", AGENT).ranks_secret().hex()
    script = f"echo $_HOROVOD_SECRET_KEY > {tmp_path}/$HOROVOD_RANK"
    outcome = HostsLauncher(lambda _: launcher).run(
        job_on("node1", "sh", "-c", script), Surroundings(io.StringIO(), io.StringIO())
    )
    assert outcome.exit_code == 0 and agent.ended().words is not None
    assert [(tmp_path / rank).read_text().strip() for rank in "01"] == [ranks_secret] * 2
    assert b"HOROVOD_JOB_ID" in wire.seen
    for secret in (SECRET, SECRET.hex().encode(), ranks_secret.encode()):
        assert secret not in wire.seen
    assert wire.seen.count(b"_HOROVOD_SECRET_KEY") == 1  # of the script


def test_all_hosts_may_call_in_one_moment() -> None:
    made = launchers_side(hosts=150)
    challenge_bytes = len(messages.frame(messages.Challenge(bytes(32), bytes(32))))
    with contextlib.ExitStack() as crowd:
        crowd.callback(made.close)
        come = [crowd.enter_context(stranger(made.port, hello(ROLE_AGENT))) for _ in range(150)]
        for sock in come:
            assert len(sock.recv(challenge_bytes, socket.MSG_WAITALL)) == challenge_bytes
        assert select.select(come, [], [], 0.2)[0] == [], "none of them was dropped"


def test_a_launcher_makes_room_for_all_hosts() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(map(int, os.listdir("/proc/self/fd"))) + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        launchers_side(hosts=few).close()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 5 * few
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class HangingLog(logging.Handler):
    """Its terminal takes no more."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.free.wait(PATIENCE_S)


def test_a_flood_of_strangers_and_a_log_that_hangs_hold_no_agent_up(launcher: CallingAgents) -> None:
    handler, threads = HangingLog(), threading.active_count()
    strangers.log.addHandler(handler)
    try:
        for number in range(100):
            sock = stranger(launcher.port, hello(number % 8) + b"GET / HTTP/1.1")
            sock.settimeout(2.0)
            assert is_dropped(sock)
        assert threading.active_count() <= threads + 3
        is_served(launcher)
    finally:
        handler.free.set()
        strangers.log.removeHandler(handler)


def test_a_broken_connection_with_much_unread_costs_no_processor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    (from_agent, says), (hears, to_agent) = os.pipe(), os.pipe()
    for fd in (says, hears):
        os.set_blocking(fd, False)
    loop, link, other = Loop(), Link(ours), Link(theirs)
    relay = Relay(loop, link, (from_agent, to_agent), lambda how: None)
    while len(relay._arrived) <= 1 << 18:
        other.send(messages.Piece(bytes(1 << 14)))
        loop.turn(0.01)
    while not link.wants_to_write:
        with contextlib.suppress(BlockingIOError):
            os.write(says, bytes(1 << 16))
        loop.turn(0.01)
    other.close()  # with bytes unread there: the connection is reset
    turns, until_s = 0, time.monotonic() + 0.5
    while time.monotonic() < until_s:
        loop.turn(0.05)
        turns += 1
    # Not the time of the processor: what a kernel spends for a process, some sandboxes do not count.
    assert turns < 50 and not relay.over, "a loop that spins turns thousands of times"
    heard = 0
    while not relay.over:
        with contextlib.suppress(BlockingIOError):
            heard += len(os.read(hears, 1 << 16))
        loop.turn(0.01)
    while data := os.read(hears, 1 << 16):
        heard += len(data)
    assert heard > 1 << 18, "what has come is passed on"
    link.close()
    loop.close()
    os.close(says)
    os.close(hears)


def test_an_agent_whose_program_fails_ends_its_ranks_itself(
    launcher: CallingAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[ProcessConnection] = []
    fails, failed = threading.Event(), []

    class Noted(ProcessConnection):
        def __init__(self, *of_it: Any) -> None:
            super().__init__(*of_it)
            begun.append(self)

    class Failing(Loop):
        def turn(self, timeout_s: Optional[float] = None) -> None:
            super().turn(timeout_s)
            if fails.is_set():
                raise MemoryError("of the program")

    def program() -> None:
        where = credentials_of(SECRET, "job", AGENT), "node1", ("127.0.0.1", launcher.port)
        try:
            serve(*where, PATIENCE_S, LINK_TIMEOUT_S)
        except MemoryError as error:
            failed.append(error)

    monkeypatch.setattr(calling_agent, "ProcessConnection", Noted)
    monkeypatch.setattr(calling_agent, "Loop", Failing)
    is_served(launcher)  # what the first one needs stays
    gc.collect()  # nor does a socket of an earlier test go meanwhile
    before = len(os.listdir("/proc/self/fd"))
    thread, fleet = threading.Thread(target=program), fleet_of(launcher)
    thread.start()
    until(fleet, lambda link: link.state is State.GREETED)
    fails.set()
    thread.join(PATIENCE_S)
    assert failed and [each._process.returncode for each in begun[1:]] == [LOST]
    until(fleet, lambda link: link.state is State.LOST)
    fleet.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_both_sides_believe_a_silence_of_the_link_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    def believed_ms(sock: socket.socket) -> int:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    def dial(host: str, port: int) -> socket.socket:
        sock = dialler.dial(host, port)
        agents.append(believed_ms(sock))
        return sock

    agents: list[int] = []
    monkeypatch.setattr(calling, "dial", dial)
    monkeypatch.setattr(tcp_options, "_silence_s", 1.0)
    made = launchers_side(link_timeout_s=40.0)
    with stranger(made.port, hello(ROLE_AGENT)) as sock:
        assert sock.recv(1)
        assert [believed_ms(visit.link.sock) >= 40_000 for visit in made._lobby.visits] == [True]
    agent = Agent("node1", made.port, link_timeout_s=100.0)
    fleet = fleet_of(made)
    until(fleet, lambda link: link.state is State.GREETED)
    assert [each >= 100_000 for each in agents] == [True]
    fleet.close()
    made.close()
    agent.ended()


def test_a_forked_child_holds_neither_the_door_nor_a_call_open(launcher: CallingAgents) -> None:
    agent = Agent("node1", launcher.port)
    until_named(launcher)
    child = os.fork()
    if child == 0:
        time.sleep(PATIENCE_S)  # with what it has of its parent
        os._exit(0)
    try:
        port = launcher.port
        launcher.close()
        assert agent.ended().unwanted
        with pytest.raises(ConnectionRefusedError):
            stranger(port)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_nobody_listens_when_all_have_called(launcher: CallingAgents) -> None:
    agent = Agent("node1", launcher.port)
    until_named(launcher)
    launcher.expect_no_more()
    deadline_s = time.monotonic() + PATIENCE_S
    with pytest.raises(ConnectionRefusedError):
        while time.monotonic() < deadline_s:
            with contextlib.suppress(ConnectionResetError):  # it was in the queue
                stranger(launcher.port).close()
    fleet = fleet_of(launcher)
    assert until(fleet, lambda link: link.state is not State.CALLED).state is State.GREETED
    fleet.close()
    assert agent.ended().words is not None


def test_who_has_gone_is_not_among_those_that_have_called(launcher: CallingAgents) -> None:
    agent = Agent("node1", launcher.port)
    until_named(launcher)
    fleet = fleet_of(launcher)
    assert until(fleet, lambda link: link.state is not State.CALLED).state is State.GREETED
    assert "node1" in launcher.words()
    fleet.close()
    assert agent.ended().words is not None
    deadline_s = time.monotonic() + PATIENCE_S
    while launcher.words():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def until_named(launcher: CallingAgents, host: str = "node1") -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while host not in launcher.words():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
