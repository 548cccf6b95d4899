"""Runs the ranks of a job with jsrun (`--jsrun`), in a job of LSF.

An entry of `choose`. It writes the rank file, builds jsrun's line, and follows it to its end (`following`).
"""

from __future__ import annotations

import logging
import os
import shlex
from typing import Final

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.runner.allocations.choose import allocation
from horovod.runner.job import Job
from horovod.runner.jsrun import lines, rank_file
from horovod.runner.launchers import following
from horovod.runner.launchers.base import Launcher, Outcome, Station, Surroundings
from horovod.runner.launchers.destinations import make_timeline_directory
from horovod.runner.machines.hosts import Host
from horovod.runner.machines.limits import why_without_proc
from horovod.runner.machines.this_host import is_local
from horovod.runner.processes import runtime_directory
from horovod.runner.processes.command import executable, resolve
from horovod.runner.readers.command_output import answer_of
from horovod.runner.remote.ways import ssh_command

_FILE: Final = "ranks.erf"
_LSF: Final = "LSF"
_NO_SHARES: Final = "ranks cannot be given processors. Bind them yourself with --binding-args."

_log: Final = logging.getLogger("horovod.runner")


class JsrunLauncher(Launcher):
    """See the head of the file."""

    def why_not(self, job: Job) -> str:
        if "LSB_JOBID" not in job.environ:
            return (
                "--jsrun starts ranks in an LSF job, and this process is not in one (LSB_JOBID is not set). Submit it "
                "with bsub, or leave --jsrun out."
            )
        return why_without_proc()

    def remarks(self, job: Job) -> list[str]:
        _program(job)
        lines.refuse_unmet(job.settings)
        return []

    def stations(self, job: Job) -> list[Station]:
        way = f"by {shlex.join(_line(job, _FILE))}"
        stations: list[Station] = []
        first = 0
        for host in _hosts(job):
            own = "by the same jsrun" if stations else way
            stations.append(Station(host.hostname, tuple(range(first, first + host.slots)), own, True, True))
            first += host.slots
        return stations

    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        if surroundings.shipment is not None:
            raise UnsupportedError("jsrun cannot run a Python function; start a program with horovodrun --jsrun.")
        make_timeline_directory(job)
        directory = runtime_directory.create()
        try:
            path = str(directory.path / _FILE)
            if not job.settings.binding_args:
                _write(path, rank_file.text(_hosts(job), _cpus(job)))
            words = _line(job, path)
            _log.info("%s", shlex.join(words))
            if job.settings.output_filename:
                os.makedirs(os.path.join(job.cwd, job.settings.output_filename), exist_ok=True)
            line = following.Line(words, _environ(job))
            return following.ended(following.follow(line, job, directory, surroundings), "jsrun")
        finally:
            directory.remove()


def _program(job: Job) -> str:
    program = resolve("jsrun", job.environ.get("PATH"), job.cwd)
    if program is None:
        raise InvalidArgumentError(
            "--jsrun needs jsrun of IBM's Job Step Manager, which is not in PATH. Load its module, or leave "
            "--jsrun out: horovodrun then starts the ranks on LSF's hosts itself."
        )
    return program


def _line(job: Job, path: str) -> list[str]:
    program, words = executable(job.command, job.environ.get("PATH"), job.cwd, runs_here=False)
    return lines.line(_program(job), path, (program, *words[1:]), job.settings)


def _hosts(job: Job) -> list[Host]:
    """The hosts and the ranks on each, by LSF's names, which jsrun knows."""
    counts: dict[str, int] = {}
    for slot in job.slots:
        counts[slot.hostname] = counts.get(slot.hostname, 0) + 1
    return [Host(name, count) for name, count in counts.items()]


def _cpus(job: Job) -> dict[str, int]:
    """The processors that the job may use on each of its hosts: the threads of the cores that LSF has given."""
    given = allocation(job.environ)
    if given is None or given.scheduler != _LSF:
        raise InvalidArgumentError(f"LSF does not say which hosts this job has, so {_NO_SHARES}")
    threads = rank_file.threads_per_core(answer_of(_ask(job, given.hosts[0].hostname), _NO_SHARES))
    return {host.hostname: host.slots * threads for host in given.hosts}


def _ask(job: Job, host: str) -> list[str]:
    if is_local(host):
        return ["sh", "-c", rank_file.LSCPU]
    settings = job.settings
    shell = ssh_command.shell(
        job.environ,
        settings.ssh_port,
        settings.ssh_identity_file,
        settings.start_timeout_s,
        settings.link_timeout_s,
    )
    return shell.command(host, rank_file.LSCPU)


def _write(path: str, text: str) -> None:
    # The directory is this user's own, and nobody else has made a file of this name there.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _environ(job: Job) -> dict[str, str]:
    """What jsrun gets, and the ranks from it. A jsrun that starts something else is found out by `hvd.init()`."""
    hosts = len({slot.hostname for slot in job.slots})
    return {**job.environ, "HOROVOD_EXPECTED_SIZE": str(job.size), "HOROVOD_EXPECTED_HOSTS": str(hosts)}
