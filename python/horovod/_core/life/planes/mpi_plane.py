"""HOROVOD_CPU_OPERATIONS=mpi: whether MPI moves this job's tensors. All ranks use it, or none, and each can tell why.

A rank whose library is missing never calls MPI_Init, and the others would wait for it there. So they agree before, and
once more when MPI runs, by what connects them anyway: two allgathers of the engine. That all have the same setting they
know since they have shaken hands. See docs/design/0014, decision 3. Used by `engine_start` and `fact_exchange`.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Sequence
from typing import Any, Callable, Final, NamedTuple

from horovod._core.errors import HorovodError
from horovod._core.life import waiting
from horovod._core.life.engine_port import ALLGATHER, IN_PROGRESS, OK
from horovod._core.settings import Settings
from horovod._core.tensors import dtypes
from horovod._native import abi, library
from horovod._net.clusters.launchers import mpi_family
from horovod._net.clusters.placement import Placement
from horovod._net.failures import NetError
from horovod._net.mpi import session as mpi
from horovod._net.mpi.handles import MPICH_STYLE, OPEN_MPI_STYLE, STANDARD_STYLE

log = logging.getLogger("horovod")

_STYLES: Final = {OPEN_MPI_STYLE: 0, MPICH_STYLE: 1, STANDARD_STYLE: 2}
_REASON_BYTES: Final = 1024


class Members(NamedTuple):
    """The job whose tensors are to be moved.

    Attributes:
        world: this rank among all that the launcher has started.
        place: among those that the job is made of.
        pids: of the other ranks of this host.
    """

    world: Placement
    place: Placement
    pids: tuple[int, ...]


_pids: tuple[int, ...] = ()  # of those with whom this process would end MPI


def begin(settings: Settings, members: Members, engine: Any, timeout_s: float) -> None:
    """Has MPI move the tensors, if all ranks can. Collective; every rank's engine runs, and has nothing to do yet.

    Args:
        settings: of this process; `cpu_operations` is mpi on all ranks.
        members: the job.
        engine: of this rank.
        timeout_s: for the ranks to come to MPI's collectives.

    Raises:
        HorovodError: a rank has died or given up meanwhile.
    """
    global _pids
    rank = members.place.rank
    if members.place.size == 1:
        engine.mpi.refuse("this rank is alone")
        return
    why_not = _first(engine, rank, _reason(lambda: _find(settings, members, engine)))
    if not why_not:
        _pids = members.pids
        why_not = _first(engine, rank, _reason(lambda: _start(members, timeout_s)))
    if why_not:
        engine.mpi.refuse(why_not)
        level = logging.WARNING if rank == 0 else logging.DEBUG
        log.log(level, "HOROVOD_CPU_OPERATIONS=mpi: our own plane moves the tensors instead. %s", why_not)
        return
    session = _session()
    ranks = members.place.launcher_ranks or range(members.place.size)
    engine.mpi.use(_STYLES[session.library.style], session.library.path, session.communicator(ranks, timeout_s))
    session.serves = True
    log.info("rank %d: %s moves the tensors (HOROVOD_CPU_OPERATIONS=mpi)", rank, session.library.described())


def wanted(settings: Settings, family: str = "") -> mpi.Wanted:
    """How MPI is to be used in this process."""
    by_turns = "serialized" if settings.cpu_operations == "mpi" else "single"
    return mpi.Wanted(settings.mpi_library, by_turns if settings.mpi_threads_disable else "multiple", family)


def left() -> str:
    """Why the ranks cannot end MPI together any more; empty: they can."""
    text: bytes = library.load().hvd_mpi_left()
    return text.decode("utf-8", "replace")


def a_member_has_ended() -> bool:
    """A process of this host with which this one would end MPI is gone, well or not."""
    for pid in _pids:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
    return False


def _find(settings: Settings, members: Members, engine: Any) -> str:
    """Opens the library. Blocks on no other rank."""
    launcher = members.world.launcher
    family = mpi_family(launcher)
    if family is None:
        return (
            f"the ranks were started by {launcher}, which is not an MPI launcher: start them with mpirun, mpiexec or "
            "srun, or with horovodrun --mpi"
        )
    session = mpi.of_this_process(wanted(settings, family))
    engine.mpi.use(_STYLES[session.library.style], session.library.path, 0)
    return left()


def _start(members: Members, timeout_s: float) -> str:
    """Initialises MPI, and makes the job's communicator. Blocks until all ranks have come, or gives up."""
    from horovod._net.fact_exchange import check_world

    session = _session()
    check_world(members.world, session, timeout_s)
    ranks = members.place.launcher_ranks or range(members.place.size)
    session.communicator(ranks, timeout_s)
    return session.why_not_by_turns()


def _session() -> mpi.Session:
    session = mpi.current()
    assert session is not None
    return session


def _reason(step: Callable[[], str]) -> str:
    try:
        return step()
    except (NetError, HorovodError) as error:
        return str(error).rstrip(".")


def _first(engine: Any, rank: int, own: str) -> str:
    """The reason of the lowest rank that has one, with its rank; empty: none has. Collective."""
    reasons = _allgather(engine, own.encode()[:_REASON_BYTES].ljust(_REASON_BYTES, b"\0"))
    for number, text in enumerate(reasons):
        if text.strip(b"\0"):
            return f"Rank {number}: {text.rstrip(chr(0).encode()).decode('utf-8', 'replace')}."
    return ""


def _allgather(engine: Any, own: bytes) -> Sequence[bytes]:
    """What each rank has brought, in the order of the ranks; all of them as many bytes."""
    source = ctypes.create_string_buffer(own, len(own))
    op = abi.HvdOp()
    op.type, op.dtype, op.ndim = ALLGATHER, dtypes.UINT8, 1
    op.prescale = op.postscale = 1.0
    op.name = b"allgather.who moves tensors"
    op.shape = (ctypes.c_int64 * 1)(len(own))
    op.input = ctypes.addressof(source)
    handle = ctypes.c_int64()
    status = engine.run(ctypes.addressof(op), 1, waiting.SLICE_S, ctypes.addressof(handle))
    if status == IN_PROGRESS:
        status = waiting.wait(engine, handle.value)
    if status != OK:
        raise engine.error(status)
    try:
        block = engine.take_result(handle.value, 0)
        every = ctypes.string_at(block.address, block.nbytes)
        return [every[at : at + len(own)] for at in range(0, len(every), len(own))]
    finally:
        engine.release(handle.value)
