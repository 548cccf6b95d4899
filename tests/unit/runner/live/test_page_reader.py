"""Pages of counters as they are read from a job's directory: the processor time of a step that is under way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from made_up import SECOND, page

from horovod._dumps import paths
from horovod.runner.processes.page_reader import readings

TICK_NS = SECOND // os.sysconf("SC_CLK_TCK")


def processor_ns(place: Path, pid: int, written_ns: int) -> int:
    paths.counters_file(place, 3).write_bytes(page(pid=pid, rank=3, w7=1, processor_ns=written_ns))
    return readings(place, [3])[3].figures.processor_ns


def test_a_long_step_uses_a_processor_before_it_ends(tmp_path: Path) -> None:
    end_s = time.process_time() + 0.1
    while time.process_time() < end_s:
        pass
    used_ns = time.process_time_ns()
    # The rank itself has written nothing since its last batch.
    assert used_ns - 2 * TICK_NS <= processor_ns(tmp_path, os.getpid(), 5) <= time.process_time_ns() + 2 * TICK_NS
    assert processor_ns(tmp_path, os.getpid(), 1 << 60) == 1 << 60


def test_of_a_process_that_has_ended_what_it_wrote_counts(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "pass"]) as ended:
        pass
    assert processor_ns(tmp_path, ended.pid, 7 * SECOND) == 7 * SECOND
    assert processor_ns(tmp_path, (1 << 64) - 1, 7 * SECOND) == 7 * SECOND
