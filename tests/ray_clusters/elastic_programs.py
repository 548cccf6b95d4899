"""Elastic trainings, as ranks run them: they go on until the test has had its disturbance."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

_STEPS = 30
_MOST_S = 60.0


def train(marks: str) -> dict[str, Any]:
    """Steps with a commit after each; what this rank was at the end, and the sizes that its epochs had."""
    import numpy

    import horovod.numpy as hvd
    from horovod.ray import ray_logger

    place = Path(marks)
    sizes: list[int] = []
    hvd.init()
    state = hvd.elastic.ObjectState(step=0, total=0.0)
    awaited = int((place / "wait_for").read_text()) if (place / "wait_for").exists() else 0
    begin_s = time.monotonic()

    @hvd.elastic.run
    def trained(state: Any) -> None:
        sizes.append(hvd.size())
        pids = [int(each) for each in hvd.allgather(numpy.array([os.getpid()]))]
        while state.step < _STEPS or (hvd.size() < awaited and time.monotonic() - begin_s < _MOST_S):
            time.sleep(0.1)
            state.total += float(hvd.allreduce(numpy.array([1.0]), op=hvd.Sum)[0])
            state.step += 1
            ray_logger.log({"step": state.step, "pids": pids})
            if (place / "raise").exists() and hvd.rank() == 1 and state.step == 3:
                raise ValueError("the data end here")
            state.commit()

    trained(state)
    own = {"node": os.environ["HOROVOD_HOSTNAME"], "ours": os.environ.get("OURS")}
    return {"rank": hvd.rank(), "size": hvd.size(), "sizes": sizes, "total": state.total, **own}


class Model:
    """Of which each worker of each call makes one."""

    def __init__(self, width: int) -> None:
        self.width = width

    def trained(self) -> tuple[int, int, int]:
        import horovod.numpy as hvd

        hvd.init()
        hvd.barrier()
        return hvd.rank(), hvd.size(), self.width
