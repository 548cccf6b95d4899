"""Probes of the machine: system, processor, limits, shared memory. Files are read through `root`, so that tests
need no other machine."""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Optional

from horovod.runner.doctor import availability
from horovod.runner.doctor.findings import FACT, FAULT, WORKS, Finding, size_text
from horovod.runner.machines import cores, limits

_LEAST_FILES: Final = 256  # a rank of a job of 32 on one host holds about 110, a launcher of 32 ranks 320
_LEAST_PROCESSES: Final = 256
_LEAST_LOCKED: Final = 64 << 20
_FULL: Final = 0.95


def system() -> list[Finding]:
    """Python, the kernel, the C library."""
    libc = " ".join(platform.libc_ver()) or "unknown C library"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    found = [
        Finding(python, WORKS, sys.executable),
        Finding(f"{platform.system()} {platform.release()} on {platform.machine()}", WORKS, libc),
    ]
    without_proc = limits.why_without_proc()
    if without_proc:
        found.append(Finding("/proc", FAULT, without_proc))
    return found


def processor(environ: Mapping[str, str], root: str = "/") -> list[Finding]:
    """Cores that a job may use here, and what sets the number of threads of each rank."""
    present, usable_here = os.cpu_count() or 1, cores.usable_cores(root)
    allowed, quota = len(os.sched_getaffinity(0)), cores.cgroup_quota(Path(root))
    fact = f"of {present}"
    if allowed < present:
        fact += f"; this process is restricted to {allowed}"
    if quota is not None:
        fact += f"; its control group grants {quota:g}"
    threads = environ.get("OMP_NUM_THREADS")
    said = "not set; horovodrun sets it to the cores per rank" if threads is None else threads
    return [Finding(f"{usable_here} usable cores", FACT, fact), Finding("OMP_NUM_THREADS", FACT, said)]


def user_limits(root: str = "/") -> list[Finding]:
    """What this user may open, start and lock, and what the control group adds to that."""
    found = [
        _limit("open files", resource.RLIMIT_NOFILE, "ulimit -n", _LEAST_FILES),
        _limit("processes and threads", resource.RLIMIT_NPROC, "ulimit -u", _LEAST_PROCESSES),
        _locked_memory(),
        _limit("address space", resource.RLIMIT_AS, "ulimit -v", 64 << 30, in_bytes=True),
        _limit("size of files", resource.RLIMIT_FSIZE, "ulimit -f", 1 << 30, in_bytes=True),
    ]
    for name, files in (("processes of the control group", ("pids.max", "pids/pids.max")),
                        ("memory of the control group", ("memory.max", "memory/memory.limit_in_bytes"))):  # fmt: skip
        number = _first_number(Path(root, "sys/fs/cgroup"), files)
        if number is not None:
            found.append(Finding(name, FACT, size_text(number) if "memory" in name else str(number)))
    return found


def shared_memory(root: str = "/") -> list[Finding]:
    """What ranks of this host exchange data through, and what their data loaders do."""
    why_not = availability.shared_memory_why_not()
    remedy = "Without it ranks of this host exchange data through sockets; allow memfd_create (seccomp)."
    found = [Finding("memfd", FAULT if why_not else WORKS, why_not or "ranks of this host share memory", remedy)]
    place = Path(root, "dev/shm")
    try:
        about = os.statvfs(place)
    except OSError as error:
        return [*found, Finding("/dev/shm", FAULT, error.strerror or str(error), "PyTorch's data loaders need it.")]
    size, free = about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize
    fact = f"{size_text(size)}, {size_text(size - free)} of it used"
    full = size > 0 and size - free > _FULL * size
    remedy = (
        "Horovod does not need it, but worker processes of data loaders die with a bus error: remove leftover files "
        "there, or give the container more (docker run --shm-size)."
    )
    return [*found, Finding("/dev/shm", FAULT if full else WORKS, f"full: {fact}" if full else fact, remedy)]


def _limit(name: str, kind: int, command: str, least: int, in_bytes: bool = False) -> Finding:
    soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(kind))
    text = [("unlimited" if value is None else size_text(value) if in_bytes else str(value)) for value in (soft, hard)]
    fact = f"{text[0]} ({command})" if soft == hard else f"{text[0]}, at most {text[1]} ({command})"
    if soft is None or soft >= least:
        return Finding(name, WORKS, fact)
    enough = size_text(least) if in_bytes else str(least)
    return Finding(name, FAULT, fact, f"Jobs of several ranks need {enough} or more: raise it before horovodrun.")


def _locked_memory() -> Finding:
    found = _limit("locked memory", resource.RLIMIT_MEMLOCK, "ulimit -l", _LEAST_LOCKED, in_bytes=True)
    # Nothing of ours locks memory; InfiniBand's verbs, under MPI and NCCL, do.
    return found if found.state == WORKS else Finding(found.name, FACT, f"{found.fact}; InfiniBand needs it unlimited")


def _first_number(place: Path, names: tuple[str, ...]) -> Optional[int]:
    for name in names:
        try:
            word = (place / name).read_text().strip()
        except OSError:
            continue
        # Version 1 says "no limit" as the largest number of pages.
        return int(word) if word.isdecimal() and int(word) < 1 << 62 else None
    return None
