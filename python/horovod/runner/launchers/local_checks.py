"""What was asked for, against this machine: what it cannot do is refused, what does nothing here is said.

Used by `local`.
"""

from __future__ import annotations

import socket
from typing import Final

from horovod._core.errors import InvalidArgumentError
from horovod.runner.cores import can_be_pinned_to, threads_per_rank, usable_cores
from horovod.runner.job import Job

_CROWDED: Final = 4  # ranks per core; up to here it may be meant


def refuse_impossible(job: Job) -> None:
    """Network interfaces and cores that this machine does not have.

    Raises:
        InvalidArgumentError: names them, and those that there are.
    """
    wanted = job.settings.network_interfaces or ()
    found = [name for _, name in socket.if_nameindex()]
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InvalidArgumentError(
            f"--network-interface {missing[0]}: this machine has no such network interface; it has {', '.join(found)}."
        )
    cores: list[int] = list(job.settings.thread_affinity or ())
    if len(cores) == 1:
        cores = list(range(cores[0], cores[0] + job.size))
    if 0 < len(cores) < job.size:
        raise InvalidArgumentError(
            f"--thread-affinity names {len(cores)} cores for {job.size} ranks; give one core per local rank, or a "
            "single number to count up from."
        )
    refused = [core for core in cores[: job.size] if not can_be_pinned_to(core)]
    if refused:
        raise InvalidArgumentError(
            f"--thread-affinity: no thread may run on core {refused[0]}; this process may use {usable_cores()} cores. "
            "Give one core per local rank, or a single number to count up from, or leave the option out."
        )


def summary(job: Job) -> str:
    """How the ranks will share this machine."""
    cores = usable_cores()
    threads = job.environ.get("OMP_NUM_THREADS") or threads_per_rank(job.size)
    means = "TCP, as HOROVOD_TRANSPORT asks for" if job.settings.transport == "tcp" else "shared memory"
    if job.size == 1:
        means = "nothing, being alone"
    return (
        f"{job.size} {'rank' if job.size == 1 else 'ranks'} on this machine, over {means}; {cores} usable "
        f"{'core' if cores == 1 else 'cores'}, {cores / job.size:.3g} for each; OMP_NUM_THREADS={threads}"
    )


def remarks(job: Job) -> list[str]:
    """What has no effect when all ranks are on one host, and ranks that crowd its cores."""
    texts = []
    if job.settings.hierarchical_allreduce:
        texts.append("--hierarchical-allreduce has no effect on one host, where there is one level only.")
    cores = usable_cores()
    if job.size > _CROWDED * cores:
        texts.append(
            f"{job.size} ranks share {cores} {'core' if cores == 1 else 'cores'}, so they will take turns: good for "
            f"trying a script out, slow for training. -np {cores} gives each a core."
        )
    return texts
