"""Beats from a thread of their own: a launcher whose loop is held up, by a disk that hangs say, still lives.

Used by `fleet`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from horovod.runner.remote.link import Link
from horovod.runner.remote.loop import TICK_S


class Beats:
    """Runs until `close`.

    Args:
        links: that are told; those that come later, too.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="horovodrun beats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. May be called twice."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(TICK_S):
            for link in list(self._links):
                link.beat()
