"""What other crews of elastic jobs do for processes and their output, and Ray does by itself. Used by `crew`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.live.figures import Reading
from horovod.runner.processes.vitals import Vitals


class RayDoesIt:
    """The part of `elastic.crew.ElasticCrew` that has nothing to do here."""

    def taken(self) -> None:
        """There is no output."""

    def vitals(self) -> Mapping[int, Optional[Vitals]]:
        return {}

    def figures(self) -> Mapping[int, Reading]:
        """Unknown: the workers have no way to say."""
        return {}

    def pause(self) -> None:
        """The ranks go on."""

    def resume(self) -> None:
        """They have gone on."""

    def assemble(self, surroundings: Surroundings) -> Optional[Outcome]:
        """See `elastic.crew`; all workers begin by `begin`."""
        del surroundings
        return None

    def unusable(self) -> Mapping[str, str]:
        """See `elastic.crew`."""
        return {}

    def address(self, host: str) -> str:
        """See `elastic.crew`; each placement says where its ranks meet."""
        del host
        return ""

    def release(self, host: str) -> None:
        """See `elastic.crew`; nothing is kept on a node without workers."""

    def strays(self) -> int:
        """See `elastic.crew`."""
        return 0
