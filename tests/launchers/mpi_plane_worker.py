"""One rank of a job whose tensors MPI moves: `mpi_plane_worker.py PART`. Started by `test_mpi_plane.py`; not a test."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time

import numpy as np
from jobs.report import report

import horovod.numpy as hvd
from horovod._core.errors import PeerLostError, ShutdownError
from horovod._core.life import engine_start

VICTIM = 1
IDLE_S = 1.0


def why_not() -> str:
    """Why MPI does not move tensors; empty: it does."""
    backends = json.loads(engine_start.describe() or "{}")["backends"]
    return next(str(each["why_not"]) for each in backends if each["name"] == "mpi")


def total(name: str, elems: int = 3, **more: object) -> float:
    """The sum of all members' ranks."""
    return float(hvd.allreduce(np.full(elems, hvd.rank(), np.float32), op=hvd.Sum, name=name, **more)[-1])


def work() -> None:
    """Two lives, with an idle time in between."""
    hvd.init()
    sums = [total("little"), total("large", 1 << 20)]
    began_s = time.process_time()
    time.sleep(IDLE_S)
    idle_s = time.process_time() - began_s
    enabled, multiple = hvd.mpi_enabled(), hvd.mpi_enabled() and hvd.mpi_threads_supported()
    reason = why_not()
    hvd.shutdown()
    hvd.init()
    report(
        "worked", rank=hvd.rank(), size=hvd.size(), sums=[*sums, total("again")], idle_s=idle_s, enabled=enabled,
        multiple=multiple, why_not=reason, why_not_again=why_not(),
    )  # fmt: skip


def sets() -> None:
    """Process sets whose members overlap, in turn and at once."""
    hvd.init(process_sets="dynamic")
    every = [hvd.add_process_set(ranks) for ranks in ([0, 1, 2], [1, 2, 3], [0, 3])]
    mine = [each for each in every if each.included()]
    found = []
    for step in range(20):
        ids = [(each, f"{step} in {each.ranks}") for each in mine]
        handles = [
            hvd.allreduce_async(np.full(1000, hvd.rank(), np.float32), op=hvd.Sum, name=name, process_set=each)
            for each, name in ids
        ]
        found.append([float(hvd.synchronize(handle)[0]) for handle in handles])
    expected = [float(sum(each.ranks)) for each in mine]
    report("worked", rank=hvd.rank(), right=all(each == expected for each in found), why_not=why_not())


def communicator() -> None:
    """A job of two of the ranks, in the opposite order; the others are not in it, but MPI waits for them."""
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
    if rank not in (1, 3):
        importlib.import_module("mpi4py.MPI")
        return
    hvd.init(comm=[3, 1])
    gathered = hvd.allgather(np.array([rank], np.int32), name="ranks")
    report("worked", rank=hvd.rank(), gathered=gathered.tolist(), why_not=why_not())


def die() -> None:
    """Rank 1 is killed while MPI moves tensors; the others say what they saw, and end well."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of launchers that stop the others
    hvd.init()
    large = np.ones(8 << 20, np.float32)
    hvd.allreduce(large, op=hvd.Sum, name="large")
    if hvd.rank() == VICTIM:
        threading.Thread(target=fall, daemon=True).start()
    try:
        for _ in range(100_000):
            hvd.allreduce(large, op=hvd.Sum, name="large")
    except (PeerLostError, ShutdownError) as error:
        rank = hvd.rank()
        report("raised", rank=rank, message=str(error), kind=type(error).__name__)
        hvd.shutdown()
        report("over", rank=rank)


def fall() -> None:
    """The end of rank 1, in the middle of an operation as likely as not."""
    time.sleep(0.1)
    report("fault")
    os.kill(os.getpid(), signal.SIGKILL)


def one_without() -> None:
    """Rank 1 finds no library: no rank may use MPI, and none may wait."""
    if (os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK")) == "1":
        os.environ["HOROVOD_MPI_LIBRARY"] = "/no/such/libmpi.so"
    hvd.init()
    report("worked", rank=hvd.rank(), sum=total("little"), enabled=hvd.mpi_enabled(), why_not=why_not())


def differ() -> None:
    """Rank 1 does not ask for MPI."""
    if (os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK")) == "1":
        del os.environ["HOROVOD_CPU_OPERATIONS"]
    try:
        hvd.init()
    except hvd.HorovodInternalError as error:
        report("refused", message=str(error))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
