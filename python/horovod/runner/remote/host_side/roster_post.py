"""The roster of an elastic job on one host, with the launcher at the other end of an agent's connection.

Used by `agent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from horovod.runner.elastic.roster_keeper import RosterKeeper
from horovod.runner.loop import Loop
from horovod.runner.processes.crew import Asks


class Say(Protocol):
    """Sends the launcher a control message."""

    def __call__(self, message: str, **fields: Any) -> None: ...


class RosterPost:
    """See the head of the file.

    Args:
        loop: that calls.
        directory: of the job.
        say: what workers ask goes there.
    """

    def __init__(self, loop: Loop, directory: Path, say: Say) -> None:
        self._loop = loop
        self._say = say
        self._keeper = RosterKeeper(directory)
        loop.watch(self._keeper.fileno(), self.pass_on)

    def pass_on(self) -> None:
        """Passes on what workers have said since. Called once a second too: there may be room for one that waits."""
        for heard in self._keeper.serve():
            if isinstance(heard, Asks):
                self._say("asks", rank=heard.rank, epoch=heard.version[0], commits=heard.version[1], why=heard.why)
            else:
                self._say("bereft", rank=heard.rank)

    def deliver(self, worker: int, words: Mapping[str, Any]) -> None:
        """Tells a worker what the launcher says."""
        self._keeper.say(worker, words)

    def close(self) -> None:
        """Ends the roster."""
        self._loop.watch(self._keeper.fileno(), None)
        self._keeper.close()
