"""Kept for import paths that other people use: names of `horovod.runner.hosts` as upstream spells them. No logic."""

from __future__ import annotations

from horovod.runner.hosts import Host as HostInfo
from horovod.runner.hosts import Slot as SlotInfo
from horovod.runner.hosts import assign as get_host_assignments
from horovod.runner.hosts import parse_hosts

__all__ = ["HostInfo", "SlotInfo", "get_host_assignments", "parse_hosts"]
