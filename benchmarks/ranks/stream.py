"""One end of a plain TCP stream between two hosts: how fast the link is for whoever only sends.

Started by `harness.line` on a host:

    stream.py HERE THERE(addresses) WAYS(what this end does: "send", "receive" or "both") SECONDS

Writes "ready" when it listens, begins when it reads a line, and writes the bits per second it received at last (0 for
an end that only sends). Needs nothing but Python.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

_PORT = 7001
_BLOCK = 1 << 18
_WARM_UP_S = 0.2  # the window opens, and the link's burst is spent


def receive(door: socket.socket, rates: list[float]) -> None:
    """Reads one stream to its end; adds its rate, without what came while it warmed up."""
    wire, _ = door.accept()
    memory, began_s, ended_s, total = bytearray(_BLOCK), 0.0, 0.0, 0
    warm_s = time.monotonic() + _WARM_UP_S
    while count := wire.recv_into(memory):
        ended_s = time.monotonic()
        if began_s:
            total += count
        elif ended_s >= warm_s:
            began_s = ended_s
    rates.append(8 * total / (ended_s - began_s) if ended_s > began_s > 0 else 0.0)


def send(address: str, seconds: float) -> None:
    """Sends to the other end for so long."""
    with socket.create_connection((address, _PORT)) as wire:
        block, end_s = bytes(_BLOCK), time.monotonic() + _WARM_UP_S + seconds
        while time.monotonic() < end_s:
            wire.sendall(block)


def main(here: str, there: str, ways: str, seconds: str) -> None:
    """One end, from start to end."""
    rates: list[float] = []
    with socket.create_server((here, _PORT)) as door:
        receiver = threading.Thread(target=receive, args=(door, rates), daemon=True)
        print("ready", flush=True)
        sys.stdin.readline()
        if ways != "send":
            receiver.start()
        if ways != "receive":
            send(there, float(seconds))
        if ways != "send":
            receiver.join()
    print(rates[0] if rates else 0.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
