"""What an agent finds and makes on its host before the ranks start: folder, program, limits, a directory, pipes.

Used by `agent`. Everything that can be wrong with a host is found here, while nothing runs anywhere yet.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.runner.hangs.collecting import Collecting
from horovod.runner.launchers.destinations import make_timeline_folder
from horovod.runner.machines import core_sharing, limits
from horovod.runner.machines.cores import threads_per_rank, usable_cores
from horovod.runner.machines.host_variables import added, joined
from horovod.runner.machines.limits import allowed_descriptors
from horovod.runner.processes import runtime_directory
from horovod.runner.processes.command import executable
from horovod.runner.processes.pipes import Pipes
from horovod.runner.processes.process import RankProcesses, RankSpec
from horovod.runner.processes.shipment import Shipment
from horovod.runner.processes.strays import strays_in

_PIPES_AND_CLIENTS: Final = 2  # times as many descriptors as a launcher without a board needs
GROWTH: Final = 4  # times its first size, an elastic job may grow without running out of descriptors
STREAMS: Final = ("stdout", "stderr", "result")  # in the order of their numbers


class Workplace:
    """See the head of the file.

    Args:
        job: the launcher's message.
        function: of horovod.run, when the job has one.

    Attributes:
        pipes: (rank, number of the stream) by the read end, once the ranks are started. The agent closes them.
        directory: the job's.

    Raises:
        InvalidArgumentError: the job cannot run on this host; says why.
        OSError: this host has no room for it.
    """

    def __init__(self, job: Mapping[str, Any], function: Optional[bytes]) -> None:
        self._strays = 0
        self._dump_signal = job["dump_signal"]
        self._ranks = job["ranks"]
        at_home = job["at_home"]
        self._cwd = os.getcwd() if at_home else job["cwd"]
        self._environ = added(os.environ, job["env"]) if at_home else joined(os.environ, job["env"])
        if without_proc := limits.why_without_proc():
            raise InvalidArgumentError(without_proc)
        _check_folder(self._cwd)
        _check_interfaces(job["interfaces"])
        core_sharing.refuse_missing_cores(job["affinity"], len(self._ranks))
        if job["elastic"] or any(member["rank"] == 0 for member in self._ranks):  # rank 0 may come here later
            make_timeline_folder(self._environ.get("HOROVOD_TIMELINE", ""), self._cwd)
        first, *others = job["command"]
        named = first or (sys.executable if at_home else "")
        program, words = executable([named, *others], self._environ.get("PATH"), self._cwd)
        self._command = (program, *words)
        with contextlib.ExitStack() as undo:
            room = _PIPES_AND_CLIENTS * len(self._ranks) * (GROWTH if job["elastic"] else 1)
            self._open_files = undo.enter_context(allowed_descriptors(room))
            self.directory = runtime_directory.create(len(self._ranks))
            undo.callback(self.directory.remove)
            self._shipment = Shipment(function) if function is not None else None
            if self._shipment is not None:
                undo.callback(self._shipment.close)
            self._made = Pipes[tuple[int, int]](self._shipment, lambda _, rank: (rank, 2))
            self.pipes = self._made.streams
            self._undo = undo.pop_all()

    def sharing(self) -> dict[str, Any]:
        """How the ranks will share this host, for the launcher's message."""
        count = len(self._ranks)
        cores = core_sharing.cores_text(count, self._environ.get("OMP_NUM_THREADS", ""))
        crowd = core_sharing.crowding(count)
        remedy = f"{crowd} Give it {usable_cores()} slots, so that each rank has a core." if crowd else ""
        return {
            "summary": f"{count} {'rank' if count == 1 else 'ranks'}; {cores}",
            "remarks": [remedy] if remedy else [],
        }

    def collecting(self) -> Collecting:
        """Collects the dumps of these ranks; they do not dump where nobody does."""
        hosts = {member["rank"]: member["env"].get("HOROVOD_HOSTNAME", "") for member in self._ranks}
        size = int(self._ranks[0]["env"].get("HOROVOD_SIZE", "0"))
        return Collecting(self.directory.path, self._dump_signal, hosts, size, self._cwd)

    def start(self) -> RankProcesses:
        """Starts the ranks."""
        environ = {**self._environ, "HOROVOD_RENDEZVOUS_DIR": str(self.directory.path)}
        environ.setdefault("OMP_NUM_THREADS", str(threads_per_rank(len(self._ranks))))
        specs = [self.spec(member["rank"], member["env"]) for member in self._ranks]
        return RankProcesses(self._command, environ, specs, self._cwd, self.directory, self._open_files)

    def new_strays(self) -> int:
        """How many processes have called hvd.init() without their variables since the last call."""
        before, self._strays = self._strays, strays_in(self.directory.path)
        return max(0, self._strays - before)

    def close(self) -> None:
        """Removes what was made, once no process uses it."""
        self._undo.close()

    def spec(self, rank: int, variables: Mapping[str, str]) -> RankSpec:
        """Makes the pipes of a rank. Raises OSError when there are no more descriptors."""
        return self._made.add(rank, ((rank, 0), (rank, 1)), variables)


def _check_folder(path: str) -> None:
    if not os.path.isdir(path):
        raise InvalidArgumentError(
            f"The working directory {path} does not exist there. Make it, or start the job in a directory that all "
            "hosts have."
        )
    if not os.access(path, os.X_OK):
        raise InvalidArgumentError(f"The working directory {path} may not be entered there by this user.")


def _check_interfaces(wanted: Sequence[str]) -> None:
    """Interfaces may be called differently on each host: one of those named is enough."""
    found = [name for _, name in socket.if_nameindex()]
    if wanted and not set(wanted) & set(found):
        raise InvalidArgumentError(
            f"--network-interface {','.join(wanted)}: it has no such network interface; it has {', '.join(found)}."
        )
