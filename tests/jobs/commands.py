"""The commands that start Python and ranks of it. `warm` names the framework that ranks find imported; see `warm`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .warm import interpreter


def python(*words: object, warm: str = "") -> list[str]:
    """The command that runs Python with these words: a script or options, and arguments."""
    return [*(interpreter(warm) if warm else [sys.executable]), *map(str, words)]


def on_hosts(counts: Sequence[int], *words: object, warm: str = "") -> list[str]:
    """The command that runs Python with these words on so many ranks of each host; the hosts are on the loopback."""
    launcher = python("-m", "jobs.hosts_on_loopback", ",".join(map(str, counts)))
    return [*launcher, *python(*words, warm=warm)]


def horovodrun(ranks: int, *words: object, warm: str = "") -> list[str]:
    """The command that runs Python with these words on so many ranks; 0: in one process without a launcher."""
    launcher = python("-m", "horovod.runner", "-np", ranks) if ranks else []
    return [*launcher, *python(*words, warm=warm)]
