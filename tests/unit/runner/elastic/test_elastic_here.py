"""Hosts that an elastic job on one machine cannot use: passed over, and told once."""

from __future__ import annotations

import pytest

from horovod.runner.hosts import Host
from horovod.runner.launchers.elastic import Here


def test_hosts_elsewhere_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    here = Here("localhost")
    found = (Host("localhost", 2), Host("127.0.0.1", 1), Host("no-such-host.invalid", 4))
    for _ in range(2):
        assert here.of(found) == (Host("localhost", 3),)
    assert [record.getMessage() for record in caplog.records] == [
        "no-such-host.invalid is passed over: in this version an elastic job runs on this machine alone."
    ]
    assert here.of(found[2:]) == ()
