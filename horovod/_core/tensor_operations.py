"""What all operations on tensors share: checking what the user passed, staging through the host, finishing.

Base of `Reductions` and `Movements`; holds the adapter and the table of prepared submissions. No operation of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, Optional, Union

from horovod._core import dtypes, handles, session, submission
from horovod._core.adapter import Adapter
from horovod._core.engine_port import OP_NAMES
from horovod._core.errors import HorovodError, InvalidArgumentError

# Programs that make up new names for ever must not fill the memory.
_MAX_PREPARED: Final = 8192
# The core's own memory is better above this: it asks for large pages and keeps some of them.
_MOST_PLACED_BYTES: Final = 1 << 20


class TensorOperations:
    """Operations for the tensors of one framework.

    Args:
        adapter: answers the questions about tensors.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._address_if = adapter.address_if
        # Arguments of a call -> its submission. An entry is taken out while it is in use, so that two threads
        # never share one.
        self._prepared: dict[Hashable, submission.Prepared] = {}

    def _take_prepared(self, key: Hashable) -> Optional[submission.Prepared]:
        try:
            ready = self._prepared.pop(key, None)
        except TypeError:  # an argument that cannot be hashed will be refused, with its name
            return None
        return ready if ready is not None and ready.stamp is session.stamp else None

    def _take_filled(self, key: Hashable, tensors: Sequence[Any]) -> Optional[submission.Prepared]:
        """As `_take_prepared`, with the tensors' addresses as inputs; None also if one of them has changed its form."""
        ready = self._take_prepared(key)
        if ready is None:
            return None
        for member, tensor, (dtype, shape) in zip(ready.members, tensors, ready.member_keys):
            address = self._address_if(tensor, dtype, shape)
            if address < 0:
                return None
            member.input = address
        return ready

    def _aim(self, ready: submission.Prepared, tensor: Any) -> bool:
        """Points a prepared operation of one tensor at it, in place. False: it does not fit the tensor or the
        session."""
        if ready.stamp is not session.stamp:
            return False
        address = self._address_if(tensor, ready.dtype, ready.shape)
        if address < 0:
            return False
        first = ready.first
        first.input = first.output = address
        return True

    def _take_in_place(self, key: Hashable, tensor: Any) -> Optional[submission.Prepared]:
        """The prepared operation of one tensor in place, ready to go; None if there is none that fits."""
        ready = self._take_prepared(key)
        return ready if ready is not None and self._aim(ready, tensor) else None

    def _run_in_place(self, key: Hashable, tensor: Any) -> bool:
        """Runs a prepared operation of one tensor in place. False: none was kept that fits."""
        ready = self._take_in_place(key, tensor)
        if ready is None:
            return False
        ready.run_now(tensor)
        self._prepared[key] = ready  # not before: it holds the handle
        return True

    def _run_again(self, key: Hashable, tensor: Any) -> Any:
        """Runs a prepared operation that has a result of the tensor's shape. None: none was kept that fits."""
        ready = self._take_in_place(key, tensor)
        if ready is None:
            return None
        output = self._adapter.empty_like(tensor)
        ready.first.output = self._adapter.address(output)
        ready.run_now((tensor, output))
        self._prepared[key] = ready
        return output

    def _run_placed(self, key: Hashable, tensor: Any) -> Any:
        """Runs a prepared operation whose result is small, and probably as long as the last one. None: none was kept
        that fits."""
        ready = self._take_in_place(key, tensor)
        if ready is None:
            return None
        if ready.placed is None:
            self._prepared[key] = ready
            return None
        adapter, first = self._adapter, ready.first
        output = adapter.empty(ready.placed, tensor)
        address = first.output = adapter.address(output)
        first.output_bytes = ready.placed_bytes

        def finisher(owner: session.Session, handle: int) -> Any:
            block = owner.engine.take_result(handle, 0)
            if block.address == address:
                return output
            ready.placed = None  # it is not that predictable
            return adapter.wrap(block, tensor)

        result = ready.run_placed((tensor, output), finisher)
        first.output_bytes = 0
        self._prepared[key] = ready
        return output if result is None else result

    def _submit_again(
        self, key: Hashable, tensors: Sequence[Any], finisher: handles.Finisher, waits: bool
    ) -> Optional[handles.Pending]:
        """Submits a prepared operation whose results the core allocates; None if none was kept that fits."""
        ready = self._take_filled(key, tensors)
        if ready is None:
            return None
        pending = ready.submit(tensors, None, finisher, waits)
        self._keep_prepared(key, ready)
        return pending

    def _remember(self, key: Hashable, ready: submission.Prepared, tensors: Sequence[Any], rows: int = -1) -> None:
        """Keeps a submission for tensors of this form. rows: that the result of a single one is going to have, if it is
        of another shape."""
        ready.remember([self._adapter.key(tensor) for tensor in tensors])
        if rows >= 0 and len(tensors) == 1:
            self._place(ready, tensors[0], rows)
        self._keep_prepared(key, ready)

    def _place(self, ready: submission.Prepared, tensor: Any, rows: int) -> None:
        shape = (rows, *self._adapter.shape(tensor)[1:])
        size = dtypes.elements(shape) * dtypes.ITEM_BYTES[self._adapter.dtype(tensor)]
        if 0 < size <= _MOST_PLACED_BYTES:
            ready.placed, ready.placed_bytes = shape, size

    def _keep_prepared(self, key: Hashable, ready: submission.Prepared) -> None:
        if len(self._prepared) >= _MAX_PREPARED:
            self._prepared.clear()
        self._prepared[key] = ready

    def _require_tensors(self, what: str, tensors: Sequence[Any]) -> None:
        for tensor in tensors:
            if not self._adapter.owns(tensor):
                raise InvalidArgumentError(
                    f"{what} needs a {self._adapter.framework} tensor. Received: {type(tensor).__name__}."
                )

    def _require_movable(self, what: str, tensors: Sequence[Any]) -> None:
        """Raises InvalidArgumentError unless every tensor has a known dtype and lies in memory without gaps."""
        adapter = self._adapter
        for tensor in tensors:
            if adapter.dtype(tensor) < 0:
                raise InvalidArgumentError(
                    f"{what}: dtype {adapter.dtype_name(tensor)} is not supported. Supported are "
                    f"{', '.join(dtypes.NAMES)}; cast the tensor first."
                )
            if not adapter.is_contiguous(tensor):
                raise InvalidArgumentError(
                    f"{what} needs a contiguous tensor. Received one of shape {list(adapter.shape(tensor))} with gaps "
                    "or another order of "
                    "dimensions in memory; make it contiguous first."
                )

    def _require_writable(self, what: str, tensors: Sequence[Any]) -> None:
        if not all(map(self._adapter.is_writable, tensors)):
            raise InvalidArgumentError(
                f"{what} works in place, but the tensor is read-only; copy it first or use the variant without '_'."
            )

    def _require_rows(self, what: str, tensors: Sequence[Any]) -> None:
        for tensor in tensors:
            if not self._adapter.shape(tensor):
                raise InvalidArgumentError(
                    f"{what} needs a tensor of at least one dimension. Received a scalar; reshape it to one element."
                )

    def _on_host(self, tensors: Sequence[Any]) -> tuple[list[Any], bool]:
        """The tensors as contiguous CPU tensors, and whether any had to be copied."""
        adapter = self._adapter
        hosts = [tensor if adapter.device(tensor) == "cpu" else adapter.to_host(tensor) for tensor in tensors]
        return hosts, any(host is not tensor for host, tensor in zip(hosts, tensors))

    def _results_finisher(self, likes: Sequence[Any], single: bool) -> handles.Finisher:
        """Takes core-allocated results, one per tensor, onto the devices of `likes`."""
        adapter = self._adapter

        def finisher(owner: session.Session, handle: int) -> Any:
            results = [
                adapter.from_host(adapter.wrap(owner.engine.take_result(handle, index), like), like)
                for index, like in enumerate(likes)
            ]
            return results[0] if single else results

        return finisher


