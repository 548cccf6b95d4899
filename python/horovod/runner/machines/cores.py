"""How many cores this process may use: its affinity and its cgroup's quota, whichever is less; and how many GPUs.

Used by the launcher to set OMP_NUM_THREADS and to count the ranks of `-np auto`. Files are read through `root`, so that
tests need no container.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final, Optional

from horovod._core.gpu import platforms

# What hides GPUs from processes. Of AMD's each hides more of what the ones before it show.
_NVIDIA_VISIBLE: Final[tuple[str, ...]] = ("CUDA_VISIBLE_DEVICES",)
_AMD_VISIBLE: Final[tuple[str, ...]] = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def usable_cores(root: str = "/") -> int:
    """Whole cores that this process may keep busy; at least 1.

    Args:
        root: where /proc and /sys are found.
    """
    cores = len(os.sched_getaffinity(0))
    quota = cgroup_quota(Path(root))
    return max(1, cores if quota is None else min(cores, int(quota)))


def threads_per_rank(ranks: int, root: str = "/") -> int:
    """Threads that each of these ranks may keep busy; at least 1."""
    return max(1, usable_cores(root) // ranks)


def automatic_ranks(environ: Mapping[str, str], root: str = "/") -> int:
    """What `-np auto` means on this machine: one rank per GPU that may be used, without any one per usable core."""
    visible, there = _NVIDIA_VISIBLE, _nvidias_gpus
    if platforms.of_devices(root) is platforms.ROCM:
        visible, there = _AMD_VISIBLE, _amds_gpus
    lists = [environ[name].split(",") for name in visible if name in environ]
    counts = [len([name for name in names if name.strip() not in ("", "-1")]) for names in lists]
    return (min(counts) if counts else there(Path(root))) or usable_cores(root)


def _nvidias_gpus(root: Path) -> int:
    return len([path for path in (root / "dev").glob("nvidia[0-9]*") if path.name[6:].isdecimal()])


def _amds_gpus(root: Path) -> int:
    # Processors are nodes as well, of which the number of their GPU is 0.
    numbers = [_text(path).strip() for path in (root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")]
    return len([number for number in numbers if number not in ("", "0")])


def can_be_pinned_to(core: int) -> bool:
    """The kernel lets a thread of this process run on this core."""

    def attempt() -> None:
        with contextlib.suppress(OSError, OverflowError):
            os.sched_setaffinity(0, {core})  # of this thread, which ends at once
            granted.append(True)

    granted: list[bool] = []
    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return bool(granted)


def cgroup_quota(root: Path) -> Optional[float]:
    """Cores that the control groups of this process grant, the least over all of its ancestors; None = no limit."""
    quotas = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            quotas += [_quota_v2(place) for place in _ancestors(root / "sys/fs/cgroup", path)]
        elif "cpu" in controllers.split(","):
            for mount in ("cpu", "cpu,cpuacct"):
                quotas += [_quota_v1(place) for place in _ancestors(root / "sys/fs/cgroup" / mount, path)]
    found = [quota for quota in quotas if quota is not None]
    return min(found) if found else None


def _ancestors(mount: Path, path: str) -> list[Path]:
    # Inside a container the path may not exist below the mount; the mount itself is then our group.
    relative = PurePosixPath(path.lstrip("/"))
    return [mount] + [mount / part for part in (relative, *relative.parents) if str(part) != "."]


def _quota_v2(place: Path) -> Optional[float]:
    words = _text(place / "cpu.max").split()
    return _ratio(words[0], words[1]) if len(words) == 2 else None


def _quota_v1(place: Path) -> Optional[float]:
    return _ratio(_text(place / "cpu.cfs_quota_us").strip(), _text(place / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str) -> Optional[float]:
    # "max" (v2) and -1 (v1) mean no limit.
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
