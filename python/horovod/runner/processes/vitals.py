"""What the ranks of this host have used so far: processor time, and bytes of input and output.

Used by `process`. `standstill` decides from it which ranks stand still.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Optional

_PROC: Final = Path("/proc")
_TRACED: Final = "t"  # by a debugger, which the user is working with
_ZOMBIE: Final = "Z"
_COUNTED: Final = ("rchar", "wchar", "read_bytes")  # the last one counts page faults of mapped files


class Vitals(NamedTuple):
    """What a rank has used since its start: its process and all its descendants, ended ones included.

    Attributes:
        processor_s: of the program, Horovod's engine, and the kernel for both.
        io_bytes: read and written. What goes over sockets is not counted by the kernel.
    """

    processor_s: float
    io_bytes: int


class _Process(NamedTuple):
    parent: int
    group: int
    state: str
    ticks: int


def read(
    pids: Mapping[int, int], programs: Mapping[int, int] = MappingProxyType({}), proc: Path = _PROC
) -> dict[int, Optional[Vitals]]:
    """The vitals of each rank whose process is there.

    Args:
        pids: of the ranks' first processes, each of which leads a group.
        programs: of the processes in which ranks have called init(), where they are known.
        proc: the kernel's view of the processes.

    Returns:
        By rank; None where the kernel does not tell all, a debugger holds one of the processes, or the program runs
        elsewhere: a daemon has started it. A program whose process is not seen here does not count.
    """
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    processes = {int(name): each for name in os.listdir(proc) if name.isdecimal() and (each := _read(proc / name))}
    rank_of = {pid: rank for rank, pid in pids.items() if pid in processes}
    found: dict[int, Optional[Vitals]] = {rank: Vitals(0.0, 0) for rank in rank_of.values()}
    for pid, process in processes.items():
        rank = _rank_of(pid, processes, rank_of)
        so_far = None if rank is None else found[rank]
        if rank is None or so_far is None:
            continue
        io_bytes = 0 if process.state == _ZOMBIE else _io_bytes(proc / str(pid))
        if io_bytes is None or process.state == _TRACED:
            found[rank] = None
        else:
            found[rank] = Vitals(so_far.processor_s + process.ticks / ticks_per_s, so_far.io_bytes + io_bytes)
    for rank, pid in programs.items():
        if rank in found and pid in processes and _rank_of(pid, processes, rank_of) is None:
            found[rank] = None
    return found


def processor_ns(pid: int, proc: Path = _PROC) -> Optional[int]:
    """What this process alone has used; None: it is not a process of this user."""
    try:
        with (proc / str(pid) / "stat").open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            words = file.read().rpartition(b")")[2].split()
        return sum(map(int, words[11:13])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None  # it has ended


def lineage(pid: int, proc: Path = _PROC) -> list[int]:
    """The process, its ancestors, and the leader of its group, by which it is known if its parent has ended."""
    found: list[int] = []
    groups: list[int] = []
    while pid not in found and (each := _read(proc / str(pid))) is not None:
        found.append(pid)
        groups.append(each.group)
        pid = each.parent
    return [*found, *groups[:1]]


def _rank_of(pid: int, processes: Mapping[int, _Process], rank_of: Mapping[int, int]) -> Optional[int]:
    """The rank from which a process descends; if its parent has ended, it is known by its process group."""
    at: int = pid
    for _ in processes:  # no path is longer, and one that was read piece by piece may be a circle
        if at in rank_of:
            return rank_of[at]
        if at not in processes:
            break
        at = processes[at].parent
    return rank_of.get(processes[pid].group)


def _read(place: Path) -> Optional[_Process]:
    try:
        # From the third field on; the name, before them, may hold anything.
        words = (place / "stat").read_bytes().rpartition(b")")[2].split()
        return _Process(int(words[1]), int(words[2]), words[0].decode(), sum(map(int, words[11:15])))
    except (OSError, IndexError, ValueError):
        return None  # it has just ended


def _io_bytes(place: Path) -> Optional[int]:
    try:
        lines = (place / "io").read_text("ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None if place.exists() else 0  # a kernel that does not count; or it has just ended
    except OSError:
        return None
    numbers = dict(line.split(": ") for line in lines if ": " in line)
    return sum(int(numbers.get(name, 0)) for name in _COUNTED)
