"""Runs another launcher (mpirun, jsrun) to its end, as if it were the only rank: it starts, binds and ends the ranks
itself, and passes on their output.

Used by `mpirun` and `jsrun`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from horovod.runner.job import Job
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.live.figures import Reading
from horovod.runner.machines.hosts import Slot
from horovod.runner.machines.limits import allowed_descriptors
from horovod.runner.mpi.relay import Relay
from horovod.runner.processes.arrivals import DirectoryArrivals
from horovod.runner.processes.crew import Event, Exited, Started
from horovod.runner.processes.process import RankProcesses, RankSpec
from horovod.runner.processes.runtime_directory import JobDirectory
from horovod.runner.processes.streams import Source, Stream
from horovod.runner.processes.vitals import Vitals
from horovod.runner.supervising.supervision import Supervision


class Line(NamedTuple):
    """A launcher and its words, and the variables that it gets."""

    words: list[str]
    environ: dict[str, str]


class _Processes(RankProcesses):
    """The crew whose only member is that launcher; the ranks are its own.

    Attributes:
        at_end: called when it has ended, while the job's directory is still there.
    """

    at_end: Optional[Callable[[], None]] = None

    def vitals(self) -> Mapping[int, Optional[Vitals]]:
        """Unknown: the ranks may be on other hosts."""
        return {}

    def figures(self) -> Mapping[int, Reading]:
        """Unknown: the ranks have no directory of ours."""
        return {}

    def events(self) -> list[Event]:
        found: list[Event] = [event for event in super().events() if not isinstance(event, Started)]
        if self.at_end is not None and any(isinstance(event, Exited) for event in found):
            self.at_end()
        return found


def follow(
    line: Line,
    job: Job,
    directory: JobDirectory,
    surroundings: Surroundings,
    at_end: Optional[Callable[[], None]] = None,
) -> Outcome:
    """Runs it to its end, with what it has started.

    Args:
        line: the launcher.
        job: what it starts.
        directory: of the job.
        surroundings: where its output goes.
        at_end: called when it has ended.
    """
    alone = job._replace(slots=(Slot("localhost", 0, 0, 0, 1, 1, 1),))
    streams: dict[Source, Stream] = {}
    with allowed_descriptors(1) as open_files, contextlib.ExitStack() as undo:
        ends = []
        for name in ("stdout", "stderr"):
            read_fd, write_fd = os.pipe()
            undo.callback(os.close, read_fd)
            streams[read_fd] = Relay(name)
            ends.append(write_fd)
        spec = RankSpec(0, {}, *ends)
        crew = _Processes([line.words[0], *line.words], line.environ, [spec], job.cwd, directory, open_files)
        undo.callback(crew.close)
        crew.at_end = at_end
        arrivals = DirectoryArrivals(Path(directory.path))
        undo.callback(arrivals.close)
        supervision = Supervision(alone, crew, streams, arrivals, surroundings)
        undo.pop_all()  # from here on they are its own
    return supervision.run()


def ended(outcome: Outcome, name: str) -> Outcome:
    """The outcome of the job: that of its launcher, which has itself named the rank that was the cause."""
    code = outcome.exit_code
    if outcome.interrupted or outcome.complaint or not code:
        return outcome._replace(exits=())
    after_s = outcome.exits[0].at_s - outcome.exits[0].started_s
    story = f"{name} ended with code {code} after {after_s:.1f} s; its messages about the ranks are above."
    return outcome._replace(exits=(), complaint=story, complaint_code=code)
