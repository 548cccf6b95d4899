"""Where the ranks of a job on several hosts can meet, when they hold a secret that the user has given. Pure.

Rank 0 keeps a board at an address that all ranks work out alike: one that the user names, else `MASTER_ADDR`, else the
first host in a list of the launcher: one small plug-in each. The port is named too, or follows from the name of the
job, so that two jobs on a host rarely want the same one. Used by fact_exchange; see docs/design/0016.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Callable, Final, Optional

from horovod._net.clusters.launchers import LAUNCHERS
from horovod._net.clusters.placement import MeetingPoint
from horovod._net.clusters.slurm_counts import first_host
from horovod._net.failures import PlacementError

ADDRESS_VARIABLE: Final = "HOROVOD_MEETING_ADDRESS"
_MASTER: Final = "MASTER_ADDR"
# Above what services use and below what kernels give out by themselves, and without torchrun's own 29500.
MEETING_PORTS: Final = range(20000, 29000)
_NAMED: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]{1,253}))(?::([0-9]{1,5}))?")

Environment = Mapping[str, str]

# What tells jobs of a launcher apart on all hosts alike, where that is less than what does on one: each of torchrun's
# agents counts restarts by itself; jsrun's number of a step is that of PMIx.
_SHARED_BY_HOSTS: Final = {
    "torchrun": ("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    "jsrun": ("LSB_JOBID", "PMIX_NAMESPACE"),
}


def meeting_point(launcher: str, env: Environment, named: Optional[str]) -> Optional[MeetingPoint]:
    """Where the ranks meet; None: nothing tells.

    Args:
        launcher: the launcher of this rank.
        env: its environment.
        named: by the user: a host, or `host:port`.

    Raises:
        PlacementError: what the user has named is neither.
    """
    job = _job(launcher, env)
    derived = MEETING_PORTS[int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "big") % len(MEETING_PORTS)]
    if named:
        host, port = _named(named)
        return MeetingPoint(host, port or derived, f"{ADDRESS_VARIABLE}={named}", job)
    master = env.get(_MASTER, "").strip()
    if master:
        return MeetingPoint(master, derived, f"{_MASTER}={master}", job)
    first, variable = _FIRST_HOSTS.get(launcher, _nowhere)(env)
    return MeetingPoint(first, derived, f"the first host of {variable}", job) if first else None


def _named(text: str) -> tuple[str, int]:
    match = _NAMED.fullmatch(text.strip())
    port = int(match.group(3) or 0) if match else 0
    if match is None or port >= 1 << 16 or (match.group(3) and not port):
        raise PlacementError(
            f"{ADDRESS_VARIABLE} must be the host of rank 0, or that and a port: node7, node7:29400 or "
            f"[fd00::7]:29400. Received: {text!r}."
        )
    return match.group(1) or match.group(2), port


def _job(launcher: str, env: Environment) -> str:
    known = next((each.job_variables for each in LAUNCHERS if each.name == launcher), ())
    variables = _SHARED_BY_HOSTS.get(launcher, known)
    return "/".join([launcher, *(f"{name}={env.get(name, '')}" for name in variables)])


# ---- the first host of a launcher's list, and the variable that has it


def _nowhere(env: Environment) -> tuple[str, str]:
    return "", ""


def _of_srun(env: Environment) -> tuple[str, str]:
    return first_host(env.get("SLURM_STEP_NODELIST", "")), "SLURM_STEP_NODELIST"


def _of_jsrun(env: Environment) -> tuple[str, str]:
    """LSF's list: names, each with its number of slots; with the Cluster System Manager the launch node comes first."""
    names = env.get("LSB_MCPU_HOSTS", "").split()[::2]
    if "CSM_ALLOCATION_ID" in env:
        names = names[1:] or names
    return (names[0] if names else ""), "LSB_MCPU_HOSTS"


# Flux, PALS and PMIx tell a task no list of hosts.
_FIRST_HOSTS: Final[dict[str, Callable[[Environment], tuple[str, str]]]] = {"srun": _of_srun, "jsrun": _of_jsrun}
