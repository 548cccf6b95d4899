"""Ranks for the tests of horovod._net: each is a thread of this process, or a forked child where a process must die.

Every rank has its own placement, sockets, claims and memory, exactly as in separate processes.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

from horovod._net.bootstrap import Ways, bootstrap
from horovod._net.clusters.placement import Placement
from horovod._net.connections import Connections

REGION_BYTES = 1 << 16
_numbers = itertools.count()


def unique_key() -> str:
    """A job key that no other test uses."""
    return f"test/{os.getpid()}/{next(_numbers)}"


def placements(size: int, key: Optional[str] = None, **fields: Any) -> list[Placement]:
    """All ranks of a job on one host."""
    key = key or unique_key()
    return [Placement(r, size, r, size, 0, 1, "test launcher", key, "here", **fields) for r in range(size)]


def in_threads(calls: Sequence[Callable[[], Any]], timeout_s: float = 60.0) -> list[Any]:
    """Runs the calls at the same time; the result or exception of each."""
    results: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            results[index] = calls[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
        if thread.is_alive():
            raise TimeoutError("a rank hangs")
    return results


def connect_all(jobs: Sequence[Placement], **options: Any) -> list[Union[Connections, Exception]]:
    """`bootstrap` on all the ranks given."""
    ways = Ways(
        **{name: options.pop(name) for name in ("transport", "full_mesh_ranks", "tree", "board") if name in options}
    )
    settings = {"epoch": 0, "region_bytes": REGION_BYTES, "timeout_s": 20.0, "ways": ways, **options}
    return in_threads([lambda p=p: bootstrap(p, **settings) for p in jobs])


def connected(jobs: Sequence[Placement], **options: Any) -> list[Connections]:
    """As `connect_all`, where none may fail."""
    results = connect_all(jobs, **options)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return [result for result in results if isinstance(result, Connections)]


def forked(call: Callable[[], None]) -> int:
    """Runs the call in a child process; its pid. The child ends with 0, or 1 after an exception."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            call()
            code = 0
        finally:
            os._exit(code)
    return pid


def open_descriptors() -> set[str]:
    """What this process has open."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
        except OSError:
            continue
    return found
