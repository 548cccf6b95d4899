"""What each rank tells the others about itself, and what follows from all of it. Pure.

Which ranks share a host, what each host is called, and at which address each is reached by the others, follow from the
same facts by the same rules on every rank: nobody need be asked. Used by fact_exchange.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Optional

from horovod._net.failures import MeetingError

_MOST_NETWORKS: Final = 12
_MOST_NAME: Final = 200


class Facts(NamedTuple):
    """One rank's.

    Attributes:
        host: its name, for messages.
        place: equal on two ranks that can meet in one private directory and may share memory.
        networks: "address/length" of each interface, the likeliest to lead to the other hosts first.
        version: of Horovod there.
    """

    host: str
    place: str
    networks: tuple[str, ...]
    version: str = ""

    def packed(self) -> bytes:
        """As bytes, not more than a block of `mpi.gathering` or an entry of a board holds."""
        parts = [self.host[:_MOST_NAME], self.place[:_MOST_NAME], list(self.networks[:_MOST_NETWORKS]), self.version]
        return json.dumps(parts, ensure_ascii=True, separators=(",", ":")).encode()


def unpacked(rank: int, data: bytes) -> Facts:
    """A rank's facts from its bytes.

    Raises:
        MeetingError: they are none.
    """
    try:
        host, place, networks, version = json.loads(data)
        for each in networks:
            ipaddress.ip_interface(each)
        if all(isinstance(each, str) for each in (host, place, version)) and isinstance(networks, list):
            return Facts(host, place, tuple(networks), version)
    except (ValueError, TypeError, RecursionError):
        pass
    raise MeetingError(
        f"Rank {rank} introduced itself in an unknown format ({data[:60]!r}): all ranks must run the same Horovod."
    )


def refuse_other_versions(facts: Sequence[Facts]) -> None:
    """Does nothing if all ranks run the same Horovod as rank 0.

    Raises:
        MeetingError: one does not; says which, on which host.
    """
    for rank, each in enumerate(facts):
        if each.version != facts[0].version:
            raise MeetingError(
                f"Rank {rank} on {each.host} has Horovod {each.version}, rank 0 on {facts[0].host} has "
                f"{facts[0].version}; install the same version on all hosts."
            )


def hosts_of(facts: Sequence[Facts]) -> list[int]:
    """The number of each rank's host; hosts are numbered in the order of their first ranks."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(each.place, len(numbers)) for each in facts]


def names_of(facts: Sequence[Facts]) -> list[str]:
    """What each rank's host is called in this job: by its name, with a number where two have the same."""
    hosts = hosts_of(facts)
    first = [facts[hosts.index(number)].host.split() for number in range(max(hosts) + 1)]
    plain = ["".join(words) or "host" for words in first]
    names = [name if plain.count(name) == 1 else f"{name}#{number}" for number, name in enumerate(plain)]
    return [names[number] for number in hosts]


def addresses_of(facts: Sequence[Facts]) -> list[str]:
    """At which address each rank is reached by those of other hosts; empty where a rank has none.

    A network that all hosts are in wins, the first in the order of the first host; an address that two hosts claim
    (such as a bridge for containers on each host) is not used. Without such a network each host is reached at the first
    address that it names itself.
    """
    hosts = hosts_of(facts)
    named = [facts[hosts.index(number)].networks for number in range(max(hosts) + 1)]
    claimed = [str(ipaddress.ip_interface(each).ip) for networks in named for each in networks]
    usable = [[each for each in networks if claimed.count(_address(each)) == 1] or list(networks) for networks in named]
    common = _first_common(usable)
    chosen = [_within(networks, common) or (networks[0] if networks else "") for networks in usable]
    return [_address(chosen[number]) for number in hosts]


def _first_common(networks_of_hosts: Sequence[Sequence[str]]) -> Optional[Any]:
    for each in networks_of_hosts[0]:
        network = ipaddress.ip_interface(each).network
        if all(_within(networks, network) for networks in networks_of_hosts):
            return network
    return None


def _within(networks: Sequence[str], network: Optional[Any]) -> str:
    return next((each for each in networks if ipaddress.ip_interface(each).network == network), "")


def _address(interface: str) -> str:
    return interface.partition("/")[0]
