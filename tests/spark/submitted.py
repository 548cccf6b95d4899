"""A program that `spark-submit` runs, for a test: neither the end of a test nor that of pytest leaves it behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
# Of a process that is killed, the pipe ends without a line.
_GUARD = 'read || kill -KILL -- "-$0"'


@contextmanager
def submitted(words: list[str], environ: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, which writes to `log`; at the end of the block its process group is killed if it lives."""
    with log.open("wb") as file:
        job = subprocess.Popen(words, cwd=_ROOT, env=environ, stdout=file, stderr=file, process_group=0)
    guard = subprocess.Popen(["bash", "-c", _GUARD, str(job.pid)], stdin=subprocess.PIPE, process_group=0)
    try:
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        guard.communicate(b"\n")
