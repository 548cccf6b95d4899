"""A fake of the native engine for several "ranks" that are threads of one process: `FakeJob(size)` and its
`FakeEngine`s.

It answers the calls of `horovod._core.life.engine_port.EnginePort` with the semantics of include/horovod/horovod.h, in
plain Python and NumPy: matching by (process set, name), groups, refusals, join, process sets, errors on every member.
It is verified: the contract suite runs against it as against the real one. It has no timing, no transport and no
driver; whoever completes an operation computes it.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
from fakes.arithmetic import array_at, execute, mismatch
from fakes.pairs import FakePairs
from fakes.ports import FakeDumps, FakeTuning

from horovod._core.errors import HorovodError, InvalidArgumentError, error_from_status
from horovod._core.life.engine_port import (
    ALLTOALL,
    BARRIER,
    IN_PROGRESS,
    JOIN,
    OK,
    OP_NAMES,
    RECV,
    SEND,
    UNKNOWN_HANDLE,
)  # fmt: skip
from horovod._core.tensors import dtypes
from horovod._core.tensors.adapter import ResultBlock
from horovod._native import abi

INVALID_ARGUMENT, UNSUPPORTED, NOT_INITIALIZED, SHUTDOWN, MISMATCH = 1, 2, 5, 6, 9


# The fields of hvd_config that are settings follow the host's name.
_SETTINGS_AFTER = [name for name, *_ in abi.HvdConfig._fields_].index("hostname") + 1


@dataclass
class Contribution:
    """What one rank brought to an operation."""

    rank: int
    type: int = 0
    dtype: int = 0
    reduce_op: int = 0
    root: int = 0
    factors: tuple[float, float] = (1.0, 1.0)
    shape: tuple[int, ...] = ()
    splits: Optional[list[int]] = None
    group: tuple[str, ...] = ()
    input: Any = None  # a copy
    output: Any = None  # a view of the caller's memory, or None
    refusal: str = ""
    ticket: Optional[Ticket] = None
    index: int = 0
    absent: bool = False  # stands in for a rank that has joined


def contribution_of(
    rank: int, op: abi.HvdOp, members: int, ticket: Ticket, index: int, group: tuple[str, ...]
) -> Contribution:
    """What `rank` brings with the operation number `index` of its ticket, in a set of so many members."""
    shape = tuple(op.shape[i] for i in range(op.ndim))
    splits = [op.splits[i] for i in range(op.n_splits)] if op.splits else None
    if op.type == ALLTOALL and splits is None:
        splits = [shape[0] // members] * members
    has_data = op.type != BARRIER
    return Contribution(
        rank=rank,
        type=op.type,
        dtype=op.dtype,
        reduce_op=op.reduce_op,
        root=op.root_rank,
        factors=(op.prescale, op.postscale),
        shape=shape,
        splits=splits,
        input=array_at(op.input, op.dtype, shape).copy() if has_data else None,
        output=array_at(op.output, op.dtype, shape) if has_data and (op.output or 0 in shape) else None,
        ticket=ticket,
        index=index,
        group=group,
    )


@dataclass
class Ticket:
    """One submission of one rank: what its handle refers to."""

    remaining: int
    status: int = OK
    message: str = ""
    results: dict[int, Any] = field(default_factory=dict)
    received: dict[int, list[int]] = field(default_factory=dict)
    value: int = 0

    def finish_one(self, status: int, message: str) -> None:
        self.remaining -= 1
        if status != OK and self.status == OK:
            self.status, self.message = status, message

    def anything_to_take(self, op: abi.HvdOp) -> bool:
        """False also if the result has gone into memory of the caller's that is exactly as long."""
        if not self.results or 0 < op.output_bytes == self.results[0].nbytes:
            for result in self.results.values():
                ctypes.memmove(op.output, np.ascontiguousarray(result).ctypes.data, result.nbytes)
            return False
        return True


class Tickets:
    """The submissions of one rank by handle."""

    def __init__(self) -> None:
        self._tickets: dict[int, Ticket] = {}
        self._next = 1

    def __getitem__(self, handle: int) -> Ticket:
        return self._tickets[handle]

    def get(self, handle: int) -> Optional[Ticket]:
        return self._tickets.get(handle)

    def file(self, ticket: Ticket, handle: int) -> None:
        """Writes a new handle to the address `handle`."""
        number, self._next = self._next, self._next + 1
        self._tickets[number] = ticket
        ctypes.c_int64.from_address(handle).value = number

    def release(self, handle: int) -> bool:
        """False if there is none."""
        return self._tickets.pop(handle, None) is not None


