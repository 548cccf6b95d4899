"""A job that begins with few connections: how many descriptors its ranks have, that a second life and children leave
nothing open, and that a rank which dies is told to all."""

from __future__ import annotations

import pytest
from jobs import on_hosts, run

_FEW = {"HOROVOD_FULL_MESH_RANKS": "0"}
_OWN = 30  # descriptors of Python, the engine, the claims and the thread that connects

_COUNT = """
import os
import numpy as np
import horovod.numpy as hvd
from jobs.report import report
hvd.init()
open_now = lambda: len(os.listdir("/proc/self/fd"))
counts = [open_now()]
hvd.allreduce(np.ones(1 << 16, np.float32))
counts.append(open_now())
assert list(hvd.alltoall(np.arange(hvd.size()) * 1000 + hvd.rank())[:2]) == [1000 * hvd.rank(), 1000 * hvd.rank() + 1]
counts.append(open_now())
report("open", rank=hvd.rank(), counts=counts)
hvd.shutdown()
"""

_LIVES = """
import os, signal, threading
import numpy as np
import horovod.numpy as hvd
from jobs.report import report
open_now = lambda: (len(os.listdir("/proc/self/fd")), threading.active_count())
for life in range(4):
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    hvd.alltoall(np.arange(size))
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    hvd.alltoall(np.arange(size))
    hvd.shutdown()
    report("life", rank=rank, life=life, left=open_now())
hvd.init()
try:
    hvd.allreduce(np.ones(3))  # may fail elsewhere: the death overtakes the result
    if hvd.rank() == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        hvd.allreduce(np.ones(1 << 16, np.float32))
except RuntimeError as error:
    report("lost", rank=rank, error=type(error).__name__, text=str(error))
"""


@pytest.mark.slow
def test_descriptors_of_eight_hosts_of_four() -> None:
    ended = run(on_hosts((4,) * 8, "-c", _COUNT, warm="numpy"), _FEW, patience_s=120)
    counts = [event["counts"] for event in ended.of("open")]
    assert len(counts) == 32 and ended.code == 0, str(ended)
    in_tree, between_hosts = 7, 3
    assert max(count[0] for count in counts) <= _OWN + 2 * 3 + in_tree, counts
    assert max(count[1] for count in counts) <= _OWN + 2 * 3 + in_tree + 2 * between_hosts, counts
    assert max(count[2] for count in counts) <= _OWN + 2 * 3 + in_tree + 28, counts


def test_lives_children_and_a_death() -> None:
    ended = run(on_hosts((2, 1), "-c", _LIVES, warm="numpy"), _FEW, patience_s=60)
    lives = ended.of("life")
    assert len(lives) == 12, str(ended)
    for rank in range(3):
        left = [event["left"] for event in lives if event["rank"] == rank]
        assert left[1:] == [left[1]] * 3, "a claim more after the second life, then nothing"
        assert all(threads == 1 for _, threads in left)
    assert sorted(event["rank"] for event in ended.of("lost")) == [0, 1], str(ended)
    assert all(event["error"] == "PeerLostError" and "rank 2" in event["text"] for event in ended.of("lost"))
