"""`bootstrap`: from a placement to connected peers, in one collective call.

Used by `horovod._core.life.engine_start`. It owns the order of the steps and the clean-up; the steps are in meeting,
memory and connect.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional

from horovod._net import identity, resources
from horovod._net.clusters.placement import Placement, several_hosts
from horovod._net.connections import Connections, Peer
from horovod._net.failures import ConnectError, MeetingError, PlacementError
from horovod._net.handshake import memory
from horovod._net.handshake.boards.board_link import SOCKET_NAME, BoardLink, on_this_host
from horovod._net.handshake.connect import Mesh
from horovod._net.handshake.frames import auth
from horovod._net.handshake.frames.messages import NONCE_BYTES
from horovod._net.handshake.pairing import OwnSide
from horovod._net.handshake.roll_call import World, call_the_roll, one_host
from horovod._net.interfaces import address_for_other_hosts
from horovod._net.meeting import directory, lasting_claim, private_directories
from horovod._net.meeting.board import Attempt, AttemptOverError
from horovod._net.meeting.deaths import MET, Deaths

TRANSPORTS = ("auto", "tcp")
_DESCRIPTORS_PER_PEER = 6
_OTHER_DESCRIPTORS = 256
_MOST_IN_TREE = 40  # neighbours of a rank in the tree of the negotiation, on other hosts and, with many ranks, here
_MOST_RANKS = 1 << 16  # on one host; more is a mistake in a variable, not a job
_LEAST_START_S = 5.0  # for the engines of the others to start, when meeting them has taken all of the time

# How often a process has met the others of a job: (pid, job key, the launcher's epoch, rank) -> number. An attempt
# counts by the outcome of its meeting, on which all ranks agree: so they agree on the next number, whatever has failed.
_met: dict[tuple[int, str, int, int], int] = {}


Tree = Callable[[Sequence[int]], Sequence[int]]


class Ways(NamedTuple):
    """How ranks are connected.

    Attributes:
        transport: "auto": shared memory on one host, authenticated sockets between hosts. "tcp": loopback sockets
            instead of shared memory, to exercise that path.
        full_mesh_ranks: jobs on several hosts with more ranks begin with the connections that the negotiation needs, if
            rank 0 has it so; a rank of theirs goes on listening (`Connections.reach`).
        tree: of the negotiation: the parent of each rank, -1 for rank 0, by the numbers of their hosts (hvd_tree).
            None: all are connected with all.
        board: of a job on several hosts whose ranks have exchanged facts; None: its launcher keeps one.
        by_mpi: MPI is to move tensors once the ranks are connected; ranks that differ in this do not connect.
    """

    transport: str = "auto"
    full_mesh_ranks: int = 0
    tree: Optional[Tree] = None
    board: Optional[BoardLink] = None
    by_mpi: bool = False


def bootstrap(
    placement: Placement,
    *,
    epoch: int,
    region_bytes: int,
    timeout_s: float,
    ways: Optional[Ways] = None,
    start: Callable[[Connections], None] = lambda connections: None,
) -> Connections:
    """Connects this rank with all others. Collective.

    Args:
        placement: who this process is, among the ranks that are to be connected.
        epoch: the launcher's count of changes of the job; equal on all ranks.
        region_bytes: size of every rank's shared region (hvd_region_bytes); ignored when no memory is shared.
        timeout_s: how long to wait for the other ranks.
        ways: to connect ranks; None: as `Ways` says.
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
    ways = ways or Ways()
    if ways.transport not in TRANSPORTS:
        raise PlacementError(f"The transport must be one of {', '.join(TRANSPORTS)}. Received: {ways.transport!r}.")
    known = (os.getpid(), placement.job_key, epoch, placement.rank)
    # Below the launcher's epochs there is room for re-initialisations by the program.
    number = (epoch << 20) + _met.get(known, 0)
    if placement.size == 1:
        alone = Connections(placement, number, host_of_rank=[0])
        start(alone)
        return alone
    if ways.board is None and placement.lacks_a_place_to_meet:
        raise PlacementError(several_hosts(placement))
    if not os.path.isdir("/proc/self/fd"):
        raise MeetingError(
            f"Rank {placement.rank} of {placement.size} cannot meet the others: /proc is not mounted here, and "
            "ranks need it to find one another; mount it (mount -t proc proc /proc)."
        )
    few = ways.tree is not None and not placement.one_host and placement.size > ways.full_mesh_ranks
    allow_descriptors(placement, few)
    deadline = time.monotonic() + timeout_s
    wishes = _Wishes(region_bytes, ways.transport == "auto", few, ways.tree, start, deadline, ways.by_mpi)
    with contextlib.ExitStack() as undo:
        try:
            lasting_claim.take(placement, number)
            place = _meeting(placement, number, ways.board, wishes.deadline, undo)
            while True:
                with contextlib.suppress(AttemptOverError):
                    return _take_part(place, Connections(placement, number), known, wishes)
        except OSError as error:
            raise resources.failure(f"Rank {placement.rank} of {placement.size} could not connect", error) from error


