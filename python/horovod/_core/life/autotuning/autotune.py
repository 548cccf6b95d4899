"""Whether this process tunes: rank 0 does, where HOROVOD_AUTOTUNE is set. Used by `context`; `tuning_thread` does the
work, and is imported only then. See docs/autotune.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from horovod._core.life.session import Session

if TYPE_CHECKING:
    from horovod._core.life.autotuning.tuning_thread import TuningThread

_running: Optional[TuningThread] = None


def begin(session: Session) -> None:
    """Tunes a session that has just begun, where that is wanted and this is rank 0.

    Raises:
        InvalidArgumentError: the log cannot be written.
    """
    global _running
    if session.settings.autotune and session.rank == 0:
        from horovod._core.life.autotuning import tuning_thread

        _running = tuning_thread.start(session)


def end() -> None:
    """The engine has shut down, which has woken the thread."""
    global _running
    tuning, _running = _running, None
    if tuning is not None:
        tuning.stop()


def forget() -> None:
    """In a forked child, which has no such thread."""
    global _running
    _running = None
