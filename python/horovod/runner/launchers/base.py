"""What a launcher is: it runs a checked job to its end and says how it ended.

Used by every launcher, by `supervision`, and by those that start a job and report its outcome.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional, TextIO

from horovod.runner.job import Job
from horovod.runner.live.table import Row
from horovod.runner.processes.shipment import Shipment
from horovod.runner.processes.strays import sentence_on_strays
from horovod.runner.showing.desk import Desk
from horovod.runner.supervising.report import Exit, culprit, story


class Outcome(NamedTuple):
    """How a job ended.

    Attributes:
        exits: every rank's end, in order.
        interrupted: the signal that stopped the launcher, or 0.
        complaint: why the launcher itself gave up (a rank could not be started or was not up in time, a host or a
            keeper was lost, the job hung), or empty.
        complaint_code: the exit code that goes with it.
        nobody_met: there were several ranks, and none called hvd.init().
        just_read: the ranks whose last lines of stderr stand above, on the same page.
        results: the ranks, as they were started, whose results count, in this order; None: all.
        strays: number of processes that called hvd.init() without the launcher's variables.
        rows: what the ranks did with their time, where that is known.
    """

    exits: tuple[Exit, ...]
    interrupted: int = 0
    complaint: str = ""
    complaint_code: int = 1
    nobody_met: bool = False
    just_read: frozenset[int] = frozenset()
    results: Optional[tuple[int, ...]] = None
    strays: int = 0
    rows: tuple[Row, ...] = ()

    @property
    def exit_code(self) -> int:
        """The launcher's: 128 + signal when it was asked to stop, else the culprit's, else 0."""
        if self.interrupted:
            return 128 + self.interrupted
        if self.complaint:
            return self.complaint_code
        found = culprit(self.exits)
        return found.code if found else 0

    @property
    def message(self) -> str:
        """What went wrong, or deserves a remark; else an empty text."""
        if self.interrupted:
            return f"stopped by {signal.Signals(self.interrupted).name}; no rank is left."
        if self.complaint:
            return self.complaint
        found = culprit(self.exits)
        if found is not None:
            return story(self.exits, found)
        if self.nobody_met:
            remedy = " Call it in the program if they are to train together."
            copies = f"no rank called hvd.init(): {len(self.exits)} independent copies ran."
            return copies + (sentence_on_strays(self.strays) or remedy)
        return ""

    @property
    def closing_words(self) -> str:
        """The message for a user who has just read the ranks' output."""
        found = culprit(self.exits)
        if found is None or self.interrupted or self.complaint:
            return self.message
        return story(self.exits, found, with_last_lines=found.rank not in self.just_read)

    def ended_for_good(self, signals: Sequence[int]) -> Outcome:
        """The same, for a job that would be started again: a user who sent one of these signals while it was being
        cleared up wants it to end."""
        return self._replace(interrupted=signals[0]) if signals and self.exit_code else self


class Surroundings(NamedTuple):
    """What a launcher needs of the process it runs in.

    Attributes:
        stdout, stderr: where the ranks' output goes.
        signal_fd: readable when a signal has come, or -1.
        take_signals: the signals that have come since it was called last.
        dump_signal: which of them asks for the ranks' dumps; 0: none.
        caller: what the user has called, which the launcher's own lines begin with.
        shipment: the function that the ranks are to call, and where their results go; None when they run a program.
        live: where others ask how the job is; None: nobody can.
    """

    stdout: TextIO
    stderr: TextIO
    signal_fd: int = -1
    take_signals: Callable[[], list[int]] = list
    shipment: Optional[Shipment] = None
    dump_signal: int = 0
    caller: str = "horovodrun"
    live: Optional[Desk] = None


class Station(NamedTuple):
    """Ranks of one host as they would be started.

    Attributes:
        host: its name.
        ranks: on it.
        way: how they are started there, in words.
        here: the launcher starts them itself.
        by_another: another program starts them, and gives each its place.
    """

    host: str
    ranks: tuple[int, ...]
    way: str
    here: bool
    by_another: bool = False


class Launcher(ABC):
    """Runs jobs of one kind."""

    @abstractmethod
    def why_not(self, job: Job) -> str:
        """Why this launcher cannot run the job; empty when it can."""

    @abstractmethod
    def remarks(self, job: Job) -> list[str]:
        """One sentence per thing that was asked for and does nothing, or little good, here.

        Raises:
            InvalidArgumentError: something that was asked for cannot be done here.
        """

    @abstractmethod
    def stations(self, job: Job) -> list[Station]:
        """Where the ranks would be started, and how. Starts nothing.

        Raises:
            InvalidArgumentError: they could not be started, as far as this machine can tell.
        """

    @abstractmethod
    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        """Runs the job to its end. When it returns or raises, no process, file or directory of the job is left."""
