"""What the ranks put into their buffers, and what each collective must make of it.

Used by `tasks`. Every iteration has its own values, so that no contender profits from lines that did not change;
all values are small integers, exact in float32, so that results are compared for equality. Knows no library.
"""

from __future__ import annotations

import functools

import numpy as np

_PERIOD = 251


def value(rank: int, iteration: int) -> int:
    """The number that a rank fills its buffer with in an iteration."""
    return (iteration * 5) % 97 + 3 * rank + 1


def total(size: int, iteration: int) -> int:
    """The sum of that over the ranks."""
    return sum(value(rank, iteration) for rank in range(size))


@functools.cache
def positions(elems: int) -> np.ndarray:
    """float32 [elems], not to be changed: differs from place to place, so that a misplaced block shows."""
    return (np.arange(elems, dtype=np.int64) % _PERIOD).astype(np.float32)


def constants(operation: str, rank: int, size: int, iteration: int) -> list[int]:
    """The right result of one iteration with unpatterned buffers: the value of each of its equal blocks."""
    if operation in ("allreduce", "reducescatter"):
        return [total(size, iteration)]
    if operation in ("allgather", "alltoall"):
        return [value(by, iteration) for by in range(size)]
    return [value({"copy": rank, "send": 1 - rank}.get(operation, 0), iteration)]


def expected(operation: str, rank: int, size: int, iteration: int, elems: int) -> np.ndarray:
    """float32: the right result of one iteration with `positions` in the buffers; `elems` are those of the input."""
    base = positions(elems)

    def sent(by: int) -> np.ndarray:
        return base + np.float32(value(by, iteration))

    if operation == "allreduce":
        return base * np.float32(size) + np.float32(total(size, iteration))
    if operation == "broadcast":
        return sent(0)
    if operation == "allgather":
        return np.concatenate([sent(by) for by in range(size)])
    share = elems // size
    if operation == "reducescatter":
        whole = base * np.float32(size) + np.float32(total(size, iteration))
        return whole[rank * share : (rank + 1) * share]
    if operation == "alltoall":
        return np.concatenate([sent(by)[rank * share : (rank + 1) * share] for by in range(size)])
    if operation == "copy":
        return sent(rank)
    if operation == "send":
        return sent(1 - rank)
    raise ValueError(f"operation {operation!r} is unknown")
