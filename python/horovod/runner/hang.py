"""Collects the dumps of all ranks into one file and says which rank is behind.

Used by `supervision`, which gives it the time and news of the ranks. The ranks of this host dump by themselves when a
stall is reported; whoever has not within a moment is asked, whoever does not answer gets the signal, by which
`faulthandler` writes at least the stacks. What the dumps say together is decided in `horovod._dumps.compare`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Optional

from horovod._dumps import places
from horovod.runner.job import Job

if TYPE_CHECKING:
    from horovod._dumps.values import Dump

_ASK_S: Final = 0.3  # after the first dump, or the wish for one
_SIGNAL_S: Final = 1.5
_ENOUGH_S: Final = 2.5
_ANOTHER_S: Final = 5.0  # a stall is told so long after it began, at most, beside the warning time
_FILE: Final = "hang"
_ENDED: Final = "ended"


def hang_desk(job: Job, directory: Path) -> Optional[HangDesk]:
    """The desk of a job on this host; None where nothing could come to it.

    Args:
        job: what runs.
        directory: of the job.
    """
    settings = job.settings
    if job.size == 1 or not (settings.dump_on_stall or places.signal_number(settings.dump_signal)):
        return None
    keep_in = settings.dump_directory or settings.output_filename
    hosts = {slot.rank: slot.hostname for slot in job.slots}
    keep = Path(job.cwd, keep_in) if keep_in else None
    return HangDesk(directory, keep, places.signal_number(settings.dump_signal), hosts, job.cwd)


class HangDesk:
    """Where the dumps of a job come together.

    Args:
        directory: the job's, private.
        keep_in: where the user wants the file; None: in the job's directory, until the job ends.
        number: the signal that makes a rank dump; 0: none.
        hosts: of each rank.
        cwd: where the ranks were started.

    Attributes:
        fd: readable when a rank has dumped; -1 when there is no pipe.
    """

    def __init__(
        self, directory: Path, keep_in: Optional[Path], number: int, hosts: Mapping[int, str], cwd: str
    ) -> None:
        self._directory = directory
        self._keep_in = keep_in
        self._number = number
        self._hosts = hosts
        self._cwd = cwd
        self._came: set[int] = set()
        self._begun_s: Optional[float] = None
        self._asked = self._signalled = self._wanted = False
        self._told = ""
        self._told_s = 0.0
        self.fd = -1
        with contextlib.suppress(OSError):
            self.fd = places.open_own_pipe(directory / places.NEWS)

    def ask(self, now_s: float) -> None:
        """The user wants to know."""
        self._begin(now_s)
        self._wanted = True
        self._ask(set(self._hosts))

    def read(self, now_s: float) -> None:
        """Ranks have dumped."""
        with contextlib.suppress(OSError):
            told = os.read(self.fd, 1 << 16)
            self._came |= {int(word) for word in told.split() if word.isdigit()}
            self._begin(now_s)

    def next_s(self) -> Optional[float]:
        """When `look` has something to do, if no dump comes before; None: nothing is going on."""
        if self._begun_s is None:
            return None
        return self._begun_s + (_ENOUGH_S if self._signalled else _SIGNAL_S if self._asked else _ASK_S)

    def look(self, left: set[int], now_s: float) -> str:
        """What is to be written now, mostly nothing.

        Args:
            left: ranks that have not ended.
            now_s: the time.
        """
        if self._begun_s is None:
            return ""
        missing = left - self._came
        after_s = now_s - self._begun_s
        if not missing or after_s >= _ENOUGH_S:
            return self._finish(left)
        if after_s >= _SIGNAL_S and not self._signalled:
            self._signalled = True
            self._signal(missing)
        elif after_s >= _ASK_S and not self._asked:
            self._ask(missing)
        return ""

    def close(self, left: set[int]) -> str:
        """The job ends: what is to be written before."""
        text = "" if self._begun_s is None else self._finish(left)
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        return text

    def _begin(self, now_s: float) -> None:
        if self._begun_s is None:
            self._begun_s = now_s

    def _ask(self, ranks: set[int]) -> None:
        self._asked = True
        for rank in ranks:
            places.ask(self._directory, rank)

    def _signal(self, ranks: set[int]) -> None:
        """To those alone that have said that they take it: anybody else would die of it."""
        for rank in ranks:
            found = places.find_stacks_file(self._directory, rank)
            if found and self._number and _state(found[1]) not in ("", "T", "t"):
                with contextlib.suppress(OSError):
                    os.kill(found[1], self._number)

    def _finish(self, left: set[int]) -> str:
        from horovod._dumps.compare import (
            anybody_behind,
            compare,
            without_times,
        )  # not before it is needed: they take milliseconds

        dumps, absent = self._collect(left)
        wanted = self._wanted or any(dump.reason == "signal" for dump in dumps.values())
        self._wanted = False
        self._begun_s = None
        self._came.clear()
        self._asked = self._signalled = False
        waited_s = max((one.seconds for dump in dumps.values() for one in dump.pending), default=0.0)
        if time.monotonic() - self._told_s > waited_s + _ANOTHER_S:
            self._told = ""  # this is another stall
        if self._told and not wanted and (_ENDED in absent.values() or not anybody_behind(dumps)):
            return ""  # it is over, or the job ends because of it: what was told then says more
        lines = compare(dumps, absent)
        same = without_times(lines)
        # A stall is reported again and again; what has not changed need not be read again.
        repeated, self._told = same == self._told and not wanted, same
        path, problem = self._write(lines, dumps)
        if repeated:
            return ""
        self._told_s = time.monotonic()
        where = f"all stacks: {path}" if path else f"the dumps could not be written: {problem}"
        if path and self._keep_in is None:
            where += ", until the job ends (--dump-directory keeps it)"
        return "".join(
            f"horovodrun: {line}\n" for line in [f"Where the ranks are ({where}):", *(f"  {line}" for line in lines)]
        )

    def _collect(self, left: set[int]) -> tuple[dict[int, Dump], dict[int, str]]:
        from horovod._dumps import files

        dumps, absent = files.read_dumps(self._directory, self._came)
        for rank in self._hosts:
            if rank not in self._came and rank in left:
                self._collect_silent(rank, dumps, absent)
            elif rank not in self._came:
                absent[rank] = _ENDED
        return dumps, absent

    def _collect_silent(self, rank: int, dumps: dict[int, Dump], absent: dict[int, str]) -> None:
        from horovod._dumps.stacks import from_faulthandler
        from horovod._dumps.values import Dump, Thread

        found = places.find_stacks_file(self._directory, rank)
        if found is None:
            absent[rank] = "no hvd.init() yet, or dumps are off"
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
        size, host = len(self._hosts), self._hosts[rank]
        dumps[rank] = Dump(rank, size, host, pid, self._cwd, now, "request", threads=threads, stacks_only=True)

    def _write(self, lines: list[str], dumps: Mapping[int, Dump]) -> tuple[Optional[Path], str]:
        """The file for people, and the same for programs beside it."""
        from horovod._dumps import files, readable, values

        place = self._keep_in or self._directory
        try:
            places.make_directory(place)
            ranks = [json.loads(values.to_json(dumps[rank])) for rank in sorted(dumps)]
            files.write(place / f"{_FILE}.json", json.dumps({"lines": lines, "ranks": ranks}, indent=1))
            files.write(place / f"{_FILE}.txt", readable.all_ranks(lines, dumps))
        except OSError as error:
            return None, str(error)
        return place / f"{_FILE}.txt", ""


def _state(pid: int) -> str:
    """Of a process, as the kernel calls it: "T" is stopped; "" when there is none."""
    try:
        return Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""
