"""`BaseDataLoader`, the minimal protocol of a data loader, and `AsyncDataLoaderMixin`, which fetches batches ahead in a
thread.

Used by the data loaders of the integrations and by users' own. Knows no framework and no ranks.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, Final, Optional

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]

_log: Final = logging.getLogger("horovod.data")
# How often a full queue looks whether anybody still wants its batches.
_LOOK_S: Final = 0.1


class BaseDataLoader:
    """A loader iterates over batches, and says in `__len__` how many there are, if it knows."""

    def _iterate(self) -> Iterator[Any]:
        """The batches, as they are read."""
        raise NotImplementedError(f"{type(self).__name__} has no batches: its method _iterate must return them.")

    def _process_batch(self, batch: Any) -> Any:
        """What is done to a batch on the consumer's thread before it is handed out; nothing by default."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)


class _End:
    """The last thing in a queue: the producer's error, if it failed."""

    def __init__(self, error: Optional[BaseException] = None) -> None:
        self.error = error


class _Prefetch:
    """One iteration under way: a thread that fills a queue from an iterator."""

    def __init__(self, source: Iterator[Any], capacity: int) -> None:
        self._source = source
        self._queue: queue.Queue[Any] = queue.Queue(capacity)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="horovod data loader", daemon=True)
        self._thread.start()

    def _produce(self) -> None:
        end = _End()
        try:
            for batch in self._source:
                if not self._put(batch):
                    return
        except BaseException as error:  # handed over to the consumer, whatever it is
            end = _End(error)
        self._put(end)

    def _put(self, item: Any) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_S)
                return True
            except queue.Full:
                continue
        return False

    def batches(self, debug: bool) -> Iterator[Any]:
        while not self._stopped.is_set():
            start = time.monotonic()
            item = self._queue.get()
            if self._stopped.is_set():
                return
            if debug:
                _log.info("waited %.6f s for a batch; %d more are ready", time.monotonic() - start, self._queue.qsize())
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item

    def stop(self) -> None:
        self._stopped.set()
        # A consumer on another thread may be waiting for the next batch; of a full queue nobody waits.
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(_End())
        if self._thread is not threading.current_thread():
            self._thread.join()


class AsyncDataLoaderMixin:
    """Fetches batches ahead in a thread. Put it before the loader: `class Async(AsyncDataLoaderMixin, MyLoader)`. The
    thread runs `_iterate`, the loader's or that of the class itself; `_process_batch` stays on the consumer's.

    Args:
        async_loader_queue_size: how many batches may be ready at most; 0 = no thread.
        debug_data_loader: log how long each batch was waited for.
        *args, **kwargs: for the loader.
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._prefetches: list[_Prefetch] = []
        super().__init__(*args, **kwargs)

    # Of the loader.
    _iterate: Callable[[], Iterator[Any]]
    _process_batch: Callable[[Any], Any]

    def close_async_loader(self) -> None:
        """Ends the threads; iterations under way end early."""
        prefetches, self._prefetches = self._prefetches, []
        for prefetch in prefetches:
            prefetch.stop()

    def __iter__(self) -> Iterator[Any]:
        # Here and not in `_iterate`, which the class that mixes this in may define itself.
        for batch in self._ahead():
            yield self._process_batch(batch)

    def _ahead(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            yield from self._iterate()
            return
        prefetch = _Prefetch(self._iterate(), self.async_loader_queue_size)
        self._prefetches.append(prefetch)
        try:
            yield from prefetch.batches(self.debug_data_loader)
        finally:
            # Also when the consumer leaves the loop early.
            prefetch.stop()
            if prefetch in self._prefetches:
                self._prefetches.remove(prefetch)
