"""Reads the rows of one rank from a data set, in batches: the same number on all ranks, read ahead, in bounded memory.

`row_plan` says which rows; here they are read, decoded, transformed and shuffled. Batches are arrays by column.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Optional

import numpy as np

from horovod._core.errors import InvalidArgumentError
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader
from horovod.spark.common import row_plan
from horovod.spark.common.columns import Columns, arrow, as_frame, decoded, gathered, joined, of_frame
from horovod.spark.common.datasets import Dataset
from horovod.spark.common.row_plan import Piece, Turn

WINDOW_BYTES: Final = 64 << 20
_AHEAD_BATCHES: Final = 8
_AHEAD_PIECES: Final = 2  # for each worker
_DRAWN_BYTES: Final = 1 << 20
_POOLS: Final = ("thread", "process", "dummy")


@dataclass(frozen=True)
class Reading:
    """How a data set is read.

    Attributes:
        store: see there.
        columns: that are wanted.
        batch_size: rows of a batch.
        steps: batches of an epoch; None: all rows.
        shuffle: in another order in every epoch.
        seed: of that order, equal on all ranks.
        window_rows: how many rows are shuffled as one; None: as many as are `WINDOW_BYTES`.
        transformation_fn: from a frame of pandas to one with as many rows; None: nothing.
        is_cached: all rows of the rank stay in memory.
        workers: how many read at once.
        pool: "thread", "process" or "dummy": where they do; the last is the caller.
        start_method: of processes; None: "spawn".
        removed: further columns that only transformation_fn gets.
    """

    store: Any
    columns: Sequence[str]
    batch_size: int
    steps: Optional[int] = None
    shuffle: bool = True
    seed: int = 0
    window_rows: Optional[int] = None
    transformation_fn: Optional[Callable[[Any], Any]] = None
    is_cached: bool = False
    workers: int = 2
    pool: str = "thread"
    start_method: Optional[str] = None
    removed: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.pool not in _POOLS:
            raise InvalidArgumentError(f"reader_pool_type must be one of {', '.join(_POOLS)}. Received: {self.pool!r}.")


class Batches(BaseDataLoader):
    """The batches of a rank. Iterating goes through one epoch, the next time through the next one.

    Args:
        data: to read from.
        reading: how.
        rank, size: of the rank.
        what: the rows are, for messages.

    Raises:
        InvalidArgumentError: there are fewer rows than ranks.
    """

    def __init__(self, data: Dataset, reading: Reading, rank: int, size: int, what: str = "rows to train with") -> None:
        super().__init__()
        self._data = data
        self._reading = reading
        self._rank, self._size = rank, size
        self._of_pass = row_plan.steps_of(data.rows, size, reading.batch_size, what)
        self._steps = self._of_pass if reading.steps is None else reading.steps
        self._cache: Optional[Columns] = None
        self._room: dict[str, np.ndarray[Any, Any]] = {}  # memory that is used again
        self._pool = _pool(reading)
        self.epoch = 0

    def __len__(self) -> int:
        return self._steps

    def close(self) -> None:
        """Ends what reads ahead."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _iterate(self) -> Iterator[Columns]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        for turn in row_plan.turns(epoch, self._steps, self._of_pass):
            yield from self._of_turn(turn)

    def _of_turn(self, turn: Turn) -> Iterator[Columns]:
        rows = row_plan.rows_of(self._data.rows, self._rank, self._size)
        sizes = row_plan.batch_sizes(rows, self._of_pass)
        before = sum(sizes[: turn.first])
        cut = _Cut(self._cached(turn, before) if self._reading.is_cached else self._streamed(turn, before))
        for size in sizes[turn.first : turn.last]:
            yield cut.take(size)

    def _pieces(self, number: int, shuffle: bool) -> list[Piece]:
        groups = row_plan.in_order_of(self._data.groups, self._reading.seed, number, shuffle)
        return row_plan.share_of(groups, self._rank, self._size)

    def _cached(self, turn: Turn, before: int) -> Iterator[_Window]:
        """The rows of a pass, without the first `before`."""
        if self._cache is None:
            pieces = self._pieces(0, False)
            self._cache = gathered(self._read(pieces), len(pieces), _rows_in(pieces))
            for column in self._cache.values():  # batches are views of it, and it is read again in the next epoch
                if isinstance(column, np.ndarray):
                    column.flags.writeable = False
        yield self._window(self._cache, turn.number, 0, before)

    def _streamed(self, turn: Turn, before: int) -> Iterator[_Window]:
        """The same; windows that are before them are not read."""
        pieces = self._pieces(turn.number, self._reading.shuffle)
        windows = [[piece] for piece in pieces]  # rows that stay in their order need not be in memory together
        if self._reading.shuffle:
            windows = list(row_plan.windows(pieces, self._reading.window_rows, WINDOW_BYTES))
        first = 0
        while before >= (rows := _rows_in(windows[first])):
            before, first = before - rows, first + 1
        parts = self._read(piece for window in windows[first:] for piece in window)
        # Windows of several pieces are gathered in memory that is used again, because new memory costs more than the
        # copy; their batches are copies. Another iteration that is under way needs its own.
        room, self._room = self._room, {}
        try:
            for number, window in enumerate(windows[first:], first):
                yield self._window(gathered(parts, len(window), _rows_in(window), room), turn.number, number, before)
                before = 0
        finally:
            self._room = room

    def _window(self, columns: Columns, number: int, window: int, before: int) -> _Window:
        rng = None
        if self._reading.shuffle:
            rng = np.random.default_rng([self._reading.seed & 0xFFFFFFFF, number, window, self._rank])
        return _Window(columns, rng, before)

    def _read(self, pieces: Iterable[Piece]) -> Iterator[Columns]:
        """The rows of each piece, in order. Two pieces for each worker are read ahead, also while a window is handed
        out."""
        reading = self._reading
        transformation = _portable(reading.transformation_fn, self._pool)
        read = functools.partial(
            _rows_of_piece, reading.store, tuple(reading.columns), tuple(reading.removed), transformation
        )
        if self._pool is None:
            yield from map(read, pieces)
            return
        under_way: deque[Future[Columns]] = deque()
        try:
            for piece in pieces:
                under_way.append(self._pool.submit(read, piece))
                if len(under_way) > _AHEAD_PIECES * reading.workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


