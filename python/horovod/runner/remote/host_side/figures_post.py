"""Says what the ranks of this host have counted: once a second while somebody wants it, and when a rank ends.

Used by `agent`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Callable, Final, Optional

from horovod.runner.live.figures import Reading, to_wire
from horovod.runner.processes.process import RankProcesses

# In one message: with the longest numbers and texts they take half of what a frame may have.
PORTION: Final = 16


class FiguresPost:
    """See the head of the file.

    Args:
        say: sends a message to the launcher.

    Attributes:
        processes: of this host, once they are started.
    """

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._until_s = 0.0
        self.processes: Optional[RankProcesses] = None

    def watch(self, seconds: float) -> None:
        """The launcher wants figures for so long."""
        begins = time.monotonic() >= self._until_s
        self._until_s = time.monotonic() + seconds
        if begins:
            self.tick()

    def tick(self) -> None:
        """Once a second."""
        if self.processes is not None and time.monotonic() < self._until_s:
            self._post(self.processes.figures_of_running())

    def ended(self, rank: int) -> None:
        """This rank has ended; what it has counted goes with the directory."""
        last = self.processes.last_reading(rank) if self.processes is not None else None
        if last is not None:
            self._post({rank: last})

    def _post(self, readings: Mapping[int, Reading]) -> None:
        rows = [[rank, *to_wire(each.figures)] for rank, each in readings.items()]
        for at in range(0, len(rows), PORTION):
            self._say("figures", ranks=rows[at : at + PORTION])
