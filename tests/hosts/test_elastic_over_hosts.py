"""Elastic jobs over hosts: ranks and hosts are lost, come and go, and the training ends as one without faults."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from .conftest import Hosts
from .elastic import ElasticJob

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("options", "who", "size"),
    [
        ("-np 4 -H host1:2,host2:2", "last", 2),
        ("-np 4 -H host2:2,host1:2", "first", 2),
        ("-np 4 -H host2:1,host1:1,host3:2", "first", 3),
    ],
)
def test_a_rank_is_killed(hosts: Hosts, options: str, who: str, size: int) -> None:
    with ElasticJob(hosts, f"{options} --min-np 1", [[5, who, "kill"]], steps=25) as job:
        ended = job.end()
        assert len(job.events("fault")) == 1
        job.check_end(ended, size)
        # Survivors are the same processes, and repeat no step that was committed.
        again = [event for event in job.events("epoch") if event["epoch"] == 1]
        assert {event["step"] for event in again} == {5}, job.story()