class _Wishes(NamedTuple):
    """What the caller of `bootstrap` asks for."""

    region_bytes: int
    share: bool
    few: bool  # connections, if rank 0 wants that too
    tree: Optional[Tree]
    start: Callable[[Connections], None]
    deadline: float
    by_mpi: bool


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


def _meeting(
    placement: Placement, number: int, board: Optional[BoardLink], deadline: float, undo: contextlib.ExitStack
) -> directory.Meeting:
    """Where the ranks meet; not joined yet."""
    name = directory.directory_name(placement, number)
    attempt: Optional[Attempt] = None
    given = placement.meeting_directory
    if given is not None and (not placement.one_host or os.path.exists(os.path.join(given, SOCKET_NAME))):
        # Also where all ranks are on one host that is not the launcher's: a rank that comes to the board is up.
        board = on_this_host(given, deadline)
        undo.callback(board.close)
    if board is not None and not placement.one_host:
        attempt = Attempt(board, directory.jobs_name(placement), number)
    base = placement.meeting_directory or private_directories.choose_base(name)
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
            result.placement = placement.met(world.host_of_rank)
        result.host_of_rank = world.host_of_rank if world.share else list(range(placement.size))
        world.parents = wishes.tree(result.host_of_rank) if world.few and wishes.tree is not None else None
        credentials = auth.Credentials(
            place.secret, auth.job_digest(placement.job_key), result.epoch, placement.rank, placement.size
        )
        result.object_key = b"" if len(set(result.host_of_rank)) == 1 else credentials.object_key()
        mesh = Mesh(place, credentials, _own_side(result, wishes), world, placement)
        mesh.run(max(0.0, wishes.deadline - time.monotonic()))
        result.peers = _with_those_not_met(mesh.take_peers(), placement)
        result.reach = world.take_reach(placement.rank)
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
    deaths = Deaths(place, placement)
    world = call_the_roll(place.attempt, placement, address, wishes.few, deaths, wishes.deadline)
    world.share = wishes.share
    return world


def _with_those_not_met(met: list[Peer], placement: Placement) -> list[Peer]:
    by_rank = {peer.rank: peer for peer in met}
    others = (rank for rank in range(placement.size) if rank != placement.rank)
    return [by_rank.get(rank) or Peer(rank, same_host=False) for rank in others]


def _own_side(result: Connections, wishes: _Wishes) -> OwnSide:
    """What this rank offers; its memory only if somebody is to share it."""
    nonce = os.urandom(NONCE_BYTES)
    own_host = result.host_of_rank[result.placement.rank]
    share = result.host_of_rank.count(own_host) > 1
    if share:
        result.memory_fd = memory.create_region(wishes.region_bytes)
        memory.write_nonce(result.memory_fd, nonce)
        result.doorbell_fd = memory.create_doorbell()
    shared = wishes.region_bytes if share else 0
    return OwnSide(result.memory_fd, result.doorbell_fd, nonce, shared, identity.host_identity(), wishes.by_mpi)


def allow_descriptors(placement: Placement, few: bool = False) -> None:
    """Raises this process's soft limit of open files when the connections would not fit into it.

    Args:
        placement: of this rank.
        few: it is connected with some ranks of other hosts only, and perhaps later with all.

    Raises:
        PlacementError: the job is larger than this process, or any process, can be connected to.
    """
    met = placement.local_size + _MOST_IN_TREE if few else placement.size
    needed = met * _DESCRIPTORS_PER_PEER + _OTHER_DESCRIPTORS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if placement.size > _MOST_RANKS or hard != resource.RLIM_INFINITY and needed > hard:
        raise PlacementError(
            f"{placement.launcher}: a job of {placement.size} ranks on one host needs {needed} open files in each of "
            f"them, but {hard if placement.size <= _MOST_RANKS else _MOST_RANKS * _DESCRIPTORS_PER_PEER} is the most "
            f"that is allowed (ulimit -Hn). Check the variables that {placement.launcher} sets, or raise the limit."
        )
    resources.make_room_for(needed + (placement.size if few else 0))
