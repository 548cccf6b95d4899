"""What one rank has counted, as it is read from its page of counters. Pure.

Used by `processes` and the agent, which read pages, by the messages between agent and launcher, and by everything
beside this file. counters.h describes the page; a test compares the numbers here with it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Optional

LAYOUT: Final = 1
WORDS: Final = 96
BYTES: Final = 8 * WORDS
KINDS: Final = (
    "allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier", "join", "send", "recv"
)  # fmt: skip
MOST_ERROR: Final = 256  # bytes of UTF-8
_MOST: Final = (1 << 63) - 1
# Words of the page by the name of the field.
PLACES: Final = {
    "pid": 1, "rank": 2, "size": 3, "epoch": 4, "resets": 5, "commits": 6,
    "batches": 16, "tensors": 17, "in_flight": 19, "steps": 20, "blocked_ns": 21, "transfer_ns": 22, "batch_ns": 23,
    "pending_ns": 24, "stalls": 30, "errors": 31, "processor_ns": 51,
}  # fmt: skip
BEGAN_NS: Final = 7
PAUSED_NS: Final = 8
PAUSED_SINCE_NS: Final = 9
BLOCKED_THREADS: Final = 25
BLOCKED_SINCE_NS: Final = 26
BATCH_NS_THEN: Final = 27
BATCH_SINCE_NS: Final = 28
OPERATIONS: Final = 32
ERROR_TURN: Final = 50
ERROR_TEXT: Final = 64


class Figures(NamedTuple):
    """See the head of the file. Times are in nanoseconds, and include what was under way when the page was read.

    Attributes:
        pid: of the process that has called `init`.
        rank, size: in the present epoch.
        epoch, resets, commits: of an elastic job.
        batches, tensors: that have ended.
        in_flight: tensors that were submitted and are not done.
        steps: that have ended.
        blocked_ns: at least one thread of the program waited in the library.
        transfer_ns: of these, while a batch ran.
        batch_ns: batches ran.
        pending_ns: tensors waited for other ranks, and no batch ran.
        stalls, errors: how many.
        processor_ns: that the process has used.
        wall_ns: since the first `init`, without the time between `shutdown` and the next `init`.
        operations: of each of `KINDS`, tensors and bytes.
        last_error: its text.
    """

    pid: int = 0
    rank: int = 0
    size: int = 0
    epoch: int = 0
    resets: int = 0
    commits: int = 0
    batches: int = 0
    tensors: int = 0
    in_flight: int = 0
    steps: int = 0
    blocked_ns: int = 0
    transfer_ns: int = 0
    batch_ns: int = 0
    pending_ns: int = 0
    stalls: int = 0
    errors: int = 0
    processor_ns: int = 0
    wall_ns: int = 0
    operations: tuple[tuple[int, int], ...] = ((0, 0),) * len(KINDS)
    last_error: str = ""

    @property
    def waiting_ns(self) -> int:
        """Of the blocked time, what other ranks were waited for."""
        return max(0, self.blocked_ns - self.transfer_ns)

    @property
    def bytes(self) -> int:
        """Of all kinds of operations."""
        return sum(nbytes for _, nbytes in self.operations)


_NUMBERS: Final = Figures._fields[:-2]


class Reading(NamedTuple):
    """Figures, and where and when they were read.

    Attributes:
        figures: of one process.
        at_s: when, on the launcher's monotonic clock.
        host: name of its host; empty: the job knows it.
    """

    figures: Figures
    at_s: float
    host: str = ""


def decoded(page: bytes, now_ns: int) -> Optional[Figures]:
    """The figures of a page.

    Args:
        page: its beginning, as it was read.
        now_ns: on the monotonic clock of its host.

    Returns:
        None: its rank has not connected yet, or it is none of this layout.
    """
    if len(page) < BYTES:
        return None
    words = struct.unpack_from(f"={WORDS}Q", page)
    if words[0] != LAYOUT:
        return None
    read = {name: words[at] for name, at in PLACES.items()}
    batch_ns = read["batch_ns"] + _since(words[BATCH_SINCE_NS], now_ns)
    if words[BLOCKED_THREADS]:  # a wait is under way
        waited_ns = _since(words[BLOCKED_SINCE_NS], now_ns)
        read["blocked_ns"] += waited_ns
        read["transfer_ns"] += min(waited_ns, max(0, batch_ns - words[BATCH_NS_THEN]))
    read["batch_ns"] = batch_ns
    paused_ns = words[PAUSED_NS] + _since(words[PAUSED_SINCE_NS], now_ns)
    read["wall_ns"] = max(0, _since(words[BEGAN_NS], now_ns) - paused_ns)
    # After the additions: a rank may have written anything there, and the launcher refuses larger numbers.
    read = {name: min(value, _MOST) for name, value in read.items()}
    volumes = [min(word, _MOST) for word in words[OPERATIONS : OPERATIONS + 2 * len(KINDS)]]
    operations = tuple(zip(volumes[::2], volumes[1::2]))
    return Figures(**read, operations=operations, last_error=_text(page[8 * ERROR_TEXT : BYTES]))


def text_changes(page: bytes) -> bool:
    """The text of the last error was being written when the page was read."""
    return len(page) >= BYTES and bool(int.from_bytes(page[8 * ERROR_TURN : 8 * ERROR_TURN + 8], sys.byteorder) % 2)


def to_wire(figures: Figures) -> list[Any]:
    """For a message: the numbers in the order of the fields, the operations, and the text."""
    numbers = [getattr(figures, name) for name in _NUMBERS]
    return [numbers, [number for pair in figures.operations for number in pair], figures.last_error]


def is_on_wire(value: Any) -> bool:
    """It is what `to_wire` makes."""
    return (
        isinstance(value, list)
        and len(value) == 3
        and _are_numbers(value[0], len(_NUMBERS))
        and _are_numbers(value[1], 2 * len(KINDS))
        and isinstance(value[2], str)
        and len(value[2]) <= MOST_ERROR
    )


def from_wire(value: Sequence[Any]) -> Figures:
    """The figures of a message that `is_on_wire`."""
    numbers, volumes, text = value
    operations = tuple(zip(volumes[::2], volumes[1::2]))
    return Figures(**dict(zip(_NUMBERS, numbers)), operations=operations, last_error=_printable(text))


def _are_numbers(value: Any, count: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == count
        and all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= _MOST for each in value)
    )


def _since(then_ns: int, now_ns: int) -> int:
    return max(0, now_ns - then_ns) if then_ns else 0


def _text(raw: bytes) -> str:
    return _printable(raw.partition(b"\0")[0].decode("utf-8", "replace"))


def _printable(text: str) -> str:
    """In one line, nothing that a terminal would obey, and not longer than `MOST_ERROR`."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return shown.encode()[:MOST_ERROR].decode("utf-8", "ignore")
