"""The one session of this process: what `init` made and `shutdown` takes away.

Holds which rank this is and the running engine, and nothing else; `context` makes sessions, everybody in `_core` reads
the current one.
A session outlives a failure of its engine: rank and size still answer then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Optional

from horovod._core.engine_port import EnginePort
from horovod._core.errors import NotInitializedError

_NOT_INITIALIZED: Final = "Horovod is not initialized in this process; call hvd.init() first."
_FORKED: Final = (
    "This process was forked from one that had called hvd.init(); a forked child is no rank and cannot take part in "
    "collectives. "
    "Start such children with the 'spawn' or 'forkserver' method, or call hvd only in the parent."
)


@dataclass(frozen=True, eq=False)
class Session:
    """One initialised engine and the place of this process in the job."""

    engine: EnginePort
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    is_homogeneous: bool
    dynamic_process_sets: bool
    timeline_allowed: bool
    epoch: int


class Stamp:
    """Identity of a state of the session: prepared operations made under another stamp are stale. Renewed by init,
    shutdown and every change of the process sets."""

    __slots__ = ()


# Read directly (`session.current`, `session.stamp`) on the hot path.
current: Optional[Session] = None
stamp: Stamp = Stamp()
forked: bool = False


def install(new: Optional[Session]) -> None:
    """Makes `new` the current session (None: not initialised)."""
    global current
    current = new
    renew_stamp()


def renew_stamp() -> None:
    """Makes every prepared operation stale."""
    global stamp
    stamp = Stamp()


def disown_after_fork() -> None:
    """In a forked child: forgets the parent's engine without touching it."""
    global forked
    if current is not None:
        forked = True
        install(None)


def require() -> Session:
    """The current session.

    Raises:
        NotInitializedError: `init` has not been called, or this is a forked child.
    """
    if current is None:
        raise NotInitializedError(not_initialized_reason())
    return current


def not_initialized_reason() -> str:
    """Why there is no session."""
    return _FORKED if forked else _NOT_INITIALIZED
