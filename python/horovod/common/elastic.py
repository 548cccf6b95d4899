"""Upstream's path of elastic training without a framework. See `horovod._core.training.elastic`."""

from __future__ import annotations

from horovod._core.errors import HorovodInternalError, HostsUpdatedInterrupt
from horovod._core.training.elastic.loop import run_fn
from horovod._core.training.elastic.notification import HostUpdateResult, notification_manager
from horovod._core.training.elastic.notification import NotificationManager as WorkerNotificationManager
from horovod._core.training.elastic.state import ObjectState, State

__all__ = [
    "HorovodInternalError",
    "HostUpdateResult",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "WorkerNotificationManager",
    "notification_manager",
    "run_fn",
]
