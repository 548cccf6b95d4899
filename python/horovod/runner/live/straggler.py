"""Which rank the others wait for, and how sure that is. Pure.

The rank that is behind waits least, because it comes last; the others wait for it. Where all wait alike, no single
rank is the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Optional

from horovod.runner.live.table import Row

_LEAST_SHARE: Final = 0.05  # of the time; less is not worth a name
_CLEAR_SHARE: Final = 0.15
_CLEAR_RATIO: Final = 3.0
_LIKELY_RATIO: Final = 1.7
_IDLE_PROCESSOR: Final = 0.3  # of a core


class Straggler(NamedTuple):
    """The rank that the others wait for.

    Attributes:
        number, rank, host: which; see `Row`.
        waiting: its share of the time.
        others: the share of the others: the middle one of them.
        clear: False: it is likely.
        by_pending: the shares are those of tensors that waited, not of the program: nobody waits in a call.
        processor: cores that its process used.
    """

    number: int
    rank: int
    host: str
    waiting: float
    others: float
    clear: bool
    by_pending: bool
    processor: float

    @property
    def is_idle(self) -> bool:
        """Its process hardly used a processor, so it waited for something outside Horovod."""
        return self.processor < _IDLE_PROCESSOR


def straggler(rows: Sequence[Row]) -> Optional[Straggler]:
    """The rank that the others wait for; None: there is none, or the figures do not support it."""
    if len(rows) < 2:
        return None
    by_pending = max(row.waiting for row in rows) < _LEAST_SHARE
    shares = sorted((row.pending if by_pending else row.waiting) for row in rows)
    least, next_least, typical = shares[0], shares[1], shares[1:][(len(shares) - 1) // 2]
    # The next rank too: with two that wait equally little, neither is the one.
    if next_least - least < _LEAST_SHARE or next_least < _LIKELY_RATIO * least:
        return None
    row = min(rows, key=lambda row: row.pending if by_pending else row.waiting)
    clear = next_least - least >= _CLEAR_SHARE and next_least >= _CLEAR_RATIO * least
    return Straggler(row.number, row.rank, row.host, least, typical, clear, by_pending, row.processor)


def sentence(found: Straggler) -> str:
    """It in words."""
    how = "is the slowest" if found.clear else "is probably the slowest"
    what = "its tensors wait" if found.by_pending else "it waits"
    where = f" on {found.host}" if found.host else ""
    text = (
        f"Rank {found.rank}{where} {how}: {what} for others {_percent(found.waiting)} of the time, the other ranks "
        f"{_percent(found.others)}."
    )
    if found.is_idle:
        text += (
            f" Its process used {_percent(found.processor)} of a core: it slept, or waited for input, a file or a "
            "device."
        )
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
