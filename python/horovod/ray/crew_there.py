"""The crew of a program that is a client of a Ray cluster (`ray://`): an actor there has it. Used by `runner`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Optional

from horovod.ray import cluster
from horovod.ray.arguments import EXECUTOR
from horovod.ray.calling_back import CallingBack
from horovod.ray.crew import Call, Plan
from horovod.ray.gathering import LAP_S

_END_S: Final = 10.0  # for the actor to end its workers


class CrewThere:
    """A crew (`crew.Workers`), of fixed size or not. If this process goes, Ray ends the actor, and with it the workers.

    Args:
        kind: what the actor is.
        plan: of the job.
    """

    def __init__(self, kind: type, plan: Plan) -> None:
        import ray

        self._ray = ray
        # It is asked for the end while it waits.
        where = cluster.beside_this_process(ray)
        self._actor = ray.remote(num_cpus=0, max_restarts=0, max_concurrency=2, **where)(kind).remote(plan)

    def start(self, cls: Optional[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """See `Workers`."""
        try:
            self._got(self._actor.start.remote(cls, args, kwargs))
        except BaseException:
            self.shutdown()
            raise

    def run(self, call: Call, calling: Optional[CallingBack] = None) -> list[Any]:
        """See `Workers`."""
        reference = self._actor.run_to_queue.remote(call, None if calling is None else calling.queue)
        while calling is not None and not self._ray.wait([reference], timeout=LAP_S)[0]:
            calling.drain()
        found: list[Any] = self._got(reference)
        return found

    def begin(self, call: Call) -> list[Any]:
        """See `Workers`."""
        found: list[Any] = self._got(self._actor.begin.remote(call))
        return found

    def run_on_first(self, call: Call) -> Any:
        """See `Workers`."""
        return self._got(self._actor.run_on_first.remote(call))

    def shutdown(self) -> None:
        """See `Workers`."""
        with contextlib.suppress(Exception):  # Ray itself may be gone, or the actor
            self._ray.get(self._actor.shutdown.remote(), timeout=_END_S)
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor, no_restart=True)

    def _got(self, reference: Any) -> Any:
        """What the actor returns, or raises. What the crew itself says needs none of Ray's frames around it; of what a
        rank has raised they are the traceback."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise (cause if str(cause).startswith(EXECUTOR) else error) from None
