"""Ranks on several hosts whose program hands over their placement, with the secret and the address where they meet."""

from __future__ import annotations

import json
import secrets
import sys

import pytest

from .conftest import Hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

_RANK = """
import json, sys
import numpy as np
import horovod.numpy as hvd
from horovod._core.life import given_placement
from horovod._net.clusters.placement import MeetingPoint, Placement

rank, secret = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
lives = []
for job in ("first", "second"):
    point = MeetingPoint("host1", 29600, "a test", job, settable=False)
    place = Placement(rank, 3, 0, 1, 0, 1, "a test", job, unplaced=True, secret=secret, meeting_point=point)
    given_placement.hand_over(place)
    for _ in range(2):
        hvd.init()
        total = float(hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum)[0])
        lives.append([hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_size(), total])
        hvd.shutdown()
print(json.dumps(lives), flush=True)
"""


def test_they_meet_at_the_address_that_is_handed_over(hosts: Hosts) -> None:
    secret = secrets.token_hex(32)  # of a test: in a program it is on no command line
    running = [
        hosts.start_program([sys.executable, "-c", _RANK, str(rank), secret], on=host)
        for rank, host in enumerate((1, 1, 2))
    ]
    expected = [[0, 3, 0, 2, 2, 6.0], [1, 3, 1, 2, 1, 6.0], [2, 3, 0, 1, 2, 6.0]]
    for rank, ended in enumerate([hosts.ended(each) for each in running]):
        assert ended.code == 0, ended
        assert json.loads(ended.out[-1]) == [expected[rank]] * 4
