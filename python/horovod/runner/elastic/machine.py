"""The state machine of an elastic job: from a state and what has happened to the next state and what to do. Pure.

Used by `driver`. `step` takes one event; everything it decides has its reason in words. What it promises, whatever
happens in whatever order (tests/unit/runner/elastic/test_elastic_machine.py tries it):

- An epoch begins when every worker of the one before has asked for a place or is dead: never two at once.
- The ranks of an epoch are dense, all alive and waiting; rank 0 is a survivor with the newest commit.
- Local ranks are dense on each host, and none is another rank's first one, by which that rank has chosen its GPU.
- A worker that waits does so for a living worker, or until a time that is known.
- A host without workers that gets none either is released.
- A job is done (`Finish`) when the program has run to its end on every rank of the last epoch and on no fewer than the
  least. Every other end is a failure with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Optional

from horovod.runner.elastic.assignment import NO_STATE, order, seats
from horovod.runner.elastic.blacklist import Blacklist
from horovod.runner.elastic.discovery import in_stable_order
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
    Place,
    Release,
    Start,
)
from horovod.runner.elastic.state import (
    LEAVING,
    PLACED,
    STARTING,
    WAITING,
    Limits,
    State,
    Worker,
    awaited_until_s,
    called,
    count,
    is_newcomer,
    lacks_workers,
    may_begin,
    most_workers,
    out_of_patience,
    reason,
    there,
    why_gone,
    without_slot,
)
from horovod.runner.machines.hosts import Host

_FRUITLESS: Final = 3  # epochs of the same workers that fail without a commit
_MOST_LOST: Final = 6  # workers, besides as many as the job begins with, before its first epoch

Outcome = tuple[State, tuple[Decision, ...]]


def begin(limits: Limits, hosts: tuple[Host, ...], blacklist: Blacklist, now_s: float) -> Outcome:
    """A job on these hosts, which have slots for the first workers, or will have."""
    state = State(limits, hosts, {}, blacklist=blacklist)
    return _settled(state, now_s)


def step(state: State, event: Event, now_s: float) -> Outcome:
    """What follows from an event."""
    if state.over:
        return state, ()
    if isinstance(event, Asked):
        state = _asked(state, event, now_s)
    elif isinstance(event, Found):
        state = state._replace(hosts=in_stable_order(state.hosts, event.hosts))
    elif isinstance(event, Ended):
        state = _ended(state, event, now_s)
    elif isinstance(event, HostGone):
        state = _host_gone(state, event, now_s)
    return _settled(state, now_s)


def next_s(state: State, now_s: float) -> Optional[float]:
    """When time alone changes something; None: never."""
    if state.over:
        return None
    times = [entry.until_s for entry in state.blacklist.entries if entry.until_s is not None]
    times += [state.broken_s + state.limits.answer_s] if state.broken_s is not None else []
    times += [state.short_s + state.limits.patience_s] if state.short_s is not None else []
    times += [worker.since_s + state.limits.answer_s for worker in state.in_phase(STARTING, WAITING)]
    times += awaited_until_s(state, now_s).values()
    return min((each for each in times if each > now_s), default=None)


def _asked(state: State, event: Asked, now_s: float) -> State:
    worker = state.workers.get(event.worker)
    if worker is None or worker.phase not in (STARTING, PLACED):
        return state  # it is dead, or asks twice
    if worker.phase == PLACED and state.broken_s is None:
        state = state._replace(broken_s=now_s)
    if event.why and not state.complaint:
        complaint = f"{called(state, worker.number)} could not connect to the other ranks: {event.why}"
        state = state._replace(complaint=complaint)
    took_s = now_s - worker.since_s if worker.phase == STARTING else worker.took_s
    return state.with_worker(worker._replace(phase=WAITING, since_s=now_s, version=event.version, took_s=took_s))


def _ended(state: State, event: Ended, now_s: float) -> State:
    worker = state.workers.get(event.worker)
    if worker is None:
        return state
    left = {number: each for number, each in state.workers.items() if number != event.worker}
    state = state._replace(workers=left)
    if worker.phase == LEAVING:
        return state
    failure = f"{called(state, worker.number)} {event.how}"
    if event.fate == WELL and is_newcomer(state, worker.number):  # it has done nothing of the job, well or badly
        blacklist = state.blacklist.after_early_end(worker.host, failure, now_s, event.chance)
        return state._replace(blacklist=blacklist)
    if event.fate == WELL:
        return state._replace(done=(*state.done, worker.number))
    # A newcomer whose program cannot begin is the fault of its host: the others could.
    if event.fate == ERROR and (state.epoch < 0 or worker.number in state.members):
        return state._replace(over=True)
    if _is_missed(state, worker.number):
        state = state._replace(lost=state.lost or failure)
    return _record_failure(state, worker.host, failure, now_s, event.chance)


def _host_gone(state: State, event: HostGone, now_s: float) -> State:
    left = {number: each for number, each in state.workers.items() if each.host != event.host}
    used = tuple(host for host in state.used if host != event.host)
    if len(left) == len(state.workers):
        return state._replace(used=used)  # nobody is lost with it
    if any(_is_missed(state, number) for number in state.workers if number not in left):
        state = state._replace(lost=state.lost or event.how)
    held = state.blacklist.of(event.host)
    silent = event.silent or (held is not None and held.silent)
    state = state._replace(workers=left, used=used)
    return _record_failure(state, event.host, event.how, now_s, event.chance, silent)


def _is_missed(state: State, number: int) -> bool:
    """No other worker does its work: it is a member, or one of a job that ends before its first epoch."""
    return not is_newcomer(state, number) and (state.epoch >= 0 or state.finishing)


def _record_failure(state: State, host: str, failure: str, now_s: float, chance: float, silent: bool = False) -> State:
    """Blacklists the host of a failure, unless it is the last one."""
    others = [each.hostname for each in state.hosts if each.hostname != host]
    alone = all(state.blacklist.drains(name, now_s) for name in others)
    blacklist = state.blacklist.after_failure(host, failure, alone, now_s, chance, silent)
    return state._replace(blacklist=blacklist, news=(*state.news, failure))


def _settled(state: State, now_s: float) -> Outcome:
    """Applies the rules, in their order, until none has anything to do."""
    decided: list[Decision] = []
    rules = (
        _end_if_alone, _dismiss, _finish, _kill_silent, _form, _kill_late, _start, _announce, _release, _lose_patience,
    )  # fmt: skip
    going_on = True
    while going_on and not state.over:
        going_on = False
        for rule in rules:
            before = len(decided)
            for decision in rule(state, now_s):
                state = _done(state, decision, now_s)
                decided.append(decision)
            going_on = going_on or len(decided) > before
            if state.over:
                break
        state = _measured(state, now_s)
    return state, tuple(decided)


def _done(state: State, decision: Decision, now_s: float) -> State:
    """The state after a decision is carried out."""
    if isinstance(decision, Start):
        worker = Worker(decision.worker, decision.host, since_s=now_s)
        used = tuple(dict.fromkeys((*state.used, decision.host)))
        return state.with_worker(worker)._replace(next_number=decision.worker + 1, used=used)
    if isinstance(decision, Dismiss):
        return state.with_worker(state.workers[decision.worker]._replace(phase=LEAVING, since_s=now_s))
    if isinstance(decision, Announce):
        return state._replace(announced=state.announced | decision.kind, news=(*state.news, decision.why))
    if isinstance(decision, Place):
        return _placed(state, decision, now_s)
    if isinstance(decision, Release):
        return state._replace(used=tuple(host for host in state.used if host != decision.host))
    if isinstance(decision, Kill):
        host = state.workers[decision.worker].host
        state = _ended(state, Ended(decision.worker, FAULT, decision.why), now_s)
        return state._replace(workers={**state.workers, decision.worker: Worker(decision.worker, host, LEAVING)})
    return state._replace(over=True)


def _placed(state: State, decision: Place, now_s: float) -> State:
    members = tuple(seat.worker for seat in decision.seats)
    placed = {}
    for number, slot in decision.seats:
        worker = state.workers[number]
        home = slot.local_rank if worker.home is None else worker.home
        placed[number] = worker._replace(phase=PLACED, since_s=now_s, version=NO_STATE, home=home)
    blacklist = state.blacklist
    for number in set(members) - set(state.members):
        blacklist = blacklist.after_good_start(state.workers[number].host)
    return state._replace(
        workers={**state.workers, **placed},
        blacklist=blacklist,
        fruitless=state.fruitless + 1 if _achieved_nothing(state, members) else 0,
        members=members,
        epoch=decision.epoch,
        announced=0,
        broken_s=None,
        short_s=None,
        lost="",
        news=(),
        complaint="",
    )


def _achieved_nothing(state: State, members: tuple[int, ...]) -> bool:
    """The same workers begin again, and have committed nothing meanwhile."""
    versions = [state.workers[number].version for number in members]
    return state.epoch >= 0 and members == state.members and max(versions) <= (state.epoch, 0)


def _measured(state: State, now_s: float) -> State:
    """Notes since when the job lacks workers, if it does."""
    short_s = state.short_s if state.short_s is not None else now_s
    return state._replace(short_s=short_s if lacks_workers(state, now_s) else None)


# ---- the rules: each says what to do now


def _end_if_alone(state: State, now_s: float) -> Iterator[Decision]:
    """No rank is left that has the state, or none can have one."""
    del now_s
    if state.epoch < 0 and state.finishing and state.in_phase(WAITING):
        yield Fail("a rank ended with code 0 without calling hvd.init(), which every rank must call.")
    elif state.epoch < 0 or any(number in state.workers for number in state.members):
        return
    elif not state.finishing:
        yield Fail(
            f"no rank of epoch {state.epoch} is left, so the state that they had in memory is lost: "
            f"{'; '.join(state.news)}. Start the job again, as --max-restarts does by itself: it begins from the "
            "newest durable commit (--elastic-commit-dir) or from your own checkpoint."
        )


def _dismiss(state: State, now_s: float) -> Iterator[Decision]:
    """A worker without prospect of a place goes, whether it has asked for one or not. Before the first epoch the slots
    may come back, so the oldest stay until it begins, as many as the job begins with. If a rank has ended by then, it
    has met nobody, and says nothing of the others: they may not need one another."""
    gone = sorted(without_slot(state, now_s))
    if state.epoch < 0:
        gone = [] if state.finishing else gone[state.limits.first :]
    for number in gone:
        if state.workers[number].phase != PLACED and number not in state.members:
            why = "the training has finished" if state.finishing else "there is no slot for it any more"
            yield Dismiss(number, why)


def _finish(state: State, now_s: float) -> Iterator[Decision]:
    """The job is over once programs have run to their ends and none is left; well, if those are enough."""
    del now_s
    left = [number for number in (state.workers if state.epoch < 0 else state.members) if number in state.workers]
    if left or not state.finishing:
        return
    needed, flag = (state.limits.first, "-np") if state.epoch < 0 else (state.limits.least, "--min-np")
    if state.lost:
        yield Fail(f"{state.lost}, the other ranks have ended with code 0, and no rank is left to finish its work.")
    elif len(state.done) < needed:
        why = f": {'; '.join(state.news)}" if state.news else ""
        yield Fail(
            f"the program has run to its end on {count(len(state.done), 'rank')} only, fewer than the {needed} of "
            f"{flag}{why}."
        )
    else:
        yield Finish(f"the program has run to its end on {count(len(state.done), 'rank')}")


def _kill_silent(state: State, now_s: float) -> Iterator[Decision]:
    """Kills workers that do not leave an epoch that others have left: they hang."""
    if state.broken_s is not None and now_s >= state.broken_s + state.limits.answer_s:
        for worker in state.in_phase(PLACED):
            yield Kill(
                worker.number,
                f"did not leave epoch {state.epoch} within {state.limits.answer_s:g} s of the others "
                "(--start-timeout), so it seems to hang and was killed",
            )


def _form(state: State, now_s: float) -> Iterator[Decision]:
    """A new epoch, once everybody who must take part in it waits."""
    if state.in_phase(PLACED) or (state.epoch >= 0 and state.broken_s is None):
        return
    if state.epoch < 0 and not may_begin(state, now_s):
        return
    ranks = _ranks(state, now_s, [worker.number for worker in state.in_phase(WAITING)])
    survivors = [number for number in state.members if number in ranks]
    if state.epoch >= 0 and (not survivors or (len(ranks) < state.limits.least and not state.finishing)):
        return
    if state.limits.resets is not None and state.epoch >= state.limits.resets:
        why = reason(state, now_s)
        yield Fail(f"the job was reset {state.epoch} times, which is the limit (--reset-limit): {why}.")
        return
    if state.fruitless >= _FRUITLESS - 1 and _achieved_nothing(state, tuple(ranks)):
        yield Fail(
            f"{_FRUITLESS} epochs of the same ranks have failed in a row without a commit in between, so the "
            f"cause is not a single host or process: {reason(state, now_s)}."
        )
        return
    for number in state.members:
        if number not in ranks and number in state.workers and state.workers[number].phase == WAITING:
            yield Dismiss(number, "there is no slot for it any more")
    versions = {state.workers[number].version for number in ranks}
    hosts = {number: state.workers[number].host for number in ranks}
    homes = {number: home for number in ranks if (home := state.workers[number].home) is not None}
    sync = len(survivors) < len(ranks) or len(versions) > 1
    yield Place(state.epoch + 1, seats(ranks, hosts, homes), sync, reason(state, now_s))


def _ranks(state: State, now_s: float, waiting: list[int]) -> list[int]:
    """The waiting workers that would be in the next epoch, by rank. Members without a slot stay all of them, rather
    than end the job, if the others are too few; one stays, and hands the state over, if no other one has it."""
    surplus = without_slot(state, now_s)
    leaving = [number for number in state.members if number in surplus and number in waiting]
    staying = [number for number in waiting if number not in surplus]
    versions = {number: state.workers[number].version for number in waiting}
    if len(staying) < state.limits.least:
        staying += leaving
    elif leaving and not set(staying) & set(state.members):
        staying.append(max(leaving, key=lambda number: versions[number]))
    survivors = [number for number in state.members if number in staying]
    newcomers = [number for number in staying if number not in state.members]
    return order(survivors, versions, newcomers)[: state.limits.most]


def _kill_late(state: State, now_s: float) -> Iterator[Decision]:
    """Kills workers that do not reach hvd.init() while all others wait for them: they hang. Others replace them."""
    for number, until_s in awaited_until_s(state, now_s).items():
        if now_s >= until_s:
            yield Kill(
                number,
                f"did not call hvd.init() within {state.limits.answer_s:g} s of the others (--start-timeout), so it "
                "seems to hang and was killed",
            )


def _start(state: State, now_s: float) -> Iterator[Decision]:
    """A worker for every free slot, up to the most. While survivors of a failure come together, the machine is theirs:
    a start takes seconds of a core."""
    living = [number for number in state.members if number in state.workers]
    recovering = len(living) < len(state.members) and len(living) >= state.limits.least
    if state.finishing or recovering:
        return
    surplus = without_slot(state, now_s)
    staying = [worker for worker in state.workers.values() if worker.phase != LEAVING and worker.number not in surplus]
    room = most_workers(state) - len(staying)
    number = state.next_number
    for host in state.hosts:
        if state.blacklist.holds(host.hostname, now_s):
            continue
        free = host.slots - sum(worker.host == host.hostname for worker in staying)
        for _ in range(min(free, room)):
            yield Start(number, host.hostname, f"{host.hostname} has a free slot")
            number += 1
            room -= 1


def _announce(state: State, now_s: float) -> Iterator[Decision]:
    """The members hear of a change once everything is ready for it: newcomers wait already."""
    if state.epoch < 0 or state.broken_s is not None or state.finishing:
        return
    surplus = without_slot(state, now_s)
    newcomers = [worker for worker in state.in_phase(STARTING, WAITING) if worker.number not in surplus]
    come = [worker.number for worker in newcomers if worker.phase == WAITING]
    late = [worker for worker in newcomers if now_s >= worker.since_s + state.limits.answer_s]
    living = [number for number in state.members if number in state.workers]
    ranks = _ranks(state, now_s, [*living, *come])
    joining, leaving = set(ranks) - set(living), set(living) - set(ranks)
    if joining and not state.announced & ADDED and (len(come) == len(newcomers) or late):
        yield Announce(ADDED, f"{count(len(joining), 'more worker')} can join")
    if leaving and not state.announced & REMOVED and len(ranks) >= state.limits.least:
        yield Announce(REMOVED, f"{count(len(leaving), 'rank')} must leave: {why_gone(state, now_s)}")


def _release(state: State, now_s: float) -> Iterator[Decision]:
    """What is kept on a host for further workers goes with the host. Where only a slot pauses, it stays."""
    named = {host.hostname for host in state.hosts}
    inhabited = {worker.host for worker in state.workers.values()}
    for host in state.used:
        given_up = state.blacklist.given_up(host, now_s)
        if host not in inhabited and (host not in named or given_up):
            yield Release(host, f"{host} is given up after a failure" if given_up else f"{host} is no longer named")


def _lose_patience(state: State, now_s: float) -> Iterator[Decision]:
    """There have been too few for too long, or too many were lost before anything has begun."""
    held = [f"{each.host} ({each.why})" for each in state.blacklist.entries if each.holds(now_s)]
    given_up = f" Hosts that were given up: {'; '.join(held)}." if held else ""
    if out_of_patience(state, now_s):
        found = there(state, now_s)
        yield Fail(
            f"{count(state.limits.least, 'rank')} {'is' if state.limits.least == 1 else 'are'} needed, but after "
            f"{state.limits.patience_s:g} s (--elastic-timeout) there {'is' if found == 1 else 'are'} {found or 'none'}"
            f": {reason(state, now_s)}.{given_up}"
        )
    elif state.epoch < 0 and len(state.news) > state.limits.first + _MOST_LOST:
        yield Fail(
            f"{len(state.news)} ranks were lost before the job could begin, so the cause is not a single host or "
            f"process; the last one: {state.news[-1]}.{given_up}"
        )
