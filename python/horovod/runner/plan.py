"""`--dry-run`: what would be started where, in words. Pure.

Used by `cli`. Values of variables are shown where they are the launcher's own, or of settings; of all others, which may
hold passwords, only the names.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from horovod._core.settings import BY_ENV
from horovod._dumps.compare import ranks_text
from horovod.runner.job import Job
from horovod.runner.launchers.base import Station
from horovod.runner.machines.host_variables import belongs_to_a_host
from horovod.runner.machines.this_host import rank_environ

_WIDTH: Final = 110
_OF_THE_START: Final = ("HOROVOD_RENDEZVOUS_DIR", "_HOROVOD_SECRET_KEY")
_BY_ANOTHER: Final = ("HOROVOD_EXPECTED_SIZE", "HOROVOD_EXPECTED_HOSTS")
_OF_SEVERAL_HOSTS: Final = ("HOROVOD_JOB_ID", "_HOROVOD_ADDRESS")
_THREADS: Final = "OMP_NUM_THREADS"  # each host divides its cores by its ranks


def plan(job: Job, stations: Sequence[Station], inherited: Mapping[str, str]) -> str:
    """The whole text, without the last end of line.

    Args:
        job: that would run.
        stations: where.
        inherited: variables of the launcher.
    """
    lines = [
        f"command: {shlex.join(job.command)}",
        f"directory: {job.cwd}",
    ]
    for station in stations:
        lines.append(f"{station.host}: {ranks_text(station.ranks)}, {station.way}")
    far = any(not station.here for station in stations)
    given = {name: value for name, value in job.environ.items() if name in BY_ENV or inherited.get(name) != value}
    by_another = any(station.by_another for station in stations)
    made = list(_BY_ANOTHER if by_another else _OF_THE_START) + list(_OF_SEVERAL_HOSTS if far else ())
    made += [_THREADS] * (_THREADS not in job.environ)
    kept = {name for name in job.environ if far and belongs_to_a_host(name)}
    lines += _variables("set for all ranks", (f"{name}={shlex.quote(value)}" for name, value in given.items()))
    if not by_another:
        lines += _variables("set for each rank", rank_environ(job.slots[0]))
    lines += _variables("made at the start", made)
    lines += _variables("inherited", job.environ.keys() - given.keys() - kept)
    if kept:
        lines += _variables("of each host, whose own stay", kept)
    return "\n".join(lines)


def _variables(what: str, words: Iterable[str]) -> list[str]:
    text = " ".join(sorted(words))
    indent = " " * 4
    return [f"variables {what}:", *textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )]  # fmt: skip
