"""Send and recv: between two members of a process set.

Part of `collectives.Collectives`. Nobody else is asked: the n-th send of one rank to another meets the n-th recv of
that one from it. A name is for messages alone.
"""

from __future__ import annotations

from typing import Any, Optional

from horovod._core.errors import InvalidArgumentError
from horovod._core.integers import as_integer
from horovod._core.life import handles, session
from horovod._core.life.engine_port import OP_NAMES, RECV, SEND
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations import checks
from horovod._core.operations.submission import Call, op_struct
from horovod._core.operations.tensor_locations import Located
from horovod._core.operations.tensor_operations import TensorOperations

# (partner, name, process_set)
_Arguments = tuple[Any, Any, Any]


class PointToPoint(TensorOperations):
    """What goes between two ranks."""

    def send(
        self, tensor: Any, to_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> None:
        """Sends a tensor to another member, which calls `recv`. Returns when the tensor may be changed.

        Not collective. A tensor of at most 64 KB is copied and the call returns at once, unless 16 MB of such copies
        wait to be received; then, and for a larger tensor, it waits for the `recv`. So two ranks that both send first
        get past it with small tensors only. What a rank sends to itself is always copied.

        Args:
            tensor: contiguous; dtype and shape equal to those of the tensor that receives it.
            to_rank: who receives it: a rank of the process set, from 0.
            name: for messages.
            process_set: of both.

        Raises:
            InvalidArgumentError: a bad argument on this rank.
            MismatchError: the other rank receives another dtype or shape. Or an earlier send to that rank, which had
                already returned, has failed like that; then nothing is sent, and the `recv` in its turn fails too.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        arguments = (to_rank, name, process_set)
        if not self.lane_in_place(("send", arguments), tensor):
            handles.finish(self._start(SEND, self._taken(tensor), arguments, waits=True))

    def send_async(
        self, tensor: Any, to_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Starts `send`; nothing is copied. Returns a handle; `synchronize` waits until the tensor has been received,
        and yields it."""
        return handles.add(self._start(SEND, self._taken(tensor), (to_rank, name, process_set)))

    def begin_send(self, tensor: Any, to_rank: int, process_set: ProcessSet, at_once: bool) -> handles.Pending:
        """Starts `send`, and copies what that copies. What it returns is done already where it has copied.

        Args:
            at_once: where it cannot copy, it does not wait for a slice of time either, and takes longer to begin.
        """
        arguments = (to_rank, None, process_set)
        return self._start(SEND, self._taken(tensor), arguments, waits=True, at_once=at_once)

    def recv(
        self, tensor: Any, from_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        """Receives what another member sends with `send`, into a tensor.

        Not collective.

        Args:
            tensor: contiguous; dtype and shape equal to those of the tensor that is sent.
            from_rank: who sends it: a rank of the process set, from 0.
            name: for messages.
            process_set: of both.

        Returns:
            The tensor given.

        Raises:
            InvalidArgumentError: a bad argument on this rank, or this rank waits for itself.
            MismatchError: the other rank sends another dtype or shape.
            HorovodInternalError: a rank died, or the engine is shutting down.
        """
        arguments = (from_rank, name, process_set)
        if self.lane_in_place(("recv", arguments), tensor):
            return tensor
        return handles.finish(self._start(RECV, tensor, arguments, waits=True))

    def recv_async(
        self, tensor: Any, from_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Starts `recv`. Returns a handle; `synchronize` yields the tensor given."""
        return handles.add(self._start(RECV, tensor, (from_rank, name, process_set)))

    def _start(
        self, op_type: int, tensor: Any, arguments: _Arguments, waits: bool = False, at_once: bool = False
    ) -> handles.Pending:
        key = (OP_NAMES[op_type], arguments)
        pending: Optional[handles.Pending] = None if at_once else self._lane_start(key, [tensor], True, True, waits)
        if pending is not None:
            return pending
        partner, name, process_set = arguments
        call, adapter = Call(op_type, process_set, name), self._adapter
        call.what = _called(op_type, partner, name)
        rank = _global_rank(call.what, partner, process_set)
        checks.require_movable(call.what, adapter, [tensor])
        if op_type == RECV:
            checks.require_writable(call.what, adapter, [tensor])
        copied = adapter.device(tensor) != "cpu"
        host = adapter.to_host(tensor) if copied else tensor
        op = op_struct(op_type, call.number, name or "", adapter.dtype(host), adapter.shape(host), rank)
        op.input = op.output = adapter.address(host)
        located = Located([host], copied)
        # One that has a finisher is submitted without a wait.
        finisher = self._copying_back(op_type, tensor, host) if copied or at_once else None
        pending = located.submit(call, [op], (tensor, host), tensor, finisher, waits)
        if isinstance(partner, int) and not at_once:
            self.lane_calls.remember(key, call, located, [op])
        return pending

    def _copying_back(self, op_type: int, tensor: Any, host: Any) -> handles.Finisher:
        def finisher(owner: session.Session, handle: int) -> Any:
            if op_type == RECV:
                self._adapter.copy_into(tensor, host)
            return tensor

        return finisher


def _called(op_type: int, partner: Any, name: Optional[str]) -> str:
    """ "recv from rank 2 ('acts')"."""
    text = f"{OP_NAMES[op_type]} {'to' if op_type == SEND else 'from'} rank {partner}"
    return f"{text} ('{name}')" if name else text


def _global_rank(what: str, partner: Any, process_set: ProcessSet) -> int:
    ranks = process_set.ranks or []
    place = as_integer(partner)
    if place is None:
        raise InvalidArgumentError(f"{what}: the rank must be an integer. Received: {partner!r}.")
    if not 0 <= place < len(ranks):
        raise InvalidArgumentError(
            f"{what}: process set {process_set.process_set_id} has the ranks 0 to {len(ranks) - 1}. Received: {place}. "
            "Ranks are those of the process set, from 0."
        )
    return ranks[place]
