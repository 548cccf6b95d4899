"""The retry loop of elastic training: synchronise, train, and after a failure or a change of hosts restore,
re-initialise and go on.

`run_fn` is what each framework's `elastic.run` binds. It decides from the exception alone; state and re-initialisation
are its callers'.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any, Callable, Final, TypeVar, cast

from horovod._core.errors import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    InvalidArgumentError,
    MismatchError,
    NotInitializedError,
    ResourceError,
)
from horovod._core.life import context, counters_page, membership
from horovod._core.training.elastic import durable as durable_commits
from horovod._core.training.elastic.notification import notification_manager
from horovod._core.training.elastic.state import State, whole_or_not

__all__ = ["F", "reset_engine", "run_fn"]

F = TypeVar("F", bound=Callable[..., Any])
_log: Final = logging.getLogger("horovod")


def run_fn(
    func: F,
    reset: Callable[[], None],
    translated: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> F:
    """Wraps a training function so that it survives failures and changes of hosts.

    Args:
        func: called as func(state, *args, **kwargs), again and again until it returns.
        reset: re-initialises the engine with the ranks that are there; collective.
        translated: a context for `state.sync()` that turns failures of a framework's own classes into Horovod's.

    Returns:
        A function of the same signature. A mistake of the program (MismatchError, NotInitializedError) and a lack that
        would be there again (ResourceError) are never retried.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        _require_state(func, state)
        notification_manager.register_listener(state)
        skip_sync = was_reset = shared = False
        durable = durable_commits.of_next_training()
        try:
            if isinstance(state, State):
                state.begin_durable(durable)
            elif durable is not None:
                _log.warning("a state of the class %s is not written to a folder.", type(state).__name__)
            while True:
                try:
                    if was_reset:
                        state.on_reset()
                    if not skip_sync or membership.states_differ():
                        with translated(), whole_or_not(state):
                            # Until the ranks share a state: rank 0 may have died while it broadcast its own.
                            if not shared and isinstance(state, State):
                                state.take_durable()
                            if isinstance(state, State):
                                state.share_run()
                            state.sync()
                        shared = True
                    if isinstance(state, State):
                        state.hold_durable()
                    membership.synchronized()
                    return func(state, *args, **kwargs)
                except (MismatchError, NotInitializedError, ResourceError):
                    raise
                except HorovodInternalError:
                    _go_back(state)
                    skip_sync = False
                except HostsUpdatedInterrupt as news:
                    skip_sync = _saved(state) and news.skip_sync
                reset()
                was_reset = True
        finally:
            notification_manager.remove_listener(state)
            if durable is not None:
                durable.close()

    return cast("F", wrapper)


def _require_state(func: Callable[..., Any], state: Any) -> None:
    """Programs may have states of classes of their own."""
    if isinstance(state, type) or not all(callable(getattr(state, name, None)) for name in ("sync", "restore")):
        name = getattr(func, "__name__", "the function")
        raise InvalidArgumentError(
            f"elastic.run: the first argument of {name}() must be a state, such as hvd.elastic.TorchState(...). "
            f"Received: {type(state).__name__}."
        )


def _go_back(state: State) -> None:
    context.stop_engine()  # else restoring an optimizer would wait for gradients that nobody completes
    state.restore()


def _saved(state: State) -> bool:
    """Saves first, so a rank lost during re-initialisation does not roll the others back. False: one is lost already,
    and what devices were still doing with it."""
    try:
        state.save()
    except HorovodInternalError:
        _go_back(state)
        return False
    membership.committed()
    return True


def reset_engine() -> None:
    """Leaves the job and joins it again, with the ranks that there are then. Collective.

    Raises:
        SystemExit: with code 0: an elastic job has no place for this rank any more.
    """
    dynamic = context.process_sets_are_dynamic()
    context.shutdown()
    counters_page.count_reset()
    context.init(process_sets="dynamic" if dynamic else None)
