"""Jobs of `launcher_worker.py` under a launcher. How a launcher is asked for ranks is in `starters`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import jobs
from jobs import Ended, Place

from .starters import SYSTEM_PATH, Starter, Words

WORKER = Path(__file__).resolve().parent / "launcher_worker.py"
# torchrun keeps its log folder. The rest are names in /dev/shm of MPI libraries, which our ranks do not load.
_NOT_OURS = re.compile(r"/torchelastic_|shared_memory: (sm_segment|mpich_shm|vader_segment|Intel_MPI)")


class Job(jobs.Job):
    """A job that finds the system's programs and those of this environment, unless `environ` names a PATH."""

    def __init__(self, place: Place, name: str = "job", environ: Optional[Mapping[str, str]] = None) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), SYSTEM_PATH])
        super().__init__(place, {"PATH": path, **(environ or {})}, name)

    def end(self, patience_s: float = jobs.PATIENCE_S, leftovers: bool = True) -> Ended:
        """Waits for the end of the launcher, and of all it started."""
        ended = super().end(patience_s, leftovers)
        ended.leftovers = [name for name in ended.leftovers if not _NOT_OURS.search(name)]
        return ended


def by_rank(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order of their ranks."""
    return sorted(events, key=lambda event: int(event["rank"]))


def worker(part: str) -> Words:
    """The command of a rank."""
    return [sys.executable, str(WORKER), part]


def job_of(starter: Starter, place: Place, name: str = "job", environ: Optional[Mapping[str, str]] = None) -> Job:
    """A job for this launcher."""
    return Job(place, name, {"PATH": starter.path(), **starter.environ, **(environ or {})})


def assert_worked(ended: Ended, size: int, launcher: str) -> None:
    """Every rank did everything, knows its place, and nothing stayed behind."""
    worked = by_rank(ended.of("worked"))
    assert ended.code == 0, str(ended)
    assert [event["rank"] for event in worked] == list(range(size)), str(ended)
    # Open MPI 5 numbers the ranks of a host in the order of their cores, which need not be that of the ranks.
    assert sorted(event["local_rank"] for event in worked) == list(range(size)), str(ended)
    for event in worked:
        assert event["wrong"] == [], str(ended)
        place = {name: event[name] for name in ("size", "local_size", "cross_rank", "cross_size")}
        expected = {"size": size, "local_size": size, "cross_rank": 0, "cross_size": 1}
        assert place == expected, str(ended)
        assert event["launcher"] == launcher, str(ended)
    assert ended.leftovers == [], str(ended)
