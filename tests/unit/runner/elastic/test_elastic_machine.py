"""The state machine of elastic jobs: stories with their decisions, and random lives against its promises."""

from __future__ import annotations

import pytest
from elastic_story import Story, kinds, place_in, running
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod.runner.elastic import machine
from horovod.runner.elastic.events import (
    ADDED,
    ERROR,
    FAULT,
    REMOVED,
    WELL,
    Announce,
    Asked,
    Decision,
    Dismiss,
    Ended,
    Event,
    Fail,
    Finish,
    Found,
    HostGone,
    Kill,
    Passed,
    Place,
    Release,
    Start,
)
from horovod.runner.elastic.state import LEAVING, PLACED, STARTING, WAITING, State
from horovod.runner.machines.hosts import Host


def test_an_epoch_begins_when_all_have_come() -> None:
    story = Story()
    assert [each.worker for each in story.log if isinstance(each, Start)] == [0, 1, 2, 3]
    assert story.ask(0, 2, 1) == []
    place = place_in(story.ask(3))
    assert [(seat.worker, seat.slot.rank, seat.slot.size) for seat in place.seats] == [
        (0, 0, 4), (1, 1, 4), (2, 2, 4), (3, 3, 4)
    ]  # fmt: skip
    assert place.sync
    assert place.why == "all ranks are up"


def test_survivors_go_on_at_once_and_the_slot_is_filled_later_without_a_rollback() -> None:
    story = running()
    assert story.die(1) == []
    assert story.ask(0, 3) == []  # rank 2 is still in the epoch
    decided = story.ask(2)
    assert kinds(decided) == [Place, Start]
    place = place_in(decided)
    assert story.ranks == [0, 2, 3]
    assert "rank 1 was killed by signal 9" in place.why
    assert not place.sync  # equal commits
    assert story.ask(4) == [Announce(ADDED, "1 more worker can join")]
    place = place_in(story.ask(0, 2, 3))
    assert story.ranks == [0, 2, 3, 4]
    assert place.sync


def test_rank_0_has_the_newest_commit() -> None:
    story = running()
    story.die(0)
    story.ask(1, version=(0, 4))
    story.ask(2, version=(0, 5))
    place = place_in(story.ask(3, version=(0, 5)))
    assert story.ranks == [2, 1, 3]
    assert place.sync


def test_a_second_death_while_the_others_come() -> None:
    story = running()
    story.die(1)
    story.ask(0, 2)
    assert Place in kinds(story.die(3))
    assert story.ranks == [0, 2]


def test_a_death_in_the_epoch_that_has_just_begun() -> None:
    story = running()
    story.die(1)
    story.ask(0, 2, 3)
    story.die(2)
    assert Place in kinds(story.ask(0, 3))
    assert (story.state.epoch, story.ranks) == (2, [0, 3])


def test_too_few_wait_for_more_until_the_time_is_over() -> None:
    story = running("a:2", first=2, cooldown=(100, 100), patience_s=50)
    story.die(1)
    assert story.ask(0) == []
    assert story.wait(49) == []
    (fail,) = story.wait(1)
    assert isinstance(fail, Fail)
    assert "2 ranks are needed, but after 50 s (--elastic-timeout) there is 1:" in fail.why
    assert "a (rank 1 was killed by signal 9)" in fail.why


def test_below_the_least_and_back() -> None:
    story = running("a:2", first=2)
    assert kinds(story.die(1)) == [Start]
    assert story.ask(0) == []
    place = place_in(story.ask(2))
    assert (story.ranks, place.sync) == ([0, 2], True)


def test_nobody_left_ends_the_job() -> None:
    story = running("a:2", first=2, least=1)
    story.die(0)
    (fail,) = [each for each in story.die(1) if isinstance(each, Fail)]
    assert "no rank of epoch 0 is left" in fail.why
    assert "rank 0 was killed by signal 9; rank 1 was killed by signal 9" in fail.why


def test_an_error_of_a_program_ends_the_job() -> None:
    story = running()
    assert story.die(1, ERROR) == []
    assert story.state.over


