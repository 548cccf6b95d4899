"""Makes the modules of this folder importable from its tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


def pytest_configure(config: pytest.Config) -> None:
    """Long jobs are not part of the default run."""
    config.addinivalue_line("markers", "slow: takes long; run by `make test-all`")
