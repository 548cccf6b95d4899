"""Which ranks stand still, and for how long. Pure: the caller gives what ranks have used and written, and the time.

Used by `hang_watch`. A rank that waits for others still uses a little processor time: it looks for signals, gives signs
of life to other hosts, and writes its stacks when a stall is reported. Measured: 0.02 to 0.06 % of a processor on one
host, 0.6 % with 30 hosts. A rank counts as working if it has used more than the limit, since the last measurement or
since it was last seen to work; so does one whose engine moves large tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final, NamedTuple, Optional

from horovod.runner.processes.vitals import Vitals

_SHARE: Final = 0.01  # of a processor
_LEAST_S: Final = 0.05  # the kernel counts in hundredths of a second
_IO_BYTES: Final = 1 << 20  # a minute, dumps of stacks included
_IO_S: Final = 60.0
# A measurement that comes later than so many intervals and a second starts over: the launcher may have been stopped.
_LATE: Final = 3
_LATE_S: Final = 1.0


class _Seen(NamedTuple):
    """The last measurement of a rank, and the one since which it stands still."""

    vitals: Vitals
    at_s: float
    since: Vitals
    since_s: float


class Standstill:
    """See the head of the file.

    Args:
        limit_s: how long all ranks may stand still.
        every_s: between two measurements.
    """

    def __init__(self, limit_s: float, every_s: float) -> None:
        self._limit_s = limit_s
        self._late_s = _LATE * every_s + _LATE_S
        self._seen: dict[int, _Seen] = {}

    def see(self, vitals: Mapping[int, Optional[Vitals]], now_s: float) -> None:
        """Takes what ranks have used by now; None: that is not known, so the rank may be working."""
        for rank, now in vitals.items():
            before = self._seen.get(rank)
            if now is None:
                self._seen.pop(rank, None)
            elif before is None or now_s - before.at_s > self._late_s or _works(before, now, now_s):
                self._seen[rank] = _Seen(now, now_s, now, now_s)
            else:
                self._seen[rank] = before._replace(vitals=now, at_s=now_s)

    def lives(self, rank: int, now_s: float) -> None:
        """The rank has given a sign of life."""
        seen = self._seen.get(rank)
        if seen is not None:
            self._seen[rank] = seen._replace(since=seen.vitals, since_s=now_s)

    def lasts_too_long(self, left: Set[int], now_s: float) -> bool:
        """True if all ranks that have not ended have stood still for too long."""
        seen = [self._seen.get(rank) for rank in left]
        return bool(seen) and all(
            each is not None and now_s - each.since_s >= self._limit_s and now_s - each.at_s <= self._late_s
            for each in seen
        )


def _works(before: _Seen, now: Vitals, now_s: float) -> bool:
    return _used(before.vitals, now, now_s - before.at_s) or _used(before.since, now, now_s - before.since_s)


def _used(before: Vitals, now: Vitals, elapsed_s: float) -> bool:
    """True if that is more than a waiting rank uses."""
    used_s = now.processor_s - before.processor_s
    moved_bytes = now.io_bytes - before.io_bytes
    allowed_s = max(_LEAST_S, _SHARE * elapsed_s)
    allowed_bytes = max(_IO_BYTES, int(_IO_BYTES * elapsed_s / _IO_S))
    # Less than before: a process has ended whose parent did not wait for it, so its share is gone.
    return not (-allowed_s <= used_s <= allowed_s and 0 <= moved_bytes <= allowed_bytes)
