"""Which hosts there are and which rank goes where: from texts to values.

Used by `job` and, through `horovod.runner.common.util.hosts`, by other people's integrations. `read_hostfile` opens its
file; no name server is asked.
"""

from __future__ import annotations

import collections
import ipaddress
import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.runner.readers import named_files

# Not "-" first: a program that is called with the name would take it for an option.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Of a link-local address: the name or number of an interface, which Linux keeps below 16 bytes.
_SCOPE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
_BRACKETED: Final = re.compile(r"\[([^\[\]]*)\]")
_EQUALS: Final = re.compile(rf"{_NAME.pattern}=[0-9]{{1,7}}")
_SLOTS: Final = re.compile(r"[0-9]{1,7}")
_MAX_FILE_BYTES: Final = 4 << 20  # 100,000 hosts
_MOST_RANKS: Final = 1 << 20
_FILE_SLOTS: Final = re.compile(r"slots\s*=\s*(\S+)")


class Host(NamedTuple):
    """A host and the number of ranks that it may take."""

    hostname: str
    slots: int

    def to_string(self) -> str:
        """`name:slots` or `[IPv6]:slots`."""
        name = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{name}:{self.slots}"

    @staticmethod
    def from_string(text: str) -> Host:
        """Parses `name`, `name:slots`, `[IPv6]` or `[IPv6]:slots`.

        Raises:
            InvalidArgumentError: anything else.
        """
        return _host(text.strip(), f"host {text!r}")


class Slot(NamedTuple):
    """The place of one rank: its host, and its indices and sizes world-wide, on the host, and across hosts."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """The numbers, joined by commas, in the order in which other people's rendezvous servers send them."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(str(number) for number in numbers)


def parse_hosts(text: str) -> list[Host]:
    """Parses the form of -H: `host1:2,[fe80::1]:4,host3`. A missing number of slots is 1; a repeated host adds slots.

    Raises:
        InvalidArgumentError: a piece is not a host.
    """
    return _merged([_host(piece.strip(), f"-H {text!r}") for piece in text.split(",")])


def without_number(text: str) -> str:
    """The first host in the form of -H that has no number of slots; empty when each has one."""
    pieces = (piece.strip() for piece in text.split(","))
    return next((piece for piece in pieces if ":" not in piece.rpartition("]")[2]), "")


