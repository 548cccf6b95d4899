"""The state machine of an elastic job: from a state and what has happened to the next state and what to do. Pure.

Used by `driver`. `step` takes one event; everything it decides has its reason in words. What it promises, whatever
happens in whatever order (tests/unit/runner/elastic/test_elastic_machine.py tries it):

- An epoch begins when every worker of the one before has asked for a place or is dead: never two at once.
- The ranks of an epoch are dense, all alive and waiting; rank 0 is a survivor with the newest commit.
- Whoever waits, waits for a living worker, or until a time that is known.
- A host without workers that gets none either is released.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Optional

from horovod.runner.elastic.assignment import NO_STATE, Version, order, seats
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
    Found,
    HostGone,
    Kill,
    Place,
    Release,
    Start,
)
from horovod.runner.hosts import Host

_FRUITLESS: Final = 3  # epochs of the same workers that fail without a commit

# What a worker does.
STARTING, WAITING, PLACED, LEAVING = "starting", "waiting", "placed", "leaving"


class Limits(NamedTuple):
    """What the user has set.

    Attributes:
        first: workers that the job begins with.
        least: fewer do not go on.
        most: never more; None: as many as there are slots.
        resets: epochs after the first; None: any number.
        patience_s: to wait for enough workers.
        answer_s: for all ranks to leave an epoch once one has.
    """

    first: int
    least: int
    most: Optional[int] = None
    resets: Optional[int] = None
    patience_s: float = 600.0
    answer_s: float = 30.0


class Worker(NamedTuple):
    """A living process of a rank."""

    number: int
    host: str
    phase: str = STARTING
    since_s: float = 0.0
    version: Version = NO_STATE


class State(NamedTuple):
    """Of the whole job.

    Attributes:
        limits: as set.
        hosts: where workers may be, in order.
        workers: that live, by number.
        members: of the present epoch, by rank, dead ones too.
        epoch: its number; -1 before the first.
        blacklist: hosts that get no workers.
        next_number: of the next worker.
        announced: what the members have been told to make room for.
        broken_s: when the first member has left the present epoch.
        short_s: since when there are too few.
        fruitless: epochs in a row that have failed without a commit or a change.
        used: hosts where workers were started, and that are not released.
        news: what has happened since the epoch began, for explanations.
        complaint: the first member that could not meet the others has said why.
        finishing: a member's program is done.
        lost: how a member of the epoch was lost, if one was.
        over: nothing more is decided.
    """

    limits: Limits
    hosts: tuple[Host, ...]
    workers: dict[int, Worker]
    members: tuple[int, ...] = ()
    epoch: int = -1
    blacklist: Blacklist = Blacklist()
    next_number: int = 0
    announced: int = 0
    broken_s: Optional[float] = None
    short_s: Optional[float] = None
    fruitless: int = 0
    used: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    complaint: str = ""
    finishing: bool = False
    lost: str = ""
    over: bool = False

    def in_phase(self, *phases: str) -> list[Worker]:
        """The workers that do one of these, by number."""
        return [worker for worker in self.workers.values() if worker.phase in phases]

    def with_worker(self, worker: Worker) -> State:
        """With this worker, new or changed."""
        return self._replace(workers={**self.workers, worker.number: worker})


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
    times += [worker.since_s + state.limits.answer_s for worker in state.in_phase(STARTING)]
    return min((each for each in times if each > now_s), default=None)


def _asked(state: State, event: Asked, now_s: float) -> State:
    worker = state.workers.get(event.worker)
    if worker is None or worker.phase not in (STARTING, PLACED):
        return state  # it is dead, or asks twice
    if worker.phase == PLACED and state.broken_s is None:
        state = state._replace(broken_s=now_s)
    if event.why and not state.complaint:
        state = state._replace(complaint=f"{_called(state, worker.number)} could not meet the others: {event.why}")
    return state.with_worker(worker._replace(phase=WAITING, since_s=now_s, version=event.version))


def _ended(state: State, event: Ended, now_s: float) -> State:
    worker = state.workers.get(event.worker)
    if worker is None:
        return state
    left = {number: each for number, each in state.workers.items() if number != event.worker}
    state = state._replace(workers=left)
    if worker.phase == LEAVING:
        return state
    told = f"{_called(state, worker.number)} {event.how}"
    if event.fate == WELL and is_newcomer(state, worker.number):  # it has done nothing of the job, well or badly
        blacklist = state.blacklist.after_vain_start(worker.host, told, now_s, event.chance)
        return state._replace(blacklist=blacklist)
    if event.fate == WELL:
        return state._replace(finishing=True)
    # A newcomer whose program cannot begin is the fault of its host: the others could.
    if event.fate == ERROR and (state.epoch < 0 or worker.number in state.members):
        return state._replace(over=True)
    if worker.number in state.members:
        state = state._replace(lost=state.lost or told)
    return _held_against(state, worker.host, told, now_s, event.chance)


def _host_gone(state: State, event: HostGone, now_s: float) -> State:
    left = {number: each for number, each in state.workers.items() if each.host != event.host}
    used = tuple(host for host in state.used if host != event.host)
    if len(left) == len(state.workers):
        return state._replace(used=used)  # nobody is lost with it
    if any(number in state.workers and number not in left for number in state.members):
        state = state._replace(lost=state.lost or event.how)
    held = state.blacklist.of(event.host)
    silent = event.silent or (held is not None and held.silent)
    state = state._replace(workers=left, used=used)
    return _held_against(state, event.host, event.how, now_s, event.chance, silent)


def _held_against(state: State, host: str, told: str, now_s: float, chance: float, silent: bool = False) -> State:
    """A failure is the fault of its host, which is given up, unless the job has no other one."""
    others = [each.hostname for each in state.hosts if each.hostname != host]
    alone = all(state.blacklist.drains(name, now_s) for name in others)
    blacklist = state.blacklist.after_failure(host, told, alone, now_s, chance, silent)
    return state._replace(blacklist=blacklist, news=(*state.news, told))


def is_newcomer(state: State, number: int) -> bool:
    """The job has begun, and this worker has never had a place in it, or has none any more."""
    return state.epoch >= 0 and number not in state.members


def _called(state: State, number: int) -> str:
    """A worker, in words: by its rank if it has one."""
    if number in state.members:
        return f"rank {state.members.index(number)}"
    return f"worker {number}, which had no rank yet,"


def _settled(state: State, now_s: float) -> Outcome:
    """Applies the rules, in their order, until none has anything to do."""
    decided: list[Decision] = []
    rules = (_end_if_alone, _dismiss, _kill_silent, _form, _start, _announce, _release, _lose_patience)
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
        return state.with_worker(state.workers[decision.worker]._replace(phase=LEAVING))
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
    placed = {
        number: state.workers[number]._replace(phase=PLACED, since_s=now_s, version=NO_STATE) for number in members
    }
    blacklist = state.blacklist
    for number in set(members) - set(state.members):
        blacklist = blacklist.after_good_start(state.workers[number].host)
    return state._replace(
        workers={**state.workers, **placed},
        blacklist=blacklist,
        fruitless=state.fruitless + 1 if _went_in_vain(state, members) else 0,
        members=members,
        epoch=decision.epoch,
        announced=0,
        broken_s=None,
        short_s=None,
        lost="",
        news=(),
        complaint="",
    )


def _went_in_vain(state: State, members: tuple[int, ...]) -> bool:
    """The same workers begin again, and have committed nothing meanwhile."""
    versions = [state.workers[number].version for number in members]
    return state.epoch >= 0 and members == state.members and max(versions) <= (state.epoch, 0)


def _measured(state: State, now_s: float) -> State:
    """Notes since when the job lacks workers, if it does."""
    if state.epoch < 0:
        lacks = not state.in_phase(STARTING)
    else:
        lacks = state.broken_s is not None and not state.in_phase(PLACED)
    short_s = state.short_s if state.short_s is not None else now_s
    return state._replace(short_s=short_s if lacks and not state.finishing else None)


# ---- the rules: each says what to do now


def _end_if_alone(state: State, now_s: float) -> Iterator[Decision]:
    """Nobody is left who has the state, or nobody can have one."""
    del now_s
    if state.epoch < 0 and state.finishing and state.in_phase(WAITING):
        yield Fail("a rank ended with code 0 and never called hvd.init(), which every rank must call.")
    elif state.epoch < 0 or any(number in state.workers for number in state.members):
        return
    elif not state.finishing:
        yield Fail(
            f"no rank of epoch {state.epoch} is left, and with them what they had in memory is lost: "
            f"{'; '.join(state.news)}. Start the job again, which --max-restarts does by itself: it begins from the "
            "newest durable commit (--elastic-commit-dir) or from your own checkpoint."
        )
    elif state.lost:
        yield Fail(
            f"{state.lost}, the other ranks of epoch {state.epoch} have ended with code 0, and nobody is left to do "
            "what it had not done."
        )


def _dismiss(state: State, now_s: float) -> Iterator[Decision]:
    """Who has no prospect of a place goes, whether it has asked for one yet or not. Before the first epoch a rank that
    has ended has met nobody, and says nothing of the others: they may not need one another."""
    if state.epoch < 0 and state.finishing:
        return
    for number in sorted(_surplus(state, now_s)):
        if state.workers[number].phase != PLACED and number not in state.members:
            why = "the training has finished" if state.finishing else "there is no slot for it any more"
            yield Dismiss(number, why)


def _kill_silent(state: State, now_s: float) -> Iterator[Decision]:
    """Who does not leave an epoch that others have left, hangs."""
    if state.broken_s is not None and now_s >= state.broken_s + state.limits.answer_s:
        for worker in state.in_phase(PLACED):
            yield Kill(
                worker.number,
                f"did not leave epoch {state.epoch} within {state.limits.answer_s:g} s of the others "
                "(--start-timeout), so it was taken to hang and killed",
            )


def _form(state: State, now_s: float) -> Iterator[Decision]:
    """A new epoch, once everybody who must take part in it waits."""
    if state.in_phase(PLACED) or (state.epoch >= 0 and state.broken_s is None):
        return
    surplus = _surplus(state, now_s)
    waiting = [worker.number for worker in state.in_phase(WAITING) if worker.number not in surplus]
    if state.epoch >= 0 and len(waiting) < state.limits.least:  # rather than end, the job keeps whom it would let go
        waiting += [number for number in state.members if number in surplus and number in state.workers]
        surplus -= set(waiting)
    survivors = [number for number in state.members if number in waiting]
    newcomers = [number for number in waiting if number not in state.members]
    if state.epoch < 0 and (len(waiting) < state.limits.first or state.in_phase(STARTING)):
        return
    if state.epoch >= 0 and (not survivors or (len(waiting) < state.limits.least and not state.finishing)):
        return
    if state.limits.resets is not None and state.epoch >= state.limits.resets:
        yield Fail(f"the job has begun anew {state.epoch} times, which is the limit (--reset-limit): {_reason(state)}.")
        return
    if state.fruitless >= _FRUITLESS - 1 and _went_in_vain(state, (*survivors, *newcomers)):
        yield Fail(
            f"{_FRUITLESS} epochs of the same ranks have failed one after the other, and nothing was committed in "
            f"between, so it is no failure of one host or process: {_reason(state)}."
        )
        return
    for number in state.members:
        if number in surplus and number in state.workers and state.workers[number].phase == WAITING:
            yield Dismiss(number, "there is no slot for it any more")
    versions = {number: state.workers[number].version for number in waiting}
    ranks = order(survivors, versions, newcomers)[: state.limits.most]
    equal = not newcomers and len({versions[number] for number in ranks}) == 1
    hosts = {number: state.workers[number].host for number in ranks}
    yield Place(state.epoch + 1, seats(ranks, hosts), not equal, _reason(state))


def _start(state: State, now_s: float) -> Iterator[Decision]:
    """A worker for every free slot, up to the most. While survivors of a failure come together, the machine is theirs:
    a start takes seconds of a core."""
    living = [number for number in state.members if number in state.workers]
    recovering = len(living) < len(state.members) and len(living) >= state.limits.least
    if state.finishing or recovering:
        return
    surplus = _surplus(state, now_s)
    staying = [worker for worker in state.workers.values() if worker.phase != LEAVING and worker.number not in surplus]
    room = _most(state) - len(staying)
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
    surplus = _surplus(state, now_s)
    newcomers = [worker for worker in state.in_phase(STARTING, WAITING) if worker.number not in surplus]
    come = [worker for worker in newcomers if worker.phase == WAITING]
    late = [worker for worker in newcomers if now_s >= worker.since_s + state.limits.answer_s]
    if come and not state.announced & ADDED and (len(come) == len(newcomers) or late):
        yield Announce(ADDED, f"{_count(len(come), 'further worker')} can take part")
    gone = [number for number in state.members if number in surplus]
    staying = len([number for number in state.members if number in state.workers]) - len(gone) + len(come)
    if gone and not state.announced & REMOVED and staying >= state.limits.least:
        yield Announce(REMOVED, f"{_count(len(gone), 'rank')} must leave: {_why_gone(state, now_s)}")


def _release(state: State, now_s: float) -> Iterator[Decision]:
    """What is kept on a host for further workers goes with the host. Where only a slot pauses, it stays."""
    named = {host.hostname for host in state.hosts}
    inhabited = {worker.host for worker in state.workers.values()}
    for host in state.used:
        given_up = state.blacklist.given_up(host, now_s)
        if host not in inhabited and (host not in named or given_up):
            yield Release(host, f"{host} is given up after a failure" if given_up else f"{host} is no longer named")


def _lose_patience(state: State, now_s: float) -> Iterator[Decision]:
    """There have been too few for too long."""
    if state.short_s is not None and now_s >= state.short_s + state.limits.patience_s:
        needed = state.limits.first if state.epoch < 0 else state.limits.least
        held = [f"{each.host} ({each.why})" for each in state.blacklist.entries if each.holds(now_s)]
        given_up = f" Hosts that were given up: {'; '.join(held)}." if held else ""
        yield Fail(
            f"{needed} ranks are needed, and after {state.limits.patience_s:g} s (--elastic-timeout) only "
            f"{len(state.in_phase(WAITING))} are there: {_reason(state)}.{given_up}"
        )


# ---- what the rules share


def _surplus(state: State, now_s: float) -> set[int]:
    """Workers for whom there is no slot: of hosts that are gone, have shrunk or are given up, and above the most. The
    last ones first, so that rank 0 stays."""
    living = [number for number in state.members if number in state.workers]
    living += [number for number in state.workers if number not in living]
    living = [number for number in living if state.workers[number].phase != LEAVING]
    if state.finishing:
        return {number for number in living if number not in state.members}
    left = {host.hostname: host.slots for host in state.hosts if not state.blacklist.drains(host.hostname, now_s)}
    room = _most(state)
    found = set()
    for number in living:
        host = state.workers[number].host
        if left.get(host, 0) > 0 and room > 0:
            left[host] -= 1
            room -= 1
        else:
            found.add(number)
    return found


def _most(state: State) -> int:
    return sum(host.slots for host in state.hosts) if state.limits.most is None else state.limits.most


def _why_gone(state: State, now_s: float) -> str:
    drained = [host.hostname for host in state.hosts if state.blacklist.drains(host.hostname, now_s)]
    if drained:
        return f"{', '.join(drained)} {'is' if len(drained) == 1 else 'are'} given up after a failure"
    return f"the hosts are now {', '.join(host.to_string() for host in state.hosts) or 'none'}"


def _reason(state: State) -> str:
    """Why an epoch ends, in words."""
    if state.news:
        return "; ".join(state.news)
    if state.epoch < 0:
        return "all ranks are up"
    return state.complaint.rstrip(".") or "collectives have failed, though all ranks live"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
