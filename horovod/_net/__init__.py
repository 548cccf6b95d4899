"""How the ranks of a job find and trust one another.

::

    placement = detect_placement()                        # who am I: from the launcher's variables
    with_engine = bootstrap(placement, epoch=0, region_bytes=..., timeout_s=30.0)    # Collective.
    ... fill hvd_config from it, hvd_init, then with_engine.disown()

`bootstrap` meets the other ranks, authenticates each of them, exchanges descriptors and returns when *all* pairs of
ranks are connected, or raises on all ranks. It leaves nothing behind: no listening socket, no file. Sub-modules:
launchers (one plug-in per launcher), placement, identity (of host and process), messages (typed frames), auth (mutual
challenge-response), meeting (the private directory), memory (sealed memfd), links (framed sockets), connect (the loop
over all peers), bootstrap. It imports neither the core nor any other package of horovod and holds no policy about
errors: it raises `NetError`s (failures.py), which `_core` and the launcher translate.
"""

from __future__ import annotations

from horovod._net.bootstrap import bootstrap
from horovod._net.connections import Connections, Peer
from horovod._net.failures import (
    AuthenticationError,
    ConnectError,
    MeetingError,
    NetError,
    PlacementError,
    ProtocolError,
    StartTimeoutError,
)
from horovod._net.launchers import detect_placement
from horovod._net.placement import Placement

__all__ = [
    "AuthenticationError",
    "ConnectError",
    "Connections",
    "MeetingError",
    "NetError",
    "Peer",
    "Placement",
    "PlacementError",
    "ProtocolError",
    "StartTimeoutError",
    "bootstrap",
    "detect_placement",
]
