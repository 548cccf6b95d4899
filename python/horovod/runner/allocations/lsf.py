"""LSF: the file of `LSB_DJOB_HOSTFILE`, else `LSB_MCPU_HOSTS`, else `LSB_HOSTS`. Pure.

An entry of `choose`. Facts: IBM Spectrum LSF, "Environment variables set for job execution"; of machines with IBM's
Cluster System Manager, where the first host is the launch node, bsub's -ln_slots and -nnodes.
"""

from __future__ import annotations

import re

from horovod._core.errors import InvalidArgumentError
from horovod.runner.allocations.base import Allocation, Environment, Scheduler, Sources, checked, counted
from horovod.runner.machines.hosts import Host

_FILE = "LSB_DJOB_HOSTFILE"
_PAIRS = "LSB_MCPU_HOSTS"
_NAMES = "LSB_HOSTS"


def present(environ: Environment) -> bool:
    """This process runs in a job of LSF that says where."""
    return "LSB_JOBID" in environ and any(environ.get(name, "").strip() for name in (_FILE, _PAIRS, _NAMES))


def read(environ: Environment, sources: Sources) -> Allocation:
    """The job's hosts; without the launch node, where the Cluster System Manager has set one apart.

    Raises:
        InvalidArgumentError: what the variables say is not a list of hosts, or the file cannot be read.
    """
    source = next(name for name in (_FILE, _PAIRS, _NAMES) if environ.get(name, "").strip())
    if source == _FILE:
        path = environ[_FILE].strip()
        source = f"the file of {_FILE}"
        hosts = counted(sources.file(path).split(), path)
    elif source == _PAIRS:
        hosts = _from_pairs(environ[_PAIRS])
    else:
        hosts = counted(environ[_NAMES].split(), _NAMES)
    if "CSM_ALLOCATION_ID" in environ and len(hosts) > 1:
        hosts = hosts[1:]
    return Allocation("LSF", environ["LSB_JOBID"], hosts, source)


def _from_pairs(text: str) -> tuple[Host, ...]:
    """`hostA 2 hostB 3`."""
    words = text.split()
    slots: dict[str, int] = {}
    for name, number in zip(words[::2], words[1::2]):
        if not re.fullmatch(r"[0-9]{1,7}", number):
            raise InvalidArgumentError(
                f"{_PAIRS} must be names, each with its number of slots, like 'hostA 2 hostB 3'. Received: "
                f"{name[:60]!r} with {number[:60]!r}."
            )
        slots[name] = slots.get(name, 0) + int(number)
    if len(words) % 2:
        raise InvalidArgumentError(f"{_PAIRS} ends with {words[-1][:60]!r}, which has no number of slots.")
    return checked(slots, _PAIRS)


SCHEDULER = Scheduler("LSF", present, read)
