"""The explicit resource file that says where jsrun runs each rank, and with which processors. Pure.

Used by `launchers.jsrun`. Facts: IBM Spectrum LSF Job Step Manager, "Explicit Resource File (ERF) format"; Oak Ridge
Leadership Computing Facility, "ERF CPU indexing": logical numbers run from 0 without gaps, whatever cores the system
keeps to itself and however many threads of each core are in use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from horovod._core.errors import InvalidArgumentError
from horovod.runner.machines.hosts import Host

_HEAD: Final = ("overlapping-rs: allow", "cpu_index_using: logical")
_THREADS: Final = re.compile(r"^Thread\(s\) per core:\s*([0-9]{1,3})\s*$", re.MULTILINE)
LSCPU: Final = "LC_ALL=C lscpu"  # for a shell on another host


def text(hosts: Sequence[Host], cpus: Mapping[str, int]) -> str:
    """The file. Each rank gets an equal share of its host's processors, and may use all of its GPUs and memory.

    Args:
        hosts: with the ranks that each gets, in the order of the ranks.
        cpus: that the job may use on each host.

    Raises:
        InvalidArgumentError: a host is none of the job's, or has more ranks than processors.
    """
    lines = list(_HEAD)
    rank = 0
    for host in hosts:
        there = cpus.get(host.hostname)
        if there is None:
            raise InvalidArgumentError(
                f"{host.hostname} is not a host of this LSF job, which has {', '.join(cpus)}; jsrun starts ranks on "
                "those only."
            )
        if host.slots > there:
            raise InvalidArgumentError(
                f"{host.slots} ranks on {host.hostname} cannot have a processor each: the job has {there} there. Start "
                "fewer ranks, or bind them yourself with --binding-args."
            )
        share = there // host.slots
        for local_rank in range(host.slots):
            first = local_rank * share
            lines.append(f"rank: {rank}: {{ host: {host.hostname}; cpu: {_range(first, share)}; gpu: *; mem: * }}")
            rank += 1
    return "\n".join(lines) + "\n"


def threads_per_core(lscpu: str) -> int:
    """How many threads of each core are in use, from what lscpu prints.

    Raises:
        InvalidArgumentError: it does not say so.
    """
    found = _THREADS.search(lscpu[: 1 << 16])
    if found is None or int(found.group(1)) < 1:
        raise InvalidArgumentError(
            f"lscpu does not say how many threads a core has ({' '.join(lscpu.split())[:100]!r}), so ranks cannot be "
            "given processors. Bind them yourself with --binding-args."
        )
    return int(found.group(1))


def _range(first: int, count: int) -> str:
    return f"{{{first}-{first + count - 1}}}" if count > 1 else f"{{{first}}}"
