"""PBS (OpenPBS, PBS Professional, TORQUE): the file of `PBS_NODEFILE`, a host name per line and slot. Pure.

An entry of `choose`. Facts: the manual page of qsub; a chunk asked for with mpiprocs=N stands there N times.
"""

from __future__ import annotations

from horovod.runner.allocations.base import Allocation, Environment, Scheduler, Sources, counted

_FILE = "PBS_NODEFILE"


def present(environ: Environment) -> bool:
    """This process runs in a job of PBS that says where."""
    return "PBS_JOBID" in environ and bool(environ.get(_FILE, "").strip())


def read(environ: Environment, sources: Sources) -> Allocation:
    """The job's hosts.

    Raises:
        InvalidArgumentError: the file cannot be read, or names no host.
    """
    path = environ[_FILE].strip()
    names = (line.strip() for line in sources.file(path).splitlines())
    hosts = counted((name for name in names if name), path)
    return Allocation("PBS", environ["PBS_JOBID"], hosts, f"the file of {_FILE}")


SCHEDULER = Scheduler("PBS", present, read)
