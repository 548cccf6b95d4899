"""What this rank knows about one other rank while the two connect, and when that is enough.

::

    same host:   Offer + memfd + doorbell + pipe  <->  Offer ...;  each maps the other's memory and answers Seen(nonce)
    otherwise:   Offer  <->  Offer;  the lower rank sends its Address, the higher one opens a control and a data
                 connection
    introduced:  the leader of their host has given this rank the descriptors of the other one: nothing is said
    all:         Ready  <->  Ready;  along a tree, once ranks are connected (`consent`)
                 Started  <->  Started;  once engines run, likewise

Used by members, which moves the messages. It checks and keeps; it owns no loop.
"""

from __future__ import annotations

import os
import select
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from horovod._net.connections import ABSENT, Peer
from horovod._net.failures import ConnectError
from horovod._net.handshake import memory
from horovod._net.handshake.frames.links import Link
from horovod._net.handshake.frames.messages import ROLE_CONTROL, ROLE_DATA, Offer
from horovod._net.identity import HostIdentity


class OwnSide(NamedTuple):
    """What this rank offers to all others.

    Attributes:
        memory_fd, doorbell_fd: own descriptors, or -1 when no peer shares memory.
        nonce: what stands at the beginning of the own memory until everybody has seen it.
        region_bytes: length of every region.
        host: identity of this host.
        by_mpi: this rank wants MPI to move tensors.
    """

    memory_fd: int
    doorbell_fd: int
    nonce: bytes
    region_bytes: int
    host: HostIdentity
    by_mpi: bool = False

    def offer(self, same_host: bool) -> Offer:
        """The Offer for a peer."""
        boot_id = self.host.boot_id.encode("ascii", "replace")
        return Offer(same_host, self.by_mpi, self.region_bytes, self.host.ipc_namespace, boot_id)