class FakeJob:
    """What the ranks of one job share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.condition = threading.Condition()  # guards everything below
        self.sets: dict[int, list[int]] = {0: list(range(size))}
        self.pending: dict[tuple[int, str], dict[int, Contribution]] = {}
        self.pairs = FakePairs()
        self.joined: dict[int, Ticket] = {}
        self.joins = 0  # that have ended: unnamed operations of the global set are counted anew after each
        self.next_set = 1  # an id is never given twice
        self.wishes: dict[str, dict[int, tuple[Any, Ticket]]] = {"add": {}, "remove": {}}
        self.left: set[int] = set()
        self.last_words: dict[int, str] = {}
        self.parameters: dict[str, float] = {
            "fusion_threshold_bytes": 128 << 20,
            "cycle_time_ms": 0.0,
            "hierarchical_allreduce": -1,
            "hierarchical_allgather": -1,
            "torus_allreduce": -1,
        }

    def contribute(self, group: list[tuple[tuple[int, str], Contribution]]) -> None:
        for key, contribution in group:
            self.pending.setdefault(key, {})[contribution.rank] = contribution
        self.settle()

    def settle(self) -> None:
        """Executes everything whose members have all arrived."""
        for key in list(self.pending):
            arrived = self.pending.get(key)
            if not arrived:
                self.pending.pop(key, None)
                continue
            members = self.sets.get(key[0], [])
            missing = [rank for rank in members if rank not in arrived]
            gone = [rank for rank in missing if rank in self.left]
            if gone:
                why = self.last_words.get(gone[0])
                self._end(key, SHUTDOWN, f"{key[1]}: rank {gone[0]} {f'ended with {why}' if why else 'has shut down'}.")
            elif all(rank in self.joined for rank in missing):
                self._complete(key, missing)
        if len(self.joined) == self.size:
            last = list(self.joined)[-1]
            for ticket in self.joined.values():
                ticket.value = last
                ticket.finish_one(OK, "")
            self.joined.clear()
            self.joins += 1
        self.condition.notify_all()

    def submit_of_pair(self, rank: int, op: abi.HvdOp, flags: int, ticket: Ticket) -> tuple[int, str]:
        """A send or recv of a rank: a status and, if it is refused, why."""
        if op.root_rank not in self.sets[op.process_set]:
            return INVALID_ARGUMENT, f"rank {op.root_rank} is not a member of process set {op.process_set}."
        refused = self.pairs.submit(rank, op, bool(flags & abi.SUBMIT_WILL_WAIT), ticket)
        self.condition.notify_all()
        return refused

    def _complete(self, key: tuple[int, str], missing: list[int]) -> None:
        arrived = self.pending[key]
        ordered = [arrived[rank] for rank in sorted(arrived)]
        problem = mismatch(key[1], ordered, missing)
        if problem:
            self._end(key, MISMATCH, problem)
            return
        if missing:
            model = ordered[0]
            stand_ins = [Contribution(rank, dtype=model.dtype, shape=model.shape, absent=True) for rank in missing]
            ordered = sorted(ordered + stand_ins, key=lambda one: one.rank)
        execute(ordered)
        self._end(key, OK, "")

    def _end(self, key: tuple[int, str], status: int, message: str) -> None:
        for contribution in self.pending.pop(key).values():
            if contribution.ticket is None:
                continue
            contribution.ticket.finish_one(status, message)
            if status != OK and contribution.group:
                self._drop_group(key[0], contribution, status, message)

    def _drop_group(self, process_set: int, failed: Contribution, status: int, message: str) -> None:
        """A group fails as a whole: takes back what this rank has submitted of it."""
        for name in failed.group:
            arrived = self.pending.get((process_set, name), {})
            other = arrived.get(failed.rank)
            if other is not None and other.ticket is failed.ticket:
                del arrived[failed.rank]
                other.ticket.finish_one(status, message)

    def wish(self, kind: str, rank: int, what: Any, ticket: Ticket, members: Sequence[int] = ()) -> None:
        """members: of a new set which they alone ask for."""
        wishes = self.wishes.setdefault(f"{kind} {members}" if members else kind, {})
        wishes[rank] = (what, ticket)
        if len(wishes) < (len(members) or self.size):
            return
        asked = {rank: wish[0] for rank, wish in wishes.items()}
        tickets = [wish[1] for wish in wishes.values()]
        wishes.clear()
        status, message, value = OK, "", 0
        if len({repr(one) for one in asked.values()}) != 1:
            status, message = MISMATCH, f"process_set_{kind}: the ranks asked for different sets: {asked}."
        elif kind == "add":
            status, message, value = self._add(next(iter(asked.values())))
        elif asked[0] not in self.sets or asked[0] == 0:
            status, message = INVALID_ARGUMENT, f"process set {asked[0]} cannot be removed."
        else:
            del self.sets[asked[0]]
            self.pairs.end_set(asked[0])
        for ticket in tickets:
            ticket.value = value
            ticket.finish_one(status, message)
        self.condition.notify_all()

    def _add(self, ranks: list[int]) -> tuple[int, str, int]:
        if ranks in self.sets.values():
            return INVALID_ARGUMENT, f"a process set of ranks {ranks} exists already.", 0
        number = self.next_set
        self.next_set += 1
        self.sets[number] = ranks
        return OK, "", number


class Names:
    """The names of one rank's operations: those that the caller gave none are numbered."""

    def __init__(self, job: FakeJob) -> None:
        self._job = job
        self._unnamed: dict[tuple[int, int, int], int] = {}

    def name(self, op_type: int, process_set: int, name: Optional[bytes]) -> str:
        if name:
            return name.decode()
        key = (process_set, op_type, self._job.joins if process_set == 0 else 0)
        count = self._unnamed.get(key, 0)
        self._unnamed[key] = count + 1
        return f"{OP_NAMES[op_type]}.noname.{count}"


