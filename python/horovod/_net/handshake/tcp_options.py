"""Options of the TCP connections between ranks: small messages at once, and a dead host noticed within seconds.

A cut link sends nothing, so the kernel must ask. On every connection it does while nothing is said; on those that carry
control frames it also gives up when what was said is not acknowledged. Not on those that carry data: there a receiver
that does not read for a while (its process is stopped, say) would look the same. Used by reception.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from horovod._net.handshake.messages import ROLE_DATA

_IDLE_S: Final = 1  # until the kernel asks
_EVERY_S: Final = 1  # and asks again
_UNANSWERED: Final = 3  # questions
_UNACKNOWLEDGED_MS: Final = 4000


def set_for(sock: socket.socket, role: int) -> None:
    """Sets the options of a connection with this role."""
    tcp = socket.IPPROTO_TCP
    sock.setsockopt(tcp, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with contextlib.suppress(OSError):  # sandboxes know fewer options
        sock.setsockopt(tcp, socket.TCP_KEEPIDLE, _IDLE_S)
        sock.setsockopt(tcp, socket.TCP_KEEPINTVL, _EVERY_S)
        sock.setsockopt(tcp, socket.TCP_KEEPCNT, _UNANSWERED)
        if role != ROLE_DATA:
            sock.setsockopt(tcp, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
