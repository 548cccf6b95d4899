"""A bad wire: carries frames between two network interfaces, each after a delay, some not at all, some changed.

`python wire.py ONE OTHER DELAY_S LOSS [FROM TO]`, in the namespace that has both; runs until its stdin ends. FROM and
TO are equally long: what a man in the middle writes over; checksums are made on the way, so that a changed frame is a
good one. For delay and loss kernels have a queueing discipline (netem), but not all of them.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import select
import socket
import sys
import time

_ALL_PROTOCOLS = 3
_SOL_PACKET, _ADD_MEMBERSHIP, _VNET_HEADER, _PROMISCUOUS = 263, 1, 15, 1
_OUTGOING = 4
_MOST_BYTES = 1 << 17
_BUFFER_BYTES = 64 << 20


def end_of(name: str) -> socket.socket:
    """All frames of an interface, each behind a header that says which checksums are still to be made."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(socket.SOL_SOCKET, 33, _BUFFER_BYTES)  # SO_RCVBUFFORCE
    sock.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
    sock.bind((name, _ALL_PROTOCOLS))
    index = socket.if_nametoindex(name)
    sock.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, index.to_bytes(4, sys.byteorder) + bytes([_PROMISCUOUS]) + bytes(11))
    sock.setblocking(False)
    return sock


def main() -> None:
    delay_s, loss = map(float, sys.argv[3:5])
    words = [word.encode() for word in sys.argv[5:]]
    ends = [end_of(name) for name in sys.argv[1:3]]
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    chance = random.Random(1)
    order = itertools.count()
    on_their_way: list[tuple[float, int, socket.socket, bytes]] = []
    print("up", flush=True)
    while True:
        pause_s = max(0.0, on_their_way[0][0] - time.monotonic()) if on_their_way else None
        ready, _, _ = select.select([*ends, sys.stdin], [], [], pause_s)
        if sys.stdin in ready:
            return
        for end in ready:
            for _ in range(64):
                try:
                    frame, address = end.recvfrom(_MOST_BYTES)
                except BlockingIOError:
                    break
                if words:
                    frame = frame.replace(*words)
                if address[2] != _OUTGOING and chance.random() >= loss:
                    heapq.heappush(on_their_way, (time.monotonic() + delay_s, next(order), other[end], frame))
        while on_their_way and on_their_way[0][0] <= time.monotonic():
            with contextlib.suppress(OSError):  # a full queue loses frames, as wires do
                on_their_way[0][2].send(on_their_way[0][3])
            heapq.heappop(on_their_way)


main()
