"""What an allocation is, what a scheduler's plug-in is, and how they read a scheduler's list of hosts.

Used by the plug-ins and by `choose`. The plug-ins are functions of an environment and of a reader of named files, so
that tests need neither a scheduler nor files.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Callable, Final, NamedTuple

from horovod._core.errors import InvalidArgumentError
from horovod.runner.machines.hosts import Host, host_name
from horovod.runner.readers import named_files
from horovod.runner.readers.command_output import MAX_BYTES, answer_of, text_of

MOST_HOSTS: Final = 1 << 16
MOST_SLOTS: Final = 1 << 20

Environment = Mapping[str, str]


class Sources(NamedTuple):
    """What a plug-in may look at besides the environment.

    Attributes:
        file: contents of a named file.
        answer: standard output of a command.
    """

    file: Callable[[str], str]
    answer: Callable[[Sequence[str]], str]


class Allocation(NamedTuple):
    """What a scheduler has given to this job.

    Attributes:
        scheduler: its name.
        job: its name for the job.
        hosts: in the scheduler's order, each once.
        source: the source of the list, for messages.
    """

    scheduler: str
    job: str
    hosts: tuple[Host, ...]
    source: str

    @property
    def slots(self) -> int:
        """Of all hosts."""
        return sum(host.slots for host in self.hosts)

    def words(self) -> str:
        """The allocation in a message."""
        listed = ", ".join(host.to_string() for host in self.hosts[:8])
        more = f", ... {len(self.hosts)} hosts" if len(self.hosts) > 8 else ""
        return f"{self.scheduler}'s allocation {self.job} ({listed}{more}; from {self.source})"


class Scheduler(NamedTuple):
    """One plug-in.

    Attributes:
        name: of the scheduler.
        present: the environment is that of a job of this scheduler.
        read: its hosts. Raises InvalidArgumentError when they are not known.
    """

    name: str
    present: Callable[[Environment], bool]
    read: Callable[[Environment, Sources], Allocation]


def counted(names: Iterable[str], where: str) -> tuple[Host, ...]:
    """Hosts from a list that has each name once per slot."""
    slots: dict[str, int] = {}
    for number, name in enumerate(names):
        if number >= MOST_SLOTS:
            raise InvalidArgumentError(f"{where} lists more than {MOST_SLOTS} slots; is it the right one?")
        slots[name] = slots.get(name, 0) + 1
    return checked(slots, where)


def checked(slots: Mapping[str, int], where: str) -> tuple[Host, ...]:
    """Hosts with their slots, if there are any and not too many. A host without a slot is left out.

    Raises:
        InvalidArgumentError: a name or a number is invalid.
    """
    hosts = tuple(Host(host_name(name, where), count) for name, count in slots.items() if count)
    if not hosts:
        raise InvalidArgumentError(f"{where} names no host with a slot; name the hosts yourself with -H.")
    if len(hosts) > MOST_HOSTS or sum(host.slots for host in hosts) > MOST_SLOTS:
        raise InvalidArgumentError(
            f"{where} has {len(hosts)} hosts with {sum(host.slots for host in hosts)} slots; at most {MOST_HOSTS} "
            f"hosts and {MOST_SLOTS} slots are allowed. Name the hosts yourself with -H."
        )
    return hosts


def read_file(path: str) -> str:
    """A file that the environment names. The reader of `SOURCES`.

    Raises:
        InvalidArgumentError: it cannot be read, is too large, or is not a text.
    """
    try:
        data = named_files.read(path, MAX_BYTES)
    except OSError as error:
        raise InvalidArgumentError(
            f"The scheduler's list of hosts {path} cannot be read: {error.strerror}. Name the hosts yourself with -H."
        ) from error
    if len(data) > MAX_BYTES:
        raise InvalidArgumentError(
            f"The scheduler's list of hosts {path} is larger than {MAX_BYTES >> 20} MiB; is it the right file?"
        )
    return text_of(data, path)


SOURCES: Final = Sources(
    read_file,
    functools.partial(answer_of, consequence="the hosts of this allocation are not known. Name them yourself with -H."),
)
