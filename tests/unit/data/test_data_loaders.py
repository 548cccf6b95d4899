"""Pre-fetching in a thread: order, errors, early ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader


class Loader(BaseDataLoader):
    """Numbers; fails at one of them if told."""

    def __init__(self, n: int, bad: int = -1) -> None:
        self.n = n
        self.bad = bad
        self.read = 0
        self.thread: Any = None

    def __len__(self) -> int:
        return self.n

    def _iterate(self) -> Iterator[int]:
        self.thread = threading.current_thread()
        for i in range(self.n):
            if i == self.bad:
                raise RuntimeError(f"batch {i} is bad")
            self.read += 1
            yield i

    def _process_batch(self, batch: int) -> int:
        return batch * 10


class AsyncLoader(AsyncDataLoaderMixin, Loader):
    """The same, ahead."""


@pytest.mark.parametrize("size", [0, 1, 64])
def test_batches_come_in_order_every_epoch(size: int) -> None:
    loader = AsyncLoader(async_loader_queue_size=size, n=20)
    for _ in range(3):
        assert list(loader) == list(range(0, 200, 10))
        assert (loader.thread is threading.current_thread()) == (size == 0)
    assert len(loader) == 20
    loader.close_async_loader()


def test_the_base_loader_needs_no_thread() -> None:
    assert list(Loader(3)) == [0, 10, 20]


def test_it_does_not_read_further_ahead_than_asked() -> None:
    loader = AsyncLoader(async_loader_queue_size=2, n=100)
    iterator = iter(loader)
    next(iterator)
    # One handed out, two in the queue, one in the producer's hand.
    assert loader.read <= 4
    iterator.close()  # type: ignore[attr-defined]


def test_an_error_comes_where_the_batch_would() -> None:
    iterator = iter(AsyncLoader(n=5, bad=2))
    assert [next(iterator), next(iterator)] == [0, 10]
    with pytest.raises(RuntimeError, match="batch 2 is bad"):
        next(iterator)


def test_leaving_early_ends_the_thread() -> None:
    loader = AsyncLoader(async_loader_queue_size=1, n=10**9)
    for batch in loader:
        if batch == 30:
            break
    loader.close_async_loader()
    assert not loader.thread.is_alive()


def test_close_ends_an_iteration_that_waits() -> None:
    gate = threading.Event()

    class Slow(Loader):
        def _iterate(self) -> Iterator[int]:
            yield 1
            gate.wait(30)

    class AsyncSlow(AsyncDataLoaderMixin, Slow):
        """Waits for ever after its first batch."""

    loader = AsyncSlow(n=2, debug_data_loader=True)
    got: list[int] = []
    consumer = threading.Thread(target=lambda: got.extend(loader))
    consumer.start()
    while not got and consumer.is_alive() and not loader._prefetches:
        pass
    closer = threading.Thread(target=loader.close_async_loader)
    closer.start()
    gate.set()
    closer.join(30)
    consumer.join(30)
    assert not consumer.is_alive()
    assert not closer.is_alive()


def test_close_ends_an_iteration_that_lags_behind() -> None:
    loader = AsyncLoader(async_loader_queue_size=2, n=1000)
    got: list[int] = []

    def consume() -> None:
        for batch in loader:
            got.append(batch)
            if len(got) == 5:
                time.sleep(0.1)  # the queue is full by then
                loader.close_async_loader()

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    consumer.join(10)
    assert not consumer.is_alive() and len(got) == 5


def test_a_class_that_mixes_the_thread_in_may_iterate_itself() -> None:
    class Both(AsyncDataLoaderMixin, BaseDataLoader):
        """Has its own `_iterate`, beside the thread's."""

        def _iterate(self) -> Iterator[Any]:
            yield threading.current_thread()

    (thread,) = list(Both())
    assert thread is not threading.current_thread()
    (thread,) = list(Both(async_loader_queue_size=0))
    assert thread is threading.current_thread()


def test_a_loader_need_not_know_its_length() -> None:
    class Endless(BaseDataLoader):
        """Numbers."""

        def _iterate(self) -> Iterator[int]:
            yield from (1, 2)

    loader = Endless()
    assert list(loader) == [1, 2] and loader
    with pytest.raises(TypeError, match="len"):
        len(loader)  # type: ignore[arg-type]


def test_a_loader_without_batches_says_so() -> None:
    with pytest.raises(NotImplementedError, match="BaseDataLoader has no batches.*_iterate"):
        list(BaseDataLoader())
