"""Meeting through MPI or at an address, and MPI in this process, as `init` and the end of the process need them. Jobs
that do without never import what it takes.

Used by `engine_start`, `context` and `given_placement`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Optional

from horovod._core.settings import Settings
from horovod._net.clusters.placement import Placement

if TYPE_CHECKING:
    from horovod._net.handshake.boards.board_link import BoardLink
    from horovod._net.mpi import session as mpi


def exchanged(
    settings: Settings, world: Placement, place: Placement, timeout_s: float
) -> tuple[Placement, Optional[BoardLink]]:
    """Has the ranks of a job learn of one another, if their launcher has made no place to meet.

    Args:
        settings: of this process.
        world: this rank among all that the launcher has started.
        place: among those that the job is made of.
        timeout_s: how long to wait for the others.

    Returns:
        This rank's place, as far as it is known then, and the job's board, if it needs one.

    Raises:
        NetError: as `exchange_facts`.
    """
    if not place.lacks_a_place_to_meet:
        return place, None
    from horovod._core.life.planes import mpi_plane
    from horovod._net.fact_exchange import Means, exchange_facts

    version = str(getattr(sys.modules["horovod"], "__version__", ""))
    means = Means(mpi_plane.wanted(settings), settings.secret_file, settings.meeting_address, version)
    return exchange_facts(world, place, means, timeout_s)


def leave_other_jobs(job_key: str) -> None:
    """Of all jobs that this process knows of, only the one of this name goes on."""
    module = sys.modules.get("horovod._net.fact_exchange")
    if module is not None:
        module.leave_other_jobs(job_key)


def in_use() -> bool:
    """The ranks have met through MPI, or it moves their tensors."""
    session = _session()
    return session is not None and session.serves


def thread_multiple() -> bool:
    """Whether MPI was initialised with full multithreading; False where it is not in use."""
    session = _session()
    return session is not None and session.serves and session.thread_multiple()


def installed(settings: Settings) -> bool:
    """There is an MPI library that could be used."""
    from horovod._net.mpi.finding import is_installed

    return is_installed(os.environ, settings.mpi_library)


def end(failed: bool) -> None:
    """At the end of the process: ends MPI, if it was started here, with all other ranks.

    Args:
        failed: an exception ends this rank. The others may never get this far, and the launcher should know at
            once.
    """
    session = _session()
    if session is not None and not failed:
        from horovod._core.life.planes import mpi_plane
        from horovod._net.fact_exchange import a_rank_has_ended

        if not mpi_plane.left():
            session.finalize(lambda: mpi_plane.a_member_has_ended() or a_rank_has_ended())


def _session() -> Optional[mpi.Session]:
    module = sys.modules.get("horovod._net.mpi.session")
    return None if module is None else module.current()
