"""Collectives described by a text, as functions that XLA has compiled hold them for the core to run.

Used where a framework traces such functions; src/frameworks/described_call.h reads it. All of a text's operations are
under way together. A process set stands there by its number, as it was when the function was traced.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Optional

from horovod._core import errors
from horovod._core.operations.submission import full_name

__all__ = ["DescribedOperation", "TensorForm", "describe", "failure_named_in"]

# How the core tells a failure: the name of the error here, and its text (src/frameworks/wording.h).
_FAILURE: Final = re.compile(r"\bHorovod (\w+Error): (.*)", re.DOTALL)


@dataclass(frozen=True)
class TensorForm:
    """One tensor of a submission.

    Args:
        name: as the user calls it, unique among what is under way; white space becomes "_".
        dtype: its number (`horovod._core.tensors.dtypes`), -1 for one that the core will refuse.
        shape: extents.
        result_bytes: what the result takes.
    """

    name: str
    dtype: int
    shape: Sequence[int]
    result_bytes: int


@dataclass(frozen=True)
class DescribedOperation:
    """One tensor, or several as a group that is negotiated as one unit.

    Args:
        op_type: ALLREDUCE, ... (`horovod._core.life.engine_port`).
        tensors: at least one.
        process_set: its number.
        reduce_op, factors, root: where the operation has them; factors as numbers or their texts.
    """

    op_type: int
    tensors: Sequence[TensorForm]
    process_set: int = 0
    reduce_op: int = 0
    factors: tuple[Any, Any] = (1.0, 1.0)
    root: int = 0


def describe(operations: Sequence[DescribedOperation]) -> str:
    """The text. Local; running it is collective."""
    lines: list[Sequence[Any]] = []
    for one in operations:
        lines.append((one.op_type, one.process_set, one.reduce_op, one.root, *one.factors, len(one.tensors)))
        for tensor in one.tensors:
            name = full_name(one.op_type, "_".join(tensor.name.split()))
            lines.append((name, tensor.dtype, tensor.result_bytes, len(tensor.shape), *tensor.shape))
    return "\n".join(" ".join(map(str, line)) for line in lines)


def failure_named_in(error: BaseException) -> Optional[errors.HorovodError]:
    """The failure of a described call, named in the text of XLA's error, which has no other room for it; None if the
    text names none."""
    found = _FAILURE.search(str(error))
    if found is None:
        return None
    failure: errors.HorovodError = getattr(errors, found[1], errors.HorovodInternalError)(found[2])
    return failure
