"""The fake engine's sends and recvs: `FakePairs`, one for all ranks of a job.

The n-th send of a pair meets its n-th recv; a blocking send of a small tensor returns at once. Verified like the rest
of the fake. Whoever calls holds the job's lock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from fakes.arithmetic import array_at

from horovod._core.life.engine_port import OK, SEND
from horovod._core.tensors import dtypes
from horovod._native import abi

INVALID_ARGUMENT, MISMATCH = 1, 9
_MOST_COPIED = 64 << 10


@dataclass
class _Half:
    """What one rank has submitted."""

    dtype: int
    shape: tuple[int, ...]
    array: Any  # of a send what is sent, of a recv where it goes
    ticket: Any  # its own; of a send that has returned nobody's
    refusal: str = ""  # of a send: why its recv fails

    @property
    def text(self) -> str:
        return f"{dtypes.NAMES[self.dtype]} {list(self.shape)}"


class FakePairs:
    """The halves that wait, by pair."""

    def __init__(self) -> None:
        self._sends: dict[tuple[int, int, int], deque[_Half]] = {}
        self._recvs: dict[tuple[int, int, int], deque[_Half]] = {}
        self._failed: dict[tuple[int, int, int], str] = {}  # sends that had returned

    def submit(self, rank: int, op: abi.HvdOp, waits: bool, ticket: Any) -> tuple[int, str]:
        """A send or recv of a rank: a status and, if it is refused, why. waits: the rank does nothing meanwhile."""
        sends = op.type == SEND
        pair = (op.process_set, *((rank, op.root_rank) if sends else (op.root_rank, rank)))
        subject = f"send from rank {pair[1]} to rank {pair[2]}"
        if sends and pair in self._failed:
            why = f"this send was not begun, because an earlier one has failed: {self._failed.pop(pair)}"
            self._sends.setdefault(pair, deque()).append(_Half(op.dtype, (), None, None, why))
            self._settle(pair, subject)
            return MISMATCH, why
        shape = tuple(op.shape[i] for i in range(op.ndim))
        array = array_at(op.input if sends else op.output, op.dtype, shape)
        to_itself = pair[1] == pair[2]
        if not sends and waits and to_itself and not self._sends.get(pair):
            ticket.finish_one(INVALID_ARGUMENT, f"{subject}: this rank has sent itself nothing.")
            return OK, ""
        half = _Half(op.dtype, shape, array, ticket)
        if sends and waits and (array.nbytes <= _MOST_COPIED or to_itself):
            half = _Half(op.dtype, shape, array.copy(), None)
            ticket.finish_one(OK, "")
        (self._sends if sends else self._recvs).setdefault(pair, deque()).append(half)
        self._settle(pair, subject)
        return OK, ""

    def end_set(self, number: int) -> None:
        """A process set has been removed."""
        for waiting in (self._sends, self._recvs):
            for pair in [pair for pair in waiting if pair[0] == number]:
                for half in waiting.pop(pair):
                    if half.ticket is not None:
                        half.ticket.finish_one(INVALID_ARGUMENT, "the process set was removed while it was waiting.")

    def _settle(self, pair: tuple[int, int, int], subject: str) -> None:
        sends, recvs = self._sends.get(pair), self._recvs.get(pair)
        while sends and recvs:
            sent, received = sends.popleft(), recvs.popleft()
            status, message = OK, ""
            if sent.refusal:
                received.ticket.finish_one(MISMATCH, sent.refusal)
                continue
            if (sent.dtype, sent.shape) != (received.dtype, received.shape):
                status = MISMATCH
                message = f"{subject}: rank {pair[1]} sent {sent.text}, rank {pair[2]} receives {received.text}."
            else:
                received.array[...] = sent.array
            received.ticket.finish_one(status, message)
            if sent.ticket is not None:
                sent.ticket.finish_one(status, message)
            elif status != OK and pair[1] != pair[2]:
                self._failed[pair] = message
