"""Beats from a thread of their own: a launcher whose loop is held up, by a disk that hangs say, still lives.

Used by `fleet`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from horovod.runner.loop import TICK_S
from horovod.runner.remote.launcher_side.link import Link
from horovod.runner.remote.wire.pulses import PULSE_S


class Beats:
    """Runs until `close`.

    Args:
        links: to all agents; the list may grow.
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
        pulses = 0
        while not self._over.wait(PULSE_S):
            pulses += 1
            for link in list(self._links):
                link.channel.ask()
                if pulses % round(TICK_S / PULSE_S) == 0:
                    link.channel.beat()
