"""Runs one job with one fault, and tells what every rank and the launcher made of it.

Used by the fault tests and `benchmarks/faults.py`. The fault is data (`FAULT` in the environment of `fault_worker.py`).
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import jobs
from jobs import PATIENCE_S, Ended, Hangs, Place, horovodrun

WORKER = Path(__file__).resolve().parent / "fault_worker.py"


@dataclass(frozen=True)
class Fault:
    """What happens to whom.

    Attributes:
        phase: a phase of `fault_worker.py`.
        rank: the victim.
        how: KILL, SEGV, STOP (signals), EXIT (`os._exit(1)`), RAISE (an exception that nobody catches) or NONE.
    """

    phase: str
    rank: int = 1
    how: str = "KILL"

    def text(self) -> str:
        """As the worker reads it."""
        return f"rank={self.rank},phase={self.phase},how={self.how}"


@dataclass
class Story(Ended):
    """How a job with a fault went.

    Attributes:
        size: number of ranks.
    """

    size: int = 0

    @property
    def fault_s(self) -> float:
        """When the fault happened."""
        return float(self.of("fault")[0]["at"])

    @property
    def worst_s(self) -> float:
        """From the fault until the last of the others had raised (or finished)."""
        return max(event["at"] for event in self.of("raised") + self.of("finished")) - self.fault_s

    @property
    def report(self) -> str:
        """First line of the launcher's report; empty if there is none. How the start went on does not belong to it."""
        of_the_start = ("waiting for", "ranks are up, after")
        lines = [line for line in self.stderr.splitlines() if line.startswith("horovodrun: ")]
        return next((line for line in lines if not any(words in line for words in of_the_start)), "")


class FaultJob(jobs.Job):
    """A running job with a fault."""

    def __init__(self, place: Place, fault: Fault, size: int, environ: Optional[dict[str, str]]) -> None:
        super().__init__(place, {"FAULT": fault.text(), **(environ or {})})
        self.size = size

    def story(self) -> Story:
        """Waits for the launcher's end, and for that of everything it started."""
        try:
            ended = self.end(PATIENCE_S, leftovers=True)
        except Hangs:
            for event in self.events():
                self.signal(event["pid"], signal.SIGUSR1)  # the worker then writes where its threads are
            time.sleep(1.0)
            raise Hangs(f"The job does not end.\n{self}") from None
        return Story(**vars(ended), size=self.size)


@contextlib.contextmanager
def started(
    fault: Fault, size: int = 3, environ: Optional[dict[str, str]] = None, whole_machine: bool = False
) -> Iterator[FaultJob]:
    """A running job with a fault; use `run` where the whole of it is wanted."""
    with Place(whole_machine) as place:
        job = FaultJob(place, fault, size, environ)
        job.start(horovodrun(size, WORKER))
        yield job


def run(fault: Fault, size: int = 3, environ: Optional[dict[str, str]] = None, whole_machine: bool = False) -> Story:
    """Runs a job with a fault to its end."""
    with started(fault, size, environ, whole_machine) as job:
        return job.story()
