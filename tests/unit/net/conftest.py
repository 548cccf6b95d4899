"""Gives every test its own place for meeting directories, so that tests at the same time do not meet."""

from __future__ import annotations

import pathlib

import pytest


@pytest.fixture
def private_base(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A private runtime directory; jobs meet in its sub-directory `horovod`. Its path is longer than a Unix
    address.
    """
    base = tmp_path / ("deep" * 25)
    base.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    return base
