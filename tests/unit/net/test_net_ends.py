"""How one rank learns of the end of another before the two are connected, and whom it blames."""

from __future__ import annotations

import os
import pathlib
import socket
import time
from collections.abc import Sequence

import pytest
from net_ranks import REGION_BYTES, placements

from horovod._net.clusters.placement import Placement
from horovod._net.failures import ConnectError
from horovod._net.handshake import members, visits
from horovod._net.handshake.blame import Blame
from horovod._net.handshake.consent import Consent
from horovod._net.handshake.dialler import Dialler
from horovod._net.handshake.door import Door
from horovod._net.handshake.frames import auth
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import Failed, Ready, frame
from horovod._net.handshake.frames.watch import Watch
from horovod._net.handshake.pairing import OwnSide, Pair
from horovod._net.handshake.strangers import Report
from horovod._net.identity import host_identity
from horovod._net.meeting import deaths, directory, private_directories


class Parts:
    """The parts of one rank's Mesh that hear of the end of others."""

    def __init__(self, job: Placement, place: directory.Meeting, others: Sequence[int]) -> None:
        credentials = auth.Credentials(bytes(32), auth.job_digest("job"), 0, job.rank, job.size)
        own = OwnSide(-1, -1, bytes(32), REGION_BYTES, host_identity())
        self.pairs = {rank: Pair(rank, same_host=False) for rank in others}
        self.watch, report = Watch(), Report(f"rank {job.rank}")
        self.blame = Blame(place, job, self.pairs, time.monotonic())
        self.visits = visits.Visits(self.watch, report, self.blame)
        door = Door(credentials, self.visits, report, self.watch, time.monotonic)
        self.dialler = Dialler(place, credentials, self.pairs, self.visits, self.blame, time.monotonic)
        self.members = members.Members(self.pairs, Consent(None, others, others), own, door, self.blame, self.watch)

    def close(self) -> None:
        self.visits.close()
        self.members.close()
        self.watch.close()


def test_the_last_words_of_a_peer_are_heard_when_a_send_to_it_fails() -> None:
    ours, theirs = socket.socketpair()
    jobs = placements(4)
    rank = Parts(jobs[0], directory.Meeting(jobs[0], 0, "/nowhere", own_base=False), others=[1])
    rank.members.join(rank.pairs[1], Link(ours))
    theirs.recv(1 << 16)
    theirs.send(frame(Failed(3, "Out of luck.")))
    theirs.close()
    told = rf"Rank 1 \(pid {os.getpid()}\) gave up connecting: Out of luck\."
    with pytest.raises(ConnectError, match=told) as caught:
        rank.members.send(rank.pairs[1], Ready())
    assert caught.value.ranks == (3,)
    rank.close()


def test_a_stranger_that_left_because_of_another_rank_is_not_blamed(private_base: pathlib.Path) -> None:
    """Rank 2 knocked at rank 1, saw that rank 0 was dead, and left before the two were connected."""
    jobs = placements(3)
    mine, theirs = (
        directory.Meeting(jobs[rank], 0, private_directories.choose_base("0"), own_base=True) for rank in (1, 2)
    )
    for place in (mine, theirs):
        place.join(time.monotonic() + 5)
    rank = Parts(jobs[1], mine, others=[0, 2])
    left, right = socket.socketpair()
    visit = visits.Visit(Link(left), None, 2, 1, float("inf"))
    rank.dialler.open(visit, Ready())
    deaths.Deaths(theirs, jobs[2]).tell(0, "Rank 0 (pid 7) died.")
    deaths.Deaths(theirs, jobs[2]).tell(1, "A later word does not count.")
    theirs.leave(time.monotonic() + 5)
    right.close()
    # The closed connection tells it; so does the next look at ranks that never came.
    mine_too = deaths.Deaths(mine, jobs[1])
    for notice in (
        lambda: rank.dialler.lost(visit, LinkClosedError("Broken pipe")),
        lambda: rank.blame.look_for_the_dead(float("inf")),
        lambda: mine_too.check([2]),
    ):
        with pytest.raises(ConnectError, match=r"Rank 2 gave up connecting: Rank 0 \(pid 7\) died") as caught:
            notice()
        assert caught.value.ranks == (0,)
    mine_too.check([])
    rank.close()
    mine.leave(time.monotonic() + 5)
    assert os.listdir(private_base) == []
