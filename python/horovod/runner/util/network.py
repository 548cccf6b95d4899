"""Kept for import paths that other people use: this machine's addresses and interfaces."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from horovod._core.absent import absent_names
from horovod.runner.launchers.places import is_local


def get_local_intfs() -> set[str]:
    """Names of the network interfaces of this machine."""
    return {name for _, name in socket.if_nameindex()}


def filter_local_addresses(all_host_names: Iterable[str]) -> list[str]:
    """Those of the names that are not this machine's."""
    return [name for name in all_host_names if not is_local(name)]


def resolve_host_address(host_name: str) -> str:
    """The host's IPv4 address; the name itself where it cannot be resolved."""
    try:
        return socket.gethostbyname(host_name)
    except OSError:
        return host_name


__getattr__ = absent_names(
    __name__,
    {
        "get_driver_ip": "localhost: all ranks run on this machine, and meet there",
        "get_local_host_addresses": "socket.getaddrinfo(socket.gethostname(), None), or get_local_intfs()",
    },
)
