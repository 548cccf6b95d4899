"""Tests of horovod._net.bootstrap: whole jobs connect, and every failure is fast, named and clean."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from net_ranks import REGION_BYTES, connect_all, connected, forked, in_threads, open_descriptors, placements, unique_key

from horovod._net.bootstrap import Ways, bootstrap
from horovod._net.clusters.placement import Placement
from horovod._net.connections import Connections
from horovod._net.failures import (
    ConnectError,
    MeetingError,
    PlacementError,
    ProtocolError,
    ResourceError,
    StartTimeoutError,
)
from horovod._net.handshake import members, memory, reception, visits
from horovod._net.handshake.frames.links import Link
from horovod._net.handshake.frames.messages import AnyMessage, Knock
from horovod._net.handshake.frames.watch import Source, Watch
from horovod._net.handshake.pairing import Pair
from horovod._net.meeting import directory, private_directories


def close(results: list) -> None:
    for result in results:
        if not isinstance(result, Exception):
            result.close()


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_all_ranks_connect_and_nothing_is_left_behind(private_base: pathlib.Path, size: int, transport: str) -> None:
    jobs = placements(size)
    results = connected(jobs, transport=transport)
    for rank, result in enumerate(results):
        assert [peer.rank for peer in result.peers] == [r for r in range(size) if r != rank]
        assert {peer.pid for peer in result.peers} == {os.getpid()}
        assert result.host_of_rank == ([0] * size if transport == "auto" else list(range(size)))
    assert os.listdir(private_base) == []
    close(results)


def test_every_descriptor_is_accounted_for(private_base: pathlib.Path) -> None:
    connected(placements(2))[0].close()  # lets lazily opened ones appear
    before = open_descriptors()
    for transport in ("auto", "tcp"):
        jobs = placements(3)
        results = connected(jobs, transport=transport)
        new = open_descriptors() - before
        claims = len(jobs)
        assert len(new) == sum(len(result.descriptors()) for result in results) + claims
        close(results)
        before = open_descriptors()


def test_the_memory_of_the_peers_is_shared_clean_and_sealed(private_base: pathlib.Path) -> None:
    zero, one = connected(placements(2))
    assert os.pread(zero.memory_fd, REGION_BYTES, 0) == bytes(REGION_BYTES)
    os.pwrite(zero.memory_fd, b"written by 0", 4096)
    assert os.pread(one.peers[0].memory_fd, 12, 4096) == b"written by 0"
    seals = fcntl.fcntl(one.peers[0].memory_fd, fcntl.F_GET_SEALS)
    assert seals == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    with pytest.raises(PermissionError):
        os.ftruncate(one.peers[0].memory_fd, 0)
    close([zero, one])


def test_the_doorbell_of_a_peer_rings_here(private_base: pathlib.Path) -> None:
    zero, one = connected(placements(2))
    os.write(one.peers[0].doorbell_fd, (1).to_bytes(8, "little"))
    assert os.read(zero.doorbell_fd, 8) == (1).to_bytes(8, "little")
    with pytest.raises(BlockingIOError):
        os.read(zero.doorbell_fd, 8)
    close([zero, one])


@pytest.mark.parametrize("by", ["pidfd", "pipe"])
def test_the_end_of_a_peers_process_is_seen(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """By its pidfd or, where none can be had, its pipe, which a child that it has forked does not keep open."""
    if by == "pipe":
        monkeypatch.setattr(Link, "peer_pidfd", lambda self: None)
    first, second = placements(2)
    go, told = os.pipe()
    stay, end = os.pipe()

    def child() -> None:
        bootstrap(second, epoch=0, region_bytes=REGION_BYTES, timeout_s=20)
        os.close(end)
        forked(lambda: os.read(stay, 1) and None)
        os.close(told)
        os.read(go, 1)

    pid = forked(child)
    os.close(go)
    result = bootstrap(first, epoch=0, region_bytes=REGION_BYTES, timeout_s=20)
    liveness = result.peers[0].liveness_fd
    assert result.peers[0].pid == pid
    assert by in os.readlink(f"/proc/self/fd/{liveness}")
    assert select.select([liveness], [], [], 0)[0] == []
    os.kill(pid, signal.SIGKILL)
    assert select.select([liveness], [], [], 10)[0] == [liveness]
    os.waitpid(pid, 0)
    for fd in (told, stay, end):
        os.close(fd)
    result.close()


def test_tcp_sockets_join_the_right_ranks_and_share_keys(private_base: pathlib.Path) -> None:
    results = connected(placements(3), transport="tcp")
    keys = set()
    for low, high in ((0, 1), (0, 2), (1, 2)):
        there, back = results[low].peers[high - 1], results[high].peers[low]
        assert (there.rank, back.rank) == (high, low)
        assert there.key == back.key != bytes(16)
        keys.add(there.key)
        for ours, theirs, text in (
            (there.control_fd, back.control_fd, b"control"),
            (there.data_fd, back.data_fd, b"data"),
        ):
            os.write(ours, text)
            assert select.select([theirs], [], [], 10)[0] == [theirs] and os.read(theirs, 100) == text
    assert len(keys) == 3
    assert not os.get_blocking(results[0].peers[0].data_fd)
    with socket.socket(fileno=os.dup(results[0].peers[0].data_fd)) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    close(results)


def test_a_single_process_needs_nothing() -> None:
    result = bootstrap(placements(1)[0], epoch=0, region_bytes=REGION_BYTES, timeout_s=0)
    assert result.descriptors() == [] and result.peers == [] and result.host_of_rank == [0]


def test_the_next_epoch_connects_again(private_base: pathlib.Path) -> None:
    jobs = placements(3)
    for epoch in range(3):
        close(connected(jobs, epoch=epoch))
    close(connected(jobs, epoch=2))  # also the same epoch once more, after a shutdown
    assert os.listdir(private_base) == []


def test_a_list_of_ranks_connects_those_only(private_base: pathlib.Path) -> None:
    jobs = placements(4)
    results = connected([jobs[rank].restricted_to([3, 1]) for rank in (3, 1)])
    assert [r.placement.rank for r in results] == [0, 1] and all(r.placement.size == 2 for r in results)
    assert [[p.rank for p in r.peers] for r in results] == [[1], [0]]
    close(results)
    with pytest.raises(PlacementError, match="Rank 0 is not among the ranks"):
        jobs[0].restricted_to([3, 1])


def test_two_jobs_side_by_side_do_not_meet(private_base: pathlib.Path) -> None:
    one, other = placements(3), placements(3)
    results = connected([*one, *other])
    for group in (results[:3], results[3:]):
        inodes = [os.fstat(result.memory_fd).st_ino for result in group]
        for rank, result in enumerate(group):
            assert [os.fstat(p.memory_fd).st_ino for p in result.peers] == [
                n for r, n in enumerate(inodes) if r != rank
            ]
    close(results)


def test_the_launchers_directory_and_secret_are_used(private_base: pathlib.Path) -> None:
    jobs = placements(3, meeting_directory=str(private_base), secret=bytes(range(32)))
    close(connected(jobs))
    assert os.listdir(private_base) == []


def test_missing_ranks_are_named(private_base: pathlib.Path) -> None:
    jobs = placements(4)
    results = connect_all([jobs[0], jobs[2]], timeout_s=0.5123)
    for result in results:
        assert isinstance(result, ConnectError) and "Ranks 1, 3 of 4 did not connect" in str(result)
        assert "test launcher" in str(result) and "HOROVOD_START_TIMEOUT" in str(result)
        assert " within 0.5 s. " in str(result), result
    assert any(isinstance(result, StartTimeoutError) and result.ranks == (1, 3) for result in results)
    assert os.listdir(private_base) == []


def test_several_hosts_are_refused_with_the_remedies() -> None:
    placement = Placement(0, 4, 0, 2, 0, 2, "torchrun", "key", "node1")
    with pytest.raises(
        PlacementError, match="need a secret to trust one another, and .* gives them none.*HOROVOD_SECRET_FILE=FILE"
    ):
        bootstrap(placement, epoch=0, region_bytes=REGION_BYTES, timeout_s=1)


def test_different_transports_are_a_clear_error(private_base: pathlib.Path) -> None:
    jobs = placements(2)
    options = {"epoch": 0, "region_bytes": REGION_BYTES, "timeout_s": 20}
    results = in_threads(
        [
            lambda: bootstrap(jobs[0], ways=Ways("tcp"), **options),
            lambda: bootstrap(jobs[1], ways=Ways("auto"), **options),
        ]
    )
    assert all(
        isinstance(result, ConnectError) and "must be the same on all ranks" in str(result) for result in results
    )
    assert os.listdir(private_base) == []


def test_ranks_that_differ_in_who_moves_tensors_are_a_clear_error(private_base: pathlib.Path) -> None:
    jobs = placements(3)
    calls = [
        lambda n=n: bootstrap(jobs[n], epoch=0, region_bytes=REGION_BYTES, timeout_s=20, ways=Ways(by_mpi=n != 1))
        for n in range(3)
    ]
    results = in_threads(calls)
    assert all(isinstance(result, ConnectError) for result in results), results
    assert any("HOROVOD_CPU_OPERATIONS must be the same on all ranks" in str(result) for result in results), results
    assert os.listdir(private_base) == []


def test_different_region_sizes_are_a_clear_error(private_base: pathlib.Path) -> None:
    jobs = placements(2)
    calls = [lambda n=n: bootstrap(jobs[n], epoch=0, region_bytes=REGION_BYTES << n, timeout_s=20) for n in range(2)]
    for result in in_threads(calls):
        assert isinstance(result, ConnectError) and "same settings for shared memory" in str(result)


@pytest.mark.parametrize("size", [30_000, 16_000_000])
def test_a_job_that_no_host_can_hold_is_refused_at_once(size: int) -> None:
    place = Placement(0, size, 0, size, 0, 1, "torchrun", unique_key(), "here")
    begin = time.monotonic()
    with pytest.raises(PlacementError, match=rf"torchrun: a job of {size} ranks on one host needs .* open files"):
        bootstrap(place, epoch=0, region_bytes=REGION_BYTES, timeout_s=1.0)
    assert time.monotonic() - begin < 1.0


@pytest.mark.skipif(os.getuid() != 0, reason="Not here: only root can take a file system away.")
def test_without_proc_the_error_says_so(private_base: pathlib.Path) -> None:
    program = (
        "from horovod._net.bootstrap import bootstrap\n"
        "from horovod._net.clusters.placement import Placement\n"
        "from horovod._net.failures import MeetingError\n"
        "place = Placement(0, 2, 0, 2, 0, 1, 'test launcher', 'key', 'here')\n"
        "try: bootstrap(place, epoch=0, region_bytes=65536, timeout_s=1.0)\n"
        "except MeetingError as error: print(error)"
    )
    words = ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh", sys.executable, "-c", program]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "/proc is not mounted here" in output
    assert os.listdir(private_base) == []


def test_the_others_learn_that_a_rank_has_no_memory(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = placements(3)
    real = memory.create_region
    calls = itertools.count(1)

    def create_region(region_bytes: int) -> int:
        if next(calls) == len(jobs):  # the others have joined
            raise OSError(errno.EFBIG, "File too large")
        return real(region_bytes)

    monkeypatch.setattr(memory, "create_region", create_region)
    begin = time.monotonic()
    results = connect_all(jobs)
    assert time.monotonic() - begin < 5.0
    (lacking,) = (rank for rank, result in enumerate(results) if isinstance(result, ResourceError))
    for rank, result in enumerate(results):
        if rank != lacking:
            assert isinstance(result, ConnectError) and result.ranks == (lacking,)
            assert f"Rank {lacking} gave up connecting" in str(result) and "File too large" in str(result)


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(PlacementError, match="one of auto, tcp"):
        bootstrap(placements(2)[0], epoch=0, region_bytes=REGION_BYTES, timeout_s=1, ways=Ways("pigeon"))


def test_a_peer_killed_while_connecting_is_noticed_at_once(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = placements(3)  # rank 2 never comes, so that 0 and 1 are still waiting when 1 dies
    pid = forked(lambda: bootstrap(jobs[1], epoch=0, region_bytes=REGION_BYTES, timeout_s=60) and None)
    real = members.Members.join

    def join_then_kill(self: members.Members, pair: Pair, link: Link) -> None:
        real(self, pair, link)
        os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(members.Members, "join", join_then_kill)
    start = time.monotonic()
    with pytest.raises(ConnectError, match=rf"Rank 1 \(pid {pid}\) died while the job was connecting") as caught:
        bootstrap(jobs[0], epoch=0, region_bytes=REGION_BYTES, timeout_s=60)
    assert caught.value.ranks == (1,) and time.monotonic() - start < 30
    os.waitpid(pid, 0)
    assert os.listdir(private_base) == []


def test_a_peer_that_died_before_anyone_connected_is_noticed_at_once(private_base: pathlib.Path) -> None:
    jobs = placements(3)
    held = directory.Meeting(jobs[2], 0, private_directories.choose_base("0"), own_base=True)
    held.join(time.monotonic() + 5)  # keeps the directory alive; nobody serves its socket
    pid = forked(
        lambda: directory.Meeting(jobs[1], 0, private_directories.choose_base("0"), own_base=True).join(
            time.monotonic() + 5
        )
    )
    os.waitpid(pid, 0)
    with pytest.raises(ConnectError, match=rf"Rank 1 \(pid {pid}\) died while the job was connecting"):
        bootstrap(jobs[0], epoch=0, region_bytes=REGION_BYTES, timeout_s=60)
    held.leave(time.monotonic() + 5)


def test_the_others_learn_why_a_rank_gave_up(private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int) -> None:  # called once a rank is connected to all others
        if threading.current_thread().name == "unlucky":
            raise ConnectError("Out of luck.")
        real(fd)

    real = memory.clear_nonce
    monkeypatch.setattr(memory, "clear_nonce", broken)
    jobs = placements(3)

    def run(rank: int) -> None:
        threading.current_thread().name = "unlucky" if rank == 1 else "lucky"
        bootstrap(jobs[rank], epoch=0, region_bytes=REGION_BYTES, timeout_s=60)

    results = in_threads([lambda r=r: run(r) for r in range(3)])
    assert all(isinstance(result, ConnectError) for result in results)
    assert str(results[1]) == "Out of luck."
    for result in (results[0], results[2]):
        assert "gave up connecting" in str(result) and "Out of luck." in str(result)
    assert os.listdir(private_base) == []


def test_a_second_process_with_the_same_rank_is_refused_and_the_job_goes_on(private_base: pathlib.Path) -> None:
    jobs = placements(2)
    result = connected(jobs)

    def copy() -> None:
        with pytest.raises(MeetingError, match="already taken"):
            bootstrap(jobs[1], epoch=0, region_bytes=REGION_BYTES, timeout_s=60)

    assert os.waitpid(forked(copy), 0)[1] == 0
    close(result)


def test_sixteen_ranks_connect_within_their_budget(private_base: pathlib.Path) -> None:
    """200 ms of our own time for 16 ranks: processor time, so that a busy machine does not fail it."""
    jobs = placements(16)
    read, write = os.pipe()

    def rank(index: int) -> None:
        start = time.process_time()
        result = bootstrap(jobs[index], epoch=0, region_bytes=REGION_BYTES, timeout_s=60)
        os.write(write, f"{len(result.peers)} {time.process_time() - start}\n".encode())

    pids = [forked(lambda i=i: rank(i)) for i in range(16)]
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
    os.close(write)
    with os.fdopen(read) as lines:
        rows = [line.split() for line in lines]
    assert [int(peers) for peers, _ in rows] == [15] * 16
    assert sum(float(seconds) for _, seconds in rows) < 0.4  # two cores' worth of 200 ms


def test_a_rank_that_the_launcher_saw_end_is_named_at_once(private_base: pathlib.Path) -> None:
    jobs = placements(3, meeting_directory=str(private_base), secret=bytes(range(32)))
    (private_base / "ended.2").write_text("exited with code 3")
    for result in connect_all(jobs[:2], timeout_s=60.0):
        assert isinstance(result, ConnectError) and result.ranks == (2,)
        assert "Rank 2 exited with code 3 before it was connected" in str(result)


def test_a_rank_that_ended_well_did_not_call_init(private_base: pathlib.Path) -> None:
    jobs = placements(2, meeting_directory=str(private_base), secret=bytes(range(32)))
    (private_base / "ended.1").write_text("exited with code 0")
    (result,) = connect_all(jobs[:1], timeout_s=60.0)
    assert isinstance(result, ConnectError) and result.ranks == (1,)
    assert str(result).startswith("Rank 1 ended with code 0 and never called hvd.init()")


def test_a_knock_that_was_dropped_is_repeated(private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1, which came first, drops rank 0's knock in a crowd; it never looks for rank 0 by itself."""
    waits, knocks = threading.Event(), []
    real_wait, real_hear = Watch.wait, reception.Reception.hear

    def wait(watch: Watch, seconds: float) -> list[Source]:
        waits.set()
        return real_wait(watch, seconds)

    def hear(desk: reception.Reception, visit: visits.Visit, message: AnyMessage) -> None:
        if isinstance(message, Knock):
            knocks.append(message.rank)
            if len(knocks) <= 2:
                raise ProtocolError("As in a crowd.")
        real_hear(desk, visit, message)

    monkeypatch.setattr(Watch, "wait", wait)
    monkeypatch.setattr(reception.Reception, "hear", hear)
    zero, one = placements(2)

    def late() -> Connections:
        assert waits.wait(10)
        return bootstrap(zero, epoch=0, region_bytes=REGION_BYTES, timeout_s=5)

    results = in_threads([late, lambda: bootstrap(one, epoch=0, region_bytes=REGION_BYTES, timeout_s=5)])
    assert [len(result.peers) for result in results if isinstance(result, Connections)] == [1, 1], results
    assert knocks == [0, 0, 0]
    close(results)
