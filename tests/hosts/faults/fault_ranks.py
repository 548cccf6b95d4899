"""The program of a rank in a fault test over hosts: goes to the phase named in FAULT_PHASE, where the victim says that
it is there and waits until the test has done what it does; then all go on, to an error or to the end.

Run by `fault_case.py` under horovodrun. Not a test itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jobs.report import VARIABLE, report

import horovod.numpy as hvd

MARKS = Path(os.environ[VARIABLE])
RANK = int(os.environ["HOROVOD_RANK"])
SIZE = int(os.environ["HOROVOD_SIZE"])
VICTIM = int(os.environ["FAULT_VICTIM"])
LARGE_MB = int(os.environ["FAULT_LARGE_MB"])
STEPS = 40
PATIENCE_S = 60.0


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition; gives up after a while."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            os._exit(99)
        time.sleep(0.001)


def done() -> bool:
    """The test has done what it does."""
    return (MARKS / "applied").exists()


def trigger() -> None:
    """This is the moment."""
    report("here", rank=RANK)
    until(done)


def steps() -> None:
    """Small collectives; some more after the fault, counted alike by all."""
    left = STEPS
    while left:
        told = float(RANK != VICTIM or done())
        total = hvd.allreduce(np.full(8, told, np.float32), op=hvd.Sum, name="small")
        assert total[0] in (SIZE - 1, SIZE), total[0]
        left -= int(total[0] == SIZE)


def received_bytes() -> int:
    """By this host, over its network."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if "eth0:" in line)
    return int(line.partition(":")[2].split()[0])


def phase_init() -> None:
    """The victim is about to connect; the others wait for it."""
    from horovod._net.handshake.connect import Mesh

    real = Mesh.run

    def run(mesh: Mesh, timeout_s: float) -> None:
        if RANK == VICTIM:
            trigger()
        real(mesh, timeout_s)

    Mesh.run = run  # type: ignore[method-assign]
    hvd.init()
    steps()


def phase_between() -> None:
    """The victim is between two steps; the others are in the next one."""
    hvd.init()
    hvd.barrier()
    if RANK == VICTIM:
        trigger()
    steps()


def phase_small() -> None:
    """Small collectives follow one another."""
    hvd.init()
    hvd.barrier()
    if RANK == VICTIM:
        threading.Thread(target=trigger, daemon=True).start()
    steps()


def phase_large() -> None:
    """A part of a large tensor is through."""
    data = np.full(LARGE_MB << 18, 1.0, np.float32)
    hvd.init()
    hvd.barrier()
    before = received_bytes()

    def watch() -> None:
        until(lambda: received_bytes() - before > data.nbytes // 4)
        trigger()

    if RANK == VICTIM:
        threading.Thread(target=watch, daemon=True).start()
    hvd.allreduce_(data, name="large", op=hvd.Sum)
    if RANK == VICTIM:
        assert done(), "the tensor was through before the fault: make it larger"
    assert float(data.min()) == float(data.max()) == SIZE


def phase_shutdown() -> None:
    """The others are in shutdown."""
    hvd.init()
    hvd.barrier()
    if RANK == VICTIM:
        trigger()
    hvd.shutdown()


def phase_reinit() -> None:
    """While the second life begins."""
    hvd.init()
    hvd.barrier()
    hvd.shutdown()
    phase_init()


def main() -> None:
    phase: Callable[[], Any] = globals()["phase_" + os.environ["FAULT_PHASE"]]
    try:
        phase()
        print("well", flush=True)  # also where there is no room for it
        hvd.shutdown()
    except hvd.HorovodInternalError as error:
        report("raised", rank=RANK, error=type(error).__name__, message=str(error))
        raise
    report("finished", rank=RANK)


if __name__ == "__main__":
    main()
