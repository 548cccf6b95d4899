"""Runs all ranks on this machine.

Used by `cli` and `function`. It checks that every host is this machine, makes the job's private directory and secret,
and gives each rank its variables; `supervision` then follows the ranks to their end.
"""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path

from horovod._core.errors import InvalidArgumentError
from horovod.runner import runtime_directory
from horovod.runner.cores import usable_cores
from horovod.runner.hosts import Host, Slot, assign
from horovod.runner.job import Job
from horovod.runner.launchers.base import Launcher, Outcome, Surroundings
from horovod.runner.output import RankStream, rank_directory
from horovod.runner.process import RankProcesses, RankSpec, resolve
from horovod.runner.supervision import Supervision

_LOOPBACK = frozenset({"localhost", "localhost.localdomain", "127.0.0.1", "::1"})


class LocalLauncher(Launcher):
    """See the head of the file."""

    def why_not(self, job: Job) -> str:
        remote = [name for name in dict.fromkeys(slot.hostname for slot in job.slots) if not is_local(name)]
        if not remote:
            return ""
        names = ", ".join(remote[:8]) + (", ..." if len(remote) > 8 else "")
        verb, that = ("is", "host") if len(remote) == 1 else ("are", "hosts")
        return (
            f"{names} {verb} not this machine ({socket.gethostname()}). Starting ranks on other hosts over ssh comes "
            f"in a later version; leave the {that} out, or start all ranks on this one with -H localhost:{job.size}."
        )

    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        program = resolve(job.command[0], job.environ.get("PATH"), job.cwd)
        if program is None:
            raise InvalidArgumentError(f"The command {job.command[0]!r} is not found, or is not executable.")
        slots = on_this_host(job.slots)
        base = _output_directory(job)
        directory = runtime_directory.create()
        try:
            if surroundings.prepare:
                surroundings.prepare(directory)
            return _run(job, slots, program, base, directory, surroundings)
        finally:
            runtime_directory.remove(directory)


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


def _run(
    job: Job, slots: tuple[Slot, ...], program: str, base: Path | None, directory: Path, surroundings: Surroundings
) -> Outcome:
    environ = dict(job.environ)
    environ["HOROVOD_RENDEZVOUS_DIR"] = str(directory)
    environ["_HOROVOD_SECRET_KEY"] = os.urandom(32).hex()
    environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // len(slots))))
    specs, streams = [], {}
    clock = None
    if job.settings.prefix_output_with_timestamp:
        import time

        clock = time.time
    for slot in slots:
        pipes = {}
        for name in ("stdout", "stderr"):
            read_fd, pipes[name] = os.pipe()
            path = rank_directory(base, slot.rank, job.size) / name if base else None
            streams[read_fd] = RankStream(slot.rank, name, path, clock)
        specs.append(RankSpec(slot.rank, rank_environ(slot), pipes["stdout"], pipes["stderr"]))
    processes = RankProcesses((program, *job.command), environ, specs, job.cwd, directory)
    supervision = Supervision(job, processes, streams, directory, surroundings)
    return supervision.run()
