"""What a training keeps so that it can go on after a failure or a change of hosts: `State` and `ObjectState`.

Framework modules derive their states from these. A state saves in memory, restores, and synchronises from rank 0; it
runs no loop.
"""

from __future__ import annotations

import contextlib
import copy
import queue
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from horovod._core.errors import HostsUpdatedInterrupt
from horovod._core.life import membership
from horovod._core.training.elastic.notification import HostUpdateResult, notification_manager

__all__ = ["ObjectState", "State", "forget_passes", "whole_or_not"]


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

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Functions to call, in this order, after each re-initialisation (to scale the learning rate, say)."""
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
        self.check_host_updates()

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
        # All ranks take rank 0's view: it alone may have heard, and all must raise in the same step.
        previous, self._last_updated_timestamp, update_res = self._bcast_object((previous, latest, update_res))
        if self._last_updated_timestamp > previous:
            raise HostsUpdatedInterrupt(skip_sync=update_res == HostUpdateResult.removed)

    def save(self) -> None:
        """Remembers the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Takes back all changes since the last `save`."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes the state equal on all ranks; rank 0 has the truth. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapts to a new set of ranks; called by `on_reset`."""

    def _keepers(self) -> list[Any]:
        """The objects whose attributes hold what is saved. `save` gives them new values, and changes none in place."""
        return [self]


class ObjectState(State):
    """Picklable values as attributes.

    `save` makes a deep copy, so that changes inside a list or dictionary are rolled back too.

    Args:
        bcast_object, get_rank: as of `State`.
        **kwargs: each becomes an attribute of this name.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state: dict[str, Any] = kwargs
        self._set_attributes(kwargs)
        self._saved_state = copy.deepcopy(kwargs)

    def save(self) -> None:
        self._saved_state = copy.deepcopy({name: getattr(self, name) for name in self._saved_state})

    def restore(self) -> None:
        # A copy, so that what was saved can be restored again.
        self._set_attributes(copy.deepcopy(self._saved_state))

    def sync(self) -> None:
        if self._saved_state:
            self.save()
            self._saved_state = self._bcast_object(self._saved_state)
            self.restore()

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
    try:
        yield
    except BaseException:
        for keeper, values in zip(keepers, before):
            vars(keeper).update(values)
        raise


def forget_passes(optimizer: Any) -> None:
    """A distributed optimizer begins a whole step again: what it has added up belongs to a step that failed, and to
    other passes than those of ranks that have just come. Any other has nothing to forget."""
    reset = getattr(getattr(optimizer, "_hvd_reduction", None), "reset", None)
    if reset is not None:
        reset()
