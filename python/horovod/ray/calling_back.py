"""Callbacks of the program, called for what rank 0 logs (`ray_logger`). Used by `runner`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

from horovod.ray import cluster


class CallingBack:
    """A queue on the cluster, and whom to call for what comes there.

    Args:
        callbacks: each is called with each item.
    """

    def __init__(self, callbacks: Sequence[Callable[[Any], object]]) -> None:
        import ray
        from ray.util.queue import Queue

        self.queue = Queue(actor_options={"num_cpus": 0, **cluster.beside_this_process(ray)})
        self._callbacks = callbacks

    def drain(self) -> None:
        """Calls for what has come."""
        for _ in range(self.queue.qsize()):
            item = self.queue.get_nowait()
            for callback in self._callbacks:
                callback(item)

    def close(self) -> None:
        """Ends the queue."""
        with contextlib.suppress(Exception):  # Ray itself may be gone
            self.queue.shutdown(force=True)


@contextlib.contextmanager
def listening(callbacks: Sequence[Callable[[Any], object]]) -> Iterator[Optional[CallingBack]]:
    """What calls them inside a `with` block, and once more at its good end; None where there are none."""
    if not callbacks:
        yield None
        return
    calling = CallingBack(callbacks)
    try:
        yield calling
        calling.drain()
    finally:
        calling.close()
