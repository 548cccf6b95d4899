"""Kept for import paths that other people use: short ways to start threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Optional


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: Optional[str] = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts a thread that calls `target(*args)`; `silent`: its exceptions are swallowed."""
    if not isinstance(args, (tuple, list)):
        raise ValueError(f"args must be a tuple or a list. Received: {args!r}.")

    def call() -> None:
        with contextlib.suppress(*([Exception] if silent else [])):
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    stop: Optional[threading.Event] = None,
    check_stop_interval_s: float = 1.0,
) -> threading.Thread:
    """Starts a thread that calls `func(*args)` once `event` is set.

    Args:
        event: what to wait for.
        func, args: what to call.
        stop: ends the thread without the call.
        check_stop_interval_s: how often `stop` is looked at.
    """

    def wait() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> Optional[dict[int, Any]]:
    """Calls `fn(*args)` for each of `args_list`, many at a time.

    Returns:
        The results by index; None when `block_until_all_done` is false.
    """
    pool = ThreadPoolExecutor(max_workers=max(1, min(len(args_list), max_concurrent_executions)))
    futures = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=block_until_all_done)
    return {index: future.result() for index, future in enumerate(futures)} if block_until_all_done else None
