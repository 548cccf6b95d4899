"""Where the ranks of a job on Spark are: from what the tasks say of themselves to hosts with tasks. Pure.

Used by `driving` and `executors`. Tasks of one machine, and of the same namespaces and container of it, are one host
whose ranks share memory; containers of one machine are hosts of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from horovod._net.failures import ProtocolError
from horovod.runner.machines.hosts import Host

_NOT_OF_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+|^[.-]+")
_MOST_TASKS: Final = 1 << 24


class Facts(NamedTuple):
    """What a task says of itself.

    Attributes:
        partition: its number.
        machine: equal for tasks that can share memory, and for no others.
        executor: equal, besides, for those of one executor, which come and go together.
        hostname: of the machine.
        gpus: the addresses of the GPUs that Spark has given it.
    """

    partition: int
    machine: str
    executor: str
    hostname: str
    gpus: Sequence[str] = ()

    def text(self) -> str:
        """As it goes to the driver."""
        return json.dumps(self, separators=(",", ":"))

    @staticmethod
    def said(caller: str, text: str) -> Facts:
        """From `text`.

        Raises:
            ProtocolError: it is nothing of the kind.
        """
        try:
            partition, *words, gpus = json.loads(text)
            if type(partition) is int and 0 <= partition < _MOST_TASKS and isinstance(gpus, list):
                machine, executor, hostname = words
                if all(isinstance(each, str) for each in (*words, *gpus)):
                    return Facts(partition, machine, executor, hostname, gpus)
        except (ValueError, TypeError, RecursionError):
            pass
        raise ProtocolError(f"Task {caller} of Spark says nothing of itself that can be understood.")


class TasksOfHost(NamedTuple):
    """A host of the job.

    Attributes:
        name: that no other one has.
        callers: the names by which its tasks call, in the order of their numbers: so many ranks are there. The first
            one runs the agent.
        gpus: of each of them.
    """

    name: str
    callers: Sequence[str]
    gpus: Sequence[Sequence[str]]


def hosts_of(tasks: Mapping[str, Facts]) -> list[TasksOfHost]:
    """The hosts of a job, in the order of their first tasks: so the host of task 0 has rank 0.

    Args:
        tasks: by the names by which they call.
    """
    by_machine: dict[str, dict[str, Facts]] = {}
    for caller, task in sorted(tasks.items(), key=lambda each: each[1].partition):
        by_machine.setdefault(task.machine, {})[caller] = task
    names: set[str] = set()
    found = []
    for group in by_machine.values():
        name = new_name(next(iter(group.values())).hostname, names)
        names.add(name)
        found.append(TasksOfHost(name, list(group), [task.gpus for task in group.values()]))
    return found


def new_name(hostname: str, taken: Container[str]) -> str:
    """Of a host, as the job has it: containers may all have the same name."""
    plain = _NOT_OF_A_NAME.sub("", hostname) or "host"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


def said(words: Mapping[str, str]) -> dict[str, Facts]:
    """What all tasks that have called say of themselves.

    Args:
        words: of each, by the name by which it calls.

    Raises:
        ProtocolError: one says nonsense.
    """
    return {caller: Facts.said(caller, text) for caller, text in words.items()}


def in_words(hosts: Iterable[TasksOfHost]) -> str:
    """In the form of -H."""
    return ",".join(Host(host.name, len(host.callers)).to_string() for host in hosts)


def gpus_by_rank(hosts: Iterable[TasksOfHost]) -> list[Sequence[str]]:
    """The GPUs that Spark has given the task of each rank."""
    return [gpus for host in hosts for gpus in host.gpus]
