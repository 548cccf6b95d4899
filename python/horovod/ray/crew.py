"""The workers of a job on Ray, from their reservation to their end: what `RayExecutor` does where Ray's own calls work.

That is the user's process or, where it is a client of a cluster, an actor there. `placing` decides, `worker` is what
the actors do.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Protocol

from horovod._net.secret import new_secret
from horovod.ray import cluster, placing
from horovod.ray.arguments import EXECUTOR, Changing, Wanted
from horovod.ray.calling_back import CallingBack
from horovod.ray.gathering import Failure, death, gather, is_death
from horovod.ray.placing import Facts
from horovod.ray.worker import Worker


class Plan(NamedTuple):
    """What a crew is made by.

    Attributes:
        wanted: the workers.
        patience_s: that Ray has to reserve what they need, and again to start them.
        nics: network interfaces for traffic between nodes.
        environ: variables of all workers.
        is_announced: where they are is said.
        changing: of an elastic job.
        answer_s: for its ranks to leave an epoch and to come into one.
    """

    wanted: Wanted
    patience_s: float
    nics: Sequence[str]
    environ: Mapping[str, str]
    is_announced: bool
    changing: Optional[Changing] = None
    answer_s: float = 30.0


class Call(NamedTuple):
    """What workers are to call.

    Attributes:
        fn, args, kwargs: the call.
        is_for_object: the worker's object is its first argument.
    """

    fn: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    is_for_object: bool = False


class Workers(Protocol):
    """What `RayExecutor` needs of a crew, here or on a cluster. See `Crew`."""

    def start(self, cls: Optional[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Starts them."""

    def run(self, call: Call, calling: Optional[CallingBack] = None) -> list[Any]:
        """Has all call a function."""

    def begin(self, call: Call) -> list[Any]:
        """Does not wait for it."""

    def run_on_first(self, call: Call) -> Any:
        """Has rank 0 call one."""

    def shutdown(self) -> None:
        """Ends them."""


