"""Lets the security tests use the ranks and sessions of tests/unit, and gives each test its own place to meet."""

from __future__ import annotations

import pathlib
import sys

import pytest

for folder in ("net", "spark"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "unit" / folder))


@pytest.fixture
def private_base(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A private runtime directory; jobs meet in its sub-directory `horovod`."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path
