"""A rank of `elastic_hosts`: commits at every step until it is told to end, and tells what it makes of faults."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from telling import Told

import horovod.numpy as hvd
from horovod._core.life import membership

END = Path(os.environ["BENCH_FOLDER"], "end")
tell = Told()


class Noting(hvd.elastic.ObjectState):
    """Tells when a rank has noticed a failure, and when the first collective after it has ended."""

    def restore(self) -> None:
        tell("noticed")
        super().restore()

    def sync(self) -> None:
        hvd.allreduce(np.ones(1), name="first")
        tell("collective", epoch=membership.epoch(), size=hvd.size())
        self.restore = super().restore  # which is part of `sync` too
        super().sync()
        del self.restore


@hvd.elastic.run
def train(state: Any) -> None:
    tell("epoch", epoch=membership.epoch(), size=hvd.size())
    over = False
    while not over:
        flags = hvd.allreduce(np.array([float(END.exists())]), name="over", op=hvd.Max)
        hvd.allreduce(np.ones(1024), name="gradient")
        state.step += 1
        state.commit()
        over = bool(flags[0])
        time.sleep(0.002)


hvd.init()
train(Noting(step=0))
