"""An elastic job as a value, and what can be read from it: which workers are ready, late or without a slot. Pure.

Used by `machine`, whose rules are made of it, and by `driver` and `stories`.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from horovod.runner.elastic.assignment import NO_STATE, Version
from horovod.runner.elastic.blacklist import Blacklist
from horovod.runner.machines.hosts import Host

# What a worker does.
STARTING, WAITING, PLACED, LEAVING = "starting", "waiting", "placed", "leaving"


class Limits(NamedTuple):
    """What the user has set.

    Attributes:
        first: workers that the job begins with.
        least: fewer do not go on, nor are a good end.
        most: never more; None: as many as there are slots.
        resets: epochs after the first; None: any number.
        patience_s: to wait for enough workers.
        answer_s: for all ranks to leave an epoch once one has, and to come as far as hvd.init().
    """

    first: int
    least: int
    most: Optional[int] = None
    resets: Optional[int] = None
    patience_s: float = 600.0
    answer_s: float = 30.0


class Worker(NamedTuple):
    """A living process of a rank. `since_s`: when its phase began; `took_s`: from its start until it asked first;
    `home`: the local rank of its first epoch, by which its program has chosen a GPU; None: it has had no place yet."""

    number: int
    host: str
    phase: str = STARTING
    since_s: float = 0.0
    version: Version = NO_STATE
    took_s: float = 0.0
    home: Optional[int] = None


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
        announced: the changes that the members were notified of.
        broken_s: when the first member has left the present epoch.
        short_s: since when there are too few.
        fruitless: epochs in a row that have failed without a commit or a change.
        used: hosts where workers were started, and that are not released.
        news: what has happened since the epoch began, for explanations.
        complaint: the first member that could not meet the others has said why.
        done: workers whose programs have run to their end: members, or before the first epoch any.
        lost: how a rank was lost in the epoch, or after others were done, if one was.
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
    done: tuple[int, ...] = ()
    lost: str = ""
    over: bool = False

    @property
    def finishing(self) -> bool:
        """A program is done, and the others come to their ends."""
        return bool(self.done)

    def in_phase(self, *phases: str) -> list[Worker]:
        """The workers that do one of these, by number."""
        return [worker for worker in self.workers.values() if worker.phase in phases]

    def with_worker(self, worker: Worker) -> State:
        """With this worker, new or changed."""
        return self._replace(workers={**self.workers, worker.number: worker})


def is_newcomer(state: State, number: int) -> bool:
    """The job has begun, and this worker has never had a place in it, or has none any more."""
    return state.epoch >= 0 and number not in state.members


def called(state: State, number: int) -> str:
    """A worker, in words: by its rank if it has one."""
    if number in state.members:
        return f"rank {state.members.index(number)}"
    return f"worker {number}, which had no rank yet,"


def without_slot(state: State, now_s: float) -> set[int]:
    """Workers for whom there is no slot: of hosts that are gone, have shrunk or are given up, and above the most. The
    last ones first, so that rank 0 stays."""
    members = set(state.members)
    living = [number for number in state.members if number in state.workers]
    living += [number for number in state.workers if number not in members]
    living = [number for number in living if state.workers[number].phase != LEAVING]
    if state.finishing:
        return {number for number in living if number not in state.members}
    left = {host.hostname: host.slots for host in state.hosts if not state.blacklist.drains(host.hostname, now_s)}
    room = most_workers(state)
    found = set()
    for number in living:
        host = state.workers[number].host
        if left.get(host, 0) > 0 and room > 0:
            left[host] -= 1
            room -= 1
        else:
            found.add(number)
    return found


def with_slots(state: State, now_s: float, phase: str) -> list[Worker]:
    """The workers in this phase that may stay."""
    gone = without_slot(state, now_s)
    return [worker for worker in state.in_phase(phase) if worker.number not in gone]


def there(state: State, now_s: float) -> int:
    """How many wait and could be ranks: before the first epoch those that have a slot, later members without one too,
    since ranks that live are worth more than the hosts that are named."""
    return len(with_slots(state, now_s, WAITING) if state.epoch < 0 else state.in_phase(WAITING))


def may_begin(state: State, now_s: float) -> bool:
    """The first epoch may: as many workers wait as the job begins with, and no other one is on its way, or they have
    waited for it long enough; or, after all patience, as many as it needs to go on."""
    waiting = with_slots(state, now_s, WAITING)
    if out_of_patience(state, now_s):
        return len(waiting) >= state.limits.least
    if len(waiting) < state.limits.first:
        return False
    first_s = min(worker.since_s for worker in waiting)
    return now_s >= first_s + state.limits.answer_s or not with_slots(state, now_s, STARTING)


def lacks_workers(state: State, now_s: float) -> bool:
    """There are too few. Before the first epoch: nobody is on the way, or a worker waits for the replacement of a lost
    one."""
    if state.finishing:
        return False
    if state.epoch >= 0:
        return state.broken_s is not None and not state.in_phase(PLACED)
    return not with_slots(state, now_s, STARTING) or bool(state.news and state.in_phase(WAITING))


def out_of_patience(state: State, now_s: float) -> bool:
    """There have been too few for too long."""
    return state.short_s is not None and now_s >= state.short_s + state.limits.patience_s


def awaited_until_s(state: State, now_s: float) -> dict[int, float]:
    """Workers that start while all others wait, and until when these do so: as long as the quickest of them has taken
    to come as far as hvd.init(), and the time to answer. Empty while ranks train, or nobody waits."""
    waiting = state.in_phase(WAITING)
    if not waiting or state.in_phase(PLACED):
        return {}
    first_s, took_s = min(each.since_s for each in waiting), min(each.took_s for each in waiting)
    return {
        worker.number: max(first_s, worker.since_s + took_s) + state.limits.answer_s
        for worker in with_slots(state, now_s, STARTING)
    }


def most_workers(state: State) -> int:
    """That the job may have."""
    return sum(host.slots for host in state.hosts) if state.limits.most is None else state.limits.most


def why_gone(state: State, now_s: float) -> str:
    """Why some have no slot, in words."""
    drained = [host.hostname for host in state.hosts if state.blacklist.drains(host.hostname, now_s)]
    if drained:
        return f"{', '.join(drained)} {'is' if len(drained) == 1 else 'are'} given up after a failure"
    return f"the hosts are now {', '.join(host.to_string() for host in state.hosts) or 'none'}"


def reason(state: State, now_s: float) -> str:
    """Why an epoch ends, or there is none yet, in words."""
    if state.news:
        return "; ".join(state.news)
    if state.epoch < 0:
        return "all ranks are up" if there(state, now_s) >= state.limits.first else why_gone(state, now_s)
    return state.complaint.rstrip(".") or "collectives failed although all ranks are alive"


def count(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