class LastError(threading.local):
    """The message of the call of this thread that failed last."""

    message = ""

    def fail(self, status: int, message: str) -> int:
        self.message = message
        return status


class FakeEngine:
    """One rank's engine. See `EnginePort` for the methods."""

    door = (0, 0, 0, 0)
    dumps = FakeDumps()

    def __init__(self, job: FakeJob, rank: int) -> None:
        self.job = job
        self._rank = rank
        self.tuning = FakeTuning(job, rank)
        self._tickets = Tickets()
        self._names = Names(job)
        self._last = LastError()

    # ---- submitting

    def submit(self, ops: int, n: int, flags: int, handle: int) -> int:
        array = (abi.HvdOp * n).from_address(ops)
        with self.job.condition:
            if self._rank in self.job.left:
                return self._last.fail(NOT_INITIALIZED, "Horovod is not initialized; call hvd.init() first.")
            ticket = Ticket(remaining=n)
            if array[0].type == JOIN:
                self.job.joined[self._rank] = ticket
                self._tickets.file(ticket, handle)
                self.job.settle()
                return OK
            ranks = self.job.sets.get(array[0].process_set)
            if ranks is None or self._rank not in ranks:
                return self._last.fail(
                    INVALID_ARGUMENT, f"rank {self._rank} is not a member of process set {array[0].process_set}."
                )
            if array[0].type in (SEND, RECV):
                status, message = self.job.submit_of_pair(self._rank, array[0], flags, ticket)
                if status == OK:
                    self._tickets.file(ticket, handle)
                return self._last.fail(status, message)
            names = [self._names.name(op.type, op.process_set, op.name) for op in array]
            keys = [(op.process_set, name) for op, name in zip(array, names)]
            for key in keys:
                if self._rank in self.job.pending.get(key, {}) or keys.count(key) > 1:
                    return self._last.fail(
                        INVALID_ARGUMENT, f"{OP_NAMES[array[0].type]} '{key[1]}' is in flight already."
                    )
            self._tickets.file(ticket, handle)
            group = tuple(names) if n > 1 else ()
            self.job.contribute(
                [
                    (key, contribution_of(self._rank, op, len(ranks), ticket, i, group))
                    for i, (op, key) in enumerate(zip(array, keys))
                ]
            )
        return OK

    def run(self, ops: int, n: int, timeout_s: float, handle: int) -> int:
        status = self.submit(ops, n, abi.SUBMIT_WILL_WAIT, handle)
        if status != OK:
            return status
        number = ctypes.c_int64.from_address(handle)
        status = self.wait(number.value, timeout_s)
        if status == IN_PROGRESS or (
            status == OK and self._tickets[number.value].anything_to_take(abi.HvdOp.from_address(ops))
        ):
            return status
        self.release(number.value)
        number.value = 0
        return status

    def refuse(self, op_type: int, process_set: int, name: str, reason: str) -> None:
        with self.job.condition:
            if self._rank not in self.job.sets.get(process_set, []):
                raise error_from_status(INVALID_ARGUMENT, "refuse: not a member.")
            key = (process_set, self._names.name(op_type, process_set, name.encode()))
            if self._rank not in self.job.pending.get(key, {}):
                self.job.contribute([(key, Contribution(self._rank, type=op_type, refusal=reason))])

    # ---- waiting

    def poll(self, handle: int) -> int:
        with self.job.condition:
            return self._status(handle)

    def wait(self, handle: int, timeout_s: float) -> int:
        with self.job.condition:
            self.job.condition.wait_for(lambda: self._status(handle) != IN_PROGRESS, timeout_s)
            return self._status(handle)

    def finish(self, handle: int, timeout_s: float) -> int:
        return self.finish_all([handle], timeout_s)

    def finish_all(self, handles: Sequence[int], timeout_s: float) -> int:
        for handle in handles:
            status = self.wait(handle, timeout_s)
            if status != OK:
                return status
        for handle in handles:
            self.release(handle)
        return OK

    def _status(self, handle: int) -> int:
        ticket = self._tickets.get(handle)
        if ticket is None:
            return self._last.fail(UNKNOWN_HANDLE, f"unknown handle {handle}.")
        if ticket.remaining > 0:
            return IN_PROGRESS
        return OK if ticket.status == OK else self._last.fail(ticket.status, ticket.message)

    def release(self, handle: int) -> int:
        return OK if self._tickets.release(handle) else self._last.fail(UNKNOWN_HANDLE, f"unknown handle {handle}.")

    def error(self, status: int) -> HorovodError:
        return error_from_status(status, self._last.message)

    # ---- results

    def take_result(self, handle: int, index: int) -> ResultBlock:
        array = np.ascontiguousarray(self._tickets[handle].results.pop(index))
        number = next(n for n in range(len(dtypes.NAMES)) if dtypes.NAMES[n] == array.dtype.name)
        return ResultBlock(array.ctypes.data, array.nbytes, number, array.shape, array)

    def received_splits(self, handle: int, index: int, n: int) -> list[int]:
        received = self._tickets[handle].received[index]
        if max(received) >= 2**31:
            raise error_from_status(UNSUPPORTED, f"{max(received)} rows are more than a received split can say.")
        return received

    def result_value(self, handle: int) -> int:
        return self._tickets[handle].value

    # ---- process sets

    def process_set_add(self, ranks: Any, by_members: bool = False) -> int:
        if by_members and self._rank not in ranks:
            raise InvalidArgumentError(f"add_process_set: rank {self._rank} is none of the members {ranks}.")
        return self._wish("add", sorted(ranks), sorted(ranks) if by_members else ())

    def process_set_remove(self, process_set: int) -> int:
        return self._wish("remove", process_set)

    def _wish(self, kind: str, what: Any, members: Sequence[int] = ()) -> int:
        number = ctypes.c_int64(0)
        ticket = Ticket(remaining=1)
        with self.job.condition:
            self._tickets.file(ticket, ctypes.addressof(number))
            self.job.wish(kind, self._rank, what, ticket, members)
        return number.value

    def process_set_ranks(self, process_set: int) -> list[int]:
        with self.job.condition:
            if process_set not in self.job.sets:
                raise InvalidArgumentError(f"process set {process_set} does not exist.")
            return list(self.job.sets[process_set])

    def process_set_list(self) -> list[int]:
        with self.job.condition:
            return sorted(self.job.sets)

    # ---- life

    def last_words(self, why: str) -> None:
        with self.job.condition:
            self.job.last_words[self._rank] = why

    def shutdown(self, timeout_s: float) -> None:
        with self.job.condition:
            self.job.left.add(self._rank)
            for key, arrived in list(self.job.pending.items()):
                contribution = arrived.pop(self._rank, None)
                if contribution is not None and contribution.ticket is not None:
                    contribution.ticket.finish_one(SHUTDOWN, f"{key[1]}: the engine is shutting down.")
                if not arrived:
                    del self.job.pending[key]
            self.job.settle()

    def abort(self, status: int, reason: str) -> None:
        with self.job.condition:
            self.job.left.update(range(self.job.size))
            self.job.settle()

    def timeline_start(self, path: str, mark_cycles: bool) -> None:
        with open(path, "w") as file:
            file.write("[]")

    def timeline_stop(self) -> None:
        """Nothing is written."""

    def describe(self) -> str:
        reasons = dict.fromkeys(("hierarchical", "nccl", "staged", "mpi"), "there is none") | {"host": ""}
        numbers = {"version": 0, "batches": 0}
        backends = [{"name": name, "usable": not why, "why_not": why, **numbers} for name, why in reasons.items()]
        place = {"abi": abi.ABI_VERSION, "rank": self._rank, "size": self.job.size, "hostname": "here", "simd": "none"}
        place |= {"shared_memory_ranks": self.job.size, "cores_per_rank": 1, "failed": False}
        settings = {name: 0 for name, *_ in abi.HvdConfig._fields_[_SETTINGS_AFTER:]}
        numbers = dict.fromkeys(("batches", "tensors", "sleeps", "in_flight", "steps", "stalls", "errors"), 0)
        seconds = dict.fromkeys(("blocked", "transferring", "pending", "in_batches"), 0.0)
        counters = {**numbers, "seconds": seconds, "last_error": "", "operations": {}}
        return json.dumps(
            {
                **place,
                "backends": backends,
                "settings": settings,
                "process_sets": {str(number): ranks for number, ranks in self.job.sets.items()},
                "counters": counters,
            }
        )
