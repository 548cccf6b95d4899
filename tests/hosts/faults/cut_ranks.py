"""A rank whose link is cut: idle, or in collectives of 64 MB, until a file named "stop" appears. Run by `cuts`.

Words: the folder of that file, "idle" or "busy", "static" or "elastic".
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import horovod.numpy as hvd

FOLDER, LOAD, KIND = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
PAUSE_S = 0.05
ELEMENTS = (64 << 20) // 4


def stopped() -> bool:
    return (FOLDER / "stop").exists()


def begun() -> None:
    (FOLDER / f"begun.{hvd.rank()}").touch()


def work(commit: Callable[[], None]) -> None:
    """Ends on all ranks together."""
    tensor = np.ones(ELEMENTS if LOAD == "busy" else 8, np.float32)
    begun()
    while True:
        while LOAD == "idle" and not stopped():
            time.sleep(PAUSE_S)
        tensor[0] = float(stopped())
        result = hvd.allreduce(tensor, op=hvd.Sum, name="tensor")
        if not (result[1:] == hvd.size()).all():
            raise SystemExit("a wrong sum")
        if result[0] > 0:
            break
        commit()
    (FOLDER / f"done.{hvd.rank()}.of.{hvd.size()}").touch()


@hvd.elastic.run
def train(state: hvd.elastic.ObjectState) -> None:
    work(state.commit)


hvd.init()
if KIND == "elastic":
    train(hvd.elastic.ObjectState(step=0))
else:
    work(lambda: None)
