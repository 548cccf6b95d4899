"""Several ranks as threads of this process, each with a `FakeEngine`: `run_ranks(size, body)`.

The session of `horovod._core` is one per process; while ranks run here it is one per thread instead. Used by the
contract suite's run against the fake and by the unit tests of `_core`.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Iterator
from typing import Any, Callable, Optional

from fakes.engine import FakeEngine, FakeJob

from horovod._core.life import process_sets, session

_local = threading.local()


class _SessionPerThread(type(session)):  # type: ignore[misc]
    """The class that the session module wears meanwhile: `current` and `stamp` are the thread's."""

    @property
    def current(self) -> Optional[session.Session]:
        return getattr(_local, "current", None)

    @current.setter
    def current(self, new: Optional[session.Session]) -> None:
        _local.current = new

    @property
    def stamp(self) -> Any:
        return getattr(_local, "stamp", None)

    @stamp.setter
    def stamp(self, new: Any) -> None:
        _local.stamp = new


def _install(new: Optional[session.Session]) -> None:
    session.current = new
    session.renew_stamp()


def _renew_stamp() -> None:
    session.stamp = session.Stamp()


def _require() -> session.Session:
    current = session.current
    if current is None:
        raise session.NotInitializedError(session.not_initialized_reason())
    return current


def _place() -> Optional[session.Place]:
    return session.current


@contextlib.contextmanager
def sessions_per_thread() -> Iterator[None]:
    """While this is open, every thread has a session of its own."""
    plain_class = session.__class__
    plain = (session.install, session.renew_stamp, session.require, session.place, session.require_place)
    session.__class__ = _SessionPerThread
    session.install, session.renew_stamp, session.require = _install, _renew_stamp, _require
    session.place, session.require_place = _place, _require
    try:
        yield
    finally:
        session.__class__ = plain_class
        session.install, session.renew_stamp, session.require, session.place, session.require_place = plain


def session_of(job: FakeJob, rank: int, dynamic: bool) -> session.Session:
    """A session around a fake engine."""
    return session.Session(
        engine=FakeEngine(job, rank),
        rank=rank,
        size=job.size,
        local_rank=rank,
        local_size=job.size,
        cross_rank=0,
        cross_size=1,
        is_homogeneous=True,
        dynamic_process_sets=dynamic,
        timeline_allowed=True,
        epoch=1,
    )


def adopt() -> Callable[[], None]:
    """To be called in a rank: returns a function that gives another thread this rank's session."""
    current, stamp = session.current, session.stamp

    def enter() -> None:
        session.current, session.stamp = current, stamp

    return enter


def run_ranks(size: int, body: Callable[[int], Any], dynamic: bool = True, timeout_s: float = 60.0) -> list[Any]:
    """Runs body(rank) on `size` threads as the ranks of one job; their return values.

    Raises:
        AssertionError: a rank raised (all tracebacks are in the text), or is stuck.
    """
    job = FakeJob(size)
    results: list[Any] = [None] * size
    failures: dict[int, str] = {}

    def rank_main(rank: int) -> None:
        session.install(session_of(job, rank, dynamic))
        try:
            results[rank] = body(rank)
        except BaseException:
            failures[rank] = traceback.format_exc()
            session.current.engine.abort(4, "another rank failed")
        finally:
            session.install(None)

    with sessions_per_thread():
        process_sets.on_init(size)
        threads = [threading.Thread(target=rank_main, args=(rank,), daemon=True) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout_s)
        stuck = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
        process_sets.on_shutdown()
    texts = [f"rank {rank}:\n{text}" for rank, text in sorted(failures.items())] + [
        f"rank {rank} is stuck" for rank in stuck
    ]
    if texts:
        raise AssertionError("\n".join(texts))
    return results
