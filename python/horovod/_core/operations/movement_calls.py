"""How an allgather, broadcast or alltoall is checked and submitted; the public methods on top are in
`movements`."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from typing import Any, Final, Optional

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.life import handles, session
from horovod._core.life.engine_port import ALLGATHER, ALLTOALL, BROADCAST, OP_NAMES
from horovod._core.life.process_sets import listed
from horovod._core.operations import checks
from horovod._core.operations.submission import Call, member_set, op_struct, submit
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
        tensors = list(map(self._taken, tensors))
        with Call(ALLGATHER, process_set, name, None if single else len(tensors)) as call:
            self._require_rows(call.what, tensors)
            located = self._locate(tensors)
        members = self._described(call, located.tensors)
        finisher = self._finisher(tensors, single, located.on_gpu)
        pending = located.submit(call, members, (tensors, located.tensors), None, finisher, waits)
        if single:
            rows = self._adapter.shape(tensors[0])[0] * len(process_set.ranks)
            self.lane_calls.remember(("allgather", name, process_set), call, located, members, rows)
        return pending

    def _start_broadcast(
        self, tensor: Any, in_place: bool, arguments: BroadcastArguments, waits: bool = False
    ) -> handles.Pending:
        known = ("broadcast", arguments)
        pending: Optional[handles.Pending] = self._lane_start(known, [tensor], in_place, True, waits)
        if pending is not None:
            return pending
        root_rank, name, process_set = arguments
        tensor = tensor if in_place else self._taken(tensor)
        with Call(BROADCAST, process_set, name) as call:
            root = checked_root(call.what, root_rank, process_set)
            checks.require_movable(call.what, self._adapter, [tensor])
            if in_place:
                checks.require_writable(call.what, self._adapter, [tensor])
            located = self._locate([tensor])
        adapter = self._adapter
        (host,) = located.tensors
        output = host if in_place or located.copied else adapter.empty_like(tensor)
        members = self._described(call, located.tensors, root)
        members[0].output = adapter.address(output)

        def finisher(owner: object, handle: int) -> Any:
            if not in_place:
                return adapter.from_host(host, tensor)
            adapter.copy_into(tensor, host)
            return tensor

        pending = located.submit(call, members, (tensor, output), output, finisher if located.copied else None, waits)
        if isinstance(root_rank, int):
            self.lane_calls.remember(known, call, located, members)
        return pending

    def _start_alltoall(
        self, tensor: Any, splits: Any, name: Optional[str], process_set: Any, waits: bool = False
    ) -> handles.Pending:
        tensor = self._taken(tensor)
        with Call(ALLTOALL, process_set, name) as call:
            self._require_rows(call.what, [tensor])
            rows = self._splits(call.what, splits, self._adapter.shape(tensor)[0], len(process_set.ranks))
            located = self._locate([tensor])
        members = self._described(call, located.tensors)
        if rows is not None:
            # Kept by the struct, like the shape.
            members[0].splits = (ctypes.c_int32 * len(rows))(*rows)
            members[0].n_splits = len(rows)
        finisher = self._alltoall_finisher(tensor, process_set, splits is not None or not waits, located.on_gpu)
        pending = located.submit(call, members, (tensor, located.tensors), None, finisher, waits)
        if splits is None:  # given ones are checked, and may be a tensor
            key = ("alltoall", name, process_set)
            self.lane_calls.remember(key, call, located, members, self._adapter.shape(tensor)[0])
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
        checks.require_movable(what, self._adapter, tensors)
        checks.require_rows(what, (len(self._adapter.shape(tensor)) for tensor in tensors))

    def _start_without_data(
        self, op_type: int, process_set: Any, finisher: Optional[handles.Finisher] = None, waits: bool = False
    ) -> handles.Pending:
        """A barrier or join. The engine names it, because nothing of it can be refused here once the set is known."""
        current = session.require()
        members = [op_struct(op_type, member_set(current, process_set), "", 0, ())]
        return submit(handles.Pending(current, 0, OP_NAMES[op_type], None, None, finisher), members, waits)


def checked_root(what: str, root_rank: Any, process_set: Any) -> int:
    """The root of a broadcast. Raises InvalidArgumentError unless it is a member."""
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
