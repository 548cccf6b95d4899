"""A rank of `elastic_recovery`: commits at every step; the last one kills itself when it is told to."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import horovod.numpy as hvd
from horovod._core.life import membership
from horovod._net.handshake.connect import Mesh

KILLS = os.environ["BENCH_KILL"] == "1"
STEPS = 40 if KILLS else 3000
WARM = 10
LOG = Path(os.environ["BENCH_FOLDER"], str(os.getpid())).open("a", buffering=1)  # noqa: SIM115


def tell(what: str, **more: float) -> None:
    LOG.write(json.dumps({"what": what, "at": time.monotonic(), **more}) + "\n")


def tell_after(owner: Any, name: str, what: str) -> None:
    """Tells when this function of the library has returned."""
    function = getattr(owner, name)

    def told(*words: Any) -> Any:
        result = function(*words)
        tell(what)
        return result

    setattr(owner, name, told)


class Noting(hvd.elastic.ObjectState):
    """Tells when a rank has noticed a failure, and when the first collective after it has ended."""

    def restore(self) -> None:
        tell("noticed")
        super().restore()
        tell("restored")

    def sync(self) -> None:
        hvd.allreduce(np.ones(1), name="first")
        tell("collective")
        self.restore = super().restore  # which is part of `sync` too
        super().sync()
        tell("synced")
        del self.restore


@hvd.elastic.run
def train(state: Any) -> None:
    began = time.monotonic()
    while state.step < STEPS:
        if KILLS and membership.epoch() == 0 and state.step == WARM and hvd.rank() == hvd.size() - 1:
            tell("kill")
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(np.ones(1024), name="gradient")
        state.step += 1
        state.commit()
    tell("end", steps_per_s=STEPS / (time.monotonic() - began))


tell_after(membership, "take_place", "placed")
tell_after(Mesh, "run", "connected")
tell_after(Mesh, "confirm", "running")
hvd.init()
train(Noting(step=0, weights=np.zeros(int(float(os.environ["BENCH_MEGABYTES"]) * 131072))))
