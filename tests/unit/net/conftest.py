"""Gives every test its own place for meeting directories, so that tests at the same time do not meet."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Sequence

import pytest
from net_hosts import Hosts, MakeHosts


@pytest.fixture
def private_base(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A private runtime directory; jobs meet in its sub-directory `horovod`. Its path is longer than a Unix
    address.
    """
    base = tmp_path / ("deep" * 25)
    base.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    return base


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Iterator[MakeHosts]:
    """Makes a job on hosts with so many ranks each."""
    made: list[Hosts] = []

    def make(counts: Sequence[int], **fields: object) -> Hosts:
        base = tmp_path / str(len(made))
        base.mkdir()
        made.append(Hosts(base, counts, **fields))
        return made[-1]

    yield make
    for each in made:
        with contextlib.suppress(OSError):
            each.board.close()
