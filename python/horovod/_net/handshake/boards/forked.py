"""What a forked child closes: its copies of connections would hide that this process has ended.

One hook for all, however many jobs a process takes part in. Used by what keeps a board, or comes to one.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

closed: weakref.WeakSet[Any] = weakref.WeakSet()  # those that live have their `close` called in a child


def _close() -> None:
    for each in list(closed):
        each.close()


os.register_at_fork(after_in_child=_close)
