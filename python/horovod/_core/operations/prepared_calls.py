"""The calls that were made before, by their arguments."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Callable, Final, Optional

from horovod._core.life import handles, session, waiting
from horovod._core.life.engine_port import OK
from horovod._core.operations.prepared import Prepared
from horovod._core.tensors import dtypes
from horovod._core.tensors.adapter import Adapter
from horovod._native.lane import Lane

__all__ = ["PreparedCalls"]

# Programs that make up new names for ever must not fill the memory.
_MAX_PREPARED: Final = 8192
# The core's own memory is better above this: it asks for large pages and keeps some of them.
_MOST_PLACED_BYTES: Final = 1 << 20


class PreparedCalls:
    """The calls that were made before with tensors of one framework, by their arguments.

    An entry is taken out while it is in use, so that two threads never share one. What finds no entry that fits the
    tensors and the session answers None (or False): then the call has to be prepared.

    Args:
        adapter: answers the questions about tensors.

    Attributes:
        lane: runs what is prepared faster than `run_in_place`, `run_alike` and `run_placed`, which it has too; its
            "no" is not the last word. None: there is none for this framework, or in this interpreter.
    """

    __slots__ = ("_adapter", "_table", "lane")

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._table: dict[Hashable, Prepared] = {}
        self.lane = self._make_lane()

    def __len__(self) -> int:
        return len(self._table)

    def take(self, key: Hashable) -> Optional[Prepared]:
        """The entry, for the caller's sole use."""
        try:
            ready = self._table.pop(key, None)
        except TypeError:  # an argument that cannot be hashed will be refused, with its name
            return None
        # What the lane runs for another thread it has not taken out.
        return ready if ready is not None and ready.stamp is session.stamp and not ready.busy else None

    def keep(self, key: Hashable, ready: Prepared) -> None:
        """For the next call with these arguments."""
        if len(self._table) >= _MAX_PREPARED:
            self._table.clear()
        self._table[key] = ready

    def remember(self, key: Hashable, ready: Prepared, tensors: Sequence[Any], rows: int = -1) -> None:
        """Keeps it for tensors of the form of these. rows: of the result of a single one, if it is of another shape."""
        adapter = self._adapter
        ready.remember([adapter.key(tensor) for tensor in tensors], adapter)
        if rows >= 0 and len(tensors) == 1 and not ready.on_gpu:
            shape = (rows, *adapter.shape(tensors[0])[1:])
            size = dtypes.elements(shape) * dtypes.ITEM_BYTES[adapter.dtype(tensors[0])]
            if 0 < size <= _MOST_PLACED_BYTES:
                ready.placed = adapter.prototype(shape, tensors[0])
                ready.placed_elements, ready.placed_bytes = dtypes.elements(shape), size
        self.keep(key, ready)

    def aim(self, ready: Prepared, tensor: Any) -> bool:
        """Points an operation of one tensor at it, in place. False: it does not fit the tensor or the session."""
        if ready.stamp is not session.stamp or ready.busy:
            return False
        address = ready.address_if(tensor, ready.dtype, ready.shape)
        if address < 0:
            return False
        first = ready.first
        first.input = first.output = address
        return True

    def run_in_place(self, key: Hashable, tensor: Any) -> bool:
        """Runs an operation of one tensor in place."""
        ready = self._take_aimed(key, tensor)
        if ready is None:
            return False
        ready.run_now(tensor)
        self._table[key] = ready  # not before: it holds the handle
        return True

    def run_alike(self, key: Hashable, tensor: Any) -> Any:
        """Runs an operation whose result is of the tensor's form: the result."""
        ready = self._take_aimed(key, tensor)
        if ready is None:
            return None
        output = self._adapter.empty_like(tensor)
        ready.first.output = self._adapter.address(output)
        ready.run_now((tensor, output))
        self._table[key] = ready
        return output

    def run_placed(self, key: Hashable, tensor: Any) -> Any:
        """Runs an operation whose result is not of the tensor's form: the result. A small one, probably as long as the
        last one, lies in memory of the framework's."""
        ready = self._take_aimed(key, tensor)
        if ready is None:
            return None
        adapter, first = self._adapter, ready.first
        output = None if ready.placed is None else adapter.empty_like(ready.placed)
        if output is None:
            first.output = None  # the core's memory
        else:
            first.output, first.output_bytes = adapter.address(output), ready.placed_bytes
        given = output
        try:
            status = ready.run_once()
            first.output_bytes = 0
            if given is None or status != OK or ready.handle.value:
                output = ready.take_other(status, tensor, given, adapter)
        except BaseException:  # a signal handler's, for one
            ready.rescue((tensor, given))
            raise
        self._table[key] = ready
        return output

    def submit_in_place(self, key: Hashable, tensor: Any) -> Optional[handles.Pending]:
        """Submits an operation of one tensor in place."""
        ready = self._take_aimed(key, tensor)
        if ready is None:
            return None
        pending = ready.submit(tensor, tensor)
        self._table[key] = ready
        return pending

    def submit_alike(
        self, key: Hashable, tensors: Sequence[Any], in_place: bool, single: bool, waits: bool
    ) -> Optional[handles.Pending]:
        """Submits an operation whose results are of the tensors' forms. None also if a group is to be changed in place
        and holds a tensor twice."""
        if self.lane is not None:
            pending: Optional[handles.Pending] = self.lane.start_alike(key, tensors, in_place, single, waits)
            if pending is not None:
                return pending
        ready = self._take_filled(key, tensors)
        if ready is None or (in_place and not single and _repeats(ready)):
            return None
        outputs = tensors
        if in_place:
            for member in ready.members:
                member.output = member.input
        else:
            outputs = [self._adapter.empty_like(tensor) for tensor in tensors]
            for member, output in zip(ready.members, outputs):
                member.output = self._adapter.address(output)
        pending = ready.submit((tensors, outputs), outputs[0] if single else outputs, None, waits)
        self._table[key] = ready
        return pending

    def submit_allocated(
        self, key: Hashable, tensors: Sequence[Any], finisher_for: Callable[[bool], handles.Finisher], waits: bool
    ) -> Optional[handles.Pending]:
        """Submits an operation whose results the core allocates. finisher_for: makes what takes them, of whether they
        lie on the GPU."""
        ready = self._take_filled(key, tensors)
        if ready is None:
            return None
        pending = ready.submit(tensors, None, finisher_for(ready.on_gpu), waits)
        self._table[key] = ready
        return pending

    def _make_lane(self) -> Any:
        terms = self._adapter.lane_terms
        if Lane is None or terms is None:
            return None
        return Lane(self._table, vars(session), *terms, self._adapter, handles.flights, waiting.SLICE_S)

    def _take_aimed(self, key: Hashable, tensor: Any) -> Optional[Prepared]:
        """The entry with one tensor as its input and output."""
        try:
            ready = self._table.pop(key, None)
        except TypeError:  # as in `take`
            return None
        return ready if ready is not None and self.aim(ready, tensor) else None

    def _take_filled(self, key: Hashable, tensors: Sequence[Any]) -> Optional[Prepared]:
        """The entry with the tensors as its inputs."""
        ready = self.take(key)
        if ready is None:
            return None
        for member, tensor, (dtype, shape) in zip(ready.members, tensors, ready.member_keys):
            address = ready.address_if(tensor, dtype, shape)
            if address < 0:
                return None
            member.input = address
        return ready


def _repeats(ready: Prepared) -> bool:
    """True if two of a group's tensors lie at the same address."""
    addresses = [member.input for member in ready.members if member.input]
    return len(set(addresses)) != len(addresses)
