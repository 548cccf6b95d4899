"""Dumps as ranks would write them, for the tests of what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._dumps.values import HOROVOD, OTHER, USER, Dump, Frame, Operation, Thread

EVERYBODY = {0: (0, 1, 2, 3)}
WAITING = Frame("/site-packages/horovod/_core/life/handles.py", 191, "_wait", HOROVOD)
READING = Frame("/usr/lib/python3/socket.py", 706, "readinto", OTHER)


def allreduce(name: str, seconds: float = 61.0, process_set: int = 0) -> Operation:
    return Operation(f"allreduce '{name}'", f"allreduce.{name}", process_set, "float32", (3,), seconds)


def send_or_recv(call: str, sender: int, receiver: int) -> Operation:
    """The second that this pair makes."""
    what = f"{call} #2 from rank {sender} to rank {receiver}"
    return Operation(what, f"{sender}->{receiver} #2", 0, "float32", (3,), 61.0, members=(sender, receiver))


def at(line: int, function: str, *deeper: Frame) -> tuple[Frame, ...]:
    return (Frame("/job/train.py", 90, "<module>", USER), Frame("/job/train.py", line, function, USER), *deeper)


def dump(rank: int, stack: Sequence[Frame], *pending: Operation, **more: Any) -> Dump:
    values: dict[str, Any] = {"process_sets": EVERYBODY, **more}
    threads = (Thread("other", False, ()), Thread("MainThread", True, tuple(stack)))
    return Dump(rank, 4, "host", 100 + rank, "/job", "now", "stall", pending, threads=threads, **values)
