"""What tests of states share."""

from __future__ import annotations

from pathlib import Path

import pytest
from only_rank import OnlyRank


@pytest.fixture
def only_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnlyRank:
    """This process."""
    return OnlyRank(tmp_path, monkeypatch)
