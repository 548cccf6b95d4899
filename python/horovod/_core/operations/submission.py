"""What is submitted and under which names: op structs, the calls that they belong to, refusals; and how.

This file knows tensors only as (dtype number, shape, address).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final, NoReturn, Optional, Union

from horovod._core.errors import HorovodError, InvalidArgumentError
from horovod._core.life import handles, session, waiting
from horovod._core.life.engine_port import IN_PROGRESS, OK, OP_NAMES
from horovod._core.life.process_sets import ProcessSet, listed
from horovod._native import abi

_BATCH: Final = 0  # flags of hvd_submit: the caller does not wait at once
_WILL_WAIT: Final = abi.SUBMIT_WILL_WAIT  # it does, and drives the engine meanwhile


def full_name(op_type: int, name: Optional[str]) -> str:
    """The name that is negotiated: "allreduce.NAME"; empty for an unnamed operation, which the engine counts per
    process set and operation."""
    own = checked_name(name)
    return own and f"{OP_NAMES[op_type]}.{own}"


def checked_name(name: Any) -> str:
    """A name as a user may give it; empty for None.

    Raises:
        InvalidArgumentError: it is not a text, or not one that UTF-8 can hold.
    """
    if name is None or name == "":
        return ""
    if not isinstance(name, str) or "\0" in name or not _encodable(name):
        raise InvalidArgumentError(
            f"name must be a text without NUL characters that UTF-8 can hold. Received: {name!r}."
        )
    return name


def _encodable(text: str) -> bool:
    """False for half of a pair of surrogates, as file names of another encoding become in Python."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def called(op_type: int, name: Any) -> str:
    """The operation as messages call it: "allreduce 'NAME'"."""
    return f"{OP_NAMES[op_type]} '{name}'" if name else OP_NAMES[op_type]


def member_names(base: str, n: int) -> list[str]:
    """Names of a group's tensors: "BASE_1of3", ...; of an unnamed group: all empty."""
    return [base and f"{base}_{i}of{n}" for i in range(1, n + 1)]


def member_set(current: session.Session, process_set: Any) -> int:
    """The id of a process set that this rank belongs to.

    Raises:
        InvalidArgumentError: not a ProcessSet, not registered, or this rank is not a member.
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
            f"Rank {current.rank} is not a member of process set {number} ({listed(process_set.ranks)}) and "
            "cannot take part in its operations."
        )
    return number


def refuse(
    current: session.Session, op_type: int, process_set: int, names: Sequence[str], error: Exception
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


def submit(pending: handles.Pending, members: Sequence[abi.HvdOp], waits: bool = False) -> handles.Pending:
    """Submits one operation or a group.

    Args:
        pending: for it, without a handle.
        members: with their addresses.
        waits: the caller is going to `handles.finish` it at once; it may be done when this returns.

    Raises:
        HorovodError: the engine refused, or (with `waits`) the operation failed.
    """
    n, engine, handle = len(members), pending.session.engine, ctypes.c_int64(0)
    ops = members[0] if n == 1 else (abi.HvdOp * n)(*members)
    try:
        if waits and pending.finisher is None:
            status = engine.run(ctypes.addressof(ops), n, waiting.SLICE_S, ctypes.addressof(handle))
        else:
            flags = _WILL_WAIT if waits else _BATCH
            status = engine.submit(ctypes.addressof(ops), n, flags, ctypes.addressof(handle))
        pending.handle = handle.value
    except BaseException:
        # A signal handler raised just after the engine had taken the operation.
        pending.handle = handle.value
        if pending.handle:
            handles.abandon(pending)
        raise
    if status not in (OK, IN_PROGRESS):
        raise engine.error(status)
    return pending


class Call:
    """One call on its way: where it goes and under which names, so that a refusal reaches the other members.

    Args:
        op_type: hvd_op_type.
        process_set: as the user gave it.
        name: as the user gave it; a tuple names each tensor of a group.
        n: number of tensors; None for a single one that is no group.

    Raises:
        NotInitializedError: no session.
        InvalidArgumentError: this rank is not in the set, or the name or the set is invalid. The other members learn
            of it where the names that they wait under can be guessed.
    """

    __slots__ = ("names", "number", "op_type", "session", "stamp", "what")

    def __init__(
        self, op_type: int, process_set: Any, name: Union[None, str, tuple[str, ...]], n: Optional[int] = None
    ) -> None:
        self.stamp = session.stamp  # before the rest: what changes meanwhile makes this call stale
        self.session = session.require()
        self.op_type = op_type
        try:
            self.names = _names(op_type, name, n)
        except InvalidArgumentError as error:
            refuse(self.session, op_type, meant_set(self.session, process_set), _names(op_type, None, n), error)
        try:
            self.number = member_set(self.session, process_set)
        except InvalidArgumentError as error:
            if isinstance(process_set, ProcessSet):
                raise  # no member waits for this rank, or none can have registered the set
            refuse(self.session, op_type, meant_set(self.session, process_set), self.names, error)
        self.what = called(op_type, f"{name[0]}' and {len(name) - 1} more" if isinstance(name, tuple) else name)

    def __enter__(self) -> Call:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """A check in the body failed on this rank: tells the other members, then lets the error through."""
        if isinstance(error, Exception):  # the framework's own too: a copy to the host may fail
            refuse(self.session, self.op_type, self.number, self.names, error)


def _names(op_type: int, name: Union[None, str, tuple[str, ...]], n: Optional[int]) -> list[str]:
    """Of each tensor of a call; see `Call`."""
    if isinstance(name, tuple):
        return [full_name(op_type, one) for one in name]
    base = full_name(op_type, name)
    return [base] if n is None else member_names(base, n)


def meant_set(current: session.Session, process_set: Any) -> int:
    """The number of the set that a call was probably meant for: the one given, by its object or its number, if this
    rank is in it; else the global one."""
    number = process_set.process_set_id if isinstance(process_set, ProcessSet) else process_set
    if isinstance(number, int) and number in current.engine.process_set_list():
        return number if current.rank in current.engine.process_set_ranks(number) else 0
    return 0
