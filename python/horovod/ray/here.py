"""What the process of an actor does that is a rank, or is to be one. Used by `worker` and `train`.

The secret of the job comes as an argument of a call, which Ray keeps in no record, and stays in memory.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from horovod._core.errors import HorovodError
from horovod._core.life import context, given_placement, session
from horovod._core.life.ending import last_words
from horovod._net import interfaces
from horovod._net.clusters.addresses import MEETING_PORTS
from horovod._net.failures import NetError
from horovod._net.handshake.roll_call import listen
from horovod.ray.placing import VISIBLE, Facts, Place
from horovod.runner.machines import this_host

_TRIES: Final = 20


def facts() -> Facts:
    """What this worker says of itself."""
    import ray

    here = ray.get_runtime_context()
    gpus = here.get_accelerator_ids().get("GPU", [])
    address = ray.util.get_node_ip_address()
    return Facts(this_host.facts(), here.get_node_id(), address, os.getpid(), tuple(map(str, gpus)))


def meeting(nics: Sequence[str]) -> tuple[str, int]:
    """Where the others can meet this worker, which is to be rank 0: an address of this node, and a free port.

    Raises:
        PlacementError: none of `nics` has an address.
        ConnectError: nobody may listen there.
    """
    import ray

    named = interfaces.networks_of_this_host(nics)[0].partition("/")[0] if nics else ""
    address = named or ray.util.get_node_ip_address()
    *others, last = random.sample(MEETING_PORTS, _TRIES)
    for port in others:
        with contextlib.suppress(NetError):
            listen(address, port).close()
            return address, port
    listen(address, last).close()
    return address, last


def take(place: Place, is_first: bool = True) -> None:
    """Makes this process a rank, from the next `hvd.init()` on.

    Args:
        place: of it.
        is_first: it has had none before, so it has chosen no GPU yet of those that it can see.
    """
    set_variables({name: value for name, value in place.environ.items() if is_first or name != VISIBLE})
    given_placement.hand_over(place.placement)
    _show_in_lines(place.title)


def set_variables(environ: Mapping[str, str]) -> None:
    """Sets variables of this process."""
    os.environ.update(environ)


def end() -> None:
    """Says goodbye to the other ranks."""
    context.shutdown()


def leave(error: BaseException) -> None:
    """A function has failed here. The others fail, too, instead of waiting for this rank, whose process lives on."""
    current = session.current
    if current is None:
        return
    if why := last_words.one_line(error):
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
