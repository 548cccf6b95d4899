"""The calls that the lane repeats: all but the tensors' addresses is filled in, so that they can go again and again.

The lane fills in the addresses, and calls the methods of an entry for whatever is not a plain success. What it does not
know takes the plain way, which leaves the next entry here.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Hashable, Sequence
from typing import Any, Final, Optional

from horovod._core.life import handles, session, waiting
from horovod._core.life.engine_port import IN_PROGRESS, OK
from horovod._core.life.ordering import Ordering
from horovod._core.operations.submission import Call
from horovod._core.operations.tensor_locations import Located
from horovod._core.tensors import dtypes
from horovod._core.tensors.adapter import Adapter
from horovod._native import abi
from horovod._native.lane import Lane, LaneEntry

__all__ = ["LaneCall", "LaneCalls"]

# Programs that make up new names for ever must not fill the memory.
_MAX_CALLS: Final = 8192
# The core's own memory is better above this: other ranks of the host store into it, and some of it is kept.
_MOST_PLACED_BYTES: Final = 1 << 19


class LaneCall(LaneEntry):
    """A submission of one tensor or a group, complete but for the tensors' addresses, and the stream of a GPU's.

    Attributes:
        stamp: the session's stamp under which this is valid.
        session: the session.
        what: for messages.
        placed, placed_elements, placed_bytes: of a result that is not of the input's shape: a prototype of what the
            lane may give memory for. None: the core allocates it.
    """

    __slots__ = ("_block", "_handle", "_members")

    def __init__(self, call: Call, members: Sequence[abi.HvdOp]) -> None:
        self.stamp = call.stamp
        self.session = call.session
        self.what = call.what
        self.placed: Any = None
        self.placed_elements = self.placed_bytes = 0
        self._members = members  # which keep the names and shapes
        self._block = (abi.HvdOp * len(members))(*members)
        self._handle = ctypes.c_int64(0)
        self.arm(ctypes.addressof(self._block), len(members), ctypes.addressof(self._handle), call.session.engine.door)

    def go_on(self, status: int, keep: Any, finisher: Optional[handles.Finisher] = None) -> Any:
        """After a run that did not simply succeed: waits on, and takes what there is to take. If it raises, the caller
        must `rescue`.

        Returns:
            What the finisher makes of it.

        Raises:
            HorovodError: the operation failed.
        """
        if status not in (OK, IN_PROGRESS):
            raise self.session.engine.error(status)
        pending = handles.Pending(self.session, self._handle.value, self.what, keep, None, finisher)
        self._handle.value = 0
        return handles.finish(pending)

    def take_other(self, status: int, tensor: Any, output: Any, adapter: Adapter) -> Any:
        """After a run that has left a result to be taken, or did not simply succeed: the result, wherever it is. If it
        raises, the caller must `rescue`.

        Args:
            tensor, output: what was given to the engine. output: None if no memory was given.

        Raises:
            HorovodError: the operation failed.
        """
        address = self._block[0].output

        def finisher(owner: session.Session, handle: int) -> Any:
            block = owner.engine.take_result(handle, 0)
            if output is not None and block.address == address:
                return output
            self.placed = None  # it is not that predictable
            return adapter.wrap(block, tensor)

        if status != OK:
            return self.go_on(status, (tensor, output), finisher)
        # Nothing to wait for. As little as possible is run here: a large result has just driven Python's own code and
        # data out of the caches, and each line of them is fetched again.
        handle = self._handle
        result = finisher(self.session, handle.value)
        self.session.engine.release(handle.value)
        handle.value = 0
        return result

    def rescue(self, keep: Any) -> None:
        """After an exception in the middle of a call: if the engine has the operation, its tensors stay alive until it
        is done."""
        number = self._handle.value
        if number:
            pending = handles.Pending(self.session, number, self.what, keep, None)  # keeps them alive from here on
            self._handle.value = 0
            handles.abandon(pending)


class LaneCalls:
    """What the lane knows of the tensors of one framework.

    Args:
        adapter: answers the questions about tensors.

    Attributes:
        lane: None: there is none for this framework, or in this interpreter.
    """

    __slots__ = ("_adapter", "_table", "lane")

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._table: dict[Hashable, LaneCall] = {}
        terms = adapter.lane_terms
        self.lane: Any = None
        if Lane is not None and terms is not None:
            gpu = adapter.gpu
            on_gpus = () if gpu is None else (gpu.stream, functools.partial(Ordering, gpu))
            self.lane = Lane(
                self._table, vars(session), terms.types, terms.hides, terms.empty_like, adapter, handles.flights,
                waiting.SLICE_S, *on_gpus,
            )  # fmt: skip

    def __len__(self) -> int:
        return len(self._table)

    def remember(
        self,
        key: Hashable,
        call: Call,
        located: Located,
        members: Sequence[abi.HvdOp],
        rows: int = -1,
        elements: int = 0,
    ) -> None:
        """Keeps a call that has been submitted for tensors of the same form, where the lane can repeat it.

        Args:
            rows: of the result of a single one, if it is of another shape.
            elements: of the tensor that it goes to, if the caller gives one.
        """
        terms = self._adapter.lane_terms
        if self.lane is None or terms is None or located.copied:
            return
        if located.on_gpu and rows >= 0:  # the core allocates the result there
            return
        entry = LaneCall(call, members)
        entry.placed_elements = elements
        if rows >= 0 and len(members) == 1:
            (tensor,) = located.tensors
            shape = (rows, *self._adapter.shape(tensor)[1:])
            size = dtypes.elements(shape) * dtypes.ITEM_BYTES[self._adapter.dtype(tensor)]
            if 0 < size <= _MOST_PLACED_BYTES:
                entry.placed = terms.prototype(shape, tensor)
                entry.placed_elements, entry.placed_bytes = dtypes.elements(shape), size
        if len(self._table) >= _MAX_CALLS:
            self._table.clear()
        self._table[key] = entry

    def take(self, key: Hashable) -> Optional[LaneCall]:
        """The entry, out of the table, for a caller who has the lane repeat it."""
        try:
            return self._table.pop(key, None)
        except TypeError:  # an argument cannot be hashed: it is not a plain value
            return None
