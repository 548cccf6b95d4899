"""A rank of a job whose trace holds all ranks. Started by `test_trace_of_all_ranks` and by a test over hosts."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from jobs.report import report

import horovod.numpy as hvd

TENSORS = 5


def steps(n: int, late_rank: int = -1, late_s: float = 0.0) -> None:
    """n steps of some gradients; one rank may come late to each."""
    for _ in range(n):
        if hvd.rank() == late_rank:
            time.sleep(late_s)
        handles = [hvd.allreduce_async(np.ones(5000, np.float32), op=hvd.Sum, name=f"w{i}") for i in range(TENSORS)]
        for handle in handles:
            assert (hvd.synchronize(handle) == hvd.size()).all()


def plain() -> None:
    """A step that all ranks have, and twenty to which rank LATE is late."""
    steps(20, int(os.environ.get("LATE", "-1")), 0.03)
    hvd.allreduce(np.ones(3, np.float32))  # has no name
    hvd.shutdown()


def dynamic() -> None:
    """A trace of a part of the job, and another one of another part."""
    steps(2)
    shown = []
    for number, path in enumerate(os.environ["TRACES"].split(":")):
        hvd.start_timeline(path)
        hvd.barrier()
        time.sleep(0.2)  # the others learn of it by and by
        steps(3 + number)
        hvd.barrier()
        hvd.stop_timeline()
        if hvd.rank() == 0:
            events = json.loads(Path(path).read_text())  # it is whole now
            shown.append(sum(event.get("name") == "ALLREDUCE" for event in events))
    hvd.barrier()
    hvd.shutdown()
    report("dynamic", shown=shown)


def paused() -> None:
    """Rank 1 is stopped while one trace ends and the next one begins."""
    first, second = os.environ["TRACES"].split(":")
    pids = hvd.allgather(np.array([os.getpid()]))
    hvd.start_timeline(first)
    hvd.barrier()
    time.sleep(0.2)
    steps(3)
    if hvd.rank() == 0:
        os.kill(int(pids[1]), signal.SIGSTOP)
        hvd.stop_timeline()
        hvd.start_timeline(second)
        os.kill(int(pids[1]), signal.SIGCONT)
    hvd.barrier()
    time.sleep(0.2)
    steps(4)
    hvd.barrier()
    hvd.stop_timeline()
    hvd.shutdown()


def watched() -> None:
    """Rank 0 reads the trace again and again while all ranks write to it."""
    looks = whole = 0
    path = Path(os.environ["HOROVOD_TIMELINE"])
    until = time.monotonic() + 3
    while hvd.allreduce(np.array([float(time.monotonic() < until)]), op=hvd.Min, name="goes on")[0]:
        steps(1)
        if hvd.rank() == 0:
            looks += 1
            for _ in range(3):  # a look may come between the two reads of read_text
                try:
                    json.loads(path.read_text())
                    whole += 1
                    break
                except json.JSONDecodeError:
                    time.sleep(0.01)
    hvd.shutdown()
    report("watched", looks=looks, whole=whole)


def killed() -> None:
    """Rank 2 is killed in the middle; the others see it."""
    steps(5)
    time.sleep(0.5)
    if hvd.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        steps(1000)
    except hvd.HorovodInternalError:
        hvd.shutdown()
        report("survived")


def again() -> None:
    """The program starts Horovod again, as after a reset."""
    steps(3)
    hvd.shutdown()
    hvd.init()
    steps(4)
    hvd.shutdown()


def worlds() -> None:
    """The ranks divide into two jobs, of two ranks and of one."""
    ranks = [0, 2] if hvd.rank() != 1 else [1]
    hvd.shutdown()
    hvd.init(comm=ranks)
    steps(5)
    hvd.shutdown()


if __name__ == "__main__":
    hvd.init()
    modes = (plain, dynamic, paused, watched, killed, again, worlds)
    {mode.__name__: mode for mode in modes}[sys.argv[1]]()
