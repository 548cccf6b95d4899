"""Slurm: `SLURM_JOB_NODELIST` and `SLURM_TASKS_PER_NODE` of salloc and sbatch. Pure.

An entry of `choose`. Facts: the manual pages of salloc, sbatch and srun, "OUTPUT ENVIRONMENT VARIABLES".
"""

from __future__ import annotations

from horovod._core.errors import InvalidArgumentError
from horovod._net.clusters.slurm_counts import in_srun_step, run_lengths
from horovod.runner.allocations import host_lists
from horovod.runner.allocations.base import MOST_HOSTS, Allocation, Environment, Scheduler, Sources, checked

_HOSTS = "SLURM_JOB_NODELIST"
_TASKS = "SLURM_TASKS_PER_NODE"


def present(environ: Environment) -> bool:
    """This process runs in a job of Slurm."""
    return "SLURM_JOB_ID" in environ and _HOSTS in environ


def read(environ: Environment, sources: Sources) -> Allocation:
    """The job's nodes, and as many slots on each as it has tasks there.

    Raises:
        InvalidArgumentError: this process is one of several tasks of a step, the job has several components, or the
            variables contradict each other.
    """
    del sources
    if in_srun_step(environ) and environ.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        raise InvalidArgumentError(
            f"srun has started horovodrun {environ['SLURM_STEP_NUM_TASKS']} times, once per task, and each would take "
            "the whole allocation. Start the program itself with srun, or horovodrun once, from the batch script or "
            "with srun -n 1; -H localhost:N starts N ranks on this host alone."
        )
    if "SLURM_HET_SIZE" in environ:
        raise InvalidArgumentError(
            f"This Slurm job is heterogeneous: it has {environ['SLURM_HET_SIZE']} components, each with its own list "
            "of hosts. Name the hosts yourself with -H."
        )
    names = host_lists.expand(environ[_HOSTS], _HOSTS)
    if _TASKS not in environ:
        raise InvalidArgumentError(f"{_HOSTS} is set, but {_TASKS} is not, so the slots are not known; use -H.")
    counts = run_lengths(environ[_TASKS], MOST_HOSTS)
    if counts is None:
        raise InvalidArgumentError(f"{_TASKS} must be a list like '2(x3),1'. Received: {environ[_TASKS][:200]!r}.")
    if len(counts) != len(names):
        raise InvalidArgumentError(
            f"{_TASKS} has numbers for {len(counts)} nodes, but {_HOSTS} names {len(names)}: in a step, srun reports "
            "the tasks of this step only. Start horovodrun from the batch script or from salloc, or name hosts with -H."
        )
    slots: dict[str, int] = {}
    for name, count in zip(names, counts):
        slots[name] = slots.get(name, 0) + count
    hosts = checked(slots, f"{_HOSTS} with {_TASKS}")
    return Allocation("Slurm", environ["SLURM_JOB_ID"], hosts, f"{_HOSTS} and {_TASKS}")


SCHEDULER = Scheduler("Slurm", present, read)
