"""The executors of an elastic job on Spark as its hosts: tasks come and go, and so do the slots of their executors.

Used by `driving`. The tasks of one executor are a host, since they are lost together. A host whose agent has ended is
over; the tasks that are left of that executor are a new host, under a name that no host has had.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from typing import Callable, Final, Optional

from horovod.runner.elastic.host_source import HostSource
from horovod.runner.machines.hosts import Host
from horovod.spark.placement import Facts, new_name

_LOOK_S: Final = 0.2


class _Executor:
    """A host.

    Attributes:
        name: of it.
        executor: as `Facts` has it.
        callers: its tasks.
        agent: the task that runs its agent; empty before the launcher has called it.
    """

    def __init__(self, name: str, executor: str) -> None:
        self.name = name
        self.executor = executor
        self.callers: list[str] = []
        self.agent = ""


class Executors:
    """See the head of the file. Pure."""

    def __init__(self) -> None:
        self._hosts: list[_Executor] = []
        self._names: set[str] = set()
        self._facts: Mapping[str, Facts] = {}

    def see(self, tasks: Mapping[str, Facts]) -> tuple[Host, ...]:
        """All hosts, with their slots.

        Args:
            tasks: that are connected, by the names by which they call.
        """
        self._facts = tasks
        over = [host for host in self._hosts if host.agent and host.agent not in tasks]
        self._hosts = [host for host in self._hosts if host not in over]
        for host in self._hosts:
            host.callers = [caller for caller in host.callers if caller in tasks]
        known = {caller for host in self._hosts for caller in host.callers}
        for caller, task in tasks.items():
            if caller not in known:
                self._host_of(task).callers.append(caller)
        self._hosts = [host for host in self._hosts if host.callers]
        return tuple(Host(host.name, len(host.callers)) for host in self._hosts)

    def _host_of(self, task: Facts) -> _Executor:
        host = next((host for host in self._hosts if host.executor == task.executor), None)
        if host is None:
            host = _Executor(new_name(task.hostname, self._names), task.executor)
            self._names.add(host.name)
            self._hosts.append(host)
        return host

    def agent_of(self, name: str) -> str:
        """The task that is to run the agent of a host; empty when it has gone."""
        host = next((host for host in self._hosts if host.name == name), None)
        if host is None:
            return ""
        host.agent = host.agent or host.callers[0]
        return host.agent

    def gpus_of(self, name: str) -> list[str]:
        """The GPUs that Spark has given the tasks of a host, in the order in which these have come."""
        callers = [caller for host in self._hosts if host.name == name for caller in host.callers]
        return [gpu for caller in callers for gpu in self._facts[caller].gpus]


class ExecutorSource(HostSource):
    """Names the hosts to an elastic launcher.

    Args:
        executors: of the job.
        tasks: those that are connected now, by the names by which they call.
    """

    name = "the Spark application"

    def __init__(self, executors: Executors, tasks: Callable[[], Mapping[str, Facts]]) -> None:
        self._executors = executors
        self._tasks = tasks
        self._next_s = time.monotonic()
        self._named: Optional[tuple[Host, ...]] = None

    def wake(self, poller: select.epoll) -> None:
        """It has no descriptor: it looks again and again."""

    def next_s(self) -> Optional[float]:
        return self._next_s

    def serve(self) -> Optional[tuple[Host, ...]]:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return None
        self._next_s = now_s + _LOOK_S
        hosts = self._executors.see(self._tasks())
        if hosts == self._named:
            return None
        self._named = hosts
        return hosts

    def close(self) -> None:
        """Nothing is open."""
