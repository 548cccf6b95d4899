"""The program of a rank in a fault test: goes to the phase named in FAULT; there the victim falls and the others say
when they raise.

FAULT is "rank=1,phase=batch,how=KILL". In the folder of their reports ranks leave marks: files by which they wait for
one another without the library under test. Run by `fault_job.py` under horovodrun. Not a test itself.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jobs.report

EVENTS = Path(os.environ[jobs.report.VARIABLE])
FAULT = dict(item.split("=") for item in os.environ["FAULT"].split(","))
RANK = int(os.environ["HOROVOD_RANK"])
SIZE = int(os.environ["HOROVOD_SIZE"])
VICTIM = int(FAULT["rank"])
OTHERS = [rank for rank in range(SIZE) if rank != VICTIM]
BATCH_MB = int(os.environ.get("FAULT_BATCH_MB", "256"))
STEPS_BEFORE = 200
STOPPED_S = 6.5
PATIENCE_S = 50.0


class Error(Exception):
    """Raised by a victim that falls with RAISE."""


report = functools.partial(jobs.report.report, rank=RANK)


def mark(name: str) -> None:
    """Says that this rank has come to a point."""
    (EVENTS / f"{name}.{RANK}").touch()


def await_marks(name: str, ranks: Iterable[int]) -> None:
    """Waits until these ranks have come to that point."""
    until(lambda: all((EVENTS / f"{name}.{rank}").exists() for rank in ranks), 0.001)


def until(condition: Callable[[], bool], pause_s: float = 0.0) -> None:
    """Waits for a condition; gives up after a while."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            report("gave up")
            os._exit(99)
        time.sleep(pause_s)


def fall(**fields: Any) -> None:
    """The fault."""
    how = FAULT["how"]
    report("fault", **fields)
    mark("fallen")
    if how == "RAISE":
        raise Error("the fault of the test")
    if how == "EXIT":
        os._exit(1)
    if how != "NONE":
        os.kill(os.getpid(), getattr(signal, "SIG" + how))


def fall_when(condition: Callable[[], bool], **fields: Callable[[], Any]) -> None:
    """Another thread of the victim falls as soon as the condition holds; `fields` are asked just before."""

    def watch() -> None:
        until(condition)
        fall(**{name: ask() for name, ask in fields.items()})

    threading.Thread(target=watch, daemon=True).start()


class Expecting:
    """The block is to fail because of the victim's end: reports the error, and what still answers.

    Args:
        catch: go on after it; otherwise it ends the rank, as in a program that does not care.
    """

    def __init__(self, catch: bool = False) -> None:
        self.catch = catch

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        from horovod._core.errors import HorovodInternalError

        at = time.monotonic()
        if error is None or not isinstance(error, HorovodInternalError):
            report("not raised", error=repr(error))
            return False
        answers = [hvd.rank(), hvd.size()] if hvd.is_initialized() else None
        report("raised", at=at, error=kind.__name__, message=str(error), answers=answers)
        return self.catch


def ones(n: int = 8) -> Any:
    """A small array."""
    return np.ones(n, np.float32)


def step(k: int) -> None:
    """One small collective."""
    result = hvd.allreduce(ones(), name=f"grad.{k % 4}", op=hvd.Sum)
    if result[0] != SIZE:
        report("wrong result", value=float(result[0]))


def loop(victim_falls: bool = True) -> None:
    """Small collectives without an end; the victim falls between two of them."""
    k = 0
    with Expecting():
        while True:
            if victim_falls and RANK == VICTIM and k == STEPS_BEFORE:
                fall()
            step(k)
            k += 1
            counter[0] = k


# ---- phases


def phase_early() -> None:
    """The victim never calls hvd.init(); the others are in it."""
    if RANK == VICTIM:
        until(lambda: len(list(Path(os.environ["HOROVOD_RENDEZVOUS_DIR"]).glob("*/r*"))) == SIZE - 1, 0.001)
        fall()
    with Expecting():
        hvd.init()


def phase_joined() -> None:
    """The victim shows up and connects to nobody."""
    from horovod._net.handshake.connect import Mesh

    in_init(Mesh, "run")


def phase_paired() -> None:
    """The victim dies when the first other rank has proved who it is."""
    from horovod._net.handshake.connect import Mesh

    in_init(Mesh, "_on_member")


def phase_connected() -> None:
    """The victim is connected with all, and dies before its engine starts."""
    from horovod._native.engine import Engine

    in_init(Engine, "init")


def in_init(owner: Any, name: str) -> None:
    """The victim falls when it comes to this method."""
    if RANK == VICTIM:
        setattr(owner, name, lambda *_: fall())
    with Expecting():
        hvd.init()
        hvd.barrier()


def phase_idle() -> None:
    """Nothing is under way; the others find out at their next call."""
    hvd.init()
    step(0)
    if RANK == VICTIM:
        await_marks("idle", OTHERS)
        fall()
    mark("idle")
    await_marks("fallen", [VICTIM])
    with Expecting():
        step(0)


def phase_negotiation() -> None:
    """The others have submitted and wait; the victim does not."""
    hvd.init()
    step(0)
    if RANK == VICTIM:
        await_marks("submitted", OTHERS)
        fall()
        step(1)
        return
    with Expecting():
        handle = hvd.allreduce_async(ones(), name="grad.1", op=hvd.Sum)
        mark("submitted")
        hvd.synchronize(handle)


def phase_loop() -> None:
    """Anywhere inside a loop of small collectives."""
    hvd.init()
    if RANK == VICTIM:
        fall_when(lambda: counter[0] >= STEPS_BEFORE)
    loop(victim_falls=False)


