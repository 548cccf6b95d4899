"""The file by which a job marks a place for durable commits as its own, and how to see whether that job is alive.

Used by `owner`. A sign names its process. On the same host the kernel is asked about that process; where it gives no
answer, the sign is watched, as signs of other hosts are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import time
from collections.abc import Mapping
from typing import Any, Callable, Final, Literal, NamedTuple, Optional

from horovod._core.commits.places import Place
from horovod._net import identity

__all__ = [
    "NAME",
    "Found",
    "Here",
    "Owner",
    "Sign",
    "Verdict",
    "judged",
    "owner_of",
    "read_sign",
    "this_owner",
    "verdict",
]

NAME: Final = re.compile(r"owner-([0-9a-f]{16})\.json")
_OLD_S: Final = 600.0  # by the clocks of two hosts, which may differ by less
_MOST_BYTES: Final = 4096
_MOST_CHARACTERS: Final = 100
_SCHEDULERS: Final = (
    ("SLURM_JOB_ID", "Slurm"),
    ("FLUX_JOB_ID", "Flux"),
    ("LSB_JOBID", "LSF"),
    ("PBS_JOBID", "PBS"),
)

Verdict = Literal["living", "dead", "unknown"]


class Here(NamedTuple):
    """Where this process can ask the kernel about others."""

    boot: str
    pids: int


@dataclasses.dataclass(frozen=True)
class Owner:
    """The process that writes the commits of a job.

    Attributes:
        job: equal in all processes of a job, and in none of another one.
        host: in words.
        boot, pids: the kernel it runs under, and the namespace of its pid; empty and 0: not known.
        pid, start: its pid, and when it was started, in the kernel's ticks.
        began: when that was, in words.
        scheduler: the job's name there, in words; may be empty.
    """

    job: str
    host: str
    boot: str
    pids: int
    pid: int
    start: int
    began: str
    scheduler: str

    def __str__(self) -> str:
        """As messages name it."""
        job = f", {self.scheduler}" if self.scheduler else ""
        return f"process {self.pid} on {self.host}, which began at {self.began}{job}"

    def values(self) -> dict[str, Any]:
        """For `owner_of`."""
        return dataclasses.asdict(self)


class Sign(NamedTuple):
    """What a sign says."""

    owner: Owner
    seen_s: float
    beats: int


class Found(NamedTuple):
    """What is found of a sign.

    Attributes:
        sign: None: it is gone, or it is not what a job writes.
        error: why it cannot be read, though it is there; empty: it can.
    """

    sign: Optional[Sign] = None
    error: str = ""


def owner_of(values: Any) -> Optional[Owner]:
    """The owner that `values` describes, which anybody may have written; None: it describes none."""
    if not isinstance(values, dict):
        return None
    found: dict[str, Any] = {}
    for field in dataclasses.fields(Owner):
        value = values.get(field.name)
        if not isinstance(value, int if field.type == "int" else str):
            return None
        found[field.name] = _shown(value) if isinstance(value, str) else value
    return Owner(**found)


def verdict(
    owner: Owner, seen_s: float, here: Here, now_s: float, runs: Callable[[int, int], Optional[bool]]
) -> Verdict:
    """Whether the job of this owner is alive, as far as that can be known at once.

    Args:
        owner: of a sign.
        seen_s: the time of its clock when the sign was refreshed last.
        here: of this process.
        now_s: the time of this host's clock.
        runs: (pid, start) -> whether that process runs here; None: the kernel does not tell.
    """
    if here.boot and here.pids and (owner.boot, owner.pids) == here:
        found = runs(owner.pid, owner.start)
        return "unknown" if found is None else "living" if found else "dead"
    return "dead" if now_s - seen_s > _OLD_S else "unknown"


def judged(sign: Sign) -> Verdict:
    """`verdict` on a sign, by this process."""
    return verdict(sign.owner, sign.seen_s, _here(), time.time(), identity.is_running)


def this_owner(environ: Mapping[str, str], elastic: bool) -> Owner:
    """This process.

    Args:
        environ: its variables.
        elastic: the job is elastic: another process may become rank 0, and the launcher has given the job a name.
    """
    now_s = time.time()
    place = identity.parent_and_start(os.getpid())
    names = (f"{name} job {environ[variable]}" for variable, name in _SCHEDULERS if environ.get(variable))
    here = _here()
    job = environ.get("HOROVOD_JOB_ID", "") if elastic else ""
    job = job or f"{identity.hostname()}/{here}/{os.getpid()}/{place}"
    return Owner(
        job=hashlib.blake2b(job.encode(), digest_size=8, person=b"hvd owner").hexdigest(),
        host=identity.hostname(),
        boot=here.boot,
        pids=here.pids,
        pid=os.getpid(),
        start=place[1] if place else 0,
        began=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s - _age_s(place))),
        scheduler=next(names, ""),
    )


def read_sign(where: Place, name: str) -> Found:
    """What is found of the sign of this name."""
    import json  # few ranks write commits

    try:
        text = where.peek(name, _MOST_BYTES)
    except FileNotFoundError:
        return Found()
    except OSError as error:
        return Found(error=error.strerror or str(error))
    try:
        values = json.loads(text)
        owner = owner_of(values)
        return Found() if owner is None else Found(Sign(owner, float(values["seen_s"]), int(values["beats"])))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return Found()


def _here() -> Here:
    return Here(identity.host_identity().boot_id, identity.pid_namespace())


def _age_s(place: Optional[tuple[int, int]]) -> float:
    """How long ago the process at this place was started."""
    if place is None:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - place[1] / os.sysconf("SC_CLK_TCK"))


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:_MOST_CHARACTERS])
