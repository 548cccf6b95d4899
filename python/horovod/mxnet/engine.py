"""Collectives that MXNet's engine runs: behind what makes their arrays, before what reads them, several at once.

`prepared` has the core's collectives, which check and describe an operation; `push` gives it to the engine and returns
at once. A failure is MXNet's: what depends on the results is left out, and a wait for one of them raises an MXNetError
with the text (`failures`).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, Optional

from mxnet.base import _LIB, check_call

from horovod._core.errors import InvalidArgumentError, ResourceError
from horovod._core.life import engine_start, handles, session, waiting
from horovod._core.life.engine_port import IN_PROGRESS, OK, REDUCESCATTER
from horovod._core.operations import checks
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.submission import Call, checked_name, full_name, meant_set, member_names, refuse
from horovod._core.operations.tensor_locations import Located
from horovod._core.tensors import dtypes
from horovod._native import abi
from horovod.mxnet.adapter import adapter
from horovod.mxnet.adapter import handles as handle_adapter

__all__ = ["named", "prepared", "push", "push_by_way_of_new_arrays"]

_engine: Final = engine_start.mxnet_engine(_LIB)


class _Prepared(Located):
    """What is given to MXNet's engine by `push` instead of being submitted."""

    def submit(
        self,
        call: Call,
        members: Sequence[abi.HvdOp],
        keep: Any,
        result: Any,
        finisher: Optional[handles.Finisher] = None,
        waits: bool = False,
    ) -> handles.Pending:
        """See `Located.submit`. The operation is not under way yet."""
        if call.op_type == REDUCESCATTER:
            likes, _ = keep
            outputs = [self._block(call, member, one) for member, one in zip(members, self.tensors)]
            result, keep = [adapter.from_host(out, like) for out, like in zip(outputs, likes)], (keep, outputs)
            finisher = None
        pending = handles.done(result)
        pending.keep = (call, members, keep, finisher)
        return pending

    def _block(self, call: Call, member: abi.HvdOp, tensor: Any) -> Any:
        """Room for this rank's rows of a reducescatter."""
        rows, *rest = adapter.shape(tensor)
        ranks = call.session.engine.process_set_ranks(call.number)
        shape = (checks.own_rows(rows, ranks, call.session.rank), *rest)
        out = adapter.empty(shape, tensor)
        member.output = handle_adapter.address(out)
        member.output_bytes = dtypes.elements(shape) * dtypes.ITEM_BYTES[adapter.dtype(tensor)]
        return out


class _PreparedCollectives(Collectives):
    """Their `_start_...` methods prepare an operation for `push`."""

    def _locate(self, tensors: list[Any]) -> Located:
        located = super()._locate(tensors)
        return _Prepared(located.tensors, located.copied)


prepared: Final = _PreparedCollectives(handle_adapter)


def push(pending: handles.Pending, priority: int) -> Any:
    """Gives a prepared operation to MXNet's engine.

    Waits while an operation of the same name is under way, because the ranks could not tell them apart.

    Returns:
        Its results, which are ready later.
    """
    if pending.keep is None:  # a group without tensors
        return pending.result
    call, members, _, finisher = pending.keep
    status = IN_PROGRESS
    while status == IN_PROGRESS:
        status, failed = _engine.push(members, int(priority), waiting.SLICE_S)
    if status != OK:
        raise ResourceError(f"{call.what}: there is no memory for the request.")
    check_call(failed)
    # Copies back to a device are MXNet's operations, too: they come behind.
    return pending.result if finisher is None else finisher(call.session, 0)


def push_by_way_of_new_arrays(pending: handles.Pending, tensors: Sequence[Any], priority: int) -> None:
    """`push` of a group in place, whose arrays may be views of one memory: an operation of MXNet's engine that writes
    the same memory twice would wait for itself."""
    if pending.keep is None:
        return
    call, members, keep, finisher = pending.keep
    if finisher is None:
        outputs = [adapter.empty_like(tensor) for tensor in tensors]
        for member, output in zip(members, outputs):
            member.output = handle_adapter.address(output)
        pending.keep = (call, members, (keep, outputs), lambda owner, handle: outputs)
    for tensor, result in zip(tensors, push(pending, priority)):
        adapter.copy_into(tensor, result)


_counts: defaultdict[tuple[int, int], Iterator[int]] = defaultdict(lambda: itertools.count(1))
_counted_for: Optional[session.Session] = None


def named(name: Optional[str], op_type: int, process_set: Any, n: Optional[int] = None) -> str:
    """The name of an operation: one without is counted when it is called, because the engine may run two in another
    order on another rank. n: of the tensors of a group.

    Raises:
        InvalidArgumentError: it is no name. The other members learn of it if they have given none.
    """
    global _counted_for
    try:
        own = checked_name(name)
        error = None
    except InvalidArgumentError as failure:
        own, error = "", failure
    if own:
        return own
    current = session.require()
    if _counted_for is not current:
        _counts.clear()
        _counted_for = current
    number = meant_set(current, process_set)
    own = f"unnamed.{next(_counts[op_type, number])}"
    if error is not None:
        base = full_name(op_type, own)
        refuse(current, op_type, number, [base] if n is None else member_names(base, n), error)
    return own
