"""How the ranks of a job find and trust one another.

::

    placement = detect_placement()                        # who am I: from the launcher's variables
    with_engine = bootstrap(placement, epoch=0, region_bytes=..., timeout_s=30.0)    # Collective.
    ... fill hvd_config from it, hvd_init, then with_engine.disown()

`bootstrap` meets the other ranks, authenticates each of them, exchanges descriptors and returns when *all* pairs of
ranks are connected, or raises on all ranks. It leaves nothing behind: no listening socket, no file. Below it:
clusters (one plug-in per launcher, placement), meeting (the private directory, claims, signs of the dead) and handshake
(connect, the loop over all peers, and its parts). It imports neither the core nor any other package of horovod and
holds no policy about errors: it raises `NetError`s (failures.py), which `_core` and the launcher translate.
"""

from __future__ import annotations

from horovod._net.bootstrap import bootstrap
from horovod._net.clusters.launchers import detect_placement
from horovod._net.clusters.placement import Placement
from horovod._net.connections import Connections, Peer
from horovod._net.failures import (
    AuthenticationError,
    ConnectError,
    MeetingError,
    NetError,
    PlacementError,
    ProtocolError,
    ResourceError,
    StartTimeoutError,
)

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
    "ResourceError",
    "StartTimeoutError",
    "bootstrap",
    "detect_placement",
]
