"""How an allgather, broadcast or alltoall is checked, prepared and submitted; the public methods on top are in
`movements`."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Hashable, Sequence
from typing import Any, Optional

from horovod._core import handles, session
from horovod._core.engine_port import ALLGATHER, ALLTOALL, BROADCAST, OP_NAMES
from horovod._core.errors import InvalidArgumentError
from horovod._core.process_sets import listed
from horovod._core.submission import Prepared, member_set, op_struct
from horovod._core.tensor_operations import Call, TensorOperations

# (root_rank, name, process_set)
BroadcastArguments = tuple[Any, Any, Any]


class MovementCalls(TensorOperations):
    """The private half of `Movements`."""

    def _start_allgather(
        self, tensors: list[Any], name: Optional[str], process_set: Any, single: bool = True, waits: bool = False
    ) -> handles.Pending:
        if not tensors and not single:
            return handles.done([])
        key: Hashable = ("allgather", name, process_set, single, len(tensors))
        finisher = self._results_finisher(tensors, single)
        again = self._submit_again(key, tensors, finisher, waits)
        if again is not None:
            return again
        with Call(ALLGATHER, process_set, name, None if single else len(tensors)) as call:
            self._require_tensors(call.what, tensors)
            self._require_movable(call.what, tensors)
            self._require_rows(call.what, tensors)
        hosts, staged = self._on_host(tensors)
        ready = self._prepare_movement(call, hosts)
        pending = ready.submit((tensors, hosts), None, finisher, waits)
        if not staged:
            self._remember(key, ready, tensors, self._adapter.shape(tensors[0])[0] * len(process_set.ranks))
        return pending

    def _start_broadcast(
        self, tensor: Any, in_place: bool, arguments: BroadcastArguments, waits: bool = False
    ) -> handles.Pending:
        key: Hashable = ("broadcast", arguments)
        ready = self._take_filled(key, (tensor,))
        if ready is None:
            return self._start_first_broadcast(tensor, in_place, arguments, waits)
        output = tensor if in_place else self._adapter.empty_like(tensor)
        ready.first.output = self._adapter.address(output)
        pending = ready.submit((tensor, output), output, None, waits)
        self._keep_prepared(key, ready)
        return pending

    def _start_first_broadcast(
        self, tensor: Any, in_place: bool, arguments: BroadcastArguments, waits: bool
    ) -> handles.Pending:
        root_rank, name, process_set = arguments
        with Call(BROADCAST, process_set, name) as call:
            root = _root(call.what, root_rank, process_set)
            self._require_tensors(call.what, [tensor])
            self._require_movable(call.what, [tensor])
            if in_place:
                self._require_writable(call.what, [tensor])
        adapter = self._adapter
        (host,), staged = self._on_host([tensor])
        output = host if in_place or staged else adapter.empty_like(tensor)
        ready = self._prepare_movement(call, [host], root)
        ready.first.output = adapter.address(output)
        if not staged:
            pending = ready.submit((tensor, output), output, None, waits)
            if isinstance(root_rank, int):
                self._remember(("broadcast", arguments), ready, (tensor,))
            return pending

        def finisher(owner: object, handle: int) -> Any:
            if not in_place:
                return adapter.from_host(host, tensor)
            adapter.copy_into(tensor, host)
            return tensor

        return ready.submit((tensor, host), None, finisher, waits)

    def _start_alltoall(
        self, tensor: Any, splits: Any, name: Optional[str], process_set: Any, waits: bool = False
    ) -> handles.Pending:
        # Given splits are not part of the key: they are checked, and may be a tensor.
        key: Hashable = ("alltoall", name, process_set)
        ready = self._take_filled(key, (tensor,)) if splits is None else None
        if ready is not None:
            pending = ready.submit(tensor, None, self._alltoall_finisher(tensor, ready.first.n_splits), waits)
            self._keep_prepared(key, ready)
            return pending
        with Call(ALLTOALL, process_set, name) as call:
            self._require_tensors(call.what, [tensor])
            self._require_movable(call.what, [tensor])
            self._require_rows(call.what, [tensor])
            size = len(process_set.ranks)
            rows = self._splits(call.what, splits, self._adapter.shape(tensor)[0], size)
        hosts, staged = self._on_host([tensor])
        ready = self._prepare_movement(call, hosts)
        # Kept by the struct, like the shape.
        ready.first.splits = (ctypes.c_int32 * size)(*rows)
        ready.first.n_splits = size
        pending = ready.submit((tensor, hosts), None, self._alltoall_finisher(tensor, size), waits)
        if splits is None and not staged:
            self._remember(key, ready, (tensor,), self._adapter.shape(tensor)[0])
        return pending

    def _alltoall_finisher(self, tensor: Any, size: int) -> handles.Finisher:
        adapter = self._adapter

        def finisher(owner: Any, handle: int) -> tuple[Any, Any]:
            received_splits = owner.engine.received_splits(handle, 0, size)
            block = owner.engine.take_result(handle, 0)
            return adapter.from_host(adapter.wrap(block, tensor), tensor), adapter.from_values(received_splits, tensor)

        return finisher

    def _splits(self, what: str, splits: Any, rows: int, size: int) -> list[int]:
        if splits is not None:
            try:
                values = (
                    self._adapter.values_of(splits)
                    if self._adapter.owns(splits)
                    else [operator.index(value) for value in splits]
                )
            except TypeError:
                raise InvalidArgumentError(
                    f"{what}: splits must be a one-dimensional list of integers. Received: {splits!r}."
                ) from None
        if splits is None or not values:
            if rows % size:
                raise InvalidArgumentError(
                    f"{what}: {rows} rows cannot be split equally among {size} ranks; give splits."
                )
            return [rows // size] * size
        if len(values) != size:
            raise InvalidArgumentError(
                f"{what}: splits must have one entry per member ({size}). Received: {len(values)}."
            )
        if min(values) < 0 or sum(values) > rows:
            raise InvalidArgumentError(
                f"{what}: splits must be >= 0 and add up to at most the {rows} rows. Received: {values}."
            )
        return values

    def _prepare_movement(self, call: Call, hosts: Sequence[Any], root: int = 0) -> Prepared:
        members = []
        for host, name in zip(hosts, call.names):
            member = op_struct(
                call.op_type, call.number, name, self._adapter.dtype(host), self._adapter.shape(host), root
            )
            member.input = self._adapter.address(host)
            members.append(member)
        return Prepared(call.session, call.what, members)

    def _prepare_without_data(self, op_type: int, process_set: Any) -> Prepared:
        """A barrier or join. The engine names it, because nothing of it can be refused here once the set is known."""
        current = session.require()
        number = member_set(current, process_set)
        return Prepared(current, OP_NAMES[op_type], [op_struct(op_type, number, "", 0, ())])


def _root(what: str, root_rank: Any, process_set: Any) -> int:
    try:
        root = operator.index(root_rank)
    except TypeError:
        raise InvalidArgumentError(f"{what}: root_rank must be an integer. Received: {root_rank!r}.") from None
    if root not in process_set.ranks:
        raise InvalidArgumentError(
            f"{what}: root_rank {root} is not a member of process set {process_set.process_set_id} (ranks "
            f"{listed(process_set.ranks)}). "
            "Root ranks are global ranks, also in a process set."
        )
    return root