class BatchesAhead(AsyncDataLoaderMixin, Batches):
    """`Batches` that a thread makes ahead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(_AHEAD_BATCHES, False, *args, **kwargs)

    def close(self) -> None:
        """Ends what reads ahead."""
        self.close_async_loader()
        super().close()


def batches(data: Dataset, reading: Reading, rank: int, size: int, what: str = "rows to train with") -> Batches:
    """The batches of a rank, made ahead unless the pool is "dummy"."""
    return (Batches if reading.pool == "dummy" else BatchesAhead)(data, reading, rank, size, what)


class _Window:
    """Rows in memory, handed out in their order, or in one that is drawn.

    Args:
        columns: their values.
        rng: what draws; None: their order.
        before: how many of the first are not handed out.
    """

    def __init__(self, columns: Columns, rng: Optional[np.random.Generator], before: int) -> None:
        self._columns = columns
        self._rows = len(next(iter(columns.values())))
        self._order = None if rng is None else rng.permutation(self._rows)
        self._at = before
        self._drawn: Columns = {}  # rows from `_first` up to, and not with, `_last`, in the order that is drawn
        self._first = self._last = before

    @property
    def left(self) -> int:
        """How many have not been handed out."""
        return self._rows - self._at

    def take(self, rows: int) -> Columns:
        """Hands rows out."""
        start, self._at = self._at, self._at + rows
        if self._order is None:
            return {name: column[start : self._at] for name, column in self._columns.items()}
        if self._at > self._last:
            self._draw(self._order, start, rows)
        return {name: column[start - self._first : self._at - self._first] for name, column in self._drawn.items()}

    def _draw(self, order: np.ndarray[Any, Any], start: int, rows: int) -> None:
        """Those of a few batches together: a copy for each batch would cost another thread's wake-up, too."""
        row_bytes = sum(column[:1].nbytes for column in self._columns.values())
        chosen = order[start : start + max(rows, _DRAWN_BYTES // max(1, row_bytes))]
        self._drawn = {name: column.take(chosen, axis=0) for name, column in self._columns.items()}
        self._first, self._last = start, start + len(chosen)


def _rows_in(pieces: Iterable[Piece]) -> int:
    return sum(piece.rows for piece in pieces)


class _Cut:
    """Cuts what comes in windows into batches."""

    def __init__(self, source: Iterator[_Window]) -> None:
        self._source = source
        self._here: Optional[_Window] = None

    def take(self, rows: int) -> Columns:
        return joined([window.take(some) for window, some in self._runs(rows)])

    def _runs(self, rows: int) -> Iterator[tuple[_Window, int]]:
        while rows:
            if self._here is None or not self._here.left:
                self._here = None  # before the next one is read
                self._here = next(self._source)
            some = min(rows, self._here.left)
            rows -= some
            yield self._here, some


def _rows_of_piece(
    store: Any,
    columns: Sequence[str],
    removed: Sequence[str],
    transformation: Optional[Callable[[Any], Any]],
    piece: Piece,
) -> Columns:
    """Read, decoded and transformed."""
    format_ = arrow().dataset.ParquetFileFormat()
    fragment = format_.make_fragment(piece.group.file, store.arrow_fs(), row_groups=[piece.group.number])
    further = () if transformation is None else removed
    table = fragment.to_table(columns=[*columns, *further], use_threads=False)
    found = decoded(table.slice(piece.start, piece.rows))
    if transformation is None:
        return found
    return of_frame(transformation(as_frame(found)), columns, piece.rows)


class _ByValue:
    """A function that travels to another process by cloudpickle: it may be of a notebook."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def __call__(self, frame: Any) -> Any:
        return self._fn(frame)

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle  # type: ignore[import-untyped]

        return _by_value, (cloudpickle.dumps(self._fn),)


def _by_value(data: bytes) -> _ByValue:
    import cloudpickle

    return _ByValue(cloudpickle.loads(data))


def _portable(fn: Optional[Callable[[Any], Any]], pool: Optional[Executor]) -> Optional[Callable[[Any], Any]]:
    return _ByValue(fn) if fn is not None and isinstance(pool, ProcessPoolExecutor) else fn


def _pool(reading: Reading) -> Optional[Executor]:
    if reading.pool == "dummy":
        return None
    if reading.pool == "thread":
        return ThreadPoolExecutor(max(1, reading.workers), "horovod reader")
    import multiprocessing

    context = multiprocessing.get_context(reading.start_method or "spawn")  # a rank has threads, and must not fork
    return ProcessPoolExecutor(max(1, reading.workers), context)
