"""Fixtures of the launcher's tests: a launcher with a private place for its directories, and waiting for processes."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 30.0


class Horovodrun:
    """Starts the launcher; see the fixture."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD", "OMP_"))}
        self.environ["XDG_RUNTIME_DIR"] = str(place)
        self.environ["PYTHONPATH"] = str(ROOT / "python")

    def start(self, options: Sequence[str], command: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
        """The launcher as a process."""
        words = [sys.executable, "-m", "horovod.runner", *options, *command]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": self.environ, **more}
        return subprocess.Popen(words, **pipes)

    def __call__(self, options: str, command: Sequence[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
        """Runs it to its end, and checks that it has left nothing in its place."""
        typed = more.pop("input", None)
        process = self.start(options.split(), command, **more)
        stdout, stderr = process.communicate(typed, timeout=PATIENCE_S)
        assert list(self.place.iterdir()) == []
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def python(self, options: str, code: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        """Runs Python code as the ranks."""
        return self(options, python(code), **more)


def python(code: str) -> list[str]:
    """The command that runs this code."""
    return [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)]


def wait_for_end(pid: int) -> None:
    """Waits until the process is gone; fails after a while."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE_S)
        assert ready, f"process {pid} is still there"
    finally:
        os.close(descriptor)


def alive(pid: int) -> bool:
    """The process exists and is not a zombie."""
    state: Optional[str] = None
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


@pytest.fixture
def horovodrun() -> Iterator[Horovodrun]:
    """A launcher whose directories are in a place of its own."""
    place = Path(tempfile.mkdtemp(prefix="hvd", dir="/tmp"))
    yield Horovodrun(place)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def by_agent(horovodrun: Horovodrun, tmp_path: Path) -> Horovodrun:
    """A launcher whose other hosts are all this one: agents start the ranks, by a program in ssh's place."""
    program = tmp_path / "stay"
    program.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    program.chmod(0o755)
    horovodrun.environ["OMPI_MCA_plm_rsh_agent"] = str(program)
    return horovodrun
