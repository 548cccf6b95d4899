"""What was asked for, against this machine: what it cannot do is refused, what does nothing here is said.

Used by `local`.
"""

from __future__ import annotations

import socket

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import label
from horovod.runner.job import Job
from horovod.runner.machines import core_sharing
from horovod.runner.machines.cores import usable_cores


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
    core_sharing.refuse_missing_cores(job.settings.thread_affinity or (), job.size)


def summary(job: Job) -> str:
    """How the ranks will share this machine."""
    means = "TCP, as HOROVOD_TRANSPORT asks for" if job.settings.transport == "tcp" else "shared memory"
    cores = core_sharing.cores_text(job.size, job.environ.get("OMP_NUM_THREADS", ""))
    if job.size == 1:
        return f"1 rank on this machine; {cores}"
    return f"{job.size} ranks on this machine, over {means}; {cores}"


def remarks(job: Job) -> list[str]:
    """What has no effect when all ranks are on one host, and ranks that crowd its cores."""
    texts = []
    for name in ("hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce"):
        if getattr(job.settings, name):
            texts.append(f"{label(job.settings, name)} has no effect on one host, where there is one level only.")
    if crowd := core_sharing.crowding(job.size):
        texts.append(f"{crowd} -np {usable_cores()} gives each a core.")
    return texts
