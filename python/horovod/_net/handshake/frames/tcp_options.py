"""A cut link sends nothing, so the kernel must ask whether the other host is there.

It does so on every connection between ranks of different hosts, from the first packet on: while nothing is said, and
when what was said is not acknowledged. A link that comes back soon enough must be found again, so what is not
acknowledged is repeated every second, where the kernel can be asked for that; where not, the pauses double, and twice
the time is allowed. The core sets its own on the connections that it takes over (src/transport/tcp_channel.h). Used by
dialler and door.
"""

from __future__ import annotations

import contextlib
import math
import socket
from typing import Final

_RTO_MAX_MS: Final = 44  # TCP_RTO_MAX_MS of Linux 6.15, which Python does not name
_REPEAT_MS: Final = 1000  # the least that the kernel takes
_silence_s = 5.0


def believe_silence_of(seconds: float) -> None:
    """From here on, connections of this process break when the other host has been silent for longer: at most 2 s
    longer, or, where the kernel repeats packets after pauses that double, at most twice as long and 3 s. A silence that
    is at least half a second shorter breaks none."""
    global _silence_s
    _silence_s = seconds


def options(silence_s: float, steady: bool) -> tuple[tuple[str, int], ...]:
    """What the kernel is to do. Pure.

    Args:
        silence_s: that is believed.
        steady: the kernel repeats every second what is not acknowledged.
    """
    # The last answer may have come a second before the link was cut, the first question that is answered again is asked
    # up to a second after it is back; and the last question is not asked any more.
    questions = math.ceil(silence_s) + 1
    unacknowledged_s = math.ceil(silence_s) + 1.25 if steady else 2 * silence_s + 2
    return (
        ("TCP_KEEPIDLE", 1),  # seconds until the kernel asks
        ("TCP_KEEPINTVL", 1),  # and asks again
        ("TCP_KEEPCNT", questions),  # without an answer
        ("TCP_USER_TIMEOUT", int(unacknowledged_s * 1000)),  # milliseconds
    )


def notice_cut_links(sock: socket.socket) -> None:
    """Has the connection break when the other host is gone for long enough, or never comes to answer; and small
    messages leave at once.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    steady = False
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, _RTO_MAX_MS, _REPEAT_MS)
        steady = True
    for name, value in options(_silence_s, steady):
        with contextlib.suppress(OSError):  # sandboxes know fewer options
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
