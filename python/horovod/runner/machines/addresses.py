"""By which address other hosts reach a host of the job: what ssh says of its connections, or else the route there.

Used by `launchers.agents` and `agent`. Opens datagram sockets that send nothing.
"""

from __future__ import annotations

import ipaddress
import socket


def of_server(ssh_connection: str) -> str:
    """Where the agent's host was reached, from its SSH_CONNECTION; empty when that says nothing."""
    words = ssh_connection.split()
    return _plain(words[2]) if len(words) == 4 else ""


def of_client(ssh_connection: str) -> str:
    """From where it was reached; the launcher's address, unless somebody in between has another one."""
    words = ssh_connection.split()
    return _plain(words[0]) if len(words) == 4 else ""


def is_own(address: str) -> bool:
    """The address is one of this machine."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
            return True
    except (OSError, UnicodeError):
        return False


def towards(address: str) -> str:
    """This machine's own address on the way to another one; empty when there is no way."""
    try:
        found = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)
            return _plain(str(probe.getsockname()[0]))
    except (OSError, UnicodeError):
        return ""


def of_name(hostname: str) -> str:
    """The first address of a name; empty when it has none."""
    try:
        return _plain(str(socket.getaddrinfo(hostname, 0, type=socket.SOCK_STREAM)[0][4][0]))
    except (OSError, UnicodeError):
        return ""


def of_peer(connection: socket.socket) -> str:
    """Of the other end of a connection; empty where that is this machine, by its loopback, or has gone."""
    try:
        address = _plain(str(connection.getpeername()[0]))
    except OSError:
        return ""
    return "" if not address or ipaddress.ip_address(address).is_loopback else address


def _plain(text: str) -> str:
    """An address as ranks can use it: without brackets, and IPv4 where it is an IPv4 address inside of IPv6."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
