"""What a training keeps so that it can go on after a failure or a change of hosts: `State` and `ObjectState`.

Framework modules derive their states from these. A state saves in memory, restores, and synchronises from rank 0; it
runs no loop.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import queue
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Final, Optional

from horovod._core.errors import HostsUpdatedInterrupt, InvalidArgumentError, UnsupportedError
from horovod._core.life import membership
from horovod._core.training.elastic.durable import DurableCommits
from horovod._core.training.elastic.notification import HostUpdateResult, notification_manager
from horovod._core.training.elastic.snapshot import Snapshot, leaves

__all__ = ["ObjectState", "State", "fitting", "forget_passes", "whole_or_not"]

_log: Final = logging.getLogger("horovod")


class State:
    """Base of all states.

    Args:
        bcast_object: broadcasts a picklable object from rank 0, like `broadcast_object`.
        get_rank: returns this process's rank.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
        self._last_updated_timestamp = 0.0
        self._reset_callbacks: list[Callable[[], None]] = []
        self._durable: Optional[DurableCommits] = None

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Functions to call, in this order, after each re-initialisation (for example to scale the learning rate)."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The job has been re-initialised: forgets old news, resets itself and calls the callbacks."""
        self._host_messages = queue.SimpleQueue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """News of hosts, on any thread; looked at by the next `check_host_updates`."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state and raises HostsUpdatedInterrupt if hosts have changed. Collective.

        Saving costs time and memory: commit as often as the work that may be lost is worth.
        """
        self.save()
        membership.committed()
        if self._durable is not None and self._rank() == 0 and self._durable.is_due():
            self._durable.write(self._to_write(), membership.epoch() or 0)
        self.check_host_updates()

    def begin_durable(self, durable: Optional[DurableCommits]) -> None:
        """From now on commits are written there too.

        Args:
            durable: None: nowhere.

        Raises:
            UnsupportedError: a state of this kind cannot be written.
        """
        if durable is not None:
            self._to_write()  # raises where that is impossible
            self._refuse_more_than_is_written()
        self._durable = durable

    def take_durable(self) -> None:
        """Takes the newest commit that was written, if this is rank 0: before the first `sync`, which gives it to all.

        Raises:
            InvalidArgumentError: another job writes there, or it may not be read, or is of no state like this one.
        """
        content = self._durable.begin() if self._durable is not None and self._rank() == 0 else None
        if content is None:
            return
        try:
            self._take_over(content)
            self.restore()
        except Exception as error:
            raise InvalidArgumentError(
                "The durable commit does not fit the state of this script, which holds other things: "
                f"{type(error).__name__}: {error}. Name another folder, or run the script that wrote the commit."
            ) from error

    def share_run(self) -> None:
        """Gives all ranks rank 0's number of this run, so that what another rank 0 writes later is newer. Collective,
        also where no commits are written: a rank cannot know by itself whether others write them."""
        run = self._bcast_object(None if self._durable is None else self._durable.run)
        if self._durable is None and run is not None:
            _log.warning(
                "HOROVOD_ELASTIC_COMMIT_DIR is set on rank 0 and not on rank %d: if that rank becomes rank 0, no "
                "further commits are written. Set it on all ranks.",
                self._rank(),
            )
        elif self._durable is not None:
            if run is None:
                _log.warning(
                    "HOROVOD_ELASTIC_COMMIT_DIR is set on rank %d and not on rank 0, which alone reads commits and "
                    "writes them. Set it on all ranks.",
                    self._rank(),
                )
            self._durable.run = run

    def hold_durable(self) -> None:
        """The place of the durable commits is kept for this job by the rank that is rank 0 now."""
        if self._durable is not None:
            self._durable.hold(self._rank() == 0)

    def check_host_updates(self) -> None:
        """Raises on all ranks together if hosts have changed; rank 0's view counts. Collective.

        Raises:
            HostsUpdatedInterrupt: hosts have changed.
        """
        notification_manager.collect()
        previous = latest = self._last_updated_timestamp
        update_res: int = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, kind = self._host_messages.get()
            if timestamp > previous:
                latest = max(latest, timestamp)
                update_res |= kind
        # All ranks take rank 0's view: it may be the only one with the news, and all must raise in the same step.
        previous, self._last_updated_timestamp, update_res = self._bcast_object((previous, latest, update_res))
        if self._last_updated_timestamp > previous:
            raise HostsUpdatedInterrupt(skip_sync=update_res == HostUpdateResult.removed)

    def save(self) -> None:
        """Saves the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Undoes all changes since the last `save`."""
        raise NotImplementedError

    def sync(self) -> None:
        """Broadcasts rank 0's state to all ranks. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapts to a new set of ranks; called by `on_reset`."""

    def _to_write(self) -> dict[str, Snapshot]:
        """What was saved last, in parts, for a durable commit."""
        raise UnsupportedError(
            f"HOROVOD_ELASTIC_COMMIT_DIR is set, but a {type(self).__name__} cannot be written to a file. "
            "Derive it from ObjectState or a framework's state, or leave the variable out."
        )

    def _refuse_more_than_is_written(self) -> None:
        """A class that saves or restores by itself may keep what `_to_write` does not know: a job that went on from
        such a file would go on with a part of its state."""
        for kind in type(self).__mro__:
            if "_to_write" in vars(kind):
                return
            own = next((name for name in ("save", "restore", "sync") if name in vars(kind)), None)
            if own is not None:
                raise UnsupportedError(
                    f"HOROVOD_ELASTIC_COMMIT_DIR is set, but {kind.__name__} has a {own} of its own, and what it keeps "
                    "besides its attributes would be missing in the file. Keep that in attributes of the state or in a "
                    "handler of TorchState, or leave the variable out."
                )

    def _take_over(self, parts: dict[str, Any]) -> None:
        """Keeps the parts of a durable commit as what was saved last."""
        raise NotImplementedError

    def _keepers(self) -> list[Any]:
        """The objects whose attributes hold what is saved. `save` gives them new values, and changes none in place."""
        return [self]


