"""What a rank program asks of the library it measures, and the finder of the implementations.

Used by `rank.py`. Each implementation lives in a file of its own (`horovod`, `gloo`, `mpi`, `copy`) and is imported
only in the process that measures it, for each has an environment of its own. An operation that a library lacks raises
NotImplementedError.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

_LINE = 64  # bytes of a cache line


@dataclass(frozen=True)
class Prepared:
    """One operation, ready to be repeated.

    Attributes:
        inputs: float32 arrays over the memory that is sent, to be filled before every call; see `zeros`.
        call: runs the operation once and gives its result. What is not in place goes to new memory in every call,
            allocated as users of the library do it.
        outputs: the float32 arrays of such a result.
    """

    inputs: list[np.ndarray]
    call: Callable[[], Any]
    outputs: Callable[[Any], list[np.ndarray]]


class Library:
    """A library that moves tensors between `size` ranks; made once the ranks are connected.

    Attributes:
        rank, size: of this process.
        versions: name and version, as reported.
    """

    rank: int
    size: int
    versions: str

    def collective(self, operation: str, elems: int, variant: str) -> Prepared:
        """One float32 collective, or what two ranks send one another.

        Args:
            operation: allreduce (in place, sum), broadcast (in place, from rank 0), allgather, alltoall, reducescatter,
                or send: see `there_and_back`.
            elems: of this rank's input.
            variant: "" or a name that the implementation explains.
        """
        raise NotImplementedError(f"{operation} ({variant or 'plain'})")

    def gradients(self, sizes: list[int], mode: str) -> Prepared:
        """The allreduce (sum, in place) of a whole set of float32 gradients.

        Args:
            sizes: elements of each gradient, in the order in which they become ready.
            mode: how they are handed over; the implementation explains.
        """
        raise NotImplementedError(mode)

    def wrapped(self, model: Any, optimizer: Any, variant: str = "wrapped") -> tuple[Any, Any]:
        """A torch model and its optimizer, made to train together on all ranks.

        Args:
            variant: wrapped: with the library's defaults; others the implementation explains.
        """
        raise NotImplementedError("training")

    def close(self) -> None:
        """Collective. Leaves the job in order."""


def connect(name: str) -> Library:
    """Starts the named library in this process. Collective over the job.

    Args:
        name: copy, mpi, gloo, horovod.torch or horovod.numpy.
    """
    module, _, flavour = name.partition(".")
    made: Library = importlib.import_module(f"contenders.{module}").make(flavour)
    return made


def there_and_back(rank: int, send: Callable[[], Any], receive: Callable[[], Any]) -> Callable[[], Any]:
    """Of two ranks: the first sends and then receives what the other sends back, which is that one's own."""

    def first() -> None:
        send()
        receive()

    def second() -> None:
        receive()
        send()

    return first if rank == 0 else second


def zeros(elems: int) -> np.ndarray:
    """float32 [elems] that begins at a cache line, as torch's tensors do: no contender's input is better placed."""
    memory = np.zeros(4 * elems + _LINE, np.uint8)
    begin = -memory.ctypes.data % _LINE
    return memory[begin : begin + 4 * elems].view(np.float32)


def buckets(sizes: list[int], limit_elems: int) -> list[list[int]]:
    """Numbers of the gradients in each bucket, filled in order up to a limit, as DDP does."""
    made: list[list[int]] = [[]]
    held = 0
    for number, size in enumerate(sizes):
        if made[-1] and held + size > limit_elems:
            made.append([])
            held = 0
        made[-1].append(number)
        held += size
    return made
