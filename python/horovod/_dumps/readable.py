"""Dumps as text for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from horovod._dumps.compare import function_text, printable, shown_file
from horovod._dumps.values import Dump, Operation, Thread

_LAST_FINISHED: Final = 8


def one_rank(dump: Dump) -> str:
    """A dump, as lines of text."""
    lines = [f"Rank {dump.rank} of {dump.size} ({dump.host}, pid {dump.pid}) at {dump.time}:"]
    lines += [f"  waits for {_waiting(one)}" for one in dump.pending]
    if dump.untold:
        lines.append(f"  and for {dump.untold} more")
    lines += [f"  finished {one.what} as its number {one.number}" for one in dump.finished[-_LAST_FINISHED:]]
    for thread in sorted(dump.threads, key=lambda thread: not thread.main):
        lines += _stack(thread, dump.directory)
    return "".join(f"{printable(line)}\n" for line in lines)


def all_ranks(lines: Sequence[str], dumps: Mapping[int, Dump]) -> str:
    """What the comparison says, then every dump."""
    head = "".join(line + "\n" for line in lines)
    return "\n".join([head, *(one_rank(dumps[rank]) for rank in sorted(dumps))])


def _waiting(one: Operation) -> str:
    shape = "x".join(map(str, one.shape)) or "scalar"
    site = f", called in {one.call_site}" if one.call_site else ""
    return f"{one.what} ({one.dtype} {shape}) for {one.seconds:.1f} s{site}"


def _stack(thread: Thread, directory: str) -> list[str]:
    name = f" {thread.name!r}" if thread.name else ""
    lines = [f"  Main thread{name}:" if thread.main else f"  Thread{name}:"]
    for frame in thread.frames:
        place = f"{shown_file(frame.file, directory)}:{frame.line}, in {function_text(frame.function)}"
        lines.append(f"    {place}")
    return lines
