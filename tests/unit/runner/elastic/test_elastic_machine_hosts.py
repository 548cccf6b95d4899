"""The state machine of elastic jobs: hosts that are lost, cannot be used, or have nobody any more."""

from __future__ import annotations

from elastic_story import kinds, place_in, running

from horovod.runner.elastic.events import WELL, Found, Place, Release, Start
from horovod.runner.machines.hosts import Host


def test_a_lost_host_takes_its_ranks_along_and_the_others_go_on() -> None:
    story = running("a:2,b:2")
    story.ask(0, 2)  # one there has come already
    assert story.ask(1) == []
    decided = story.lose("b")
    place = place_in(decided)
    assert (story.ranks, place.sync, place.why) == ([0, 1], False, "b was lost: silence")
    assert story.wait(1e6) == []
    (entry,) = story.state.blacklist.entries
    assert (entry.host, entry.until_s, entry.drains) == ("b", None, True)


def test_the_host_of_rank_0_is_lost() -> None:
    story = running("a:2,b:2")
    story.lose("a")
    assert Place in kinds(story.ask(2, 3))
    assert story.ranks == [2, 3]


def test_a_lost_host_comes_back_after_its_cooldown() -> None:
    story = running("a:2,b:2", cooldown=(10, 20))
    story.lose("b")
    story.ask(0, 1)
    assert [each.host for each in story.wait(20) if isinstance(each, Start)] == ["b", "b"]


def test_a_silent_host_is_called_until_it_is_back() -> None:
    story = running("a:2,b:2")
    story.lose("b", silent=True)
    story.ask(0, 1)
    assert story.wait(9.0) == []
    decided = story.wait(2.0)
    assert [each.host for each in decided if isinstance(each, Start)] == ["b", "b"]
    story.lose("b")  # it cannot be called yet
    assert story.wait(18.0) == []
    assert [each.host for each in story.wait(3.0) if isinstance(each, Start)] == ["b", "b"]
    story.ask(*[number for number in story.state.workers if number not in story.state.members])
    story.ask(0, 1)
    assert len(story.ranks) == 4
    assert not story.state.blacklist.holds("b", story.now_s)
    story.lose("b")  # it is back, so this is a failure as any other one
    story.ask(0, 1)
    assert story.wait(1e6) == []


def test_a_host_that_cannot_be_used_costs_no_epoch() -> None:
    story = running("a:2", first=2)
    assert kinds(story.tell(Found((Host("a", 2), Host("b", 2))))) == [Start, Start]
    assert story.lose("b") == []
    assert (story.state.epoch, story.ranks) == (0, [0, 1])


def test_a_host_without_workers_that_is_lost_is_not_blamed() -> None:
    story = running("a:2,b:2")
    assert story.lose("c") == []
    assert story.state.blacklist.entries == ()


def test_the_last_host_that_is_not_given_up_is_not_given_up() -> None:
    story = running("a:2,b:2", least=1)
    story.lose("b")
    story.ask(0, 1)
    story.die(1)
    decided = story.ask(0)
    assert kinds(decided) == [Place, Start]
    assert [each.host for each in decided if isinstance(each, Start)] == ["a"]
    assert not story.state.blacklist.drains("a", story.now_s)


def test_a_host_is_released_when_its_last_worker_is_gone_and_none_may_come() -> None:
    story = running("a:2,b:2")
    story.tell(Found((Host("a", 4),)))
    story.ask(0, 1, 2, 3)
    assert Release not in kinds(story.die(3, WELL))
    assert story.die(2, WELL) == [Release("b", "b is no longer named")]
    assert story.wait(5.0) == []


def test_a_host_whose_slot_pauses_is_kept() -> None:
    story = running("a:1", first=1, least=1)
    story.tell(Found((Host("a", 1), Host("b", 1))))
    story.ask(1)
    story.ask(0)
    assert story.ranks == [0, 1]
    assert Release("b", "b is given up after a failure") in story.die(1)
    assert story.state.used == ("a",)