@dataclass
class Pair:
    """This rank and one other.

    Attributes:
        rank: the other one.
        same_host: they are to share memory.
        across: they are on different hosts.
        by_leader: the leader of their host is to introduce them to one another; they do not connect.
        introduced: it has.
        meet: the authenticated connection of the two, once there is one: by TCP across hosts, else a Unix socket.
        offer: what the peer offered.
        seen: the peer has proven that it maps our memory.
        ready: the peer has said that it is connected.
        started: the peer has said that engines run.
        roles: of the TCP connections that the two need.
        links: those of them that are authenticated.
        life_fd: readable once the peer's process is gone: a pidfd, or the pipe that it has offered.
        address: where the peer listens for them.
        host: what the launcher calls the peer's host, if that is another one.
    """

    rank: int
    same_host: bool
    across: bool = False
    by_leader: bool = False
    introduced: bool = False
    meet: Optional[Link] = None
    offer: Optional[Offer] = None
    seen: bool = False
    ready: bool = False
    started: bool = False
    roles: tuple[int, ...] = (ROLE_CONTROL, ROLE_DATA)
    links: dict[int, Link] = field(default_factory=dict)
    key: bytes = b""
    pid: int = 0
    memory_fd: int = ABSENT
    doorbell_fd: int = ABSENT
    life_fd: int = ABSENT
    address: tuple[str, int] = ("", 0)
    host: str = ""

    @property
    def complete(self) -> bool:
        """True when the two ranks can work together."""
        if self.introduced:
            return True
        if self.offer is None:
            return False
        if self.same_host:
            return self.seen
        return all(role in self.links for role in self.roles)

    @property
    def met(self) -> bool:
        """True when this rank would learn of the peer's end, or need not any more."""
        return self.meet is not None or self.introduced or self.ready

    def name(self) -> str:
        """The peer, for messages."""
        where = self.host or (f"pid {self.pid}" if self.pid else "")
        return f"Rank {self.rank} ({where})" if where else f"Rank {self.rank}"

    def process_ended(self, patience_s: float) -> bool:
        """True when the peer's process is known to be gone; waits that long for it to finish dying."""
        if self.life_fd == ABSENT:
            return False
        poll = select.poll()
        poll.register(self.life_fd, select.POLLIN)
        return bool(poll.poll(patience_s * 1000))

    def take_offer(self, offer: Offer, descriptors: list[int], own: OwnSide) -> bytes:
        """Checks and keeps what the peer offers; owns the descriptors from now on.

        Returns:
            The nonce read from the peer's memory; b"" when the two do not share memory.

        Raises:
            ConnectError: settings differ, or the memory cannot be shared.
        """
        if descriptors:
            self.memory_fd, self.doorbell_fd, pipe = descriptors
            if self.life_fd == ABSENT:
                self.life_fd = pipe
            else:
                os.close(pipe)
        if self.offer is not None:
            raise ConnectError(f"{self.name()} made two offers.", [self.rank])
        if offer.shares_memory != self.same_host:
            ways = ["loopback sockets", "shared memory"]
            raise ConnectError(
                f"{self.name()} wants to use {ways[offer.shares_memory]}, this rank {ways[self.same_host]}; the "
                "setting of the transport must be the same on all ranks.",
                [self.rank],
            )
        if offer.by_mpi != own.by_mpi:
            ways = ["our own connections", "MPI"]
            raise ConnectError(
                f"{self.name()} wants {ways[offer.by_mpi]} to move tensors, this rank {ways[own.by_mpi]}; "
                "HOROVOD_CPU_OPERATIONS must be the same on all ranks.",
                [self.rank],
            )
        self.offer = offer
        if not self.same_host:
            return b""
        theirs = HostIdentity(offer.boot_id.rstrip(b"\0").decode("ascii", "replace"), offer.ipc_namespace)
        if not own.host.may_share_memory_with(theirs):
            raise ConnectError(
                f"{self.name()} runs under another kernel or IPC namespace than this rank, so they cannot share "
                "memory; set the transport to tcp.",
                [self.rank],
            )
        memory.check_region(self.memory_fd, own.region_bytes, self.rank)
        return memory.read_nonce(self.memory_fd, self.rank)

    def introduce(self, pid: int, descriptors: list[int], region_bytes: int) -> None:
        """Keeps what the leader of the host has brought: memory, doorbell and sign of life. Owns them from now on.

        Raises:
            ConnectError: it was not expected, or the memory is not what it should be.
        """
        if not self.by_leader or self.introduced or self.meet is not None:
            for fd in descriptors:
                os.close(fd)
            raise ConnectError(f"{self.name()} was introduced to this rank at the wrong time.", [self.rank])
        self.memory_fd, self.doorbell_fd, self.life_fd = descriptors
        self.pid = pid
        memory.check_region(self.memory_fd, region_bytes, self.rank)
        self.introduced = True

    def descriptors(self) -> list[int]:
        """Memory, doorbell and sign of life of a peer that shares memory, to introduce it; they stay the pair's."""
        return [self.memory_fd, self.doorbell_fd, self.life_fd]

    def finish(self) -> Peer:
        """Hands over the descriptors that the engine needs. Their connection stays: it says when engines run."""
        peer = Peer(self.rank, self.same_host, self.memory_fd, self.doorbell_fd, self.life_fd, pid=self.pid)
        self.memory_fd = self.doorbell_fd = self.life_fd = ABSENT
        if not self.same_host:
            peer.control_fd = self.links.pop(ROLE_CONTROL).detach()
            if ROLE_DATA in self.links:
                peer.data_fd = self.links.pop(ROLE_DATA).detach()
            peer.key = self.key
        return peer

    def close(self) -> None:
        """Closes everything that is still owned. May be called twice."""
        for link in (self.meet, *self.links.values()):
            if link is not None:
                link.close()
        for fd in (self.memory_fd, self.doorbell_fd, self.life_fd):
            if fd != ABSENT:
                os.close(fd)
        self.meet = None
        self.links.clear()
        self.memory_fd = self.doorbell_fd = self.life_fd = ABSENT