def phase_between() -> None:
    """Between two steps."""
    hvd.init()
    loop()


def phase_batch() -> None:
    """Inside one large batch: its first element is reduced, the call has not returned."""
    hvd.init()
    own = float(RANK + 1)
    data = np.full(BATCH_MB << 18, own, np.float32)
    hvd.barrier()
    if RANK == VICTIM:
        fall_when(lambda: bool(data[0] != own), inside=lambda: counter[0] == 0)
    with Expecting():
        hvd.allreduce_(data, name="large", op=hvd.Sum)
        counter[0] = 1


def phase_shutdown() -> None:
    """The others are in shutdown; the victim dies in it, or at its door."""
    hvd.init()
    step(0)
    if RANK == VICTIM:
        await_marks("leaving", OTHERS)
        fall_when(lambda: counter[0] == 1)
    mark("leaving")
    counter[0] = 1
    hvd.shutdown()
    if RANK == VICTIM:
        until(lambda: False)
    await_marks("fallen", [VICTIM])
    report("finished")


def phase_unsaid() -> None:
    """The others are in shutdown; the victim dies instead of joining them."""
    hvd.init()
    step(0)
    if RANK == VICTIM:
        await_marks("leaving", OTHERS)
        fall()
    mark("leaving")
    hvd.shutdown()
    await_marks("fallen", [VICTIM])
    report("finished")


def phase_reinit() -> None:
    """In the second life of the engine."""
    hvd.init()
    step(0)
    hvd.shutdown()
    hvd.init()
    loop()


def phase_rejoin() -> None:
    """While the second life begins."""
    hvd.init()
    step(0)
    hvd.shutdown()
    phase_joined()


def phase_loader() -> None:
    """In a training loop with DataLoader processes, forked after hvd.init(): they hold copies of every descriptor."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    import horovod.torch as hvd_torch

    hvd.init()
    data = TensorDataset(torch.arange(4096, dtype=torch.float32))
    batches = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork", persistent_workers=True)
    k = 0
    with Expecting():
        while True:
            for (batch,) in batches:
                if RANK == VICTIM and k == 20:
                    fall()
                hvd_torch.allreduce(batch, name="grad", op=hvd_torch.Sum)
                k += 1


def phase_stopped() -> None:
    """The victim is away before the batch starts; comes back later, and all is well."""
    hvd.init()
    step(0)
    if RANK == VICTIM:
        await_marks("submitted", OTHERS)
        fall()
    else:
        handle = hvd.allreduce_async(ones(), name="the.tensor", op=hvd.Sum)
        mark("submitted")
        hvd.synchronize(handle)
        report("finished")
        return
    hvd.allreduce(ones(), name="the.tensor", op=hvd.Sum)
    report("finished")


def phase_leave(before: Callable[[], None] = lambda: None) -> None:
    """The victim leaves properly; the others go on in a set without it, and fail only where it is needed."""
    without = hvd.ProcessSet(OTHERS)
    hvd.init(process_sets=[without])
    step(0)
    if RANK == VICTIM:
        before()
        hvd.shutdown()
        fall()
        return
    await_marks("fallen", [VICTIM])
    for k in range(STEPS_BEFORE):
        result = hvd.allreduce(ones(), name=f"grad.{k % 4}", op=hvd.Sum, process_set=without)
        if result[0] != SIZE - 1:
            report("wrong result", value=float(result[0]))
    with Expecting(catch=True):
        step(0)
    result = hvd.allreduce(ones(), name="after", op=hvd.Sum, process_set=without)
    report("finished", value=float(result[0]))


def phase_unheard() -> None:
    """The same, and the root is stopped for a while: it hears the victim's goodbye late."""
    phase_leave(stop_root)


def stop_root() -> None:
    """The root stops now, and goes on later."""
    root = next(event["pid"] for event in jobs.report.events_in(EVENTS) if event["rank"] == 0)
    os.kill(root, signal.SIGSTOP)
    threading.Timer(STOPPED_S, os.kill, (root, signal.SIGCONT)).start()


def phase_fork() -> None:
    """Children of a rank are no ranks, though they know its place: their calls say so, and their end disturbs
    nobody."""
    hvd.init()
    step(0)
    pid = os.fork()
    if pid == 0:
        place = [hvd.rank(), hvd.size(), hvd.is_initialized()]
        answers = [child_call(call) for call in (lambda: step(1), hvd.init, hvd.shutdown)]
        report("child", answers=answers, place=place, initialized=hvd.is_initialized())
        sys.exit(0)  # with all handlers that run at exit
    _, status = os.waitpid(pid, 0)
    for k in range(STEPS_BEFORE):
        step(k)
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    for k in range(STEPS_BEFORE):
        step(k)
    hvd.shutdown()
    hvd.init()
    step(0)
    report("finished", child_status=status)


def child_call(call: Callable[[], Any]) -> list[str]:
    """Class and message of what a call raises."""
    try:
        call()
    except Exception as error:  # whatever it is, it is the answer
        return [type(error).__name__, str(error)]
    return ["", ""]


def phase_orphans() -> None:
    """A loop that only ends with the launcher; each rank has a child and a grandchild of its own session."""
    hvd.init()
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
            signal.pause()
    report("running")
    loop(victim_falls=False)


if __name__ == "__main__":
    atexit.register(report, "over")  # before the library's own: so it runs after that

    import numpy as np

    import horovod.numpy as hvd

    counter = [0]
    faulthandler.register(signal.SIGUSR1)
    report("started")
    globals()["phase_" + FAULT["phase"]]()
