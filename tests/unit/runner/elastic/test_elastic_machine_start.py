"""The state machine of elastic jobs before their first epoch: slots that go, ranks that are lost or hang, and ends."""

from __future__ import annotations

from elastic_story import Story, kinds, place_in

from horovod.runner.elastic import machine
from horovod.runner.elastic.events import FAULT, WELL, Dismiss, Ended, Fail, Finish, Found, Kill, Place, Start
from horovod.runner.elastic.state import LEAVING
from horovod.runner.machines.hosts import Host


def test_slots_that_go_for_a_moment_cost_no_worker() -> None:
    story = Story("a:3", first=3)
    story.ask(0)
    assert story.tell(Found(())) == []
    assert story.ask(1, 2) == []  # nobody names a slot for them
    assert story.state.short_s is not None
    place = place_in(story.tell(Found((Host("a", 3),))))
    assert (story.ranks, place.why) == ([0, 1, 2], "all ranks are up")


def test_slots_that_do_not_come_back_end_the_job() -> None:
    story = Story("a:3", first=3, patience_s=50)
    story.tell(Found(()))
    story.ask(0, 1, 2)
    assert story.wait(49) == []
    (fail,) = story.wait(1)
    assert isinstance(fail, Fail)
    assert "there are none: the hosts are now none" in fail.why


def test_slots_that_move_are_filled_and_who_has_none_goes_when_the_job_has_begun() -> None:
    story = Story("a:2", first=2)
    story.ask(0)
    assert kinds(story.tell(Found((Host("b", 2),)))) == [Start, Start]
    assert story.ask(2) == []
    decided = story.ask(3)
    assert kinds(decided) == [Place, Dismiss, Dismiss]
    assert story.ranks == [2, 3]
    story.die(1)  # by the signal, which is nobody's fault
    assert story.state.news == () and story.state.blacklist.entries == ()


def test_no_more_workers_without_slots_stay_than_the_job_begins_with() -> None:
    story = Story("a:2", first=2)
    story.tell(Found((Host("b", 2),)))
    decided = story.tell(Found((Host("c", 2),)))
    assert [each.worker for each in decided if isinstance(each, Dismiss)] == [2, 3]
    story.tell(Found((Host("a", 2),)))
    assert Place in kinds(story.ask(0, 1))


def test_workers_that_end_when_they_are_dismissed_end_no_job() -> None:
    story = Story("a:2", first=2)
    story.tell(Found((Host("b", 2),)))
    story.tell(Found((Host("c", 2),)))
    assert story.die(2, WELL) == [] and not story.state.finishing


def test_all_workers_may_die_while_they_start_and_others_are_started() -> None:
    story = Story("a:2", first=2)
    for worker in (0, 1):
        story.die(worker)
    assert story.state.workers.keys() == {2} and not story.state.over
    assert kinds(story.wait(1)) == [Start]
    assert Place in kinds(story.ask(2, 3))


def test_workers_that_die_each_time_end_the_job_before_it_has_begun() -> None:
    story = Story("a:2", first=2)
    for _ in range(30):
        for worker in list(story.state.workers):
            story.die(worker)
        story.wait(30)
    assert story.state.over
    assert isinstance(story.log[-1], Fail) and "9 ranks were lost before the job could begin" in story.log[-1].why


def test_one_that_hangs_on_the_way_to_init_is_killed_and_replaced() -> None:
    story = Story("a:3", first=3, least=1, answer_s=10)
    story.now_s = 4
    story.ask(0, 2)
    assert machine.next_s(story.state, 4) == 10
    assert machine.next_s(story.state, 10) == 14
    assert story.wait(9.5) == []
    kill, start = story.wait(0.5)
    assert isinstance(kill, Kill) and kill.worker == 1 and "did not call hvd.init() within 10 s" in kill.why
    assert isinstance(start, Start) and start.worker == 3
    story.tell(Ended(1, FAULT, "was killed by signal 9"))
    assert Place in kinds(story.ask(3))
    assert story.ranks == [0, 2, 3]


def test_who_is_started_later_has_as_long_as_the_others_had() -> None:
    story = Story("a:2", first=2, answer_s=10)
    story.now_s = 40
    story.ask(0)
    story.die(1)
    assert story.wait(49.5) == []
    assert kinds(story.wait(0.5))[0] is Kill


def test_nobody_hangs_while_nobody_waits() -> None:
    story = Story("a:2", first=2, answer_s=10)
    assert story.wait(1e6) == []


def test_who_is_late_keeps_no_job_from_its_beginning_that_has_enough() -> None:
    story = Story("a:3", first=2, answer_s=10)
    story.ask(0, 2)
    assert story.wait(9.5) == []
    assert kinds(story.wait(0.5)) == [Place]
    assert story.ranks == [0, 2]


def test_after_all_patience_the_job_begins_with_the_least() -> None:
    story = Story("a:2,b:1", first=3, least=2, patience_s=50)
    story.lose("b")
    story.ask(0, 1)
    assert story.wait(49.5) == []
    place = place_in(story.wait(0.5))
    assert (story.ranks, place.why) == ([0, 1], "b was lost: silence")


def test_one_that_hangs_while_survivors_wait_for_it_is_killed_and_replaced() -> None:
    story = Story("a:2", first=2, answer_s=10)
    story.ask(0, 1)
    story.die(1)
    story.ask(0)
    assert story.wait(9.5) == []
    assert Kill in kinds(story.wait(0.5))
    assert kinds(story.wait(1)) == [Start]
    story.ask(4 if 4 in story.state.workers else 3)
    assert story.state.epoch == 1


def test_a_program_that_does_not_call_init() -> None:
    story = Story("a:2", first=2)
    assert story.die(0, WELL) == []
    assert kinds(story.ask(1)) == [Fail]


def test_a_program_that_calls_init_nowhere_is_done_when_all_ranks_are() -> None:
    story = Story("a:3", first=3, least=1)
    assert story.die(1, WELL) == []
    assert story.tell(Found(())) == [] and story.wait(1e6) == []  # they may not need one another
    assert story.die(0, WELL) == []
    assert kinds(story.die(2, WELL)) == [Finish]
    assert story.state.done == (1, 0, 2)


def test_nor_is_it_done_when_one_was_lost() -> None:
    story = Story("a:2", first=2, least=1)
    story.die(1, WELL)
    (fail,) = story.die(0)
    assert isinstance(fail, Fail) and "worker 0, which had no rank yet, was killed by signal 9" in fail.why
    story = Story("a:2", first=2, least=1)
    story.die(1)
    story.die(2)  # the slot pauses now
    (fail,) = story.die(0, WELL)
    assert isinstance(fail, Fail) and "on 1 rank only, fewer than the 2 of -np" in fail.why


def test_who_leaves_is_not_awaited() -> None:
    story = Story("a:2", first=2)
    story.tell(Found((Host("b", 2),)))
    story.ask(2, 3)
    assert [each.phase for each in story.state.workers.values()][:2] == [LEAVING, LEAVING]
    story.die(2, WELL)
    assert kinds(story.die(3, WELL)) == [Finish]
