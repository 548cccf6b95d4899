"""How an allreduce or reducescatter is checked and submitted; the public methods on top are in `reductions`.

The lane finds a call that was made before by its arguments as a plain tuple, the cheapest thing to make; any other goes
on as `ReduceArguments`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Optional

from horovod._core.life import handles
from horovod._core.life.engine_port import ALLREDUCE, REDUCESCATTER
from horovod._core.operations import checks, reduce_ops
from horovod._core.operations.reduce_ops import ReduceOp
from horovod._core.operations.submission import Call
from horovod._core.operations.tensor_operations import TensorOperations
from horovod._core.tensors.compression import check_compressor, is_compressor
from horovod._native import abi

# The fields of ReduceArguments, in their order.
ReduceKey = tuple[Any, Any, Any, Any, Any, Any]


class ReduceArguments(NamedTuple):
    """What a user says of a reduction, unchecked; the lane's key as well.

    Args:
        name: identity of the operation; of a group also a tuple of its members' names.
        average, op, prescale, postscale, process_set: as of `Reductions.allreduce`.
    """

    name: Any
    average: Any
    op: Any
    prescale: Any
    postscale: Any
    process_set: Any

    @property
    def is_plain(self) -> bool:
        """True if these are values. A tensor or array would be a key by identity, or none at all; and of `average` the
        user is warned every time."""
        if self.average is not None or not (self.op is None or isinstance(self.op, int)):
            return False
        return type(self.prescale) in (int, float) and type(self.postscale) in (int, float)

    def resolved(self) -> tuple[ReduceOp, tuple[float, float]]:
        """The operation and its factors.

        Raises:
            InvalidArgumentError: there is no such operation, or a factor is not a number.
        """
        op = reduce_ops.resolve(self.op, self.average)
        prescale = checks.factor("prescale_factor", self.prescale)
        return op, (prescale, checks.factor("postscale_factor", self.postscale))


class ReductionCalls(TensorOperations):
    """The private half of `Reductions`."""

    def start_allreduce(self, tensors: list[Any], arguments: ReduceArguments, single: bool) -> handles.Pending:
        """Submits an allreduce in place, of one tensor or of a group. For `training.reducer`, which waits by itself."""
        return self._start_allreduce(tensors, True, arguments, single)

    def _start_allreduce(
        self, tensors: list[Any], in_place: bool, key: ReduceKey, single: bool = True, waits: bool = False
    ) -> handles.Pending:
        """Submits an allreduce of one tensor (`single`) or of a group. `waits`: see `submission.submit`."""
        if not tensors and not single:
            return handles.done([])
        # The length tells a group from one of other tensors under its name.
        known: Hashable = key if single else (key, len(tensors))
        pending: Optional[handles.Pending] = self._lane_start(known, tensors, in_place, single, waits)
        if pending is not None:
            return pending
        arguments = ReduceArguments(*key)
        if not in_place:
            tensors = list(map(self._taken, tensors))
        with Call(ALLREDUCE, arguments.process_set, arguments.name, None if single else len(tensors)) as call:
            op, factors = arguments.resolved()
            reduce_ops.check_members(op, call.number, call.session.size)
            self._require_reducible(call.what, tensors, op, factors)
            if in_place:
                checks.require_writable(call.what, self._adapter, tensors)
                if not single:
                    checks.require_distinct(call.what, self._adapter, tensors)
            located = self._locate(tensors)
        given = located.tensors
        # A copy in the host's memory is ours, to be overwritten; what lay there already is the caller's.
        outputs = [
            one if in_place or one is not tensor else self._adapter.empty_like(tensor)
            for one, tensor in zip(given, tensors)
        ]
        members = self._op_structs(call, given, op, factors)
        for member, one, output in zip(members, given, outputs):
            member.output = member.input if output is one else self._adapter.address(output)
        results = tensors if in_place else outputs
        result = results[0] if single else results
        finisher = self._staging_finisher(tensors, outputs, in_place, single) if located.copied else None
        pending = located.submit(call, members, (tensors, given, outputs), result, finisher, waits)
        if arguments.is_plain:
            self.lane_calls.remember(known, call, located, members)
        return pending

    def _start_reducescatter(
        self, tensors: list[Any], key: ReduceKey, single: bool = True, waits: bool = False
    ) -> handles.Pending:
        """Submits a reducescatter of one tensor (`single`) or of a group; the core allocates the results."""
        if not tensors and not single:
            return handles.done([])
        tensors = list(map(self._taken, tensors))
        asked = ReduceArguments(*key)
        with Call(REDUCESCATTER, asked.process_set, asked.name, None if single else len(tensors)) as call:
            op, factors = asked.resolved()
            reduce_ops.check_linear(call.what, op)
            self._require_reducible(call.what, tensors, op, factors)
            checks.require_rows(call.what, (len(self._adapter.shape(tensor)) for tensor in tensors))
            located = self._locate(tensors)
        members = self._op_structs(call, located.tensors, op, factors)
        finisher = self._finisher(tensors, single, located.on_gpu)
        pending = located.submit(call, members, (tensors, located.tensors), None, finisher, waits)
        if single and asked.is_plain:
            rows = self._adapter.shape(tensors[0])[0]
            own = checks.own_rows(rows, asked.process_set.ranks, call.session.rank)
            self.lane_calls.remember(("reducescatter", key), call, located, members, own)
        return pending

    def _op_structs(
        self, call: Call, tensors: Sequence[Any], reduce_op: ReduceOp, factors: tuple[float, float]
    ) -> list[abi.HvdOp]:
        members = self._described(call, tensors)
        for member in members:
            member.reduce_op = int(reduce_op)
            member.prescale, member.postscale = factors
        return members

    def _tensors(
        self, op_type: int, given: list[Any], compression: Any, name: Any, process_set: Any, single: bool = True
    ) -> list[Any]:
        """What was given, as tensors, before they are compressed. Other members learn of a value that is not a tensor,
        and of a compressor that is none, as of any bad argument."""
        owns, is_right = self._adapter.owns, is_compressor(compression)
        if is_right and all(map(owns, given)):
            return given
        tensors = [self._taken(value) for value in given]
        if not is_right or not all(map(owns, tensors)):
            with Call(op_type, process_set, name, None if single else len(tensors)) as call:
                checks.require_tensors(call.what, self._adapter, tensors)
                check_compressor(compression)
        return tensors

    def _require_reducible(self, what: str, tensors: Sequence[Any], op: ReduceOp, factors: tuple[float, float]) -> None:
        checks.require_movable(what, self._adapter, tensors)
        checks.require_reducible(op, self._adapter, tensors, factors)

    def _staging_finisher(self, tensors: list[Any], hosts: list[Any], in_place: bool, single: bool) -> handles.Finisher:
        """After an allreduce in host copies: the results back on the tensors' devices."""
        adapter = self._adapter

        def finisher(owner: object, handle: int) -> Any:
            if not in_place:
                results = [adapter.from_host(host, tensor) for host, tensor in zip(hosts, tensors)]
                return results[0] if single else results
            for tensor, host in zip(tensors, hosts):
                if host is not tensor:
                    adapter.copy_into(tensor, host)
            return tensors[0] if single else tensors

        return finisher