def read_hostfile(path: str) -> list[Host]:
    """Reads and parses a hostfile; see `parse_hostfile`.

    Raises:
        InvalidArgumentError: it cannot be read, is not a text, or a line is wrong.
    """
    try:
        data = named_files.read(path, _MAX_FILE_BYTES)
        text = data.decode("utf-8")
    except OSError as error:
        raise InvalidArgumentError(f"The hostfile {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InvalidArgumentError(f"The hostfile {path} is not a text file: {error}.") from error
    if len(data) > _MAX_FILE_BYTES:
        raise InvalidArgumentError(
            f"The hostfile {path} is larger than {_MAX_FILE_BYTES >> 20} MiB; is it the right file?"
        )
    return parse_hostfile(text, path)


def parse_hostfile(text: str, path: str = "hostfile") -> list[Host]:
    """Parses a hostfile. A line is `name slots=N`, `name:N`, `name` or blank; `#` begins a comment.

    Args:
        text: contents of the file.
        path: its name, for messages.

    Raises:
        InvalidArgumentError: a line is none of these (the message has its number), or there is no host.
    """
    hosts = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        where = f"{path}, line {number}"
        name, *rest = line.split(None, 1)
        if not rest:
            hosts.append(_host(name, where))
            continue
        match = _FILE_SLOTS.fullmatch(rest[0])
        if not match:
            raise InvalidArgumentError(f"{where}: expected 'name slots=N'. Received: {line!r}.")
        hosts.append(Host(host_name(name, where), _slots(match.group(1), where)))
    if not hosts:
        raise InvalidArgumentError(f"{path} names no host; write one 'name slots=N' per line.")
    return _merged(hosts)


def assign(
    hosts: Sequence[Host],
    min_num_proc: int,
    max_num_proc: Optional[int] = None,
    called: str = "-np",
    without_number: str = "",
) -> list[Slot]:
    """Places ranks: hosts are filled in the given order, so the ranks of a host are consecutive.

    Args:
        hosts: each host once.
        min_num_proc: ranks that must find a slot.
        max_num_proc: ranks to place at most; None = as many as there are slots.
        called: how the user has given their number.
        without_number: a host to which no number of slots was given, for the message.

    Returns:
        One slot per rank, in order of ranks. The cross rank of a rank is the index of its host among those hosts that
        have this local rank.

    Raises:
        InvalidArgumentError: there are fewer slots than `min_num_proc`, or far more ranks than a job can have.
    """
    total = sum(host.slots for host in hosts)
    if total < min_num_proc:
        listed = ", ".join(host.to_string() for host in hosts)
        more = f"{without_number}:{min_num_proc - total + 1}"
        hint = f" A host without a number has one slot: write -H {more}." if without_number else ""
        raise InvalidArgumentError(
            f"{min_num_proc} processes need {min_num_proc} slots, but the hosts have {total} ({listed}). "
            f"Name more slots or lower {called}.{hint}"
        )
    size = total if max_num_proc is None else min(total, max_num_proc)
    if size > _MOST_RANKS:
        raise InvalidArgumentError(f"A job has at most {_MOST_RANKS} processes; lower {called}. Received: {size}.")
    counts: list[tuple[str, int]] = []
    left = size
    for host in hosts:
        taken = min(host.slots, left)
        if taken:
            counts.append((host.hostname, taken))
        left -= taken
    cross_sizes = collections.Counter(local_rank for _, count in counts for local_rank in range(count))
    before = collections.Counter[int]()  # hosts so far, by the local ranks that they have
    slots: list[Slot] = []
    for hostname, count in counts:
        for local_rank in range(count):
            cross_rank, cross_size = before[local_rank], cross_sizes[local_rank]
            slots.append(Slot(hostname, len(slots), local_rank, cross_rank, size, count, cross_size))
            before[local_rank] += 1
    return slots


def _merged(hosts: Sequence[Host]) -> list[Host]:
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.hostname] = slots.get(host.hostname, 0) + host.slots
    return [Host(name, number) for name, number in slots.items()]


def _host(text: str, where: str) -> Host:
    if text.startswith("["):
        name, bracket, rest = text.partition("]")
        name += bracket
    else:
        name, colon, rest = text.partition(":")
        rest = colon + rest
    if not rest:
        return Host(host_name(name, where), 1)
    if rest.count(":") > 1:
        raise InvalidArgumentError(
            f"{where}: write an IPv6 address in brackets, as [fe80::1]:SLOTS. Received: {text!r}."
        )
    if not rest.startswith(":"):
        raise InvalidArgumentError(f"{where}: expected name:slots. Received: {text!r}.")
    return Host(host_name(name, where), _slots(rest[1:], where))


def host_name(text: str, where: str) -> str:
    """The name of a host, without the brackets of an IPv6 address.

    Raises:
        InvalidArgumentError: it cannot be one.
    """
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed:
        try:
            address, percent, scope = bracketed.group(1).partition("%")
            ipaddress.IPv6Address(address)
            if percent and not _SCOPE.fullmatch(scope):
                raise ValueError(f"its scope must be the name of an interface, as in fe80::1%eth0, not {scope!r}")
        except ValueError as error:
            raise InvalidArgumentError(f"{where}: {bracketed.group(1)!r} is not an IPv6 address: {error}.") from error
        return bracketed.group(1)
    user, at, name = text.partition("@")
    if at and _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{where}: a host is named without a user. ssh takes it from your configuration: write 'Host {name}' and "
            f"'User {user}' into ~/.ssh/config. Received: {text!r}."
        )
    if _EQUALS.fullmatch(text):
        name, _, slots = text.partition("=")
        raise InvalidArgumentError(f"{where}: {text!r} is not HOST:SLOTS. Write {name}:{slots}.")
    if not _NAME.fullmatch(text):
        raise InvalidArgumentError(
            f"{where}: a host name has letters, digits, '_', '.' and '-' only, the last two not as its first. "
            f"Received: {text!r}."
        )
    return text


def _slots(text: str, where: str) -> int:
    if not _SLOTS.fullmatch(text) or int(text) < 1:
        raise InvalidArgumentError(f"{where}: the number of slots must be an integer >= 1. Received: {text!r}.")
    return int(text)
