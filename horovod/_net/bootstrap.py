"""`bootstrap`: from a placement to connected peers, in one collective call.

Used by `horovod._core.context`. It owns the order of the steps and the clean-up; the steps are in meeting, memory and
connect.
"""

from __future__ import annotations

import resource
import secrets
import time
from collections.abc import Sequence
from typing import Optional

from horovod._net import auth, identity, meeting, memory
from horovod._net.connect import Mesh
from horovod._net.connections import Connections
from horovod._net.failures import ConnectError, PlacementError
from horovod._net.messages import NONCE_BYTES
from horovod._net.pairing import OwnSide
from horovod._net.placement import Placement

TRANSPORTS = ("auto", "tcp")
_DESCRIPTORS_PER_PEER = 6
_OTHER_DESCRIPTORS = 256


def bootstrap(
    placement: Placement,
    *,
    epoch: int,
    region_bytes: int,
    timeout_s: float,
    transport: str = "auto",
    ranks: Optional[Sequence[int]] = None,
) -> Connections:
    """Connects this rank with all others. Collective.

    Args:
        placement: who this process is.
        epoch: rises with every re-initialisation; equal on all ranks.
        region_bytes: size of every rank's shared region (hvd_region_bytes); ignored when no memory is shared.
        timeout_s: how long to wait for the other ranks.
        transport: "auto": shared memory on one host. "tcp": authenticated loopback sockets instead, to exercise
            that path. ranks: connect only these ranks of the job (`init(comm=ranks)`), in this order; equal on all of
            them.

    Returns:
        The connections, owned by the caller. Without other ranks: no descriptors at all.

    Raises:
        PlacementError: this rank is not in `ranks`, or the job spans several hosts.
        MeetingError: the meeting directory is not safe to use, or another process has claimed this rank.
        StartTimeoutError: ranks are missing; names them.
        ConnectError: a rank failed or died meanwhile; names it.
    """
    if transport not in TRANSPORTS:
        raise PlacementError(f"The transport must be one of {', '.join(TRANSPORTS)}. Received: {transport!r}.")
    if ranks is not None:
        placement = placement.restricted_to(ranks)
    if placement.size == 1:
        return Connections(placement, epoch, host_of_rank=[0])
    if not placement.one_host:
        raise PlacementError(several_hosts(placement))
    allow_descriptors(placement.size)
    deadline = time.monotonic() + timeout_s
    try:
        meeting.take_lasting_claim(placement, epoch)
        base = placement.meeting_directory or meeting.choose_base()
        place = meeting.Meeting(placement, epoch, base, own_base=placement.meeting_directory is None)
        place.join(deadline)
        try:
            return _connect(place, placement, epoch, region_bytes, deadline, transport == "auto")
        finally:
            place.leave(deadline)
    except OSError as error:
        raise ConnectError(f"Rank {placement.rank} of {placement.size} could not connect: {error}.") from error


def _connect(
    place: meeting.Meeting, placement: Placement, epoch: int, region_bytes: int, deadline: float, share: bool
) -> Connections:
    """In the meeting directory: makes what this rank offers, connects, and keeps or closes all of it."""
    result = Connections(placement, epoch)
    result.host_of_rank = [0] * placement.size if share else list(range(placement.size))
    mesh: Optional[Mesh] = None
    try:
        nonce = secrets.token_bytes(NONCE_BYTES)
        if share:
            result.memory_fd = memory.create_region(region_bytes)
            memory.write_nonce(result.memory_fd, nonce)
            result.doorbell_fd = memory.create_doorbell()
        own = OwnSide(
            result.memory_fd, result.doorbell_fd, nonce, region_bytes if share else 0, identity.host_identity()
        )
        credentials = auth.Credentials(
            place.secret, auth.job_digest(placement.job_key), epoch, placement.rank, placement.size
        )
        mesh = Mesh(place, credentials, own, [share] * placement.size, placement)
        mesh.run(max(0.0, deadline - time.monotonic()))
        result.peers = mesh.take_peers()
    except BaseException:
        result.close()
        raise
    finally:
        if mesh is not None:
            mesh.close()
    return result


def several_hosts(placement: Placement) -> str:
    """Why a job on several hosts is refused, and what can be done."""
    return (
        f"{placement.launcher} placed {placement.local_size} of the job's {placement.size} ranks on "
        f"{placement.hostname}; ranks on several hosts need a "
        "trusted way to meet: horovodrun, the MPI library, a file in a shared directory, or a secret given by the "
        "user. This version has none of the "
        "four yet and connects the ranks of one host only: start all ranks on one host."
    )


def allow_descriptors(size: int) -> None:
    """Raises this process's soft limit of open files when the connections would not fit into it."""
    needed = size * _DESCRIPTORS_PER_PEER + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
