"""What `bootstrap` hands out: the descriptors that the core's hvd_config and hvd_peer are filled with.

Used by `horovod._core.life.engine_start`. A `Connections` owns its descriptors until `disown` (after hvd_init, which
takes them over whether it succeeds or fails) or `close`.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from horovod._net.clusters.placement import Placement

ABSENT = -1
KEY_BYTES = 16


@dataclass
class Peer:
    """How this rank reaches one other rank; the fields of hvd_peer. A descriptor is -1 where there is none.

    Attributes:
        rank: the other rank.
        same_host: True: memory_fd and doorbell_fd are there. False: control_fd and data_fd are, or come later.
        memory_fd: the peer's sealed memfd.
        doorbell_fd: the peer's eventfd.
        liveness_fd: readable once the peer's process is gone: a pidfd, or a pipe that it alone writes to.
        control_fd, data_fd: connected, authenticated, non-blocking stream sockets. Of ranks that are connected later
            (`Connections.reach`) neither, or the control connection alone.
        pid: of the peer as seen from here, 0 when it is in another pid namespace; for messages.
        key: 16 bytes for the MAC of control frames, known to the two ranks only.
    """

    rank: int
    same_host: bool
    memory_fd: int = ABSENT
    doorbell_fd: int = ABSENT
    liveness_fd: int = ABSENT
    control_fd: int = ABSENT
    data_fd: int = ABSENT
    pid: int = 0
    key: bytes = field(default=bytes(KEY_BYTES), repr=False)

    def descriptors(self) -> list[int]:
        """The descriptors that are present."""
        every = (self.memory_fd, self.doorbell_fd, self.liveness_fd, self.control_fd, self.data_fd)
        return [fd for fd in every if fd != ABSENT]


class Reach(NamedTuple):
    """How a rank and those of other hosts come to one another while the job runs.

    Attributes:
        listener: where this rank listens for them.
        addresses: where they listen: (address, port) by rank.
    """

    listener: socket.socket
    addresses: dict[int, tuple[str, int]]


@dataclass
class Connections:
    """Everything that one rank needs to start its engine.

    Attributes:
        placement: of this rank in the job that was connected (renumbered when `ranks` was given).
        epoch: of this connection; frames of another one are refused.
        memory_fd: own sealed memfd of `region_bytes`, or -1 when no peer shares memory with this rank.
        doorbell_fd: own eventfd, or -1 likewise.
        host_of_rank: `size` numbers; ranks with equal numbers share memory.
        peers: one per other rank, ascending.
        object_key: known to the ranks of this job and epoch only; empty when all of them share memory.
        reach: how the data connections are opened that are not there yet; None: all are there.
    """

    placement: Placement
    epoch: int
    memory_fd: int = ABSENT
    doorbell_fd: int = ABSENT
    host_of_rank: list[int] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    object_key: bytes = field(default=b"", repr=False)
    reach: Optional[Reach] = None

    def take_reach(self) -> Optional[Reach]:
        """The reach, whose listener is the caller's from now on."""
        reach, self.reach = self.reach, None
        return reach

    def descriptors(self) -> list[int]:
        """All descriptors owned."""
        owned = [fd for fd in (self.memory_fd, self.doorbell_fd) if fd != ABSENT]
        for peer in self.peers:
            owned.extend(peer.descriptors())
        return owned

    def disown(self) -> None:
        """Forgets every descriptor: the core owns them now."""
        self.memory_fd = self.doorbell_fd = ABSENT
        for peer in self.peers:
            peer.memory_fd = peer.doorbell_fd = peer.liveness_fd = peer.control_fd = peer.data_fd = ABSENT

    def close(self) -> None:
        """Closes every descriptor still owned. May be called twice."""
        reach = self.take_reach()
        if reach is not None:
            reach.listener.close()
        owned = self.descriptors()
        self.disown()
        for fd in owned:
            os.close(fd)
