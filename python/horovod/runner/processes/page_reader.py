"""Reads what the ranks of this host have counted, from the job's directory. Used by `process`."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Optional

from horovod._dumps import paths
from horovod.runner.live.figures import BYTES, Figures, Reading, decoded, text_changes
from horovod.runner.processes import vitals

_TRIES: Final = 3  # while the text of an error is being written


def readings(directory: Path, numbers: Iterable[int]) -> dict[int, Reading]:
    """The figures of the ranks with these numbers that have connected."""
    found = {}
    for number in numbers:
        page = _page(paths.counters_file(directory, number))
        now_ns = time.monotonic_ns()
        figures = decoded(page, now_ns) if page is not None else None
        if figures is not None:
            found[number] = Reading(_with_processor(figures), now_ns / 1e9)
    return found


def _with_processor(figures: Figures) -> Figures:
    """A rank writes its processor time only when a batch or a wait ends, which says nothing of a long step under way;
    the kernel knows better while the process lives."""
    used_ns = vitals.processor_ns(figures.pid)
    # A smaller number is another process's: the rank counts in a namespace of its own.
    return figures if used_ns is None else figures._replace(processor_ns=max(used_ns, figures.processor_ns))


def _page(path: Path) -> Optional[bytes]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None  # it has not connected, or its job does without
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        for _ in range(_TRIES):
            page = os.pread(fd, BYTES, 0)
            if not text_changes(page):
                break
    except OSError:
        return None
    finally:
        os.close(fd)
    return page
