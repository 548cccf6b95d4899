"""The workers of an elastic job on Ray: makes an actor for each on its node, places it, hears its end. Used by `job`.

It is an `elastic.crew.ElasticCrew`. Ray has no descriptor that tells of results, so it looks as often as `job` has it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Final, Optional

from horovod._core.settings import BY_NAME
from horovod._net.roster import Seat, heard
from horovod._net.secret import new_secret
from horovod.ray import placing
from horovod.ray.arguments import EXECUTOR
from horovod.ray.changing.nodes import Mine
from horovod.ray.changing.ray_does_it import RayDoesIt
from horovod.ray.changing.roster import Question, Word
from horovod.ray.changing.worker import ElasticWorker, Lost, Made, Returned
from horovod.ray.crew import Call, Plan
from horovod.ray.gathering import LAP_S, death, is_death
from horovod.ray.placing import Facts, Place
from horovod.runner.processes.crew import Asks, Bereft, Event, Exited, HostLost, Joined
from horovod.runner.processes.streams import Source, Stream

_HEARS: Final = "hears"  # groups of calls, each with a thread that keeps their order
_IS_ASKED: Final = "is_asked"
_QUESTION_S: Final = 20.0  # that one call of an actor waits for its worker's next question
_SETTLED_S: Final = 2.0  # until Ray's count of what is free has an actor that runs
_OF_ELASTIC_JOBS: Final = BY_NAME["elastic"].env or ""
_ERROR: Final = 1 << 8  # wait statuses
_KILLED: Final = int(signal.SIGKILL)


@dataclass
class _Hired:
    """A worker, and the answers that are awaited of its actor."""

    number: int
    host: str
    node: str
    actor: Any
    run: Any
    facts_to_come: Any
    question_to_come: Any
    due_s: float  # until when its actor must have answered
    facts: Optional[Facts] = None
    question: Optional[Question] = None
    runs_s: float = 0.0  # since when
    rank: Optional[int] = None


@dataclass
class Assignment:
    """What the workers are to do.

    Attributes:
        made, call: see there.
        queue: for what rank 0 logs.
        values: what the function has returned, by worker.
        errors: what it has raised, as Ray raises it, by worker.
    """

    made: Made
    call: Call
    queue: Optional[Any] = None
    values: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, Exception] = field(default_factory=dict)


class ElasticCrew(RayDoesIt):
    """See the head of the file.

    Args:
        ray: the module.
        plan: of the job.
        assignment: of its workers.
        number_of: Ray's number of a node, by the name of the host.

    Attributes:
        streams: none: Ray carries what workers write.
    """

    def __init__(self, ray: Any, plan: Plan, assignment: Assignment, number_of: Callable[[str], str]) -> None:
        self._ray = ray
        self._plan = plan
        self._assignment = assignment
        self._environ = {**plan.environ, _OF_ELASTIC_JOBS: "1", "HOROVOD_JOB_ID": os.urandom(16).hex()}
        self._number_of = number_of
        self._job = f"{placing.LAUNCHER} {os.urandom(8).hex()}"
        self._secret = new_secret()
        self._hired: dict[int, _Hired] = {}
        self._meetings: dict[int, tuple[str, int]] = {}  # where each worker could be met
        self._known: dict[int, Facts] = {}  # of each worker
        self._places: tuple[int, Sequence[Place]] = (-1, ())  # of an epoch, by rank
        self._look_s = time.monotonic()
        self._nothing = select.epoll()
        needs = plan.wanted.resources
        self._actor = ray.remote(
            num_cpus=needs.get("CPU", 0),
            num_gpus=needs.get("GPU", 0),
            max_restarts=0,
            concurrency_groups={_HEARS: 1, _IS_ASKED: 1},  # beside the function that runs
        )(ElasticWorker)
        self.streams: Mapping[Source, Stream] = {}

    # ---- of this module's own

    def awaited(self) -> list[Any]:
        """References to what comes next of all workers."""
        return [
            reference
            for each in self._hired.values()
            for reference in (each.run, each.facts_to_come, each.question_to_come)
            if reference is not None
        ]

    def look(self) -> None:
        """Something has come: `events` takes it."""
        self._look_s = time.monotonic()

    def mine(self) -> dict[str, Mine]:
        """The workers, by the number of their node."""
        found: dict[str, Mine] = {}
        now_s = time.monotonic()
        for each in self._hired.values():
            before = found.get(each.node, Mine())
            is_settled = each.facts is not None and now_s >= each.runs_s + _SETTLED_S
            found[each.node] = Mine(before.workers + 1, before.is_settled and is_settled)
        return found

    def facts(self) -> list[Facts]:
        """Of the ranks of the present epoch, in their order."""
        placed = [each for each in self._hired.values() if each.rank is not None and each.facts is not None]
        return [each.facts for each in sorted(placed, key=lambda each: each.rank or 0) if each.facts is not None]

    # ---- a crew

    def fileno(self) -> int:
        return self._nothing.fileno()

    def next_s(self) -> Optional[float]:
        return self._look_s

    def events(self) -> list[Event]:
        self._look_s = time.monotonic() + LAP_S
        awaited = self.awaited()
        ready = set(self._ray.wait(awaited, num_returns=len(awaited), timeout=0)[0]) if awaited else set()
        found: list[Event] = []
        for each in list(self._hired.values()):
            if each.facts_to_come in ready:
                each.facts, each.facts_to_come = self._answer(each.facts_to_come), None
                each.runs_s = time.monotonic()
                if each.facts is not None:
                    self._known[each.number] = each.facts
            if each.question_to_come in ready and each.run not in ready:
                self._take_question(each)
            if each.question is not None and each.facts is not None:
                found.append(Asks(each.number, each.question.version, each.question.why))
                each.question = None
        now_s = time.monotonic()
        late = [each for each in self._hired.values() if each.facts is None and now_s >= each.due_s]
        found += [self._not_started(each) for each in late if each.run not in ready]
        gone = [(each, self._outcome(each)) for each in self._hired.values() if each.run in ready]
        gone.sort(key=lambda each: self._is_of_actor(each[1]))  # results first: a node's death does not discard them
        dead_nodes = self._dead_nodes([each for each, _ in gone])
        for each, outcome in gone:
            found += self._ended(each, outcome, dead_nodes)
        return found

    def signal(self, ranks: Iterable[int], number: int) -> None:
        del number
        for worker in ranks:
            if worker in self._hired:
                self._kill(self._hired[worker])

    def finish(self) -> None:
        self.close()

    def close(self) -> None:
        runs = [each.run for each in self._hired.values()]
        with contextlib.suppress(Exception):  # Ray itself may be gone
            for run in self._ray.wait(runs, num_returns=len(runs), timeout=0)[0] if runs else ():
                self._answer(run)  # Ray writes every error that nobody has taken
        for each in list(self._hired.values()):
            self._kill(each)
        self._hired.clear()
        if not self._nothing.closed:
            self._nothing.close()

    # ---- of an elastic job

    def begin(self, worker: int, host: str) -> Joined:
        """See `elastic.crew`."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node, assignment, plan = self._number_of(host), self._assignment, self._plan
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = self._actor.options(scheduling_strategy=strategy).remote(worker, plan.nics)
        try:
            facts = actor.facts.options(concurrency_group=_HEARS).remote()
            question = actor.question.options(concurrency_group=_IS_ASKED).remote(_QUESTION_S)
            run = actor.run.remote(self._environ, assignment.made, assignment.call, assignment.queue)
        except BaseException:  # the function cannot be pickled
            self._ray.kill(actor, no_restart=True)
            raise
        due_s = time.monotonic() + plan.patience_s
        self._hired[worker] = _Hired(worker, host, node, actor, run, facts, question, due_s)
        return Joined(worker, {})

    def tell(self, worker: int, message: Mapping[str, Any]) -> None:
        """See `elastic.crew`."""
        hired = self._hired.get(worker)
        if hired is None:
            return
        seat = heard(dict(message))
        place = self._place(seat) if isinstance(seat, Seat) else None
        hired.actor.hear.options(concurrency_group=_HEARS).remote(Word(dict(message), place))

    def renumber(self, worker: int, rank: int) -> None:
        """See `elastic.crew`."""
        if worker in self._hired:
            self._hired[worker].rank = rank

    # ---- inside

    def _place(self, seat: Seat) -> Place:
        """What goes with this place. Local numbers are of machines, which may have several nodes."""
        epoch, places = self._places
        if epoch != seat.epoch:
            facts = [self._known[worker] for worker in seat.workers]  # all have asked, though some may be gone
            where = None if placing.is_one_host(facts) else self._meetings[seat.workers[0]]
            job, plan = f"{self._job}/{seat.epoch}", self._plan
            places = placing.places(facts, job, self._secret, where, plan.environ, plan.nics)
            self._places = seat.epoch, places
            for worker, known, place in zip(seat.workers, facts, places):
                home = place.placement.local_rank if known.home is None else known.home
                self._known[worker] = known._replace(home=home)
        return places[seat.rank]

    def _take_question(self, hired: _Hired) -> None:
        question = self._answer(hired.question_to_come)
        if question is not None:
            hired.question = question
            self._meetings[hired.number] = question.meeting
        hired.question_to_come = hired.actor.question.options(concurrency_group=_IS_ASKED).remote(_QUESTION_S)

    def _answer(self, reference: Any) -> Any:
        """What an actor has answered; None: it has died, as `run` says too."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError:
            return None

    def _outcome(self, hired: _Hired) -> Any:
        """What `run` has returned, or the exception that it has ended with."""
        try:
            return self._ray.get(hired.run)
        except Exception as error:
            return error

    def _is_of_actor(self, outcome: Any) -> bool:
        """The function has neither returned nor raised."""
        return isinstance(outcome, Exception) and not isinstance(outcome, self._ray.exceptions.RayTaskError)

    def _ended(self, hired: _Hired, outcome: Any, dead_nodes: set[str]) -> list[Event]:
        """Events of a worker whose function has ended, or whose actor has."""
        if self._hired.pop(hired.number, None) is None:
            return []  # with its node
        self._kill(hired)
        at_s, number = time.monotonic(), hired.number
        if isinstance(outcome, self._ray.exceptions.RayTaskError):
            self._assignment.errors[number] = outcome
            return [Exited(number, _ERROR, at_s, f"raised {_in_a_line(outcome)}")]
        if isinstance(outcome, Exception):
            if not is_death(self._ray, outcome):
                how = f"has returned a result that cannot be unpickled here: {death(outcome).rstrip('.')}"
                self._assignment.errors[number] = RuntimeError(f"{EXECUTOR}: worker {number} {how}.")
                return [Exited(number, _ERROR, at_s, how)]
            if hired.node in dead_nodes:
                return [self._node_lost(hired)]
            return [Exited(number, _KILLED, at_s, f"on {hired.host} has died: {death(outcome).rstrip('.')}")]
        if isinstance(outcome, Lost):
            return [Bereft(number), Exited(number, _ERROR, at_s, f"has ended with {outcome.why}")]
        self._assignment.values[number] = outcome.value if isinstance(outcome, Returned) else None
        return [Exited(number, 0, at_s, "has ended with code 0")]

    def _not_started(self, hired: _Hired) -> Exited:
        del self._hired[hired.number]
        self._kill(hired)
        how = (
            f"on {hired.host} has not been started by Ray within {self._plan.patience_s:g} s "
            "(placement_group_timeout_s): other programs may hold what the worker needs"
        )
        return Exited(hired.number, _KILLED, time.monotonic(), how)

    def _node_lost(self, hired: _Hired) -> HostLost:
        others = [each for each in self._hired.values() if each.node == hired.node]
        for each in others:
            del self._hired[each.number]
            self._kill(each)
        ranks = (hired.number, *(each.number for each in others))
        return HostLost(ranks, f"the node {hired.host} has died.", hired.host)

    def _dead_nodes(self, gone: Sequence[_Hired]) -> set[str]:
        """The numbers of nodes that Ray takes for dead; asked when workers are gone."""
        if not gone:
            return set()
        return {each["NodeID"] for each in self._ray.nodes() if not each.get("Alive")}

    def _kill(self, hired: _Hired) -> None:
        with contextlib.suppress(Exception):  # Ray itself may be gone
            self._ray.kill(hired.actor, no_restart=True)


def _in_a_line(error: Exception) -> str:
    """The user's exception, without Ray's traceback."""
    cause = getattr(error, "cause", None) or error
    return " ".join(f"{type(cause).__name__}: {cause}".split())[:500]
