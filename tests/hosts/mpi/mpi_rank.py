"""The program of a rank in a job on several hosts, whoever started it: `mpi_rank.py PART`. Not a test itself.

Each rank prints one line of JSON. Run by `test_mpi_over_hosts.py` and by all `ways`.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np

import horovod.numpy as hvd
from horovod._net.clusters.launchers import detect_placement
from horovod._net.handshake.connect import Mesh

VICTIM = 1
FIRST_HOST = "10.77.0.11"
FIREWALL_TABLE = 77
FIREWALL_RULES = range(100, 200)
PLACE = detect_placement()
_LINGER_S = 0.2


def say(**what: Any) -> None:
    """One whole line, whoever else writes."""
    os.write(1, (json.dumps({"rank": PLACE.rank, **what}) + "\n").encode())


def sums() -> list[float]:
    """A small and a large allreduce, each by its first and last element."""
    found = []
    for elems in (3, 1 << 18):
        total = hvd.allreduce(np.full(elems, hvd.rank() + 1.0, np.float32), op=hvd.Sum, name=f"of {elems}")
        found += [float(total[0]), float(total[-1])]
    return found


def work() -> None:
    """A healthy rank, with a second life."""
    hvd.init()
    names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    place = {f"hvd_{name}": getattr(hvd, name)() for name in names}
    first = sums()
    began_s = time.process_time()
    time.sleep(1)
    idle_s = time.process_time() - began_s
    hvd.shutdown()
    hvd.init()
    say(
        launcher=PLACE.launcher,
        first=first,
        second=sums(),
        idle_s=idle_s,
        mpi=hvd.mpi_enabled(),
        threads=hvd.mpi_enabled() and hvd.mpi_threads_supported(),
        **place,
    )


def work_beside_mpi4py() -> None:
    """The script has imported mpi4py first, and goes on using it."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    hvd.init()
    first = sums()
    hvd.shutdown()
    say(first=first, world=[world.Get_rank(), world.Get_size()], gathered=world.allgather(hvd.mpi_enabled()))


def fail() -> None:
    """One rank is killed while the ranks connect; the others say what they saw."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if PLACE.rank == VICTIM:
        setattr(Mesh, "run", lambda *_: os.kill(os.getpid(), signal.SIGKILL))  # noqa: B010
    began_s = time.monotonic()
    try:
        hvd.init()
    except hvd.HorovodInternalError as error:
        say(seconds=time.monotonic() - began_s, error=str(error))
        sys.exit(3)


def stay_away() -> None:
    """One rank never calls init."""
    if PLACE.rank == VICTIM:
        time.sleep(10)
        return
    try:
        hvd.init()
    except hvd.HorovodInternalError as error:
        say(error=str(error))
        sys.exit(3)


def refused() -> None:
    """`init` is refused."""
    try:
        hvd.init()
    except (hvd.HorovodInternalError, ValueError) as error:
        say(error=str(error))
        sys.exit(3)


def behind_a_firewall() -> None:
    """Between the hosts of the other ranks and rank 0's, only what their launcher has opened already gets through; what
    else is sent there vanishes. The hosts stay so; see `launcher_mistakes`."""
    if os.uname().nodename != "host1":
        _close_firewall()
    refused()


def _close_firewall() -> None:
    number = itertools.count(FIREWALL_RULES.start)
    with open("/proc/net/tcp") as table:
        established = [line.split()[1:3] for line in table.readlines()[1:] if line.split()[3] == "01"]
    for own, other in established:
        ports = ["sport", str(int(own[-4:], 16)), "dport", str(int(other[-4:], 16))]
        _ip("rule", "add", "pref", str(next(number)), "ipproto", "tcp", *ports, "lookup", "main")
    _ip("route", "replace", "default", "dev", "lo", "table", str(FIREWALL_TABLE))  # where nobody takes it
    _ip("rule", "add", "pref", str(FIREWALL_RULES[-1]), "to", FIRST_HOST, "lookup", str(FIREWALL_TABLE))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def throw() -> None:
    """One rank ends with an exception, the others in good order, and none waits for ever for the end of MPI."""
    hvd.init()
    hvd.barrier()
    if hvd.rank() == VICTIM:
        raise ValueError("bad batch")
    time.sleep(4)


if __name__ == "__main__":
    if PLACE.launcher == "srun":
        # With --kill-on-bad-exit srun drops now and then what a task has written just before its end.
        atexit.register(time.sleep, _LINGER_S)
    globals()[sys.argv[1]]()
