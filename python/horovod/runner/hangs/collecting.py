"""Collects the dumps of the ranks of one host, and the reasons why others have given none.

Used by `hang` for a job on this host, by `remote.host_side.dump_post` for an agent's; they give it the time. Ranks dump
by themselves when a stall is reported; a rank that has not within a moment is asked for its dump, and one that does not
answer gets the signal on which `faulthandler` writes at least the stacks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Optional, Protocol

from horovod._dumps import paths

if TYPE_CHECKING:
    from horovod._dumps.values import Dump

ENDED: Final = "ended"
SHUT_DOWN: Final = "it has shut Horovod down"  # and is mostly about to end
ENOUGH_S: Final = 2.5  # a round lasts no longer
ASK_S: Final = 0.3  # after the first dump, or the wish for one
_SIGNAL_S: Final = 1.5


class Collected(NamedTuple):
    """What one round has brought.

    Attributes:
        dumps: by rank.
        absent: why the other ranks have given none.
    """

    dumps: dict[int, Dump]
    absent: dict[int, str]


class Source(Protocol):
    """Where dumps come from: the ranks of this host, or other hosts. Times are those of the monotonic clock."""

    @property
    def fd(self) -> int:
        """Readable when `read` has something; -1: it never has."""

    def ask(self, now_s: float) -> None:
        """Begins a round: asks all ranks for dumps."""

    def read(self, now_s: float) -> None:
        """Takes the news that has come."""

    def next_s(self) -> Optional[float]:
        """When `finished_round` has something to do, if there is no news before; None: no round is going on."""

    def finished_round(self, left: set[int], now_s: float) -> Optional[Collected]:
        """What a round has brought, once it is over.

        Args:
            left: ranks that have not ended.
            now_s: the time.
        """

    def close(self, left: set[int]) -> Optional[Collected]:
        """The job ends: what the round that is going on has brought. May be called twice."""


class Collecting:
    """The ranks of this host; a `Source`.

    Args:
        directory: where they meet, private.
        number: the signal that makes a rank dump; 0: none.
        hosts: what each rank's host is called.
        size: of the job.
        cwd: where the ranks were started.

    Attributes:
        fd: see `Source`; -1 also when no pipe can be made.
    """

    def __init__(self, directory: Path, number: int, hosts: Mapping[int, str], size: int, cwd: str) -> None:
        self._directory = directory
        self._number = number
        self._hosts = hosts
        self._size = size
        self._cwd = cwd
        self._came: set[int] = set()
        self._begun_s: Optional[float] = None
        self._asked = self._signalled = False
        self.fd = -1
        with contextlib.suppress(OSError):
            self.fd = paths.open_own_pipe(directory / paths.NEWS)

    def ask(self, now_s: float) -> None:
        if self._begun_s is None:  # else they have been asked, or will be in a moment
            self._begun_s = now_s
            self._ask(set(self._hosts))

    def read(self, now_s: float) -> None:
        with contextlib.suppress(OSError):
            data = os.read(self.fd, 1 << 16)
            self._came |= {int(word) for word in data.split() if word.isdigit()}
            if self._begun_s is None:
                self._begun_s = now_s

    def next_s(self) -> Optional[float]:
        if self._begun_s is None:
            return None
        return self._begun_s + (ENOUGH_S if self._signalled else _SIGNAL_S if self._asked else ASK_S)

    def finished_round(self, left: set[int], now_s: float) -> Optional[Collected]:
        if self._begun_s is None:
            return None
        missing = left - self._came
        after_s = now_s - self._begun_s
        if not missing or after_s >= ENOUGH_S:
            return self._finish(left)
        if after_s >= _SIGNAL_S and not self._signalled:
            self._signalled = True
            self._signal(missing)
        elif after_s >= ASK_S and not self._asked:
            self._ask(missing)
        return None

    def close(self, left: set[int]) -> Optional[Collected]:
        found = None if self._begun_s is None else self._finish(left)
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        return found

    def _ask(self, ranks: set[int]) -> None:
        self._asked = True
        for rank in ranks:
            paths.ask(self._directory, rank)

    def _signal(self, ranks: set[int]) -> None:
        """To those alone that have said that they take it: anybody else would die of it."""
        for rank in ranks:
            found = paths.find_stacks_file(self._directory, rank)
            if found and self._number and _state(found[1]) not in ("", "T", "t"):
                with contextlib.suppress(OSError):
                    os.kill(found[1], self._number)

    def _finish(self, left: set[int]) -> Collected:
        from horovod._dumps import files  # not before it is needed: it takes milliseconds

        dumps, absent = files.read_dumps(self._directory, self._came & set(self._hosts))
        for rank in self._hosts:
            if rank not in self._came and rank in left:
                self._collect_silent(rank, dumps, absent)
            elif rank not in self._came:
                absent[rank] = ENDED
        self._begun_s = None
        self._came.clear()
        self._asked = self._signalled = False
        return Collected(dumps, absent)

    def _collect_silent(self, rank: int, dumps: dict[int, Dump], absent: dict[int, str]) -> None:
        from horovod._dumps.stacks import from_faulthandler
        from horovod._dumps.values import Dump, Thread

        found = paths.find_stacks_file(self._directory, rank)
        if found is None:
            left = paths.has_left(self._directory, rank)
            absent[rank] = SHUT_DOWN if left else "no hvd.init() yet, dumps are off, or it handles the signal itself"
            return
        path, pid = found
        if _state(pid) in ("T", "t"):
            absent[rank] = "stopped by a signal or a debugger"
            return
        threads: tuple[Thread, ...] = ()
        with contextlib.suppress(OSError):
            threads = from_faulthandler(path.read_text("utf-8", "replace"))
        if not threads:
            absent[rank] = "no answer"
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        host = self._hosts[rank]
        dumps[rank] = Dump(rank, self._size, host, pid, self._cwd, now, "request", threads=threads, stacks_only=True)


def _state(pid: int) -> str:
    """Of a process, as the kernel calls it: "T" is stopped; "" when there is none."""
    try:
        return Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""