class Call:
    """One call on its way: where it goes and under which names, so that a refusal reaches the other members.

    Args:
        op_type: hvd_op_type.
        process_set: as the user gave it.
        name: as the user gave it; a tuple names each tensor of a group.
        n: number of tensors; None for a single one that is no group.

    Raises:
        NotInitializedError: no session.
        InvalidArgumentError: this rank is not in the set. The other members are not told: there is nobody to tell it
            for.
    """

    __slots__ = ("names", "number", "op_type", "session", "what")

    def __init__(
        self, op_type: int, process_set: Any, name: Union[None, str, tuple[str, ...]], n: Optional[int] = None
    ) -> None:
        self.session = session.require()
        self.op_type = op_type
        self.number = submission.member_set(self.session, process_set)
        if isinstance(name, tuple):
            self.names = [submission.full_name(op_type, one) for one in name]
            name = f"{name[0]}' and {len(name) - 1} more"
        else:
            base = submission.full_name(op_type, name)
            self.names = [base] if n is None else submission.member_names(base, n)
        self.what = f"{OP_NAMES[op_type]} '{name}'" if name else OP_NAMES[op_type]

    def __enter__(self) -> Call:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """A check in the body failed on this rank: tells the other members, then lets the error through."""
        if isinstance(error, HorovodError):
            submission.refuse(self.session, self.op_type, self.number, self.names, error)
