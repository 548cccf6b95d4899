"""The hosts of an elastic job as its launcher knows them: this machine under one name, and enough slots to begin with.

Used by `elastic`.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Iterable
from signal import SIGTSTP
from typing import Final, Optional, Union

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.runner.elastic.host_source import FixedHosts, HostSource
from horovod.runner.elastic.script import Script
from horovod.runner.job import Job
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.machines.hosts import Host
from horovod.runner.machines.this_host import is_local
from horovod.runner.remote.ways.transport import Transport

_AGAIN_S: Final = 30.0  # after that a host that could not be used is tried again

_log: Final = logging.getLogger("horovod.runner")


class Names:
    """Hosts by the names that the job has for them: different names of this machine are one host, with the slots of all
    of them, under the name by which it was called first.

    Args:
        merge: False: hosts with different names are different ones.
    """

    def __init__(self, merge: bool = True) -> None:
        self._merge = merge
        self._here: Optional[str] = None

    def of(self, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
        """The hosts, in their order."""
        slots: dict[str, int] = {}
        for host in hosts:
            name = host.hostname
            if self._merge and is_local(name):
                name = self._here = self._here or name
            slots[name] = slots.get(name, 0) + host.slots
        return tuple(Host(name, count) for name, count in slots.items())


def source_of(job: Job) -> HostSource:
    """Where the job's hosts come from: its discovery script, or what was named or given."""
    settings = job.settings
    if settings.host_discovery_script:
        return Script(settings.host_discovery_script, settings.slots_per_host, job.cwd, dict(job.environ))
    return FixedHosts(job.hosts)


class Discovery:
    """The time before an elastic job begins: until its source names enough slots, unless it can name no others.

    Args:
        source: of the job's hosts.
        transport: that is to reach them.
        names: of hosts.
        job: that is to begin.
        surroundings: where signals come from.
    """

    def __init__(
        self, source: HostSource, transport: Transport, names: Names, job: Job, surroundings: Surroundings
    ) -> None:
        self._source = source
        self._transport = transport
        self._names = names
        self._job = job
        self._surroundings = surroundings
        self._seen = False
        self._warned = False
        self._unusable: dict[str, float] = {}  # until when
        self._deadline_s = time.monotonic() + job.settings.elastic_timeout_s

    def pass_over(self, hosts: Iterable[str]) -> None:
        """These cannot be used, for now."""
        self._unusable.update(dict.fromkeys(hosts, time.monotonic() + _AGAIN_S))

    def hosts(self) -> Union[tuple[Host, ...], Outcome]:
        """The hosts, once there are enough slots; or how the job ends before it has begun.

        Raises:
            InvalidArgumentError: the source fails the first time.
            UnsupportedError: it names other hosts, and nothing here could reach them.
        """
        source, needed = self._source, len(self._job.slots)
        while True:
            found = source.serve()
            for line in source.written():
                _log.warning("%s", line)
            if source.problem and not self._seen:
                raise InvalidArgumentError(f"{source.problem[:1].upper()}{source.problem[1:]}.")
            if found is not None:
                self._seen = True
                self._refuse_unreachable(found)
                usable = self._usable(self._names.of(found))
                slots = sum(host.slots for host in usable)
                if slots >= needed or not source.changes:
                    return usable
                self._tell(needed, slots)
            if time.monotonic() >= self._deadline_s:
                last = f" Its last run: {source.problem}." if source.problem else ""
                return Outcome(
                    (),
                    complaint=f"{needed} slots are needed to start, but {source.name} has not named that many usable "
                    f"ones within {self._job.settings.elastic_timeout_s:g} s (--elastic-timeout).{last}",
                )
            signals = self._wait()
            if signals:
                return Outcome((), interrupted=signals[0])

    def _refuse_unreachable(self, hosts: tuple[Host, ...]) -> None:
        if why := self._transport.why_not(host.hostname for host in hosts):
            raise UnsupportedError(f"{self._source.name} names hosts that cannot be reached: {why}")

    def _usable(self, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
        now_s = time.monotonic()
        return tuple(host for host in hosts if self._unusable.get(host.hostname, 0.0) <= now_s)

    def _tell(self, needed: int, slots: int) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "%d slots are needed, but %s names %d that can be used; waiting for more.",
                needed, self._source.name, slots,
            )  # fmt: skip

    def _wait(self) -> list[int]:
        """Until the source or the time has something to do; the signals that have come and that end a job."""
        source, surroundings = self._source, self._surroundings
        with select.epoll() as poller:
            source.wake(poller)
            if surroundings.signal_fd >= 0:
                poller.register(surroundings.signal_fd, select.EPOLLIN)
            left_s = min(source.next_s() or self._deadline_s, self._deadline_s) - time.monotonic()
            if surroundings.signal_fd not in [fd for fd, _ in poller.poll(max(0.0, left_s))]:
                return []
        passed_over = (SIGTSTP, surroundings.dump_signal)
        return [number for number in surroundings.take_signals() if number not in passed_over]
