"""Operations that move data without combining it: allgather, broadcast, alltoall; and those without data: barrier,
join.

Part of `collectives.Collectives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from horovod._core.errors import InvalidArgumentError
from horovod._core.integers import as_integer
from horovod._core.life import handles, session
from horovod._core.life.engine_port import BARRIER, JOIN
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.movement_calls import MovementCalls


class Movements(MovementCalls):
    """Allgather, broadcast, alltoall and their variants, barrier and join."""

    def allgather(self, tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
        """Concatenates the members' tensors along the first dimension, in the order of their ranks.

        Collective.

        Args:
            tensor: at least one dimension, contiguous; dtype and all dimensions but the first equal on all members.
            name: identity of the operation, equal on all members; None: counted.
            process_set: the ranks that take part.

        Returns:
            A new tensor of the same dtype.

        Raises:
            InvalidArgumentError: a bad argument on this rank (the other members get a MismatchError).
            MismatchError: the members disagree on dtype or the other dimensions.
            HorovodInternalError: a rank died or has joined, or the engine is shutting down.
        """
        result = self.lane_placed(("allgather", name, process_set), tensor)
        if result is not None:
            return result
        return handles.finish(self._start_allgather([tensor], name, process_set, waits=True))

    def allgather_async(
        self, tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Starts `allgather`. Collective. Returns a handle."""
        return handles.add(self._start_allgather([tensor], name, process_set))

    def grouped_allgather(
        self, tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> list[Any]:
        """As `allgather`, for a list of tensors that is negotiated as one unit. Collective. Returns the list of
        results."""
        results: list[Any] = handles.finish(
            self._start_allgather(list(tensors), name, process_set, single=False, waits=True)
        )
        return results

    def grouped_allgather_async(
        self, tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Starts `grouped_allgather`. Collective. Returns a handle; `synchronize` yields the list."""
        return handles.add(self._start_allgather(list(tensors), name, process_set, single=False))

    def broadcast(
        self, tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        """Copies the root's tensor to all members, into a new tensor.

        Collective.

        Args:
            tensor: contiguous; shape and dtype equal on all members (the values matter on the root only).
            root_rank: a global rank, also for a process set; equal on all members.
            name: identity of the operation, equal on all members; None: counted.
            process_set: the ranks that take part.

        Returns:
            The root's values.

        Raises:
            InvalidArgumentError: a bad argument on this rank (the other members get a MismatchError).
            MismatchError: the members disagree on dtype, shape or root.
            HorovodInternalError: a rank died or has joined, or the engine is shutting down.
        """
        arguments = (root_rank, name, process_set)
        result = self._lane_alike(("broadcast", arguments), tensor)
        return handles.finish(self._start_broadcast(tensor, False, arguments, waits=True)) if result is None else result

    def broadcast_async(
        self, tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Starts `broadcast`. Collective. Returns a handle."""
        return handles.add(self._start_broadcast(tensor, False, (root_rank, name, process_set)))

    def broadcast_(
        self, tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        """As `broadcast`, in place. Collective. Returns the tensor given."""
        arguments = (root_rank, name, process_set)
        if self.lane_in_place(("broadcast", arguments), tensor):
            return tensor
        return handles.finish(self._start_broadcast(tensor, True, arguments, waits=True))

    def broadcast_async_(
        self, tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Starts `broadcast_`. Collective. Returns a handle."""
        return handles.add(self._start_broadcast(tensor, True, (root_rank, name, process_set)))

    def alltoall(
        self, tensor: Any, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        """Sends blocks of rows (first dimension) to each member and gathers theirs, in the order of their ranks.

        Collective.

        Args:
            tensor: at least one dimension, contiguous; dtype and all dimensions but the first equal on all members.
            splits: rows for each member: integers >= 0 (list, array or tensor), one per member, together at most the
                number of rows;
                None: equal parts.
            name: identity of the operation, equal on all members; None: counted.
            process_set: the ranks that take part.

        Returns:
            The received rows; with `splits` a pair of them and the number of rows from each member (int32).

        Raises:
            InvalidArgumentError: a bad argument on this rank (the other members get a MismatchError).
            MismatchError: the members disagree on dtype or the other dimensions.
            HorovodInternalError: a rank died or has joined, or the engine is shutting down.
        """
        if splits is None:
            result = self.lane_placed(("alltoall", name, process_set), tensor)
            if result is not None:
                return result
        received, received_splits = handles.finish(self._start_alltoall(tensor, splits, name, process_set, waits=True))
        return received if splits is None else (received, received_splits)

    def alltoall_async(
        self, tensor: Any, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Starts `alltoall`. Collective. Returns a handle; `synchronize` always yields the pair (rows, received
        splits)."""
        return handles.add(self._start_alltoall(tensor, splits, name, process_set))

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Waits until all members have called it. Collective.

        Raises:
            InvalidArgumentError: this rank is not a member.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        handles.finish(self._start_without_data(BARRIER, process_set, waits=True))

    def join(self, device: int = -1) -> int:
        """Says that this rank has no more data: from here on it stands in for itself in the allreduces of the others,
        with the value that changes nothing (0 for Sum and Average), until all ranks have joined.

        Meanwhile a Product takes no prescale_factor, and Min and Max no negative one or 0: that value would be
        multiplied, too.

        Collective over all ranks. Average still divides by the number of all ranks. Operations other than allreduce
        fail on the ranks that have not joined yet.

        Args:
            device: accepted for compatibility; the stand-in needs no device.

        Returns:
            The rank that joined last.
        """
        if as_integer(device) is None and not isinstance(device, bool):
            raise InvalidArgumentError(f"device must be an integer. Received: {device!r}.")
        session.note_join()
        last: int = handles.finish(
            self._start_without_data(JOIN, global_process_set, lambda owner, handle: owner.engine.result_value(handle))
        )
        return last

    def poll(self, handle: int) -> bool:
        """True if `synchronize(handle)` would not wait. Local.

        Raises:
            InvalidArgumentError: no operation has ever had this handle.
        """
        return handles.poll(handle)

    def synchronize(self, handle: int) -> Any:
        """Waits for an asynchronous operation; its handle is then used up. Local.

        Returns:
            The output tensor or list; None for a handle that is used up.

        Raises:
            InvalidArgumentError: no operation has ever had this handle.
            MismatchError: the members disagree about the operation.
            HorovodInternalError: it failed: a rank died, the engine is shutting down, a time limit passed.
        """
        return handles.synchronize(handle)
