"""Where the ranks of a job on Spark are: from what the tasks say of their machines to hosts with tasks. Pure.

Used by `tasks`, all of which come to the same result, and by `running`. Tasks of one machine, and of the same
namespaces of it, are one host whose ranks share memory; containers of one machine are hosts of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from horovod._net.failures import ProtocolError
from horovod.runner.machines.hosts import Host

_NOT_OF_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+|^[.-]+")


class Facts(NamedTuple):
    """What a task says of itself.

    Attributes:
        partition: its number.
        machine: equal for tasks that can share memory, and for no others.
        hostname: of the machine.
        gpus: the addresses of the GPUs that Spark has given it.
    """

    partition: int
    machine: str
    hostname: str
    gpus: Sequence[str] = ()

    def text(self) -> str:
        """As it travels among the tasks."""
        return json.dumps(self)

    @staticmethod
    def of(text: str) -> Facts:
        """From `text`."""
        return Facts(*json.loads(text))


class TasksOfHost(NamedTuple):
    """A host of the job.

    Attributes:
        name: that no other one has.
        partitions: of its tasks, ascending: so many ranks are there. The first one runs the agent.
        gpus: of each of them.
    """

    name: str
    partitions: Sequence[int]
    gpus: Sequence[Sequence[str]]

    def call_of(self, partition: int) -> tuple[str, str]:
        """The name by which one of its tasks calls the launcher, and what it says there. Only the first task uses the
        name of the host, under which the launcher looks for an agent, and says anything."""
        if partition != self.partitions[0]:
            return f"{self.name}#{partition}", ""
        return self.name, json.dumps((self.partitions, self.gpus), separators=(",", ":"))

    @staticmethod
    def said(name: str, words: str) -> TasksOfHost:
        """From `call_of` its first task.

        Raises:
            ProtocolError: it is nothing of the kind.
        """
        try:
            partitions, gpus = json.loads(words)
            checked = [int(each) for each in partitions], [[str(gpu) for gpu in each] for each in gpus]
        except (ValueError, TypeError) as error:
            raise ProtocolError(f"The agent of {name} says nothing of its tasks.") from error
        return TasksOfHost(name, *checked)


def hosts_of(tasks: Iterable[Facts]) -> list[TasksOfHost]:
    """The hosts of a job, in the order of their first tasks: so the host of task 0 has rank 0."""
    by_machine: dict[str, list[Facts]] = {}
    for task in sorted(tasks):
        by_machine.setdefault(task.machine, []).append(task)
    names: set[str] = set()
    found = []
    for group in by_machine.values():
        name = _new_name(group[0].hostname, names)
        names.add(name)
        found.append(TasksOfHost(name, [task.partition for task in group], [task.gpus for task in group]))
    return found


def _new_name(hostname: str, taken: set[str]) -> str:
    """Containers may all have the same name."""
    plain = _NOT_OF_A_NAME.sub("", hostname) or "host"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


def come(words: Mapping[str, str], tasks: int) -> list[TasksOfHost]:
    """All hosts of the job, in its order; empty while some have not called yet.

    Args:
        words: by name, of the tasks that have called.
        tasks: of the job.
    """
    if len(words) < tasks:
        return []
    hosts = [TasksOfHost.said(name, text) for name, text in words.items() if text]
    return sorted(hosts, key=lambda host: host.partitions[0])


def in_words(hosts: Iterable[TasksOfHost]) -> str:
    """In the form of -H."""
    return ",".join(Host(host.name, len(host.partitions)).to_string() for host in hosts)


def gpus_by_rank(hosts: Iterable[TasksOfHost]) -> list[Sequence[str]]:
    """The GPUs that Spark has given the task of each rank."""
    return [gpus for host in hosts for gpus in host.gpus]
