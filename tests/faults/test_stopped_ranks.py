"""A rank is stopped (SIGSTOP): before a batch that is a stall report and no error, inside one it is a time-out that
names its setting."""

from __future__ import annotations

import signal

import pytest

from .fault_job import Fault, started

TIMEOUT_S = 2.0


@pytest.mark.parametrize("rank", [0, 1])
def test_stopped_before_a_batch_is_a_stall_report(rank: int) -> None:
    with started(Fault("stopped", rank, "STOP"), environ={"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}) as job:
        victim = job.await_events("fault", 1)[0]
        text = job.await_text(f"rank {rank}")
        report = job.await_text("allreduce 'the.tensor'")
        job.signal(victim["pid"], signal.SIGCONT)
        story = job.story()
    assert "(stopped?)" in report, text
    assert story.code == 0, story
    assert len(story.of("finished")) == 3, story
    assert story.leftovers == [], story


@pytest.mark.parametrize("rank", [0, 2])
def test_stopped_inside_a_batch_is_a_timeout(rank: int) -> None:
    environ = {"HOROVOD_GLOO_TIMEOUT_SECONDS": f"{TIMEOUT_S:g}", "FAULT_BATCH_MB": "64"}
    with started(Fault("batch", rank, "STOP"), environ=environ) as job:
        victim = job.await_events("fault", 1)[0]
        raised = job.await_events("raised", 2)
        job.signal(victim["pid"], signal.SIGCONT)  # it comes back to a job that is over
        story = job.story()
    assert victim["inside"], story
    for event in raised:
        assert TIMEOUT_S - 0.5 < event["at"] - victim["at"] < TIMEOUT_S + 1.0, story
        assert f"waiting for rank {rank} " in event["message"], story
    for event in story.of("raised"):
        assert event["error"] == "CollectiveTimeoutError", story
        assert "HOROVOD_GLOO_TIMEOUT_SECONDS" in event["message"], story
    assert len(story.of("raised")) == 3, story
    assert story.code == 1 and story.leftovers == [], story
