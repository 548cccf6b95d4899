"""Ranks that allreduce until they are stopped; rank 1 sleeps 50 ms before each. Argument: for how many seconds."""

from __future__ import annotations

import sys
import time

import numpy as np

import horovod.numpy as hvd


def main(seconds: float) -> None:
    """Until then, on rank 0's clock."""
    hvd.init()
    gradient, flag = np.ones(1000, np.float32), np.zeros(1, np.float32)
    until_s = time.monotonic() + seconds
    while not flag[0]:
        if hvd.rank() == 1:
            time.sleep(0.05)
        hvd.allreduce(gradient, name="gradient")
        flag[0] = hvd.rank() == 0 and time.monotonic() > until_s
        flag = hvd.allreduce(flag, name="over", op=hvd.Max)


if __name__ == "__main__":
    main(float(sys.argv[1]))
