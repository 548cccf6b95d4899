"""The status of an elastic job: the ranks of the present epoch, also after one was killed and replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import PATIENCE_S, Job, Place, python

TRAINING = Path(__file__).parent / "workers" / "training.py"


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as found:
        yield found


def status(place: Place, pid: int) -> list[dict[str, Any]]:
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(place.shared[0]), "TMPDIR": str(place.shared[1])}
    words = [*python("-m", "horovod.runner"), "--status", "--status-format", "json"]
    done = subprocess.run(words, env=environ, stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S)
    return [job for job in json.loads(done.stdout)["jobs"] if job["pid"] == pid]


def test_the_ranks_of_the_present_epoch_are_shown(place: Place) -> None:
    faults = json.dumps([[3, "first", "kill"]])
    job = Job(place, {"TEST_FAULTS": faults, "TEST_STEPS": "10", "TEST_UNTIL_SIZE": "99"})
    job.start([*python("-m", "horovod.runner"), "-np", "3", "--min-np", "1", *python(TRAINING)])
    job.until(lambda: [event for event in job.events("epoch") if event["epoch"] and event["size"] == 3], 3)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (shown,) = status(place, job.process.pid)
        ranks = shown["ranks"]
        if len(ranks) == 3 and all(rank["commits"] for rank in ranks):
            break
        assert time.monotonic() < deadline, shown
    job.process.send_signal(signal.SIGTERM)
    job.end()
    assert shown["elastic"]
    assert [rank["rank"] for rank in ranks] == [0, 1, 2]
    assert len({rank["epoch"] for rank in ranks}) == 1
    assert ranks[0]["epoch"] >= 1
    # The two that survived were reset, and say what had happened.
    survivors = [rank for rank in ranks if rank["resets"]]
    assert len(survivors) >= 2, ranks
    assert all(rank["errors"] for rank in survivors[:1]), ranks