def test_a_newcomer_that_cannot_begin_ends_nothing() -> None:
    story = running()
    story.die(1)
    story.ask(0, 2, 3)
    story.die(4, ERROR)
    assert not story.state.over
    assert story.wait(0.5) == []
    assert kinds(story.wait(0.5)) == [Start]


def test_a_newcomer_that_ends_with_0_is_no_success_and_ends_no_growth() -> None:
    story = running("a:2", first=2)
    story.tell(Found((Host("a", 2), Host("b", 1), Host("c", 1))))
    (again,) = story.die(2, WELL)
    assert isinstance(again, Start) and again.host == "b"
    story.die(again.worker, WELL)
    assert not story.state.finishing and story.ranks == [0, 1]
    assert kinds(story.ask(3)) == [Announce]  # its slot pauses now, and nobody waits for it
    story.ask(0, 1)
    assert story.ranks == [0, 1, 3]
    story.die(0, WELL)
    assert story.state.finishing


def early_ends(story: Story, host: str) -> list[float]:
    """When newcomers are started there that all end with code 0 at once."""
    at_s = []
    for _ in range(400):
        for worker in [each for each in story.state.workers.values() if each.host == host and each.phase == STARTING]:
            at_s.append(story.now_s)
            story.die(worker.number, WELL)
        story.wait(0.5)
    return at_s


def test_newcomers_that_end_with_0_each_time_are_not_started_for_ever() -> None:
    story = running("a:2", first=2)
    story.tell(Found((Host("a", 2), Host("b", 1))))
    assert early_ends(story, "b") == [0, 0.5, 1.5, 4.5, 11.5, 26.5, 56.5]
    assert any(isinstance(each, Release) and each.host == "b" for each in story.log)
    assert not story.state.over and story.ranks == [0, 1]


def test_on_a_host_with_ranks_they_stay() -> None:
    story = running("a:2,b:1", first=3)
    story.tell(Found((Host("a", 3), Host("b", 1))))
    assert len(early_ends(story, "a")) == 7
    assert Announce not in kinds(story.log) and story.ranks == [0, 1, 2]
    story.tell(Found((Host("a", 3), Host("b", 2))))
    story.ask(max(story.state.workers))
    story.ask(0, 1, 2)
    assert len(story.ranks) == 4


def test_with_a_cooldown_range_they_are_started_again_and_again_ever_later() -> None:
    story = running("a:2", first=2, cooldown=(2, 16))
    story.tell(Found((Host("a", 2), Host("b", 1))))
    assert early_ends(story, "b")[:6] == [0, 4, 12, 28, 44, 60]


def test_one_that_has_a_place_forgives_those_before_it() -> None:
    story = running("a:2", first=2)
    story.tell(Found((Host("a", 2), Host("b", 1))))
    for pause_s in (0, 1, 3, 7, 15):
        (number,) = (each.number for each in story.state.in_phase(STARTING))
        story.die(number, WELL)
        story.wait(pause_s)
    (number,) = (each.number for each in story.state.in_phase(STARTING))
    story.ask(number, 0, 1)
    assert story.ranks == [0, 1, number]
    story.die(number)
    assert [entry.early for entry in story.state.blacklist.entries] == [0]


def test_further_hosts_are_announced_when_their_workers_are_up() -> None:
    story = running("a:2", first=2)
    decided = story.tell(Found((Host("b", 2), Host("a", 2))))
    assert [(each.worker, each.host) for each in decided if isinstance(each, Start)] == [(2, "b"), (3, "b")]
    assert story.ask(2) == []
    assert kinds(story.ask(3)) == [Announce]
    story.ask(0, 1)
    assert story.ranks == [0, 1, 2, 3]


def test_one_that_is_late_does_not_keep_the_others_waiting() -> None:
    story = running("a:2", first=2, answer_s=30)
    story.tell(Found((Host("a", 4),)))
    story.ask(2)
    assert story.wait(29) == []
    assert kinds(story.wait(1)) == [Announce]
    story.ask(0, 1)
    assert story.ranks == [0, 1, 2]


