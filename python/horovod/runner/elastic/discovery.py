"""What a host discovery script has printed, as hosts. Pure.

Used by `machine` and `script`. A script prints one `host` or `host:slots` per line; `#` begins a comment, as in a
hostfile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Optional

from horovod._core.absent import absent_names
from horovod._core.errors import InvalidArgumentError
from horovod.runner.machines.hosts import Host, host_name

_MOST_HOSTS = 1 << 16
_WITHOUT_SLOTS: Final = re.compile(r"([^:]+|\[.*\]):0+")


def parse(text: str, script: str, default_slots: Optional[int]) -> tuple[Host, ...]:
    """The hosts that have slots, in the order in which they were printed; one that is printed twice has the slots of
    both lines.

    Args:
        text: all that the script has printed.
        script: its name, for messages.
        default_slots: of a host without a number; None: it must have one.

    Raises:
        InvalidArgumentError: a line is not a host; the message has the line. There are far too many.
    """
    slots: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].strip()
        if words:
            host = _host(words, f"{script}, line {number}", default_slots)
            slots[host.hostname] = slots.get(host.hostname, 0) + host.slots
        if len(slots) > _MOST_HOSTS:
            raise InvalidArgumentError(f"{script} prints more than {_MOST_HOSTS} hosts; is it the right script?")
    return tuple(Host(name, number) for name, number in slots.items() if number)


def in_stable_order(known: Sequence[Host], found: Sequence[Host]) -> tuple[Host, ...]:
    """The found hosts: those that were known keep their order, new ones follow in that of the script."""
    slots = {host.hostname: host.slots for host in found}
    names = [host.hostname for host in known if host.hostname in slots]
    names += [name for name in slots if name not in names]
    return tuple(Host(name, slots[name]) for name in names)


def _host(words: str, where: str, default_slots: Optional[int]) -> Host:
    bare = ":" not in words or words.endswith("]")
    if without_slots := _WITHOUT_SLOTS.fullmatch(words):
        return Host(host_name(without_slots.group(1), where), 0)
    if not bare:
        try:
            return Host.from_string(words)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{where}: {error}") from None
    if default_slots is None:
        raise InvalidArgumentError(
            f"{where}: {words!r} has no number of slots; print 'host:slots', or give one for all with --slots-per-host."
        )
    return Host(host_name(words, where), default_slots)


__getattr__ = absent_names(
    __name__,
    {
        "HostDiscoveryScript": "horovodrun --host-discovery-script, or the host_discovery_script of horovod.run()",
        "HostManager": "horovodrun --host-discovery-script, which follows the hosts by itself",
    },
)
