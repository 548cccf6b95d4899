"""Upstream's path of elastic training without a framework. See `horovod._core.elastic`."""

from __future__ import annotations

from horovod._core.elastic.loop import run_fn
from horovod._core.elastic.notification import notification_manager
from horovod._core.elastic.state import ObjectState, State

__all__ = ["ObjectState", "State", "notification_manager", "run_fn"]
