"""One end of a TCP stream between two hosts: how fast the link is for whoever only sends.

Started by `harness.line` on a host:

    stream.py HERE THERE(addresses) WAYS(what this end does: "send", "receive" or "both") SECONDS [SOCKETS [zerocopy]]

The stream is striped over so many sockets (1), block by block, by one thread, as an engine would do it; with "zerocopy"
the kernel sends from the pages of this process (MSG_ZEROCOPY) where the way allows it. Writes "ready" when it listens,
begins when it reads a line, and writes the bits per second it received at last (0 for an end that only sends). Needs
nothing but Python.
"""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import sys
import threading
import time

_PORT = 7001
_BLOCK = 1 << 18
_WARM_UP_S = 0.2  # the window opens, and the link's burst is spent
# linux/socket.h; Python has no names for them.
_SO_ZEROCOPY, _MSG_ZEROCOPY = 60, 0x4000000
_UNACKNOWLEDGED = 32  # blocks whose pages the kernel may hold


def receive(door: socket.socket, rates: list[float], sockets: int) -> None:
    """Reads a stream to its end; adds its rate, without what came while it warmed up."""
    memory, began_s, ended_s, total = bytearray(_BLOCK), 0.0, 0.0, 0
    warm_s = time.monotonic() + _WARM_UP_S
    with selectors.DefaultSelector() as ready:
        for _ in range(sockets):
            ready.register(door.accept()[0], selectors.EVENT_READ)
        while ready.get_map():
            for key, _ in ready.select():
                wire = key.fileobj
                assert isinstance(wire, socket.socket)
                count = wire.recv_into(memory)
                if not count:
                    ready.unregister(wire)
                    wire.close()
                    continue
                ended_s = time.monotonic()
                if began_s:
                    total += count
                elif ended_s >= warm_s:
                    began_s = ended_s
    rates.append(8 * total / (ended_s - began_s) if ended_s > began_s > 0 else 0.0)


def send(address: str, seconds: float, sockets: int, zerocopy: bool) -> None:
    """Sends to the other end for so long."""
    with contextlib.ExitStack() as wires:
        stripes = [wires.enter_context(socket.create_connection((address, _PORT))) for _ in range(sockets)]
        for wire in stripes:
            wire.setsockopt(socket.SOL_SOCKET, _SO_ZEROCOPY, zerocopy)
        block, end_s = memoryview(bytes(_BLOCK)), time.monotonic() + _WARM_UP_S + seconds
        sent = 0
        for wire in itertools.cycle(stripes):
            if time.monotonic() >= end_s:
                return
            if not zerocopy:
                wire.sendall(block)
                continue
            rest = block
            while rest:
                rest = rest[wire.send(rest, _MSG_ZEROCOPY) :]
            sent += 1
            if sent > _UNACKNOWLEDGED * sockets:
                _await_pages(wire)


def _await_pages(wire: socket.socket) -> None:
    """Until the kernel has given pages back: they must not change before."""
    while True:
        try:
            wire.recvmsg(0, 256, socket.MSG_ERRQUEUE)
            return
        except BlockingIOError:
            time.sleep(50e-6)


def main(here: str, there: str, ways: str, seconds: str, sockets: str = "1", zerocopy: str = "") -> None:
    """One end, from start to end."""
    rates: list[float] = []
    with socket.create_server((here, _PORT)) as door:
        receiver = threading.Thread(target=receive, args=(door, rates, int(sockets)), daemon=True)
        print("ready", flush=True)
        sys.stdin.readline()
        if ways != "send":
            receiver.start()
        if ways != "receive":
            send(there, float(seconds), int(sockets), bool(zerocopy))
        if ways != "send":
            receiver.join()
    print(rates[0] if rates else 0.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
