"""Upstream's path of the errors. See `horovod._core.errors`."""

from __future__ import annotations

from horovod._core.compat.legacy import get_version_mismatch_message
from horovod._core.errors import HorovodInternalError, HorovodVersionMismatchError, HostsUpdatedInterrupt, PeerLostError

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "PeerLostError",
    "get_version_mismatch_message",
]
