"""A cut link sends nothing, so the kernel must ask whether the other host is there.

It does so on every connection between ranks of different hosts, from the first packet on: while nothing is said, and
when what was said is not acknowledged. The core sets its own on the connections that it takes over. Used by dialler and
door.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

OPTIONS: Final = (
    ("TCP_KEEPIDLE", 1),  # seconds until the kernel asks
    ("TCP_KEEPINTVL", 1),  # and asks again
    ("TCP_KEEPCNT", 3),  # questions without an answer
    ("TCP_USER_TIMEOUT", 4000),  # milliseconds without an acknowledgement
)


def notice_cut_links(sock: socket.socket) -> None:
    """Has the connection break within seconds when the other host is gone, or never comes to answer; and small messages
    leave at once.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in OPTIONS:
        with contextlib.suppress(OSError):  # sandboxes know fewer options
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
