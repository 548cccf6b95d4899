"""How an allreduce or reducescatter is checked, prepared and submitted; the public methods on top are in `reductions`.

The arguments of a call travel as one tuple, which is also the key under which its prepared submission is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Optional

from horovod._core import dtypes, handles, reduce_ops
from horovod._core.engine_port import ALLREDUCE, REDUCESCATTER
from horovod._core.errors import InvalidArgumentError
from horovod._core.reduce_ops import Adasum, Average, ReduceOp, Sum
from horovod._core.submission import Prepared, op_struct
from horovod._core.tensor_operations import Call, TensorOperations

# (name, average, op, prescale_factor, postscale_factor, process_set); the name of a group may be a tuple of its
# members' names.
ReduceArguments = tuple[Any, Any, Any, Any, Any, Any]


class ReductionCalls(TensorOperations):
    """The private half of `Reductions`."""

    def start_allreduce(self, tensors: list[Any], arguments: ReduceArguments, single: bool) -> handles.Pending:
        """Submits an allreduce in place, of one tensor or of a group. For `gradients`, which waits by itself."""
        return self._start_allreduce(tensors, True, arguments, single)

    def start_allreduce_again(self, ready: Prepared, tensor: Any) -> Optional[handles.Pending]:
        """Submits a prepared allreduce of one tensor in place; None if it does not fit the tensor or the session."""
        return ready.submit(tensor, tensor) if self._aim(ready, tensor) else None

    def take_prepared(self, arguments: ReduceArguments) -> Optional[Prepared]:
        """The prepared form of an operation started before with these arguments, for the caller's sole use; None if it
        was not kept."""
        return self._take_prepared(arguments)

    def _start_allreduce(
        self, tensors: list[Any], in_place: bool, arguments: ReduceArguments, single: bool = True, waits: bool = False
    ) -> handles.Pending:
        """Submits an allreduce of one tensor (`single`) or of a group. `waits`: see `Prepared.submit`."""
        if not tensors and not single:
            return handles.done([])
        key: Hashable = arguments if single else (arguments, len(tensors))
        ready = self._take_filled(key, tensors)
        if ready is None or (in_place and not single and _repeats(ready)):
            return self._start_first(tensors, in_place, arguments, single, waits)
        outputs = tensors
        if in_place:
            for member in ready.members:
                member.output = member.input
        else:
            outputs = [self._adapter.empty_like(tensor) for tensor in tensors]
            for member, output in zip(ready.members, outputs):
                member.output = self._adapter.address(output)
        pending = ready.submit((tensors, outputs), outputs[0] if single else outputs, None, waits)
        self._keep_prepared(key, ready)
        return pending

    def _start_first(
        self, tensors: list[Any], in_place: bool, arguments: ReduceArguments, single: bool, waits: bool
    ) -> handles.Pending:
        name, average, op, prescale, postscale, process_set = arguments
        with Call(ALLREDUCE, process_set, name, None if single else len(tensors)) as call:
            reduce_op = reduce_ops.resolve(op, average)
            factors = _factor("prescale_factor", prescale), _factor("postscale_factor", postscale)
            if reduce_op is Adasum:
                reduce_ops.check_adasum(call.number, call.session.size)
            self._require_reducible(call.what, tensors, reduce_op, factors)
            if in_place:
                self._require_writable(call.what, tensors)
                self._require_distinct(call.what, tensors)
        ready = self._prepare(call, tensors, reduce_op, factors)
        hosts, staged = self._on_host(tensors)
        outputs = hosts if in_place or staged else [self._adapter.empty_like(tensor) for tensor in tensors]
        for member, host, output in zip(ready.members, hosts, outputs):
            member.input = self._adapter.address(host)
            member.output = self._adapter.address(output)
        results = tensors if in_place else outputs
        finisher = self._staging_finisher(tensors, hosts, in_place, single) if staged else None
        pending = ready.submit((tensors, hosts, outputs), results[0] if single else results, finisher, waits)
        if average is None and not staged and _is_plain(op, prescale, postscale):
            self._remember(arguments if single else (arguments, len(tensors)), ready, tensors)
        return pending

    def _start_reducescatter(
        self, tensors: list[Any], arguments: ReduceArguments, single: bool = True, waits: bool = False
    ) -> handles.Pending:
        """Submits a reducescatter of one tensor (`single`) or of a group; the core allocates the results."""
        if not tensors and not single:
            return handles.done([])
        key: Hashable = ("reducescatter", arguments, single, len(tensors))
        finisher = self._results_finisher(tensors, single)
        again = self._submit_again(key, tensors, finisher, waits)
        if again is not None:
            return again
        name, _, op, prescale, postscale, process_set = arguments
        with Call(REDUCESCATTER, process_set, name, None if single else len(tensors)) as call:
            reduce_op = reduce_ops.resolve(op, None)
            if reduce_op is not Average and reduce_op is not Sum:
                raise InvalidArgumentError(
                    f"{call.what} supports op=hvd.Average and hvd.Sum only. Received: {reduce_op.name}."
                )
            factors = _factor("prescale_factor", prescale), _factor("postscale_factor", postscale)
            self._require_reducible(call.what, tensors, reduce_op, factors)
            self._require_rows(call.what, tensors)
        ready = self._prepare(call, tensors, reduce_op, factors)
        hosts, staged = self._on_host(tensors)
        for member, host in zip(ready.members, hosts):
            member.input = self._adapter.address(host)
        pending = ready.submit((tensors, hosts), None, finisher, waits)
        if not staged and _is_plain(op, prescale, postscale):
            rows = self._adapter.shape(tensors[0])[0]
            self._remember(key, ready, tensors, _own_rows(rows, process_set.ranks, call.session.rank))
        return pending

    def _prepare(
        self, call: Call, tensors: Sequence[Any], reduce_op: ReduceOp, factors: tuple[float, float]
    ) -> Prepared:
        members = []
        for tensor, name in zip(tensors, call.names):
            member = op_struct(
                call.op_type, call.number, name, self._adapter.dtype(tensor), self._adapter.shape(tensor)
            )
            member.reduce_op = int(reduce_op)
            member.prescale, member.postscale = factors
            members.append(member)
        return Prepared(call.session, call.what, members)

    def _require_reducible(
        self, what: str, tensors: Sequence[Any], reduce_op: ReduceOp, factors: tuple[float, float]
    ) -> None:
        self._require_tensors(what, tensors)
        self._require_movable(what, tensors)
        for tensor in tensors:
            reduce_ops.check_dtype(reduce_op, self._adapter.dtype(tensor), *factors)

    def _require_distinct(self, what: str, tensors: Sequence[Any]) -> None:
        keys = [self._adapter.slot_key(tensor) for tensor in tensors if dtypes.elements(self._adapter.shape(tensor))]
        if len(set(keys)) != len(keys):
            raise InvalidArgumentError(
                f"{what} was given the same tensor twice; a tensor can be reduced in place only once in a group."
            )

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


def _own_rows(rows: int, ranks: Sequence[int], rank: int) -> int:
    """How many of the rows a reducescatter leaves to a rank."""
    return rows // len(ranks) + (ranks.index(rank) < rows % len(ranks))


def _repeats(ready: Prepared) -> bool:
    """True if two of a group's tensors lie at the same address."""
    addresses = [member.input for member in ready.members if member.input]
    return len(set(addresses)) != len(addresses)


def _is_plain(op: Any, *factors: Any) -> bool:
    """True if the arguments are values. A tensor or array would be a key by identity, or none at all."""
    return (op is None or isinstance(op, int)) and all(type(factor) in (int, float) for factor in factors)


def _factor(what: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{what} must be a number. Received: {value!r}.") from None
