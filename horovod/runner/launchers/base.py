"""What a launcher is: it runs a checked job to its end and says how it ended.

Used by `cli` and `function`. Launchers for other hosts (ssh, mpirun, jsrun) will be further implementations.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, TextIO

from horovod.runner.job import Job
from horovod.runner.report import Exit, culprit, story


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        exits: every rank's end, in order.
        interrupted: the signal that stopped the launcher, or 0.
        complaint: why the launcher itself gave up (a rank could not be started, or was not up in time), or empty.
        complaint_code: the exit code that goes with it.
    """

    exits: tuple[Exit, ...]
    interrupted: int = 0
    complaint: str = ""
    complaint_code: int = 1

    @property
    def exit_code(self) -> int:
        """The launcher's: 128 + signal when it was told to stop, else the culprit's, else 0."""
        if self.interrupted:
            return 128 + self.interrupted
        if self.complaint:
            return self.complaint_code
        found = culprit(self.exits)
        return found.code if found else 0

    @property
    def message(self) -> str:
        """What went wrong, or an empty text."""
        if self.interrupted:
            return f"stopped by {signal.Signals(self.interrupted).name}; no rank is left."
        if self.complaint:
            return self.complaint
        found = culprit(self.exits)
        if found is None:
            return ""
        return story(found, sum(ended is not found and ended.code != 0 for ended in self.exits))


@dataclass(frozen=True)
class Surroundings:
    """What a launcher needs of the process it runs in.

    Attributes:
        stdout, stderr: where the ranks' output goes.
        signal_fd: readable when a signal has come, or -1.
        take_signals: the signals that have come since it was called last.
        prepare: called with the job's directory before the ranks start, to put files for them there.
        collect: called with it after all ranks have ended, before it is removed.
    """

    stdout: TextIO
    stderr: TextIO
    signal_fd: int = -1
    take_signals: Callable[[], list[int]] = list
    prepare: Optional[Callable[[Path], None]] = None
    collect: Optional[Callable[[Path], None]] = None


class Launcher(ABC):
    """Runs jobs of one kind."""

    @abstractmethod
    def why_not(self, job: Job) -> str:
        """Why this launcher cannot run the job; empty when it can."""

    @abstractmethod
    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        """Runs the job to its end. When it returns or raises, no process, file or directory of the job is left."""
