"""What the ranks say at each level of --log-level: more at each step."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .conftest import Horovodrun

CODE = """
import numpy as np
import horovod.numpy as hvd
hvd.init()
hvd.grouped_allreduce([np.ones(4, np.float32)] * 2, name="small")
hvd.synchronize(hvd.allreduce_async(np.ones(1 << 18, np.float32), name="large"))
hvd.allgather(np.ones((2, 2)), name="rows")
"""


def said(horovodrun: Horovodrun, place: Path, level: str) -> str:
    (place / "train.py").write_text(CODE)
    done = horovodrun(f"-np 2 --log-level {level}", [sys.executable, str(place / "train.py")])
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


def test_debug_says_what_the_ranks_run_with(horovodrun: Horovodrun, tmp_path: Path) -> None:
    assert "[rank 1]" not in said(horovodrun, tmp_path, "info")
    text = said(horovodrun, tmp_path, "debug")
    assert text.count('started: {"abi":') == 2
    for word in ('"shared_memory_ranks":2', '"cores_per_rank":', '"simd":'):
        assert word in text
    assert not re.search(r"\b(allreduce|allgather) of \d+ tensor", text)  # a batch


def test_trace_says_the_way_of_every_batch(horovodrun: Horovodrun, tmp_path: Path) -> None:
    text = said(horovodrun, tmp_path, "trace")
    assert "started: " in text
    assert "allreduce of 2 tensors, 32 bytes of float32, flat: everybody combines everything" in text
    assert "allreduce of 1 tensor, 1048576 bytes of float32, streamed through shared memory" in text
    assert "allgather of 1 tensor, 32 bytes of float64, over shared memory" in text
