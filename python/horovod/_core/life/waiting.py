"""Waiting for the engine in slices, so that Ctrl-C works. Used by `handles` and `process_sets`; knows no tensors."""

from __future__ import annotations

from typing import Final

from horovod._core.life.engine_port import IN_PROGRESS, OK, EnginePort

# The engine returns early when a signal arrives in the waiting thread; the slice bounds the delay for a signal that
# another thread took.
SLICE_S: Final = 1.0


def wait(engine: EnginePort, handle: int) -> int:
    """Waits until a handle is done; its status. Signal handlers run between the slices, so KeyboardInterrupt may come
    out of here."""
    status = engine.wait(handle, SLICE_S)
    while status == IN_PROGRESS:
        status = engine.wait(handle, SLICE_S)
    return status


def finish(engine: EnginePort, handle: int, value: bool = False) -> int:
    """Waits for an operation without tensors and releases its handle.

    Args:
        value: True if the operation yields a number.

    Returns:
        That number, else 0.

    Raises:
        HorovodError: the operation failed.
    """
    status = wait(engine, handle)
    try:
        if status != OK:
            raise engine.error(status)
        return engine.result_value(handle) if value else 0
    finally:
        engine.release(handle)
