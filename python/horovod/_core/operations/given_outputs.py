"""`GivenOutputs`: operations whose result goes into a tensor of the caller's.

Part of `collectives.Collectives`. For process groups, whose calls bring the tensors for their results: neither is the
result allocated, nor copied.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Union

from horovod._core.life import handles, session
from horovod._core.life.engine_port import ALLTOALL, REDUCESCATTER
from horovod._core.life.process_sets import ProcessSet
from horovod._core.operations import checks
from horovod._core.operations.movement_calls import MovementCalls
from horovod._core.operations.reduce_ops import ReduceOp, Sum
from horovod._core.operations.reduction_calls import ReductionCalls
from horovod._core.operations.submission import Call
from horovod._core.tensors import dtypes


class GivenOutputs(ReductionCalls, MovementCalls):
    """Allgather, alltoall and reducescatter into given tensors."""

    def begin_into(
        self,
        op_type: int,
        tensor: Any,
        output: Any,
        name: str,
        process_set: ProcessSet,
        how: Union[None, ReduceOp, Sequence[int]] = None,
    ) -> int:
        """Starts an operation. Collective.

        The output is filled if the result has exactly its bytes, and left alone if not.

        Args:
            op_type: ALLGATHER, ALLTOALL or REDUCESCATTER.
            tensor: in main memory, contiguous, with a dimension at least.
            output: the same, of the same dtype; no byte of it is the tensor's.
            name: identity of the operation, equal on all members.
            process_set: the ranks that take part.
            how: of a reducescatter: Sum or Average. Of an alltoall: rows for each member; None: equal parts.

        Returns:
            A handle; `synchronize` gives the rows from each rank for an alltoall, else the number of bytes that came.
        """
        op = how if isinstance(how, ReduceOp) else Sum
        splits = how if isinstance(how, Sequence) else None
        key = ("into", op_type, name, op, process_set, self._adapter.shape(output))
        size = len(process_set.ranks or ())

        def finisher(owner: session.Session, handle: int) -> Any:
            if op_type == ALLTOALL:
                return owner.engine.received_splits(handle, 0, size)
            return owner.engine.take_result(handle, 0).nbytes

        number = None if splits is not None else self.lane_into(key, tensor, output, finisher)
        if number is not None:
            return int(number)
        with Call(op_type, process_set, name) as call:
            if op_type == REDUCESCATTER:
                self._require_reducible(call.what, [tensor], op, (1.0, 1.0))
            else:
                checks.require_movable(call.what, self._adapter, [tensor])
            checks.require_writable(call.what, self._adapter, [output])
            rows = (
                None if op_type != ALLTOALL else self._splits(call.what, splits, self._adapter.shape(tensor)[0], size)
            )
            located = self._locate([tensor])
        (member,) = self._described(call, located.tensors)
        member.reduce_op = int(op) if op_type == REDUCESCATTER else 0
        if rows is not None:
            member.splits, member.n_splits = (ctypes.c_int32 * len(rows))(*rows), len(rows)
        elements = dtypes.elements(self._adapter.shape(output))
        if elements:
            member.output = self._adapter.address(output)
            member.output_bytes = elements * dtypes.ITEM_BYTES[self._adapter.dtype(output)]
        pending = located.submit(call, [member], (tensor, output), output, finisher)
        if rows is None and elements:
            self.lane_calls.remember(key, call, located, [member], elements=elements)
        return handles.add(pending)
