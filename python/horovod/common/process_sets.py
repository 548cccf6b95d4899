"""Upstream's path of the process sets. See `horovod._core.life.process_sets`."""

from __future__ import annotations

from horovod._core.compat.legacy import is_iterable
from horovod._core.life.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod._core.life.process_sets import refresh_global as _setup
from horovod._core.life.process_sets import with_id as _temp_process_set_object

__all__ = [
    "ProcessSet",
    "_setup",
    "_temp_process_set_object",
    "add_process_set",
    "global_process_set",
    "is_iterable",
    "remove_process_set",
]