def test_ranks_without_a_slot_leave_and_the_others_need_no_sync() -> None:
    story = running()
    (news,) = story.tell(Found((Host("a", 2),)))
    assert isinstance(news, Announce)
    assert news.kind == REMOVED
    decided = story.ask(0, 1, 2, 3)
    assert [each.worker for each in decided if isinstance(each, Dismiss)] == [2, 3]
    assert (story.ranks, place_in(decided).sync) == ([0, 1], False)


def test_a_removal_waits_while_too_few_would_be_left() -> None:
    story = running()
    assert story.tell(Found(())) == []
    assert kinds(story.tell(Found((Host("b", 2),)))) == [Start, Start]
    assert story.tell(Ended(9, FAULT, "unknown")) == []


def test_a_host_with_a_failure_is_given_up_with_its_other_ranks() -> None:
    story = running("a:2,b:2")
    assert kinds(story.die(3)) == [Announce]
    decided = story.ask(0, 1, 2)
    assert [each.worker for each in decided if isinstance(each, Dismiss)] == [2]
    assert story.ranks == [0, 1]
    assert story.wait(1e6) == []


def test_it_comes_back_after_its_cooldown() -> None:
    story = running("a:2,b:2", cooldown=(10, 20))
    story.die(3)
    story.ask(0, 1, 2)
    story.die(2, WELL)
    assert machine.next_s(story.state, story.now_s) == 20
    assert [each.host for each in story.wait(20) if isinstance(each, Start)] == ["b", "b"]


def test_never_more_than_the_most() -> None:
    story = Story("a:9", first=2, most=3)
    assert len(story.log) == 3


def test_the_limit_of_resets() -> None:
    story = running(resets=1)
    story.die(1)
    story.ask(0, 2, 3)
    story.die(2)
    (fail,) = [each for each in story.ask(0, 3) if isinstance(each, Fail)]
    assert "reset 1 times, which is the limit (--reset-limit)" in fail.why


def test_who_hangs_is_killed_and_the_others_go_on() -> None:
    story = running(answer_s=30)
    story.ask(0, 1, 3)
    assert story.wait(29.5) == []
    decided = story.wait(0.5)
    assert [each.worker for each in decided if isinstance(each, Kill)] == [2]
    assert story.ranks == [0, 1, 3]
    assert story.die(2) == []


def test_the_same_failure_again_and_again_is_not_one_of_processes() -> None:
    story = running()
    for _ in range(2):
        assert Place in kinds(story.ask(0, 1, 2, 3, version=(story.state.epoch, 0)))
    story.ask(0, 1, version=(story.state.epoch, 0))
    assert story.tell(Asked(2, (story.state.epoch, 0), "Rank 3 (b) does not answer.")) == []
    (fail,) = story.ask(3, version=(story.state.epoch, 0))
    assert isinstance(fail, Fail)
    assert "without a commit" in fail.why
    assert fail.why.endswith(": rank 2 could not connect to the other ranks: Rank 3 (b) does not answer.")


def test_why_an_epoch_could_not_begin_is_reported_once() -> None:
    story = running()
    story.ask(0, 1, 2, version=(0, 3))
    assert "collectives failed although" in place_in(story.ask(3, version=(0, 3))).why
    story.tell(Asked(0, (0, 3), "Rank 1 gave up"))
    story.tell(Asked(1, (0, 3), "Rank 2 gave up"))
    why = place_in(story.ask(2, 3, version=(0, 3))).why
    assert why == "rank 0 could not connect to the other ranks: Rank 1 gave up"
    story.ask(0, 1, 2, version=(2, 1))
    assert "could not meet" not in place_in(story.ask(3, version=(2, 1))).why


def test_a_rank_that_has_finished_ends_growth_but_not_the_others() -> None:
    story = running()
    story.tell(Found((Host("a", 5),)))
    assert kinds(story.die(0, WELL)) == [Dismiss]
    assert story.ask(4) == []
    story.die(1)
    story.die(2)
    assert Place in kinds(story.ask(3))


