"""The connections that this rank's engine asks for while the job runs: a thread, in jobs that begin with few of them.

`engine_start` begins it with the engine, and it ends with that; `context` clears up. Small jobs, and those on one host,
have no such thread.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, Optional

from horovod._core.errors import HorovodError
from horovod._net.connections import Connections

if TYPE_CHECKING:
    from horovod._net.handshake.on_demand import OnDemand

_ENDING_S: Final = 1.0

_running: Optional[OnDemand] = None


def begin(connections: Connections, engine: Any) -> int:
    """Prepares for what this engine is going to ask for.

    Returns:
        The descriptor for hvd_config's wish_fd; -1 when there is nothing to ask for.
    """
    global _running
    end()
    if connections.reach is None:
        return -1

    from horovod._net.handshake.on_demand import OnDemand  # small jobs start without it

    def deliver(rank: int, fd: int, why_not: str) -> None:
        with contextlib.suppress(HorovodError):  # the engine has ended, or has that connection
            engine.connected(rank, fd, why_not)

    _running = OnDemand(connections, deliver)
    return _running.take_wish_fd()


def serve() -> None:
    """The engine runs."""
    if _running is not None:
        _running.start()


def end() -> None:
    """The engine has ended."""
    global _running
    service, _running = _running, None
    if service is not None:
        service.stop(_ENDING_S)


def forget() -> None:
    """In a forked child, which has no such thread."""
    global _running
    service, _running = _running, None
    if service is not None:
        service.forget()
