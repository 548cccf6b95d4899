"""The lane: an extension module that repeats a prepared operation without a Python frame or a ctypes call in between.

It is built against CPython's stable interface, version 3.11, and reads tensors through DLPack's exchange table or the
buffer protocol. Other interpreters, older and free-threaded ones included, go through ctypes: then `Lane` is None, and
`missing` says why. HOROVOD_LANE=0 does without it, for comparisons and tests.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["Lane", "LaneEntry", "missing"]

VARIABLE = "HOROVOD_LANE"


def _why_not() -> str:
    """Why the module is not even looked for; empty if it is."""
    if os.environ.get(VARIABLE) == "0":
        return f"{VARIABLE}=0"
    if sys.version_info < (3, 11):
        return "it needs Python 3.11 or later"
    return ""


Lane: Any = None
missing = _why_not()

if not missing:
    try:
        from horovod._native import _lane  # type: ignore[attr-defined,unused-ignore]
    except ImportError as error:
        missing = str(error)

if TYPE_CHECKING or missing:

    class LaneEntry:
        """What a prepared call derives from where no lane reads it.

        Attributes:
            stamp: the state of the session under which the call is valid.
            busy: True while a lane runs it.
        """

        __slots__ = ("stamp",)
        stamp: object
        busy = False

        def arm(self, op: int, handle: int, run: int) -> None:
            """Tells the lane the addresses of the hvd_op, of the handle and of hvd_run; 0: it must not run it."""

else:
    Lane, LaneEntry = _lane.Lane, _lane.LaneEntry
