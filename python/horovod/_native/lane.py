"""The lane: an extension module that repeats an operation without a Python frame or a ctypes call in between.

It is built against CPython's stable interface, version 3.11, and reads tensors through DLPack's exchange table or the
buffer protocol. Other interpreters, Python 3.10 and free-threaded ones included, take the plain way through ctypes:
then `Lane` is None, and `missing` says why. HOROVOD_LANE=0 does without it, for comparisons and tests.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["FlightTable", "Lane", "LaneEntry", "LaneFlight", "missing"]

VARIABLE = "HOROVOD_LANE"


def _why_not() -> str:
    """Why the module is not even looked for; empty if it is."""
    if os.environ.get(VARIABLE) == "0":
        return f"{VARIABLE}=0"
    if sys.version_info < (3, 11):
        return "it needs Python 3.11 or later"
    return ""


Lane: Any = None
FlightTable: Any = None
missing = _why_not()

if not missing:
    try:
        from horovod._native import _lane  # type: ignore[attr-defined,unused-ignore]
    except ImportError as error:
        missing = str(error)

if TYPE_CHECKING or missing:

    class LaneEntry:
        """What a call that the lane repeats derives from.

        Attributes:
            stamp: the state of the session under which the call is valid.
            session, what, placed, placed_elements, placed_bytes: see `horovod._core.operations.lane_calls.LaneCall`.
            busy: True while a lane uses it.
        """

        stamp: object
        session: Any
        what: str
        busy: bool

        def arm(self, ops: int, n: int, handle: int, door: tuple[int, int, int, int]) -> None:
            """Tells the lane the addresses of n hvd_op, of the handle, and of the engine's functions (`HotPath.door`);
            with a 0 among them it leaves the call alone."""

    class LaneFlight:
        """What a submitted operation derives from where there is no lane.

        Attributes:
            session, handle, what, keep, result, finisher: see `horovod._core.life.handles.Pending`.
        """

        __slots__ = ("finisher", "handle", "keep", "result", "session", "what")
        handle: int

        def __del__(self) -> None:
            if getattr(self, "handle", 0):  # a signal handler may raise before it is set
                self.dropped()

        def dropped(self) -> None:
            """Called when one that has not ended is dropped."""

else:
    Lane, LaneEntry, LaneFlight, FlightTable = _lane.Lane, _lane.LaneEntry, _lane.LaneFlight, _lane.FlightTable