def test_a_death_after_others_have_finished_is_no_success() -> None:
    story = running("a:2", first=2, least=1)
    story.die(1, WELL)
    (fail,) = story.die(0)
    assert isinstance(fail, Fail) and "rank 0 was killed by signal 9" in fail.why and "no rank is left" in fail.why
    story = running("a:3", first=3, least=1)
    story.die(0)
    story.ask(1, 2)  # they go on without it
    story.die(1, WELL)
    assert kinds(story.die(2, WELL)) == [Finish]


def test_fewer_good_ends_than_the_least_are_no_success() -> None:
    story = running("a:3", first=3, least=3)
    story.die(0, WELL)
    story.die(1)
    assert Place in kinds(story.ask(2))  # it may finish what it does
    (fail,) = story.die(2, WELL)
    assert isinstance(fail, Fail) and "on 2 ranks only, fewer than the 3 of --min-np" in fail.why


def test_when_all_slots_move_one_rank_hands_the_state_over() -> None:
    story = running("a:3", first=3, least=2, most=3)
    story.tell(Found((Host("b", 3),)))
    story.ask(3, 4, 5)
    assert [each.kind for each in story.log if isinstance(each, Announce)] == [REMOVED, ADDED]
    story.ask(0, 1, version=(0, 4))
    place = place_in(story.ask(2, version=(0, 4)))
    assert (story.ranks, place.sync) == ([0, 3, 4], True)
    assert story.state.announced == ADDED | REMOVED  # the last newcomer comes, and the one without a slot goes
    story.ask(0, 3, 4)
    assert story.ranks == [3, 4, 5]
    assert story.state.workers[0].phase == LEAVING


def test_newcomers_that_would_get_no_place_are_not_announced() -> None:
    story = running("a:3", first=3, least=2, most=3)
    story.tell(Found((Host("b", 1),)))
    assert story.ask(3) == [] and story.wait(100) == []


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["come", "come", "die", "leave", "leave", "hosts", "wait", "commit", "lose"]),
        st.integers(0, 99),
    ),
    min_size=10,
    max_size=50,
)


