"""The launcher dies, or is told to stop: no process of the job survives it, and nothing is left behind."""

from __future__ import annotations

import signal
import time

import pytest

from .fault_job import Fault, started

GONE_S = {signal.SIGKILL: 3.0, signal.SIGTERM: 3.0, signal.SIGINT: 3.0, signal.SIGHUP: 3.0}


@pytest.mark.parametrize("number", list(GONE_S), ids=lambda number: number.name)
def test_the_launcher_ends(number: signal.Signals) -> None:
    with started(Fault("orphans", -1, "NONE")) as job:
        job.await_events("running", 3)
        # Launcher, keeper, and per rank: itself, two children, two grandchildren.
        job.until(lambda: list(job.processes()), 2 + 3 * 5)
        job.signal(job.process.pid, number)
        begin_s = time.monotonic()
        story = job.story()
        assert time.monotonic() - begin_s < GONE_S[number] + 1.0
    assert story.code == (-9 if number == signal.SIGKILL else 128 + number), story
    assert story.leftovers == [], story
    if number != signal.SIGKILL:
        assert story.report == f"horovodrun: stopped by {number.name}; no rank is left.", story
