"""Which address the compute service listens on: the loopback when nobody else can need more, else one interface.

Used by `compute_worker`. The decision is a pure function; looking up names and interfaces is at the edge. Never the
wildcard address: a service that is reachable over every network is more than anybody asked for.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Final

from horovod._core.errors import InvalidArgumentError
from horovod._net.interfaces import ipv4_of

LOOPBACK: Final = "127.0.0.1"
_REMEDY: Final = "Name the interface that other hosts reach: horovodrun --network-interface NIC."


def address_to_listen_on(
    one_host: bool,
    hostname: str,
    interfaces: Sequence[str],
    resolve: Callable[[str], str],
    address_of: Callable[[str], str],
) -> tuple[str, str]:
    """Decides.

    Args:
        one_host: all ranks of the compute job are on this host.
        hostname: what the launcher's list of hosts calls this host; "" without a list.
        interfaces: that the user has named; the first one counts.
        resolve: address of a host name.
        address_of: address of an interface.

    Returns:
        (interface, address); the interface is "lo" for the loopback and "" where only the host name was known.

    Raises:
        InvalidArgumentError: the name means the loopback, but there are other hosts.
    """
    if interfaces:
        return interfaces[0], address_of(interfaces[0])
    if one_host and hostname in ("", "localhost"):
        return "lo", LOOPBACK
    if not hostname:
        raise InvalidArgumentError(f"The compute job has ranks on several hosts, and none has a known name. {_REMEDY}")
    address = resolve(hostname)
    if not ipaddress.ip_address(address).is_loopback:
        return "", address
    if one_host:
        return "lo", address
    raise InvalidArgumentError(
        f"Host {hostname} calls itself {address}, where the compute job's other hosts cannot reach it. {_REMEDY}"
    )


def resolve(hostname: str) -> str:
    """The IPv4 address of a host, or its IPv6 address where it has no other.

    Raises:
        InvalidArgumentError: no such name.
    """
    try:
        found = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidArgumentError(f"Host name {hostname!r} has no address: {error}. {_REMEDY}") from error
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


def address_of_interface(name: str) -> str:
    """The IPv4 address of a network interface.

    Raises:
        InvalidArgumentError: there is no such interface, or it has none.
    """
    address = ipv4_of(name)
    if not address:
        raise InvalidArgumentError(f"Network interface {name!r} has no IPv4 address here. {_REMEDY}")
    return address


def joined(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
