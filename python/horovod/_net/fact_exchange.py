"""How the ranks of a job on several hosts come to know of one another where their launcher has made no place to meet.

Each rank tells the others once where it is, and all get the job's secret and know of a board that rank 0 keeps. That
goes at an address, where the user has given the ranks a secret (`meeting_at_address`); else through the MPI library
that mpirun, mpiexec and srun join their ranks by. From then on the job is one like those that horovodrun starts:
authenticated connections, shared memory, and no more MPI. See docs/design/0010, 0014 and 0016. Used by
`horovod._core.life.engine_start`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import time
from collections.abc import Mapping
from typing import Final, NamedTuple, Optional

from horovod._net import identity, interfaces, meeting_at_address
from horovod._net.clusters import addresses, users_secret
from horovod._net.clusters.launchers import mpi_family
from horovod._net.clusters.placement import MeetingPoint, Placement, several_hosts
from horovod._net.failures import ConnectError, MeetingError, PlacementError, StartTimeoutError
from horovod._net.handshake.boards import forked
from horovod._net.handshake.boards.board_call import call
from horovod._net.handshake.boards.board_link import BoardLink
from horovod._net.handshake.boards.kept_board import KeptBoard, credentials_of
from horovod._net.handshake.roll_call import listen
from horovod._net.meeting import facts, lasting_claim, private_directories
from horovod._net.meeting.deaths import ENDED_PREFIX
from horovod._net.meeting.facts import Facts
from horovod._net.mpi import session
from horovod._net.secret import SECRET_BYTES, new_secret

log = logging.getLogger("horovod")

_TOKEN_BYTES: Final = 16
_PORT_BYTES: Final = 2
_INTERFACES_OF_MPI: Final = ("OMPI_MCA_btl_tcp_if_include", "UCX_NET_DEVICES", "MPICH_NETWORK_IFACE")

_HOSTS_OF_LAUNCHERS: Final = ("SLURM_STEP_NODELIST", "LSB_MCPU_HOSTS")


class KnownJob(NamedTuple):
    """This rank in a job whose ranks know of one another.

    Attributes:
        placement: with the hosts as they are, and the job's secret.
        board: of the job; None: all ranks are on this host, and need none.
    """

    placement: Placement
    board: Optional[BoardLink]


class Means(NamedTuple):
    """What ranks can exchange facts by, and what they are compared by.

    Attributes:
        mpi: how MPI is to be used; its family is filled in here.
        secret_file: that the user has given; None: they meet through MPI.
        address: that the user has named for the meeting; None: it follows from other variables.
        version: of Horovod.
    """

    mpi: session.Wanted
    secret_file: Optional[str] = None
    address: Optional[str] = None
    version: str = ""


class _Known(NamedTuple):
    pid: int
    job: KnownJob


# What this process knows already, by job and the launcher's ranks: a job that initialises again need not exchange them
# again.
_known: dict[tuple[str, tuple[int, ...]], _Known] = {}


def exchange_facts(world: Placement, placement: Placement, means: Means, timeout_s: float) -> KnownJob:
    """Makes the ranks of a job known to one another. Collective over those of `placement`.

    Args:
        world: this rank among all that the launcher has started.
        placement: among those that the job is made of.
        means: to do so.
        timeout_s: for all of it.

    Raises:
        PlacementError: there are no such means, or they do not fit the launcher.
        MeetingError: there is no MPI library, it fails, there is no address, or ranks run another Horovod.
        StartTimeoutError: ranks do not come.
        ConnectError: rank 0 cannot be reached.
    """
    name = (world.job_key, placement.launcher_ranks)
    known = _known.get(name)
    if known is not None and known.pid == os.getpid():
        if known.job.board is not None:
            known.job.board.forget()
        return known.job
    point = world.meeting_point
    if point is None:
        point = addresses.meeting_point(world.launcher, os.environ, means.address)
        _refuse_unfit(world, placement, means, point)
    # A program that a rank starts inherits its variables, and must not come to the meeting as the same rank.
    lasting_claim.take(placement, 0)
    deadline = time.monotonic() + timeout_s
    if point is not None and (world.meeting_point or means.secret_file):
        job = _by_address(placement, point, means, deadline)
    else:
        job = _by_mpi(world, placement, means, deadline)
    leave_other_jobs(world.job_key)
    _known[name] = _Known(os.getpid(), job)
    return job


def leave_other_jobs(job_key: str) -> None:
    """A process that lives on after its job, and takes part in another one, need not hear of the first any more."""
    for name in [name for name in _known if name[0] != job_key]:
        board = _known.pop(name).job.board
        if board is not None:
            board.close()


def _refuse_unfit(world: Placement, placement: Placement, means: Means, point: Optional[MeetingPoint]) -> None:
    if means.secret_file and point is None:
        raise PlacementError(
            f"{users_secret.SECRET_VARIABLE} is set, but the ranks of {world.launcher} have no address to meet at: "
            f"set {addresses.ADDRESS_VARIABLE}=HOST:PORT (the host of rank 0, equal for all ranks), or MASTER_ADDR."
        )
    if means.address and not means.secret_file:
        raise PlacementError(
            f"{addresses.ADDRESS_VARIABLE} is set, but {users_secret.SECRET_VARIABLE} is not: ranks on several hosts "
            f"meet at an address only by a secret. Make one with {users_secret.HOW_TO_MAKE}, readable on every host."
        )
    if not means.secret_file and mpi_family(world.launcher) is None:
        raise PlacementError(several_hosts(placement))


def _by_address(placement: Placement, point: MeetingPoint, means: Means, deadline: float) -> KnownJob:
    secret = placement.secret if placement.meeting_point else None
    secret = secret or users_secret.read(means.secret_file or "")
    own = _facts_of_this_rank(placement, means.version)
    gathered = meeting_at_address.gather(point, placement, secret, own.packed(), deadline)
    try:
        every = _all_facts(gathered.by_rank)
        met = _met(placement, every, users_secret.of_job(secret, point.job, gathered.token), gathered.token)
        if not met.one_host:
            met = dataclasses.replace(met, address=_require_addresses(every)[met.rank], interfaces=())
    except BaseException:
        gathered.board.close()
        raise
    log.info("rank %d met the others on %s, port %d, by %s", placement.rank, point.host, point.port, point.source)
    return KnownJob(met, gathered.board)


def _by_mpi(world: Placement, placement: Placement, means: Means, deadline: float) -> KnownJob:
    timeout_s = max(0.0, deadline - time.monotonic())
    mpi = session.of_this_process(means.mpi._replace(family=mpi_family(world.launcher) or ""))
    own = _facts_of_this_rank(placement, means.version)
    try:
        check_world(world, mpi, timeout_s)
        by_rank, said = mpi.gather(
            placement.launcher_ranks or None,
            placement.rank,
            own.packed(),
            _Answer(placement),
            max(0.0, deadline - time.monotonic()),
        )
    except StartTimeoutError as error:
        raise StartTimeoutError(f"{error} {_who_is_missing(world, os.environ)}") from None
    job = _join(placement, _all_facts(by_rank), said, deadline)
    log.info("rank %d met the others through %s", placement.rank, mpi.library.described())
    return job


def _who_is_missing(world: Placement, environ: Mapping[str, str]) -> str:
    """What a rank can tell of the others that MPI waits for: it has heard of none of them."""
    elsewhere = world.size - world.local_size
    hosts = next((f" ({name}={environ[name]})" for name in _HOSTS_OF_LAUNCHERS if environ.get(name)), "")
    return (
        f"This is rank {world.rank} of {world.size} on {world.hostname}, where {world.local_size} of them "
        f"{'are' if world.local_size > 1 else 'is'}; of the {elsewhere} on other hosts{hosts} some have not come, or "
        "cannot be reached from here. Has the launcher started them there, and does a firewall between the hosts "
        "let the connections of the launcher (ssh) and of MPI through?"
    )


def a_rank_has_ended() -> bool:
    """One of the ranks that this process knows has ended, well or not."""
    boards = [known.job.board for known in _known.values() if known.pid == os.getpid()]
    try:
        keys = [key for board in boards if board is not None for key in (*board.keys(),)]
        return any(key.startswith(ENDED_PREFIX) for key in keys)
    except ConnectError:
        return True  # rank 0


def interfaces_of_mpi(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The network interfaces that the user has named for MPI, which are then good for us too."""
    text = next((environ[name] for name in _INTERFACES_OF_MPI if environ.get(name)), "")
    names = [name.partition(":")[0].strip() for name in text.split(",")]
    return tuple(name for name in names if re.fullmatch(r"[A-Za-z][A-Za-z0-9_.@-]*", name) and name != "all")


