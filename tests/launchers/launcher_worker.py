"""One rank under a foreign launcher: does what its first argument says.

Its rank it learns from Horovod only. Started by `launched.py`; not a test itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from jobs.report import VARIABLE, report

import horovod.numpy as hvd
from horovod._core import settings
from horovod._core.errors import PeerLostError, ShutdownError
from horovod._net.clusters.launchers import detect_placement
from horovod._net.handshake.connect import Mesh

REPORTS = Path(os.environ[VARIABLE])
TOKEN = int(os.environ.get("LAUNCHED_TOKEN", "1"))
VICTIM = 1
STEPS_BEFORE = 50
PATIENCE_S = 60.0
_CHILD = "import horovod.numpy as hvd; hvd.init(); print('a rank')"


def await_others() -> None:
    """Waits until as many processes have come here as LAUNCHED_TOGETHER says, so that jobs meet at the same time."""
    (REPORTS / f"here.{os.getpid()}").touch()
    everywhere = [Path(text) for text in os.environ["LAUNCHED_TOGETHER_IN"].split(os.pathsep)]
    deadline = time.monotonic() + PATIENCE_S
    while sum(len(list(place.glob("here.*"))) for place in everywhere) < int(os.environ["LAUNCHED_TOGETHER"]):
        if time.monotonic() > deadline:
            sys.exit("the other job does not come")
        time.sleep(0.002)


def await_listeners(n: int) -> None:
    """Waits until n ranks have joined the meeting: one that comes later takes a dead rank for one still to come."""
    deadline = time.monotonic() + PATIENCE_S
    while len(list(Path(os.environ["XDG_RUNTIME_DIR"]).glob("horovod/*/r*"))) < n and time.monotonic() < deadline:
        time.sleep(0.002)


def exchange() -> list[str]:
    """Small and large tensors and an object, whose values tell this job from another; what was wrong."""
    rank, size, wrong = hvd.rank(), hvd.size(), []
    total = TOKEN * size * (size + 1) // 2
    for elems in (3, 1 << 20):
        result = hvd.allreduce(
            np.arange(elems, dtype=np.float32) % 7 + TOKEN * (rank + 1), op=hvd.Sum, name=f"of {elems}"
        )
        expected = size * (np.arange(elems, dtype=np.float32) % 7) + total
        if not np.array_equal(result, expected):
            wrong.append(f"allreduce of {elems}: {result[:3]}, expected {expected[:3]}")
    thing = hvd.broadcast_object({"token": TOKEN, "from": rank}, root_rank=size - 1)
    if thing != {"token": TOKEN, "from": size - 1}:
        wrong.append(f"broadcast_object: {thing}")
    return wrong


def child_that_inits() -> str:
    """What becomes of a program that a rank starts and that calls init, too."""
    done = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout + done.stderr


def work() -> None:
    """A healthy rank, with a second life."""
    if "LAUNCHED_TOGETHER" in os.environ:
        await_others()
    launcher = detect_placement(dict(os.environ)).launcher
    hvd.init()
    place = {
        name: getattr(hvd, name)() for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    }
    wrong = exchange()
    child = child_that_inits() if "LAUNCHED_CHILD" in os.environ and hvd.rank() == 0 else ""
    hvd.shutdown()
    hvd.init()
    wrong += exchange()
    hvd.shutdown()
    given = {name: str(value) for name, value in settings.from_environ(os.environ).given().items()}
    report("worked", launcher=launcher, wrong=wrong, child=child, given=given, **place)


def die_between() -> None:
    """Rank 1 is killed between two steps of a loop; the others say what they saw."""
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # of launchers that stop the others: they are to finish their sentence
    hvd.init()
    for step in range(1_000_000):
        if hvd.rank() == VICTIM and step == STEPS_BEFORE:
            fall()
        try:
            hvd.allreduce(np.ones(8, np.float32), op=hvd.Sum, name=f"gradient {step % 4}")
        except (PeerLostError, ShutdownError) as error:  # killed, or ended by an exception
            report("raised", rank=hvd.rank(), message=str(error))
            sys.exit(3)


def die_in_init() -> None:
    """Rank 1 is killed when it has joined the meeting and connected to nobody."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    placement = detect_placement(dict(os.environ))
    if placement.rank == VICTIM:
        setattr(Mesh, "run", lambda *_: (await_listeners(placement.size), fall()))  # noqa: B010
    try:
        hvd.init()
    except PeerLostError as error:
        report("raised", rank=placement.rank, message=str(error))
        sys.exit(3)


def fall() -> None:
    """The end of rank 1: by a signal; with LAUNCHED_EXIT as a program that gives up, with LAUNCHED_ERROR an error."""
    report("fault")
    if "LAUNCHED_EXIT" in os.environ:
        os._exit(int(os.environ["LAUNCHED_EXIT"]))
    if "LAUNCHED_ERROR" in os.environ:
        raise ValueError(os.environ["LAUNCHED_ERROR"])
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    {"work": work, "die_between": die_between, "die_in_init": die_in_init}[sys.argv[1]]()