class ObjectState(State):
    """Picklable values as attributes.

    `save` makes a deep copy, so that changes inside a list, a dictionary or an array are rolled back too.

    Args:
        bcast_object, get_rank: as of `State`.
        **kwargs: each becomes an attribute of this name.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._set_attributes(kwargs)
        self._kept = self._copied(kwargs)

    @property
    def _saved_state(self) -> dict[str, Any]:
        """The attributes by name, as they were saved last: for derived classes, which may change the dictionary, keep
        what is in it, or set another one. Its names are those that are saved. No later commit uses this one's memory.
        """
        self._kept.pin()
        values: dict[str, Any] = self._kept.value
        return values

    @_saved_state.setter
    def _saved_state(self, values: dict[str, Any]) -> None:
        self._kept = Snapshot.holding(values)

    def save(self) -> None:
        self._kept = self._copied(self._attributes(), self._kept)

    def restore(self) -> None:
        # A copy, so that what was saved can be restored again.
        self._set_attributes(copy.deepcopy(self._kept.value, self._living()))

    def sync(self) -> None:
        if self._kept.value:
            # Classes derived from this one may have saved and restored more.
            self.save()
            self._kept = Snapshot.holding(self._bcast_object(self._kept.value))
            self.restore()

    def _to_write(self) -> dict[str, Snapshot]:
        return {"attributes": self._kept}

    def _take_over(self, parts: dict[str, Any]) -> None:
        # An attribute that is new in the script keeps its value; one that the script no longer has is ignored.
        kept = self._kept.value
        self._kept = Snapshot.holding({name: parts["attributes"].get(name, kept[name]) for name in kept})

    def _sync_attributes(self) -> None:
        """Rank 0's attributes everywhere, saved; what derived classes keep besides is theirs. Collective."""
        if not self._kept.value:
            return
        if self._rank() == 0:
            ObjectState.save(self)
            self._bcast_object(self._kept.value)
            return
        received = self._bcast_object(None)
        as_they_are = {id(tensor): tensor for _, tensor in leaves(received)}
        self._set_attributes(copy.deepcopy(received, {**as_they_are, **self._living()}))
        ObjectState.save(self)

    def _copied(self, values: dict[str, Any], before: Optional[Snapshot] = None) -> Snapshot:
        try:
            return Snapshot(values, before, self._stand_ins())
        except MemoryError:
            raise
        except Exception:
            self._refuse_what_cannot_be_copied(values)
            raise

    def _refuse_what_cannot_be_copied(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            try:
                Snapshot(value, None, self._stand_ins())
            except Exception as cause:
                raise InvalidArgumentError(
                    f"Attribute '{name}' of a {type(self).__name__} cannot be saved: a commit is a deep copy, and that "
                    f"of this {type(value).__name__} fails with {type(cause).__name__}: {str(cause).rstrip('.')}. "
                    "Keep in the state only what is needed of it (numbers, lists, tensors by themselves), or give its "
                    "class a __deepcopy__."
                ) from cause

    def _stand_ins(self) -> dict[int, Any]:
        """What stands in a copy for objects that the state keeps in another way, by their identity."""
        return {}

    def _living(self) -> dict[Any, Any]:
        """What stands-in ask for when they are copied, to be those objects again: a memo of `copy.deepcopy`."""
        return {}

    def _attributes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._kept.value}

    def _set_attributes(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


@contextlib.contextmanager
def whole_or_not(state: Any) -> Iterator[None]:
    """Around `state.sync()`: if a rank is lost in it, what was saved before stays saved, and not a part of each.

    A program's own class need not derive from `State`; what such a one saves is its own affair.
    """
    keepers = state._keepers() if isinstance(state, State) else []
    before = [dict(vars(keeper)) for keeper in keepers]
    saved = [value for values in before for value in values.values() if isinstance(value, Snapshot)]
    for snapshot in saved:
        snapshot.pin()
    try:
        yield
    except BaseException:
        for keeper, values in zip(keepers, before):
            vars(keeper).update(values)
        raise
    finally:
        for snapshot in saved:
            snapshot.pin(-1)


def fitting(values: list[Any], variables: list[Any]) -> Snapshot:
    """The values of a durable commit as what was saved last of a state with these variables.

    Raises:
        InvalidArgumentError: they are those of others.
    """
    shapes, wanted = ([tuple(getattr(each, "shape", ())) for each in several] for several in (values, variables))
    if shapes != wanted:
        raise InvalidArgumentError(
            f"it has {len(values)} variables, this state has {len(variables)}, or they have other shapes"
        )
    return Snapshot.holding(values)


def forget_passes(optimizer: Any) -> None:
    """A distributed optimizer begins a whole step again: what it has added up belongs to a step that failed, and to
    other passes than those of ranks that have just come. Any other has nothing to forget."""
    reset = getattr(getattr(optimizer, "_hvd_reduction", None), "reset", None)
    if reset is not None:
        reset()
