"""Pages of counters made up for the tests of `runner.live`."""

from __future__ import annotations

import struct
from typing import Any

from horovod.runner.live import figures
from horovod.runner.live.figures import Figures, Reading
from horovod.runner.live.table import Row, rows

SECOND = 1_000_000_000


def page(error: bytes = b"", **words: int) -> bytes:
    """A page with these words, by the names of figures.PLACES, or w7 for word 7."""
    made = [0] * figures.WORDS
    made[0] = figures.LAYOUT
    for name, value in words.items():
        made[int(name[1:]) if name[1:].isdecimal() else figures.PLACES[name]] = value
    packed = bytearray(struct.pack(f"={figures.WORDS}Q", *made))
    packed[8 * figures.ERROR_TEXT : 8 * figures.ERROR_TEXT + len(error)] = error
    return bytes(packed)


def a_rank(rank: int, waiting: float = 0.0, transferring: float = 0.0, **more: Any) -> Figures:
    """Ten seconds of a rank with these shares."""
    made: dict[str, Any] = {
        "pid": 100 + rank,
        "rank": rank,
        "size": 2,
        "wall_ns": 10 * SECOND,
        "blocked_ns": int((waiting + transferring) * 10 * SECOND),
        "transfer_ns": int(transferring * 10 * SECOND),
        "processor_ns": 9 * SECOND,
        "steps": 100,
        "tensors": 1000,
        "batches": 1000,
        "operations": ((1000, 4_000_000), *((0, 0),) * 8),
    }
    return Figures(**{**made, **more})


def rows_of(*ranks: Figures, host: str = "alpha") -> list[Row]:
    """Rows of their whole lives."""
    return rows({each.rank: Reading(each, 0.0) for each in ranks}, {}, {each.rank: host for each in ranks})
