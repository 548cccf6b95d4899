"""A rank of `elastic_recovery` and `elastic_hosts`: commits at every step, and tells what it makes of faults.

It tells by lines of JSON in a file of its own, in the folder that BENCH_FOLDER names. With BENCH_KILL the last rank
kills itself after some steps, and the others train to the end; else all train until there is a file `end`.
"""

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

KILLS = os.environ.get("BENCH_KILL") == "1"
STEPS, WARM = 40, 10
FOLDER = Path(os.environ["BENCH_FOLDER"])
LOG = (FOLDER / f"rank.{os.environ.get('HOROVOD_HOSTNAME', '')}.{os.getpid()}").open("a", buffering=1)  # noqa: SIM115


def tell(what: str, **more: object) -> None:
    LOG.write(json.dumps({"what": what, "at": time.monotonic(), **more}) + "\n")


class Noting(hvd.elastic.ObjectState):
    """Tells when a rank has noticed a failure, and when the first collective after it has ended."""

    def restore(self) -> None:
        tell("noticed")
        super().restore()
        tell("restored")

    def sync(self) -> None:
        hvd.allreduce(np.ones(1), name="first")
        tell("collective", epoch=membership.epoch(), size=hvd.size())
        self.restore = super().restore  # which is part of `sync` too
        super().sync()
        tell("synced")
        del self.restore


@hvd.elastic.run
def train(state: Any) -> None:
    tell("epoch", epoch=membership.epoch(), size=hvd.size())
    over = False
    while not over:
        if KILLS and membership.epoch() == 0 and state.step == WARM and hvd.rank() == hvd.size() - 1:
            tell("kill")
            os.kill(os.getpid(), signal.SIGKILL)
        ends = state.step >= STEPS if KILLS else (FOLDER / "end").exists()
        flags = hvd.allreduce(np.array([float(ends)]), name="over", op=hvd.Max)
        hvd.allreduce(np.ones(1024), name="gradient")
        state.step += 1
        state.commit()
        over = bool(flags[0])
        time.sleep(0.002)


hvd.init()
train(Noting(step=0, weights=np.zeros(int(float(os.environ.get("BENCH_MEGABYTES", "0")) * 131072))))