class _Answer:
    """Rank 0's answer to what all ranks have sent: the secret of the job, a name for it, and where its board is.

    Args:
        placement: of rank 0.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    def __call__(self, by_rank: list[bytes]) -> bytes:
        every = _all_facts(by_rank)
        secret, token = new_secret(), os.urandom(_TOKEN_BYTES)
        port = 0
        if len(set(facts.hosts_of(every))) > 1:
            address = _require_addresses(every)[0]
            listener = listen(address)
            port = int(listener.getsockname()[1])
            size = self._placement.size
            keeper = credentials_of(secret, token.hex(), size, size)
            names = [self._placement.launcher_rank(rank) for rank in range(size)]
            KeptBoard(keeper, listener, names).start()
        return secret + token + port.to_bytes(_PORT_BYTES, "big")


def check_world(world: Placement, mpi: session.Session, timeout_s: float) -> None:
    """The library must have been started by the launcher: else it takes each process for a job of its own.

    Raises:
        PlacementError: it was not.
        StartTimeoutError, MeetingError: as `Session.world`, which starts MPI.
    """
    found = mpi.world(timeout_s)
    if found == (world.rank, world.size):
        return
    raise PlacementError(
        f"{world.launcher} says that this is rank {world.rank} of {world.size}, but {mpi.library.described()} says "
        f"rank {found.rank} of {found.size}: the ranks were started by one MPI and use the library of another, or by a "
        "launcher that does not know of it (srun needs --mpi=pmix or --mpi=pmi2, whichever the library speaks). Set "
        "HOROVOD_MPI_LIBRARY to the libmpi.so of the launcher's MPI, or start the job with horovodrun -H HOST:SLOTS,..."
    )


def _all_facts(by_rank: list[bytes]) -> list[Facts]:
    every = [facts.unpacked(rank, each) for rank, each in enumerate(by_rank)]
    facts.refuse_other_versions(every)
    return every


def _facts_of_this_rank(placement: Placement, version: str) -> Facts:
    host = identity.host_identity()
    # Ranks that meet in one directory see the same one, and the directory's parent is there before and after the job.
    base = private_directories.choose_base("facts")
    parent = os.stat(os.path.dirname(base))
    with contextlib.suppress(OSError):  # another job meets in it
        os.rmdir(base)
    place = f"{host.boot_id}.{host.ipc_namespace}.{os.geteuid()}.{parent.st_dev}.{parent.st_ino}"
    named = placement.interfaces or _there(interfaces_of_mpi(os.environ))
    return Facts(placement.hostname, place, interfaces.networks_of_this_host(named), version)


def _there(names: tuple[str, ...]) -> tuple[str, ...]:
    """MPI's own devices may be no interfaces."""
    return tuple(name for name in names if interfaces.ipv4_of(name) or interfaces.ipv6_of(name))


