"""Runs all ranks on this machine.

Used by `cli` and `function`. It checks that every host is this machine, makes the job's private directory and secret,
and gives each rank its variables; `supervision` then follows the ranks to their end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from horovod._core.errors import InvalidArgumentError
from horovod.runner import runtime_directory
from horovod.runner.command import executable
from horovod.runner.cores import threads_per_rank
from horovod.runner.hang import hang_desk
from horovod.runner.hosts import Host, Slot, assign
from horovod.runner.job import Job
from horovod.runner.launchers import local_checks
from horovod.runner.launchers.base import Launcher, Outcome, Surroundings
from horovod.runner.limits import Limits, allowed_descriptors
from horovod.runner.output import RankStream, rank_directory
from horovod.runner.process import RankProcesses, RankSpec
from horovod.runner.runtime_directory import JobDirectory
from horovod.runner.shipment import Shipment
from horovod.runner.supervision import Stream, Supervision
from horovod.runner.tracebacks import KnownTracebacks, TracebackFilter

_log = logging.getLogger("horovod.runner")
_OUTPUTS = ("stdout", "stderr")
_LOOPBACK = frozenset({"localhost", "localhost.localdomain", "127.0.0.1", "::1"})


class LocalLauncher(Launcher):
    """See the head of the file."""

    def why_not(self, job: Job) -> str:
        if not os.path.exists("/proc/self/stat"):
            return (
                "/proc is not mounted here. The ranks find one another by it, and the launcher finds the processes "
                "that they leave behind; mount it (mount -t proc proc /proc)."
            )
        remote = [name for name in dict.fromkeys(slot.hostname for slot in job.slots) if not is_local(name)]
        if not remote:
            return ""
        names = ", ".join(remote[:8]) + (", ..." if len(remote) > 8 else "")
        verb, that = ("is", "host") if len(remote) == 1 else ("are", "hosts")
        return (
            f"{names} {verb} not this machine ({socket.gethostname()}). Starting ranks on other hosts over ssh comes "
            f"in a later version; leave the {that} out, or start all ranks on this one with -H localhost:{job.size}."
        )

    def remarks(self, job: Job) -> list[str]:
        local_checks.refuse_impossible(job)
        return local_checks.remarks(job)

    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        program, words = executable(job.command, job.environ.get("PATH"), job.cwd)
        job = dataclasses.replace(job, command=words, slots=on_this_host(job.slots))
        base = _output_directory(job)
        _make_timeline_directory(job)
        _log.info("%s", local_checks.summary(job))
        with allowed_descriptors(job.size) as open_files:
            return self._run_here(job, (program, *words), base, open_files, surroundings)

    def _run_here(
        self, job: Job, command: Sequence[str], base: Path | None, open_files: Limits, surroundings: Surroundings
    ) -> Outcome:
        directory = runtime_directory.create(job.size)
        try:
            with contextlib.ExitStack() as undo:
                environ = _environ(job, directory)
                hang = hang_desk(job, directory.path)
                undo.callback(lambda: hang.close(set()) if hang else None)
                ranks = _Ranks(job, base, surroundings.shipment)
                undo.callback(ranks.close)
                processes = RankProcesses(command, environ, ranks.specs, job.cwd, directory, open_files)
                undo.callback(processes.close)
                supervision = Supervision(job, processes, ranks.streams, directory.path, surroundings, hang)
                undo.pop_all()  # from here on they are its own
            return supervision.run()
        finally:
            directory.remove()


@functools.lru_cache(maxsize=256)
def is_local(hostname: str) -> bool:
    """The name or address belongs to this machine."""
    if hostname in _LOOPBACK or hostname in (socket.gethostname(), os.uname().nodename):
        return True
    try:
        addresses = socket.getaddrinfo(hostname, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, address in addresses:
        try:
            # Only an address of an own interface can be bound; a datagram socket listens to nobody.
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
                return True
        except OSError:
            continue
    return False


def on_this_host(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """The same ranks, all on one host: different names of this machine must not look like different hosts."""
    if len({slot.hostname for slot in slots}) == 1:
        return slots
    return tuple(assign([Host(slots[0].hostname, len(slots))], len(slots)))


def rank_environ(slot: Slot) -> dict[str, str]:
    """The variables that tell a rank its place."""
    return {
        "HOROVOD_RANK": str(slot.rank),
        "HOROVOD_SIZE": str(slot.size),
        "HOROVOD_LOCAL_RANK": str(slot.local_rank),
        "HOROVOD_LOCAL_SIZE": str(slot.local_size),
        "HOROVOD_CROSS_RANK": str(slot.cross_rank),
        "HOROVOD_CROSS_SIZE": str(slot.cross_size),
        "HOROVOD_HOSTNAME": slot.hostname,
    }


def _output_directory(job: Job) -> Path | None:
    if not job.settings.output_filename:
        return None
    base = Path(job.cwd, job.settings.output_filename)
    try:
        for slot in job.slots:
            rank_directory(base, slot.rank, job.size).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(f"--output-filename {base} cannot be made: {error.strerror}.") from error
    return base


def _make_timeline_directory(job: Job) -> None:
    path = job.settings.timeline_path
    if path and path.upper() != "DYNAMIC":
        try:
            Path(job.cwd, path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgumentError(
                f"The folder of the timeline {path} cannot be made: {error.strerror}."
            ) from error


def _environ(job: Job, directory: JobDirectory) -> dict[str, str]:
    environ = dict(job.environ)
    environ["HOROVOD_RENDEZVOUS_DIR"] = str(directory.path)
    environ["_HOROVOD_SECRET_KEY"] = os.urandom(32).hex()
    environ.setdefault("OMP_NUM_THREADS", str(threads_per_rank(job.size)))
    return environ


class _Ranks:
    """What each rank of the job is started with, and what reads its pipes.

    Attributes:
        specs: for the keeper.
        streams: by the read end of each pipe.
    """

    def __init__(self, job: Job, base: Path | None, shipment: Shipment | None) -> None:
        self.specs: list[RankSpec] = []
        self.streams: dict[int, Stream] = {}
        known = None if job.settings.verbose else KnownTracebacks()
        clock = time.time if job.settings.prefix_output_with_timestamp else None
        with contextlib.ExitStack() as self._undo:
            for slot in job.slots:
                place = rank_directory(base, slot.rank, job.size) if base else None
                streams = [RankStream(slot.rank, name, place / name if place else None, clock) for name in _OUTPUTS]
                if known is not None:
                    streams[1].shorten_tracebacks(TracebackFilter(slot.rank, known))
                stdout_fd, stderr_fd = map(self._pipe, streams)
                variables = rank_environ(slot)
                function_fd = result_fd = -1
                if shipment is not None:
                    function_fd, result_fd = shipment.function_fd, self._pipe(shipment.expect(slot.rank))
                    variables.update(shipment.variables(result_fd))
                self.specs.append(RankSpec(slot.rank, variables, stdout_fd, stderr_fd, function_fd, result_fd))
            self._undo.pop_all()

    def close(self) -> None:
        """Closes the read ends, when nobody is to read them after all."""
        for fd in self.streams:
            os.close(fd)

    def _pipe(self, stream: Stream) -> int:
        read_fd, write_fd = os.pipe()
        for fd in (read_fd, write_fd):
            self._undo.callback(os.close, fd)
        self.streams[read_fd] = stream
        return write_fd
