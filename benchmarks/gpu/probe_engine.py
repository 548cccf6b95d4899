"""What the engine adds: to an allreduce by NCCL, and to a launch of the packing kernel. On one GPU.

Run by `run_all`; `engine_rank` is the ranks' program. Two processes have the GPU in turns and NCCL's sockets between
them, so an allreduce takes milliseconds whoever calls it: the time until the call returns tells the engine's own part,
the time until the stream's end shows that nothing waits twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import job
import libraries
from table import Table

_RANKS = str(Path(__file__).with_name("engine_rank.py"))
_OWN_TIME = str(Path(__file__).with_name("own_time_rank.py"))


def parts() -> list[Callable[[], Table]]:
    """Jobs of one rank, of two, of two that the core takes to share the GPU, and of two with nothing to wait for."""
    return [_alone, _two, _staged, _own_time]


def _alone() -> Table:
    made = Table("One rank: the packing kernel through the engine", ("what", "us", "share of the copy rate", "result"))
    rows, made.note = job.rows_of(_RANKS, 60, "alone", ranks=1)
    made.rows = [tuple(row) for row in rows]
    return made


def _two() -> Table:
    made = Table(
        "Two NCCL members on one GPU: the engine beside ncclAllReduce",
        ("what", "until the call returns, us", "until the stream is through, us", "result"),
    )
    _, path = libraries.open_library("nccl")
    variables = {"HOROVOD_NCCL_PATH": path} if "/" in path else {}  # the same one for both
    rows, made.note = job.rows_of(_RANKS, 100, "two", variables=variables)
    made.rows = [tuple(row) for row in rows]
    return made


def _staged() -> Table:
    made = Table(
        "Two ranks on one GPU through the host, both at once", ("what", "us", "a copy's time over this", "result")
    )
    rows, made.note = job.rows_of(_RANKS, 60, "staged")
    made.rows = [tuple(row) for row in rows]
    return made


def _own_time() -> Table:
    made = Table(
        "Two NCCL members, the device free: the core's own time through the C interface",
        ("what", "us", "calls of driver and NCCL"),
    )
    rows, made.note = job.rows_of(_OWN_TIME, 60)
    made.rows = [tuple(row) for row in rows]
    return made
