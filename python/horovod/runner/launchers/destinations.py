"""Where the output of a job goes: the streams of its ranks, the folders of its files.

Used by `local` and `ssh`.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Final

from horovod._core.errors import InvalidArgumentError
from horovod.runner.display.line_style import LineStyle, takes_colors
from horovod.runner.display.output import OutputFile, RankStream, rank_directory
from horovod.runner.display.standard_streams import is_terminal
from horovod.runner.display.tracebacks import KnownTracebacks, TracebackFilter
from horovod.runner.job import Job
from horovod.runner.launchers.base import Surroundings

_log: Final = logging.getLogger("horovod.runner")


def output_directory(job: Job) -> Path | None:
    """Where the ranks' output goes too; made, with a folder for each rank. None when nobody asked for it.

    Raises:
        InvalidArgumentError: it cannot be made.
    """
    if not job.settings.output_filename:
        return None
    base = Path(job.cwd, job.settings.output_filename)
    try:
        for slot in job.slots:
            rank_directory(base, slot.rank, job.size).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(f"--output-filename {base} cannot be created: {error.strerror}.") from error
    return base


def make_timeline_directory(job: Job) -> None:
    """Makes the folder of the file that rank 0 will write, and says so: its name may be mistyped.

    Raises:
        InvalidArgumentError: it cannot be made.
    """
    made = make_timeline_folder(job.settings.timeline_path or "", job.cwd)
    if made is not None:
        _log.warning("the folder %s of the timeline did not exist and was made.", made)


def make_timeline_folder(path: str, cwd: str) -> Path | None:
    """The same for the value of HOROVOD_TIMELINE, on the host of rank 0. Returns what was not there."""
    if path and path.upper() != "DYNAMIC":
        folder = Path(cwd, path).parent
        try:
            if folder.is_dir():
                return None
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        except OSError as error:
            raise InvalidArgumentError(
                f"The folder of the timeline {path} cannot be created: {error.strerror}."
            ) from error
    return None


def rank_streams(job: Job, base: Path | None, surroundings: Surroundings) -> list[tuple[RankStream, RankStream]]:
    """What reads stdout and stderr of each rank, in order of ranks.

    Args:
        job: whose ranks.
        base: see `output_directory`.
        surroundings: where the output is shown.
    """
    known = None if job.settings.verbose else KnownTracebacks()
    clock = time.time if job.settings.prefix_output_with_timestamp else None
    ways = {"stdout": surroundings.stdout, "stderr": surroundings.stderr}
    colored = {name: takes_colors(job.environ, is_terminal(way)) for name, way in ways.items()}
    chosen = job.settings.shown_ranks
    found = []
    for slot in job.slots:
        place = rank_directory(base, slot.rank, job.size) if base else None
        shown = chosen is None or slot.rank in (*chosen, job.settings.stdin_rank)
        stdout, stderr = (
            RankStream(
                slot.rank,
                name,
                OutputFile(place / name, more=job.restart > 0) if place else None,
                LineStyle(shown, colored[name], slot.rank == job.settings.stdin_rank, clock),
            )
            for name in ways
        )
        # Nobody can be referred to a traceback that is not shown.
        if known is not None:
            stderr.shorten_tracebacks(TracebackFilter(slot.rank, known if shown else KnownTracebacks()))
        found.append((stdout, stderr))
    return found
