"""The one session of this process: what `init` made and `shutdown` takes away.

Holds which rank this is and the running engine, and nothing else; `context` makes sessions, everybody in `_core` reads
the current one.
A session outlives a failure of its engine: rank and size still answer then. A forked child inherits its parent's place
and no session.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, fields
from typing import Callable, Final, Optional

from horovod._core.errors import NotInitializedError
from horovod._core.life.engine_port import EnginePort
from horovod._core.life.seal import Seal
from horovod._core.settings import Settings

_NOT_INITIALIZED: Final = "Horovod has not been initialized; use hvd.init()."
_FORKED: Final = (
    "This process was forked from one that had called hvd.init(); a forked child is not a rank and cannot take part in "
    "collectives. Call hvd only in the parent; a child that needs only the rank or the size may ask for it. (A spawned "
    "child has no rank: pass it as an argument.)"
)


@dataclass(frozen=True, eq=False)
class Place:
    """The place of this process in the job."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    is_homogeneous: bool


@dataclass(frozen=True, eq=False)
class Session(Place):
    """One initialised engine and the place of this process in the job."""

    engine: EnginePort
    dynamic_process_sets: bool
    timeline_allowed: bool
    epoch: int
    seal: Optional[Seal] = None  # for pickled bytes, where ranks share no memory
    settings: Settings = field(default_factory=Settings)  # as `init` has read them
    hostname: str = ""
    meeting_directory: Optional[str] = None  # the launcher's, where it gave one and runs this job itself


class Stamp:
    """Identity of a state of the session: calls of the lane made under another stamp are stale. Renewed by init,
    shutdown and every change of the process sets."""

    __slots__ = ()


# Read directly (`session.current`, `session.stamp`) on the hot path.
current: Optional[Session] = None
stamp: Stamp = Stamp()
forked: bool = False
# Called with each session that `init` makes, before it returns.
on_begin: Final[list[Callable[[Session], object]]] = []
# Called with the session that `shutdown` ends, while its engine still runs.
on_end: Final[list[Callable[[Session], object]]] = []
_inherited: Optional[Place] = None  # in a forked child: the parent's, as at the fork
_joined: Final[weakref.WeakSet[Session]] = weakref.WeakSet()


def install(new: Optional[Session]) -> None:
    """Makes `new` the current session (None: not initialised)."""
    global current
    current = new
    renew_stamp()


def renew_stamp() -> None:
    """Makes every call of the lane stale."""
    global stamp
    stamp = Stamp()


def note_join() -> None:
    """This rank calls `join`: until all have, it makes no steps and the others do."""
    _joined.add(require())


def has_joined() -> bool:
    """True if this rank has ever called `join` in this session: then it may have made fewer steps than others."""
    return current is not None and current in _joined


def disown_after_fork() -> None:
    """In a forked child: forgets the parent's engine without touching it, and keeps the parent's place."""
    global forked, _inherited
    if current is not None:
        _inherited = Place(*(getattr(current, entry.name) for entry in fields(Place)))
        forked = True
        install(None)


def forget_inherited() -> None:
    """In a forked child: forgets the parent's place."""
    global _inherited
    _inherited = None


def place() -> Optional[Place]:
    """Where this process stands, or the parent of this forked child; None without `init`."""
    return current if current is not None else _inherited


def require_place() -> Place:
    """As `place`.

    Raises:
        NotInitializedError: `init` has not been called.
    """
    found = place()
    if found is None:
        raise NotInitializedError(not_initialized_reason())
    return found


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