class Crew:
    """See the head of the file.

    Args:
        plan: of the job.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ray = cluster.ray_of(f"{EXECUTOR}.start")
        self._group: Optional[Any] = None
        self._workers: list[Any] = []
        self._facts: list[Facts] = []  # by rank

    def start(self, cls: Optional[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Starts the workers, makes ranks of them, and in each an object of this class. Nothing of it is left when this
        raises.

        Raises:
            TimeoutError: there is no room for them.
            RuntimeError: a worker has died.
        """
        try:
            self._hire()
            self._place()
            self._all([worker.make.remote(cls, args, kwargs) for worker in self._workers])
        except BaseException:
            self.shutdown()
            raise

    def run(self, call: Call, calling: Optional[CallingBack] = None) -> list[Any]:
        """Has every worker call a function; what it returns, by rank. The first failure ends all workers.

        Raises:
            RuntimeError: a worker has died, or its result is unreadable.
        """
        queue, meanwhile = (None, None) if calling is None else (calling.queue, calling.drain)
        return self.run_to_queue(call, queue, meanwhile)

    def run_to_queue(
        self, call: Call, queue: Optional[Any], meanwhile: Optional[Callable[[], None]] = None
    ) -> list[Any]:
        """The same, with a queue for what rank 0 logs; `meanwhile` is called several times a second."""
        try:
            return self._all(self.begin(call, queue), meanwhile=meanwhile)
        except BaseException:
            self.shutdown()
            raise

    def begin(self, call: Call, queue: Optional[Any] = None) -> list[Any]:
        """References to what a function returns, by rank."""
        return [worker.run.remote(*call[:3], queue, call.is_for_object) for worker in self._workers]

    def run_on_first(self, call: Call) -> Any:
        """What a function returns that only rank 0 calls.

        Raises:
            RuntimeError: the worker has died, or its result is unreadable.
        """
        return self._all([self._workers[0].run.remote(*call[:3], None, call.is_for_object, True)])[0]

    def shutdown(self) -> None:
        """Ends all workers, and gives back what was reserved for them."""
        workers, self._workers = self._workers, []
        group, self._group = self._group, None
        for worker in workers:
            with contextlib.suppress(Exception):  # Ray itself may be gone
                self._ray.kill(worker, no_restart=True)
        if group is not None:
            with contextlib.suppress(Exception):
                self._ray.util.remove_placement_group(group)

    def _hire(self) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        wanted = self._plan.wanted
        group = self._ray.util.get_current_placement_group() if wanted.takes_current else None
        if group is None:
            group = self._reserved()
        needs = wanted.resources
        actor = self._ray.remote(num_cpus=needs.get("CPU", 0), num_gpus=needs.get("GPU", 0), max_restarts=0)(Worker)
        for number in range(wanted.workers):
            bundle = number // wanted.per_bundle if self._group is not None else -1
            where = PlacementGroupSchedulingStrategy(group, bundle, placement_group_capture_child_tasks=False)
            self._workers.append(actor.options(scheduling_strategy=where).remote())
        self._facts = self._all([worker.facts.remote() for worker in self._workers], self._plan.patience_s)

    def _reserved(self) -> Any:
        """A placement group of our own."""
        wanted = self._plan.wanted
        self._group = self._ray.util.placement_group([wanted.bundle()] * wanted.bundles, strategy=wanted.strategy)
        if not self._group.wait(self._plan.patience_s):
            raise self._too_few()
        return self._group

    def _place(self) -> None:
        """Makes ranks of the workers."""
        ranks = placing.order(self._facts)
        self._workers = [self._workers[each] for each in ranks]
        self._facts = [self._facts[each] for each in ranks]
        where = None
        if not placing.is_one_host(self._facts):
            where = self._all([self._workers[0].meeting.remote(self._plan.nics)], self._plan.patience_s)[0]
        job = f"{placing.LAUNCHER} {secrets.token_hex(8)}"
        places = placing.places(self._facts, job, new_secret(), where, self._plan.environ, self._plan.nics)
        placed = [worker.place.remote(place) for worker, place in zip(self._workers, places)]
        self._all(placed, self._plan.patience_s)
        if self._plan.is_announced:
            sys.stderr.write(f"{EXECUTOR}: {placing.in_words(self._facts)}\n")

    def _all(
        self,
        references: Sequence[Any],
        patience_s: Optional[float] = None,
        meanwhile: Optional[Callable[[], None]] = None,
    ) -> list[Any]:
        """All results, by rank."""
        gathered = gather(self._ray, references, patience_s, meanwhile)
        if gathered.failure is not None:
            raise self._in_words(gathered.failure)
        if len(gathered.values) < len(references):
            raise self._too_few()
        return [gathered.values[number] for number in range(len(references))]

    def _too_few(self) -> TimeoutError:
        ray = self._ray
        free = ray.available_resources()
        return TimeoutError(
            f"{EXECUTOR}: {cluster.too_few(self._plan.wanted, self._plan.patience_s, ray.nodes(), free)}"
        )

    def _in_words(self, failure: Failure) -> Exception:
        """The exception of a function is the user's own, as Ray raises it: with rank, node and traceback. Of an actor
        that has died, Ray knows no rank."""
        is_users = isinstance(failure.error, self._ray.exceptions.RayTaskError)
        if is_users:
            return failure.error
        who = f"worker {failure.rank}"
        if failure.rank < len(self._facts):
            facts = self._facts[failure.rank]
            who = f"rank {failure.rank} (pid {facts.pid}, {facts.words()})"
        has_died = is_death(self._ray, failure.error)
        what = "has died" if has_died else "has returned a result that cannot be unpickled here"
        error = RuntimeError(f"{EXECUTOR}: {who} {what}: {death(failure.error)}")
        error.__cause__ = failure.error
        return error
