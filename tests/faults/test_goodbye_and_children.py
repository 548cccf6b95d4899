"""What is no death: a rank that leaves early, and the children of a rank."""

from __future__ import annotations

import pytest

from .fault_job import Fault, run


@pytest.mark.parametrize(("phase", "rank"), [("leave", 1), ("leave", 2), ("unheard", 2)])
def test_the_others_go_on_without_a_rank_that_has_left(phase: str, rank: int) -> None:
    story = run(Fault(phase, rank, "NONE"))
    assert story.code == 0, story
    assert [event["value"] for event in story.of("finished")] == [2.0, 2.0], story
    assert [event["error"] for event in story.of("raised")] == ["ShutdownError"] * 2, story
    assert all(f"rank {rank} has shut down" in event["message"] for event in story.of("raised")), story
    assert not story.of("wrong result") and story.leftovers == [], story


@pytest.mark.parametrize("victim", [0, 1])
def test_an_exception_reaches_the_others_who_end_after_it(victim: int) -> None:
    story = run(Fault("between", victim, "RAISE"))
    assert story.code == 1, story
    assert [event["error"] for event in story.of("raised")] == ["ShutdownError"] * 2, story
    why = f"rank {victim} ended with Error: the fault of the test"
    assert all(why in event["message"] for event in story.of("raised")), story
    over = {event["rank"]: event["at"] for event in story.of("over")}
    assert all(over.get(victim, 0.0) < at for rank, at in over.items() if rank != victim), story
    assert f"rank {victim} " in story.report, story
    assert story.leftovers == [], story


def test_children_are_no_ranks_and_disturb_nobody() -> None:
    story = run(Fault("fork", -1, "NONE"))
    assert story.code == 0, story
    assert len(story.of("finished")) == 3 and len(story.of("child")) == 3, story
    for event in story.of("child"):
        *calls, shutdown = event["answers"]
        assert [error for error, _ in calls] == ["NotInitializedError", "InvalidArgumentError"]
        assert all("forked" in message and "spawn" in message for _, message in calls), story
        assert event["place"] == [event["rank"], 3, True], story
        assert shutdown == ["", ""] and not event["initialized"], story
    assert not story.of("wrong result") and story.leftovers == [], story
