"""Process sets: subsets of the ranks that have operations of their own.

`ProcessSet` is what users hold; `add_process_set` and `remove_process_set` register and forget it on all ranks of the
job. Membership and ids live in the engine; an id here is valid between `init` and `shutdown` only.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, Optional, Union

from horovod._core.errors import InvalidArgumentError, ShutdownError
from horovod._core.life import communicators, session, waiting

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "of_members", "remove_process_set"]


class ProcessSet:
    """A subset of the job's ranks.

    Args:
        ranks_or_comm: global ranks (any iterable of integers; sorted here). Or a communicator of mpi4py, where `init`
            is given one too: each rank gives its own, as from a `Split`, and means the set of those in it.

    Attributes:
        process_set_id: the engine's number of the set; None while unregistered.
        ranks: members in ascending order; None for the global set, and for one by a communicator, before `init`.
        mpi_comm: the communicator, if it was made from one.

    Raises:
        InvalidArgumentError: something other than integers, a negative rank, or a rank twice.
    """

    process_set_id: Optional[int] = None
    ranks: Optional[list[int]] = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Any) -> None:
        if communicators.is_one(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
            return
        try:
            ranks = sorted(operator.index(rank) for rank in ranks_or_comm)
        except TypeError:
            raise InvalidArgumentError(
                f"ProcessSet needs a list of global ranks (integers). Received: {ranks_or_comm!r}."
            ) from None
        if (ranks and ranks[0] < 0) or len(set(ranks)) != len(ranks):
            raise InvalidArgumentError(f"ProcessSet needs different ranks >= 0. Received: {ranks}.")
        self.ranks = ranks

    def size(self) -> Optional[int]:
        """Number of members; None while unregistered."""
        if self.process_set_id is None or self.ranks is None:
            return None
        return len(self.ranks)

    def rank(self) -> Optional[int]:
        """Index of this process among the members; None while unregistered.

        Raises:
            InvalidArgumentError: this process is not a member.
        """
        if self.process_set_id is None or self.ranks is None:
            return None
        own = session.require_place().rank
        if own not in self.ranks:
            raise InvalidArgumentError(
                f"Rank {own} is not a member of process set {self.process_set_id} ({listed(self.ranks)})."
            )
        return self.ranks.index(own)

    def included(self) -> bool:
        """True if this process is a member, whether the set is registered or not. Before `init` it is a member of the
        global set only."""
        place = session.place()
        if place is None or self.ranks is None:
            return self.process_set_id == 0
        return place.rank in self.ranks

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


def _make_global_process_set() -> ProcessSet:
    process_set = ProcessSet([])
    process_set.process_set_id = 0
    process_set.ranks = None
    return process_set


# All ranks of the job. Its ranks are filled in by `init`.
global_process_set: Final[ProcessSet] = _make_global_process_set()

# Sets registered in this session, so that shutdown can reset the objects that users hold.
_registered: Final[list[ProcessSet]] = []


def listed(ranks: Sequence[int]) -> str:
    """ "rank 3" or "ranks 0, 2, 5", shortened when long."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ranks if len(ranks) <= 16 else ranks[:15]
    return f"ranks {', '.join(map(str, shown))}" + ("" if shown is ranks else f", ... ({len(ranks)} ranks)")


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Registers a process set while the job runs.

    Collective over all ranks of the job, members or not.

    Args:
        process_set: an unregistered ProcessSet, or a list of global ranks.

    Returns:
        The ProcessSet, with its id filled in.

    Raises:
        InvalidArgumentError: dynamic process sets are not enabled, the same ranks are registered already, or a rank
            does not exist.
        NotInitializedError: `init` has not been called.
        UnsupportedError: a communicator, where `init` was given none.
        MismatchError: the ranks of the job asked for different sets.
    """
    _require_dynamic("add_process_set")
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    register(process_set)
    return process_set


def of_members(ranks: Sequence[int]) -> ProcessSet:
    """The registered set of these ranks; registers it if there is none. Collective over these ranks alone; this rank
    must be one of them.

    Args:
        ranks: global ranks, ascending.

    Raises:
        InvalidArgumentError: they are no such ranks.
    """
    current, members = session.require(), ProcessSet(ranks)
    if members.ranks == global_process_set.ranks:
        return global_process_set
    for process_set in _registered:
        if process_set.ranks == members.ranks:
            return process_set
    members.process_set_id = _agreed(current, members.ranks or (), by_members=True)
    _registered.append(members)
    session.renew_stamp()
    return members


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forgets a process set while the job runs.

    Collective over all ranks of the job, members or not.

    Returns:
        True; False for the global set or one that is not registered.

    Raises:
        InvalidArgumentError: dynamic process sets are not enabled.
        NotInitializedError: `init` has not been called.
    """
    current = _require_dynamic("remove_process_set")
    if process_set.process_set_id is None or process_set.process_set_id == 0:
        return False
    number = process_set.process_set_id
    handle = current.engine.process_set_remove(number)
    # Calls of the lane on the set are stale from here on.
    session.renew_stamp()
    waiting.finish(current.engine, handle)
    for one in (process_set, *_registered):  # several objects may stand for one set
        if one.process_set_id == number:
            one.process_set_id = None
    _registered[:] = [one for one in _registered if one.process_set_id is not None]
    return True


