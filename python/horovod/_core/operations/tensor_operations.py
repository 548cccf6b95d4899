"""What all operations on tensors share: the adapter, the lane, staging through the host, results.

Base of `Reductions` and `Movements`. No operation of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Final

from horovod._core.life import handles, session
from horovod._core.operations import tensor_locations
from horovod._core.operations.lane_calls import LaneCalls
from horovod._core.operations.submission import Call, op_struct
from horovod._core.tensors.adapter import Adapter
from horovod._native import abi


def _no_lane(*_: Any) -> None:
    """What a lane answers that has no entry that fits."""


class TensorOperations:
    """Operations for the tensors of one framework. What the lane cannot repeat takes the plain way: it is checked,
    submitted and waited for.

    Args:
        adapter: answers the questions about tensors.

    Attributes:
        lane_calls: what the lane repeats.
        lane_in_place: repeats an operation in place: (key, tensor), False if there is none.
        lane_placed: repeats one whose result is probably as long as the last one: it, or None.
        lane_submit: submits one in place once more: a handle for users, None if there is none.
        lane_into: submits one whose result goes into another tensor: (key, tensor, output, finisher); the same answers.
        lane_each: submits in place what is in `LaneCall`s that are in no table, a tensor each: (calls, tensors,
            started, wait_s). Appends a `handles.Pending` for each to the empty list `started`, up to the first that
            does not fit. wait_s: seconds to wait, if all were submitted; True if all have succeeded.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self.lane_calls: Final = LaneCalls(adapter)
        # The hot path: bound here, one look-up less.
        lane = self.lane_calls.lane
        self.lane_in_place: Callable[..., Any] = _no_lane if lane is None else lane.run_in_place
        self.lane_submit: Callable[..., Any] = _no_lane if lane is None else lane.submit_in_place
        self.lane_into: Callable[..., Any] = getattr(lane, "submit_into", _no_lane)  # one built before has none
        self.lane_each: Callable[..., Any] = _no_lane if lane is None else lane.start_each
        self.lane_placed: Callable[..., Any] = _no_lane if lane is None else lane.run_placed
        # The result is of the tensor's form: it, or None; the same for groups, in place or not: a Pending, or None.
        self._lane_alike: Callable[..., Any] = _no_lane if lane is None else lane.run_alike
        self._lane_start: Callable[..., Any] = _no_lane if lane is None else lane.start_alike

    def _taken(self, value: Any) -> Any:
        """What an out-of-place operation works on where the user gave `value`. Frameworks whose calls come here at once
        make tensors of more than their tensors."""
        return value

    def _locate(self, tensors: list[Any]) -> tensor_locations.Located:
        """See `tensor_locations.locate`."""
        return tensor_locations.locate(self._adapter, tensors)

    def _described(self, call: Call, tensors: Sequence[Any], root: int = 0) -> list[abi.HvdOp]:
        """The tensors as the inputs of a call."""
        adapter, members = self._adapter, []
        for tensor, name in zip(tensors, call.names):
            member = op_struct(call.op_type, call.number, name, adapter.dtype(tensor), adapter.shape(tensor), root)
            member.input = adapter.address(tensor)
            members.append(member)
        return members

    def _results(self, owner: session.Session, handle: int, likes: Sequence[Any], on_gpu: bool) -> list[Any]:
        """Core-allocated results, one per tensor, on the devices of `likes`. on_gpu: where the core has them."""
        adapter, gpu = self._adapter, self._adapter.gpu
        if gpu is not None and on_gpu:
            return tensor_locations.device_results(gpu, likes, handle, owner)
        return [
            adapter.from_host(adapter.wrap(owner.engine.take_result(handle, index), like), like)
            for index, like in enumerate(likes)
        ]

    def _finisher(self, likes: Sequence[Any], single: bool, on_gpu: bool) -> handles.Finisher:
        """What takes core-allocated results, one per tensor, onto the devices of `likes`."""

        def finisher(owner: session.Session, handle: int) -> Any:
            results = self._results(owner, handle, likes, on_gpu)
            return results[0] if single else results

        return finisher
