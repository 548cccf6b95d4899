"""From checked arguments to the engine: op structs, names, refusals, and the reuse of all that for a name seen before.

`Prepared` is a submission whose structs are filled in but for the addresses; `reductions` and `movements` keep one per
set of arguments, so that a repeated named operation costs a few attribute writes and one call. This file knows tensors
only as (dtype number, shape, address).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final, NoReturn, Optional

from horovod._core import handles, session, waiting
from horovod._core.engine_port import IN_PROGRESS, OK, OP_NAMES
from horovod._core.errors import HorovodError, InvalidArgumentError
from horovod._core.process_sets import ProcessSet, listed
from horovod._native import abi

_BATCH: Final = 0  # flags of hvd_submit: the caller does not wait at once
_WILL_WAIT: Final = abi.SUBMIT_WILL_WAIT  # it does, and drives the engine meanwhile


def full_name(op_type: int, name: Optional[str]) -> str:
    """The name that is negotiated: "allreduce.NAME"; empty for an unnamed operation, which the engine counts per
    process set and operation."""
    if name is None or name == "":
        return ""
    if not isinstance(name, str) or "\0" in name:
        raise InvalidArgumentError(f"name must be a text without NUL characters. Received: {name!r}.")
    return f"{OP_NAMES[op_type]}.{name}"


def member_names(base: str, n: int) -> list[str]:
    """Names of a group's tensors: "BASE_1of3", ...; of an unnamed group: all empty."""
    return [base and f"{base}_{i}of{n}" for i in range(1, n + 1)]


def member_set(current: session.Session, process_set: Any) -> int:
    """The id of a process set that this rank belongs to.

    Raises:
        InvalidArgumentError: not a ProcessSet, not registered, or this rank is no member.
    """
    if not isinstance(process_set, ProcessSet):
        raise InvalidArgumentError(f"process_set must be an hvd.ProcessSet. Received: {process_set!r}.")
    number = process_set.process_set_id
    if number is None or process_set.ranks is None:
        raise InvalidArgumentError(
            f"{process_set} is not registered. Give it to hvd.init(process_sets=[...]) or call hvd.add_process_set on "
            "all ranks."
        )
    if number != 0 and current.rank not in process_set.ranks:
        raise InvalidArgumentError(
            f"Rank {current.rank} is not a member of process set {number} (ranks {listed(process_set.ranks)}) and "
            "cannot take part in its operations."
        )
    return number


def refuse(
    current: session.Session, op_type: int, process_set: int, names: Sequence[str], error: HorovodError
) -> NoReturn:
    """Raises `error` here, after telling the other members that this rank will not take part, so that they fail with
    the reason instead of waiting."""
    # The others' message names the operation itself.
    reason = str(error)
    if reason.startswith(f"{OP_NAMES[op_type]} '"):
        reason = reason.partition("': ")[2] or reason
    # A named group fails as a whole with its first tensor; a refusal of the others would wait for the next group of
    # that name. Unnamed operations are counted: each must have its number, and never comes again.
    for name in names[:1] if names[0] else names:
        try:
            current.engine.refuse(op_type, process_set, name, reason)
        except HorovodError as failure:
            # The engine has failed already: then the others know more important news.
            raise error from failure
    raise error


class Prepared:
    """A submission of one tensor or a group, complete but for the tensors' addresses.

    Attributes:
        stamp: the session's stamp under which this is valid.
        session: the session.
        first: the op struct of the first tensor (all of them: `members`).
        dtypes, shapes: the framework's own, for `Adapter.address_if`; of the first tensor.
        member_keys: (dtype, shape) of each tensor.
        address, n: of the op structs.
        handle: where the engine writes the handle; `handle_address` points there.
        what: for messages.
        placed, placed_bytes: of a result that is not of the input's shape: what the caller may give memory for. None:
            the core allocates it.
    """

    __slots__ = (
        "_keep", "address", "dtype", "first", "handle", "handle_address", "member_keys", "members", "n", "placed",
        "placed_bytes", "run", "session", "shape", "stamp", "what",
    )  # fmt: skip

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
        self.placed: Optional[tuple[int, ...]] = None
        self.placed_bytes = 0
        self._keep = (block, members)

    def remember(self, keys: list[tuple[Any, Any]]) -> None:
        """Notes what `Adapter.address_if` compares with when this is used again."""
        self.member_keys = keys
        self.dtype, self.shape = keys[0]

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
            status = self.run(self.address, self.n, waiting.SLICE_S, self.handle_address)
        except BaseException:
            self.rescue(keep)
            raise
        if status != OK:
            self.go_on(status, keep)

    def run_placed(self, keep: Any, finisher: handles.Finisher) -> Any:
        """Submits and waits; for a result of which the caller gave memory that may be of the wrong size.

        Returns:
            None: the result is in that memory. Otherwise what the finisher made of the engine's.

        Raises:
            HorovodError: the operation failed.
        """
        try:
            status = self.run(self.address, self.n, waiting.SLICE_S, self.handle_address)
            number = self.handle.value
            if status == OK and not number:
                return None
        except BaseException:
            self.rescue(keep)
            raise
        if status not in (OK, IN_PROGRESS):
            raise self.session.engine.error(status)
        pending = handles.Pending(self.session, number, self.what, keep, None, finisher)
        self.handle.value = 0
        return handles.finish(pending)

    def go_on(self, status: int, keep: Any) -> None:
        """After a `run` that did not succeed at once: waits on, or raises."""
        if status != IN_PROGRESS:
            raise self.session.engine.error(status)
        pending = handles.Pending(self.session, self.handle.value, self.what, keep, None)
        self.handle.value = 0
        handles.finish(pending)

    def rescue(self, keep: Any) -> None:
        """After an exception in the middle of a call: if the engine has the operation, its tensors stay alive until it
        is done."""
        number = self.handle.value
        self.handle.value = 0
        if number:
            handles.abandon(handles.Pending(self.session, number, self.what, keep, None))


def op_struct(op_type: int, process_set: int, name: str, dtype: int, shape: Sequence[int], root: int = 0) -> abi.HvdOp:
    """An hvd_op without addresses; factors are 1."""
    op = abi.HvdOp()
    op.type = op_type
    op.dtype = dtype
    op.root_rank = root
    op.process_set = process_set
    op.ndim = len(shape)
    op.prescale = 1.0
    op.postscale = 1.0
    op.name = name.encode()
    op.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    return op
