"""`bootstrap`: from a placement to connected peers, in one collective call.

Used by `horovod._core.life.engine_start`. It owns the order of the steps and the clean-up; the steps are in meeting,
memory and connect.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import time
from dataclasses import dataclass
from typing import Callable, Optional

from horovod._net import identity, resources
from horovod._net.clusters.placement import Placement
from horovod._net.connections import Connections
from horovod._net.failures import ConnectError, MeetingError, PlacementError
from horovod._net.handshake import auth, memory
from horovod._net.handshake.board_link import SOCKET_NAME, BoardLink
from horovod._net.handshake.connect import Mesh
from horovod._net.handshake.messages import NONCE_BYTES
from horovod._net.handshake.pairing import OwnSide
from horovod._net.handshake.roll_call import World, call_the_roll, one_host
from horovod._net.interfaces import address_for_other_hosts
from horovod._net.meeting import directory, lasting_claim, places
from horovod._net.meeting.board import Attempt, AttemptOverError
from horovod._net.meeting.deaths import MET, Deaths

TRANSPORTS = ("auto", "tcp")
_DESCRIPTORS_PER_PEER = 6
_OTHER_DESCRIPTORS = 256
_MOST_RANKS = 1 << 16  # on one host; more is a mistake in a variable, not a job
_LEAST_START_S = 5.0  # for the engines of the others to start, when meeting them has taken all of the time

# How often a process has met the others of a job: (pid, job key, the launcher's epoch, rank) -> number. An attempt
# counts by the outcome of its meeting, on which all ranks agree: so they agree on the next number, whatever has failed.
_met: dict[tuple[int, str, int, int], int] = {}


def bootstrap(
    placement: Placement,
    *,
    epoch: int,
    region_bytes: int,
    timeout_s: float,
    transport: str = "auto",
    start: Callable[[Connections], None] = lambda connections: None,
) -> Connections:
    """Connects this rank with all others. Collective.

    Args:
        placement: who this process is, among the ranks that are to be connected.
        epoch: the launcher's count of changes of the job; equal on all ranks.
        region_bytes: size of every rank's shared region (hvd_region_bytes); ignored when no memory is shared.
        timeout_s: how long to wait for the other ranks.
        transport: "auto": shared memory on one host, authenticated sockets between hosts. "tcp": loopback sockets
            instead of shared memory, to exercise that path.
        start: starts this rank's engine. The others learn at once when it raises.

    Returns:
        The connections, owned by the caller. Without other ranks: no descriptors at all.

    Raises:
        PlacementError: the job spans several hosts, which have no trusted way to meet, or no known address.
        MeetingError: there is no safe place to meet, or another process has claimed this rank.
        StartTimeoutError: ranks are missing; names them.
        ConnectError: a rank failed or died meanwhile; names it.
        ResourceError: this process lacks descriptors, memory or space; names the limit.
    """
    if transport not in TRANSPORTS:
        raise PlacementError(f"The transport must be one of {', '.join(TRANSPORTS)}. Received: {transport!r}.")
    known = (os.getpid(), placement.job_key, epoch, placement.rank)
    # Below the launcher's epochs there is room for re-initialisations by the program.
    number = (epoch << 20) + _met.get(known, 0)
    if placement.size == 1:
        alone = Connections(placement, number, host_of_rank=[0])
        start(alone)
        return alone
    if not placement.one_host and (placement.meeting_directory is None or placement.secret is None):
        raise PlacementError(several_hosts(placement))
    if not os.path.isdir("/proc/self/fd"):
        raise MeetingError(
            f"Rank {placement.rank} of {placement.size} cannot meet the others: /proc is not mounted here, by which "
            "ranks find one another; mount it (mount -t proc proc /proc)."
        )
    allow_descriptors(placement)
    wishes = _Wishes(region_bytes, transport == "auto", start, time.monotonic() + timeout_s)
    with contextlib.ExitStack() as undo:
        try:
            lasting_claim.take(placement, number)
            place = _meeting(placement, number, wishes.deadline, undo)
            while True:
                with contextlib.suppress(AttemptOverError):
                    return _take_part(place, Connections(placement, number), known, wishes)
        except OSError as error:
            raise resources.failure(f"Rank {placement.rank} of {placement.size} could not connect", error) from error


@dataclass(frozen=True)
class _Wishes:
    """What the caller of `bootstrap` asks for."""

    region_bytes: int
    share: bool
    start: Callable[[Connections], None]
    deadline: float


def _take_part(
    place: directory.Meeting, connections: Connections, known: tuple[int, str, int, int], wishes: _Wishes
) -> Connections:
    """One attempt to meet all others, and to connect with them.

    Raises:
        AttemptOverError: it was over before this rank came.
    """
    place.join(wishes.deadline)
    try:
        _connect(place, connections, wishes)
        return connections
    finally:
        _count_if_met(place, known)
        place.leave(wishes.deadline)


def _meeting(placement: Placement, number: int, deadline: float, undo: contextlib.ExitStack) -> directory.Meeting:
    """Where the ranks meet; not joined yet."""
    name = directory.directory_name(placement, number)
    attempt: Optional[Attempt] = None
    told = placement.meeting_directory
    if told is not None and (not placement.one_host or os.path.exists(os.path.join(told, SOCKET_NAME))):
        # Also where all ranks are on one host that is not the launcher's: who comes to the board is up.
        board = BoardLink(told, deadline)
        undo.callback(board.close)
        attempt = None if placement.one_host else Attempt(board, name)
    base = placement.meeting_directory or places.choose_base(name)
    return directory.Meeting(placement, number, base, own_base=placement.meeting_directory is None, attempt=attempt)


def _count_if_met(place: directory.Meeting, known: tuple[int, str, int, int]) -> None:
    with contextlib.suppress(ConnectError):  # the launcher is gone, and there will be no other meeting
        if place.outcome() == MET:
            _met[known] = _met.get(known, 0) + 1


def _connect(place: directory.Meeting, result: Connections, wishes: _Wishes) -> None:
    """In the meeting directory: makes what this rank offers, connects and starts, and keeps or closes all of it."""
    placement = result.placement
    world: Optional[World] = None
    mesh: Optional[Mesh] = None
    try:
        world = _find_the_others(place, placement, wishes)
        if place.attempt is not None:
            result.placement = placement.placed(world.host_of_rank)
        result.host_of_rank = world.host_of_rank if world.share else list(range(placement.size))
        credentials = auth.Credentials(
            place.secret, auth.job_digest(placement.job_key), result.epoch, placement.rank, placement.size
        )
        result.object_key = b"" if len(set(result.host_of_rank)) == 1 else credentials.object_key()
        mesh = Mesh(place, credentials, _own_side(result, wishes.region_bytes), world, placement)
        mesh.run(max(0.0, wishes.deadline - time.monotonic()))
        result.peers = mesh.take_peers()
        wishes.start(result)
        mesh.confirm(max(_LEAST_START_S, wishes.deadline - time.monotonic()))
    except AttemptOverError:
        raise  # there is nothing to tell, and nothing to undo
    except BaseException as error:
        if mesh is None:  # nobody is connected to this rank yet, so nobody would learn of it
            Deaths(place, placement).tell_error(error)
        else:
            mesh.give_up(error)
        result.close()
        raise
    finally:
        if mesh is not None:
            mesh.close()
        if world is not None:
            world.close()


def _find_the_others(place: directory.Meeting, placement: Placement, wishes: _Wishes) -> World:
    if place.attempt is None:
        return one_host(placement.size, wishes.share)
    address = address_for_other_hosts(placement.interfaces, placement.address)
    world = call_the_roll(place.attempt, placement, address, Deaths(place, placement), wishes.deadline)
    world.share = wishes.share
    return world


def _own_side(result: Connections, region_bytes: int) -> OwnSide:
    """What this rank offers; its memory only if somebody is to share it."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    own_host = result.host_of_rank[result.placement.rank]
    share = result.host_of_rank.count(own_host) > 1
    if share:
        result.memory_fd = memory.create_region(region_bytes)
        memory.write_nonce(result.memory_fd, nonce)
        result.doorbell_fd = memory.create_doorbell()
    return OwnSide(result.memory_fd, result.doorbell_fd, nonce, region_bytes if share else 0, identity.host_identity())


def several_hosts(placement: Placement) -> str:
    """Why a job on several hosts is refused, and what can be done."""
    return (
        f"{placement.launcher} placed {placement.local_size} of the job's {placement.size} ranks on "
        f"{placement.hostname}; ranks on several hosts need a trusted way to meet, which in this version horovodrun "
        "alone gives them: start the job with horovodrun -H HOST:SLOTS,..., or all ranks on one host."
    )


def allow_descriptors(placement: Placement) -> None:
    """Raises this process's soft limit of open files when the connections would not fit into it.

    Raises:
        PlacementError: the job is larger than this process, or any process, can be connected to.
    """
    needed = placement.size * _DESCRIPTORS_PER_PEER + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if placement.size > _MOST_RANKS or hard != resource.RLIM_INFINITY and needed > hard:
        raise PlacementError(
            f"{placement.launcher}: a job of {placement.size} ranks on one host needs {needed} open files in each of "
            f"them, but {hard if placement.size <= _MOST_RANKS else _MOST_RANKS * _DESCRIPTORS_PER_PEER} is the most "
            f"that can be (ulimit -Hn). Check the variables that {placement.launcher} sets, or raise the limit."
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
