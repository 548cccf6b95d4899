"""Communicators of mpi4py in place of lists of ranks: for `init`, and for process sets after such an `init`.

mpi4py is never imported here: a caller that gives a communicator has it. What the ranks need of one is a few numbers,
which they exchange through the communicator itself; from then on it is not used. Used by `context` and `process_sets`.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Sequence
from typing import Any, Final, Optional

from horovod._core import settings
from horovod._core.errors import CollectiveTimeoutError, InvalidArgumentError, UnsupportedError
from horovod._core.life import given_placement
from horovod._net import failures
from horovod._net.clusters.placement import Placement

_LONGEST_NAP_S: Final = 0.005
_NOBODY: Final = -1

# The communicator that `init` was given; None: none, or not initialised.
_of_init: Optional[Any] = None


def is_one(given: Any) -> bool:
    """This is a communicator and no list of ranks."""
    return hasattr(given, "Get_rank") and hasattr(given, "Get_size")


def note(comm: Optional[Any]) -> None:
    """`init` has been given this one; None: the session is over."""
    global _of_init
    _of_init = comm


def launcher_ranks(comm: Any) -> list[int]:
    """What the launcher calls the ranks of a communicator, in its order. Collective over it.

    Raises:
        InvalidArgumentError: this process is not in it, or MPI and the launcher do not know of one another.
        CollectiveTimeoutError: not all of its ranks have called `init`.
    """
    if _is_null(comm):
        raise InvalidArgumentError(
            "comm is MPI.COMM_NULL: this process is not in the communicator. Only its members may call hvd.init() with "
            "it."
        )
    try:
        placement = given_placement.of_this_process()
    except failures.PlacementError as error:
        raise InvalidArgumentError(str(error)) from None
    _check_world(comm, placement)
    return [rank for (rank,) in _exchange(comm, (placement.rank,))]


def sets_of(sub: Any) -> tuple[list[list[int]], Optional[list[int]]]:
    """The sets of ranks that the communicators make which the ranks of the job give at the same time: one each, as from
    a `Split`. Collective over all ranks of the job.

    Returns:
        All of them, in an order that is the same on all ranks; and that which is meant here. A rank that gives
        COMM_NULL means the set, if there is one only.

    Raises:
        UnsupportedError: `init` was given no communicator.
        InvalidArgumentError: the communicators do not fit together, or have ranks that are not in the job.
    """
    if _of_init is None:
        raise UnsupportedError(
            "A process set from an MPI communicator needs hvd.init(comm=...) with one, too. Give that, such as "
            "MPI.COMM_WORLD, or make the process set from a list of ranks."
        )
    color, count = _NOBODY, 0
    if not _is_null(sub):
        count = sub.Get_size()
        color = min(rank for (rank,) in _exchange(sub, (_of_init.Get_rank(),)))
    return grouped(_exchange(_of_init, (color, count)), color)


def grouped(by_rank: Sequence[Sequence[int]], color: int) -> tuple[list[list[int]], Optional[list[int]]]:
    """As `sets_of`, from what each rank has sent: (least rank, number of ranks) of its communicator.

    Raises:
        InvalidArgumentError: they do not fit together; on all ranks.
    """
    groups: dict[int, list[int]] = {}
    for rank, (least, _) in enumerate(by_rank):
        if least != _NOBODY:
            groups.setdefault(least, []).append(rank)
    for least, ranks in groups.items():
        counts = {by_rank[rank][1] for rank in ranks}
        if counts != {len(ranks)}:
            raise InvalidArgumentError(
                f"The communicators given for a process set do not fit together: the one that begins with rank {least} "
                f"has {', '.join(map(str, sorted(counts)))} ranks, but ranks {ranks} gave it. Each of its members must "
                "give it, and all must be ranks of the communicator that init was given."
            )
    every = [groups[least] for least in sorted(groups)]
    if not every:
        raise InvalidArgumentError("All ranks gave MPI.COMM_NULL for a process set; one must have a member.")
    return every, groups.get(color, every[0] if len(every) == 1 else None)


def _is_null(comm: Any) -> bool:
    mpi = sys.modules.get(type(comm).__module__)
    return mpi is not None and hasattr(mpi, "COMM_NULL") and bool(comm == mpi.COMM_NULL)


def _check_world(comm: Any, placement: Placement) -> None:
    """MPI must have been started by the launcher; else each process is a world of its own."""
    world = getattr(sys.modules.get(type(comm).__module__), "COMM_WORLD", None)
    found = (placement.rank, placement.size) if world is None else (world.Get_rank(), world.Get_size())
    if found != (placement.rank, placement.size):
        raise InvalidArgumentError(
            f"{placement.launcher} says that this is rank {placement.rank} of {placement.size}, but mpi4py says rank "
            f"{found[0]} of {found[1]}: its MPI library does not belong to the MPI that started the ranks. Start "
            "them with the mpirun of that library, or give hvd.init() a list of ranks."
        )


def _exchange(comm: Any, own: Sequence[int]) -> list[tuple[int, ...]]:
    """The numbers of all ranks of a communicator, in its order."""
    each = len(own)
    mine, every = array("q", own), array("q", bytes(8 * each * comm.Get_size()))
    request = comm.Iallgather(mine, every)
    timeout_s = settings.of_this_process().start_timeout_s
    deadline, nap_s = time.monotonic() + timeout_s, 0.0
    while not request.Test():
        if time.monotonic() > deadline:
            raise CollectiveTimeoutError(
                f"Not all {comm.Get_size()} ranks of the communicator came within {timeout_s:g} s; each of them must "
                "call this with the same one. HOROVOD_START_TIMEOUT (seconds) allows more time."
            )
        time.sleep(nap_s)
        nap_s = min(2 * nap_s + 0.0001, _LONGEST_NAP_S)
    return [tuple(every[start : start + each]) for start in range(0, len(every), each)]
