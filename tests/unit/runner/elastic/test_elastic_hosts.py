"""The hosts of an elastic job by the names that its launcher has for them."""

from __future__ import annotations

from horovod.runner.launchers.elastic_hosts import Names
from horovod.runner.machines.hosts import Host


def test_names_of_this_machine_are_one_host() -> None:
    names = Names()
    found = names.of((Host("no-such-host.invalid", 4), Host("localhost", 2), Host("127.0.0.1", 1)))
    assert found == (Host("no-such-host.invalid", 4), Host("localhost", 3))
    assert names.of((Host("127.0.0.1", 1),)) == (Host("localhost", 1),)
    assert names.of(()) == ()
