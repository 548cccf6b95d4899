"""The addresses of this host's network interfaces, by the interfaces' names; and which of them other hosts are to use.

Used by bootstrap and fact_exchange, and by other code that listens for other hosts. It opens nothing but a datagram
socket to ask the kernel, and /proc.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence
from typing import Final

from horovod._net.failures import PlacementError

_SIOCGIFFLAGS: Final = 0x8913
_SIOCGIFADDR: Final = 0x8915
_SIOCGIFNETMASK: Final = 0x891B
_IFF_UP: Final = 1
_NAME_BYTES: Final = 15
_ADDRESS: Final = slice(20, 24)  # of struct ifreq: family and port of a sockaddr_in come before it
_IPV6_TABLE: Final = "/proc/net/if_inet6"
_ROUTES: Final = "/proc/net/route"
_LINK_LOCAL: Final = "20"  # its scope in that table: needs the interface's name wherever it is used


def ipv4_of(interface: str) -> str:
    """The IPv4 address of an interface; empty when it has none, or there is no such interface."""
    answer = _ask(_SIOCGIFADDR, interface)
    return socket.inet_ntoa(answer[_ADDRESS]) if answer else ""


def ipv6_of(interface: str) -> str:
    """An IPv6 address of an interface that other hosts can use as it stands; empty when it has none."""
    try:
        with open(_IPV6_TABLE, encoding="ascii") as table:
            rows = [line.split() for line in table]
    except OSError:
        return ""
    for digits, _, _, scope, _, name in rows:
        if name == interface and scope != _LINK_LOCAL:
            return str(ipaddress.IPv6Address(int(digits, 16)))
    return ""


def address_for_other_hosts(interfaces: Sequence[str], given: str) -> str:
    """The address of this host at which its ranks listen for those of other hosts.

    Args:
        interfaces: that the user has named, for all hosts; the first that has an address here counts.
        given: the address by which the launcher reaches this host; empty when it does not say.

    Raises:
        PlacementError: none of the interfaces has an address here, or there is neither.
    """
    if not interfaces:
        if given:
            return given
        raise PlacementError(
            "The address at which other hosts reach this one is not known. Name the network interface: "
            "HOROVOD_GLOO_IFACE, or horovodrun --network-interfaces."
        )
    for name in interfaces:
        address = ipv4_of(name) or ipv6_of(name)
        if address and ipaddress.ip_address(address).is_loopback:
            raise PlacementError(
                f"The network interface {name} has the address {address}, which means a different machine on each "
                "host. Name one that leads to the other hosts: HOROVOD_GLOO_IFACE, or horovodrun --network-interfaces."
            )
        if address:
            return address
    here = ", ".join(name for _, name in socket.if_nameindex()) or "none"
    raise PlacementError(
        f"None of the network interfaces {', '.join(interfaces)} has an address on this host, {socket.gethostname()}. "
        f"Its interfaces are: {here}. Name one for each host (the first that a host has counts): HOROVOD_GLOO_IFACE, "
        "or horovodrun --network-interfaces."
    )


def networks_of_this_host(interfaces: Sequence[str]) -> tuple[str, ...]:
    """ "address/length" of the interfaces of this host that are up, loopbacks left out; the likeliest to lead to other
    hosts first.

    Args:
        interfaces: that the user has named, for all hosts: then the first of them that has an address here, alone.

    Raises:
        PlacementError: none of those has one.
    """
    if interfaces:
        address = address_for_other_hosts(interfaces, "")
        return tuple(each for each in _networks() if each.partition("/")[0] == address) or (f"{address}/32",)
    return tuple(_networks())


def _networks() -> list[str]:
    default = _default_interface()
    names = sorted((name for _, name in socket.if_nameindex()), key=lambda name: name != default)
    usual = (ipv4_of(name) and f"{ipv4_of(name)}/{_length_of(name)}" for name in names if _is_up(name))
    newer = (f"{ipv6_of(name)}/64" if ipv6_of(name) else "" for name in names if _is_up(name))
    return [each for each in (*usual, *newer) if each and not ipaddress.ip_interface(each).ip.is_loopback]


def _default_interface() -> str:
    """The interface that leads to all hosts of which nothing else is known; empty when there is none."""
    try:
        with open(_ROUTES, encoding="ascii") as table:
            rows = [line.split() for line in table]
    except OSError:
        return ""
    return next((row[0] for row in rows if len(row) > 1 and row[1] == "00000000"), "")


def _is_up(interface: str) -> bool:
    answer = _ask(_SIOCGIFFLAGS, interface)
    return bool(answer) and bool(struct.unpack_from("H", answer, 16)[0] & _IFF_UP)


def _length_of(interface: str) -> int:
    answer = _ask(_SIOCGIFNETMASK, interface)
    mask = socket.inet_ntoa(answer[_ADDRESS]) if answer else "255.255.255.255"
    return ipaddress.ip_network(f"0.0.0.0/{mask}").prefixlen


def _ask(what: int, interface: str) -> bytes:
    request = struct.pack("256s", interface.encode()[:_NAME_BYTES])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            return fcntl.ioctl(sock, what, request)
        except OSError:
            return b""
