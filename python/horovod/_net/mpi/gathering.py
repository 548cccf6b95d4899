"""What the ranks of a job tell one another through MPI: each a block of bytes, and rank 0 an answer to all of them.

Two collectives that do not block, on a communicator of our own: nobody's messages are mixed up with ours, and while
ranks are missing this one sleeps instead of turning a core. Used by session.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Optional

from horovod._net.failures import MeetingError, NetError
from horovod._net.mpi.library import Library

BLOCK_BYTES: Final = 1024
_LENGTH_BYTES: Final = 4
_FIRST_NAP_S: Final = 0.0002
_LONGEST_NAP_S: Final = 0.01
_GIVEN: Final = b"+"
_FAILED: Final = b"-"

# Rank 0's answer to what all have sent, in the order of the ranks.
Answer = Callable[[list[bytes]], bytes]


def gather(library: Library, ranks: Optional[Sequence[int]], rank: int, own: bytes, answer: Answer) -> Any:
    """Gives all ranks what each has sent, and rank 0's answer. Collective over `ranks`.

    Args:
        library: initialised.
        ranks: of MPI's world, in the order that they are to have; None: all.
        rank: this one, among them.
        own: what this one tells.
        answer: asked on rank 0.

    Returns:
        What each has sent, by rank; and the answer.

    Raises:
        MeetingError: MPI fails, a block is too long, or rank 0 has no answer: then its reason.
    """
    communicator = library.communicator(ranks)
    size = library.world().size if ranks is None else len(ranks)
    by_rank = _all_blocks(library, communicator, size, own)
    said = b""
    if rank == 0:
        try:
            said = _GIVEN + answer(by_rank)
        except NetError as error:  # the others are to hear of it
            said = _FAILED + str(error).encode()[: BLOCK_BYTES - _LENGTH_BYTES - 1]
    said = _from_root(library, communicator, said)
    library.free(communicator)
    if not said.startswith(_GIVEN):
        raise MeetingError(f"Rank 0 could not prepare the meeting: {said[1:].decode('utf-8', 'replace')}")
    return by_rank, said[1:]


def packed(data: bytes) -> bytes:
    """A block of fixed length that says how much of it counts.

    Raises:
        MeetingError: it does not fit.
    """
    if len(data) > BLOCK_BYTES - _LENGTH_BYTES:
        raise MeetingError(f"{len(data)} bytes do not fit into a block of {BLOCK_BYTES}.")
    return (len(data).to_bytes(_LENGTH_BYTES, "big") + data).ljust(BLOCK_BYTES, b"\0")


def unpacked(block: bytes) -> bytes:
    """What counts of a block."""
    length = int.from_bytes(block[:_LENGTH_BYTES], "big")
    return block[_LENGTH_BYTES : _LENGTH_BYTES + length]


def _all_blocks(library: Library, communicator: Any, size: int, own: bytes) -> list[bytes]:
    sent = ctypes.create_string_buffer(packed(own), BLOCK_BYTES)
    received = ctypes.create_string_buffer(BLOCK_BYTES * size)
    _await(library, library.start_allgather(communicator, sent, received, BLOCK_BYTES))
    raw = received.raw
    return [unpacked(raw[start : start + BLOCK_BYTES]) for start in range(0, len(raw), BLOCK_BYTES)]


def _from_root(library: Library, communicator: Any, said: bytes) -> bytes:
    buffer = ctypes.create_string_buffer(packed(said), BLOCK_BYTES)
    _await(library, library.start_broadcast(communicator, buffer, BLOCK_BYTES))
    return unpacked(buffer.raw)


def _await(library: Library, request: Any) -> None:
    nap_s = _FIRST_NAP_S
    while not library.done(request):
        time.sleep(nap_s)
        nap_s = min(2 * nap_s, _LONGEST_NAP_S)
