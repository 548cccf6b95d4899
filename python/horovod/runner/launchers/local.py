"""Runs all ranks on this machine.

An entry of `choose`. It checks that every host is this machine, makes the job's private directory and secret,
and gives each rank its variables; `supervision` then follows the ranks to their end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from horovod._dumps.paths import signal_number
from horovod.runner.hangs.collecting import Collecting
from horovod.runner.hangs.hang import HangDesk, hang_desk, hosts_of, wanted
from horovod.runner.job import Job
from horovod.runner.launchers import local_checks
from horovod.runner.launchers.base import Launcher, Outcome, Station, Surroundings
from horovod.runner.launchers.destinations import make_timeline_directory, output_directory, rank_streams
from horovod.runner.machines import limits
from horovod.runner.machines.cores import threads_per_rank
from horovod.runner.machines.limits import Limits, allowed_descriptors
from horovod.runner.machines.this_host import is_local, rank_environ, with_one_name_here
from horovod.runner.processes import runtime_directory
from horovod.runner.processes.arrivals import DirectoryArrivals
from horovod.runner.processes.command import executable
from horovod.runner.processes.pipes import Pipes
from horovod.runner.processes.process import RankProcesses
from horovod.runner.processes.runtime_directory import JobDirectory
from horovod.runner.processes.shipment import Shipment
from horovod.runner.processes.streams import Source, Stream
from horovod.runner.supervising.supervision import Supervision

_log = logging.getLogger("horovod.runner")


class LocalLauncher(Launcher):
    """See the head of the file."""

    def why_not(self, job: Job) -> str:
        if without_proc := limits.why_without_proc():
            return without_proc
        remote = [name for name in dict.fromkeys(slot.hostname for slot in job.slots) if not is_local(name)]
        if not remote:
            return ""
        names = ", ".join(remote[:8]) + (", ..." if len(remote) > 8 else "")
        return f"{names} {'is' if len(remote) == 1 else 'are'} not this machine ({socket.gethostname()})."

    def remarks(self, job: Job) -> list[str]:
        local_checks.refuse_impossible(job)
        return local_checks.remarks(job)

    def stations(self, job: Job) -> list[Station]:
        program, _ = executable(job.command, job.environ.get("PATH"), job.cwd)
        ranks = tuple(range(job.size))
        return [Station(with_one_name_here(job.slots)[0].hostname, ranks, f"on this machine, by {program}", True)]

    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        program, words = executable(job.command, job.environ.get("PATH"), job.cwd)
        job = job._replace(command=words, slots=with_one_name_here(job.slots))
        base = output_directory(job)
        make_timeline_directory(job)
        _log.info("%s", local_checks.summary(job))
        with allowed_descriptors(job.size) as open_files, _keyboard(job):
            return self._run_here(job, (program, *words), base, open_files, surroundings)

    def _run_here(
        self, job: Job, command: Sequence[str], base: Path | None, open_files: Limits, surroundings: Surroundings
    ) -> Outcome:
        directory = runtime_directory.create(job.size)
        try:
            with contextlib.ExitStack() as undo:
                environ = environ_of(job, directory)
                hang = _hang_desk(job, directory.path)
                if surroundings.live is not None:
                    surroundings.live.listen(job, directory.lock_fd)
                undo.callback(lambda: hang.close(set()) if hang else None)
                ranks = Pipes[Stream](surroundings.shipment, Shipment.expect, job.settings.stdin_rank)
                undo.callback(ranks.close)
                for slot, streams in zip(job.slots, rank_streams(job, base, surroundings)):
                    ranks.add(slot.rank, streams, rank_environ(slot))
                processes = RankProcesses(command, environ, ranks.specs(), job.cwd, directory, open_files)
                undo.callback(processes.close)
                arrivals = DirectoryArrivals(directory.path)
                undo.callback(arrivals.close)
                streams_by_end = dict[Source, Stream](ranks.streams.items())
                supervision = Supervision(job, processes, streams_by_end, arrivals, surroundings, hang)
                undo.pop_all()  # from here on they are its own
            return supervision.run()
        finally:
            directory.remove()


def _keyboard(job: Job) -> contextlib.AbstractContextManager[None]:
    """A terminal that a rank may read."""
    if job.settings.stdin_rank is None:
        return contextlib.nullcontext()

    from horovod.runner.processes import keyboard  # other jobs start without it

    return keyboard.lent(0)


def _hang_desk(job: Job, directory: Path) -> HangDesk | None:
    """Where dumps come together; None where nothing could come to it."""
    if not wanted(job):
        return None
    number = signal_number(job.settings.dump_signal)
    return hang_desk(job, Collecting(directory, number, hosts_of(job), job.size, job.cwd), directory)


def environ_of(job: Job, directory: JobDirectory) -> dict[str, str]:
    """The variables of all ranks of a job that meets in this directory."""
    environ = dict(job.environ)
    environ["HOROVOD_RENDEZVOUS_DIR"] = str(directory.path)
    environ["_HOROVOD_SECRET_KEY"] = os.urandom(32).hex()
    environ.setdefault("OMP_NUM_THREADS", str(threads_per_rank(job.size)))
    return environ
