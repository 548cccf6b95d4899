"""Runs elastic jobs, on this machine.

An entry of `choose`. It finds the hosts, starts the first workers as `local` starts ranks, and has `elastic.driver`
follow them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from pathlib import Path
from signal import SIGTSTP
from typing import Final, Optional, Union

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.runner import runtime_directory
from horovod.runner.command import executable
from horovod.runner.crew import Joined
from horovod.runner.elastic import machine
from horovod.runner.elastic.assignment import seats
from horovod.runner.elastic.blacklist import Blacklist
from horovod.runner.elastic.driver import Around, Driver, FirstAsked, Hands
from horovod.runner.elastic.events import Start
from horovod.runner.elastic.journal import Journal
from horovod.runner.elastic.roster_keeper import RosterKeeper
from horovod.runner.elastic.script import Script
from horovod.runner.hosts import Host, Slot
from horovod.runner.job import Job
from horovod.runner.launchers import local_checks
from horovod.runner.launchers.base import Launcher, Outcome, Station, Surroundings
from horovod.runner.launchers.destinations import make_timeline_directory, output_directory, rank_streams
from horovod.runner.launchers.local import environ_of
from horovod.runner.launchers.pipes import Pipes
from horovod.runner.launchers.places import is_local, rank_environ
from horovod.runner.limits import Limits, allowed_descriptors, why_without_proc
from horovod.runner.output import RankStream
from horovod.runner.process import RankProcesses, RankSpec
from horovod.runner.runtime_directory import JobDirectory
from horovod.runner.supervision import Supervision

_GROWTH: Final = 4  # times its first size, a job may grow without running out of descriptors

_log: Final = logging.getLogger("horovod.runner")


class ElasticLauncher(Launcher):
    """See the head of the file."""

    def why_not(self, job: Job) -> str:
        if without_proc := why_without_proc():
            return without_proc
        remote = [host.hostname for host in job.hosts if not is_local(host.hostname)]
        if not remote or job.settings.host_discovery_script:
            return ""
        return (
            f"{', '.join(remote[:8])}: elastic jobs run on one machine in this version; leave --min-np out for a fixed "
            "number of ranks on several hosts."
        )

    def remarks(self, job: Job) -> list[str]:
        local_checks.refuse_impossible(job)
        if job.settings.stdin_rank is not None:
            raise UnsupportedError("--stdin-rank is for jobs whose ranks stay; leave it or --min-np out.")
        return local_checks.remarks(job)

    def stations(self, job: Job) -> list[Station]:
        program, _ = executable(job.command, job.environ.get("PATH"), job.cwd)
        way = f"on this machine, by {program}"
        if job.settings.host_discovery_script:
            way += f", once {job.settings.host_discovery_script} names enough slots"
        return [Station(job.slots[0].hostname, tuple(range(job.size)), way, True)]

    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        program, words = executable(job.command, job.environ.get("PATH"), job.cwd)
        journal = Journal(job.settings.elastic_log and os.path.join(job.cwd, job.settings.elastic_log))
        script = None
        with contextlib.ExitStack() as undo:
            undo.callback(journal.close)
            hosts = Here(job.hosts[0].hostname)
            found = hosts.of(job.hosts)
            if job.settings.host_discovery_script:
                settings = job.settings
                script = Script(settings.host_discovery_script, settings.slots_per_host, job.cwd, dict(job.environ))
                undo.callback(script.close)
                waited = _await_hosts(script, hosts, job, surroundings)
                if isinstance(waited, Outcome):
                    return waited
                found = waited
            state, first = machine.begin(_limits(job), found, _blacklist(job), time.monotonic())
            for decision in first:
                journal.write(decision)
            workers = [decision.worker for decision in first if isinstance(decision, Start)]
            places = seats(workers, dict.fromkeys(workers, found[0].hostname))
            job = job._replace(command=words, slots=tuple(seat.slot for seat in places))
            make_timeline_directory(job)
            with allowed_descriptors(_GROWTH * job.size) as open_files:
                run = _Run(job, (program, *words), surroundings)
                return run.to_the_end(state, Around(hosts.of, script, journal), open_files)


class Here:
    """Hosts as far as they are this machine, under one name, and those that are not, told once.

    Args:
        name: of this machine, as it was first called.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: set[str] = set()

    def of(self, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
        """This machine with all its slots; nothing when it is not among them."""
        here = [host for host in hosts if is_local(host.hostname)]
        for name in (host.hostname for host in hosts if host not in here):
            if name not in self._told:
                self._told.add(name)
                _log.warning("%s is passed over: in this version an elastic job runs on this machine alone.", name)
        slots = sum(host.slots for host in here)
        return (Host(self._name, slots),) if slots else ()


class _Run:
    """One elastic job, from its directory to its end."""

    def __init__(self, job: Job, command: tuple[str, ...], surroundings: Surroundings) -> None:
        self._job = job
        self._command = command
        self._surroundings = surroundings
        self._base: Optional[Path] = output_directory(job)
        self._pipes = Pipes(job, surroundings)
        self._streams: dict[int, tuple[RankStream, RankStream]] = {}

    def to_the_end(self, state: machine.State, around: Around, open_files: Limits) -> Outcome:
        """Starts the first workers and follows the job."""
        job = self._job
        directory = runtime_directory.create(job.size)
        try:
            with contextlib.ExitStack() as undo:
                poller = select.epoll()
                undo.callback(poller.close)
                roster = RosterKeeper(directory.path, poller)
                undo.callback(roster.close)
                undo.callback(self._pipes.close)
                processes = self._start(directory, open_files)
                undo.callback(processes.close)

                def start(worker: int, host: str) -> Joined:
                    before = set(self._pipes.streams)
                    processes.add(self._prepare(_preliminary(host, worker)))
                    self._pipes.started()
                    return Joined(worker, {fd: s for fd, s in self._pipes.streams.items() if fd not in before})

                driver = Driver(state, Hands(processes, start, self._renumber, roster, poller), around)
                supervision = Supervision(job, driver, self._pipes.streams, FirstAsked(driver), self._surroundings)
                undo.pop_all()  # from here on they are its own
            return supervision.run()._replace(results=driver.state.members)
        finally:
            directory.remove()

    def _start(self, directory: JobDirectory, open_files: Limits) -> RankProcesses:
        job = self._job
        environ = {**environ_of(job, directory), "HOROVOD_JOB_ID": os.urandom(16).hex()}
        for slot in job.slots:
            self._prepare(slot)
        self._pipes.started()  # whatever becomes of it, the keeper's ends are no longer this process's
        return RankProcesses(self._command, environ, self._pipes.specs, job.cwd, directory, open_files)

    def _prepare(self, slot: Slot) -> RankSpec:
        one = self._job._replace(slots=(slot,))
        output_directory(one)
        self._streams[slot.rank] = rank_streams(one, self._base, self._surroundings)[0]
        variables = {**rank_environ(slot), "_HOROVOD_WORKER": str(slot.rank)}
        return self._pipes.add(slot, self._streams[slot.rank], variables)

    def _renumber(self, worker: int, rank: int) -> None:
        for stream in self._streams[worker]:
            stream.rank = rank


def _preliminary(host: str, worker: int) -> Slot:
    """What the variables of a worker that comes later say until it has asked for its place."""
    return Slot(host, worker, worker, 0, worker + 1, worker + 1, 1)


def _await_hosts(script: Script, hosts: Here, job: Job, surroundings: Surroundings) -> Union[tuple[Host, ...], Outcome]:
    """The hosts, once there are slots enough; or how the job ends before it has begun.

    Raises:
        InvalidArgumentError: the script fails in its first run.
    """
    deadline_s = time.monotonic() + job.settings.elastic_timeout_s
    seen, said = 0, False
    while True:
        poller = select.poll()
        for fd in (script.fd, surroundings.signal_fd):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        now_s = time.monotonic()
        ready = [fd for fd, _ in poller.poll(max(0.0, min(script.next_s(), deadline_s) - now_s) * 1000)]
        if surroundings.signal_fd in ready and (signals := _ending(surroundings)):
            return Outcome((), interrupted=signals[0])
        found = script.serve()
        if script.problem and not seen:
            raise InvalidArgumentError(f"{script.problem[:1].upper()}{script.problem[1:]}.")
        if found is not None:
            seen += 1
            here = hosts.of(found)
            slots = sum(host.slots for host in here)
            if slots >= len(job.slots):
                return here
            if not said:
                said = True
                _log.warning(
                    "%d slots are needed on this machine, and %s names %d; waiting for more.",
                    len(job.slots), job.settings.host_discovery_script, slots,
                )  # fmt: skip
        if time.monotonic() >= deadline_s:
            return Outcome(
                (),
                complaint=f"{len(job.slots)} slots are needed to start, and {job.settings.host_discovery_script} has "
                f"not named so many on this machine within {job.settings.elastic_timeout_s:g} s (--elastic-timeout).",
            )


def _ending(surroundings: Surroundings) -> list[int]:
    """The signals that have come and that end a job."""
    return [number for number in surroundings.take_signals() if number not in (SIGTSTP, surroundings.dump_signal)]


def _limits(job: Job) -> machine.Limits:
    settings = job.settings
    return machine.Limits(
        len(job.slots),
        settings.min_num_proc,
        settings.max_num_proc,
        settings.reset_limit,
        settings.elastic_timeout_s,
        settings.start_timeout_s,
    )


def _blacklist(job: Job) -> Blacklist:
    return Blacklist(cooldown=job.settings.blacklist_cooldown_range)
