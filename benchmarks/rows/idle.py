"""The row of idleness: what an initialised job costs while nobody asks anything of it.

Used by `run_all`. Reads the processes' counters in /proc before and after two seconds: CPU time and voluntary context
switches (wake-ups) of all threads of the ranks, and of the launcher's processes. A sleeping rank of ours must show
zero.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from harness.contest import Contest, Entry
from harness.job import Job
from harness.plan import Plan
from harness.row import Check, Row

_SECONDS = 2.0


@dataclass(frozen=True)
class Counters:
    """Of some processes: CPU seconds and wake-ups since they began."""

    cpu_s: float
    wakes: int


def read(pids: list[int]) -> Counters:
    """Sums over all threads; a process that is gone counts nothing."""
    ticks, wakes = 0, 0
    for pid in pids:
        try:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                words = (thread / "stat").read_text().rpartition(")")[2].split()
                ticks += int(words[11]) + int(words[12])
                status = (thread / "status").read_text()
                wakes += int(status.split("nonvoluntary")[0].rpartition("voluntary_ctxt_switches:")[2])
        except FileNotFoundError:
            continue
    return Counters(ticks / os.sysconf("SC_CLK_TCK"), wakes)


def descendants(pids: list[int]) -> list[int]:
    """The processes and all their children's children."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(place.name))
    found = list(pids)
    for pid in found:
        found += children.get(pid, [])
    return found


def rows(contest: Contest, plan: Plan) -> list[Row]:
    """One row; the jobs sleep at the same time, for none disturbs another."""
    jobs = {name: job for name in ("ours (torch)", "torch gloo", "openmpi", "mpich") if (job := contest.job(name))}
    for job in jobs.values():
        job.order(task="collective", operation="allreduce", elems=256, variant="", iterations=10)
        job.order(task="release")
    ranks = {name: list(job.pids.values()) for name, job in jobs.items()}
    others = {name: [pid for pid in _whole(job) if pid not in ranks[name]] for name, job in jobs.items()}
    time.sleep(0.3)  # the last order's own end
    plan.progress.show("idle")
    before = {name: (read(ranks[name]), read(others[name])) for name in jobs}
    time.sleep(_SECONDS)
    row = Row("idle, initialised job", unit="ms")
    lines = []
    for name, (rank_before, other_before) in before.items():
        rank_after, other_after = read(ranks[name]), read(others[name])
        cpu, wakes = rank_after.cpu_s - rank_before.cpu_s, rank_after.wakes - rank_before.wakes
        row.entries.append(Entry(f"{name}: CPU time in {_SECONDS:.0f} s", "info", [[cpu]]))
        lines.append(
            f"{name}: {wakes} wake-ups of the ranks; launcher {other_after.wakes - other_before.wakes} wake-ups, "
            f"{(other_after.cpu_s - other_before.cpu_s) * 1e3:.0f} ms CPU"
        )
        if name == "ours (torch)":
            row.checks += [
                Check(f"ranks: CPU time in {_SECONDS:.0f} s = 0", cpu * 1e3, 0, False, "ms"),
                Check(f"ranks: wake-ups in {_SECONDS:.0f} s = 0", wakes, 0, False),
            ]
    row.note = ". ".join(lines) + "."
    return [row]


def _whole(job: Job) -> list[int]:
    return descendants(job.launcher_pids)
