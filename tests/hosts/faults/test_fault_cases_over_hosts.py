"""Kinds of faults in phases of a job on several hosts: what happens to whom is data (`fault_kinds`)."""

from __future__ import annotations

from typing import Any

import pytest

from ..conftest import Hosts
from .fault_case import FaultCase, broken
from .fault_kinds import cases

pytestmark = pytest.mark.slow

# What no other test of hosts has, and the links in the phases where they differ most.
LEAN = {
    ("kill -9 of a rank", "reinit"),
    ("rank stopped, past the deadline", "large"),
    ("rank stopped, short of the deadline", "large"),
    ("link between two hosts cut", "init"),
    ("link between two hosts cut", "large"),
    ("one direction of it cut", "large"),
    ("link delayed by 200 ms", "init"),
    ("link loses 2 % of the packets", "large"),
    ("agent killed", "shutdown"),
    ("sshd's session killed", "between"),
    ("/dev/shm full on a host", "reinit"),
    ("disk full under the ranks' output", "small"),
}


def all_cases() -> list[Any]:
    return [
        pytest.param(*case, id="-".join(case), marks=() if case in LEAN else pytest.mark.exhaustive) for case in cases()
    ]


def test_the_lean_ones_are_there() -> None:
    assert set(cases()) > LEAN


@pytest.mark.parametrize(("fault", "phase"), all_cases())
def test_a_fault(hosts: Hosts, fault: str, phase: str) -> None:
    story = FaultCase(hosts, fault, phase).run()
    complaints = broken(story, fault, phase)
    assert not complaints, f"{complaints}\n{story.events}\n{story.said[-6000:]}"
