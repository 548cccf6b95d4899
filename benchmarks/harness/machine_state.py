"""The state of the machine, to be printed beside every result: what it is, how loaded it is, and what its cores are
to each other.

Used by `run_all`; also a program (`cd benchmarks; python -m harness.machine_state`). Virtual machines hide where their
cores sit and move them, therefore it is measured (native/machine_probe.cc, compiled on first use) and not read. It
changes nothing.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from contenders.peers import ROOT

_SOURCE = ROOT / "benchmarks" / "native" / "machine_probe.cc"
_PROGRAM = ROOT / "build" / "bench" / "machine_probe"
# Inside one core complex a line takes about 45 ns, and what the other core has just written is read at 6 GB/s and more;
# between two complexes of one socket it takes about 160 ns (2 to 8 GB/s).
_SHARED_L3_GB_S = 4.0
_SHARED_L3_NS = 90.0


@dataclass(frozen=True)
class Cores:
    """What two cores are to each other.

    Attributes:
        one_way_ns: time for a cache line to get across.
        copy_gb_s: of each of two processes that copy 64 MB at the same time.
        own_read_gb_s, dirty_read_gb_s: copying 512 KB that this core, or the other one, has just written.
    """

    one_way_ns: float
    copy_gb_s: float
    own_read_gb_s: float
    dirty_read_gb_s: float

    @property
    def share_l3(self) -> bool:
        """Whether they behave like cores of one L3 cache."""
        return self.dirty_read_gb_s >= _SHARED_L3_GB_S and self.one_way_ns <= _SHARED_L3_NS

    def __str__(self) -> str:
        return (
            f"cores {'share' if self.share_l3 else 'do NOT share'} an L3 (by behaviour): line {self.one_way_ns:.0f} ns "
            f"one way, reads of the other core's fresh 512 KB {self.dirty_read_gb_s:.1f} GB/s "
            f"(own: {self.own_read_gb_s:.1f}), two copiers {self.copy_gb_s:.1f} GB/s each"
        )


def probe_cores() -> Optional[Cores]:
    """Measures for a fraction of a second; None if there is no compiler."""
    try:
        if not _PROGRAM.exists() or _PROGRAM.stat().st_mtime < _SOURCE.stat().st_mtime:
            _PROGRAM.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["g++", "-std=c++20", "-O2", str(_SOURCE), "-o", str(_PROGRAM)], check=True, timeout=120)
        output = subprocess.run([str(_PROGRAM)], check=True, timeout=60, capture_output=True, text=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return Cores(**{key: float(number) for key, number in (word.split("=") for word in output.split())})


def description() -> list[str]:
    """What does not change while the benchmarks run."""
    usable = sorted(os.sched_getaffinity(0))
    return [
        f"{_field('/proc/cpuinfo', 'model name') or platform.processor() or 'unknown CPU'}, "
        f"{len(usable)} usable of {os.cpu_count()} cores, {_kilobytes('MemTotal') >> 20} GiB memory",
        f"Linux {platform.release()}, Python {platform.python_version()}, governor: {_governor(usable[0])}, "
        f"transparent huge pages: {_text('/sys/kernel/mm/transparent_hugepage/enabled') or 'unknown'}, "
        f"/dev/shm {os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize >> 20} MB",
    ]


def origin() -> tuple[str, str]:
    """Today's date (UTC), and the revision of this checkout."""
    try:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        revision = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        revision = "unknown"
    return datetime.now(timezone.utc).date().isoformat(), revision


@dataclass(frozen=True)
class Moment:
    """Counters at one moment.

    Attributes:
        load: the one-minute load average.
        busy, stolen, total: ticks of all cores since boot.
    """

    load: float
    busy: int
    stolen: int
    total: int

    @staticmethod
    def now() -> Moment:
        """Reads them."""
        ticks = [int(word) for word in _text("/proc/stat").splitlines()[0].split()[1:9]]
        return Moment(os.getloadavg()[0], sum(ticks) - ticks[3] - ticks[4], ticks[7], sum(ticks))

    def until(self, later: Moment) -> str:
        """What happened in between, in words."""
        total = max(1, later.total - self.total)
        return (
            f"load {self.load:.2f} before and {later.load:.2f} after; "
            f"cores {100 * (later.busy - self.busy) / total:.0f} % busy, "
            f"{100 * (later.stolen - self.stolen) / total:.1f} % stolen by other guests"
        )


def quiet_share(seconds: float = 1.0) -> float:
    """Share of the cores' time that others use while we sleep: 0 on a quiet machine."""
    import time

    before = Moment.now()
    time.sleep(seconds)
    after = Moment.now()
    return (after.busy - before.busy) / max(1, after.total - before.total)


def _governor(core: int) -> str:
    return _text(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor") or "not visible"


def _kilobytes(name: str) -> int:
    return int((_field("/proc/meminfo", name) or "0 kB").split()[0])


def _field(path: str, name: str) -> str:
    for line in _text(path).splitlines():
        key, _, rest = line.partition(":")
        if key.strip() == name:
            return rest.strip()
    return ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    print(
        *description(),
        f"others use {100 * quiet_share():.0f} % of the cores",
        probe_cores() or "no compiler: cores not probed",
        sep="\n",
    )
