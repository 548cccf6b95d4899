"""How long to wait before something that has failed is tried again.

Used by `restarts` and `elastic.blacklist`.
"""

from __future__ import annotations

from typing import Final

_LONGEST_PAUSE_S: Final = 30.0


def pause_before(restart: int) -> float:
    """Seconds before this restart, counted from 1: none before the first, then longer, for what was in the way to go
    away (a host that starts again, a file system)."""
    return float(min(2 ** min(restart - 1, 10) - 1, _LONGEST_PAUSE_S))
