"""Which rank reads which rows in which order: every row once in a pass over the data, equal steps on all ranks. Pure.

The row groups of all files are put in an order that all ranks draw alike from seed and pass; rank r of n reads the
r-th of n equal shares of the rows in that order, cut inside row groups where it must be. Shares differ by one row at
most, and each is cut into the same number of batches, whose sizes differ by one at most.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError


class RowGroup(NamedTuple):
    """A row group of a Parquet file.

    Attributes:
        file: its path.
        number: in the file.
        rows: how many it has.
        size: in memory, in bytes.
    """

    file: str
    number: int
    rows: int
    size: int


class Piece(NamedTuple):
    """Rows `start` to `stop` of a row group."""

    group: RowGroup
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many."""
        return self.stop - self.start

    @property
    def size(self) -> int:
        """In memory, in bytes."""
        return self.group.size * self.rows // self.group.rows


def in_order_of(groups: Sequence[RowGroup], seed: int, number: int, shuffle: bool) -> list[RowGroup]:
    """The row groups in the order of pass `number`."""
    ordered = [group for group in groups if group.rows]
    if shuffle:
        random.Random(f"{seed} {number}").shuffle(ordered)
    return ordered


def share_of(groups: Iterable[RowGroup], rank: int, size: int) -> list[Piece]:
    """What a rank reads of them, in their order."""
    groups = list(groups)
    total = sum(group.rows for group in groups)
    first, last = (total * number // size for number in (rank, rank + 1))
    ends = accumulate(group.rows for group in groups)
    pieces = []
    for group, end in zip(groups, ends):
        begin = end - group.rows
        start, stop = max(first, begin) - begin, min(last, end) - begin
        if start < stop:
            pieces.append(Piece(group, start, stop))
    return pieces


def rows_of(total: int, rank: int, size: int) -> int:
    """How many rows a rank reads."""
    return total * (rank + 1) // size - total * rank // size


def steps_of(total: int, size: int, batch: int, what: str) -> int:
    """How many batches each rank makes of its share: as few as `batch` rows a batch allow.

    With one row a batch and shares that differ, some batches have two.

    Args:
        what: the rows are, for messages.

    Raises:
        InvalidArgumentError: there are fewer rows than ranks.
    """
    least, most = total // size, -(-total // size)
    if least == 0:
        raise InvalidArgumentError(
            f"The {what} have {total} rows, and each of the {size} processes needs one at least. Give more rows, or "
            "lower num_proc."
        )
    return min(-(-most // batch), least)


def batch_sizes(rows: int, steps: int) -> list[int]:
    """`rows` cut into `steps` batches."""
    return [rows * (step + 1) // steps - rows * step // steps for step in range(steps)]


def windows(pieces: Iterable[Piece], most_rows: Optional[int], most_bytes: int) -> Iterator[list[Piece]]:
    """The pieces in runs that are shuffled as one. A run ends where the next piece would exceed the bound; a piece that
    exceeds it alone is a run.

    Args:
        most_rows: the bound, in rows; None: `most_bytes` is the bound.
        most_bytes: the same, in memory.
    """
    window: list[Piece] = []
    held, most = 0, most_bytes if most_rows is None else most_rows
    for piece in pieces:
        more = piece.size if most_rows is None else piece.rows
        if window and held + more > most:
            yield window
            window, held = [], 0
        window.append(piece)
        held += more
    if window:
        yield window


class Turn(NamedTuple):
    """Some batches of one pass: those from `first` up to, and not with, `last`."""

    number: int
    first: int
    last: int


def turns(epoch: int, steps: int, of_pass: int) -> Iterator[Turn]:
    """The passes that an epoch goes through: epochs of `steps` batches follow one another through passes of `of_pass`
    batches, so that with `steps == of_pass` an epoch is a pass."""
    begin, end = epoch * steps, (epoch + 1) * steps
    while begin < end:
        number, first = divmod(begin, of_pass)
        last = min(of_pass, first + end - begin)
        yield Turn(number, first, last)
        begin += last - first