def _require_addresses(every: list[Facts]) -> list[str]:
    reached = facts.addresses_of(every)
    for rank, address in enumerate(reached):
        if not address:
            raise MeetingError(
                f"Host {every[rank].host} of rank {rank} has no network interface that is up and has an address by "
                "which other hosts could reach it."
            )
    return reached


def _join(placement: Placement, every: list[Facts], said: bytes, deadline: float) -> KnownJob:
    secret, rest = said[:SECRET_BYTES], said[SECRET_BYTES:]
    token, port = rest[:_TOKEN_BYTES].hex(), int.from_bytes(rest[_TOKEN_BYTES:], "big")
    met = _met(placement, every, secret, token)
    if not port:
        return KnownJob(met, None)
    reached = _require_addresses(every)
    board = call(credentials_of(secret, token, met.rank, met.size), reached[0], port, deadline)
    forked.closed.add(board)
    return KnownJob(dataclasses.replace(met, address=reached[met.rank], interfaces=()), board)


def _met(placement: Placement, every: list[Facts], secret: bytes, token: str) -> Placement:
    """This rank's place, now that it is known which ranks share a host."""
    return dataclasses.replace(
        placement.met(facts.hosts_of(every)),
        job_key=f"{placement.launcher}/{token}",
        hostname=facts.names_of(every)[placement.rank],
        secret=secret,
    )
