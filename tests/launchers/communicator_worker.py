"""One rank of a script that gives Horovod communicators of mpi4py. Started by `test_communicators.py`; not a test."""

from __future__ import annotations

import sys

import numpy as np
from jobs.report import report
from mpi4py import MPI

import horovod.numpy as hvd

WORLD = MPI.COMM_WORLD
RANK = WORLD.Get_rank()


def total(**more: object) -> float:
    """The sum of all members' ranks in MPI's world."""
    return float(hvd.allreduce(np.full(3, RANK, np.float32), op=hvd.Sum, name="ranks", **more)[0])


def split() -> None:
    """Each rank gives the half that it is in as a process set."""
    half = hvd.ProcessSet(WORLD.Split(RANK % 2, RANK))
    hvd.init(WORLD, process_sets=[half])
    report("worked", rank=hvd.rank(), ranks=half.ranks, id=half.process_set_id, total=total(process_set=half))
    hvd.barrier()


def sub_world() -> None:
    """A job of two ranks in the opposite order; the others are not in it."""
    comm = WORLD.Split(0 if RANK in (1, 3) else MPI.UNDEFINED, -RANK)
    try:
        hvd.init(comm=comm)
    except ValueError as error:
        report("refused", rank=RANK, message=str(error))
        return
    report("worked", rank=hvd.rank(), comm_rank=comm.Get_rank(), size=hvd.size(), total=total())


def added() -> None:
    """A set that some are not in, while the job runs."""
    hvd.init(WORLD, process_sets="dynamic")
    first = hvd.add_process_set(hvd.ProcessSet(WORLD.Split(0 if RANK < 2 else MPI.UNDEFINED)))
    report("worked", rank=hvd.rank(), ranks=first.ranks, included=first.included())
    hvd.barrier()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
