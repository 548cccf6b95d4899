"""Which hosts are this machine, and what tells a rank its place.

Used by launchers, elastic jobs and the doctor.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from typing import Final

from horovod._net.identity import host_identity
from horovod.runner.machines.hosts import Host, Slot, assign

_LOOPBACK: Final = frozenset({"localhost", "localhost.localdomain", "127.0.0.1", "::1"})


@functools.lru_cache(maxsize=256)
def is_local(hostname: str) -> bool:
    """The name or address belongs to this machine."""
    if hostname in _LOOPBACK or hostname in (socket.gethostname(), os.uname().nodename):
        return True
    try:
        addresses = socket.getaddrinfo(hostname, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, address in addresses:
        try:
            # Only an address of an own interface can be bound; a datagram socket listens to nobody.
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
                return True
        except OSError:
            continue
    return False


def facts() -> str:
    """What no other host of a job says of itself: a machine that goes by two names says it twice, and so do processes
    that can share memory."""
    spaces = [host_identity().boot_id, socket.gethostname()]
    for space in ("ipc", "net", "mnt"):
        with contextlib.suppress(OSError):
            spaces.append(os.readlink(f"/proc/self/ns/{space}"))
    return " ".join(spaces)


def with_one_name_here(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """As many ranks on each host: different names of this machine must not look like different hosts."""
    names = dict.fromkeys(slot.hostname for slot in slots)
    if len(names) == 1:
        return slots
    here = [name for name in names if is_local(name)]
    counts: dict[str, int] = {}
    for slot in slots:
        name = here[0] if slot.hostname in here else slot.hostname
        counts[name] = counts.get(name, 0) + 1
    return tuple(assign([Host(name, count) for name, count in counts.items()], len(slots)))


def rank_environ(slot: Slot) -> dict[str, str]:
    """The variables that tell a rank its place."""
    return {
        "HOROVOD_RANK": str(slot.rank),
        "HOROVOD_SIZE": str(slot.size),
        "HOROVOD_LOCAL_RANK": str(slot.local_rank),
        "HOROVOD_LOCAL_SIZE": str(slot.local_size),
        "HOROVOD_CROSS_RANK": str(slot.cross_rank),
        "HOROVOD_CROSS_SIZE": str(slot.cross_size),
        "HOROVOD_HOSTNAME": slot.hostname,
    }