class Life:
    """A job whose workers do what chance wants; checks every promise after every step."""

    def __init__(self, cooldown: bool) -> None:
        self.story = Story("a:2,b:2", (1, 5) if cooldown else None, first=3, least=2, most=6, patience_s=40)
        self.commits: dict[int, int] = {}
        self.before = self.story.state
        self.check(self.story.log)
        for worker in self.story.state.workers:
            self.tell(Asked(worker))

    def do(self, action: str, number: int) -> None:
        state = self.story.state
        workers = sorted(state.workers)
        if action == "wait":
            self.tell(Passed(), number / 2)
        elif action == "hosts":
            hosts = [Host(name, 1 + (number >> shift) % 3) for shift, name in enumerate("abc") if number >> shift & 1]
            self.tell(Found(tuple(hosts)))
        elif action == "lose":  # of its living workers none is left, and none shall have a place
            self.tell(HostGone("abc"[number % 3], "was lost", number / 100))
        elif workers:
            phase = {"come": STARTING, "leave": PLACED, "commit": PLACED}.get(action)
            able = [each for each in workers if phase in (None, state.workers[each].phase)]
            if not able:
                return
            worker = state.workers[able[number % len(able)]]
            if action == "die":
                fate = (FAULT, FAULT, ERROR, WELL)[number % 4] if number > 90 else FAULT
                self.tell(Ended(worker.number, fate, "was killed by signal 9", number / 100))
            elif action == "commit":
                self.commits[worker.number] = self.commits.get(worker.number, 0) + 1
            elif action == "come":
                self.tell(Asked(worker.number))
            elif action == "leave":
                self.tell(Asked(worker.number, (state.epoch, self.commits.get(worker.number, 0))))

    def tell(self, event: Event, after_s: float = 0.0) -> None:
        self.before = self.story.state
        self.check(self.story.tell(event, after_s))

    def check(self, decided: list[Decision]) -> None:
        state, before = self.story.state, self.before
        for decision in decided:
            assert decision.why
            if isinstance(decision, Place):
                self.check_place(decision, before)
            if isinstance(decision, Release):
                assert decision.host not in {worker.host for worker in state.workers.values()}
        assert not (before.over and decided)
        if not state.over:
            named = {host.hostname for host in state.hosts}
            usable = {name for name in named if not state.blacklist.drains(name, self.story.now_s)}
            assert {worker.host for worker in state.workers.values()} <= set(state.used)
            assert set(state.used) <= usable | {worker.host for worker in state.workers.values()}
        if state.over or not state.workers:
            return
        moving = state.in_phase(PLACED, STARTING, LEAVING)
        assert moving or machine.next_s(state, self.story.now_s) is not None, "all wait, for nobody and without an end"

    def check_place(self, place: Place, before: State) -> None:
        state = self.story.state
        workers = [seat.worker for seat in place.seats]
        assert place.epoch == before.epoch + 1 == state.epoch
        assert [seat.slot.rank for seat in place.seats] == list(range(len(workers)))
        assert len(set(workers)) == len(workers) <= 6
        assert all(state.workers[worker].phase == PLACED for worker in workers)
        still_there = [
            number
            for number in before.members
            if number in state.workers and state.workers[number].phase == PLACED and number not in workers
        ]
        assert not still_there, "two epochs at once"
        for host in {seat.slot.hostname for seat in place.seats}:
            here = [seat for seat in place.seats if seat.slot.hostname == host]
            homes = {seat.slot.local_rank: state.workers[seat.worker].home for seat in here}
            assert sorted(homes) == list(range(len(here))) and len({*homes.values(), None}) == len(here) + 1
            assert all(number == home or (home or 0) >= len(here) for number, home in homes.items())
        survivors = [number for number in before.members if number in workers]
        if place.epoch:
            assert workers[0] in survivors
            assert len(workers) >= (1 if state.finishing else 2)
            newest = max(self.commits.get(number, 0) for number in survivors)
            assert self.commits.get(workers[0], 0) == newest
            assert [number for number in workers if number in survivors and number != workers[0]] == [
                number for number in survivors if number != workers[0]
            ]
        self.commits.clear()


@settings(max_examples=150, deadline=None)
@given(ACTIONS, st.booleans())
def test_the_promises_hold_in_every_life(actions: list[tuple[str, int]], cooldown: bool) -> None:
    life = Life(cooldown)
    for action, number in actions:
        life.do(action, number)


@settings(max_examples=60, deadline=None)
@given(ACTIONS)
def test_every_life_can_be_brought_to_an_end(actions: list[tuple[str, int]]) -> None:
    """When everybody answers from some moment on, all that live have a place, or the job has ended and says why."""
    life = Life(True)
    for action, number in actions:
        life.do(action, number)
    for _ in range(60):
        state = life.story.state
        if state.over or not state.workers:
            return
        for worker in list(state.workers.values()):
            told = life.story.state.workers.get(worker.number)
            if told is not None and told.phase == LEAVING:
                life.tell(Ended(worker.number, WELL, "exited with code 0"))
            elif told is not None and told.phase == STARTING:
                life.tell(Asked(worker.number))
        state = life.story.state
        if state.announced or state.broken_s is not None:
            for worker in state.in_phase(PLACED):
                life.tell(Asked(worker.number, (state.epoch, life.commits.get(worker.number, 0))))
        life.tell(Passed(), 2.0)
    state = life.story.state
    assert state.over or not state.in_phase(WAITING), state


@pytest.mark.parametrize("phase", [STARTING, WAITING, PLACED])
def test_a_worker_in_any_phase_may_die(phase: str) -> None:
    story = running("a:4", first=4)
    story.tell(Found((Host("a", 6),)))
    story.ask(4)
    worker = story.state.in_phase(phase)[0].number
    story.die(worker)
    assert worker not in story.state.workers
