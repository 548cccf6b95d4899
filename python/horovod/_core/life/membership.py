"""This process as a worker of an elastic job: its place in the present epoch, and how new its state is.

Used by `context` and `engine_start` when the job (re)starts, and by `horovod._core.training.elastic`, which counts
commits and takes news. In a process of no elastic job every question has the answer of a job that never changes.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from typing import TYPE_CHECKING, Final, Optional

from horovod._core.errors import HorovodInternalError, InvalidArgumentError, PeerLostError
from horovod._core.life import counters_page
from horovod._net.clusters.placement import Placement
from horovod._net.failures import NetError

if TYPE_CHECKING:
    from horovod._net.roster import News, Seat, WorkersRoster

WORKER_VARIABLE: Final = "_HOROVOD_WORKER"
_DIRECTORY_VARIABLE: Final = "HOROVOD_RENDEZVOUS_DIR"
_JOB_VARIABLE: Final = "HOROVOD_JOB_ID"
_NO_STATE: Final = (-1, 0)

_log: Final = logging.getLogger("horovod")


@dataclasses.dataclass
class _Member:
    """A worker and its launcher."""

    worker: int
    roster: WorkersRoster
    seat: Optional[Seat] = None
    # In which epoch the state was made equal on all ranks the last time, and the commits since: of two ranks, the
    # greater has the newer state.
    version: tuple[int, int] = _NO_STATE
    enrolled: bool = False  # by a program, which hands over the placement of each epoch too


_member: Optional[_Member] = None


def enroll(worker: int, roster: WorkersRoster) -> None:
    """Makes this process a worker of an elastic job by a program, not by the variables of a launcher.

    Args:
        worker: its number.
        roster: reaches the job's driver. With each place that it answers, it hands over the placement of that epoch
            (`given_placement`).
    """
    global _member
    _member = _Member(worker, roster, enrolled=True)


def take_place(why: str = "") -> None:
    """Waits for this process's place in the next epoch. Does nothing where the job is not elastic.

    Args:
        why: this rank could not meet those of its epoch, in words; empty: it has, or had no place yet.

    Raises:
        PeerLostError: the launcher is gone.
        SystemExit: with code 0: there is no place for this process any more.
    """
    member = _join()
    if member is None:
        return
    from horovod._net.roster import Dismissal  # other jobs do without

    try:
        answer = member.roster.ask(member.version, why)
    except NetError as error:
        raise PeerLostError(str(error)) from None
    if isinstance(answer, Dismissal):
        _log.info("this rank ends: %s.", answer.why)
        sys.exit(0)
    member.seat = answer


def is_enrolled() -> bool:
    """A program has made this process a worker (`enroll`)."""
    return _member is not None and _member.enrolled


def is_member() -> bool:
    """This process is a worker of an elastic job."""
    return _member is not None


def placed(placement: Placement) -> Placement:
    """A placement with the numbers of the present epoch."""
    if _member is None or _member.seat is None or _member.enrolled:
        return placement
    seat = _member.seat
    return dataclasses.replace(
        placement,
        rank=seat.rank,
        size=seat.size,
        local_rank=seat.local_rank,
        local_size=seat.local_size,
        cross_rank=seat.cross_rank,
        cross_size=seat.cross_size,
        address=seat.address or placement.address,
        # One for the whole life of the job, on however many hosts it is.
        job_key=f"elastic/{job()}",
        launcher_ranks=seat.workers,
        keeps_local_rank=True,
    )


def job() -> str:
    """What names an elastic job for its whole life, on all hosts; empty where the job is not elastic."""
    return "" if _member is None else os.environ.get(_JOB_VARIABLE, "")


def epoch() -> Optional[int]:
    """The launcher's number of the present epoch; None where the job is not elastic."""
    return None if _member is None or _member.seat is None else _member.seat.epoch


def states_differ() -> bool:
    """Not all ranks of the present epoch came into it with equal states. False where the job is not elastic."""
    return _member is not None and _member.seat is not None and _member.seat.sync


def synchronized() -> None:
    """The state is now equal on all ranks of this epoch."""
    if _member is not None and _member.seat is not None:
        _member.version = (_member.seat.epoch, 0)


def committed() -> None:
    """The state was saved at a step that all ranks have reached."""
    counters_page.count_commit()
    if _member is not None and _member.version != _NO_STATE:
        _member.version = (_member.version[0], _member.version[1] + 1)


def news() -> list[News]:
    """Changes of hosts that the launcher has reported since the last call."""
    if _member is None:
        return []
    try:
        return _member.roster.news()
    except NetError as error:
        raise PeerLostError(str(error)) from None


def say_lost() -> None:
    """The program ends with an error that the loss of another rank has caused."""
    if _member is not None:
        _member.roster.say_lost()


def forget() -> None:
    """In a forked child, which is not a worker; the connection is its parent's."""
    global _member
    _member = None


def _join() -> Optional[_Member]:
    global _member
    # Taken out of the environment, so that no process that this one starts takes itself for the worker.
    worker = os.environ.pop(WORKER_VARIABLE, None)
    if _member is None and worker is not None:
        directory = os.environ.get(_DIRECTORY_VARIABLE, "")
        if not worker.isdecimal() or not directory:
            raise InvalidArgumentError(
                f"{WORKER_VARIABLE} and {_DIRECTORY_VARIABLE} are set by horovodrun for its elastic jobs, to a number "
                f"and a directory. Received: {worker!r} and {directory!r}."
            )
        from horovod._net.roster import Roster  # other jobs do without

        try:
            _member = _Member(int(worker), Roster(directory, int(worker)))
        except NetError as error:
            raise HorovodInternalError(str(error)) from None
    return _member
