"""Kept for import paths that other people use: names of `horovod.runner.hosts` as upstream spells them."""

from __future__ import annotations

from typing import Final

from horovod.runner.hosts import Host as HostInfo
from horovod.runner.hosts import Slot as SlotInfo
from horovod.runner.hosts import assign as get_host_assignments
from horovod.runner.hosts import parse_hosts, read_hostfile

__all__ = [
    "INVALID_SLOT_INFO",
    "HostInfo",
    "SlotInfo",
    "get_host_assignments",
    "parse_host_files",
    "parse_hosts",
    "parse_hosts_and_slots",
]

# A place that no rank has.
INVALID_SLOT_INFO: Final = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_host_files(filename: str) -> str:
    """The hosts of a hostfile in the form of -H."""
    return ",".join(host.to_string() for host in read_hostfile(filename))


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """The form of -H as names in order, and slots by name."""
    parsed = parse_hosts(hosts)
    return [host.hostname for host in parsed], {host.hostname: host.slots for host in parsed}
