"""Which rank this process is, and how that is known: the `Placement` record.

Made by `horovod._net.clusters.launchers.detect_placement` from the environment, or by a program that hands it over
(`horovod._core.life.given_placement`); used by `bootstrap` and by `horovod._core.life.context` to answer rank(), size()
and so on. It only holds and checks numbers: it reads no environment and opens nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from horovod._net.clusters.users_secret import HOW_TO_MAKE, SECRET_VARIABLE
from horovod._net.failures import PlacementError


class MeetingPoint(NamedTuple):
    """The address at which the ranks of a job on several hosts meet, by a secret that all of them hold.

    Attributes:
        host: of rank 0, a name or an address.
        port: there.
        source: the source of the address, for messages.
        job: its name, equal on all hosts.
        settable: the user can name another one by HOROVOD_MEETING_ADDRESS.
    """

    host: str
    port: int
    source: str
    job: str
    settable: bool = True


@dataclass(frozen=True)
class Placement:
    """One rank's place in its job.

    Attributes:
        rank, size: among all ranks of the job.
        local_rank, local_size: among the ranks of this host.
        cross_rank, cross_size: this host among the hosts.
        launcher: of the process: "horovodrun", "torchrun", "Open MPI", ..., or "single process".
        job_key: text that is equal on all ranks of the job and on no other job of this host.
        hostname: this host's name, for messages.
        meeting_directory: private directory made by the launcher, or None: the first rank that comes makes one.
        secret: the job's 32-byte secret when the launcher gave one, else None.
        launcher_ranks: the launcher's number of each rank, where the job was restricted to some; else empty.
        address: by which other hosts reach this one, where the launcher knows; else empty.
        interfaces: network interfaces that the user has named for other hosts; the first that this host has counts.
        unplaced: the local and cross numbers are still those of the launcher's job: which of the ranks that this one
            was restricted to are on which host is known once they have shown up.
        starter: the process that has started the ranks ("pid:start time"), where `job_key` has it; else empty.
        meeting_point: where ranks on several hosts meet by `secret`, if the program that started them says so.
        keeps_local_rank: of an elastic job: the process may have chosen its GPU by it, so it does not follow from the
            order of ranks.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    launcher: str
    job_key: str
    hostname: str = ""
    meeting_directory: Optional[str] = None
    secret: Optional[bytes] = field(default=None, repr=False)
    launcher_ranks: tuple[int, ...] = ()
    address: str = ""
    interfaces: tuple[str, ...] = ()
    unplaced: bool = False
    starter: str = ""
    meeting_point: Optional[MeetingPoint] = None
    keeps_local_rank: bool = False

    def __post_init__(self) -> None:
        for what in ("", "local_", "cross_"):
            index, count = getattr(self, f"{what}rank"), getattr(self, f"{what}size")
            if count < 1 or not 0 <= index < count:
                raise PlacementError(
                    f"{self.launcher}: {what}rank {index} does not fit {what}size {count}; it must be from 0 to "
                    f"{what}size - 1. Check the variables that {self.launcher} sets for this process."
                )
        if self.local_size > self.size and not self.unplaced:
            raise PlacementError(f"{self.launcher}: local_size {self.local_size} is larger than size {self.size}.")

    @property
    def one_host(self) -> bool:
        """True when all ranks of the job are on this host, as far as is known."""
        return self.local_size == self.size and not self.unplaced

    @property
    def lacks_a_place_to_meet(self) -> bool:
        """True when the job has ranks on other hosts, and its launcher has not made a place for all to meet."""
        return not self.one_host and (self.meeting_directory is None or self.secret is None)

    def placed(self, host_of_rank: Sequence[int]) -> Placement:
        """The same with the local and cross numbers that follow from the hosts of all ranks."""
        mine = host_of_rank[self.rank]
        local_rank = host_of_rank[: self.rank].count(mine)
        hosts = [host for host in dict.fromkeys(host_of_rank) if host_of_rank.count(host) > local_rank]
        return dataclasses.replace(
            self,
            local_rank=local_rank,
            local_size=host_of_rank.count(mine),
            cross_rank=hosts.index(mine),
            cross_size=len(hosts),
            unplaced=False,
        )

    def met(self, host_of_rank: Sequence[int]) -> Placement:
        """The same once the ranks have found out who shares a host."""
        as_known = host_of_rank.count(host_of_rank[self.rank]) == self.local_size
        return self if self.keeps_local_rank and as_known else self.placed(host_of_rank)

    def launcher_rank(self, rank: int) -> int:
        """What the launcher calls this rank."""
        return self.launcher_ranks[rank] if self.launcher_ranks else rank

    def restricted_to(self, ranks: Sequence[int]) -> Placement:
        """The placement of this process in a job made of `ranks` only (`init(comm=ranks)`); its rank is the position
        in the list.

        Raises:
            PlacementError: a rank is listed twice, does not exist, or this process is not listed.
        """
        listed = [int(rank) for rank in ranks]
        unknown = sorted({rank for rank in listed if not 0 <= rank < self.size})
        if not listed or unknown or len(set(listed)) != len(listed):
            raise PlacementError(
                f"A list of ranks must name distinct ranks from 0 to {self.size - 1}, at least one. Received: {listed}."
            )
        if self.rank not in listed:
            raise PlacementError(
                f"Rank {self.rank} is not among the ranks {listed} that this job was restricted to; only those may "
                "call init with this list."
            )
        if listed == list(range(self.size)):
            return self
        digest = hashlib.sha256(",".join(map(str, listed)).encode()).hexdigest()[:16]
        rank, size = listed.index(self.rank), len(listed)
        restricted = dataclasses.replace(
            self,
            rank=rank,
            size=size,
            job_key=f"{self.job_key}/{digest}",
            launcher_ranks=tuple(self.launcher_rank(each) for each in listed),
            unplaced=True,
            keeps_local_rank=False,
        )
        return restricted.placed([0] * size) if self.one_host or size == 1 else restricted


def ranks_of_others(placement: Placement) -> str:
    """Of ranks that are missing: why those of another process would not be in this job; empty if they would."""
    if not placement.starter or placement.launcher != "horovodrun":
        return ""
    pid = placement.starter.partition(":")[0]
    return (
        f"Without HOROVOD_JOB_ID, only ranks that process {pid} has started are in this job: where several processes "
        "start them, set it for all ranks, to a new text for each job. "
    )


def several_hosts(placement: Placement) -> str:
    """Why a job on several hosts is refused, and what can be done."""
    return (
        f"{placement.launcher} placed {placement.local_size} of the job's {placement.size} ranks on "
        f"{placement.hostname}. Ranks on several hosts need a secret to trust one another, and {placement.launcher} "
        f"gives them none. Make one, {HOW_TO_MAKE}, that every host can read, and set {SECRET_VARIABLE}=FILE for all "
        "ranks; or start the job with horovodrun -H HOST:SLOTS,..., which makes its own."
    )
