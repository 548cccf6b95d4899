"""What may be handed over as a placement, and when."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.engine import FakeJob
from fakes.ranks import session_of

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import given_placement, membership, session
from horovod._net import fact_exchange
from horovod._net.clusters.placement import MeetingPoint, Placement
from horovod._net.meeting import lasting_claim

HERE = Placement(1, 2, 1, 2, 0, 1, "a test", "key", "here")
THERE = Placement(1, 2, 0, 1, 1, 2, "a test", "key", "there")
POINT = MeetingPoint("node", 1, "a test", "key")


@pytest.fixture(autouse=True)
def _nothing_given() -> Iterator[None]:
    yield
    session.install(None)
    given_placement.hand_over(None)


def test_it_is_taken_in_place_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_RANK", "nonsense")
    given_placement.hand_over(HERE)
    assert given_placement.is_given() and given_placement.of_this_process() == HERE
    monkeypatch.delenv("HOROVOD_RANK")
    given_placement.hand_over(None)
    assert not given_placement.is_given() and given_placement.of_this_process().launcher == "single process"


def test_the_host_has_a_name() -> None:
    given_placement.hand_over(dataclasses.replace(HERE, hostname=""))
    assert given_placement.of_this_process().hostname


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (HERE, {"secret": b"short"}, "has 32 bytes. Received: 5 bytes"),
        (HERE, {"job_key": ""}, "job_key that no other job has"),
        (THERE, {}, "1 of 2 ranks on this host: ranks on several hosts need a secret"),
        (THERE, {"meeting_point": POINT}, "need a secret"),
        (THERE, {"secret": bytes(32)}, "a meeting_point or a meeting_directory"),
    ],
)
def test_what_cannot_be_a_placement_is_refused(place: Placement, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        given_placement.hand_over(dataclasses.replace(place, **change))
    assert not given_placement.is_given()


def test_a_process_keeps_nothing_of_its_former_jobs() -> None:
    def jobs(count: int) -> int:
        for number in range(count):
            given_placement.hand_over(dataclasses.replace(HERE, job_key=f"{os.getpid()}/{number}"))
            lasting_claim.take(given_placement.of_this_process(), 0)
        return len(os.listdir("/proc/self/fd"))

    assert jobs(1) == jobs(5)


class Board:
    """Of a job whose facts this process knows."""

    left = False

    def close(self) -> None:
        self.left = True


def test_the_board_of_the_job_before_is_left_when_another_place_is_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board: Any = Board()
    known = fact_exchange._Known(os.getpid(), fact_exchange.KnownJob(HERE, board))
    monkeypatch.setitem(fact_exchange._known, (HERE.job_key, ()), known)
    given_placement.hand_over(None)  # nothing was given
    for same in (HERE, HERE, dataclasses.replace(HERE, interfaces=("lo",))):
        given_placement.hand_over(same)
    assert not board.left
    given_placement.hand_over(dataclasses.replace(HERE, job_key="the next"))
    assert board.left and not fact_exchange._known


def test_who_has_a_rank_gets_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    session.install(session_of(FakeJob(1), 0, False))
    with pytest.raises(InvalidArgumentError, match=r"is rank 0 of a job already.*before hvd.init\(\), or after"):
        given_placement.hand_over(HERE)
    session.install(None)
    monkeypatch.setenv(membership.WORKER_VARIABLE, "0")  # until init()
    with pytest.raises(InvalidArgumentError, match="a worker of an elastic job"):
        given_placement.hand_over(HERE)
    monkeypatch.delenv(membership.WORKER_VARIABLE)
    monkeypatch.setattr(membership, "is_member", lambda: True)
    with pytest.raises(InvalidArgumentError, match="a worker of an elastic job"):
        given_placement.hand_over(HERE)
    monkeypatch.undo()
