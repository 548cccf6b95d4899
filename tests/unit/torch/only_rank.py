"""One rank without others, for the tests of what a state has written for a later job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horovod._core.commits.places import Folder
from horovod._core.training.elastic.durable import DurableCommits


class OnlyRank:
    """Rank 0 of 1, whose durable commits lie in a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from horovod._core.life import context
        from horovod.torch.elastic import state

        self._folder = folder
        monkeypatch.setattr(context, "rank", lambda: 0)
        monkeypatch.setattr(state, "broadcast_object", lambda value, *_, **__: value)

    def commits(self, state: Any) -> None:
        """Returns when it is written."""
        durable = self._durable()
        state.begin_durable(durable)
        state.commit()
        durable.close()

    def goes_on(self, state: Any) -> None:
        """As in another process: takes what was written last."""
        state.begin_durable(self._durable())
        state.take_durable()

    def _durable(self) -> DurableCommits:
        return DurableCommits(Folder(str(self._folder)), None, training=0, interval_s=0.0, keep=2)
