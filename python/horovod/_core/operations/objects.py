"""Exchange of picklable Python objects: `broadcast_object` and `allgather_object`, the same for every framework.

Objects travel as bytes over the job's own collectives, which connect authenticated ranks only; nothing else is ever
unpickled. Where ranks share no memory the bytes are sealed (`seal`). The sizes go first, then the bytes. cloudpickle is
used, so that functions and classes of a script work too.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any, Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import session
from horovod._core.life.engine_port import ALLGATHER, BROADCAST
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations import submission
from horovod._core.operations.collectives import Collectives
from horovod._core.tensors import byte_adapter

__all__ = ["allgather_object", "broadcast_object"]

_bytes: Final = Collectives(byte_adapter.adapter)
_SIZE: Final = struct.Struct("<q")


def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Gives every member the root's object.

    Collective.

    Args:
        obj: picklable; looked at on the root only.
        root_rank: a global rank, also for a process set.
        name: identity of the operation, equal on all members; None: one for all calls of this function, so that
            two at once need names.
        process_set: the ranks that take part.

    Returns:
        A copy of the root's object; on the root `obj` itself.

    Raises:
        InvalidArgumentError: the object cannot be pickled (on the root; the other members get a MismatchError), or the
            root is not a member.
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    size_name, data_name = _names(name or "broadcast_object")
    is_root = session.require().rank == root_rank
    operation = f"broadcast_object '{data_name}' of process set {_number(process_set)}"
    data = _sealed(_pickled(obj, BROADCAST, size_name, process_set), operation) if is_root else bytearray()
    header = bytearray(_SIZE.pack(len(data)))
    _bytes.broadcast_(header, root_rank, size_name, process_set)
    if not is_root:
        data = bytearray(_SIZE.unpack(header)[0])
    _bytes.broadcast_(data, root_rank, data_name, process_set)
    return obj if is_root else _unpickled(data, operation, root_rank)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Gives every member the objects of all.

    Collective.

    Args:
        obj: picklable.
        name: as for `broadcast_object`.
        process_set: the ranks that take part.

    Returns:
        The objects in the order of the members' ranks.

    Raises:
        InvalidArgumentError: the object cannot be pickled (the other members get a MismatchError).
        HorovodInternalError: a rank died, or the engine is shutting down.
    """
    size_name, data_name = _names(name or "allgather_object")
    operation = f"allgather_object '{data_name}' of process set {_number(process_set)}"
    data = _sealed(_pickled(obj, ALLGATHER, size_name, process_set), operation)
    header = _bytes.allgather(bytearray(_SIZE.pack(len(data))), size_name, process_set)
    everything = _bytes.allgather(data, data_name, process_set)
    objects = []
    start = 0
    for rank, (nbytes,) in zip(process_set.ranks or (), _SIZE.iter_unpack(header)):
        objects.append(_unpickled(everything[start : start + nbytes], operation, rank))
        start += nbytes
    return objects


def _sealed(data: bytearray, operation: str) -> bytearray:
    seal = session.require().seal
    return seal.close(operation, data) if seal else data


def _unpickled(data: bytearray, operation: str, from_rank: int) -> Any:
    seal = session.require().seal
    return pickle.loads(seal.open(operation, data, from_rank) if seal else data)


def _number(process_set: Any) -> Any:
    # The operations refuse values that are not process sets.
    return getattr(process_set, "process_set_id", None)


def _names(name: str) -> tuple[str, str]:
    return f"{name}.size", f"{name}.data"


def _pickled(obj: Any, op_type: int, name: str, process_set: ProcessSet) -> bytearray:
    import cloudpickle  # type: ignore[import-untyped,unused-ignore]

    try:
        return bytearray(cloudpickle.dumps(obj))
    except Exception as cause:  # pickling runs code of the object's class, which may raise anything
        current = session.require()
        number = submission.member_set(current, process_set)
        error = InvalidArgumentError(f"An object of type {type(obj).__name__} cannot be pickled: {cause}.")
        error.__cause__ = cause
        submission.refuse(current, op_type, number, [submission.full_name(op_type, name)], error)
