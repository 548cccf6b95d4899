"""One call that is ready to go: all but the tensors' addresses is filled in, so that it can go again and again.

`prepared_calls` keeps those that were made before. A repeated operation costs a few attribute writes and one call of
the engine; the lane makes both where it can.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Callable, Final, Optional

from horovod._core.life import handles, session, waiting
from horovod._core.life.engine_port import IN_PROGRESS, OK
from horovod._core.tensors.adapter import Adapter
from horovod._native import abi
from horovod._native.lane import LaneEntry

__all__ = ["Prepared"]

_BATCH: Final = 0  # flags of hvd_submit: the caller does not wait at once
_WILL_WAIT: Final = abi.SUBMIT_WILL_WAIT  # it does, and drives the engine meanwhile


class Prepared(LaneEntry):
    """A submission of one tensor or a group, complete but for the tensors' addresses.

    Attributes:
        stamp: the session's stamp under which this is valid.
        session: the session.
        first: the op struct of the first tensor (all of them: `members`).
        dtypes, shapes: the framework's own, for `Adapter.address_if`; of the first tensor.
        member_keys: (dtype, shape) of each tensor.
        address_if: (tensor, dtype, shape) -> its address if it is of this form and lies where the others did.
        on_gpu: they lie on this process' GPU.
        address, n: of the op structs.
        handle: where the engine writes the handle; `handle_address` points there.
        what: for messages.
        placed, placed_elements, placed_bytes: of a result that is not of the input's shape: a prototype of what the
            caller may give memory for. None: the core allocates it.
    """

    __slots__ = (
        "_keep", "address", "address_if", "dtype", "first", "handle", "handle_address", "member_keys", "members", "n",
        "run", "shape",
    )  # fmt: skip
    on_gpu = False

    def __init__(self, current: session.Session, what: str, members: Sequence[abi.HvdOp]) -> None:
        n = len(members)
        block = (abi.HvdOp * n)(*members)
        self.stamp = session.stamp
        self.session = current
        self.run = current.engine.run
        self.members = [block[i] for i in range(n)]
        self.first = self.members[0]
        self.address = ctypes.addressof(block)
        self.n = n
        self.handle = ctypes.c_int64(0)
        self.handle_address = ctypes.addressof(self.handle)
        self.what = what
        self.member_keys: list[tuple[Any, Any]] = []
        self.dtype: Any = None
        self.shape: Any = None
        self.placed: Any = None
        self.placed_elements = self.placed_bytes = 0
        self._keep = (block, members)
        self.arm(self.address, n, self.handle_address, current.engine.door)

    def remember(self, keys: list[tuple[Any, Any]], adapter: Adapter) -> None:
        """Notes what the tensors are compared with when this is used again."""
        self.member_keys = keys
        self.dtype, self.shape = keys[0]
        self.address_if = self._address_if(adapter)

    def submit(
        self, keep: Any, result: Any, finisher: Optional[handles.Finisher] = None, waits: bool = False
    ) -> handles.Pending:
        """Submits with the addresses as they are now.

        Args:
            keep: the tensors, kept alive until the operation is done.
            result, finisher: see `handles.Pending`.
            waits: the caller is going to `handles.finish` it at once; it may be done when this returns.

        Raises:
            HorovodError: the engine refused, or (with `waits`) the operation failed.
        """
        handle = self.handle
        handle.value = 0
        try:
            if waits and finisher is None:
                status = self.run(self.address, self.n, waiting.SLICE_S, self.handle_address)
            else:
                flags = _WILL_WAIT if waits else _BATCH
                status = self.session.engine.submit(self.address, self.n, flags, self.handle_address)
            number = handle.value
            pending = handles.Pending(self.session, number, self.what, keep, result, finisher)
        except BaseException:
            # A signal handler raised just after the engine had taken the operation.
            self.rescue(keep)
            raise
        if status not in (OK, IN_PROGRESS):
            raise self.session.engine.error(status)
        return pending

    def run_now(self, keep: Any) -> None:
        """Submits and waits; for operations whose outputs the caller gives.

        Raises:
            HorovodError: the operation failed.
        """
        try:
            status = self.run_once()
            if status != OK:
                self.go_on(status, keep)
        except BaseException:  # a signal handler's: before the handle was taken
            self.rescue(keep)
            raise

    def run_once(self) -> int:
        """Submits and waits for a slice of time: a raw status. `handle` is not 0 if there is something to wait for, or
        to take. Whatever is raised from here on until that is done, the caller must `rescue` the tensors."""
        return self.run(self.address, self.n, waiting.SLICE_S, self.handle_address)

    def go_on(self, status: int, keep: Any, finisher: Optional[handles.Finisher] = None) -> Any:
        """After a `run_once` that did not simply succeed: waits on, and takes what there is to take. If it raises, the
        caller must `rescue`.

        Returns:
            What the finisher makes of it.

        Raises:
            HorovodError: the operation failed.
        """
        if status not in (OK, IN_PROGRESS):
            raise self.session.engine.error(status)
        pending = handles.Pending(self.session, self.handle.value, self.what, keep, None, finisher)
        self.handle.value = 0
        return handles.finish(pending)

    def take_other(self, status: int, tensor: Any, output: Any, adapter: Adapter) -> Any:
        """After a `run_once` that has left a result to be taken, or did not simply succeed: the result, wherever it is.
        If it raises, the caller must `rescue`.

        Args:
            tensor, output: what was given to the engine; `first.output` is the output's address. None: no memory was
                given.

        Raises:
            HorovodError: the operation failed.
        """
        address = self.first.output

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
        handle = self.handle
        result = finisher(self.session, handle.value)
        self.session.engine.release(handle.value)
        handle.value = 0
        return result

    def _address_if(self, adapter: Adapter) -> Callable[[Any, Any, Any], int]:
        return adapter.address_if

    def rescue(self, keep: Any) -> None:
        """After an exception in the middle of a call: if the engine has the operation, its tensors stay alive until it
        is done."""
        number = self.handle.value
        if number:
            pending = handles.Pending(self.session, number, self.what, keep, None)  # keeps them alive from here on
            self.handle.value = 0
            handles.abandon(pending)
