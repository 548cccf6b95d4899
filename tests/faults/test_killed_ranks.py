"""A rank dies in each phase of its life: the others raise within a second and can still say who they are, the launcher
names the dead, and nothing is left behind."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from .fault_job import Fault, Story, run
from .promises import NOTICED_S, PHASES, broken

# Every phase once, and every rank in the phases where the root, a middle rank and the last one differ most.
SHORT = [
    Fault("early", 1),
    Fault("joined", 0),
    Fault("paired", 2),
    Fault("connected", 1),
    Fault("idle", 2),
    Fault("negotiation", 0),
    Fault("loop", 1),
    Fault("between", 0),
    Fault("shutdown", 0),
    Fault("unsaid", 2),
    Fault("reinit", 1),
    Fault("rejoin", 2),
    Fault("between", 1, "SEGV"),
    Fault("between", 2, "EXIT"),
    Fault("early", 0, "EXIT"),
]
RANKS = (0, 1, 2)
HOWS = ("KILL", "SEGV", "EXIT")


def everywhere() -> list[Any]:
    """Every phase x rank x fault; any two of these meet also in the third of them that is not exhaustive."""
    chosen = []
    for (p, phase), (r, rank), (h, how) in itertools.product(*map(enumerate, (PHASES, RANKS, HOWS))):
        marks = () if (p + r + h) % len(RANKS) == 0 else pytest.mark.exhaustive
        fault = Fault(phase, rank, how)
        chosen.append(pytest.param(fault, id=name_of(fault), marks=marks))
    return chosen


def name_of(fault: Fault) -> str:
    """For the test's name."""
    return f"{fault.phase}-{fault.rank}-{fault.how}"


def check(story: Story, fault: Fault) -> None:
    """Fails with the whole story."""
    complaints = broken(story, fault)
    assert not complaints, f"{complaints}\n{story}"


@pytest.mark.parametrize("fault", SHORT, ids=name_of)
def test_a_rank_dies(fault: Fault) -> None:
    check(run(fault), fault)


def test_a_rank_dies_inside_a_large_batch() -> None:
    fault = Fault("batch", 1)
    story = run(fault, environ={"FAULT_BATCH_MB": "64"})
    check(story, fault)


@pytest.mark.parametrize("fault", [Fault("negotiation", 2), Fault("batch", 0)], ids=name_of)
def test_a_rank_dies_when_ranks_talk_over_sockets(fault: Fault) -> None:
    """Those who suffer close their connections, too: the dead rank must be named, not they."""
    check(run(fault, environ={"HOROVOD_TRANSPORT": "tcp"}), fault)


@pytest.mark.slow
def test_a_rank_dies_with_loader_processes_alive() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed.")
    fault = Fault("loader", 0)
    check(run(fault), fault)


def test_a_rank_raises() -> None:
    """Its exit handlers say goodbye, so the others learn at once; the launcher still blames the right one."""
    fault = Fault("between", 0, "RAISE")
    story = run(fault)
    assert {event["error"] for event in story.of("raised")} == {"ShutdownError"}, story
    assert len(story.of("raised")) == 2 and story.worst_s < NOTICED_S, story
    assert story.code == 1, story
    assert story.report.startswith("horovodrun: rank 0 (localhost, pid "), story
    assert "Error: the fault of the test" in story.stderr
    assert story.leftovers == [], story


def test_two_ranks_need_no_third() -> None:
    fault = Fault("negotiation", 1)
    check(run(fault, size=2), fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", everywhere())
def test_a_rank_dies_everywhere(fault: Fault) -> None:
    if fault.phase == "loader":
        pytest.importorskip("torch", reason="PyTorch is not installed.")
    check(run(fault, size=4), fault)