def register(process_set: ProcessSet) -> None:
    """Registers a set with the engine and fills in its id. Collective over all ranks of the job; used by `init` too.

    A set by communicators is as many as those are that the ranks give: all ranks register each, and the object becomes
    the one that is meant here.
    """
    if process_set.process_set_id is not None:
        raise InvalidArgumentError(f"This process set is registered already (id {process_set.process_set_id}).")
    if process_set.mpi_comm is None:
        _register_ranks(process_set)
        return
    every, own = communicators.sets_of(process_set.mpi_comm)
    for ranks in every:
        if ranks == own:
            process_set.ranks = ranks
            _register_ranks(process_set)
        else:
            _register_ranks(ProcessSet(ranks))


def _register_ranks(process_set: ProcessSet) -> None:
    current = session.require()
    ranks = process_set.ranks
    if not ranks or ranks[-1] >= current.size:
        raise InvalidArgumentError(
            f"A process set needs one or more ranks from 0 to {current.size - 1}. Received: {ranks or 'none'}."
        )
    # Whether it exists already is not asked here: a rank may not have heard yet of a set that its members registered.
    process_set.process_set_id = _agreed(current, ranks, by_members=False)
    _registered.append(process_set)
    session.renew_stamp()


def _agreed(current: session.Session, ranks: Sequence[int], by_members: bool) -> int:
    """The number of a new set. The core agrees upon it as upon an operation of all ranks."""
    try:
        return waiting.finish(current.engine, current.engine.process_set_add(ranks, by_members), value=True)
    except ShutdownError as error:
        raise ShutdownError(
            f"The process set of {listed(ranks)} cannot be made: {str(error).rstrip('.')}. A set or group is made "
            "while all ranks of the job are there; make it before the first of them shuts down."
        ) from error


def on_init(size: int) -> None:
    """Fills in the global set."""
    global_process_set.ranks = list(range(size))


def refresh_global(basics: Any) -> None:
    """Fills in the global set as `init` does, if `basics` says that it has been called."""
    if basics.is_initialized():
        on_init(basics.size())


def with_id(process_set_id: int) -> ProcessSet:
    """An object for the registered set of this number, beside the one that it was registered with.

    Raises:
        InvalidArgumentError: there is none.
        NotInitializedError: `init` has not been called.
    """
    process_set = ProcessSet(session.require().engine.process_set_ranks(process_set_id))
    process_set.process_set_id = process_set_id
    return process_set


def with_ranks(ranks: Sequence[int]) -> ProcessSet:
    """The registered set of these ranks.

    Raises:
        InvalidArgumentError: there is none.
    """
    for process_set in _registered:
        if process_set.ranks == list(ranks):
            return process_set
    raise InvalidArgumentError(
        f"The process set of {listed(ranks)} is not registered. Give it to hvd.init(process_sets=[...]) or call "
        "hvd.add_process_set on all ranks."
    )


def leaves_out_this_rank(process_set: ProcessSet) -> bool:
    """True if the set is registered and this rank is not in it: then there is nothing to reduce here. A set that is not
    registered leaves nobody out; its operations say what is wrong with it."""
    return process_set.process_set_id is not None and not process_set.included()


def on_shutdown() -> None:
    """Unregisters all objects: their ids mean nothing any more."""
    for process_set in _registered:
        process_set.process_set_id = None
        if process_set.mpi_comm is not None:
            process_set.ranks = None
    communicators.note(None)
    _registered.clear()
    global_process_set.ranks = None


def ids_and_ranks() -> dict[int, list[int]]:
    """Registered ids and their members."""
    engine = session.require().engine
    return {number: engine.process_set_ranks(number) for number in engine.process_set_list()}


def check_static_list(process_sets: Any) -> list[ProcessSet]:
    """The sets given to `init`, checked before anything is started.

    Raises:
        InvalidArgumentError: an entry is not a ProcessSet, or two have the same ranks.
    """
    checked: list[ProcessSet] = []
    seen: list[Optional[list[int]]] = []
    for entry in process_sets:
        if not isinstance(entry, ProcessSet):
            raise InvalidArgumentError(f"process_sets must hold hvd.ProcessSet objects. Received: {entry!r}.")
        if entry.mpi_comm is None and entry.ranks in seen:
            raise InvalidArgumentError(
                f"process_sets holds the ranks {entry.ranks} twice; each set must be given once."
            )
        seen.append(entry.ranks)
        checked.append(entry)
    return checked


def _require_dynamic(caller: str) -> session.Session:
    current = session.require()
    if not current.dynamic_process_sets:
        raise InvalidArgumentError(
            f"{caller} needs dynamic process sets, which are off. Call hvd.init(process_sets='dynamic') or set "
            "HOROVOD_DYNAMIC_PROCESS_SETS=1 on all ranks, or give the sets to hvd.init(process_sets=[...])."
        )
    return current
