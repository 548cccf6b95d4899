"""One rank of a contender: connects its library, then obeys the driver's orders and sleeps in a socket between them.

Started by `contest` through the contender's own launcher, in the contender's own environment; needs NumPy, and what
the library needs. While it has no order it blocks in `recv`, not in the library, so that the contenders of one run do
not take the cores from one another.

    rank.py LIBRARY SOCKET GATE CORES(one pinned core per rank: "pin", or "free")
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from typing import Any

from contenders.library import connect
from ranks.gate import Gate
from ranks.tasks import Tasks


def serve(library_name: str, address: str, gate_path: str, pinning: str) -> None:
    """Connects, greets, and obeys until the driver hangs up."""
    library = connect(library_name)
    usable = sorted(os.sched_getaffinity(0))
    if pinning == "pin":
        os.sched_setaffinity(0, {usable[library.rank % len(usable)]})
    tasks = Tasks(library, Gate(gate_path, library.rank, library.size, crowded=library.size > len(usable)))
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(address)
        stream = wire.makefile("rw")
        _send(stream, {"pid": os.getpid(), **tasks.run({"task": "hello"})})
        for line in stream:
            _send(stream, _obey(tasks, json.loads(line)))
    library.close()


def _obey(tasks: Tasks, order: dict[str, Any]) -> dict[str, Any]:
    try:
        return tasks.run(order)
    except NotImplementedError as error:
        return {"lacking": f"not offered: {error}"}
    except Exception as error:  # whatever a library raises belongs into the report
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}


def _send(stream: Any, reply: dict[str, Any]) -> None:
    stream.write(json.dumps(reply) + "\n")
    stream.flush()


if __name__ == "__main__":
    serve(*sys.argv[1:])
