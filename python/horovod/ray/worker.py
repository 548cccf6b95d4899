"""The actor that is a rank: the process in which the user's functions run, and `hvd.init()`.

`crew` makes one for each rank. The secret of the job comes as an argument of `place`, which Ray keeps in no record, and
stays in memory.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Optional

from horovod._core.errors import HorovodError
from horovod._core.life import context, given_placement, session
from horovod._core.life.ending import last_words
from horovod._net import interfaces
from horovod._net.clusters.addresses import MEETING_PORTS
from horovod._net.failures import NetError
from horovod._net.handshake.roll_call import listen
from horovod.ray import ray_logger
from horovod.ray.placing import Facts, Place
from horovod.runner.machines import this_host

_TRIES: Final = 20


class Worker:
    """See the head of the file. Ray shows its `repr` in errors."""

    def __init__(self) -> None:
        self._title = "worker without a rank"
        self._rank = 0
        self._executable: Any = None

    def __repr__(self) -> str:
        return self._title

    def facts(self) -> Facts:
        """What it says of itself."""
        import ray

        here = ray.get_runtime_context()
        gpus = here.get_accelerator_ids().get("GPU", [])
        address = ray.util.get_node_ip_address()
        return Facts(this_host.facts(), here.get_node_id(), address, os.getpid(), tuple(map(str, gpus)))

    def meeting(self, nics: Sequence[str]) -> tuple[str, int]:
        """Where the others can meet this worker, which is to be rank 0: an address of this node, and a free port.

        Raises:
            PlacementError: none of `nics` has an address.
            ConnectError: nobody may listen there.
        """
        import ray

        if nics:
            address = interfaces.networks_of_this_host(nics)[0].partition("/")[0]
        else:
            address = ray.util.get_node_ip_address()
        ports = random.sample(MEETING_PORTS, _TRIES)
        for port in ports:
            try:
                listen(address, port).close()
                return address, port
            except NetError:
                if port == ports[-1]:
                    raise
        raise AssertionError("unreachable")

    def place(self, place: Place) -> None:
        """Makes this process a rank, from the next `hvd.init()` on."""
        os.environ.update(place.environ)
        given_placement.hand_over(place.placement)
        self._title = place.title
        self._rank = place.placement.rank
        _show_in_lines(place.title)

    def make(self, cls: Optional[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Makes the object that `execute` hands to functions."""
        self._executable = None if cls is None else cls(*args, **kwargs)

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        queue: Optional[Any],
        is_for_object: bool,
    ) -> Any:
        """Calls a function.

        Args:
            fn, args, kwargs: the call.
            queue: for `ray_logger`; None: there are no callbacks.
            is_for_object: the worker's object is its first argument.
        """
        ray_logger.configure(queue if self._rank == 0 else ray_logger.Nowhere())
        try:
            return fn(self._executable, *args, **kwargs) if is_for_object else fn(*args, **kwargs)
        except BaseException as error:
            _leave(error)
            raise
        finally:
            ray_logger.configure(None)


def _leave(error: BaseException) -> None:
    """A function has failed here. The others fail, too, instead of waiting for this rank, whose process lives on."""
    current = session.current
    if current is None:
        return
    if why := last_words.told(error):
        with contextlib.suppress(HorovodError):
            current.engine.last_words(why)
    context.shutdown()


def _show_in_lines(title: str) -> None:
    """Ray reads from the worker's own output what to write before its lines on the driver."""
    from ray._private import ray_constants

    token = getattr(ray_constants, "LOG_PREFIX_ACTOR_NAME", "")
    for stream in (sys.stdout, sys.stderr) if token else ():
        stream.write(f"{token}{title}\n")
        stream.flush()
