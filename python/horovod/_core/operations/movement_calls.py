"""How an allgather, broadcast or alltoall is checked, prepared and submitted; the public methods on top are in
`movements`."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Hashable, Sequence
from typing import Any, Final, Optional

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.life import handles, session
from horovod._core.life.engine_port import ALLGATHER, ALLTOALL, BROADCAST, OP_NAMES
from horovod._core.life.process_sets import listed
from horovod._core.operations import checks
from horovod._core.operations.placing import Placed
from horovod._core.operations.prepared import Prepared
from horovod._core.operations.submission import Call, member_set, op_struct
from horovod._core.operations.tensor_operations import TensorOperations

_LARGEST_SPLIT: Final = 2**31 - 1  # splits are 32-bit integers for users and core

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
        again = self.prepared.submit_allocated(key, tensors, self._finisher_for(tensors, single), waits)
        if again is not None:
            return again
        tensors = list(map(self._taken, tensors))
        finisher_for = self._finisher_for(tensors, single)
        with Call(ALLGATHER, process_set, name, None if single else len(tensors)) as call:
            self._require_rows(call.what, tensors)
            placed = self._place(tensors)
        ready = self._prepare_movement(call, placed)
        pending = ready.submit((tensors, placed.tensors), None, finisher_for(ready.on_gpu), waits)
        if not placed.copied:
            self.prepared.remember(key, ready, tensors, self._adapter.shape(tensors[0])[0] * len(process_set.ranks))
        return pending

    def _start_broadcast(
        self, tensor: Any, in_place: bool, arguments: BroadcastArguments, waits: bool = False
    ) -> handles.Pending:
        again = self.prepared.submit_alike(("broadcast", arguments), [tensor], in_place, True, waits)
        return self._start_first_broadcast(tensor, in_place, arguments, waits) if again is None else again

    def _start_first_broadcast(
        self, tensor: Any, in_place: bool, arguments: BroadcastArguments, waits: bool
    ) -> handles.Pending:
        root_rank, name, process_set = arguments
        tensor = tensor if in_place else self._taken(tensor)
        with Call(BROADCAST, process_set, name) as call:
            root = _root(call.what, root_rank, process_set)
            self._require_movable(call.what, [tensor])
            if in_place:
                checks.require_writable(call.what, self._adapter, [tensor])
            placed = self._place([tensor])
        adapter = self._adapter
        (host,) = placed.tensors
        output = host if in_place or placed.copied else adapter.empty_like(tensor)
        ready = self._prepare_movement(call, placed, root)
        ready.first.output = adapter.address(output)
        if not placed.copied:
            pending = ready.submit((tensor, output), output, None, waits)
            if isinstance(root_rank, int):
                self.prepared.remember(("broadcast", arguments), ready, (tensor,))
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
        if splits is None:
            again = self.prepared.submit_allocated(
                key, [tensor], lambda on_gpu: self._alltoall_finisher(tensor, process_set, not waits, on_gpu), waits
            )
            if again is not None:
                return again
        tensor = self._taken(tensor)
        with Call(ALLTOALL, process_set, name) as call:
            self._require_rows(call.what, [tensor])
            rows = self._splits(call.what, splits, self._adapter.shape(tensor)[0], len(process_set.ranks))
            placed = self._place([tensor])
        ready = self._prepare_movement(call, placed)
        if rows is not None:
            # Kept by the struct, like the shape.
            ready.first.splits = (ctypes.c_int32 * len(rows))(*rows)
            ready.first.n_splits = len(rows)
        finisher = self._alltoall_finisher(tensor, process_set, splits is not None or not waits, ready.on_gpu)
        pending = ready.submit((tensor, placed.tensors), None, finisher, waits)
        if splits is None and not placed.copied:
            self.prepared.remember(key, ready, (tensor,), self._adapter.shape(tensor)[0])
        return pending

    def _alltoall_finisher(self, tensor: Any, process_set: Any, wants_splits: bool, on_gpu: bool) -> handles.Finisher:
        """Makes the pair of rows and received splits; None instead of splits that nobody looks at, and that may not fit
        into 32 bits."""
        adapter = self._adapter

        def finisher(owner: Any, handle: int) -> tuple[Any, Any]:
            received = owner.engine.received_splits(handle, 0, len(process_set.ranks)) if wants_splits else None
            (rows,) = self._results(owner, handle, [tensor], on_gpu)
            return rows, None if received is None else adapter.from_values(received, tensor)

        return finisher

    def _splits(self, what: str, splits: Any, rows: int, size: int) -> Optional[list[int]]:
        """Rows for each member; None: equal parts."""
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
            return None
        if len(values) != size:
            raise InvalidArgumentError(
                f"{what}: splits must have one entry per member ({size}). Received: {len(values)}."
            )
        if min(values) < 0 or sum(values) > rows:
            raise InvalidArgumentError(
                f"{what}: splits must be >= 0 and add up to at most the {rows} rows. Received: {values}."
            )
        if max(values) > _LARGEST_SPLIT:
            raise UnsupportedError(
                f"{what}: a split can be at most {_LARGEST_SPLIT}. Received: {max(values)}; send rows with more "
                "elements."
            )
        return values

    def _require_rows(self, what: str, tensors: Sequence[Any]) -> None:
        self._require_movable(what, tensors)
        checks.require_rows(what, (len(self._adapter.shape(tensor)) for tensor in tensors))

    def _prepare_movement(self, call: Call, placed: Placed, root: int = 0) -> Prepared:
        members = []
        for host, name in zip(placed.tensors, call.names):
            member = op_struct(
                call.op_type, call.number, name, self._adapter.dtype(host), self._adapter.shape(host), root
            )
            member.input = self._adapter.address(host)
            members.append(member)
        return placed.prepare(call.session, call.what, members)

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
            f"{what}: root_rank {root} is not a member of process set {process_set.process_set_id} "
            f"({listed(process_set.ranks)}). Root ranks are global ranks, also in a process set."
        )
    return root
