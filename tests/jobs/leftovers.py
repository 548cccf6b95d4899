"""What a job leaves behind on a machine: processes, shared memory, temporary and runtime files, Unix sockets.

A picture before the job is compared with one after it. Processes
are found by a variable of their environment, which children and grandchildren inherit, so other jobs of the machine do
not disturb.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")
_SETTLE_S = 3.0  # killed processes are still being taken down by the kernel when their parent has gone
_RETRY_S = 0.01
# PyTorch's loader processes and compiler leave these behind in every program, without this library or a fault too.
_FOREIGN = re.compile(r"/(pymp-[^/]*|torchinductor_[^/]*)(/|$)")


@dataclass(frozen=True)
class Picture:
    """What is there at one moment.

    Attributes:
        processes: "pid command" of the processes that carry the tag.
        files: below the job's private places.
        shared_memory: names in /dev/shm.
        sockets: names of Unix sockets, of the abstract kind too.
    """

    processes: frozenset[str] = field(default_factory=frozenset)
    files: frozenset[str] = field(default_factory=frozenset)
    shared_memory: frozenset[str] = field(default_factory=frozenset)
    sockets: frozenset[str] = field(default_factory=frozenset)

    def since(self, before: Picture) -> list[str]:
        """What has come since `before`, in words."""
        return [
            f"{kind}: {name}"
            for kind in ("processes", "files", "shared_memory", "sockets")
            for name in sorted(getattr(self, kind) - getattr(before, kind))
        ]


class Watch:
    """Compares before and after.

    Args:
        tag: text that is in the environment of every process of the job and of no other.
        places: private directories of the job.
        whole_machine: nothing else runs here, so new names in the shared places count too.
    """

    def __init__(self, tag: str, places: list[Path], whole_machine: bool = False) -> None:
        self._tag = tag.encode()
        self._places = list(places)
        self._whole_machine = whole_machine
        if whole_machine:
            self._places += [Path(tempfile.gettempdir())]
        self._before = self._look()

    def leftovers(self) -> list[str]:
        """What the job has left; looks again for a while, as the kernel takes its time."""
        deadline = time.monotonic() + _SETTLE_S
        left = self._look().since(self._before)
        while left and time.monotonic() < deadline:
            time.sleep(_RETRY_S)
            left = self._look().since(self._before)
        return left

    def processes(self) -> dict[int, str]:
        """The job's processes that are there now, without zombies: pid and command."""
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    if self._tag in Path(f"/proc/{name}/environ").read_bytes():
                        found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue  # it ended meanwhile
        return found

    def _look(self) -> Picture:
        return Picture(
            frozenset(f"{pid} {command}" for pid, command in self.processes().items()),
            frozenset(
                str(path) for place in self._places for path in self._below(place) if not _FOREIGN.search(str(path))
            ),
            frozenset(os.listdir(_SHARED_MEMORY)) if self._whole_machine else self._own_shared_memory(),
            self._sockets(),
        )

    def _below(self, place: Path) -> list[Path]:
        if place == Path(tempfile.gettempdir()):
            return list(place.iterdir())
        # A walk, unlike a glob, does not mind folders that go while it runs.
        return [Path(folder, name) for folder, folders, files in os.walk(place) for name in folders + files]

    def _own_shared_memory(self) -> frozenset[str]:
        """Without what other jobs may make, those of MPI and the fake NCCL too; ours meets in its private place."""
        foreign = re.compile(
            r"horovod(run)?-\d+$|fake_nccl_|torch_\d+_|sem\.|psm_|hvd|vader|sm_segment|mpich|Intel_MPI|shm_"
        )
        return frozenset(name for name in os.listdir(_SHARED_MEMORY) if not foreign.match(name))

    def _sockets(self) -> frozenset[str]:
        names = set()
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
            name = line.split()[7:]
            if name and (
                self._whole_machine and "horovod" in name[0] or any(str(p) in name[0] for p in self._places[:2])
            ):
                names.add(name[0])
        return frozenset(names)
