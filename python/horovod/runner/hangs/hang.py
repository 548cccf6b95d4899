"""Says which rank is behind when a job hangs, and puts the dumps of all ranks into one file.

Used by `supervision`, which gives it the time and news of the ranks. The dumps come from a source: the ranks of this
host (`collecting`), or several hosts (`remote.launcher_side.hosts_dumps`). What they say together is decided in
`horovod._dumps.compare`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Optional

from horovod._dumps import paths
from horovod.runner.hangs.collecting import ENDED, SHUT_DOWN, Collected, Source
from horovod.runner.hangs.hang_file import HangFile
from horovod.runner.job import Job

_ANOTHER_S: Final = 5.0  # a stall is reported at most so long after its warning time


def wanted(job: Job) -> bool:
    """Dumps are to be collected: there are several ranks, and something makes them dump."""
    settings = job.settings
    return job.size > 1 and bool(settings.dump_on_stall or paths.signal_number(settings.dump_signal))


def hang_desk(job: Job, source: Source, private: Optional[Path] = None, caller: str = "horovodrun") -> HangDesk:
    """The desk of a job.

    Args:
        job: what runs.
        source: of the dumps.
        private: see `HangFile`.
        caller: see `Surroundings`.
    """
    keep_in = job.settings.dump_directory or job.settings.output_filename
    file = HangFile(Path(job.cwd, keep_in) if keep_in else None, private, Path(job.cwd))
    return HangDesk(source, file, hosts_of(job), caller)


def hosts_of(job: Job) -> dict[int, str]:
    """The name of each rank's host."""
    return {slot.rank: slot.hostname for slot in job.slots}


class HangDesk:
    """Where the dumps of a job come together.

    Args:
        source: of the dumps; closed with the desk.
        file: where they go; closed with the desk.
        hosts: of each rank.
        caller: see `Surroundings`.
    """

    def __init__(self, source: Source, file: HangFile, hosts: Mapping[int, str], caller: str = "horovodrun") -> None:
        self._source = source
        self._file = file
        self._hosts = hosts
        self._caller = caller
        self._wanted = False
        self._reported = ""
        self._reported_s = 0.0

    @property
    def fd(self) -> int:
        """Readable when there is something to `read`; -1 when there is no such descriptor."""
        return self._source.fd

    def ask(self, now_s: float) -> None:
        """Asks all ranks for dumps, as the user has asked the launcher."""
        self._wanted = True
        self._source.ask(now_s)

    def read(self, now_s: float) -> None:
        """Ranks have dumped."""
        self._source.read(now_s)

    def next_s(self) -> Optional[float]:
        """When `report` has something to do, if no dump comes before; None: nothing is going on."""
        return self._source.next_s()

    def report(self, left: set[int], now_s: float) -> str:
        """What is to be written to the user now; mostly nothing.

        Args:
            left: ranks that have not ended.
            now_s: the time.
        """
        collected = self._source.finished_round(left, now_s)
        return "" if collected is None else self._tell(collected)

    def close(self, left: set[int], failed: bool = False) -> str:
        """Ends the desk, as the job has ended, well or not; returns what is still to be written to the user."""
        collected = self._source.close(left)
        text = "" if collected is None else self._tell(collected)
        kept = self._file.close(failed)
        return f"{text}{self._caller}: {kept}\n" if kept else text

    def _tell(self, collected: Collected) -> str:
        from horovod._dumps.compare import (
            anybody_behind,
            compare,
            without_times,
        )  # not before it is needed: they take milliseconds

        dumps, absent = collected
        wanted = self._wanted or any(dump.reason == "signal" for dump in dumps.values())
        self._wanted = False
        waited_s = max((one.seconds for dump in dumps.values() for one in dump.pending), default=0.0)
        if time.monotonic() - self._reported_s > waited_s + _ANOTHER_S:
            self._reported = ""  # a new stall has begun
        leaving = not {ENDED, SHUT_DOWN}.isdisjoint(absent.values())
        if self._reported and not wanted and (leaving or not anybody_behind(dumps)):
            return ""  # the stall is over, or has ended the job: the earlier report says more
        lines = compare(dumps, absent, self._hosts)
        same = without_times(lines)
        # A stall is reported again and again; what has not changed need not be read again.
        repeated, self._reported = same == self._reported and not wanted, same
        where = self._file.write(lines, dumps)
        if repeated:
            return ""
        self._reported_s = time.monotonic()
        return "".join(
            f"{self._caller}: {line}\n"
            for line in [f"Where the ranks are ({where}):", *(f"  {line}" for line in lines)]
        )
