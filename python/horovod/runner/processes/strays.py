"""Processes of a job that called hvd.init() without the launcher's variables: how many there are, and what is said.

Each leaves a mark in the job's directory on its host (`horovod._net.clusters.lone`). Used by `arrivals`, by the crews
of elastic jobs, by `remote.host_side.workplace`, and where a job has ended.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from horovod._net.clusters.lone import MARK


def strays_in(directory: Path) -> int:
    """How many there were in the job that has this directory, which may be gone."""
    with contextlib.suppress(OSError):
        return sum(name.startswith(MARK) for name in os.listdir(directory))
    return 0


def sentence_on_strays(count: int) -> str:
    """A sentence about them, behind another one; empty if there are none."""
    if not count:
        return ""
    return (
        f" {count} {'process' if count == 1 else 'processes'} called hvd.init() without the variables that horovodrun "
        "gives to every rank: something in between, such as env -i, sudo or a module wrapper, has cleared the "
        "environment. Let the variables that begin with HOROVOD_ and _HOROVOD_ through."
    )
