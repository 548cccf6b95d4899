"""Runs elastic jobs, on this machine and on others.

An entry of `choose`. It finds the hosts, has a crew start the first workers, on this machine by `elastic_here` and on
others by `elastic_over_hosts`, and has `elastic.driver` follow them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping
from typing import Callable, Final, NamedTuple, Optional

from horovod._core.errors import UnsupportedError
from horovod.runner.elastic import machine
from horovod.runner.elastic.assignment import seats
from horovod.runner.elastic.blacklist import Blacklist
from horovod.runner.elastic.crew import ElasticCrew
from horovod.runner.elastic.driver import Around, Driver, FirstAsked
from horovod.runner.elastic.events import Start
from horovod.runner.elastic.host_source import HostSource
from horovod.runner.elastic.journal import Journal
from horovod.runner.elastic.state import Limits, State
from horovod.runner.job import Job
from horovod.runner.launchers import local_checks, over_hosts
from horovod.runner.launchers.agents import Variables
from horovod.runner.launchers.base import Launcher, Outcome, Station, Surroundings
from horovod.runner.launchers.elastic_here import CrewHere
from horovod.runner.launchers.elastic_hosts import Discovery, Names, source_of
from horovod.runner.launchers.elastic_over_hosts import CrewOverHosts
from horovod.runner.launchers.elastic_streams import worker_environ
from horovod.runner.machines.hosts import Host
from horovod.runner.machines.limits import allowed_descriptors, why_without_proc
from horovod.runner.machines.this_host import is_local
from horovod.runner.processes import runtime_directory
from horovod.runner.processes.command import executable
from horovod.runner.remote.host_side.workplace import GROWTH
from horovod.runner.remote.ways.by_process import HereOrSsh
from horovod.runner.remote.ways.transport import Transport
from horovod.runner.supervising.supervision import Supervision

_log: Final = logging.getLogger("horovod.runner")


class ElasticLauncher(Launcher):
    """See the head of the file.

    Args:
        source: makes what names the hosts of a job.
        transport: makes what reaches them.
        variables: that tell a worker on another host its number.
    """

    def __init__(
        self,
        source: Callable[[Job], HostSource] = source_of,
        transport: Callable[[Job], Transport] = HereOrSsh,
        variables: Variables = worker_environ,
    ) -> None:
        self._source = source
        self._transport = transport
        self._variables = variables

    def why_not(self, job: Job) -> str:
        if without_proc := why_without_proc():
            return without_proc
        return self._transport(job).why_not(host.hostname for host in job.hosts)

    def remarks(self, job: Job) -> list[str]:
        if job.settings.stdin_rank is not None:
            raise UnsupportedError("--stdin-rank does not work in an elastic job; leave it out, or --min-np.")
        if self._over_hosts(job):
            return self._transport(job).remarks()
        local_checks.refuse_impossible(job)
        return local_checks.remarks(job)

    def stations(self, job: Job) -> list[Station]:
        if not all(is_local(host.hostname) for host in job.hosts):
            return over_hosts.stations(_with_first(job, _begun(job, Names().of(job.hosts))), self._transport(job))
        program, _ = executable(job.command, job.environ.get("PATH"), job.cwd)
        way = f"on this machine, by {program}"
        if job.settings.host_discovery_script:
            way += f", or on the hosts that {job.settings.host_discovery_script} names, once they have enough slots"
        return [Station(job.slots[0].hostname, tuple(range(job.size)), way, True)]

    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        transport = self._transport(job)
        names = Names(merge=not transport.at_home)
        journal = Journal(job.settings.elastic_log and os.path.join(job.cwd, job.settings.elastic_log))
        with contextlib.ExitStack() as undo:
            undo.callback(journal.close)
            source = self._source(job)
            undo.callback(source.close)
            discovery = Discovery(source, transport, names, job, surroundings)
            while True:
                found = discovery.hosts()
                if isinstance(found, Outcome):
                    return found
                way = _Way(transport, self._variables) if self._over_hosts(job) else None
                outcome, unusable = _run(job, found, Around(names.of, source, journal), surroundings, way)
                if not source.changes or outcome.interrupted or not unusable:
                    return outcome
                for host, why in unusable.items():
                    _log.warning("%s cannot be used: %s", host, why.rstrip("."))
                discovery.pass_over(unusable)

    def _over_hosts(self, job: Job) -> bool:
        """There are other hosts than this machine, or there may be."""
        usual = (self._source, self._transport) == (source_of, HereOrSsh)
        fixed = usual and not job.settings.host_discovery_script
        return not (fixed and all(is_local(host.hostname) for host in job.hosts))


class _Way(NamedTuple):
    """To other hosts."""

    transport: Transport
    variables: Variables


class _Begun(NamedTuple):
    """A job that begins: its state, and the decisions that start its first workers."""

    state: State
    starts: tuple[Start, ...]


def _begun(job: Job, hosts: tuple[Host, ...]) -> _Begun:
    settings = job.settings
    limits = Limits(
        len(job.slots),
        settings.min_num_proc,
        settings.max_num_proc,
        settings.reset_limit,
        settings.elastic_timeout_s,
        settings.start_timeout_s,
    )
    blacklist = Blacklist(cooldown=settings.blacklist_cooldown_range)
    state, decided = machine.begin(limits, hosts, blacklist, time.monotonic())
    return _Begun(state, tuple(decision for decision in decided if isinstance(decision, Start)))


def _with_first(job: Job, begun: _Begun) -> Job:
    """The job with the first workers as its ranks."""
    workers = [start.worker for start in begun.starts]
    places = seats(workers, {start.worker: start.host for start in begun.starts})
    return job._replace(slots=tuple(seat.slot for seat in places))


def _run(
    job: Job,
    hosts: tuple[Host, ...],
    around: Around,
    surroundings: Surroundings,
    way: Optional[_Way],
) -> tuple[Outcome, Mapping[str, str]]:
    """Runs the job on these hosts, or this machine where there is no way: how it has ended, and those hosts that
    could not be used, so that it has not begun."""
    begun = _begun(job, hosts)
    job = _with_first(job, begun)
    with contextlib.ExitStack() as undo:
        crew: ElasticCrew
        open_files = undo.enter_context(allowed_descriptors(GROWTH * (len(hosts) if way else job.size)))
        if way is not None:
            if surroundings.live is not None:
                surroundings.live.listen(job)
            crew = CrewOverHosts(job, surroundings, way.transport, way.variables)
        else:
            directory = runtime_directory.create(job.size)
            undo.callback(directory.remove)
            crew = CrewHere(job, directory, open_files, surroundings)
            if surroundings.live is not None:
                surroundings.live.listen(job, directory.lock_fd)
        closing = undo.enter_context(contextlib.ExitStack())
        closing.callback(crew.close)
        trouble = crew.assemble(surroundings)
        if trouble is not None:
            return trouble, crew.unusable()
        for start in begun.starts:
            around.journal.write(start)
        driver = Driver(begun.state, crew, around)
        supervision = Supervision(job, driver, crew.streams, FirstAsked(driver, crew), surroundings)
        closing.pop_all()  # from here on it is its own
        return supervision.run()._replace(results=driver.results()), {}
