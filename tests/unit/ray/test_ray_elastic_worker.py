"""What the actor of an elastic worker does, in this process, without Ray."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, Callable

import pytest

from horovod._core.errors import HorovodInternalError, InvalidArgumentError, PeerLostError
from horovod._core.life import given_placement, membership
from horovod._net.clusters.placement import Placement
from horovod._net.roster import Dismissal, News, Seat, words
from horovod.ray import ray_logger
from horovod.ray.changing.roster import Word
from horovod.ray.changing.worker import ElasticWorker, Lost, Made, Returned
from horovod.ray.crew import Call
from horovod.ray.placing import VISIBLE, Place

NO_OBJECT = Made()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of a worker stays in this process."""
    monkeypatch.setattr(membership, "_member", None)
    monkeypatch.setattr("horovod.ray.here.meeting", lambda nics: ("10.0.0.1", 20000))
    monkeypatch.setattr("horovod.ray.here._show_in_lines", lambda title: None)
    for name in (VISIBLE, "OURS"):
        monkeypatch.setenv(name, "")
    yield
    membership.forget()
    given_placement.hand_over(None)
    ray_logger.configure(None)


def placed(epoch: int, rank: int, size: int, gpus: str) -> Word:
    placement = Placement(rank, size, rank, size, 0, 1, "Ray", f"Ray x/{epoch}")
    seat = Seat(epoch, rank, size, rank, size, 0, 1, tuple(range(size)), sync=epoch == 0)
    return Word(words(seat), Place(placement, {VISIBLE: gpus}, f"rank {rank}, node a"))


def two_epochs(worker: ElasticWorker) -> list[Any]:
    """What a rank knows of each of its epochs."""
    found = []
    for word in (placed(0, 1, 2, "4,5"), placed(1, 0, 1, "9")):
        worker.hear(word)
        membership.take_place()
        worker.hear(Word(words(News(1, 5.0))))
        place = membership.placed(given_placement.of_this_process())
        known = place.rank, place.size, membership.epoch(), membership.states_differ()
        found.append((*known, os.environ[VISIBLE], [each.kind for each in membership.news()]))
        ray_logger.log({"epoch": membership.epoch()})
        membership.synchronized()
        membership.committed()
    return found


class Queue(list):  # type: ignore[type-arg]
    put = list.append


def test_a_worker_has_one_place_after_the_other() -> None:
    worker, queue = ElasticWorker(7, ()), Queue()
    assert repr(worker) == "worker 7 without a rank" and worker.question(0.01) is None
    worker.hear(Word(words(News(2, 5.0))))  # of an epoch that it has left
    found = worker.run({"OURS": "1"}, Made(), Call(two_epochs, [worker]), queue)
    # A process goes on seeing the GPUs that it has seen first.
    assert found == Returned([(1, 2, 0, True, "4,5", [1]), (0, 1, 1, False, "4,5", [1])])
    assert os.environ["OURS"] == "1" and repr(worker) == "rank 0, node a" and queue == [{"epoch": 1}]
    questions = [worker.question(0.0), worker.question(0.0)]
    assert [each and each.version for each in questions] == [(-1, 0), (0, 1)]
    assert questions[0] is not None and questions[0].meeting == ("10.0.0.1", 20000)


def test_only_rank_0_says_that_nobody_takes_what_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_logger, "_has_warned", False)
    worker = ElasticWorker(7, ())
    with pytest.warns(UserWarning, match="has no callbacks") as caught:
        worker.run({}, Made(), Call(two_epochs, [worker]), None)  # as rank 1, then as rank 0
    assert len(caught) == 1 and caught[0].filename == __file__


def test_a_queue_of_the_functions_own_stays() -> None:
    worker, queue, own = ElasticWorker(7, ()), Queue(), Queue()

    def logs() -> None:
        ray_logger.log({"epoch": -1})  # without a rank
        ray_logger.configure(own)
        two_epochs(worker)

    worker.run({}, Made(), Call(logs), queue)
    assert own == [{"epoch": 0}, {"epoch": 1}] and queue == []


def test_a_question_is_waited_for() -> None:
    worker = ElasticWorker(0, ())
    thread = threading.Thread(target=worker.run, args=({}, Made(), Call(membership.take_place), None))
    thread.start()
    assert worker.question(10.0) is not None
    worker.hear(placed(0, 0, 1, ""))
    thread.join(10.0)
    assert not thread.is_alive()


def raises(error: BaseException) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def test_how_the_function_ends() -> None:
    def ends(fn: Callable[..., Any], made: Made = NO_OBJECT, own: bool = False) -> Any:
        return ElasticWorker(0, ()).run({}, made, Call(fn, is_for_object=own), None)

    assert ends(lambda own: own, Made(dict, ([("a", 1)],), {"b": 2}), own=True) == Returned({"a": 1, "b": 2})
    assert ends(lambda own: own, own=True) == Returned(None)
    assert ends(lambda: sys.exit(0)) == Returned(None)
    assert ends(raises(PeerLostError("rank 1 is gone"))) == Lost("PeerLostError: rank 1 is gone")
    for error, kind in ((ValueError("x"), ValueError), (HorovodInternalError("y"), HorovodInternalError)):
        with pytest.raises(kind):
            ends(raises(error))
    with pytest.raises(RuntimeError, match="has called sys.exit\\(3\\)"):
        ends(lambda: sys.exit(3))


def test_a_worker_without_a_place_ends_well() -> None:
    worker = ElasticWorker(0, ())
    worker.hear(Word(words(Dismissal("there is no slot"))))
    assert worker.run({}, Made(), Call(membership.take_place), None) == Returned(None)


def test_only_an_enrolled_worker_may_be_given_a_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_member", membership._Member(0, None))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="a worker of an elastic job, whose launcher places it"):
        given_placement.hand_over(Placement(0, 1, 0, 1, 0, 1, "Ray", "Ray x"))
