"""Elastic jobs of `RayExecutor`: each call is one, from its first actor to its last. Used by `runner`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Optional

from horovod._core.errors import UnsupportedError
from horovod.ray import cluster, placing
from horovod.ray.arguments import EXECUTOR, Changing
from horovod.ray.calling_back import CallingBack
from horovod.ray.changing.crew import Assignment, ElasticCrew
from horovod.ray.changing.source import NodeSource
from horovod.ray.changing.worker import Made
from horovod.ray.crew import Call, Plan
from horovod.ray.gathering import LAP_S
from horovod.runner.elastic import machine
from horovod.runner.elastic.blacklist import Blacklist
from horovod.runner.elastic.driver import Around, Driver
from horovod.runner.elastic.journal import Journal
from horovod.runner.elastic.state import Limits
from horovod.runner.processes.crew import Event, Exited, Finished, GivenUp, Renumbered, Said

_END_S: Final = 8.0  # for a call to end its workers
# What horovodrun calls them, and what they are called here.
_NAMES: Final = {
    "--elastic-timeout": "elastic_timeout",
    "--start-timeout": "timeout_s",
    "--reset-limit": "reset_limit",
    "--min-np": "min_workers",
    "of -np": "of min_workers",
    " Start the job again, as --max-restarts does by itself: it begins from the newest durable commit "
    "(--elastic-commit-dir) or from your own checkpoint.": " Call start() and run again, from your own checkpoint.",
}


def in_names_of_ray(text: str) -> str:
    """A message of the driver, with the names of arguments instead of flags."""
    for flag, name in _NAMES.items():
        text = text.replace(flag, name)
    return text


class ElasticWorkers:
    """What `RayExecutor` needs of an elastic job (`crew.Workers`).

    Args:
        plan: of the jobs, with `changing`.
    """

    def __init__(self, plan: Plan) -> None:
        assert plan.changing is not None
        self._plan = plan
        self._changing: Changing = plan.changing
        self._ray = cluster.ray_of(f"{EXECUTOR}.start")
        self._made = Made()
        self._is_over = False
        self._no_call = threading.Event()
        self._no_call.set()

    def start(self, cls: Optional[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Notes of which class each worker is to make an object; the workers begin with each call.

        Raises:
            UnsupportedError: this process is in a placement group.
        """
        if self._plan.wanted.takes_current and self._ray.util.get_current_placement_group() is not None:
            raise UnsupportedError(
                f"{EXECUTOR}.start: min_workers asks for an elastic job, and this process is in a placement group, as "
                "a trial of Tune is: its room is fixed, and an elastic job takes what is free outside of it. Remedy: "
                "give num_workers, or use_current_placement_group=False."
            )
        self._made = Made(cls, tuple(args), dict(kwargs))

    def run(self, call: Call, calling: Optional[CallingBack] = None) -> list[Any]:
        """Has ranks that come and go call a function; what it returns, by rank of the last epoch.

        Raises:
            RuntimeError: the job cannot go on. What the function raises comes as Ray raises it.
        """
        queue, meanwhile = (None, None) if calling is None else (calling.queue, calling.drain)
        return self.run_to_queue(call, queue, meanwhile)

    def run_to_queue(
        self, call: Call, queue: Optional[Any], meanwhile: Optional[Callable[[], None]] = None
    ) -> list[Any]:
        """The same, with a queue for what rank 0 logs; `meanwhile` is called several times a second."""
        changing = self._changing
        start_s = self._plan.patience_s + self._plan.answer_s  # Ray starts the actor, and that comes to hvd.init()
        limits = Limits(changing.least, changing.least, changing.most, changing.resets, changing.patience_s, start_s)
        state, _ = machine.begin(limits, (), Blacklist(cooldown=changing.cooldown), time.monotonic())
        assignment = Assignment(self._made, call, queue)
        source = NodeSource(self._ray, self._plan.wanted.resources, changing, lambda: crew.mine())
        crew = ElasticCrew(self._ray, self._plan, assignment, source.numbers.__getitem__)
        driver = Driver(state, crew, Around(tuple, source, Journal(None)))
        self._no_call.clear()
        try:
            while not self._is_over:
                for event in driver.events():
                    if isinstance(event, Finished):
                        return [assignment.values[worker] for worker in driver.results()]
                    self._follow(event, driver, crew, assignment)
                if meanwhile is not None:
                    meanwhile()
                self._wait(driver, crew)
            raise RuntimeError(f"{EXECUTOR}: shutdown() has ended the ranks.")
        finally:
            driver.close()
            self._no_call.set()

    def begin(self, call: Call) -> list[Any]:
        """Raises UnsupportedError."""
        raise self._unsupported("run_remote")

    def run_on_first(self, call: Call) -> Any:
        """Raises UnsupportedError."""
        raise self._unsupported("execute_single")

    def shutdown(self) -> None:
        """Ends a call that is under way, of another thread; without one, no worker is there."""
        self._is_over = True
        self._no_call.wait(_END_S)

    def _wait(self, driver: Driver, crew: ElasticCrew) -> None:
        """Until a worker has something to say, or time alone changes something."""
        due_s = driver.next_s()
        left_s = LAP_S if due_s is None else min(LAP_S, max(0.0, due_s - time.monotonic()))
        awaited = crew.awaited()
        if not awaited:
            time.sleep(left_s)
        elif self._ray.wait(awaited, num_returns=1, timeout=left_s)[0]:
            crew.look()

    def _follow(self, event: Event, driver: Driver, crew: ElasticCrew, assignment: Assignment) -> None:
        """Raises what ends the job."""
        if isinstance(event, Said):
            self._say(event.text)
        elif isinstance(event, Renumbered) and driver.state.epoch == 0 and self._plan.is_announced:
            self._say(placing.in_words(crew.facts()))
        elif isinstance(event, GivenUp):
            raise RuntimeError(f"{EXECUTOR}: {in_names_of_ray(event.why)}")
        elif isinstance(event, Exited) and event.status and driver.state.over:
            error = assignment.errors.get(event.rank)
            raise error if error is not None else RuntimeError(f"{EXECUTOR}: worker {event.rank} {event.how}.")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{EXECUTOR}: {in_names_of_ray(text)}\n")

    def _unsupported(self, method: str) -> UnsupportedError:
        return UnsupportedError(
            f"{EXECUTOR}.{method}: the ranks of an elastic job (min_workers) come and go, and so there are none to "
            "call between two calls of run. Call run or execute, or give num_workers for a job of fixed size."
        )
